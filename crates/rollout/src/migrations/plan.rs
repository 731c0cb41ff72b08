//! Computes the pending changes from the needs and the state of the stores. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::error::{SourceChanged, SourceRespelled};
use super::planned::{PlannedChange, ViewAction, ViewChange};
use super::{
    CatalogRecord, DeclarationAction, Migration, MigrationError, Needs, RecordedView, StoreState,
    declarations,
};
use evenkeel_model::catalog::{AccountSet, Catalog, DatedRef, Definition, Source, TableRef, View};
use evenkeel_model::{AccountName, CatalogOwner, TableName, ViewName};

/// All pending changes, in the order in which they are made.
pub(super) fn plan(
    migrations: &[Migration],
    needs: &Needs,
    state: &StoreState,
    catalog: &Catalog,
    owner: &CatalogOwner,
) -> Result<Vec<PlannedChange>, MigrationError> {
    let mut changes = Vec::new();
    for account in needs.recording_accounts() {
        if !state.recording.contains(&account) {
            changes.push(PlannedChange::CreateRecord { account });
        }
    }
    for migration in migrations {
        for account in needs.numbered.get(&migration.number).into_iter().flatten() {
            let recorded = state
                .applied
                .iter()
                .any(|applied| applied.account == *account && applied.number == migration.number);
            // Every job needs the control tables, so a control table that was deleted is created
            // again. No other step does this.
            let existing = state.tables.get(account);
            let whole = migration
                .tables
                .iter()
                .all(|table| existing.is_some_and(|existing| existing.contains(&table.name)));
            if !recorded || !whole {
                changes.push(PlannedChange::Apply {
                    account: account.clone(),
                    number: migration.number.clone(),
                    name: migration.name.clone(),
                    description: migration.description.clone(),
                });
            }
        }
    }
    for (account, tables) in &needs.tables {
        let existing = state.tables.get(account);
        for table in tables
            .iter()
            .filter(|table| !existing.is_some_and(|existing| existing.contains(*table)))
        {
            changes.push(PlannedChange::CreateTable {
                account: account.clone(),
                table: table.clone(),
            });
        }
    }
    for (account, queues) in &needs.queues {
        let existing = state.queues.get(account);
        for queue in queues
            .iter()
            .filter(|queue| !existing.is_some_and(|existing| existing.contains(*queue)))
        {
            changes.push(PlannedChange::CreateQueue {
                account: account.clone(),
                queue: queue.clone(),
            });
        }
    }
    for (account, containers) in &needs.containers {
        let existing = state.containers.get(account);
        for container in containers
            .iter()
            .filter(|container| !existing.is_some_and(|existing| existing.contains(*container)))
        {
            changes.push(PlannedChange::CreateContainer {
                account: account.clone(),
                container: container.clone(),
            });
        }
    }
    for (place, need) in &needs.collections {
        let existing = state.collections.get(place);
        let lacking = need
            .fields
            .iter()
            .filter(|(name, _)| !existing.is_some_and(|existing| existing.contains_key(*name)));
        let columns: BTreeMap<String, String> = lacking
            .map(|(name, column)| (name.clone(), column.to_string()))
            .collect();
        if !columns.is_empty() {
            let (sink, table) = place.clone();
            changes.push(PlannedChange::DefineTable {
                sink,
                table,
                exists: existing.is_some(),
                columns,
            });
        }
    }
    let views = view_changes(&state.record, catalog, owner)?;
    changes.extend(followers(&views, state, catalog));
    let names = &catalog.names() - &state.record.names;
    let declared = declarations::changes(
        state.record.declarations.get(owner),
        &declarations::of(catalog),
    );
    let lists_declarations = views.is_empty() && names.is_empty()
        || declared
            .iter()
            .any(|change| change.action != DeclarationAction::New);
    // Names that are recorded together with views are not listed.
    if views.is_empty() && !names.is_empty() {
        changes.push(PlannedChange::RecordNames { names });
    }
    changes.extend(views.into_iter().map(PlannedChange::RecordView));
    // If views or names are recorded, the declarations are listed only if a declaration is not new.
    if lists_declarations && !declared.is_empty() {
        changes.push(PlannedChange::RecordDeclarations { changes: declared });
    }
    Ok(changes)
}

