//! Lookups on the embedded store with arbitrary page boundaries.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cursor::{AccountRange, LookupTarget, PAGES, ReadContext, page_rows};
use super::merge;
use super::token::{Position, Token};
use evenkeel_model::catalog::{
    AccountSet, OnConflict, SecondaryIndex, TableRef, TargetRef, View, ViewKind,
};
use evenkeel_model::condition::Condition;
use evenkeel_model::item::Owner;
use evenkeel_model::job::Primary;
use evenkeel_model::patterns::lookup::{self, KeyRange, LookupPlan, QueryClass};
use evenkeel_model::template::Template;
use evenkeel_model::{AccountName, Entity, EntityKey, TableName, ViewName};
use evenkeel_sqlite::{EmbeddedStore, Options};
use evenkeel_storage::system::{SeededRng, SystemClock};
use evenkeel_storage::{Account, TableOperation};

fn table(name: &str) -> TableRef {
    TableRef {
        account: AccountName::main(),
        table: TableName::new(name).unwrap(),
    }
}

fn target() -> TargetRef {
    table("ByName").into()
}

fn account_ranges<'a>(
    ranges: &'a [KeyRange],
    accounts: &'a BTreeMap<AccountName, Account>,
) -> Vec<AccountRange<'a>> {
    ranges
        .iter()
        .map(|range| AccountRange {
            range,
            account: &accounts[&range.account],
        })
        .collect()
}

fn alone(account: Account) -> BTreeMap<AccountName, Account> {
    BTreeMap::from([(AccountName::main(), account)])
}

fn view(partition_key: &str) -> View {
    let kind = ViewKind::SecondaryIndex(SecondaryIndex {
        target: target(),
        partition_key: Template::parse(partition_key).unwrap(),
        row_key: Template::parse("{LastName}").unwrap(),
        select: None,
    });
    View {
        name: ViewName::new("by_name").unwrap(),
        source: table("Employees"),
        when: None,
        kind,
        on_conflict: OnConflict::Reject,
    }
}

/// Creates a store with copies of employees. Some of the 200 rows belong to another view. Pages of this store are short
/// and sometimes empty.
async fn store(view: &View, folder: &tempfile::TempDir) -> Account {
    let options = Options {
        short_pages: Some(Arc::new(SeededRng::new(7))),
    };
    let clock = Arc::new(SystemClock::new());
    let account = EmbeddedStore::open_with(
        &folder.path().join("test.db"),
        AccountName::main(),
        clock,
        &options,
    )
    .unwrap();
    let target = table("ByName");
    account.tables.create_table(&target.table).await.unwrap();
    let ViewKind::SecondaryIndex(index) = &view.kind else {
        panic!("no secondary index")
    };
    for n in 0..200 {
        let employee = Entity::new(EntityKey::new("Sales", format!("{n}")).unwrap())
            .with("LastName", format!("K{n:03}"));
        let pk = index.partition_key.render(&employee).unwrap().unwrap();
        let rk = index.row_key.render(&employee).unwrap().unwrap();
        let key = EntityKey { pk, rk };
        let primary = Primary {
            table: TableName::new("Employees").unwrap(),
            key: employee.key.clone(),
        };
        let owner = Owner {
            primary,
            view: if n % 10 == 3 {
                ViewName::new("other").unwrap()
            } else {
                view.name.clone()
            },
        };
        account
            .tables
            .apply(
                &target.table,
                &TableOperation::Insert(owner.on(Entity::new(key))),
            )
            .await
            .unwrap();
    }
    account
}

fn reading<'a>(view: &'a View, target: &'a TargetRef, top: u32) -> ReadContext<'a> {
    ReadContext {
        target: LookupTarget::View(view),
        table: target,
        select: None,
        page: page_rows(top),
        pages: PAGES,
        condition: None,
    }
}

/// Reads all rows with consecutive lookups of `top` rows.
async fn all(
    view: &View,
    plan: &LookupPlan,
    accounts: &BTreeMap<AccountName, Account>,
    top: u32,
) -> Vec<String> {
    let ranges = account_ranges(&plan.ranges, accounts);
    let terms = ["LastName^=K".parse().unwrap()];
    let mut found = Vec::new();
    let mut from = vec![Position::default(); ranges.len()];
    loop {
        let part = merge::read(&reading(view, &plan.table, top), &ranges, from, top)
            .await
            .unwrap();
        assert!(part.rows.len() <= top as usize);
        found.extend(part.rows.iter().map(|row| row.entity.key.rk.to_string()));
        let Some(positions) = part.positions else {
            return found;
        };
        let token = Token::new(view.name.as_str(), &terms, positions).encode();
        from = Token::decode(&token, view.name.as_str(), &terms, ranges.len())
            .unwrap()
            .ranges;
    }
}

#[tokio::test]
async fn consecutive_lookups_find_every_row_once_and_in_order() {
    for (partition_key, class) in [
        ("name", QueryClass::Range),
        ("name_{LastName|bucket:16}", QueryClass::Range),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let view = view(partition_key);
        let accounts = alone(store(&view, &folder).await);
        let plan = lookup::plan(&view, &["LastName^=K".parse().unwrap()]).unwrap();
        assert_eq!(plan.class, class);
        let expected: Vec<String> = (0..200)
            .filter(|n| n % 10 != 3)
            .map(|n| format!("K{n:03}"))
            .collect();
        for top in [1, 7, 64, 1_000] {
            assert_eq!(
                all(&view, &plan, &accounts, top).await,
                expected,
                "{partition_key}, {top} at a time"
            );
        }
    }
}

