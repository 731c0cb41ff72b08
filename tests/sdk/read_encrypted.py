#!/usr/bin/env python3
"""Prints encrypted properties of an entity, decrypted: one JSON object, `{"Property": {"v": value}, …}`.

    read_encrypted.py --table Employees --pk Sales --rk 000223 --key k1=BASE64 Ssn Salary
"""

import argparse
import base64
import json

import encryption
import storage


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", required=True)
    parser.add_argument("--pk", required=True)
    parser.add_argument("--rk", required=True)
    parser.add_argument("--key", required=True, action="append", help="NAME=BASE64")
    parser.add_argument("properties", nargs="+")
    args = parser.parse_args()

    keys = {name: base64.b64decode(text) for name, _, text in (key.partition("=") for key in args.key)}
    place = (args.table, args.pk, args.rk)
    row = storage.table("EvenkeelKeys").get_entity(f"{args.table.lower()}~{args.pk}", args.rk)
    data_key = encryption.unwrap(keys[row["KeyId"]], row["KeyId"], row["WrappedKey"], *place)
    entity = storage.table(args.table).get_entity(args.pk, args.rk)
    print(json.dumps({name: encryption.decrypt_value(data_key, *place, name, entity[name]) for name in args.properties}))


if __name__ == "__main__":
    main()
