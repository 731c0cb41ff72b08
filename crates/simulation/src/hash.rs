//! The hash of all events of a run. Two runs of the same seed have the same hash.

use evenkeel_account::Execution;
use evenkeel_model::EntityKey;
use evenkeel_storage::Resource;

/// FNV-1a, which is fast for short texts and the same on every machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    pub(super) const fn value(self) -> u64 {
        self.0
    }

    pub(super) fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
        self.bytes(&[0xff]);
    }

    fn key(&mut self, key: &EntityKey) {
        self.text(key.pk.as_str());
        self.text(key.rk.as_str());
    }

    pub(super) fn execution(&mut self, execution: &Execution<'_>) {
        let operation = execution.operation;
        self.number(operation.number ^ (u64::from(execution.caller) << 48));
        self.number(u64::try_from(execution.at.as_millisecond()).unwrap_or(0));
        self.text(operation.name);
        match &operation.what {
            Resource::Service(service) => self.text(service.name()),
            Resource::Table(table) => self.text(table.as_str()),
            Resource::Partition(table, pk) => {
                self.text(table.as_str());
                self.text(pk.as_str());
            }
            Resource::Entity(table, key) => {
                self.text(table.as_str());
                self.key(key);
            }
            Resource::Queue(queue) => self.text(queue.as_str()),
            Resource::Message(queue, id) => {
                self.text(queue.as_str());
                self.text(id);
            }
            Resource::Container(container) => self.text(container.as_str()),
            Resource::Blob(container, blob) => {
                self.text(container.as_str());
                self.text(blob.as_str());
            }
            Resource::File(dir, name) => {
                self.text(dir);
                self.text(name.as_str());
            }
            Resource::Collection(collection) => self.text(collection.as_str()),
            Resource::Document(collection, key) => {
                self.text(collection.as_str());
                self.text(key.as_str());
            }
        }
        self.text(
            execution
                .result
                .map_or_else(evenkeel_storage::ErrorClass::name, |()| "ok"),
        );
        self.number(execution.changes.len() as u64);
    }
}
