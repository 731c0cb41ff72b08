//! Reads measurements from the layers around the adapters for the operations state: request counts,
//! the busiest partitions and the throttled scopes.

use std::sync::Arc;

use evenkeel_layers::heat::HotScope;
use evenkeel_layers::layer::ThrottleScope;
use evenkeel_layers::observe::{AnswerKind, RequestCounts};
use evenkeel_layers::pace::{Pace, PacedScope};
use evenkeel_model::AccountName;
use evenkeel_ops::state::{LimitedScope, PartitionLoad, ServiceTally, StorageMeter};
use evenkeel_storage::Service;
use evenkeel_telemetry::job_trace::Billed;

/// Maximum number of partitions and queues per account in a report.
const BUSIEST: usize = 32;

#[derive(Clone)]
pub(super) struct Metered {
    pub(super) account: AccountName,
    pub(super) services: &'static [Service],
    pub(super) counts: Arc<RequestCounts>,
    /// Source of the throttled scopes of the account.
    pub(super) pace: Arc<Pace>,
}

#[derive(Clone)]
pub(super) struct Meter(pub(super) Vec<Metered>);

impl StorageMeter for Meter {
    fn accounts(&self) -> Vec<AccountName> {
        self.0
            .iter()
            .map(|metered| metered.account.clone())
            .collect()
    }

    fn tallies(&self) -> Vec<ServiceTally> {
        let of = |metered: &Metered| -> Vec<ServiceTally> {
            metered
                .services
                .iter()
                .map(|service| tally(&metered.account, &metered.counts, *service))
                .collect()
        };
        self.0.iter().flat_map(of).collect()
    }

    fn busiest(&self) -> Vec<PartitionLoad> {
        let of = |metered: &Metered| {
            metered
                .counts
                .heat()
                .take(BUSIEST)
                .into_iter()
                .filter_map(|hot| busy(&metered.account, hot))
                .collect()
        };
        self.0
            .iter()
            .flat_map(|metered| -> Vec<PartitionLoad> { of(metered) })
            .collect()
    }

    fn limited_scopes(&self) -> Vec<LimitedScope> {
        let of = |metered: &Metered| -> Vec<LimitedScope> {
            let hold = |(scope, remaining): (ThrottleScope, std::time::Duration)| LimitedScope {
                account: metered.account.to_string(),
                scope: words(&scope),
                partition: partition(&scope),
                remaining_seconds: remaining.as_secs_f64(),
                per_second: None,
            };
            let paced = |paced: PacedScope| LimitedScope {
                account: metered.account.to_string(),
                scope: paced
                    .scope
                    .as_ref()
                    .map_or_else(|| "the account as a whole".to_owned(), words),
                partition: paced.scope.as_ref().and_then(partition),
                remaining_seconds: 0.0,
                per_second: Some(paced.per_second),
            };
            metered
                .pace
                .holds()
                .into_iter()
                .map(hold)
                .chain(metered.pace.paced().into_iter().map(paced))
                .collect()
        };
        self.0.iter().flat_map(of).collect()
    }

    fn account_rate_limits(&self) -> Vec<(AccountName, f64)> {
        self.0
            .iter()
            .filter_map(|metered| Some((metered.account.clone(), metered.pace.account_rate()?)))
            .collect()
    }

    fn billed(&self) -> Billed {
        self.0
            .iter()
            .map(|metered| metered.counts.billed())
            .fold(Billed::default(), Billed::plus)
    }
}

fn busy(account: &AccountName, hot: HotScope) -> Option<PartitionLoad> {
    let HotScope {
        scope,
        entities,
        requests,
        throttled,
    } = hot;
    let (name, partition) = match scope {
        ThrottleScope::Partition(table, pk) => (table.to_string(), Some(pk.as_str().to_owned())),
        ThrottleScope::Queue(queue) => (queue.to_string(), None),
        ThrottleScope::Service(_)
        | ThrottleScope::Table(_)
        | ThrottleScope::Container(_)
        | ThrottleScope::Collection(_) => return None,
    };
    Some(PartitionLoad {
        account: account.clone(),
        name,
        partition,
        entities,
        requests,
        throttled,
    })
}

/// Table and PartitionKey of a scope, if it is a partition.
fn partition(scope: &ThrottleScope) -> Option<(String, String)> {
    if let ThrottleScope::Partition(table, pk) = scope {
        Some((table.to_string(), pk.as_str().to_owned()))
    } else {
        None
    }
}

fn words(scope: &ThrottleScope) -> String {
    match scope {
        ThrottleScope::Service(service) => format!("the {} service", service.name()),
        ThrottleScope::Table(table) => format!("the table {table}, across its partitions"),
        ThrottleScope::Partition(table, pk) => {
            format!("the partition {:?} of the table {table}", pk.as_str())
        }
        ThrottleScope::Queue(queue) => format!("the queue {queue}"),
        ThrottleScope::Container(container) => format!("the container {container}"),
        ThrottleScope::Collection(collection) => format!("the index {collection}"),
    }
}

fn tally(account: &AccountName, counts: &RequestCounts, service: Service) -> ServiceTally {
    let tally = counts.answers(service);
    let of = |answer: AnswerKind| tally.answers[answer as usize];
    ServiceTally {
        account: account.clone(),
        service: service.name(),
        ok: of(AnswerKind::Done),
        refused: of(AnswerKind::Refused),
        throttled: of(AnswerKind::Throttled),
        failed: of(AnswerKind::Failed) + of(AnswerKind::None),
        took: tally.took,
        entities: tally.entities,
        latencies: tally.latencies,
    }
}
