//! The stages of a round, and the passes over other primaries that a stage waits for.
//!
//! ```text
//!   Fresh ──▶ Seen ──▶ Applied ──▶ closed
//!              │          │ its followers, one after the other
//!              ▼
//!           Holders ──▶ the round begins anew
//! ```
//!
//! The round of a nested pass begins at `Fresh`. A round of the run's own pass begins at `Seen`, because the run reads
//! the footprint, the items and the primary before it starts the round (`Reconciler::settle`). A round ends at `Seen`
//! if there is nothing to do, if some items must be read first, or if another writer won a race.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;

use crate::execute::{Failure, FailureClass};
use crate::failure::first_of;
use crate::protocol::change::{Change, RoundOutcome};
use crate::protocol::observe::Observation;
use crate::protocol::plan_input::Presence;
use crate::protocol::run::nesting::{Ring, Role};
use crate::protocol::scope::Desired;
use crate::protocol::steps::Plan;
use evenkeel_model::job::Primary;
use evenkeel_model::{ETag, ItemAddress};

/// The stage that a pass has reached in its round, with the data that the next stage needs.
#[derive(Default)]
pub(crate) enum Stage<'r> {
    #[default]
    Fresh,
    Seen(Seen<'r>),
    /// Passes over the holders of wanted keys are running. This pass has announced nothing.
    Holders(Children),
    /// The plan has been carried out, and passes over the followers are running. The announcement of this pass is open.
    Applied(Box<Applied<'r>>, Children),
}

pub(crate) enum Seen<'r> {
    Given(&'r Observation),
    Own(Box<Observation>),
}

pub(crate) struct Applied<'r> {
    pub(crate) seen: Seen<'r>,
    pub(crate) desired: Desired,
    pub(crate) plan: Box<Plan>,
    pub(crate) change: Option<&'r Change>,
    pub(crate) state: Presence,
    pub(crate) etag: Option<ETag>,
    pub(crate) written: BTreeMap<ItemAddress, ETag>,
}

pub(crate) enum Step<'r> {
    Go(Stage<'r>),
    /// The pass waits for a pass over another primary, then goes on with this stage.
    Open(Stage<'r>, Box<Child>),
    Ended(RoundOutcome),
}

pub(crate) struct Child {
    pub(crate) primary: Primary,
    /// If this primary is a follower, the item by which the lower pass has changed it. If this primary is a holder, its
    /// own item at the wanted key. A late insert may have brought the holder's item back, so the pass over the holder
    /// must look at the item even if the footprint does not list it.
    pub(crate) item: ItemAddress,
}

pub(crate) struct Children {
    role: Role,
    remaining: VecDeque<Child>,
    /// Items of the followers that failed permanently.
    failed: Vec<ItemAddress>,
    failure: Option<Failure>,
    ring: Option<Failure>,
}

pub(crate) struct FollowerOutcome {
    pub(crate) failed: Vec<ItemAddress>,
    pub(crate) failure: Option<Failure>,
}

impl Deref for Seen<'_> {
    type Target = Observation;

    fn deref(&self) -> &Observation {
        match self {
            Self::Given(seen) => seen,
            Self::Own(seen) => seen,
        }
    }
}

impl Stage<'_> {
    /// Records the result of a child that has ended. Returns the child's failure if the pass cannot go on.
    pub(crate) fn child_ended(
        &mut self,
        item: ItemAddress,
        ended: Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self {
            Self::Holders(children) | Self::Applied(_, children) => children.ended(item, ended),
            Self::Fresh | Self::Seen(_) => ended,
        }
    }

    pub(crate) const fn role(&self) -> Role {
        match self {
            Self::Holders(_) => Role::Frees,
            Self::Fresh | Self::Seen(_) | Self::Applied(..) => Role::Follows,
        }
    }
}

impl Children {
    pub(crate) fn of(role: Role, children: Vec<Child>) -> Self {
        Self {
            role,
            remaining: children.into(),
            failed: Vec::new(),
            failure: None,
            ring: None,
        }
    }

    pub(crate) fn next(&mut self) -> Option<Child> {
        self.remaining.pop_front()
    }

    pub(crate) fn followed(self) -> FollowerOutcome {
        FollowerOutcome {
            failed: self.failed,
            failure: self.failure.or(self.ring),
        }
    }

    fn ended(&mut self, item: ItemAddress, ended: Result<(), Failure>) -> Result<(), Failure> {
        let Err(failure) = ended else { return Ok(()) };
        match (self.role, Ring::leaves_nothing_undone(&failure)) {
            _ if failure.class != FailureClass::Permanent => return Err(failure),
            // A pass of the ring has changed the first entity of the ring. No other job would sync the followers of
            // that entity, so this pass must fail.
            (Role::Frees, true) => return Err(failure),
            // The holder's own job reports this failure.
            (Role::Frees, false) => {}
            // All entities of the ring but the first are in step.
            (Role::Follows, true) => self.ring = Some(failure),
            // One follower that fails does not delay the others.
            (Role::Follows, false) => {
                self.failed.push(item);
                self.failure = Some(first_of(self.failure.take(), failure));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{lost_race, permanent};
    use crate::protocol::run::nesting::Nesting;
    use evenkeel_model::{AccountName, EntityKey, Site, TableName, ViewName};

    fn primary(name: &str) -> Primary {
        Primary {
            table: TableName::new("Rows").unwrap(),
            key: EntityKey::new("p", name).unwrap(),
        }
    }

    fn item(name: &str) -> ItemAddress {
        let Primary { table, key } = primary(name);
        let view = ViewName::new("copies").unwrap();
        ItemAddress::whole(view, AccountName::main(), Site::Row { table, key })
    }

    fn ring() -> Failure {
        let mut nesting = Nesting::of(primary("a"));
        nesting.open(&primary("a"), Role::Follows).unwrap_err()
    }

    fn for_good(why: &str) -> Failure {
        permanent(why, std::io::Error::other("no"))
    }

    #[test]
    fn a_follower_that_fails_for_good_or_is_in_a_ring_does_not_stop_the_others() {
        let mut followers = Children::of(Role::Follows, Vec::new());
        for (name, ended) in [
            ("1", Ok(())),
            ("2", Err(ring())),
            ("3", Err(for_good("the first"))),
            ("4", Err(for_good("the second"))),
        ] {
            assert!(followers.ended(item(name), ended).is_ok(), "{name}");
        }
        let ended = followers.ended(item("5"), Err(lost_race("racing", 5)));
        assert!(ended.is_err(), "a lost race ends the run");
        let followed = followers.followed();
        assert_eq!(followed.failed, [item("3"), item("4")]);
        assert!(followed.failure.unwrap().chain().contains("the first"));

        let mut followers = Children::of(Role::Follows, Vec::new());
        followers.ended(item("1"), Err(ring())).unwrap();
        let followed = followers.followed();
        assert!(
            followed.failed.is_empty() && Ring::leaves_nothing_undone(&followed.failure.unwrap())
        );
    }

    #[test]
    fn a_holder_that_fails_for_good_does_not_fail_the_contender_unless_in_a_ring() {
        let mut holders = Children::of(Role::Frees, Vec::new());
        assert!(holders.ended(item("1"), Err(for_good("taken"))).is_ok());
        assert!(holders.ended(item("2"), Err(ring())).is_err());
        assert!(
            holders
                .ended(item("3"), Err(lost_race("racing", 5)))
                .is_err()
        );
        let followed = holders.followed();
        assert!(followed.failed.is_empty() && followed.failure.is_none());
    }
}
