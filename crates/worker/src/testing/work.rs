use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;

use super::time::TestClock;
use evenkeel_engine::{
    Delivery, EncryptBodies, Execute, Failure, FailureClass, Outcome, Summary, Work,
};
use evenkeel_storage::Clock as _;

#[derive(Debug, Clone)]
pub(crate) struct RecordedRun {
    pub(crate) message: String,
    pub(crate) dequeue_count: u32,
    pub(crate) rk: String,
    pub(crate) from: Duration,
    /// When the run ended; `None` if it was dropped.
    pub(crate) to: Option<Duration>,
    ended: Option<Duration>,
}

/// Records the end of a run, even of a run that is dropped.
struct RunRecorder<'a>(&'a Scripted, usize);

impl Drop for RunRecorder<'_> {
    fn drop(&mut self) {
        self.0.runs.lock().unwrap()[self.1].ended = Some(self.0.clock.monotonic());
    }
}

pub(crate) type Answer = Result<Outcome, Failure>;
pub(super) type Script =
    dyn Fn(usize, &Work, &Delivery) -> BoxFuture<'static, Answer> + Send + Sync;

/// Work that follows a script and records its runs.
pub(crate) struct Scripted {
    clock: Arc<TestClock>,
    pub(super) script: Mutex<Arc<Script>>,
    runs: Mutex<Vec<RecordedRun>>,
    /// Results of giving up work, in order. After the last of them, giving up succeeds.
    giving_up: Mutex<VecDeque<Result<(), Failure>>>,
    given_up: Mutex<Vec<String>>,
}

impl Scripted {
    pub(super) fn new(clock: Arc<TestClock>, script: Arc<Script>) -> Self {
        Self {
            clock,
            script: Mutex::new(script),
            runs: Mutex::default(),
            giving_up: Mutex::default(),
            given_up: Mutex::default(),
        }
    }

    pub(crate) fn runs(&self) -> Vec<RecordedRun> {
        self.runs.lock().unwrap().clone()
    }

    pub(crate) fn next_giving_up(&self, ends: Result<(), Failure>) {
        self.giving_up.lock().unwrap().push_back(ends);
    }

    /// The ids of the messages whose work was given up, in order, including failed attempts.
    pub(crate) fn given_up(&self) -> Vec<String> {
        self.given_up.lock().unwrap().clone()
    }

    /// The highest number of concurrent runs among those that `of` selects.
    pub(crate) fn most_at_once(&self, of: impl Fn(&RecordedRun) -> bool) -> usize {
        let runs: Vec<RecordedRun> = self.runs().into_iter().filter(of).collect();
        let live = |run: &RecordedRun, at: Duration| {
            run.from <= at && run.ended.is_none_or(|ended| ended > at)
        };
        runs.iter()
            .map(|run| runs.iter().filter(|other| live(other, run.from)).count())
            .max()
            .unwrap_or(0)
    }
}

#[async_trait]
impl Execute for Scripted {
    async fn execute(&self, work: &Work, delivery: &Delivery) -> Answer {
        let rk = match work {
            Work::Job(job) => job.key().map_or_else(String::new, |key| key.rk.to_string()),
            Work::Recheck(recheck) => recheck.primary.key.rk.to_string(),
        };
        let number = {
            let mut runs = self.runs.lock().unwrap();
            let message = delivery.stamp.message_id.clone();
            let dequeue_count = delivery.dequeue_count;
            runs.push(RecordedRun {
                message,
                dequeue_count,
                rk,
                from: self.clock.monotonic(),
                to: None,
                ended: None,
            });
            runs.len() - 1
        };
        let ending = RunRecorder(self, number);
        let script = Arc::clone(&self.script.lock().unwrap());
        let answer = script(number, work, delivery).await;
        self.runs.lock().unwrap()[number].to = Some(self.clock.monotonic());
        drop(ending);
        answer
    }

    async fn give_up(&self, _: &Work, delivery: &Delivery) -> Result<(), Failure> {
        self.given_up
            .lock()
            .unwrap()
            .push(delivery.stamp.message_id.clone());
        self.giving_up.lock().unwrap().pop_front().unwrap_or(Ok(()))
    }
}

/// Stands for bodies without encrypted properties.
pub(super) struct NoSecrets;

#[async_trait]
impl EncryptBodies for NoSecrets {
    async fn encrypt_body(&self, _: &str) -> Result<Option<String>, Failure> {
        Ok(None)
    }
}

#[expect(clippy::unnecessary_wraps, reason = "a script's answer")]
pub(crate) fn done() -> Answer {
    Ok(Outcome::Done(Summary::default()))
}

pub(crate) fn transient() -> Answer {
    Err(Failure::new(
        FailureClass::Transient { retry_after: None },
        "writing the copy",
        std::io::Error::other("503"),
    ))
}

pub(crate) fn withheld() -> Answer {
    let class = FailureClass::Withheld {
        retry_after: Some(Duration::from_secs(30)),
    };
    Err(Failure::new(
        class,
        "writing the copy",
        std::io::Error::other("not sent"),
    ))
}

pub(crate) fn permanent() -> Answer {
    Err(Failure::new(
        FailureClass::Permanent,
        "reading the primary",
        std::io::Error::other("no such table"),
    ))
}
