#!/bin/sh
# Events of a web server as lines of an append blob for each hour
set -e

evenkeel migrate up
evenkeel submit - <<'JOBS'
{"op":"put","table":"Requests","entity":{"PartitionKey":"web1","RowKey":"0f8f","At":"2026-11-20T15:04:05Z","At@odata.type":"Edm.DateTime","Level":"Error","Path":"/orders"}}
{"op":"put","table":"Requests","entity":{"PartitionKey":"web2","RowKey":"7ab1","At":"2026-11-20T15:05:10Z","At@odata.type":"Edm.DateTime","Level":"Information","Path":"/"}}
JOBS
evenkeel run --until-idle --no-http -q
evenkeel submit - <<'JOBS'
{"op":"archive","archive":"requests","pk":"web1","rk":"0f8f"}
{"op":"archive","archive":"requests","pk":"web2","rk":"7ab1"}
JOBS
evenkeel run --until-idle --no-http -q

# Errors between 15:04 and 15:06.
evenkeel logs requests --from 2026-11-20T15:04:00Z --to 2026-11-20T15:06:00Z --where 'Level in ["Error", "Critical"]'
