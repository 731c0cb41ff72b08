"""What the senders share: clients of the account in AZURE_STORAGE_CONNECTION_STRING, and the forms a message can have."""

import base64
import gzip
import os
import sys

from azure.core.exceptions import ResourceExistsError
from azure.data.tables import TableServiceClient
from azure.storage.queue import QueueServiceClient

ENCODINGS = ("plain", "base64", "gzip")


def connection_string():
    try:
        return os.environ["AZURE_STORAGE_CONNECTION_STRING"]
    except KeyError:
        sys.exit("AZURE_STORAGE_CONNECTION_STRING is not set")


def table(name, create=False):
    """A client of a table; `create`: which then exists."""
    service = TableServiceClient.from_connection_string(connection_string())
    return service.create_table_if_not_exists(name) if create else service.get_table_client(name)


def queue(name, create=False):
    """A client of a queue; `create`: which then exists."""
    client = QueueServiceClient.from_connection_string(connection_string()).get_queue_client(name)
    if create:
        try:
            client.create_queue()
        except ResourceExistsError:
            pass
    return client


def encode(text, encoding):
    """A message's text in the form that goes on the wire."""
    if encoding == "plain":
        return text
    body = text.encode()
    return base64.b64encode(gzip.compress(body) if encoding == "gzip" else body).decode()


def row_key(number):
    """The RowKey of the n-th seeded entity."""
    return f"{number:06}"
