#!/usr/bin/env python3
"""Prints whether everything derived from an entity is in step with a version of it, or a later one: true or false.

    in_step.py --table Employees --pk Sales --rk 000223 [--etag "W/\\"datetime'…'\\""]
"""

import argparse
import json

# docs/client.md shows what follows, as far as the next rule.
# ---
from azure.core.exceptions import ResourceNotFoundError


def in_step(entities, footprints, pk, rk, etag=None):
    """Whether everything derived from an entity has its version at this ETag, or a later one; the present one where no ETag is given."""

    def read(table, partition, name):
        try:
            return table.get_entity(partition, rk, select=[name])
        except ResourceNotFoundError:
            return None

    # The footprint before the entity: a version that was in step before it was found to be the present one.
    footprint = read(footprints, f"{entities.table_name}~{pk}", "Settled") or {}
    settled = footprint.get("Settled", "never").removeprefix("waiting ")
    if settled == f"at {etag}":
        return True
    # evenkeel may have written the entity since: properties that others keep on it.
    present = read(entities, pk, "PartitionKey")
    return settled == (f"at {present.metadata['etag']}" if present else "absent")
# ---


def main():
    import storage

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", required=True)
    parser.add_argument("--pk", required=True)
    parser.add_argument("--rk", required=True)
    parser.add_argument("--etag")
    args = parser.parse_args()
    print(json.dumps(in_step(storage.table(args.table), storage.table("EvenkeelFootprints"), args.pk, args.rk, args.etag)))


if __name__ == "__main__":
    main()
