#!/bin/sh
# The manager's name and address, denormalized onto the department
set -e

evenkeel migrate up
evenkeel submit '{"op":"put","table":"Departments","entity":{"PartitionKey":"Marketing","RowKey":"department","DepartmentName":"Marketing","EmployeeCount":153}}'
evenkeel run --until-idle --no-http -q
evenkeel submit '{"op":"put","table":"Employees","entity":{"PartitionKey":"Marketing","RowKey":"00002","FirstName":"Jun","LastName":"Cao","Email":"junc@contoso.com","IsManager":true}}'
evenkeel run --until-idle --no-http -q

# One point query shows department and manager.
evenkeel lookup department_manager PartitionKey=Marketing

# The manager has another address.
evenkeel submit '{"op":"put","table":"Employees","mode":"merge","entity":{"PartitionKey":"Marketing","RowKey":"00002","Email":"jun.cao@contoso.com"}}'
evenkeel run --until-idle --no-http -q
evenkeel get Departments Marketing department
