#!/bin/sh
# Employees by last name: an index entity in their partition
set -e

evenkeel migrate up
evenkeel submit - <<'JOBS'
{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales","RowKey":"000152","FirstName":"Don","LastName":"Jones"}}
{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales","RowKey":"000194","FirstName":"Jun","LastName":"Jones"}}
{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales","RowKey":"000207","FirstName":"Ken","LastName":"Kwok"}}
JOBS
evenkeel run --until-idle --no-http -q

# The list of all who are called Jones, then the employees themselves by parallel point queries.
evenkeel lookup employees_of_department_named PartitionKey=Sales LastName=Jones
evenkeel lookup employees_of_department_named PartitionKey=Sales LastName=Jones --entities

# A changed last name leaves one list and joins another.
evenkeel submit '{"op":"put","table":"Employees","mode":"merge","entity":{"PartitionKey":"Sales","RowKey":"000152","LastName":"Kwok"}}'
evenkeel run --until-idle --no-http -q
evenkeel lookup employees_of_department_named PartitionKey=Sales LastName=Jones
evenkeel lookup employees_of_department_named PartitionKey=Sales LastName=Kwok
