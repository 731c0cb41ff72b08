//! The accounts of a run: `main`, and in the world of the releases another one, with its own faults and its own clock.
//!
//! No table and no container has the same name in both but evenkeel's own, whose keys tell whose rows they are, and those that views
//! may spread, which [`Placement`](evenkeel_account::company::Placement) tells apart: one mirror, one history and one judge see both.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::oracle::Tables;
use super::sealed::SimulatedVault;
use super::world::Blobs;
use evenkeel_account::{FaultPolicy, SimWorld};
use evenkeel_model::{AccountName, Row};
use evenkeel_storage::Account;

use evenkeel_account::company::{abroad, container, located, table};

/// The numbers of the other account's operations begin beyond all others.
const NUMBERS: u64 = 1 << 40;

/// The accounts.
#[derive(Clone)]
pub(super) struct SimulatedAccounts {
    pub(super) main: SimWorld,
    pub(super) abroad: Option<SimWorld>,
    /// Key-encryption keys.
    pub(super) vault: Arc<SimulatedVault>,
}

/// The fault policy of each account.
#[derive(Clone)]
pub(super) struct FaultPolicies {
    pub(super) main: Arc<dyn FaultPolicy>,
    pub(super) abroad: Arc<dyn FaultPolicy>,
}

impl FaultPolicies {
    /// The same for both.
    pub(super) fn same(policy: Arc<dyn FaultPolicy>) -> Self {
        Self {
            main: Arc::clone(&policy),
            abroad: policy,
        }
    }
}

impl SimulatedAccounts {
    /// Of one account, or of two.
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

    /// The accounts as a caller sees them.
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

    /// The accounts, by name.
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

    /// The rows of a table, in whichever account it lies.
    pub(super) fn rows(&self, name: &str) -> Vec<Row> {
        self.each()
            .flat_map(|world| world.rows(&table(name)))
            .collect()
    }

    /// The rows of every table of these, each table of an account by the name that it goes by.
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

    /// The blobs of a container, likewise.
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

    /// When the last request that is still on its way arrives.
    pub(super) fn last_arrival(&self) -> Option<Duration> {
        self.each().filter_map(SimWorld::last_arrival).max()
    }

    /// Executes what has arrived by now.
    pub(super) fn catch_up(&self) {
        self.each().for_each(SimWorld::catch_up);
    }
}
