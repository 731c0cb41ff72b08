#!/usr/bin/env python3
"""Tries what a shared access signature opens, through the official SDK: a JSON array of attempts on standard input, an outcome per line.

An attempt is {"at": "https://…/Employees?sv=…", "try": "read", …}; an outcome `ok`, or the status and code of the refusal.
"""

import json
import sys

from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableClient
from azure.storage.blob import BlobClient, ContainerClient
from azure.storage.queue import QueueClient


def table(at):
    return TableClient.from_table_url(at, retry_total=0)


def blob(at):
    return BlobClient.from_blob_url(at, retry_total=0)


def container(at):
    return ContainerClient.from_container_url(at, retry_total=0)


def queue(at):
    return QueueClient.from_queue_url(at, retry_total=0)


def row(attempt):
    return {"PartitionKey": attempt["pk"], "RowKey": attempt["rk"]}


TRIES = {
    "get": lambda a: table(a["at"]).get_entity(a["pk"], a["rk"]),
    "query": lambda a: list(table(a["at"]).list_entities()),
    "insert": lambda a: table(a["at"]).create_entity(row(a)),
    "update": lambda a: table(a["at"]).update_entity({**row(a), "Changed": True}),
    "remove": lambda a: table(a["at"]).delete_entity(row(a)),
    "drop": lambda a: table(a["at"]).delete_table(),
    "read": lambda a: blob(a["at"]).download_blob().readall(),
    "upload": lambda a: blob(a["at"]).upload_blob(b"content", overwrite=False),
    "overwrite": lambda a: blob(a["at"]).upload_blob(b"content", overwrite=True),
    "delete": lambda a: blob(a["at"]).delete_blob(),
    "list": lambda a: list(container(a["at"]).list_blobs()),
    "send": lambda a: queue(a["at"]).send_message("{}"),
    "receive": lambda a: list(queue(a["at"]).receive_messages()),
    "peek": lambda a: queue(a["at"]).peek_messages(),
    "clear": lambda a: queue(a["at"]).clear_messages(),
}


def main():
    for attempt in json.load(sys.stdin):
        try:
            TRIES[attempt["try"]](attempt)
            print("ok")
        except HttpResponseError as error:
            print(error.status_code, getattr(error, "error_code", None))


if __name__ == "__main__":
    main()
