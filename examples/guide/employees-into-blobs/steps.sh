#!/bin/sh
# An employee moves from a table into a blob and back
set -e

evenkeel migrate up
evenkeel submit '{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales","RowKey":"000003","FirstName":"Ken","LastName":"Kwok"}}'
evenkeel run --until-idle --no-http -q
evenkeel submit '{"op":"archive","archive":"former_employees","pk":"Sales","rk":"000003"}'
evenkeel run --until-idle --no-http -q
evenkeel lookup former_employees PartitionKey=Sales RowKey=000003
evenkeel submit '{"op":"restore","archive":"former_employees","pk":"Sales","rk":"000003"}'
evenkeel run --until-idle --no-http -q
evenkeel get Employees Sales 000003