#[tokio::test]
async fn a_lookup_of_rare_rows_ends_with_continuations_and_finds_all() {
    let condition = Condition::parse(r#"RowKey == "K021" or startsWith(RowKey, "K17")"#).unwrap();
    for partition_key in ["name", "name_{LastName|bucket:16}"] {
        let folder = tempfile::tempdir().unwrap();
        let view = view(partition_key);
        let accounts = alone(store(&view, &folder).await);
        let ranges = lookup::plan(&view, &["LastName^=K".parse().unwrap()])
            .unwrap()
            .ranges;
        let ranges = account_ranges(&ranges, &accounts);
        let (target, mut from, mut found, mut parts) = (
            target(),
            vec![Position::default(); ranges.len()],
            Vec::new(),
            0,
        );
        loop {
            let reading = ReadContext {
                pages: 2,
                condition: Some(&condition),
                ..reading(&view, &target, 3)
            };
            let part = merge::read(&reading, &ranges, from, 3).await.unwrap();
            found.extend(part.rows.iter().map(|row| row.entity.key.rk.to_string()));
            parts += 1;
            let Some(positions) = part.positions else {
                break;
            };
            from = positions;
        }
        let expected: Vec<String> = [21]
            .into_iter()
            .chain(170..180)
            .filter(|n| n % 10 != 3)
            .map(|n| format!("K{n:03}"))
            .collect();
        assert_eq!(found, expected, "{partition_key}");
        assert!(parts > 4, "{parts} parts");
    }
}

#[tokio::test]
async fn a_row_deleted_between_lookups_neither_hides_nor_repeats_another() {
    let folder = tempfile::tempdir().unwrap();
    let view = view("name");
    let accounts = alone(store(&view, &folder).await);
    let plan = lookup::plan(&view, &["LastName^=K".parse().unwrap()]).unwrap();
    let ranges = account_ranges(&plan.ranges, &accounts);
    let first = merge::read(
        &reading(&view, &plan.table, 5),
        &ranges,
        vec![Position::default()],
        5,
    )
    .await
    .unwrap();
    let last = first.rows.last().unwrap();
    let delete = TableOperation::Delete(last.entity.key.clone(), evenkeel_storage::IfMatch::Any);
    accounts[&AccountName::main()]
        .tables
        .apply(&plan.table.table, &delete)
        .await
        .unwrap();
    let second = merge::read(
        &reading(&view, &plan.table, 5),
        &ranges,
        first.positions.unwrap(),
        5,
    )
    .await
    .unwrap();
    assert_eq!(second.rows[0].entity.key.rk.as_str(), "K006");
}

#[tokio::test]
async fn several_accounts_are_merged_in_order_without_misplaced_rows() {
    let names = ["a", "b", "c"].map(|name| AccountName::new(name).unwrap());
    let target = TargetRef {
        accounts: AccountSet::of(names.clone()).unwrap(),
        ..target()
    };
    let mut view = view("{LastName}");
    let ViewKind::SecondaryIndex(index) = &mut view.kind else {
        panic!("no secondary index")
    };
    index.target = target.clone();
    let folder = tempfile::tempdir().unwrap();
    let mut accounts = BTreeMap::new();
    for name in names {
        let options = Options {
            short_pages: Some(Arc::new(SeededRng::new(7))),
        };
        let file = folder.path().join(format!("{name}.db"));
        let account =
            EmbeddedStore::open_with(&file, name.clone(), Arc::new(SystemClock::new()), &options)
                .unwrap();
        account.tables.create_table(&target.table).await.unwrap();
        accounts.insert(name, account);
    }
    let mut expected = Vec::new();
    for n in 0..200 {
        let key = EntityKey::new(format!("K{n:03}"), format!("K{n:03}")).unwrap();
        let primary = Primary {
            table: TableName::new("Employees").unwrap(),
            key: EntityKey::new("Sales", n.to_string()).unwrap(),
        };
        let insert = TableOperation::Insert(
            Owner {
                primary,
                view: view.name.clone(),
            }
            .on(Entity::new(key.clone())),
        );
        let home = target.at(&key.pk).account;
        // Some rows are in two accounts, as during a move. Others are only in the wrong account, as before a move.
        for (at, name) in accounts.keys().enumerate() {
            let misplaced = *name != home && at == n % 3 && n % 7 < 2;
            if (*name == home && n % 7 != 1) || misplaced {
                accounts[name]
                    .tables
                    .apply(&target.table, &insert)
                    .await
                    .unwrap();
            }
        }
        expected.extend((n % 7 != 1).then(|| key.rk.to_string()));
    }
    let plan = |term: &str| lookup::plan(&view, &[term.parse().unwrap()]).unwrap();
    let scan = plan("LastName^=K");
    assert_eq!((scan.ranges.len(), scan.class), (3, QueryClass::TableScan));
    for top in [1, 7, 64, 1_000] {
        assert_eq!(
            all(&view, &scan, &accounts, top).await,
            expected,
            "{top} at a time"
        );
    }
    let point = plan("LastName=K000");
    let point_accounts: Vec<&AccountName> =
        point.ranges.iter().map(|range| &range.account).collect();
    assert_eq!(
        point_accounts,
        [&target
            .at(&evenkeel_model::Key::new("K000").unwrap())
            .account],
        "one partition, one account"
    );
    assert_eq!(all(&view, &point, &accounts, 10).await, ["K000"]);
}
