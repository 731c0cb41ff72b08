#!/bin/sh
# Orders by customer and by date
set -e

evenkeel migrate up
evenkeel submit - <<'JOBS'
{"op":"put","table":"Orders","entity":{"PartitionKey":"contoso","RowKey":"0001","Ordered":"2026-11-20T09:00:00Z","Ordered@odata.type":"Edm.DateTime","Total":90}}
{"op":"put","table":"Orders","entity":{"PartitionKey":"contoso","RowKey":"0002","Ordered":"2026-11-21T09:00:00Z","Ordered@odata.type":"Edm.DateTime","Total":40}}
{"op":"put","table":"Orders","entity":{"PartitionKey":"fabrikam","RowKey":"0003","Ordered":"2026-11-20T10:00:00Z","Ordered@odata.type":"Edm.DateTime","Total":75}}
JOBS
evenkeel run --until-idle --no-http -q

# All orders of a customer, and all orders of a day: no table scan.
evenkeel lookup --table Orders PartitionKey=contoso --select Ordered,Total
evenkeel lookup orders_by_date Ordered=2026-11-20T00:00:00Z --select Ordered,Total
