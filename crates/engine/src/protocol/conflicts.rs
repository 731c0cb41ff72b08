//! Key conflicts: another primary holds a key that this primary derives.
//!
//! Two primaries can derive the same key if the keys of a view lack a part of the primary's key. The row at the key
//! names its owner. An owner that no longer derives the key is reconciled first. An owner that still derives the key
//! keeps it, and its footprint lists the other primary as a contender (`contenders`). When the owner gives up the key,
//! the owner queues a sync of the contender.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest as _, Sha256};

use crate::execute::Failure;
use crate::failure::{ROUNDS, lost_race, permanent, storage};
use crate::protocol::footprint::{self, Footprint};
use crate::protocol::observe::Observation;
use crate::protocol::observed_item::ObservedItem;
use crate::protocol::primary::read_primary;
use crate::protocol::run::nesting::Nesting;
use crate::protocol::run::stage::Child;
use crate::protocol::scope::{Desired, Reasons, Scope};
use crate::protocol::steps::{KeyConflict, Plan};
use evenkeel_model::catalog::{Catalog, Form, TableRef, TargetRef, ViewStatus};
use evenkeel_model::item::{self, Owner};
use evenkeel_model::job::Primary;
use evenkeel_model::patterns;
use evenkeel_model::{ItemAddress, Part, ViewName};
use evenkeel_storage::{IfMatch, TableOperation};

#[derive(Debug, thiserror::Error)]
enum TakenKey {
    #[error("{address} is taken by {} (view {}), which still derives it. Change one of the two, or set on_conflict = \"last_writer\" in the view", .owner.primary, .owner.view)]
    ByPrimary { address: ItemAddress, owner: Owner },
    #[error(
        "{address} is taken by the list of view {list}. Give one view another target or other keys. If the keys of {list} were changed, run `evenkeel backfill --view {list}`"
    )]
    ByList {
        address: ItemAddress,
        list: ViewName,
    },
    #[error(
        "{address} is taken by an old list of view {list}, which has another target now. Run `evenkeel backfill --view {list}`"
    )]
    ByMovedList {
        address: ItemAddress,
        list: ViewName,
    },
    #[error(
        "{address} is taken by the list of view {list}, which this catalog does not have. Use the catalog that has it, or give view {} another target or other keys",
        .address.view
    )]
    ByUnknownList {
        address: ItemAddress,
        list: ViewName,
    },
    #[error(
        "{address} is taken by an old list of view {list}, which was redefined or removed. Give view {} another target or other keys, or delete the list: see docs/operations.md#keys-of-an-old-list",
        .address.view
    )]
    ByFormerList {
        address: ItemAddress,
        list: ViewName,
    },
    #[error("{address} is taken by a {} that evenkeel did not write. Delete it, or give the view another key", .address.site.kind())]
    Foreign { address: ItemAddress },
    #[error(
        "{address} would be set on a copy, and the view of the copy would remove the properties. Set them on an entity that is not a copy, or let the view of the copy include them"
    )]
    OnCopy { address: ItemAddress },
}

/// The job failed only because other holders keep its keys. A retry fails again until one of the primaries changes.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub(crate) struct KeysTaken(Vec<TakenKey>);

impl KeysTaken {
    /// Whether evenkeel wrote none of the rows and blobs that hold the keys.
    pub(crate) fn are_foreign(&self) -> bool {
        self.0
            .iter()
            .all(|taken| matches!(taken, TakenKey::Foreign { .. }))
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = (&ViewName, String)> {
        self.0
            .iter()
            .map(|taken| (&taken.address().view, taken.to_string()))
    }
}

impl TakenKey {
    const fn address(&self) -> &ItemAddress {
        match self {
            Self::ByPrimary { address, .. }
            | Self::ByList { address, .. }
            | Self::ByMovedList { address, .. }
            | Self::ByUnknownList { address, .. }
            | Self::ByFormerList { address, .. }
            | Self::Foreign { address }
            | Self::OnCopy { address } => address,
        }
    }

    /// Whether the key stays taken until its holder changes, so that a retry fails in the same way. A list does not
    /// keep its key, because it disappears with its last member, perhaps even during the backfill that found the
    /// conflict.
    const fn is_kept(&self) -> bool {
        matches!(
            self,
            Self::ByPrimary { .. } | Self::Foreign { .. } | Self::OnCopy { .. }
        )
    }

