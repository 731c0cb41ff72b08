//! Places the items of views in two accounts.
//!
//! A table or container that may be in either account has a name for each: its own in `main`, `NAME@abroad` in the other. Checks compare
//! items by these names, so an item in the wrong account counts as one surplus and one missing item.

use evenkeel_model::AccountName;
use evenkeel_model::catalog::AccountSet;
use sha2::{Digest as _, Sha256};

/// Tables and containers in the second account, if there is one.
const FIXED_ABROAD: [&str; 6] = [
    "Lists",
    "Managers",
    "FormerEmployees",
    "Departments",
    "Teams",
    "skilled",
];

/// The tables and containers of those items that may be spread over both accounts.
pub const SPREADABLE: [&str; 4] = ["ByEmail", "Lists", "Groups", "skilled"];
/// Separates a name from its account.
const AT: char = '@';

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Placement {
    /// There is only one account.
    #[default]
    Main,
    /// Each target has a fixed account.
    Fixed,
    /// Only the second account.
    Abroad,
    /// Both accounts, by a hash of the partition key or of the blob's name.
    Both,
}

/// The second account.
#[expect(clippy::expect_used, reason = "a constant, which every run uses")]
pub fn abroad() -> AccountName {
    AccountName::new("abroad").expect("a name")
}

/// The fixed account of a table.
pub fn account_of(table: &str) -> AccountName {
    if FIXED_ABROAD.contains(&table) {
        abroad()
    } else {
        AccountName::main()
    }
}

impl Placement {
    /// The placements that a release may change this one to.
    pub const fn others(self) -> [Self; 2] {
        match self {
            Self::Main => [Self::Both, Self::Abroad],
            Self::Abroad => [Self::Both, Self::Main],
            Self::Fixed | Self::Both => [Self::Main, Self::Abroad],
        }
    }

    fn names(self, target: &str) -> Vec<AccountName> {
        match self {
            _ if !SPREADABLE.contains(&target) => vec![account_of(target)],
            Self::Main => vec![AccountName::main()],
            Self::Fixed => vec![account_of(target)],
            Self::Abroad => vec![abroad()],
            Self::Both => vec![AccountName::main(), abroad()],
        }
    }

    /// The accounts of a target for a catalog.
    pub fn accounts(self, target: &str) -> AccountSet {
        AccountSet::of(self.names(target)).unwrap_or_else(|| AccountName::main().into())
    }

    /// The name of the table or container of an item. The account is computed independently of the program, so that a mistake there is found.
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

/// The name of a table or container in an account.
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
    fn an_item_is_named_after_its_account() {
        assert_eq!(Placement::Main.name_of("Lists", "list_Ada"), "Lists");
        assert_eq!(
            Placement::Fixed.name_of("Lists", "list_Ada"),
            "Lists@abroad"
        );
        assert_eq!(
            Placement::Fixed.name_of("ByEmail", "email_Sales"),
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
