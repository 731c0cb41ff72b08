#!/bin/sh
# A long text of an employee, in a blob
set -e

evenkeel migrate up
evenkeel submit '{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales","RowKey":"000223","LastName":"Jones","Resume":"Twelve years of sales in four countries, of which five as head of a department of forty people; speaks Korean and German."}}'
evenkeel run --until-idle --no-http -q

# The entity has a pointer; --resolve reads the blob.
evenkeel get Employees Sales 000223
evenkeel get Employees Sales 000223 --resolve
evenkeel get Employees Sales 000223 --property Resume --out -
