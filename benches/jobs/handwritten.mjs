// The worker that people write by hand: the official Azure SDK for JavaScript, so many jobs in flight, no protocol.
//
//   node handwritten.mjs --work archive|sync|sync-same --count N --concurrency N --queue NAME
//
// archive    read, upsert into the archive, delete, delete the message
// sync       read, upsert into the index, delete the message (leaves stale rows behind when a key changes)
// sync-same  the requests that evenkeel sends: read the footprint and the primary, announce, insert, close, delete
//            the message
//
// Prints {"seconds": …, "jobs": n, "requests": n}, measured from the first receive to the last delete.

import { createHash } from "node:crypto";
import { createRequire } from "node:module";
import { parseArgs } from "node:util";

const require = createRequire(new URL("../../tests/sdk/package.json", import.meta.url));
const { TableClient } = require("@azure/data-tables");
const { QueueServiceClient } = require("@azure/storage-queue");

const { values: args } = parseArgs({
  options: { work: { type: "string" }, count: { type: "string" }, concurrency: { type: "string" }, queue: { type: "string" } },
});
const connection = process.env.AZURE_STORAGE_CONNECTION_STRING;
const table = (name) => TableClient.fromConnectionString(connection, name, { allowInsecureConnection: true });
const [employees, former, index, footprints] = ["Employees", "FormerEmployees", "EmployeesByEmail", "HandFootprints"].map(table);
const queue = QueueServiceClient.fromConnectionString(connection).getQueueClient(args.queue);

let requests = 0;
const counted = (promise) => {
  requests += 1;
  return promise;
};

const works = {
  async archive({ pk, rk }) {
    const entity = await counted(employees.getEntity(pk, rk));
    await counted(former.upsertEntity({ ...entity, partitionKey: pk, rowKey: rk }, "Replace"));
    await counted(employees.deleteEntity(pk, rk, { etag: entity.etag }));
  },
  async sync({ pk, rk }) {
    const { FirstName, Email } = await counted(employees.getEntity(pk, rk));
    await counted(index.upsertEntity({ partitionKey: `email_${pk}`, rowKey: Email.toLowerCase(), FirstName, Email }, "Replace"));
  },
  async "sync-same"({ pk, rk }) {
    const key = { partitionKey: `Employees~${pk}`, rowKey: rk };
    await counted(footprints.getEntity(key.partitionKey, rk).catch(() => undefined));
    const { FirstName, Email, etag } = await counted(employees.getEntity(pk, rk));
    const row = { partitionKey: `email_${pk}`, rowKey: Email.toLowerCase(), FirstName, Email };
    const items = JSON.stringify([["by_email", 1, "main", "EmployeesByEmail", row.partitionKey, row.rowKey, null, 1]]);
    const fingerprint = createHash("sha256").update("by_email").digest("hex").slice(0, 16);
    const announced = await counted(footprints.createEntity({ ...key, Version: 1, Items: items }));
    await counted(index.createEntity(row));
    await counted(footprints.updateEntity({ ...key, Version: 1, Items: items, Settled: `at ${etag}`, Fingerprint: fingerprint }, "Replace", { etag: announced.etag }));
  },
};

const work = works[args.work];
const [count, concurrency] = [Number(args.count), Number(args.concurrency)];
let [done, flying] = [0, 0];
let wake = () => {};
const started = performance.now();

async function handle(message) {
  await work(JSON.parse(Buffer.from(message.messageText, "base64").toString()));
  await counted(queue.deleteMessage(message.messageId, message.popReceipt));
  done += 1;
  flying -= 1;
  wake();
}

while (done < count) {
  const free = concurrency - flying;
  if (free < Math.min(32, concurrency) || done + flying >= count) {
    await new Promise((resolve) => (wake = resolve));
    continue;
  }
  const { receivedMessageItems } = await counted(queue.receiveMessages({ numberOfMessages: Math.min(32, free), visibilityTimeout: 60 }));
  flying += receivedMessageItems.length;
  for (const message of receivedMessageItems) {
    handle(message).catch((error) => {
      console.error(error);
      process.exit(1);
    });
  }
}
console.log(JSON.stringify({ seconds: (performance.now() - started) / 1000, jobs: done, requests }));
