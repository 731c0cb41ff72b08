// Puts one `sync` job for each of the entities that seed_entities.py made, through the official SDK.
//
// node enqueue_sync.mjs --queue evenkeel-jobs --table Employees --partition Sales --count 100
//                       [--first 0] [--encoding plain|base64|gzip]
//
// The queue is created where it does not exist. Prints {"queue": …, "count": n, "ids": [message ids]}.

import { parseArgs } from "node:util";
import { ENCODINGS, createdQueue, encode, rowKey } from "./storage.mjs";

const { values: args } = parseArgs({
  options: {
    queue: { type: "string" },
    table: { type: "string" },
    partition: { type: "string", default: "Sales" },
    count: { type: "string", default: "1" },
    first: { type: "string", default: "0" },
    encoding: { type: "string", default: "base64" },
  },
});
if (!args.queue || !args.table || !ENCODINGS.includes(args.encoding)) {
  console.error(`--queue and --table are needed; --encoding is one of ${ENCODINGS.join(", ")}`);
  process.exit(2);
}

const queue = await createdQueue(args.queue);
const ids = [];
for (let n = Number(args.first); n < Number(args.first) + Number(args.count); n += 1) {
  const job = { op: "sync", table: args.table, pk: args.partition, rk: rowKey(n), id: `sync-${n}` };
  const sent = await queue.sendMessage(encode(JSON.stringify(job), args.encoding));
  ids.push(sent.messageId);
}
console.log(JSON.stringify({ queue: args.queue, count: ids.length, ids }));
