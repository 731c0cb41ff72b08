#!/usr/bin/env python3
"""Stages a value of random bytes and puts a `put` job that names it, through the official SDK.

    stage_put.py --queue evenkeel-jobs --table Employees --partition Sales --row 000223 --property Photo --bytes 6000000

Container and queue are created where they do not exist. Prints {"sha256": …, "blob": …}.
"""

import argparse
import hashlib
import json
import os
import uuid

from azure.storage.blob import BlobServiceClient, ContentSettings

import storage

CONTAINER = "evenkeel-staging"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--partition", default="Sales")
    parser.add_argument("--row", required=True)
    parser.add_argument("--property", required=True)
    parser.add_argument("--bytes", type=int, required=True)
    args = parser.parse_args()

    content = os.urandom(args.bytes)
    # In blocks of 1 MiB, as large uploads go.
    service = BlobServiceClient.from_connection_string(
        storage.connection_string(), max_single_put_size=1 << 20, max_block_size=1 << 20
    )
    container = service.get_container_client(CONTAINER)
    if not container.exists():
        container.create_container()
    staged = container.upload_blob(f"{uuid.uuid4()}.png", content, content_settings=ContentSettings(content_type="image/png"))

    sha256 = hashlib.sha256(content).hexdigest()
    blob = {"blob": f"{CONTAINER}/{staged.blob_name}", "sha256": sha256}
    job = {
        "op": "put",
        "table": args.table,
        "mode": "merge",
        "entity": {"PartitionKey": args.partition, "RowKey": args.row},
        "blobs": {args.property: blob},
    }
    storage.queue(args.queue, create=True).send_message(storage.encode(json.dumps(job), "base64"))
    print(json.dumps(blob))


if __name__ == "__main__":
    main()
