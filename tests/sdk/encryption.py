"""Decrypts encrypted properties, as docs/encryption.md has their format. Needs the package `cryptography` alone."""

import base64
import hashlib
import hmac
import json

from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def compact(values):
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


def unwrap(key_encryption_key, key_id, wrapped, table, pk, rk):
    """The data key of an entity, from its row in EvenkeelKeys (`KeyId`, `WrappedKey`)."""
    wrapped = base64.b64decode(wrapped)
    owner = compact([table.lower(), pk, rk])
    associated = b"\0".join([b"evenkeel/1 key", key_id.encode(), owner])
    return AESGCM(key_encryption_key).decrypt(wrapped[:12], wrapped[12:], associated)


def derived(data_key, purpose):
    return hmac.new(data_key, b"evenkeel/1 " + purpose, hashlib.sha256).digest()


def decrypt_value(data_key, table, pk, rk, prop, encrypted):
    """A value as OData JSON: `{"v": 75000}`, or `{"v": "7", "v@odata.type": "Edm.Int64"}`."""
    version, _, text = encrypted.partition(".")
    if version != "ek1":
        raise ValueError(f"{prop} is not an encrypted value of a known version")
    encrypted = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    associated = compact(["evenkeel/1", table.lower(), pk, rk, prop])
    return json.loads(AESGCM(derived(data_key, b"value")).decrypt(encrypted[:12], encrypted[12:], associated))


def encrypt_value(data_key, table, pk, rk, prop, value):
    """The encrypted text of a value in OData JSON."""
    plain = compact(value)
    associated = compact(["evenkeel/1", table.lower(), pk, rk, prop])
    nonce = hmac.new(derived(data_key, b"nonce"), associated + b"\0" + plain, hashlib.sha256).digest()[:12]
    encrypted = nonce + AESGCM(derived(data_key, b"value")).encrypt(nonce, plain, associated)
    return "ek1." + base64.urlsafe_b64encode(encrypted).decode().rstrip("=")


def hashed(table_key, name, text):
    """The keyed hash of a text, as the property `name` of a table holds it. The key of the table is in EvenkeelKeys, RowKey "hash"."""
    return hmac.new(derived(table_key, b"hash"), name.encode() + b"\0" + text.encode(), hashlib.sha256).hexdigest()
