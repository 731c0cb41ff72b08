//! What the stores answered, as the board asks for it.

use std::sync::Arc;

use crate::adapters::observe::{Answer, RequestCounts};
use crate::model::AccountName;
use crate::ops::board::{ServiceTally, StorageMeter};
use crate::ports::Service;

/// The request counts of every account.
#[derive(Clone)]
pub(super) struct Meter(pub(super) Vec<(AccountName, Arc<RequestCounts>)>);

impl StorageMeter for Meter {
    fn tallies(&self) -> Vec<ServiceTally> {
        let services = [Service::Table, Service::Queue, Service::Blob];
        self.0.iter().flat_map(|(account, counts)| services.map(|service| tally(account, counts, service))).collect()
    }
}

fn tally(account: &AccountName, counts: &RequestCounts, service: Service) -> ServiceTally {
    let tally = counts.answers(service);
    let of = |answer: Answer| tally.answers[answer as usize];
    ServiceTally {
        account: account.clone(),
        service: service.name(),
        ok: of(Answer::Done),
        refused: of(Answer::Refused),
        throttled: of(Answer::Throttled),
        failed: of(Answer::Failed) + of(Answer::None),
        took: tally.took,
    }
}
