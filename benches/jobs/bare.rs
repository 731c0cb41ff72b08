//! The same work in a bare loop, one request after the other for each job: what the store and its client take, without
//! a worker around them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_model::job;
use evenkeel_model::{ETag, Entity, EntityKey};
use evenkeel_storage::{Account, IfMatch, Message, MessageText, TableOperation};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use crate::contest::{Effort, Work, queue, table};

pub(crate) async fn run(account: &Account, work: Work, jobs: usize, concurrency: usize) -> Effort {
    let requests = AtomicU64::new(0);
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    let started = Instant::now();
    let mut flying = FuturesUnordered::new();
    let mut done = 0;
    while done < jobs {
        let free = concurrency - flying.len();
        if free >= concurrency.min(32) && done + flying.len() < jobs {
            requests.fetch_add(1, Ordering::Relaxed);
            let batch = u32::try_from(free.min(32)).unwrap();
            for message in account
                .queues
                .get(&queue(), batch, Duration::from_mins(1))
                .await
                .unwrap()
            {
                flying.push(handle(account, work, message, &requests));
            }
        }
        if flying.next().await.is_some() {
            done += 1;
        }
    }
    Effort {
        seconds: started.elapsed().as_secs_f64(),
        requests: requests.load(Ordering::Relaxed),
        store_ms: 0.0,
    }
}

async fn handle(account: &Account, work: Work, message: Message, requests: &AtomicU64) {
    let MessageText::Readable(text) = &message.text else {
        panic!("unreadable")
    };
    let job = job::decode(text).unwrap().job;
    let key = job.key().expect("a job about one primary").clone();
    let sent = match work {
        Work::Archive => archive(account, &key).await,
        Work::Sync => sync(account, &key).await,
    };
    account
        .queues
        .delete(&queue(), &message.id, &message.pop_receipt)
        .await
        .unwrap();
    requests.fetch_add(sent + 1, Ordering::Relaxed);
}

async fn archive(account: &Account, key: &EntityKey) -> u64 {
    let employees = table("Employees");
    let row = account
        .tables
        .get(&employees, key, None)
        .await
        .unwrap()
        .unwrap();
    let archived = row
        .entity
        .clone()
        .with("ek_archived_at", "now")
        .with("ek_source_etag", row.etag.as_str());
    account
        .tables
        .apply(&table("FormerEmployees"), &TableOperation::Insert(archived))
        .await
        .unwrap();
    account
        .tables
        .apply(
            &employees,
            &TableOperation::Delete(key.clone(), IfMatch::Matches(row.etag)),
        )
        .await
        .unwrap();
    3
}

async fn sync(account: &Account, key: &EntityKey) -> u64 {
    let footprints = table("HandFootprints");
    let footprint = EntityKey::new(format!("Employees~{}", key.pk), key.rk.as_str()).unwrap();
    assert!(
        account
            .tables
            .get(&footprints, &footprint, None)
            .await
            .unwrap()
            .is_none()
    );
    let row = account
        .tables
        .get(&table("Employees"), key, None)
        .await
        .unwrap()
        .unwrap();
    let email = row.entity.text("Email").unwrap().to_owned();
    let copy =
        Entity::new(EntityKey::new(format!("email_{}", key.pk), email.to_lowercase()).unwrap())
            .with("FirstName", row.entity.text("FirstName").unwrap())
            .with("Email", email.clone());
    let items = format!(
        "[[\"by_email\",1,\"main\",[\"row\",\"EmployeesByEmail\",\"email_{}\",\"{email}\"],null,null,1]]",
        key.pk
    );
    let announced = Entity::new(footprint)
        .with("Version", 1)
        .with("Items", items);
    let etag: ETag = account
        .tables
        .apply(&footprints, &TableOperation::Insert(announced.clone()))
        .await
        .unwrap()
        .unwrap();
    account
        .tables
        .apply(&table("EmployeesByEmail"), &TableOperation::Insert(copy))
        .await
        .unwrap();
    let closed = announced
        .with("Settled", format!("at {}", row.etag))
        .with("Fingerprint", "0123456789abcdef");
    account
        .tables
        .apply(
            &footprints,
            &TableOperation::Replace(closed, IfMatch::Matches(etag)),
        )
        .await
        .unwrap();
    5
}