/// Plans the missing target tables of new or changed views over dated tables: one for each date
/// whose source table exists. For later dates, targets are created together with the source tables.
fn followers(views: &[ViewChange], state: &StoreState, catalog: &Catalog) -> Vec<PlannedChange> {
    let mut missing = Vec::new();
    for retention in catalog.retentions.values() {
        let source = retention.source();
        if !views.iter().any(|view| {
            view.action != ViewAction::Retired && view.source == Source::Dated(source.clone())
        }) {
            continue;
        }
        let (followers, existing) = (
            catalog.followers(retention),
            state.tables.get(&source.account),
        );
        for (begins, _) in existing
            .into_iter()
            .flatten()
            .filter_map(|table| source.tables.period(table))
        {
            for TableRef { account, table } in
                followers.required().map(|follower| follower.at(begins))
            {
                if !state
                    .tables
                    .get(&account)
                    .is_some_and(|existing| existing.contains(&table))
                {
                    missing.push(PlannedChange::CreateTable { account, table });
                }
            }
        }
    }
    missing
}

struct DeclaredView {
    source: Source,
    follower: Option<DatedRef>,
    accounts: BTreeSet<AccountName>,
    definition: Definition,
}

/// Differences between the views of the catalog and those in the record.
pub(super) fn view_changes(
    record: &CatalogRecord,
    catalog: &Catalog,
    owner: &CatalogOwner,
) -> Result<Vec<ViewChange>, MigrationError> {
    refuse_respelled(record, catalog)?;
    let later = |view: &ViewName| record.later_generations.get(view).copied().unwrap_or(0);
    let mut changes = Vec::new();
    for (
        name,
        DeclaredView {
            source,
            follower,
            accounts,
            definition: declared,
        },
    ) in declared(catalog)
    {
        let recorded = record.views.get(name);
        let (generation, action) = match recorded {
            None => (0, ViewAction::New),
            Some(recorded) if recorded.source != source => {
                // A view keeps its source, because the footprints of the old source's primaries
                // list the view's items. After a change of the source, no pass would visit these
                // primaries to delete the items.
                let (view, recorded, declared) = (name.clone(), recorded.source.clone(), source);
                return Err(MigrationError::SourceChanged(Box::new(SourceChanged {
                    view,
                    recorded,
                    declared,
                })));
            }
            Some(recorded) if recorded.retired => (recorded.generation, ViewAction::Restored),
            Some(recorded) if recorded.owner != *owner => {
                (recorded.generation, ViewAction::Claimed)
            }
            Some(recorded) if recorded.definition != declared => {
                (recorded.generation, ViewAction::Changed)
            }
            Some(recorded) if recorded.generation < later(name) => {
                (recorded.generation, ViewAction::Overtaken)
            }
            Some(_) => continue,
        };
        // The generation must be later than that of every existing item, so that each item is
        // written again.
        let generation = generation.max(later(name)) + 1;
        let followers = recorded
            .into_iter()
            .flat_map(|recorded| recorded.followers.iter().cloned())
            .chain(follower)
            .collect();
        let former = recorded
            .map(|recorded| recorded.accounts.clone())
            .unwrap_or_default();
        let left = if former.is_empty() {
            former
        } else {
            abandoned_accounts(&former, catalog.views.get(name))
        };
        let former = recorded.map(|recorded| recorded.definition.clone());
        let keys = former
            .as_ref()
            .map(|former| former.changes(&declared))
            .unwrap_or_default();
        let (view, definition, owner) = (name.clone(), Some(declared), owner.clone());
        changes.push(ViewChange {
            view,
            generation,
            action,
            source,
            followers,
            accounts,
            left,
            keys,
            former,
            definition,
            owner,
        });
    }
    for (name, recorded) in &record.views {
        if !recorded.retired && recorded.owner == *owner && !catalog.declares(name) {
            let RecordedView {
                generation,
                source,
                followers,
                accounts,
                owner,
                definition,
                ..
            } = recorded.clone();
            // If items of a later generation exist, they are retired too.
            let (view, generation, action) = (
                name.clone(),
                generation.max(later(name)),
                ViewAction::Retired,
            );
            let left = accounts.clone();
            let (keys, former, definition) = (Vec::new(), Some(definition), None);
            changes.push(ViewChange {
                view,
                generation,
                action,
                source,
                followers,
                accounts,
                left,
                keys,
                former,
                definition,
                owner,
            });
        }
    }
    Ok(changes)
}

