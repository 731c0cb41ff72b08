// Prints the visible messages of a queue without taking them, one JSON value per line, at most 32.
//
// node peek_messages.mjs --queue evenkeel-jobs-poison [--count]
//
// --count prints the service's approximate number of messages instead, hidden ones included.

import { QueueServiceClient } from "@azure/storage-queue";
import { parseArgs } from "node:util";
import { connectionString, decode } from "./storage.mjs";

const { values: args } = parseArgs({
  options: { queue: { type: "string" }, count: { type: "boolean", default: false } },
});
if (!args.queue) {
  console.error("--queue is needed");
  process.exit(2);
}

const queue = QueueServiceClient.fromConnectionString(connectionString()).getQueueClient(args.queue);
if (args.count) {
  const { approximateMessagesCount } = await queue.getProperties();
  console.log(approximateMessagesCount);
} else {
  const { peekedMessageItems } = await queue.peekMessages({ numberOfMessages: 32 });
  for (const message of peekedMessageItems) console.log(JSON.stringify(decode(message.messageText)));
}
