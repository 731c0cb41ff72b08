#!/usr/bin/env python3
"""Prints a table as the official SDK reads it: one JSON object per line, `{"Property": ["Edm type", value], …}`.

    read_entities.py --table EmployeesByEmail [--filter "PartitionKey eq 'email_Sales'"] [--count]

`--count` prints the number of entities instead. A table that does not exist is empty.
"""

import argparse
import base64
import datetime
import json
import uuid

from azure.core.exceptions import ResourceNotFoundError
from azure.data.tables import EntityProperty

import storage


def typed(value):
    """A value with the EDM type that the SDK gave it."""
    if isinstance(value, EntityProperty):
        return [value.edm_type.value, value.value]
    if isinstance(value, bool):
        return ["Edm.Boolean", value]
    if isinstance(value, int):
        return ["Edm.Int32", value]
    if isinstance(value, float):
        return ["Edm.Double", value]
    if isinstance(value, datetime.datetime):
        # The SDK cuts to microseconds and keeps what the service sent beside.
        return ["Edm.DateTime", getattr(value, "tables_service_value", None) or value.isoformat()]
    if isinstance(value, uuid.UUID):
        return ["Edm.Guid", str(value)]
    if isinstance(value, bytes):
        return ["Edm.Binary", base64.b64encode(value).decode()]
    return ["Edm.String", value]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", required=True)
    parser.add_argument("--filter")
    parser.add_argument("--count", action="store_true")
    args = parser.parse_args()

    client = storage.table(args.table)
    rows = client.query_entities(args.filter) if args.filter else client.list_entities()
    count = 0
    try:
        for row in rows:
            count += 1
            if not args.count:
                print(json.dumps({name: typed(value) for name, value in row.items()}, ensure_ascii=False))
    except ResourceNotFoundError:
        pass
    if args.count:
        print(count)


if __name__ == "__main__":
    main()
