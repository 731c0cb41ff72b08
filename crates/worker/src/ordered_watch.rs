//! A value that tasks read, and whose changes they wait for.
//!
//! It works like `tokio::sync::watch`, but wakes the waiting tasks in the order in which they began
//! to wait. Tokio's watch wakes them in a random order, so the simulation of a worker could not be
//! reproduced.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

pub(crate) struct OrderedWatch<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> OrderedWatch<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Notify::const_new(),
        }
    }

    pub(crate) fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.lock())
    }

    /// Wakes all waiting tasks if `change` returns `true`.
    pub(crate) fn update(&self, change: impl FnOnce(&mut T) -> bool) {
        let changed = change(&mut self.lock());
        if changed {
            self.changed.notify_waiters();
        }
    }

    /// Waits until the value satisfies `wanted`. Cancel-safe.
    pub(crate) async fn wait_until(&self, wanted: impl Fn(&T) -> bool) {
        loop {
            // Created before the value is read. Otherwise a change between the two steps would be
            // missed.
            let changed = self.changed.notified();
            if self.read(&wanted) {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        // Each change is a single assignment, so a panic cannot leave the value half changed.
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test]
    async fn waiting_tasks_are_woken_in_order_and_only_when_the_value_fits() {
        let watch = OrderedWatch::new(0);
        let woken = RefCell::new(Vec::new());
        let wait = |name: &'static str| {
            let (watch, woken) = (&watch, &woken);
            async move {
                watch.wait_until(|value| *value > 1).await;
                woken.borrow_mut().push(name);
            }
        };
        let change = async {
            for value in 1..=2 {
                tokio::task::yield_now().await;
                assert!(woken.borrow().is_empty());
                watch.update(|current| std::mem::replace(current, value) != value);
            }
        };
        tokio::join!(wait("a"), wait("b"), wait("c"), change);
        assert_eq!(*woken.borrow(), ["a", "b", "c"]);
        assert_eq!(watch.read(|value| *value), 2);
    }
}
