//! Single jobs of concurrent callers, gathered into messages about many primaries.
//!
//! A job is sent at once where no other is on its way. Those that come meanwhile go together in the next messages, so that none waits for
//! more to come, and all wait no longer than one request takes.

use std::sync::Arc;

use tokio::time::timeout;

use super::submit::{PACK, SentJob, announced, send};
use super::under_way::{PATIENCE, unconfirmed};
use super::{Api, Problem};
use crate::guard::Actor;
use evenkeel_client::SentJobs;
use evenkeel_model::QueueName;
use evenkeel_storage::combine::{Combiner, Pending, Queue, Serve};

/// Jobs that are sent together at most: 1 MiB each, where they are large.
const MOST: usize = 1_000;

type Answer = Result<SentJob, Problem>;
type Waiting = Queue<SingleJob, Answer>;

/// Jobs that wait, by the queue that they were sent to.
#[derive(Default)]
pub struct GatheredJobs(Combiner<Option<QueueName>, SingleJob, Answer>);

/// A job, and its sender.
struct SingleJob {
    text: String,
    actor: Actor,
}

/// Sends the jobs that wait for one queue.
struct Sender<'a> {
    api: &'a Api,
    queue: Option<&'a QueueName>,
}

impl GatheredJobs {
    /// Sends a job, with those of other callers where some wait. One that has not left in time is withdrawn.
    pub(super) async fn send(
        &self,
        api: &Api,
        text: &str,
        queue: Option<&QueueName>,
        actor: Actor,
    ) -> Answer {
        let sender = Sender { api, queue };
        let asked = self.0.ask(
            queue.cloned(),
            SingleJob {
                text: text.to_owned(),
                actor,
            },
            &sender,
        );
        let Ok(answer) = timeout(PATIENCE, asked).await else {
            return Err(unconfirmed());
        };
        answer.unwrap_or_else(|| {
            Err(Problem::not_yet(
                "the job may have been sent: the program met an error; send it again",
            ))
        })
    }
}

impl Serve<SingleJob, Answer> for Sender<'_> {
    async fn serve(&self, waiting: &Waiting, (): &mut ()) {
        let mut room = MOST;
        let jobs = waiting.take(|_| {
            room = room.saturating_sub(1);
            room > 0
        });
        let (api, queue) = (Arc::clone(self.api), self.queue.cloned());
        // A task of its own: the caller that serves may hang up, and the others wait for an answer.
        let sending = self
            .api
            .changes
            .spawn(async move { send_together(&api, queue.as_ref(), jobs).await });
        if let Err(error) = sending.await {
            tracing::error!(%error, "jobs of several callers: sending them failed; they are told to send them again");
        }
    }
}

async fn send_together(
    api: &Api,
    queue: Option<&QueueName>,
    jobs: Vec<Pending<SingleJob, Answer>>,
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
    for SentJobs {
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
