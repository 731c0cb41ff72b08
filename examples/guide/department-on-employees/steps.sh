#!/bin/sh
# The department's name and floor, denormalized onto each of its employees
set -e

evenkeel migrate up
evenkeel submit '{"op":"put","table":"Departments","entity":{"PartitionKey":"Sales","RowKey":"department","Name":"Sales","Floor":2}}'
evenkeel run --until-idle --no-http -q
evenkeel submit - <<'JOBS'
{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales","RowKey":"00010","FirstName":"Ken","LastName":"Kwok"}}
{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales","RowKey":"00011","FirstName":"Jun","LastName":"Cao"}}
JOBS
evenkeel run --until-idle --no-http -q
evenkeel lookup --table Employees PartitionKey=Sales

# The department moves to another floor: a `propagate` job writes it to every employee.
evenkeel submit '{"op":"put","table":"Departments","mode":"merge","entity":{"PartitionKey":"Sales","RowKey":"department","Floor":5}}'
evenkeel run --until-idle --no-http -q
evenkeel lookup --table Employees PartitionKey=Sales --select LastName,DepartmentName,Floor
