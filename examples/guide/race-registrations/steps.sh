#!/bin/sh
# Registrations of a race by bib and by age, in one transaction
set -e

evenkeel migrate up
evenkeel submit - <<'JOBS'
{"op":"put","table":"Registrations","entity":{"PartitionKey":"2011 New York City Marathon__Full","RowKey":"BIB:01234__John__M__55","Bib":1234,"Name":"John","Gender":"M","Age":55}}
{"op":"put","table":"Registrations","entity":{"PartitionKey":"2011 New York City Marathon__Full","RowKey":"BIB:01235__Kim__F__31","Bib":1235,"Name":"Kim","Gender":"F","Age":31}}
JOBS
evenkeel run --until-idle --no-http -q

# By bib number, and by age.
evenkeel lookup --table Registrations 'PartitionKey=2011 New York City Marathon__Full' 'RowKey^=BIB:01234__' --select Name,Age
evenkeel lookup registrations_by_age 'PartitionKey=2011 New York City Marathon__Full' 'Age>=30' 'Age<40' --select Name,Age
