use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use evenkeel_client::Client;
use evenkeel_engine::retention::Keeper;
use evenkeel_model::catalog::{Catalog, TableRef, TargetRef, View};
use evenkeel_model::nearest::meant_or_known;
use evenkeel_model::settings::Settings;
use evenkeel_model::{AccountName, QueueName, TableName, ViewName};
use evenkeel_rollout::migrations::{MigrationError, Migrator};
use evenkeel_storage::{Clock, Stores};

use super::UsageError;

#[derive(Clone)]
pub struct Context {
    /// All settings except the catalog.
    pub settings: Arc<Settings>,
    pub catalog: Arc<Catalog>,
    /// The stores with all layers.
    pub stores: Stores,
    pub clock: Arc<dyn Clock>,
    /// Cancelled when the user interrupts the command. If the command has already done something,
    /// it reports that and ends with [`Exit::Interrupted`](super::Exit::Interrupted).
    pub stop: CancellationToken,
}

impl Context {
    /// Finds the table for a name that a user typed. A table of the catalog is found in upper or
    /// lower case. Any other table is assumed in the account `main`. The user can name the account
    /// before a colon (`archive:OldEmployees`), and must do so if the catalog has the table in
    /// several accounts.
    pub fn table(&self, typed: &str) -> Result<TableRef, UsageError> {
        let target = self.target(typed)?;
        if target.accounts.is_spread() {
            let TargetRef { accounts, table } = &target;
            return Err(UsageError::new(format!(
                "the table {table} is spread over several accounts ({accounts}). Name one of them, such as {}:{table}",
                target.first().account
            )));
        }
        Ok(target.first())
    }

    /// Like [`table`](Self::table), but also accepts a table in several accounts. This is for reads
    /// by key.
    pub fn target(&self, typed: &str) -> Result<TargetRef, UsageError> {
        let (account, name) = match typed.split_once(':') {
            Some((account, name)) => (
                Some(AccountName::new(account).map_err(UsageError::of)?),
                name,
            ),
            None => (None, typed),
        };
        let name = TableName::new(name).map_err(UsageError::of)?;
        match (account, self.catalog.target(&name)) {
            (None, Some(known)) => Ok(known),
            (Some(account), Some(known)) if known.accounts.has(&account) => Ok(TableRef {
                account,
                table: known.table,
            }
            .into()),
            (account, _) => {
                let account = account.unwrap_or_else(AccountName::main);
                self.stores.account(&account).map_err(UsageError::of)?;
                Ok(TableRef {
                    account,
                    table: name,
                }
                .into())
            }
        }
    }

    /// A migrator for the catalog of the context.
    pub fn migrator(&self) -> Result<Migrator, MigrationError> {
        self.migrator_to(Arc::clone(&self.catalog))
    }

    pub fn migrator_to(&self, catalog: Arc<Catalog>) -> Result<Migrator, MigrationError> {
        Migrator::new(
            self.stores.clone(),
            &self.settings,
            catalog,
            Arc::clone(&self.clock),
        )
    }

    /// Maintains the dated tables and sends the rules of `catalog`.
    pub fn keeper<'c>(&'c self, catalog: &'c Catalog) -> Keeper<'c> {
        Keeper::new(
            catalog,
            self.stores.clone(),
            Arc::clone(&self.clock),
            &self.settings.queues,
            self.settings.migrate.owner.clone(),
        )
    }

    pub fn client(&self) -> Client {
        Client::new(
            self.stores.clone(),
            Arc::clone(&self.catalog),
            self.settings.queues.clone(),
        )
    }

    /// A client for reads. If `allows_plain` is set, it accepts plain values of encrypted
    /// properties.
    pub fn reading(&self, allows_plain: bool) -> Client {
        let client = self.client();
        if allows_plain {
            client.allowing_plain()
        } else {
            client
        }
    }

    pub fn check_queue(&self, name: Option<&QueueName>) -> Result<(), UsageError> {
        let known: Vec<&str> = self
            .settings
            .queues
            .iter()
            .map(|queue| queue.name.as_str())
            .collect();
        let unknown = name.filter(|name| !known.contains(&name.as_str()));
        let refused = unknown.map(|name| {
            UsageError(format!(
                "queue {name} is not declared; declared are {}",
                known.join(", ")
            ))
        });
        refused.map_or(Ok(()), Err)
    }

    pub fn known_view(&self, name: &ViewName) -> Result<&View, UsageError> {
        let view = self.catalog.views.get(name);
        view.map(AsRef::as_ref).ok_or_else(|| {
            let known: Vec<&str> = self
                .catalog
                .declared()
                .into_keys()
                .map(ViewName::as_str)
                .collect();
            UsageError::new(format!(
                "the catalog has no view {name}; {}",
                meant_or_known(name.as_str(), &known)
            ))
        })
    }

    /// Like [`table`](Self::table), but returns an error if the catalog does not have the table.
    pub fn known_table(&self, typed: &str) -> Result<TableRef, UsageError> {
        let target = self.target(typed)?;
        if self.catalog.spread.contains_key(&target.table) {
            let problem =
                "is spread over several accounts and written by views. Name a table of primaries";
            return Err(UsageError::new(format!(
                "the table {} {problem}",
                target.table
            )));
        }
        let table = target.first();
        if self.catalog.table(&table.table) == Some(&table) {
            return Ok(table);
        }
        let known: Vec<String> = self
            .catalog
            .tables
            .values()
            .map(ToString::to_string)
            .collect();
        Err(UsageError::new(format!(
            "the catalog has no table {table}; {}",
            meant_or_known(&table.to_string(), &known)
        )))
    }
}
