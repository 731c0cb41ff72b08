#!/bin/sh
# Login attempts in a table for each day, dropped whole
set -e

DAY=$(date -u +%Y%m%d)
evenkeel migrate up

# The worker creates the table of the day, and those of the next two.
evenkeel run --until-idle --no-http -q
evenkeel submit - <<JOBS
{"op":"put","table":"LoginAttempts$DAY","entity":{"PartitionKey":"web1","RowKey":"0001","User":"jun","Succeeded":false}}
{"op":"put","table":"LoginAttempts$DAY","entity":{"PartitionKey":"web1","RowKey":"0002","User":"jun","Succeeded":true}}
JOBS
evenkeel run --until-idle --no-http -q
evenkeel lookup logins_by_user --table "LoginAttempts$DAY" User=jun

# After 60 days a drop_table job drops the table and what follows it. This one is gone already: skipped.
evenkeel submit '{"op":"drop_table","table":"LoginAttempts20200101"}'
evenkeel run --until-idle --no-http -q
