// Prints whether everything derived from an entity is in step with a version of it, or a later one: true or false.
//
// node in_step.mjs --table Employees --pk Sales --rk 000223 [--etag "W/\"datetime'…'\""]

import { TableClient } from "@azure/data-tables";
import { parseArgs } from "node:util";
import { connectionString } from "./storage.mjs";

// docs/client.md names this function.
/** Whether everything derived from an entity has its version at this ETag, or a later one; the present one where no ETag is given. */
const inStep = async (entities, footprints, pk, rk, etag) => {
  const read = async (table, partition, name) => {
    try {
      return await table.getEntity(partition, rk, { queryOptions: { select: [name] } });
    } catch (error) {
      if (error.statusCode === 404) return undefined;
      throw error;
    }
  };
  // The footprint before the entity: a version that was in step before it was found to be the present one.
  const footprint = await read(footprints, `${entities.tableName}~${pk}`, "Settled");
  const settled = (footprint?.Settled ?? "never").replace(/^waiting /, "");
  if (settled === `at ${etag}`) return true;
  // evenkeel may have written the entity since: properties that others keep on it.
  const present = await read(entities, pk, "PartitionKey");
  return settled === (present ? `at ${present.etag}` : "absent");
};

const { values: args } = parseArgs({
  options: { table: { type: "string" }, pk: { type: "string" }, rk: { type: "string" }, etag: { type: "string" } },
});
const table = (name) => TableClient.fromConnectionString(connectionString(), name, { allowInsecureConnection: true });
console.log(await inStep(table(args.table), table("EvenkeelFootprints"), args.pk, args.rk, args.etag));
