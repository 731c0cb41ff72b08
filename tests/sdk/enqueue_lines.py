#!/usr/bin/env python3
"""Puts each line of standard input as one message, whatever it is: jobs that have no script, and broken ones.

    enqueue_lines.py --queue evenkeel-jobs [--encoding plain|base64|gzip] < jobs.jsonl

The queue is created where it does not exist. Prints {"queue": …, "count": n, "ids": [message ids]}.
"""

import argparse
import json
import sys

import storage


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--encoding", choices=storage.ENCODINGS, default="plain")
    args = parser.parse_args()

    queue = storage.queue(args.queue, create=True)
    lines = [line.rstrip("\n") for line in sys.stdin if line.strip()]
    ids = [queue.send_message(storage.encode(line, args.encoding)).id for line in lines]
    print(json.dumps({"queue": args.queue, "count": len(ids), "ids": ids}))


if __name__ == "__main__":
    main()
