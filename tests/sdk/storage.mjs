// What the senders share: the account in AZURE_STORAGE_CONNECTION_STRING, and the forms a message can have.

import { QueueServiceClient } from "@azure/storage-queue";
import { gunzipSync, gzipSync } from "node:zlib";

export const ENCODINGS = ["plain", "base64", "gzip"];

export function connectionString() {
  const text = process.env.AZURE_STORAGE_CONNECTION_STRING;
  if (!text) throw new Error("AZURE_STORAGE_CONNECTION_STRING is not set");
  return text;
}

/** A client of a queue, which exists afterwards. */
export async function createdQueue(name) {
  const queue = QueueServiceClient.fromConnectionString(connectionString()).getQueueClient(name);
  await queue.createIfNotExists();
  return queue;
}

/** A message's text in the form that goes on the wire. */
export function encode(text, encoding) {
  if (encoding === "plain") return text;
  return (encoding === "gzip" ? gzipSync(text) : Buffer.from(text)).toString("base64");
}

/** The JSON in a message, in any of those forms. */
export function decode(text) {
  if (text.startsWith("{")) return JSON.parse(text);
  const bytes = Buffer.from(text, "base64");
  return JSON.parse((bytes[0] === 0x1f && bytes[1] === 0x8b ? gunzipSync(bytes) : bytes).toString());
}

/** The RowKey of the n-th seeded entity. */
export function rowKey(number) {
  return String(number).padStart(6, "0");
}
