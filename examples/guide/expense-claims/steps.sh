#!/bin/sh
# The ten latest expense claims of an employee, and their sum
set -e

evenkeel migrate up
evenkeel submit - <<'JOBS'
{"op":"put","table":"ExpenseClaims","entity":{"PartitionKey":"000223","RowKey":"claim-1","Submitted":"2026-11-01T09:00:00Z","Submitted@odata.type":"Edm.DateTime","Amount":120}}
{"op":"put","table":"ExpenseClaims","entity":{"PartitionKey":"000223","RowKey":"claim-2","Submitted":"2026-11-08T09:00:00Z","Submitted@odata.type":"Edm.DateTime","Amount":80}}
{"op":"put","table":"ExpenseClaims","entity":{"PartitionKey":"000223","RowKey":"claim-3","Submitted":"2026-11-15T09:00:00Z","Submitted@odata.type":"Edm.DateTime","Amount":40}}
JOBS
evenkeel run --until-idle --no-http -q
evenkeel lookup expense_claims_latest PartitionKey=000223 --top 10
evenkeel lookup expense_claims_latest PartitionKey=000223 'Submitted>=2026-11-05T00:00:00Z'
evenkeel lookup expenses_by_employee PartitionKey=000223
