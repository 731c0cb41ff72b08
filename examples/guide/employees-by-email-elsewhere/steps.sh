#!/bin/sh
# Employees by number and by e-mail address, in partitions of their own
set -e

evenkeel migrate up
evenkeel submit '{"op":"put","table":"Employees","entity":{"PartitionKey":"empid_Sales","RowKey":"000223","Department":"Sales","FirstName":"Jones","LastName":"Jonathan","Email":"jonesj@contoso.com"}}'
evenkeel run --until-idle --no-http -q

# The copy follows the primary: eventual consistency.
evenkeel wait Employees empid_Sales 000223
evenkeel lookup --table Employees PartitionKey=empid_Sales 'RowKey>=000100' 'RowKey<000400' --select LastName
evenkeel lookup employees_by_email Department=Sales Email=jonesj@contoso.com

# From the copy to its primary.
evenkeel lookup employees_by_email Department=Sales Email=jonesj@contoso.com --entities
