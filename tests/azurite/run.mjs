// Starts Azurite's three services in this one process, prints their ports as one line of JSON, and exits
// when its standard input closes: nothing outlives the test process that holds the other end.
//
// node run.mjs [--location DIR] [--blob PORT] [--queue PORT] [--table PORT] [--cert PEM --key PEM]
//
// Without --location everything is kept in memory. Ports that are not given are free ones. With a certificate and
// its key the services speak TLS, and take tokens of Entra ID, whose signature they do not check. A line on the standard
// input is a new value of AZURITE_ACCOUNTS: the keys of the accounts from then on, which an empty line answers.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

const { values } = parseArgs({
  options: {
    location: { type: "string" },
    blob: { type: "string" },
    queue: { type: "string" },
    table: { type: "string" },
    cert: { type: "string" },
    key: { type: "string" },
  },
});

// 0 stands for a free one, of which Azurite says which it is.
const ports = Object.fromEntries(["blob", "queue", "table"].map((service) => [service, Number(values[service] ?? 0)]));

const out = process.stdout.write.bind(process.stdout);
let listening = 0;
let stopping = false;

// Azurite reports through console.log; what it says is kept off the standard output, whose lines are ours.
console.log = (...words) => {
  const line = words.join(" ");
  const heard = /Azurite (Blob|Queue|Table) service is successfully listening at .*:(\d+)/.exec(line);
  if (heard) {
    ports[heard[1].toLowerCase()] = Number(heard[2]);
    listening += 1;
    if (listening === 3) out(`${JSON.stringify(ports)}\n`);
  }
  if (line.includes("successfully closed")) {
    listening -= 1;
    if (listening === 0 && stopping) process.exit(0);
  }
};

function stop() {
  if (stopping) return;
  stopping = true;
  // Azurite saves and closes on SIGTERM; should a connection keep it from ending, it is ended.
  process.kill(process.pid, "SIGTERM");
  setTimeout(() => process.exit(0), 10_000).unref();
}

// Azurite looks for new keys once a minute: the stores of its three services are remembered, to look at once.
const require = createRequire(import.meta.url);
const { default: Accounts } = require("azurite/dist/src/common/AccountDataStore.js");
const stores = [];
const { init } = Accounts.prototype;
Accounts.prototype.init = function () {
  stores.push(this);
  return init.call(this);
};

// Azurite answers nothing while it rebuilds its indexes: for each request to a queue, when it removes messages that are over, and mostly none
// is; and each minute, for each body of a deleted message: 7 s for 3,000. Here it does so for what is over alone, and once for all bodies.
const { default: Messages } = require("azurite/dist/src/queue/persistence/LokiQueueMetadataStore.js");
const { default: Bodies } = require("azurite/dist/src/common/persistence/MemoryExtentStore.js");
Messages.prototype.clearExpiredMessages = async function (accountName, queueName) {
  const messages = this.db.getCollection(this.MESSAGES_COLLECTION);
  messages.ensureIndex("expirationTime");
  const over = messages.chain().find({ expirationTime: { $lte: Date.now() } }).find({ accountName, queueName }).data();
  if (over.length > 0) messages.remove(over);
};
Bodies.prototype.deleteExtents = async function (ids) {
  for (const id of ids) this.chunks.delete(this.categoryName, id);
  const { db, EXTENTS_COLLECTION } = this.metadataStore;
  db.getCollection(EXTENTS_COLLECTION).removeWhere(({ id }) => ids.has(id));
  return ids.size;
};

// Data that is being saved counts as saved: closing does not wait for it, and this process would end before. A further save begins after it.
const Loki = require("lokijs");
Loki.prototype.close = function (callback) {
  this.autosaveDisable();
  this.saveDatabase(callback);
};

createInterface({ input: process.stdin }).on("line", (accounts) => {
  process.env.AZURITE_ACCOUNTS = accounts;
  for (const store of stores) store.refresh();
  out("\n");
});
process.stdin.on("end", stop);
process.stdin.on("close", stop);
process.stdin.on("error", stop);

// --loose: the client library asks for checksums of ranges that strict mode answers with 500.
// The keep-alive is longer than any pause in a test: a connection closed just as it is used again
// would look like a lost request.
process.argv = [
  process.argv[0],
  "azurite",
  "--silent",
  "--loose",
  "--disableTelemetry",
  "--skipApiVersionCheck",
  ...["blob", "queue", "table"].flatMap((service) => [
    `--${service}Host`, "127.0.0.1",
    `--${service}Port`, String(ports[service]),
    `--${service}KeepAliveTimeout`, "120",
  ]),
  ...(values.cert ? ["--oauth", "basic", "--cert", values.cert, "--key", values.key] : []),
  ...(values.location ? ["--location", values.location] : ["--inMemoryPersistence"]),
];
require("azurite/dist/src/azurite.js");