    fn by_list(catalog: &Catalog, address: ItemAddress, list: ViewName) -> Self {
        match catalog
            .generations
            .status(&list, 0, catalog.declares(&list))
        {
            ViewStatus::Retired => Self::ByFormerList { address, list },
            ViewStatus::Known if list == address.view => Self::ByFormerList { address, list },
            ViewStatus::Known if lists_at(catalog, &list, &address) => {
                Self::ByList { address, list }
            }
            ViewStatus::Known => Self::ByMovedList { address, list },
            // A newer catalog may have this list. The failure is permanent nevertheless: if there is a newer catalog,
            // this worker does not have the recorded catalog, and moves no job to the poison queue.
            ViewStatus::Newer => Self::ByUnknownList { address, list },
        }
    }
}

fn lists_at(catalog: &Catalog, view: &ViewName, address: &ItemAddress) -> bool {
    catalog
        .view_at(view, &address.site)
        .is_some_and(|view| match view.form() {
            Form::Lists { rows, .. } => address.site.row().is_some_and(|(table, _)| {
                rows.target.has(&TableRef {
                    account: address.account.clone(),
                    table: table.clone(),
                })
            }),
            Form::BlobLists(lists) => address.site.blob().is_some_and(|(container, _)| {
                lists.accounts.has(&address.account) && lists.container == *container
            }),
            Form::Copies { .. }
            | Form::Values(_)
            | Form::Properties { .. }
            | Form::RangeOverlays(_)
            | Form::Documents(_) => false,
        })
}

#[derive(Default)]
pub(crate) struct ConflictTracker {
    /// Items to look at before the primary is read.
    pub(crate) touched: BTreeSet<ItemAddress>,
    /// Items of other owners at keys that this run wants. The footprints of these owners did not list the items.
    pub(crate) unlisted: BTreeSet<ItemAddress>,
    /// Number of passes over a holder that this run has started to free a key, for each key and holder.
    attempts: BTreeMap<(ItemAddress, Primary), u8>,
    /// Whether the next round begins without a pause. It does if this round lost no race for its own primary: the round
    /// has closed, has found items to look at first, has begun passes over holders, or has only failed to add a
    /// contender to a holder's footprint.
    pub(crate) begin_at_once: bool,
}

impl ConflictTracker {
    pub(crate) fn look_first_at(&mut self, items: BTreeSet<ItemAddress>) {
        self.touched.extend(items);
        self.begin_at_once = true;
    }

    pub(crate) fn of(touched: BTreeSet<ItemAddress>) -> Self {
        Self {
            touched,
            ..Self::default()
        }
    }

