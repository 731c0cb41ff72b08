#!/bin/sh
# An employee changes department: another partition, all copies follow
set -e

evenkeel migrate up
evenkeel submit '{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales","RowKey":"000223","LastName":"Jones","Email":"jonesj@contoso.com"}}'
evenkeel run --until-idle --no-http -q

# A PartitionKey cannot be updated: a move inserts the entity there and deletes it here.
evenkeel submit '{"op":"move","table":"Employees","pk":"Sales","rk":"000223","to_pk":"Marketing","to_rk":"000223"}'
evenkeel run --until-idle --no-http -q
evenkeel get Employees Marketing 000223
evenkeel lookup employees_by_email Email=jonesj@contoso.com --entities
