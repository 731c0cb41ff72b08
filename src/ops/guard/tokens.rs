//! The tokens, and what each of them allows.

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

/// What a request may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rights {
    /// Read.
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
}

impl Tokens {
    pub(super) fn new(operate: Option<&SecretString>, read: Option<&SecretString>) -> Self {
        let digest = |token: &SecretString| Sha256::digest(token.expose_secret()).into();
        Self { operate: operate.map(digest), read: read.map(digest) }
    }

    /// Whether there is a token that allows this.
    pub(super) const fn allow(&self, rights: Rights) -> bool {
        match rights {
            Rights::Read => self.operate.is_some() || self.read.is_some(),
            Rights::Operate => self.operate.is_some(),
        }
    }

    /// What a token allows; nothing where it is none of them. Both are compared always.
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
    std::hint::black_box(one.iter().zip(other).fold(0, |differences, (a, b)| differences | (a ^ b))) == 0
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
        let none = Tokens::new(None, None);
        assert_eq!((none.rights(""), none.allow(Rights::Read)), (None, false));
        let reading = Tokens::new(None, Some(&read));
        assert!(reading.allow(Rights::Read) && !reading.allow(Rights::Operate));
    }
}
