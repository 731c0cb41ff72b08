// Decrypts encrypted properties, as docs/encryption.md has their format. Needs nothing beside Node.js.

import { createDecipheriv, createHmac } from "node:crypto";

const compact = (values) => Buffer.from(JSON.stringify(values));

function decrypt(key, encrypted, associated) {
  const decipher = createDecipheriv("aes-256-gcm", key, encrypted.subarray(0, 12)).setAAD(associated).setAuthTag(encrypted.subarray(-16));
  return Buffer.concat([decipher.update(encrypted.subarray(12, -16)), decipher.final()]);
}

/** The data key of an entity, from its row in EvenkeelKeys (`KeyId`, `WrappedKey`). */
export function unwrap(keyEncryptionKey, keyId, wrapped, [table, pk, rk]) {
  const owner = compact([table.toLowerCase(), pk, rk]);
  const associated = Buffer.concat([Buffer.from(`evenkeel/1 key\0${keyId}\0`), owner]);
  return decrypt(keyEncryptionKey, Buffer.from(wrapped, "base64"), associated);
}

/** A value as OData JSON: `{"v": 75000}`, or `{"v": "7", "v@odata.type": "Edm.Int64"}`. */
export function decryptValue(dataKey, [table, pk, rk], property, encrypted) {
  if (!encrypted.startsWith("ek1.")) throw new Error(`${property} is not an encrypted value of a known version`);
  const key = createHmac("sha256", dataKey).update("evenkeel/1 value").digest();
  const associated = compact(["evenkeel/1", table.toLowerCase(), pk, rk, property]);
  return JSON.parse(decrypt(key, Buffer.from(encrypted.slice(4), "base64url"), associated));
}