    /// Makes the next round look at the items that this lost round wrote or dropped. A faster pass that looked before
    /// these writes may have removed the items from the footprint.
    pub(crate) fn observe_again(&mut self, plan: &Plan) {
        self.touched.extend(plan.touched().cloned());
    }
}

enum EnlistOutcome {
    /// The holder's footprint lists the contender, or cannot list it: the holder's table is not declared, or the
    /// footprint is unreadable or full.
    Done,
    /// The holder's footprint does not list the item.
    Unlisted,
    /// Another writer was faster, or the write got no answer.
    Lost,
}

pub(crate) enum Resolution {
    /// The round goes on. Taken keys stay with their holders.
    Clear,
    /// The contender could not be added to every holder's footprint. The next round tries again.
    NewRound,
    /// Passes over these holders run first. Then another round begins.
    Holders(Vec<Child>),
}

/// Resolves key conflicts. An owner that no longer wants its key is brought in step first, and the round begins anew.
/// Any other owner keeps its key, and the contender is added to its footprint.
pub(crate) async fn resolve(
    scope: &Scope<'_>,
    tracker: &mut ConflictTracker,
    plan: &Plan,
    nesting: &Nesting,
) -> Result<Resolution, Failure> {
    let (mut holders, mut any_lost) = (Vec::new(), false);
    for KeyConflict { address, owner, .. } in &plan.taken {
        let Some(owner) = owner else { continue };
        if owner.primary == scope.primary {
            continue;
        }
        let holder_item = address.obstacle(&owner.view);
        let attempt = (address.clone(), owner.primary.clone());
        if nesting.may_free(&owner.primary)
            && tracker
                .attempts
                .get(&attempt)
                .is_none_or(|times| *times < max_attempts(scope))
            && !still_wants(scope, owner, address).await?
        {
            *tracker.attempts.entry(attempt).or_default() += 1;
            tracker.touched.insert(address.clone());
            holders.push(Child {
                primary: owner.primary.clone(),
                item: holder_item,
            });
        } else if scope.delivery.is_some() {
            let lost = match enlist(scope, owner, &holder_item, &scope.primary).await? {
                EnlistOutcome::Done => false,
                // The owner may have given up the item meanwhile, so the next round looks at the key again. If the
                // footprint still does not list the item then, `insert` returns `false`, and the owner keeps the key.
                EnlistOutcome::Unlisted => tracker.unlisted.insert(holder_item),
                EnlistOutcome::Lost => true,
            };
            if lost {
                tracker.touched.insert(address.clone());
            }
            any_lost |= lost;
        }
    }
    tracker.begin_at_once = any_lost || !holders.is_empty();
    Ok(if !holders.is_empty() {
        Resolution::Holders(holders)
    } else if any_lost {
        Resolution::NewRound
    } else {
        Resolution::Clear
    })
}

/// Maximum number of passes over one holder that a run starts to free one key. A late insert may bring the holder's row
/// back after the first pass, so there may be a second pass. Then the holder keeps the key. Otherwise a holder that
/// fails permanently would use up all rounds of the run.
const fn max_attempts(scope: &Scope<'_>) -> u8 {
    if scope.nested { 1 } else { 2 }
}

async fn enlist(
    scope: &Scope<'_>,
    owner: &Owner,
    item: &ItemAddress,
    contender: &Primary,
) -> Result<EnlistOutcome, Failure> {
    let env = scope.env;
    let Some(source) = env.catalog.table(&owner.primary.table) else {
        return Ok(EnlistOutcome::Done);
    };
    let (table, key) = (
        env.catalog.footprint_table(source),
        footprint::key(&owner.primary),
    );
    let tables = &env.account(source)?.tables;
    let step = || format!("adding {contender} to the contenders for {item}");
    let row = tables
        .get(&table, &key, None)
        .await
        .map_err(|error| storage(step(), error))?;
    let Some(row) = row else {
        return Ok(EnlistOutcome::Unlisted);
    };
    // If the footprint is unreadable, jobs of its owner report the reason. The secret is not needed, because signatures
    // do not cover contenders.
    let Ok(mut footprint) = Footprint::decode(&owner.primary, &row.entity, None) else {
        return Ok(EnlistOutcome::Done);
    };
    if !footprint.items.contains_key(item) {
        return Ok(EnlistOutcome::Unlisted);
    }
    if !footprint.contenders.add(item, contender) {
        return Ok(EnlistOutcome::Done);
    }
    let Some(contenders) = footprint
        .encode(&owner.primary, None)
        .ok()
        .and_then(footprint::contenders_alone)
    else {
        return Ok(EnlistOutcome::Done);
    };
    match tables
        .apply(
            &table,
            &TableOperation::Merge(contenders, IfMatch::Matches(row.etag)),
        )
        .await
    {
        Ok(_) => Ok(EnlistOutcome::Done),
        Err(error) if error.may_have_lost() => Ok(EnlistOutcome::Lost),
        Err(error) => Err(storage(step(), error)),
    }
}

/// The contenders to sync, because this primary has given up the key that they want. Either this close removes the item
/// with that key from the footprint, or the item was removed before and this round has looked at it. If another primary
/// already holds the key, the contender is added to that primary's footprint instead.
pub(crate) async fn contenders_to_sync(
    scope: &Scope<'_>,
    seen: &Observation,
    plan: &Plan,
    closed: &Footprint,
) -> Result<BTreeSet<Primary>, Failure> {
    let mut waiting = BTreeSet::new();
    if scope.delivery.is_none() {
        return Ok(waiting);
    }
    let before = plan.announce.as_ref().unwrap_or(&seen.footprint);
    let was_known =
        |item: &ItemAddress| before.items.contains_key(item) || seen.observed.contains_key(item);
    for (item, contender) in before
        .contenders
        .iter()
        .filter(|(item, _)| was_known(item) && !closed.items.contains_key(*item))
    {
        if let Some(ObservedItem::Foreign {
            owner: Some(owner), ..
        }) = seen.observed.get(item)
        {
            let has_it = owner.primary == *contender;
            if has_it
                || matches!(
                    enlist(scope, owner, &item.obstacle(&owner.view), contender).await?,
                    EnlistOutcome::Done
                )
            {
                continue;
            }
        }
        if may_derive_at(scope, contender, item) {
            waiting.insert(contender.clone());
        }
    }
    Ok(waiting)
}

/// Whether a view of the contender's table can make a row at the item's site. If no view can, the list of contenders
/// may be forged, and no sync is queued.
fn may_derive_at(scope: &Scope<'_>, contender: &Primary, item: &ItemAddress) -> bool {
    let catalog = &scope.env.catalog;
    let table = item.site.row().map(|(table, _)| TableRef {
        account: item.account.clone(),
        table: table.clone(),
    });
    let there = |target: &TargetRef| table.as_ref().is_some_and(|table| target.has(table));
    catalog.table(&contender.table).is_some_and(|source| {
        catalog
            .views_of(source)
            .any(|view| view.rows().is_some_and(|rows| there(rows.target)))
    })
}

/// Whether the owner of a key still derives the key. If this catalog cannot tell, the owner keeps the key.
async fn still_wants(
    scope: &Scope<'_>,
    owner: &Owner,
    address: &ItemAddress,
) -> Result<bool, Failure> {
    let Some(source) = scope.env.catalog.table(&owner.primary.table) else {
        return Ok(true);
    };
    if !scope
        .env
        .catalog
        .views_of(source)
        .any(|view| view.name == owner.view)
    {
        return Ok(true);
    }
    let row = read_primary(scope.env, source, &owner.primary.key, false)
        .await?
        .row;
    let row = row.filter(|row| !item::is_derived_within(&source.table, &row.entity));
    let Ok(desired) = patterns::derive(
        &scope.env.catalog,
        source,
        row.as_ref().map(|row| &row.entity),
    ) else {
        return Ok(true);
    };
    Ok(desired.failed.contains_key(&owner.view)
        || desired.items.contains_key(&address.obstacle(&owner.view)))
}

/// Whether nothing is left to do after a plan was carried out. If not, a new round begins. Fails if other holders keep
/// wanted keys, if a view cannot derive its items, or if a follower could not be synced.
pub(crate) fn leaves_nothing_to_do(
    scope: &Scope<'_>,
    plan: &Plan,
    desired: &Desired,
    follower_failure: Option<Failure>,
) -> Result<bool, Failure> {
    if plan.deferred || (!plan.taken.is_empty() && plan.frees_every_taken_key()) {
        Ok(false)
    } else if !plan.taken.is_empty() {
        Err(failure(scope, plan, desired))
    } else if !desired.underived.is_empty() {
        Err(desired.failure(&scope.primary))
    } else {
        follower_failure.map_or(Ok(true), Err)
    }
}

/// The digest of the taken keys, if this pass is about to fail its job because of these keys. `None` for a nested pass,
/// because the job that runs it may report another failure or none.
pub(crate) fn taken_keys_digest(
    scope: &Scope<'_>,
    plan: &Plan,
    desired: &Desired,
) -> Option<String> {
    let fails = !scope.nested && !plan.taken.is_empty() && !plan.frees_every_taken_key();
    fails
        .then(|| failure(scope, plan, desired))
        .as_ref()
        .and_then(digest)
}

/// The digest of the taken keys, if they are the only reason why a job fails.
pub(crate) fn digest(failure: &Failure) -> Option<String> {
    let taken = failure.cause.downcast_ref::<KeysTaken>()?;
    Some(hex::encode(&Sha256::digest(taken.to_string())[..8]))
}

pub(crate) fn failure(scope: &Scope<'_>, plan: &Plan, desired: &Desired) -> Failure {
    let step = format!("reconciling {}", scope.primary);
    let views = plan
        .taken
        .iter()
        .map(|taken| taken.address.view.clone())
        .chain(desired.underived.keys().cloned());
    let views: BTreeSet<ViewName> = views.collect();
    let taken = plan.taken.iter().map(
        |KeyConflict {
             address,
             owner,
             list,
         }| match (owner, list) {
            (Some(owner), _) => TakenKey::ByPrimary {
                address: address.clone(),
                owner: owner.clone(),
            },
            (None, Some(list)) => {
                TakenKey::by_list(&scope.env.catalog, address.clone(), list.clone())
            }
            (None, None) if address.part == Some(Part::Properties) => TakenKey::OnCopy {
                address: address.clone(),
            },
            (None, None) => TakenKey::Foreign {
                address: address.clone(),
            },
        },
    );
    let taken: Vec<TakenKey> = taken.collect();
    let failure = if taken.is_empty() {
        lost_race(step, ROUNDS)
    } else if desired.underived.is_empty() && taken.iter().all(TakenKey::is_kept) {
        permanent(step, KeysTaken(taken))
    } else {
        let taken = taken.iter().map(ToString::to_string).collect();
        permanent(step, Reasons([taken, desired.reasons()].concat()))
    };
    failure.of_views(views)
}
