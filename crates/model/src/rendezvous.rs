//! Which of several accounts holds an item. The choice is a contract, because readers in any language compute it.

use sha2::{Digest as _, Sha256};

use super::AccountName;

/// The weight of an account for a key: the first eight bytes (big-endian) of SHA-256(account ‖ 0 ‖ key). `account` is the name of the
/// account in the configuration.
fn weight(account: &AccountName, key: &str) -> u64 {
    let mut hash = Sha256::new();
    hash.update(account.as_str());
    hash.update([0]);
    hash.update(key);
    hash.finalize()
        .iter()
        .take(8)
        .fold(0, |weight, byte| weight << 8 | u64::from(*byte))
}

/// Returns the account of a key by rendezvous hashing: the account with the greatest weight, or the first by name among equal weights. An
/// added account takes its share of keys from all other accounts, and no key moves between the others. A removed account leaves its keys to
/// all others.
/// The result for a key must never change, because stored items would count as misplaced.
pub fn rendezvous<'a>(
    first: &'a AccountName,
    others: &'a [AccountName],
    key: &str,
) -> &'a AccountName {
    if others.is_empty() {
        return first;
    }
    let heavier = |best: (u64, &'a AccountName), account: &'a AccountName| {
        let weight = weight(account, key);
        if weight > best.0 || (weight == best.0 && account < best.1) {
            (weight, account)
        } else {
            best
        }
    };
    others.iter().fold((weight(first, key), first), heavier).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<AccountName> {
        names
            .iter()
            .map(|name| AccountName::new(*name).unwrap())
            .collect()
    }

    fn of<'a>(accounts: &'a [AccountName], key: &str) -> &'a str {
        rendezvous(&accounts[0], &accounts[1..], key).as_str()
    }

    /// Keys with their accounts out of `main`, `north` and `south`.
    const VECTORS: [(&str, &str); 8] = [
        ("", "south"),
        ("email", "main"),
        ("email_00", "south"),
        ("email_01", "main"),
        ("email_02", "north"),
        ("last_name_07", "south"),
        ("Sales", "main"),
        ("한", "main"),
    ];

    /// Python: `int.from_bytes(hashlib.sha256(b"main\0email").digest()[:8], "big")`.
    #[test]
    fn the_account_is_what_any_other_language_computes() {
        let main = AccountName::main();
        assert_eq!(weight(&main, "email"), 0xfce6_bfb9_5a65_00a9);
        assert_eq!(weight(&main, ""), 0x2498_c4cd_987b_16bd);
        assert_eq!(weight(&main, "한"), 0xfeee_8148_61d9_d6c6);
        let accounts = names(&["main", "north", "south"]);
        let found: Vec<&str> = VECTORS.iter().map(|(key, _)| of(&accounts, key)).collect();
        assert_eq!(found, VECTORS.map(|(_, account)| account));
    }

    #[test]
    fn the_order_in_which_accounts_are_named_does_not_matter_and_one_account_has_everything() {
        let (one, other) = (names(&["a", "b", "c"]), names(&["c", "a", "b"]));
        for n in 0..1_000 {
            let key = n.to_string();
            assert_eq!(of(&one, &key), of(&other, &key));
            assert_eq!(of(&one[..1], &key), "a");
        }
    }

    #[test]
    fn keys_are_spread_evenly_and_an_added_account_takes_its_share_and_nothing_else_moves() {
        const KEYS: usize = 20_000;
        let all = names(&["a", "b", "c", "d", "e"]);
        for count in 2..=all.len() {
            let (before, after) = (&all[..count - 1], &all[..count]);
            let mut held = vec![0_usize; count];
            for n in 0..KEYS {
                let key = format!("email_{n:06}");
                let (was, is) = (of(before, &key), of(after, &key));
                assert!(
                    was == is || is == all[count - 1].as_str(),
                    "{key} moved from {was} to {is}"
                );
                held[after
                    .iter()
                    .position(|account| account.as_str() == is)
                    .unwrap()] += 1;
            }
            let share = KEYS / count;
            // Six standard deviations of a binomial with 20,000 trials are at most 425.
            assert!(
                held.iter().all(|held| held.abs_diff(share) < 425),
                "{held:?}"
            );
        }
    }
}
