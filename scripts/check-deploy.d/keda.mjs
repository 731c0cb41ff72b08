// Checks KEDA resources, given as a JSON array on standard input, against the schemas of KEDA's own types.
import { ScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject";
import { TriggerAuthentication } from "@kubernetes-models/keda/keda.sh/v1alpha1/TriggerAuthentication";
import { readFileSync } from "node:fs";

const types = { ScaledObject, TriggerAuthentication };
for (const resource of JSON.parse(readFileSync(0, "utf8"))) {
  const Type = types[resource.kind];
  if (!Type) throw new Error(`no schema for ${resource.kind}`);
  new Type(resource).validate();
  console.log(`${resource.kind} ${resource.metadata.name}: ok`);
}
