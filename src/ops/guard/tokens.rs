//! The tokens and their rights.

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Rights of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rights {
    Read,
    /// Read and change.
    Operate,
}

/// The digests of the tokens. Digests are compared, so that the time taken says neither where a guess differs nor how long a
/// token is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tokens {
    operate: Option<[u8; 32]>,
    read: Option<[u8; 32]>,
    /// Of the key that is good for ringing alone.
    bell: Option<[u8; 32]>,
}

/// The key that is good for ringing the doorbell alone: derived from the operator's token, which does not follow from it.
pub fn bell_key(token: &SecretString) -> String {
    hex::encode(Sha256::digest(format!("evenkeel wake {}", token.expose_secret())))
}

impl Tokens {
    pub(super) fn new(operate: Option<&SecretString>, read: Option<&SecretString>) -> Self {
        let digest = |token: &SecretString| Sha256::digest(token.expose_secret()).into();
        Self { operate: operate.map(digest), read: read.map(digest), bell: operate.map(|token| Sha256::digest(bell_key(token)).into()) }
    }

    /// Whether there is a token that allows this.
    pub(super) const fn allow(&self, rights: Rights) -> bool {
        match rights {
            Rights::Read => self.operate.is_some() || self.read.is_some(),
            Rights::Operate => self.operate.is_some(),
        }
    }

    /// Whether this is the key that is good for ringing.
    pub(super) fn rings(&self, given: &str) -> bool {
        self.bell.is_some_and(|bell| same(&bell, &Sha256::digest(given).into()))
    }

    /// The rights of a token; `None` where it is none of them. Both are compared always.
    pub(super) fn rights(&self, given: &str) -> Option<Rights> {
        let given: [u8; 32] = Sha256::digest(given).into();
        let is = |expected: Option<[u8; 32]>| same(&expected.unwrap_or_default(), &given) & expected.is_some();
        match (is(self.operate), is(self.read)) {
            (true, _) => Some(Rights::Operate),
            (false, true) => Some(Rights::Read),
            (false, false) => None,
        }
    }
}

/// Whether two digests are equal, in the same time wherever they differ.
fn same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.ct_eq(other).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_has_its_rights_and_an_absent_one_none() {
        let (operate, read) = (SecretString::from("operate"), SecretString::from("read"));
        let both = Tokens::new(Some(&operate), Some(&read));
        assert_eq!(both.rights("operate"), Some(Rights::Operate));
        assert_eq!(both.rights("read"), Some(Rights::Read));
        assert_eq!(both.rights("rea"), None);
        let key = bell_key(&operate);
        assert!(both.rings(&key) && !both.rings("operate") && !both.rings(&bell_key(&read)), "the operator's alone rings");
        assert_eq!(both.rights(&key), None, "and is good for nothing else");
        let none = Tokens::new(None, None);
        assert!(!none.rings(&key));
        assert_eq!((none.rights(""), none.allow(Rights::Read)), (None, false));
        let reading = Tokens::new(None, Some(&read));
        assert!(reading.allow(Rights::Read) && !reading.allow(Rights::Operate));
    }
}
