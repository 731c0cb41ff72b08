//! Packs single jobs of concurrent callers into shared messages.
//!
//! A job is sent at once if no other job is being sent. Jobs that arrive while others are being sent are packed
//! together into the next messages, so no job waits longer than one request takes.

use std::sync::Arc;

use tokio::time::timeout;

use super::background::{TIMEOUT, maybe_sent};
use super::submit::{PACK, SentJob, announced, send};
use super::{Api, Problem};
use crate::guard::Actor;
use evenkeel_client::SendResult;
use evenkeel_model::QueueName;
use evenkeel_storage::combine::{Combiner, Pending, Queue, Serve};

/// Maximum number of jobs sent together. A job may have up to 1 MiB.
const MOST: usize = 1_000;

type Answer = Result<SentJob, Problem>;
type Waiting = Queue<BatchedJob, Answer>;

/// The waiting jobs by their destination queue.
#[derive(Default)]
pub struct JobBatcher(Combiner<Option<QueueName>, BatchedJob, Answer>);

struct BatchedJob {
    text: String,
    actor: Actor,
}

struct Sender<'a> {
    api: &'a Api,
    queue: Option<&'a QueueName>,
}

impl JobBatcher {
    /// Sends a job, together with the waiting jobs of other callers. A job that is still waiting when the timeout is
    /// reached is withdrawn.
    pub(super) async fn send(
        &self,
        api: &Api,
        text: &str,
        queue: Option<&QueueName>,
        actor: Actor,
    ) -> Answer {
        let sender = Sender { api, queue };
        let sending = self.0.ask(
            queue.cloned(),
            BatchedJob {
                text: text.to_owned(),
                actor,
            },
            &sender,
        );
        let Ok(answer) = timeout(TIMEOUT, sending).await else {
            return Err(maybe_sent());
        };
        answer.unwrap_or_else(|| {
            Err(Problem::not_yet(
                "sending failed, but the job may have been sent. Send it again",
            ))
        })
    }
}

impl Serve<BatchedJob, Answer> for Sender<'_> {
    async fn serve(&self, waiting: &Waiting, (): &mut ()) {
        let mut room = MOST;
        let jobs = waiting.take(|_| {
            room = room.saturating_sub(1);
            room > 0
        });
        let (api, queue) = (Arc::clone(self.api), self.queue.cloned());
        // A separate task sends the jobs, because the caller that starts it may disconnect while other callers wait for
        // their answers.
        let sending = self
            .api
            .changes
            .spawn(async move { send_together(&api, queue.as_ref(), jobs).await });
        if let Err(error) = sending.await {
            tracing::error!(%error, "could not send the jobs of several API requests: {error}; each was answered with 503");
        }
    }
}

async fn send_together(
    api: &Api,
    queue: Option<&QueueName>,
    jobs: Vec<Pending<BatchedJob, Answer>>,
) {
    let jobs = match <[_; 1]>::try_from(jobs) {
        Ok([job]) => {
            let sent = send(api, &job.request.text, queue, &job.request.actor).await;
            return job.tell(sent);
        }
        Err(jobs) => jobs,
    };
    let client = api.client();
    let texts: Vec<String> = jobs.iter().map(|job| job.request.text.clone()).collect();
    let mut jobs = jobs.into_iter();
    for SendResult {
        jobs: count, sent, ..
    } in client.submit_many(queue, PACK, texts).await
    {
        let sent = sent.map_err(Problem::from);
        for job in jobs.by_ref().take(count) {
            let answer = sent.clone().map(|sent| {
                let about = client
                    .prepare(&job.request.text, queue)
                    .map(|prepared| prepared.about)
                    .unwrap_or_default();
                announced(api, sent, &about, &job.request.actor)
            });
            job.tell(answer);
        }
    }
}
