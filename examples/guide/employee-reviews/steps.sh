#!/bin/sh
# An employee and all reviews of the employee, in one partition
set -e

evenkeel migrate up
evenkeel submit - <<'JOBS'
{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales","RowKey":"000123","FirstName":"Ken","LastName":"Kwok"}}
{"op":"put","table":"Reviews","entity":{"PartitionKey":"Sales","RowKey":"2012_000123","Employee":123,"Year":2012,"ManagerRating":4,"PeerRating":5}}
{"op":"put","table":"Reviews","entity":{"PartitionKey":"Sales","RowKey":"2013_000123","Employee":123,"Year":2013,"ManagerRating":5,"PeerRating":4}}
JOBS
evenkeel run --until-idle --no-http -q

# The review of one year: a point query. All of them: a range.
evenkeel lookup reviews_of_employee PartitionKey=Sales Employee=123 Year=2013
evenkeel lookup reviews_of_employee PartitionKey=Sales Employee=123 --select ManagerRating,PeerRating

# The employee and the reviews, by one range query.
evenkeel lookup --table Employees PartitionKey=Sales 'RowKey^=000123'
