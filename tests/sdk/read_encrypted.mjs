// Prints encrypted properties of an entity, decrypted: one JSON object, {"Property": {"v": value}, …}.
//
// node read_encrypted.mjs --table Employees --pk Sales --rk 000223 --key k1=BASE64 Ssn Salary

import { parseArgs } from "node:util";
import { TableClient } from "@azure/data-tables";
import { decryptValue, unwrap } from "./encryption.mjs";
import { connectionString } from "./storage.mjs";

const text = { type: "string" };
const { values: args, positionals } = parseArgs({ options: { table: text, pk: text, rk: text, key: text }, allowPositionals: true });
const table = (name) => TableClient.fromConnectionString(connectionString(), name, { allowInsecureConnection: true });

const [name] = args.key.split("=", 1);
const keyEncryptionKey = Buffer.from(args.key.slice(name.length + 1), "base64");
const place = [args.table, args.pk, args.rk];
const row = await table("EvenkeelKeys").getEntity(`${args.table.toLowerCase()}~${args.pk}`, args.rk);
if (row.KeyId !== name) throw new Error(`the data key is wrapped by ${row.KeyId}`);
const dataKey = unwrap(keyEncryptionKey, row.KeyId, row.WrappedKey, place);
const entity = await table(args.table).getEntity(args.pk, args.rk);
console.log(JSON.stringify(Object.fromEntries(positionals.map((name) => [name, decryptValue(dataKey, place, name, entity[name])]))));
