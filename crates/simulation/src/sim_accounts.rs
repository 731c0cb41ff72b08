//! The accounts of a run: `main`, and in the `releases` world a second account with its own faults and its own clock.
//!
//! One mirror, one history and one oracle cover both accounts, because the accounts have different tables and
//! containers. There are two exceptions. Evenkeel's own tables exist in both accounts, but the keys identify the owner
//! of a row. The tables and containers of views that may be spread exist in both accounts, too. [`located`] adds the
//! account to their names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::encryption::SimulatedVault;
use super::oracle::Tables;
use super::world::Blobs;
use evenkeel_account::{FaultPolicy, SimWorld};
use evenkeel_model::{AccountName, Row};
use evenkeel_storage::Account;

use evenkeel_account::company::{abroad, container, located, table};

/// The number of the first operation on the second account.
const NUMBERS: u64 = 1 << 40;

#[derive(Clone)]
pub(super) struct SimulatedAccounts {
    pub(super) main: SimWorld,
    pub(super) abroad: Option<SimWorld>,
    pub(super) vault: Arc<SimulatedVault>,
}

#[derive(Clone)]
pub(super) struct FaultPolicies {
    pub(super) main: Arc<dyn FaultPolicy>,
    pub(super) abroad: Arc<dyn FaultPolicy>,
}

impl FaultPolicies {
    pub(super) fn same(policy: Arc<dyn FaultPolicy>) -> Self {
        Self {
            main: Arc::clone(&policy),
            abroad: policy,
        }
    }
}

impl SimulatedAccounts {
    pub(super) fn new(main: SimWorld, abroad: Option<SimWorld>) -> Self {
        if let Some(abroad) = &abroad {
            abroad.number_from(NUMBERS);
        }
        Self {
            main,
            abroad,
            vault: Arc::default(),
        }
    }

    pub(super) fn for_caller(&self, caller: u32, policies: &FaultPolicies) -> Self {
        let abroad = self
            .abroad
            .as_ref()
            .map(|world| world.for_caller(caller, Arc::clone(&policies.abroad)));
        Self {
            main: self.main.for_caller(caller, Arc::clone(&policies.main)),
            abroad,
            vault: Arc::clone(&self.vault),
        }
    }

    pub(super) fn accounts(&self) -> BTreeMap<AccountName, Account> {
        let abroad = self.abroad.iter().map(|world| (abroad(), world.account()));
        [(AccountName::main(), self.main.account())]
            .into_iter()
            .chain(abroad)
            .collect()
    }

    fn each(&self) -> impl Iterator<Item = &SimWorld> {
        [&self.main].into_iter().chain(&self.abroad)
    }

    fn named(&self) -> impl Iterator<Item = (AccountName, &SimWorld)> {
        [(AccountName::main(), &self.main)]
            .into_iter()
            .chain(self.abroad.iter().map(|world| (abroad(), world)))
    }

    pub(super) fn rows(&self, name: &str) -> Vec<Row> {
        self.each()
            .flat_map(|world| world.rows(&table(name)))
            .collect()
    }

    /// Returns the rows of all these tables. Tables of the second account have the name that [`located`] returns.
    pub(super) fn tables(&self, names: &[&str]) -> Tables {
        let mut tables = Tables::new();
        for (name, (account, world)) in names
            .iter()
            .flat_map(|name| self.named().map(move |of| (*name, of)))
        {
            tables
                .entry(located(&account, name))
                .or_default()
                .extend(world.rows(&table(name)));
        }
        tables
    }

    pub(super) fn blobs(&self, name: &str) -> Blobs {
        let of = |(account, world): (AccountName, &SimWorld)| {
            let place = located(&account, name);
            world
                .blobs(&container(name))
                .into_iter()
                .map(move |(blob, content)| ((place.clone(), blob.to_string()), content))
        };
        self.named().flat_map(of).collect()
    }

    pub(super) fn last_arrival(&self) -> Option<Duration> {
        self.each().filter_map(SimWorld::last_arrival).max()
    }

    pub(super) fn catch_up(&self) {
        self.each().for_each(SimWorld::catch_up);
    }
}
