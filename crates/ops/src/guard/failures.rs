//! Counts the wrong tokens of each address. An address that sends many wrong tokens has to wait.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Number of wrong tokens that an address may send in a row.
const BURST: u32 = 10;
/// Time after which an address may send one more wrong token.
const REFILL: Duration = Duration::from_secs(6);
/// Maximum number of remembered addresses. If there are more, the address whose last failure is oldest is forgotten.
const ADDRESSES: usize = 4_096;

/// Recent failures of each address. A correct token is accepted even from an address with failures, because a client
/// may share its address with an attacker (behind a proxy, next to a sidecar, on loopback). Guessing is hopeless
/// because tokens are long.
#[derive(Debug, Default)]
pub(super) struct AddressFailures(Mutex<BTreeMap<IpAddr, Debt>>);

/// The time at which the failures of an address are forgotten. Each failure adds [`REFILL`].
#[derive(Debug, Clone, Copy)]
struct Debt {
    paid_off: Duration,
}

impl AddressFailures {
    /// Returns how long an address has to wait before it may send another wrong token; `None` if it need not wait.
    pub(super) fn wait(&self, address: IpAddr, now: Duration) -> Option<Duration> {
        let debts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let owed = debts.get(&address)?.paid_off.saturating_sub(now);
        let over = (owed + REFILL).saturating_sub(REFILL * BURST);
        (!over.is_zero()).then_some(over)
    }

    /// Records a wrong token.
    pub(super) fn failed(&self, address: IpAddr, now: Duration) {
        let mut debts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if debts.len() >= ADDRESSES && !debts.contains_key(&address) {
            debts.retain(|_, debt| debt.paid_off > now);
            if debts.len() >= ADDRESSES
                && let Some(oldest) = debts
                    .iter()
                    .min_by_key(|(_, debt)| debt.paid_off)
                    .map(|(address, _)| *address)
            {
                debts.remove(&oldest);
            }
        }
        let debt = debts.entry(address).or_insert(Debt { paid_off: now });
        debt.paid_off = debt.paid_off.max(now) + REFILL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn after_ten_wrong_tokens_an_address_waits_and_others_do_not() {
        let failures = AddressFailures::default();
        let mut now = Duration::from_secs(100);
        for _ in 0..10 {
            assert_eq!(failures.wait(HERE, now), None);
            failures.failed(HERE, now);
        }
        let wait = failures.wait(HERE, now).unwrap();
        assert_eq!(wait, REFILL);
        assert_eq!(failures.wait("10.0.0.1".parse().unwrap(), now), None);
        now += wait;
        assert_eq!(failures.wait(HERE, now), None);
        failures.failed(HERE, now);
        assert!(
            failures.wait(HERE, now).is_some(),
            "each further wrong token has to wait"
        );
    }

    #[test]
    fn memory_is_bounded() {
        let failures = AddressFailures::default();
        for address in 0..10_000_u32 {
            failures.failed(IpAddr::from(address.to_be_bytes()), Duration::from_secs(1));
        }
        assert_eq!(failures.0.lock().unwrap().len(), ADDRESSES);
    }
}
