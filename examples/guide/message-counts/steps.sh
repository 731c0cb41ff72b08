#!/bin/sh
# Messages of each hour of a day, in one entity
set -e

evenkeel migrate up
evenkeel submit - <<'JOBS'
{"op":"put","table":"MessageStats","mode":"merge","entity":{"PartitionKey":"employee-223","RowKey":"2026-11-20","Hour00":2}}
{"op":"put","table":"MessageStats","mode":"merge","entity":{"PartitionKey":"employee-223","RowKey":"2026-11-20","Hour01":0}}
{"op":"put","table":"MessageStats","mode":"merge","entity":{"PartitionKey":"employee-223","RowKey":"2026-11-20","Hour02":5}}
{"op":"put","table":"MessageStats","mode":"merge","entity":{"PartitionKey":"employee-223","RowKey":"2026-11-20","Hour03":11}}
JOBS
evenkeel run --until-idle --no-http -q

# The chart of a day: one point query. The days of a month: one range.
evenkeel lookup --table MessageStats PartitionKey=employee-223 RowKey=2026-11-20
evenkeel lookup --table MessageStats PartitionKey=employee-223 'RowKey>=2026-11-01' 'RowKey<2026-12-01' --select Hour00,Hour03
