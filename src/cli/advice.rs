use super::exit::{AbsentStore, store_error};
use evenkeel_rollout::migrations::MigrationError;
use evenkeel_storage::{ErrorClass, Missing, StoreError};

/// Returns the remedy of the first error in the chain that has one.
pub fn advice(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        if let Some(store) = store_error(cause) {
            return of_store(store);
        }
        if cause.is::<AbsentStore>() {
            return Some("`evenkeel migrate up` creates what the catalog declares; a starting worker does so too".to_owned());
        }
        match cause.downcast_ref::<MigrationError>() {
            Some(MigrationError::Version(_)) => Some("use the newest evenkeel that ever ran on this account".to_owned()),
            _ => None,
        }
    })
}

fn of_store(error: &StoreError) -> Option<String> {
    let account = &error.subject.account;
    match error.class {
        ErrorClass::NotFound(Missing::Container) => Some("`evenkeel migrate up` creates what the catalog declares".to_owned()),
        ErrorClass::Refused => Some(format!(
            "nothing listens at the endpoint, or its name cannot be resolved: check [accounts.{account}] and the network, or start Azurite"
        )),
        ErrorClass::Unauthorised => {
            Some(format!("check that the credentials of [accounts.{account}] cover tables and queues, and check this machine's clock"))
        }
        ErrorClass::Throttled { .. } => Some("the store is busy: try again in a moment".to_owned()),
        ErrorClass::Ambiguous => {
            Some("the request may or may not have been executed; every command of evenkeel can be repeated".to_owned())
        }
        ErrorClass::Transient { .. } => Some("try again in a moment".to_owned()),
        _ => None,
    }
}
