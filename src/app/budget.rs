//! An account within a budget, for `certify`.

use std::sync::Arc;

use super::chaos::Chaos;
use crate::adapters::spend::Spend;
use crate::adapters::stack::layered;
use crate::cli::DirectAccess;
use crate::cli::certify::{BudgetedAccount, ChaosStage};
use crate::model::AccountName;
use crate::ports::{Account, Service};
use crate::telemetry::trail::Billed;

/// An account within a budget.
pub(super) struct Budgeted {
    account: Account,
    spend: Arc<Spend>,
}

impl Budgeted {
    /// With so many US dollars.
    pub(super) fn within(
        name: &AccountName,
        direct: &DirectAccess,
        dollars: f64,
    ) -> anyhow::Result<Box<dyn BudgetedAccount>> {
        let spend = Arc::new(Spend::new(name.clone(), dollars));
        Ok(Box::new(Self {
            account: layered(direct.stores.account(name)?, &spend),
            spend,
        }))
    }
}

impl BudgetedAccount for Budgeted {
    fn account(&self) -> Account {
        self.account.clone()
    }

    fn billed(&self) -> Billed {
        self.spend.spent().billed
    }

    fn is_spent(&self) -> bool {
        self.spend.spent().over
    }

    fn created(&self) -> Vec<(Service, String)> {
        self.spend
            .spent()
            .created
            .into_iter()
            .map(|(op, name)| (op.service(), name))
            .collect()
    }

    fn chaos(&self) -> anyhow::Result<Box<dyn ChaosStage>> {
        Ok(Box::new(Chaos::within(&self.account)?))
    }
}
