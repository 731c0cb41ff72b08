#!/bin/sh
# Events by time, spread over four partitions
set -e

evenkeel migrate up
evenkeel submit - <<'JOBS'
{"op":"put","table":"Events","entity":{"PartitionKey":"device-1","RowKey":"a1","At":"2026-11-20T15:04:05Z","At@odata.type":"Edm.DateTime"}}
{"op":"put","table":"Events","entity":{"PartitionKey":"device-2","RowKey":"b2","At":"2026-11-20T15:04:05Z","At@odata.type":"Edm.DateTime"}}
{"op":"put","table":"Events","entity":{"PartitionKey":"device-3","RowKey":"c3","At":"2026-11-20T15:04:05Z","At@odata.type":"Edm.DateTime"}}
JOBS
evenkeel run --until-idle --no-http -q

# One range query for each of the four, in parallel, merged in order.
evenkeel lookup events_by_hour At=2026-11-20T15:04:05Z
