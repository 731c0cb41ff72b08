//! Executes the real code to find, for each sequence of answers, the next requests of a run or the end of the run.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::FutureExt as _;
use jiff::Timestamp;

use super::moment;
use super::recorder::{RequestRecorder, StoreRequest};
use super::tiny::{ItemOp, Registry, RequestAnswer, RowStates, Rows};
use evenkeel_account::company::queue;
use evenkeel_account::{NoFaults, SimWorld};
use evenkeel_engine::{
    Delivery, Engine, EngineParts, Execute as _, FailureClass, SigningSecret, Work,
};
use evenkeel_model::AccountName;
use evenkeel_model::catalog::Catalog;
use evenkeel_model::job::{Primary, Stamp};
use evenkeel_storage::system::SeededRng;
use evenkeel_storage::{Clock, Stores};

/// Maximum number of concurrent requests of one run.
pub(super) const AT_ONCE: usize = 4;
/// Delay of a recheck. It is shorter than an era (half an hour), so that a recheck becomes visible in the next era.
const RECHECK_AFTER: Duration = Duration::from_mins(26);

pub(super) type PendingAnswers = [Option<RequestAnswer>; AT_ONCE];

/// The index of a `RunNode`: a point at which a run waits for answers or has ended. 0 means that there is no run.
pub(super) type Point = u32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RunEnd {
    Done,
    Again,
    Poison(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RunStart {
    pub(super) work: u16,
    pub(super) again: bool,
    pub(super) enqueued: u8,
    pub(super) era: u8,
}

struct RunNode {
    beginning: RunStart,
    /// The previous point of the run, or 0 if this point is the first. The run got `answers` at the previous point.
    before: Point,
    answers: PendingAnswers,
    open_requests: Vec<u32>,
    end: Option<RunEnd>,
}

/// A clock that stands still during a run.
struct EraClock(AtomicU8);

impl Clock for EraClock {
    fn now(&self) -> Timestamp {
        moment(self.0.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

pub(super) struct Runs {
    engine: Engine,
    recorder: Arc<RequestRecorder>,
    era: Arc<EraClock>,
    pub(super) registry: Registry,
    works: Vec<(Work, Rows)>,
    by_work: HashMap<String, u16>,
    requests: Vec<(StoreRequest, ItemOp)>,
    by_request: HashMap<String, u32>,
    nodes: Vec<RunNode>,
    begun: HashMap<RunStart, Point>,
    after: HashMap<(Point, PendingAnswers), Point>,
}

impl Runs {
    pub(super) fn new(catalog: Catalog) -> Self {
        let recorder = Arc::new(RequestRecorder::default());
        let era = Arc::new(EraClock(AtomicU8::new(0)));
        let clock: Arc<dyn Clock> = era.clone();
        let elsewhere =
            SimWorld::new(AccountName::main(), Arc::clone(&clock), Arc::new(NoFaults)).account();
        let (catalog, secret) = (Arc::new(catalog), Arc::new(SigningSecret::default()));
        let engine = |account| {
            let engine = Engine::new(EngineParts {
                stores: Stores::new([(AccountName::main(), account)].into()),
                catalog: Arc::clone(&catalog),
                clock: Arc::clone(&clock),
                // Any seed will do, because no request depends on a random number: the random pause after a lost race
                // is zero while the clock stands still.
                rng: Arc::new(SeededRng::new(0)),
                recheck_after: RECHECK_AFTER,
            });
            engine.signing_by(Arc::clone(&secret))
        };
        // A worker reads the signing secret before its first run.
        assert!(
            engine(elsewhere.clone())
                .read_secret()
                .now_or_never()
                .is_some()
        );
        let engine = engine(recorder.account(elsewhere.blobs));
        let none = RunStart {
            work: 0,
            again: false,
            enqueued: 0,
            era: 0,
        };
        let nobody = RunNode {
            beginning: none,
            before: 0,
            answers: [None; AT_ONCE],
            open_requests: Vec::new(),
            end: None,
        };
        Self {
            engine,
            recorder,
            era,
            registry: Registry::new(),
            works: Vec::new(),
            by_work: HashMap::new(),
            requests: Vec::new(),
            by_request: HashMap::new(),
            nodes: vec![nobody],
            begun: HashMap::new(),
            after: HashMap::new(),
        }
    }

    pub(super) fn work(&mut self, work: Work) -> u16 {
        let name = format!("{work:?}");
        if let Some(known) = self.by_work.get(&name) {
            return *known;
        }
        let number = u16::try_from(self.works.len())
            .unwrap_or_else(|_| unreachable!("too many kinds of work"));
        let rows = if let Work::Recheck(recheck) = &work {
            self.registry.rows_of_recheck(recheck)
        } else {
            0
        };
        self.works.push((work, rows));
        self.by_work.insert(name, number);
        number
    }

    pub(super) fn rechecked_rows(&self, work: u16) -> Rows {
        self.works[usize::from(work)].1
    }

    pub(super) fn show_work(&self, work: u16) -> String {
        format!("{:?}", self.works[usize::from(work)].0)
    }

    /// Number of points, each of which was found by executing the real code.
    pub(super) const fn points(&self) -> usize {
        self.nodes.len() - 1
    }

    pub(super) fn open_requests(&self, at: Point) -> &[u32] {
        &self.nodes[at as usize].open_requests
    }

    pub(super) fn end(&self, at: Point) -> Option<&RunEnd> {
        self.nodes[at as usize].end.as_ref()
    }

    pub(super) fn item_op(&self, request: u32) -> &ItemOp {
        &self.requests[request as usize].1
    }

    pub(super) fn show(&self, request: u32) -> String {
        format!("{:?}", self.requests[request as usize].0)
    }

    pub(super) fn begin(&mut self, beginning: RunStart) -> Point {
        if let Some(known) = self.begun.get(&beginning) {
            return *known;
        }
        let point = self.discover(beginning, 0, [None; AT_ONCE]);
        self.begun.insert(beginning, point);
        point
    }

    pub(super) fn next(&mut self, at: Point, answers: PendingAnswers) -> Point {
        if let Some(known) = self.after.get(&(at, answers)) {
            return *known;
        }
        let point = self.discover(self.nodes[at as usize].beginning, at, answers);
        self.after.insert((at, answers), point);
        point
    }

    /// Executes the real code from the beginning of the run to a new point.
    fn discover(&mut self, beginning: RunStart, before: Point, answers: PendingAnswers) -> Point {
        let mut course = Vec::new();
        if before > 0 {
            course.push((before, answers));
            let mut at = before;
            while self.nodes[at as usize].before > 0 {
                let node = &self.nodes[at as usize];
                course.push((node.before, node.answers));
                at = node.before;
            }
        }
        let Self {
            engine,
            recorder,
            era,
            works,
            nodes,
            requests,
            registry,
            ..
        } = self;
        recorder.clear();
        era.0.store(beginning.era, Ordering::Relaxed);
        let work = &works[usize::from(beginning.work)].0;
        let delivery = Delivery {
            stamp: Stamp {
                message_id: format!("m{}", beginning.work),
                enqueued: moment(beginning.enqueued),
                job: None,
            },
            dequeue_count: 1 + u32::from(beginning.again),
            account: AccountName::main(),
            propagation_queue: queue("jobs"),
            sync_queue: queue("jobs"),
            recheck_queue: queue("jobs-recheck"),
            tables: None,
        };
        let mut run = engine.execute(work, &delivery);
        let mut context = Context::from_waker(Waker::noop());
        let mut polled = run.as_mut().poll(&mut context);
        let mut first = 0;
        for (point, answers) in course.into_iter().rev() {
            let open_requests = &nodes[point as usize].open_requests;
            for (index, (request, answer)) in open_requests.iter().zip(answers).enumerate() {
                assert!(
                    polled.is_pending() && recorder.len() == first + open_requests.len(),
                    "a run ended or sent a request before it got all answers"
                );
                let Some(answer) = answer else {
                    unreachable!("a run continues, but a request has no answer")
                };
                let (request, item_op) = &requests[*request as usize];
                recorder.answer(first + index, registry.reply(request, item_op, answer));
                polled = run.as_mut().poll(&mut context);
            }
            first += open_requests.len();
        }
        let end = match polled {
            Poll::Pending => None,
            Poll::Ready(Ok(_)) => Some(RunEnd::Done),
            Poll::Ready(Err(failure)) => Some(match failure.class {
                FailureClass::Permanent => RunEnd::Poison(failure.chain()),
                FailureClass::Transient { .. }
                | FailureClass::Withheld { .. }
                | FailureClass::OutdatedCatalog => RunEnd::Again,
            }),
        };
        drop(run);
        let asked: Vec<StoreRequest> = (first..self.recorder.len())
            .filter_map(|n| self.recorder.request(n))
            .collect();
        assert!(
            asked.len() <= AT_ONCE && (end.is_some() || !asked.is_empty()),
            "a run has {} concurrent requests, expected 1 to {AT_ONCE}",
            asked.len()
        );
        let open_requests = asked
            .into_iter()
            .map(|request| self.number(request))
            .collect();
        self.nodes.push(RunNode {
            beginning,
            before,
            answers,
            open_requests,
            end,
        });
        u32::try_from(self.nodes.len() - 1).unwrap_or_else(|_| unreachable!("too many points"))
    }

    fn number(&mut self, request: StoreRequest) -> u32 {
        let name = format!("{request:?}");
        if let Some(known) = self.by_request.get(&name) {
            return *known;
        }
        let mut second = None;
        let mut item_op = self.registry.item_op(&request, |_, recheck| {
            second = Some(recheck);
            0
        });
        if let Some(recheck) = second {
            item_op = ItemOp::Recheck(self.work(Work::Recheck(recheck)));
        }
        let number = u32::try_from(self.requests.len())
            .unwrap_or_else(|_| unreachable!("too many requests"));
        self.requests.push((request, item_op));
        self.by_request.insert(name, number);
        number
    }

    /// Checks that the real code finds nothing to change for a primary. An error describes the change.
    pub(super) fn is_in_step(
        &mut self,
        primary: &Primary,
        row_states: &RowStates,
    ) -> Result<(), String> {
        self.recorder.clear();
        let Self {
            engine,
            recorder,
            registry,
            ..
        } = self;
        let mut plan = Box::pin(engine.plan(primary));
        let mut context = Context::from_waker(Waker::noop());
        let mut answered = 0;
        loop {
            match plan.as_mut().poll(&mut context) {
                Poll::Ready(Ok(plan)) if plan.in_step => return Ok(()),
                Poll::Ready(Ok(plan)) => {
                    return Err(format!(
                        "a second pass would still change something: {plan}"
                    ));
                }
                Poll::Ready(Err(failure)) => return Err(failure.chain()),
                Poll::Pending if recorder.len() == answered => {
                    return Err("the plan waits, but has sent no request".to_owned());
                }
                Poll::Pending => {}
            }
            while let Some(request) = recorder.request(answered) {
                let item_op = registry.item_op(&request, |_, _| 0);
                let ItemOp::Read(row) = item_op else {
                    return Err(format!("the plan sends a write: {request:?}"));
                };
                let reply = registry.reply(&request, &item_op, super::state::read(row_states, row));
                recorder.answer(answered, reply);
                answered += 1;
            }
        }
    }
}
