#!/usr/bin/env python3
"""Puts one `archive` job for each of the entities that seed_entities.py made, through the official SDK.

    enqueue_archive.py --queue evenkeel-jobs --archive former_employees --partition Sales --count 100
                       [--first 0] [--encoding plain|base64|gzip] [--op archive|restore]

The queue is created where it does not exist. Prints {"queue": …, "count": n, "ids": [message ids]}.
"""

import argparse
import json

import storage


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--archive", required=True)
    parser.add_argument("--op", choices=("archive", "restore"), default="archive")
    parser.add_argument("--partition", default="Sales")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--encoding", choices=storage.ENCODINGS, default="base64")
    args = parser.parse_args()

    queue = storage.queue(args.queue, create=True)
    ids = []
    for number in range(args.first, args.first + args.count):
        job = {
            "op": args.op,
            "archive": args.archive,
            "pk": args.partition,
            "rk": storage.row_key(number),
            "id": f"{args.op}-{number}",
        }
        ids.append(queue.send_message(storage.encode(json.dumps(job), args.encoding)).id)
    print(json.dumps({"queue": args.queue, "count": len(ids), "ids": ids}))


if __name__ == "__main__":
    main()
