//! Combiner: concurrent requests with the same key are served together, by one of the waiting callers.
//!
//! ```text
//!   ask(key, request) ──▶ queue of the key ──▶ the caller with the key's lock serves a batch ──▶ an answer to each of it
//!                           │ later requests gather meanwhile                                      │
//!                           └──────────────◀──────────────── the next caller gets the lock ◀───────┘
//! ```
//!
//! There is no timer and no task. A single request never waits.
//!
//! Invariants:
//!
//! - One caller at a time serves a key, and has exclusive access to its state.
//! - Requests are served in order. A caller that is dropped before its request is taken withdraws the request.
//! - A caller that is dropped while serving leaves its batch unanswered: the outcome is unknown to all callers in it. Other requests are
//!   served.
//! - The state of an idle key is kept until another key is used for the first time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedMutexGuard, oneshot};

/// Requests `R` with answers `A`, queued by key, and a state `S` per key.
pub struct Combiner<K, R, A, S = ()>(Mutex<Queues<K, R, A, S>>);

type Queues<K, R, A, S> = BTreeMap<K, Arc<Queue<R, A, S>>>;

pub struct Queue<R, A, S = ()> {
    pending: Mutex<VecDeque<Pending<R, A>>>,
    state: Arc<tokio::sync::Mutex<S>>,
}

pub struct Pending<R, A> {
    pub request: R,
    answer: oneshot::Sender<A>,
}

/// The lock of a key. No request of the key is served while it is held.
pub struct KeyGuard<R, A, S = ()> {
    _state: OwnedMutexGuard<S>,
    /// Keeps the key from being removed.
    _queue: Arc<Queue<R, A, S>>,
}

pub trait Serve<R, A, S = ()>: Sync {
    /// Takes a batch from the queue and answers each of its requests.
    fn serve(&self, queue: &Queue<R, A, S>, state: &mut S) -> impl Future<Output = ()> + Send;
}

/// No code panics while it holds one of these locks, so a poisoned lock is still consistent.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the value of a key, and creates it at the first use. Values of idle keys are kept until another key is used for the first time.
pub fn of_key<K: Ord, V>(
    all: &Mutex<BTreeMap<K, Arc<V>>>,
    key: K,
    new: impl FnOnce() -> V,
) -> Arc<V> {
    let mut all = locked(all);
    if !all.contains_key(&key) {
        all.retain(|_, one| Arc::strong_count(one) > 1);
    }
    Arc::clone(all.entry(key).or_insert_with(|| Arc::new(new())))
}

impl<K, R, A, S> Default for Combiner<K, R, A, S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord, R, A, S: Default> Combiner<K, R, A, S> {
    /// Waits until this caller or another one has served the request. Returns `None` if the caller that served it was dropped.
    pub async fn ask(&self, key: K, request: R, server: &impl Serve<R, A, S>) -> Option<A> {
        let queue = self.queue(key);
        let (answer, mut answered) = oneshot::channel();
        locked(&queue.pending).push_back(Pending { request, answer });
        loop {
            let mut state = tokio::select! {
                biased;
                answer = &mut answered => return answer.ok(),
                state = queue.state.lock() => state,
            };
            server.serve(&queue, &mut state).await;
        }
    }

    pub async fn lock(&self, key: K) -> KeyGuard<R, A, S> {
        let queue = self.queue(key);
        KeyGuard {
            _state: Arc::clone(&queue.state).lock_owned().await,
            _queue: queue,
        }
    }

    fn queue(&self, key: K) -> Arc<Queue<R, A, S>> {
        of_key(&self.0, key, || Queue {
            pending: Mutex::default(),
            state: Arc::default(),
        })
    }
}

impl<R, A, S> Queue<R, A, S> {
    /// Takes the oldest requests, up to the first that does not fit. The oldest request is always taken.
    pub fn take(&self, mut fits: impl FnMut(&R) -> bool) -> Vec<Pending<R, A>> {
        let mut pending = locked(&self.pending);
        pending.retain(Pending::is_awaited);
        let fitting = pending
            .iter()
            .enumerate()
            .take_while(|(at, one)| fits(&one.request) || *at == 0)
            .count();
        pending.drain(..fitting).collect()
    }
}

impl<R, A> Pending<R, A> {
    pub fn is_awaited(&self) -> bool {
        !self.answer.is_closed()
    }

