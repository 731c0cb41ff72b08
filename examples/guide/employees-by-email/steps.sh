#!/bin/sh
# Employees by number and by e-mail address, in one partition
set -e

evenkeel migrate up

# One put: primary and copy are committed in one entity group transaction.
evenkeel submit '{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales","RowKey":"empid_000223","FirstName":"Jones","LastName":"Jonathan","Email":"jonesj@contoso.com"}}'
evenkeel run --until-idle --no-http -q

# Both are point queries.
evenkeel lookup --table Employees PartitionKey=Sales RowKey=empid_000223
evenkeel lookup employees_by_email PartitionKey=Sales Email=jonesj@contoso.com

# All employees by number: a range of the prefix.
evenkeel lookup --table Employees PartitionKey=Sales 'RowKey^=empid_' --select LastName

# A new address: the copy under the old one is gone.
evenkeel submit '{"op":"put","table":"Employees","mode":"merge","entity":{"PartitionKey":"Sales","RowKey":"empid_000223","Email":"jonathan@contoso.com"}}'
evenkeel run --until-idle --no-http -q
evenkeel lookup employees_by_email PartitionKey=Sales Email=jonesj@contoso.com
evenkeel lookup employees_by_email PartitionKey=Sales Email=jonathan@contoso.com
