//! Which accounts hold what views write, where several may.
//!
//! What may lie in either account goes by one name for each: the table's or container's own in `main`, `NAME@abroad` in the other.
//! Mirror and judges compare items by these names, so that an item in the wrong account is one in excess, and one missing.

use evenkeel_model::AccountName;
use evenkeel_model::catalog::AccountSet;
use sha2::{Digest as _, Sha256};

/// What lies in the other account, where there is one.
const ABROAD: [&str; 6] = [
    "Lists",
    "Managers",
    "FormerEmployees",
    "Departments",
    "Teams",
    "skilled",
];

/// The tables and containers whose items views may spread.
pub const SPREADABLE: [&str; 4] = ["ByEmail", "Lists", "Groups", "skilled"];
/// Between a name and its account.
const AT: char = '@';

/// The accounts of everything that views may spread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Placement {
    /// The one account that there is.
    #[default]
    Main,
    /// Each target in the account that it has in every seed.
    Usual,
    /// The other account alone.
    Abroad,
    /// Both, by a hash of the partition key or of the blob's name.
    Both,
}

/// The other account's name.
#[expect(clippy::expect_used, reason = "a constant, which every run uses")]
pub fn abroad() -> AccountName {
    AccountName::new("abroad").expect("a name")
}

/// Where a table lies.
pub fn account_of(table: &str) -> AccountName {
    if ABROAD.contains(&table) {
        abroad()
    } else {
        AccountName::main()
    }
}

impl Placement {
    /// The other placements that a release may change this one to.
    pub const fn others(self) -> [Self; 2] {
        match self {
            Self::Main => [Self::Both, Self::Abroad],
            Self::Abroad => [Self::Both, Self::Main],
            Self::Usual | Self::Both => [Self::Main, Self::Abroad],
        }
    }

    fn names(self, target: &str) -> Vec<AccountName> {
        match self {
            _ if !SPREADABLE.contains(&target) => vec![account_of(target)],
            Self::Main => vec![AccountName::main()],
            Self::Usual => vec![account_of(target)],
            Self::Abroad => vec![abroad()],
            Self::Both => vec![AccountName::main(), abroad()],
        }
    }

    /// The accounts of a target, as a catalog has them.
    pub fn accounts(self, target: &str) -> AccountSet {
        AccountSet::of(self.names(target)).unwrap_or_else(|| AccountName::main().into())
    }

    /// The name that the table or container of an item goes by. The account is computed apart from the program's own.
    pub fn name_of(self, target: &str, key: &str) -> String {
        if !SPREADABLE.contains(&target) {
            return target.to_owned();
        }
        let weight = |account: &AccountName| {
            Sha256::digest([account.as_str().as_bytes(), b"\0", key.as_bytes()].concat())
        };
        let holder = self.names(target).into_iter().max_by_key(weight);
        holder.map_or_else(|| target.to_owned(), |account| located(&account, target))
    }
}

/// The name that a table or container of an account goes by.
pub fn located(account: &AccountName, name: &str) -> String {
    if *account != AccountName::main() && SPREADABLE.contains(&name) {
        format!("{name}{AT}{account}")
    } else {
        name.to_owned()
    }
}

/// The name without the account.
pub fn base(name: &str) -> &str {
    name.split_once(AT).map_or(name, |(base, _)| base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_goes_by_the_account_that_holds_it() {
        assert_eq!(Placement::Main.name_of("Lists", "list_Ada"), "Lists");
        assert_eq!(
            Placement::Usual.name_of("Lists", "list_Ada"),
            "Lists@abroad"
        );
        assert_eq!(
            Placement::Usual.name_of("ByEmail", "email_Sales"),
            "ByEmail"
        );
        assert_eq!(Placement::Abroad.name_of("Employees", "Sales"), "Employees");
        // Python: max(["main", "abroad"], key=lambda name: sha256(name.encode() + b"\0" + key.encode()).digest()).
        assert_eq!(
            ["list_Ada", "list_King"].map(|key| Placement::Both.name_of("Lists", key)),
            ["Lists@abroad", "Lists"]
        );
        assert_eq!(
            (base("Groups@abroad"), base("Groups")),
            ("Groups", "Groups")
        );
    }
}