/// Returns the former accounts of a view that its new definition does not use. Reconciles delete
/// the view's items in these accounts.
fn abandoned_accounts(
    former: &BTreeSet<AccountName>,
    view: Option<&Arc<View>>,
) -> BTreeSet<AccountName> {
    let stays = |account: &&AccountName| {
        view.is_some_and(|view| {
            view.form()
                .accounts()
                .is_some_and(|accounts| accounts.has(account))
        })
    };
    former
        .iter()
        .filter(|account| !stays(account))
        .cloned()
        .collect()
}

fn declared(catalog: &Catalog) -> BTreeMap<&ViewName, DeclaredView> {
    let one = catalog.views.values().map(|view| {
        let accounts = view
            .form()
            .spread()
            .into_iter()
            .flat_map(AccountSet::iter)
            .cloned()
            .collect();
        (
            &view.name,
            DeclaredView {
                source: Source::Table(view.source.clone()),
                follower: None,
                accounts,
                definition: view.definition(),
            },
        )
    });
    let dated = catalog.dated_views.values().map(|view| {
        let follower = view
            .rows()
            .map(|rows| rows.target.clone())
            .filter(|target| *target != view.source);
        let accounts = BTreeSet::new();
        (
            &view.name,
            DeclaredView {
                source: Source::Dated(view.source.clone()),
                follower,
                accounts,
                definition: view.definition(),
            },
        )
    });
    one.chain(dated).collect()
}

/// Refuses a source, or a target table of a range, whose spelling differs from the record. The
/// service treats both spellings as the same table. But footprints and range overlays are stored
/// under the recorded spelling and would not be found under another.
fn refuse_respelled(record: &CatalogRecord, catalog: &Catalog) -> Result<(), MigrationError> {
    for recorded in record.views.values().map(|recorded| &recorded.source) {
        let declared = match recorded {
            Source::Table(recorded) => catalog.table(&recorded.table).cloned().map(Source::Table),
            Source::Dated(recorded) => {
                let same = catalog
                    .retentions
                    .values()
                    .find(|retention| retention.tables == recorded.tables);
                same.map(|retention| Source::Dated(retention.source()))
            }
        };
        let Some(declared) = declared else { continue };
        if declared == *recorded && declared.declared_name() != recorded.declared_name() {
            return Err(MigrationError::SourceRespelled(Box::new(SourceRespelled {
                recorded: recorded.clone(),
                declared,
            })));
        }
    }
    for view in catalog
        .views
        .values()
        .filter(|view| record.views.contains_key(&view.name))
    {
        let Some(declared) = view.range().and_then(|range| range.target.tables().next()) else {
            continue;
        };
        let named = record
            .names
            .iter()
            .filter_map(|name| TableName::new(name.strip_prefix("table:")?).ok());
        // Table names are compared without regard to case.
        let named: Vec<TableName> = named.filter(|name| *name == declared.table).collect();
        if let Some(table) = named.first().filter(|_| {
            !named
                .iter()
                .any(|name| name.as_str() == declared.table.as_str())
        }) {
            let recorded = Source::Table(TableRef {
                account: declared.account.clone(),
                table: table.clone(),
            });
            return Err(MigrationError::SourceRespelled(Box::new(SourceRespelled {
                recorded,
                declared: Source::Table(declared),
            })));
        }
    }
    Ok(())
}

