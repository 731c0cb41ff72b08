#!/bin/sh
# Both sides of a cash transaction, never seen apart
set -e

evenkeel migrate up

# One put writes the transaction and both of its sides in one entity group transaction.
evenkeel submit '{"op":"put","table":"Transactions","entity":{"PartitionKey":"tx-7f3c","RowKey":"transaction","From":"account-1","To":"account-2","Amount":250}}'
evenkeel run --until-idle --no-http -q
evenkeel lookup debits PartitionKey=tx-7f3c From=account-1
evenkeel lookup credits PartitionKey=tx-7f3c To=account-2

# What an account paid and received follows.
evenkeel lookup --table Ledger PartitionKey=account-1
evenkeel lookup --table Ledger PartitionKey=account-2
