// Puts each line of standard input as one message, whatever it is: jobs that have no script, and broken ones.
//
// node enqueue_lines.mjs --queue evenkeel-jobs [--encoding plain|base64|gzip] < jobs.jsonl
//
// The queue is created where it does not exist. Prints {"queue": …, "count": n, "ids": [message ids]}.

import { parseArgs } from "node:util";
import { text } from "node:stream/consumers";
import { ENCODINGS, createdQueue, encode } from "./storage.mjs";

const { values: args } = parseArgs({
  options: { queue: { type: "string" }, encoding: { type: "string", default: "plain" } },
});
if (!args.queue || !ENCODINGS.includes(args.encoding)) {
  console.error(`--queue is needed; --encoding is one of ${ENCODINGS.join(", ")}`);
  process.exit(2);
}

const queue = await createdQueue(args.queue);
const ids = [];
for (const line of (await text(process.stdin)).split("\n").filter((line) => line.trim())) {
  ids.push((await queue.sendMessage(encode(line, args.encoding))).messageId);
}
console.log(JSON.stringify({ queue: args.queue, count: ids.length, ids }));
