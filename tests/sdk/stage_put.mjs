// Stages a value of random bytes and puts a `put` job that names it, through the official SDK.
//
// node stage_put.mjs --queue evenkeel-jobs --table Employees --partition Sales --row 000223 --property Photo --bytes 6000000
//
// Container and queue are created where they do not exist. Prints {"sha256": …, "blob": …}.

import { BlobServiceClient } from "@azure/storage-blob";
import { createHash, randomBytes, randomUUID } from "node:crypto";
import { parseArgs } from "node:util";
import { connectionString, createdQueue, encode } from "./storage.mjs";

const CONTAINER = "evenkeel-staging";

const { values: args } = parseArgs({
  options: {
    queue: { type: "string" },
    table: { type: "string" },
    partition: { type: "string", default: "Sales" },
    row: { type: "string" },
    property: { type: "string" },
    bytes: { type: "string" },
  },
});
if (!args.queue || !args.table || !args.row || !args.property || !args.bytes) {
  console.error("--queue, --table, --row, --property and --bytes are needed");
  process.exit(2);
}

const content = randomBytes(Number(args.bytes));
const container = BlobServiceClient.fromConnectionString(connectionString()).getContainerClient(CONTAINER);
await container.createIfNotExists();
const staged = container.getBlockBlobClient(`${randomUUID()}.png`);
// In blocks of 1 MiB, as large uploads go.
const blobHTTPHeaders = { blobContentType: "image/png" };
await staged.uploadData(content, { blockSize: 1 << 20, maxSingleShotSize: 1 << 20, blobHTTPHeaders });

const blob = { blob: `${CONTAINER}/${staged.name}`, sha256: createHash("sha256").update(content).digest("hex") };
const entity = { PartitionKey: args.partition, RowKey: args.row };
const job = { op: "put", table: args.table, mode: "merge", entity, blobs: { [args.property]: blob } };
const queue = await createdQueue(args.queue);
await queue.sendMessage(encode(JSON.stringify(job), "base64"));
console.log(JSON.stringify(blob));
