#!/bin/sh
# A page for each department: manager, headcount and payroll in one small partition
set -e

evenkeel migrate up
evenkeel submit '{"op":"put","table":"Departments","entity":{"PartitionKey":"Sales","RowKey":"department","Name":"Sales"}}'
evenkeel run --until-idle --no-http -q
evenkeel submit - <<'JOBS'
{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales","RowKey":"00010","FirstName":"Ken","LastName":"Kwok","Salary":50000}}
{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales","RowKey":"00011","FirstName":"Jun","LastName":"Cao","Salary":60000,"IsManager":true}}
JOBS
evenkeel run --until-idle --no-http -q

# The whole page: one range query.
evenkeel lookup --table Departments PartitionKey=Sales
