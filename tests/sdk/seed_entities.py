#!/usr/bin/env python3
"""Seeds primaries with a property of every type, through the official SDK.

    seed_entities.py --table Employees --partition Sales --count 100 [--first 0] [--email-domain contoso.com]
    seed_entities.py … --set Email=new@contoso.com     merges one string property into each instead

Row keys are 000000, 000001, …; the table is created where it does not exist. Prints {"table": …, "count": n}.
"""

import argparse
import datetime
import json
import uuid

from azure.data.tables import EdmType, EntityProperty, UpdateMode

import storage

# Most operations in one entity group transaction.
TRANSACTION = 100


def employee(partition, number, domain):
    return {
        "PartitionKey": partition,
        "RowKey": storage.row_key(number),
        "FirstName": f"Employee {number}",
        "LastName": f"O'Brien-{number % 7} 한",
        "Email": f"Employee.{partition}.{number}@{domain}",
        "IsManager": number % 10 == 0,
        "Level": number % 5,
        "Badge": EntityProperty(2**53 + number, EdmType.INT64),
        "Score": 3.0,
        "Hired": datetime.datetime(2020, 1, 1, 12, 30, 15, 123456, tzinfo=datetime.timezone.utc) + datetime.timedelta(days=number),
        "Account": uuid.UUID(int=number + 1),
        "Picture": bytes([0, 255, number % 256]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", required=True)
    parser.add_argument("--partition", default="Sales")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--email-domain", default="contoso.com")
    parser.add_argument("--set", metavar="PROPERTY=VALUE", action="append", default=[])
    args = parser.parse_args()

    client = storage.table(args.table, create=True)
    numbers = range(args.first, args.first + args.count)
    if args.set:
        changes = dict(change.split("=", 1) for change in args.set)
        operations = [
            ("update", {"PartitionKey": args.partition, "RowKey": storage.row_key(n), **changes}, {"mode": UpdateMode.MERGE}) for n in numbers
        ]
    else:
        operations = [("upsert", employee(args.partition, n, args.email_domain), {"mode": UpdateMode.REPLACE}) for n in numbers]
    for start in range(0, len(operations), TRANSACTION):
        client.submit_transaction(operations[start : start + TRANSACTION])
    print(json.dumps({"table": args.table, "count": len(operations)}))


if __name__ == "__main__":
    main()
