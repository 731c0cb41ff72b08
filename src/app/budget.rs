//! An account whose requests are limited by a budget, for `certify`.

use std::sync::Arc;

use super::chaos::Chaos;
use crate::cli::DirectAccess;
use crate::cli::certify::{BudgetedAccount, ChaosStage};
use evenkeel_layers::spend::Spend;
use evenkeel_layers::stack::layered;
use evenkeel_model::AccountName;
use evenkeel_storage::{Account, Service};
use evenkeel_telemetry::job_trace::Billed;

pub(super) struct Budgeted {
    account: Account,
    spend: Arc<Spend>,
}

impl Budgeted {
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
