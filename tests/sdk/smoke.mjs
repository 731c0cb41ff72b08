// Writes entities and sends jobs through the official SDK, one of each pattern, and reads what is derived from them: tests/process/smoke.rs
// has the catalog.
//
// node smoke.mjs write|change|read

import { TableClient } from "@azure/data-tables";
import { BlobServiceClient } from "@azure/storage-blob";
import { connectionString, createdQueue } from "./storage.mjs";

const table = (name) => TableClient.fromConnectionString(connectionString(), name, { allowInsecureConnection: true });
const blobs = BlobServiceClient.fromConnectionString(connectionString());

async function send(jobs) {
  const queue = await createdQueue("evenkeel-jobs");
  for (const job of jobs) await queue.sendMessage(Buffer.from(JSON.stringify(job)).toString("base64"));
}

async function rows(name, filter) {
  const found = [];
  for await (const row of table(name).listEntities({ queryOptions: { filter } })) found.push(row);
  return found;
}

async function row(name, partitionKey, rowKey) {
  return table(name).getEntity(partitionKey, rowKey);
}

async function blob(container, name) {
  const content = await blobs.getContainerClient(container).getBlobClient(name).downloadToBuffer();
  return content.toString();
}

async function contents(container) {
  const found = [];
  for await (const item of blobs.getContainerClient(container).listBlobsFlat()) found.push(await blob(container, item.name));
  return found;
}

const lines = (text) => text.trim().split("\n").map((line) => JSON.parse(line));

async function write() {
  const employee = (rowKey, LastName, Email, Salary, IsManager) => ({ partitionKey: "Sales", rowKey, LastName, Email, Salary, IsManager });
  const employees = table("Employees");
  await employees.upsertEntity(employee("1", "King", "Ada@contoso.com", 100, true));
  await employees.upsertEntity(employee("2", "King", "Bob@contoso.com", 200, false));
  await employees.upsertEntity({ partitionKey: "Ops", rowKey: "3", LastName: "Byron", Email: "eve@contoso.com", Salary: 10 });
  await employees.upsertEntity({ partitionKey: "Ops", rowKey: "4", LastName: "Lee", Email: "lee@contoso.com" });
  for (const rowKey of ["1", "2"]) await table("Desks").upsertEntity({ partitionKey: "Sales", rowKey });
  await table("Departments").upsertEntity({ partitionKey: "Sales", rowKey: "department", Name: "Sales of Contoso" });
  for (const rowKey of ["e1", "e2"]) await table("Events").upsertEntity({ partitionKey: "e", rowKey, What: "signed in" });
  const wide = { PartitionKey: "w", RowKey: "1" };
  for (let n = 0; n < 400; n += 1) wide[`P${n}`] = n;
  await send([
    { op: "sync", table: "Employees", pk: "Sales", rks: ["1", "2"] },
    { op: "sync", table: "Departments", pk: "Sales", rk: "department" },
    { op: "put", table: "Papers", entity: { PartitionKey: "p", RowKey: "1", Body: "word".repeat(1000) } },
    { op: "put", table: "Wide", entity: wide },
    { op: "archive", archive: "former", pk: "Ops", rk: "3" },
    { op: "archive", archive: "documents", pk: "Ops", rk: "4" },
    { op: "archive", archive: "log", pk: "e", rks: ["e1", "e2"] },
  ]);
}

async function change() {
  await table("Employees").upsertEntity({ partitionKey: "Sales", rowKey: "1", Email: "Lovelace@contoso.com" }, "Merge");
  await table("Employees").deleteEntity("Sales", "2");
  await table("Departments").upsertEntity({ partitionKey: "Sales", rowKey: "department", Name: "Sales" }, "Merge");
  await send([
    { op: "sync", table: "Employees", pk: "Sales", rks: ["1", "2"] },
    { op: "sync", table: "Departments", pk: "Sales", rk: "department" },
    { op: "delete", table: "Papers", pk: "p", rk: "1" },
  ]);
}

async function read() {
  const group = await row("Groups", "department", "Sales");
  const former = await row("FormerEmployees", "Ops", "3");
  const desks = await rows("Desks");
  let body = 0;
  for await (const item of blobs.getContainerClient("bodies").listBlobsFlat()) body += item.properties.contentLength;
  const [document] = await contents("former-employees");
  // Both lines are in the log of one hour, or in those of two where it struck meanwhile.
  const logs = await contents("events");
  const wide = await rows("Wide", "PartitionKey eq 'w'");
  return {
    by_email: Object.fromEntries((await rows("ByEmail")).map((copy) => [copy.rowKey, copy.LastName])),
    by_name: (await rows("Employees", "RowKey ge 'name_' and RowKey lt 'name`'")).map((copy) => copy.rowKey).sort(),
    list: JSON.parse((await row("Lists", "last_name", "King")).Employees),
    list_near: JSON.parse((await row("Employees", "Sales", "list_King")).Employees),
    // A line about the list, then each member with its token.
    list_blob: lines(await blob("employee-lists", "by_name/King.jsonl")).slice(1).map(([member]) => member),
    manager: (await row("Departments", "Sales", "department")).ManagerName,
    department_names: Object.fromEntries(desks.map((desk) => [desk.rowKey, desk.DepartmentName])),
    headcount: { Headcount: Number(group.Headcount), Payroll: String(group.Payroll) },
    body,
    wide: wide.flatMap((part) => Object.keys(part)).filter((name) => /^P\d+$/.test(name)).length,
    former: { Email: former.Email, LastName: former.LastName, Salary: former.Salary },
    document: JSON.parse(document).LastName,
    log: logs.flatMap(lines).map((line) => line.RowKey).sort(),
  };
}

const steps = { write, change, read };
const step = steps[process.argv[2]];
if (!step) {
  console.error("node smoke.mjs write|change|read");
  process.exit(2);
}
console.log(JSON.stringify((await step()) ?? null));