/// The hash of a definition, as the record stores it.
pub(super) fn hash(definition: &str) -> String {
    hex::encode(Sha256::digest(definition))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrations::Consent;
    use crate::migrations::RecordedView;
    use evenkeel_model::catalog::{
        DenormalizeRange, OnConflict, RangeRows, SecondaryIndex, TargetRef, ViewKind,
    };
    use evenkeel_model::template::Template;

    fn table(name: &str) -> TableRef {
        TableRef {
            account: AccountName::main(),
            table: TableName::new(name).unwrap(),
        }
    }

    fn catalog(views: &[(&str, &str, &str)]) -> Catalog {
        let mut catalog = Catalog::default();
        for (name, source, row_key) in views {
            let name = ViewName::new(*name).unwrap();
            let kind = ViewKind::SecondaryIndex(SecondaryIndex {
                target: table("Target").into(),
                partition_key: Template::parse("p").unwrap(),
                row_key: Template::parse(row_key).unwrap(),
                select: None,
            });
            let view = View {
                name: name.clone(),
                source: table(source),
                when: None,
                kind,
                on_conflict: OnConflict::Reject,
            };
            catalog
                .tables
                .insert(view.source.table.clone(), view.source.clone());
            catalog.views.insert(name, Arc::new(view));
        }
        catalog
    }

    fn recorded(catalog: &Catalog) -> CatalogRecord {
        let views = catalog.views.iter().map(|(name, view)| {
            let source = Source::Table(view.source.clone());
            let owner = CatalogOwner::default();
            (
                name.clone(),
                RecordedView {
                    generation: 3,
                    definition: view.definition(),
                    source,
                    followers: BTreeSet::new(),
                    accounts: BTreeSet::new(),
                    retired: false,
                    owner,
                },
            )
        });
        CatalogRecord {
            generation: 5,
            views: views.collect(),
            ..CatalogRecord::default()
        }
    }

    fn changes(
        record: &CatalogRecord,
        catalog: &Catalog,
    ) -> Result<Vec<ViewChange>, MigrationError> {
        view_changes(record, catalog, &CatalogOwner::default())
    }

    fn actions(record: &CatalogRecord, catalog: &Catalog) -> Vec<(String, u32, ViewAction)> {
        let changes = view_changes(record, catalog, &CatalogOwner::default()).unwrap();
        changes
            .into_iter()
            .map(|change| (change.view.to_string(), change.generation, change.action))
            .collect()
    }

    #[test]
    fn an_unchanged_catalog_has_no_pending_changes() {
        let catalog = catalog(&[("by_email", "Employees", "{Email}")]);
        assert_eq!(actions(&recorded(&catalog), &catalog), []);
    }

    #[test]
    fn new_views_start_at_generation_one_and_changed_ones_continue() {
        let before = catalog(&[("by_email", "Employees", "{Email}")]);
        let after = catalog(&[
            ("by_email", "Employees", "{Email|lower}"),
            ("by_name", "Employees", "{Name}"),
        ]);
        let expected = [
            ("by_email".to_owned(), 4, ViewAction::Changed),
            ("by_name".to_owned(), 1, ViewAction::New),
        ];
        assert_eq!(actions(&recorded(&before), &after), expected);
    }

    /// A catalog whose view spreads its copies over these accounts.
    fn spread(names: &[&str]) -> Catalog {
        let mut catalog = catalog(&[("by_email", "Employees", "{Email}")]);
        for view in catalog.views.values_mut() {
            let ViewKind::SecondaryIndex(index) = &mut Arc::make_mut(view).kind else {
                panic!("no secondary index")
            };
            let accounts =
                AccountSet::of(names.iter().map(|name| AccountName::new(*name).unwrap())).unwrap();
            index.target = TargetRef {
                accounts,
                ..index.target.clone()
            };
        }
        catalog
    }

    #[test]
    fn a_change_names_the_accounts_that_a_view_leaves() {
        let mut record = recorded(&spread(&["a", "b"]));
        let by_email = ViewName::new("by_email").unwrap();
        let named = |names: &[&str]| -> BTreeSet<AccountName> {
            names
                .iter()
                .map(|name| AccountName::new(*name).unwrap())
                .collect()
        };
        record.views.get_mut(&by_email).unwrap().accounts = named(&["a", "b"]);
        assert!(
            changes(&record, &spread(&["b", "a"])).unwrap().is_empty(),
            "the order of the accounts does not matter"
        );
        let added = &changes(&record, &spread(&["a", "b", "c"])).unwrap()[0];
        assert_eq!(
            (added.action, &added.accounts, &added.left),
            (ViewAction::Changed, &named(&["a", "b", "c"]), &named(&[]))
        );
        assert!(!added.to_string().contains("[accounts"), "{added}");
        for (now, accounts, left) in [
            (&["a", "c"][..], &["a", "c"][..], &["b"][..]),
            (&["a"], &[], &["b"]),
            (&["main"], &[], &["a", "b"]),
        ] {
            let removed = &changes(&record, &spread(now)).unwrap()[0];
            assert_eq!(
                (&removed.accounts, &removed.left),
                (&named(accounts), &named(left)),
                "{now:?}"
            );
            assert!(
                removed.to_string().contains("[accounts.b]")
                    && removed.to_string().contains("backfill --view by_email"),
                "{removed}"
            );
        }
        let retired = &changes(&record, &catalog(&[])).unwrap()[0];
        assert_eq!(
            (retired.action, &retired.left),
            (ViewAction::Retired, &named(&["a", "b"]))
        );
    }

    #[test]
    fn a_removed_view_is_retired_once_and_restored_at_a_new_generation() {
        let before = catalog(&[("by_email", "Employees", "{Email}")]);
        let mut record = recorded(&before);
        assert_eq!(
            actions(&record, &catalog(&[])),
            [("by_email".to_owned(), 3, ViewAction::Retired)]
        );
        for view in record.views.values_mut() {
            view.retired = true;
        }
        assert_eq!(actions(&record, &catalog(&[])), []);
        assert_eq!(
            actions(&record, &before),
            [("by_email".to_owned(), 4, ViewAction::Restored)]
        );
    }

    #[test]
    fn views_of_another_owner_stay_until_they_are_claimed() {
        let mut record = recorded(&catalog(&[
            ("by_email", "Employees", "{Email}"),
            ("by_name", "Employees", "{Name}"),
        ]));
        let bookings = CatalogOwner::new("bookings").unwrap();
        for view in record.views.values_mut() {
            view.owner = bookings.clone();
        }
        assert_eq!(
            actions(&record, &catalog(&[])),
            [],
            "views of another owner are not retired"
        );
        let ours = catalog(&[("by_email", "Employees", "{Email}")]);
        assert_eq!(
            actions(&record, &ours),
            [("by_email".to_owned(), 4, ViewAction::Claimed)]
        );
        assert!(!record.fits(&ours, &CatalogOwner::default()).unwrap());
        assert!(
            record
                .fits(&catalog(&[]), &CatalogOwner::default())
                .unwrap(),
            "views of another owner do not count"
        );
        assert!(!record.fits(&catalog(&[]), &bookings).unwrap());
    }

    #[test]
    fn a_record_that_lost_count_continues_beyond_every_reported_generation() {
        let ours = catalog(&[("by_email", "Employees", "{Email}")]);
        let mut record = recorded(&ours);
        record
            .later_generations
            .insert(ViewName::new("by_email").unwrap(), 3);
        assert_eq!(
            actions(&record, &ours),
            [],
            "the reported generation is not later than the recorded one"
        );
        record
            .later_generations
            .insert(ViewName::new("by_email").unwrap(), 7);
        assert_eq!(
            actions(&record, &ours),
            [("by_email".to_owned(), 8, ViewAction::Overtaken)]
        );
        assert!(
            record.fits(&ours, &CatalogOwner::default()).unwrap(),
            "a worker keeps running until the generation is raised"
        );
        assert_eq!(
            actions(&record, &catalog(&[("by_email", "Employees", "{Name}")])),
            [("by_email".to_owned(), 8, ViewAction::Changed)]
        );
        assert_eq!(
            actions(&record, &catalog(&[])),
            [("by_email".to_owned(), 7, ViewAction::Retired)],
            "items of the later generation are retired too"
        );
        record.views.clear();
        assert_eq!(
            actions(&record, &ours),
            [("by_email".to_owned(), 8, ViewAction::New)]
        );
    }

    #[test]
    fn only_additions_need_no_consent() {
        use ViewAction::{Changed, Claimed, New, Overtaken, Restored, Retired};
        let needs = [New, Overtaken, Changed, Restored, Retired, Claimed].map(ViewAction::needs);
        assert_eq!(needs[..2], [Consent::Additions, Consent::Recovery]);
        assert!(
            needs[2..]
                .iter()
                .all(|needs| *needs == Consent::Replacement)
        );
        assert!(Consent::Additions < Consent::Recovery && Consent::Recovery < Consent::Replacement);
    }

    #[test]
    fn a_view_cannot_change_its_source_under_its_old_name() {
        let record = recorded(&catalog(&[("by_email", "Employees", "{Email}")]));
        let error =
            changes(&record, &catalog(&[("by_email", "Customers", "{Email}")])).unwrap_err();
        assert!(matches!(error, MigrationError::SourceChanged(_)), "{error}");
    }

    #[test]
    fn a_source_keeps_the_spelling_of_its_footprints() {
        let mut record = recorded(&catalog(&[("by_email", "Employees", "{Email}")]));
        let refuse_respelled = catalog(&[("by_email", "employees", "{Email}")]);
        let error = changes(&record, &refuse_respelled).unwrap_err();
        assert!(
            error.to_string().contains("Employees") && error.to_string().contains("employees"),
            "{error}"
        );
        for view in record.views.values_mut() {
            view.retired = true;
        }
        assert!(matches!(
            changes(&record, &refuse_respelled),
            Err(MigrationError::SourceRespelled(_))
        ));
    }

    #[test]
    fn a_table_of_a_range_keeps_the_spelling_of_its_overlays() {
        let of = |table_name: &str| {
            let name = ViewName::new("says").unwrap();
            let range = DenormalizeRange {
                target: table(table_name).into(),
                partition_key: Template::parse("{PartitionKey}").unwrap(),
                rows: RangeRows::Prefix(Template::parse("").unwrap()),
                set: [(
                    "Department".to_owned(),
                    Template::parse_text("{Name}").unwrap(),
                )]
                .into(),
            };
            let kind = ViewKind::DenormalizeRange(range);
            let view = View {
                name: name.clone(),
                source: table("Departments"),
                when: None,
                kind,
                on_conflict: OnConflict::Reject,
            };
            let tables = ["Departments", table_name]
                .map(|name| (TableName::new(name).unwrap(), table(name)));
            Catalog {
                tables: tables.into(),
                views: [(name, view.into())].into(),
                ..Catalog::default()
            }
        };
        let as_was = of("Employees");
        let record = CatalogRecord {
            names: as_was.names(),
            ..recorded(&as_was)
        };
        assert_eq!(changes(&record, &as_was).unwrap(), []);
        // Every section that uses this spelling is refused.
        let error = changes(&record, &of("employees")).unwrap_err().to_string();
        assert!(
            error.contains("Employees is now spelled employees"),
            "{error}"
        );
        // Any spelling is allowed if no range overlay exists, or if the name was not recorded.
        assert!(
            changes(
                &CatalogRecord {
                    views: BTreeMap::new(),
                    ..record.clone()
                },
                &of("employees")
            )
            .is_ok()
        );
        assert!(
            changes(
                &CatalogRecord {
                    names: BTreeSet::new(),
                    ..record
                },
                &of("employees")
            )
            .is_ok()
        );
    }

    #[test]
    fn generations_distinguish_declared_from_retired_views() {
        let both = catalog(&[
            ("by_email", "Employees", "{Email}"),
            ("by_name", "Employees", "{Name}"),
        ]);
        let mut record = recorded(&both);
        let gone = ViewName::new("by_name").unwrap();
        record.views.get_mut(&gone).unwrap().retired = true;
        let generations = record.generations(&catalog(&[("by_email", "Employees", "{Email}")]));
        assert_eq!(generations.of(&ViewName::new("by_email").unwrap()), 3);
        assert_eq!(
            generations.retired.get(&gone),
            Some(&(3, Source::Table(table("Employees"))))
        );
    }
}
