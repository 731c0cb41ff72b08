//! Which shard of a queue receives the jobs of a key. The choice is a contract, because senders in any language compute it.

use sha2::{Digest as _, Sha256};

use super::{EntityKey, TableName};

/// Returns the shard of a primary: the first four bytes (big-endian) of SHA-256(table ‖ 0 ‖ pk ‖ 0 ‖ rk) modulo `shards`. `table` is spelt
/// as in the catalog. The shard is 0 for a queue without shards.
pub fn shard(table: &TableName, key: &EntityKey, shards: u32) -> u32 {
    if shards <= 1 {
        return 0;
    }
    let mut hash = Sha256::new();
    hash.update(table.as_str());
    hash.update([0]);
    hash.update(key.pk.as_str());
    hash.update([0]);
    hash.update(key.rk.as_str());
    let digest = hash.finalize();
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]) % shards
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shard_is_what_any_other_language_computes() {
        let table = TableName::new("Employees").unwrap();
        // Python: hashlib.sha256(b"Employees\0Sales\0" + b"000223").hexdigest()[:8] == "1ee962e5"
        let key = EntityKey::new("Sales", "000223").unwrap();
        assert_eq!(shard(&table, &key, u32::MAX), 0x1ee9_62e5);
        assert_eq!(shard(&table, &key, 16), 5);
        assert_eq!(shard(&table, &key, 1), 0);
        assert_eq!(shard(&table, &key, 0), 0);
    }
}
