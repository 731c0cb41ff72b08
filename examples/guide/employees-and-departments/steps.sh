#!/bin/sh
# A department and its employees in one partition of one table
set -e

evenkeel migrate up

# A department, then its employees.
evenkeel submit '{"op":"put","table":"Employees","entity":{"PartitionKey":"Marketing","RowKey":"department","DepartmentName":"Marketing"}}'
evenkeel run --until-idle --no-http -q
evenkeel submit - <<'JOBS'
{"op":"put","table":"Employees","entity":{"PartitionKey":"Marketing","RowKey":"00001","FirstName":"Don","LastName":"Hall","Age":34,"Email":"donh@contoso.com"}}
{"op":"put","table":"Employees","entity":{"PartitionKey":"Marketing","RowKey":"00002","FirstName":"Jun","LastName":"Cao","Age":47,"Email":"junc@contoso.com","IsManager":true}}
JOBS
evenkeel run --until-idle --no-http -q

# A point query for the department: its manager is on it.
evenkeel get Employees Marketing department

# The number of employees.
evenkeel lookup employee_count PartitionKey=Marketing

# A range of one partition, and the same range with a filter: both are sorted by RowKey.
evenkeel lookup --table Employees PartitionKey=Marketing 'RowKey>=00001' 'RowKey<99999' --select FirstName,LastName,Age
evenkeel lookup --table Employees PartitionKey=Marketing --where 'Age > 40' --select FirstName,Age
