#!/bin/sh
# Customers and employees in one table of people
set -e

evenkeel migrate up
evenkeel submit - <<'JOBS'
{"op":"put","table":"People","entity":{"PartitionKey":"person-1","RowKey":"1","EntityType":"Employee","FirstName":"Ken","LastName":"Kwok","Email":"kenk@contoso.com","Department":"Sales"}}
{"op":"put","table":"People","entity":{"PartitionKey":"person-2","RowKey":"2","EntityType":"Customer","FirstName":"Jun","LastName":"Cao","Email":"jun@fabrikam.com","Company":"Fabrikam"}}
JOBS
evenkeel run --until-idle --no-http -q
evenkeel lookup people_by_email Email=jun@fabrikam.com
evenkeel lookup employees_by_department Department=Sales --select LastName
evenkeel lookup customers_by_company Company=Fabrikam --select LastName
