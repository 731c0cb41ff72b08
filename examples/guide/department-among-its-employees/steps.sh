#!/bin/sh
# A department among its employees: its name on each of them, and their manager on it
set -e

evenkeel migrate up
evenkeel submit '{"op":"put","table":"Employees","entity":{"PartitionKey":"Marketing","RowKey":"department","Name":"Marketing"}}'
evenkeel run --until-idle --no-http -q
evenkeel submit - <<'JOBS'
{"op":"put","table":"Employees","entity":{"PartitionKey":"Marketing","RowKey":"00001","FirstName":"Don","LastName":"Hall","Email":"donh@contoso.com"}}
{"op":"put","table":"Employees","entity":{"PartitionKey":"Marketing","RowKey":"00002","FirstName":"Jun","LastName":"Cao","Email":"junc@contoso.com","IsManager":true}}
JOBS
evenkeel run --until-idle --no-http -q

# One range of one partition shows all of them, and nothing else has to be read.
evenkeel lookup --table Employees PartitionKey=Marketing --select LastName,DepartmentName,Name,ManagerName

# The manager has another address: manager and department are committed in one transaction.
evenkeel submit '{"op":"put","table":"Employees","mode":"merge","entity":{"PartitionKey":"Marketing","RowKey":"00002","Email":"jun.cao@contoso.com"}}'
evenkeel run --until-idle --no-http -q
evenkeel get Employees Marketing department

# The department has another name: a `propagate` job writes it to every employee.
evenkeel submit '{"op":"put","table":"Employees","mode":"merge","entity":{"PartitionKey":"Marketing","RowKey":"department","Name":"Brand"}}'
evenkeel run --until-idle --no-http -q
evenkeel lookup --table Employees PartitionKey=Marketing --select LastName,DepartmentName,Name,ManagerName