    /// Answers the request. If its caller was dropped, the answer is discarded.
    pub fn tell(self, answer: A) {
        drop(self.answer.send(answer));
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::future::join_all;
    use futures::poll;
    use tokio::sync::Semaphore;
    use tokio::task::yield_now;

    use super::*;

    type Doubles = Combiner<&'static str, u32, u32, u32>;

    /// Doubles numbers, one batch per permit, and counts the batches of a key.
    struct Doubler {
        most: u32,
        permits: Semaphore,
        batches: Mutex<Vec<Vec<u32>>>,
    }

    impl Doubler {
        fn new(most: u32, permits: usize) -> Self {
            Self {
                most,
                permits: Semaphore::new(permits),
                batches: Mutex::default(),
            }
        }

        fn batches(&self) -> Vec<Vec<u32>> {
            locked(&self.batches).clone()
        }
    }

    impl Serve<u32, u32, u32> for Doubler {
        async fn serve(&self, queue: &Queue<u32, u32, u32>, state: &mut u32) {
            let mut sum = 0;
            let batch = queue.take(|number| {
                sum += number;
                sum <= self.most
            });
            locked(&self.batches).push(batch.iter().map(|one| one.request).collect());
            yield_now().await;
            self.permits.acquire().await.unwrap().forget();
            *state += 1;
            for one in batch {
                let double = one.request * 2;
                one.tell(double);
            }
        }
    }

    #[tokio::test]
    async fn requests_that_wait_for_another_are_served_together_in_order() {
        let (combiner, server) = (Doubles::default(), Doubler::new(100, 9));
        assert_eq!(combiner.ask("a", 1, &server).await, Some(2));
        let answers = join_all([2, 3, 4].map(|number| combiner.ask("a", number, &server))).await;
        assert_eq!(answers, [4, 6, 8].map(Some));
        assert_eq!(
            server.batches(),
            [vec![1], vec![2], vec![3, 4]],
            "the first of three begins at once"
        );
    }

    #[tokio::test]
    async fn a_batch_ends_before_the_first_that_does_not_fit_and_is_never_empty() {
        let (combiner, server) = (Doubles::default(), Doubler::new(10, 9));
        let answers =
            join_all([1, 6, 4, 1, 20, 3].map(|number| combiner.ask("a", number, &server))).await;
        assert_eq!(answers, [2, 12, 8, 2, 40, 6].map(Some));
        assert_eq!(
            server.batches(),
            [vec![1], vec![6, 4], vec![1], vec![20], vec![3]]
        );
    }

    #[tokio::test]
    async fn keys_do_not_wait_for_each_other() {
        let (combiner, hangs, serves) = (
            Doubles::default(),
            Doubler::new(100, 0),
            Doubler::new(100, 9),
        );
        let mut hanging = pin!(combiner.ask("a", 1, &hangs));
        assert!(poll!(&mut hanging).is_pending());
        assert_eq!(combiner.ask("b", 2, &serves).await, Some(4));
    }

    #[tokio::test]
    async fn a_dropped_caller_withdraws_a_request_that_was_not_taken() {
        let (combiner, server) = (Doubles::default(), Doubler::new(100, 0));
        let mut first = pin!(combiner.ask("a", 1, &server));
        assert!(poll!(&mut first).is_pending());
        let mut second = Box::pin(combiner.ask("a", 2, &server));
        let mut third = pin!(combiner.ask("a", 3, &server));
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        drop(second);
        server.permits.add_permits(9);
        assert_eq!((first.await, third.await), (Some(2), Some(6)));
        assert_eq!(server.batches(), [[1], [3]]);
    }

    #[tokio::test]
    async fn a_caller_that_is_dropped_while_it_serves_leaves_its_batch_unanswered_and_the_rest_goes_on()
     {
        let (combiner, server) = (Doubles::default(), Doubler::new(100, 0));
        let guard = combiner.lock("a").await;
        let mut serving = Box::pin(combiner.ask("a", 1, &server));
        let mut aboard = pin!(combiner.ask("a", 2, &server));
        assert!(poll!(&mut serving).is_pending() && poll!(&mut aboard).is_pending());
        drop(guard);
        assert!(poll!(&mut serving).is_pending());
        let mut later = pin!(combiner.ask("a", 3, &server));
        assert!(poll!(&mut later).is_pending());
        drop(serving);
        server.permits.add_permits(1);
        assert_eq!((aboard.await, later.await), (None, Some(6)));
        assert_eq!(server.batches(), [vec![1, 2], vec![3]]);
    }

    #[tokio::test]
    async fn a_key_that_is_locked_is_not_served() {
        let (combiner, server) = (Doubles::default(), Doubler::new(100, 9));
        let guard = combiner.lock("a").await;
        let mut request = pin!(combiner.ask("a", 1, &server));
        assert!(poll!(&mut request).is_pending());
        assert_eq!(
            combiner.ask("b", 2, &server).await,
            Some(4),
            "another key is served, and the locked key stays locked"
        );
        assert!(poll!(&mut request).is_pending());
        drop(guard);
        assert_eq!(request.await, Some(2));
    }

    #[tokio::test]
    async fn the_state_of_a_key_stays_until_another_key_comes_while_it_is_idle() {
        let (combiner, server) = (Doubles::default(), Doubler::new(100, 9));
        let served = |key| {
            let queues = locked(&combiner.0);
            queues
                .get(key)
                .map(|queue| *queue.state.try_lock().unwrap())
        };
        for _ in 0..2 {
            combiner.ask("a", 1, &server).await;
        }
        assert_eq!((served("a"), served("b")), (Some(2), None));
        combiner.ask("b", 1, &server).await;
        assert_eq!((served("a"), served("b")), (None, Some(1)));
    }
}
