//! `accounts = […]`: items spread over several accounts.

use super::*;
use evenkeel_model::catalog::Catalog;

const ACCOUNTS: &str = "[accounts.b]\nkind = \"embedded\"\npath = \"b.db\"\n[accounts.c]\nkind = \"embedded\"\npath = \"c.db\"\n";
const VIEW: &str = "[views.v]\nkind = \"secondary_index\"\nsource = \"Employees\"\ntable = \"ByEmail\"\npartition_key = \"{Email}\"\n\
    row_key = \"{PartitionKey}_{RowKey}\"\n";
const LIST: &str = "[views.l]\nkind = \"index_entity\"\nsource = \"Employees\"\nstore = \"blob\"\ncontainer = \"lists\"\n\
    name = \"{LastName}.jsonl\"\nmember = [\"{PartitionKey}\", \"{RowKey}\"]\n";

#[test]
fn a_view_or_its_table_names_several_accounts_in_any_order() {
    let table = TableName::new("ByEmail").unwrap();
    let of = |text: &str| load_text(&format!("{ACCOUNTS}{text}")).unwrap().catalog;
    let definition = |catalog: &Catalog| catalog.views[&ViewName::new("v").unwrap()].definition();
    let by_view = of(&format!("{VIEW}accounts = [\"main\", \"b\"]\n"));
    let by_table = of(&format!(
        "{VIEW}[tables.ByEmail]\naccounts = [\"b\", \"main\"]\n"
    ));
    assert_eq!(by_view.spread[&table].to_string(), "b+main:ByEmail");
    assert_eq!(by_view.spread, by_table.spread);
    assert_eq!(definition(&by_view), definition(&by_table));
    for catalog in [&by_view, &by_table] {
        assert!(
            !catalog.tables.contains_key(&table) && catalog.table(&table).is_none(),
            "a spread table must not be listed as a table in one account"
        );
        assert_eq!(catalog.target(&table).unwrap(), catalog.spread[&table]);
        assert!(catalog.declared.is_empty());
    }
    let ViewKind::BlobLists(lists) =
        &of(&format!("{LIST}accounts = [\"c\", \"b\"]\n")).views[&ViewName::new("l").unwrap()].kind
    else {
        panic!("no list")
    };
    assert_eq!(lists.accounts.to_string(), "b+c");
}

#[test]
fn one_account_in_a_list_is_that_account() {
    let one = |text: &str| {
        load_text(&format!("{ACCOUNTS}{VIEW}{text}"))
            .unwrap()
            .catalog
    };
    let (list, name) = (one("accounts = [\"b\"]\n"), one("account = \"b\"\n"));
    assert_eq!((&list.tables, list.spread.len()), (&name.tables, 0));
    let v = ViewName::new("v").unwrap();
    assert_eq!(list.views[&v].definition(), name.views[&v].definition());
}

#[test]
fn items_that_cannot_be_spread_are_refused_with_the_reason() {
    let both = "accounts = [\"main\", \"b\"]\n";
    let spread = format!("{VIEW}{both}");
    let archive =
        |source: &str, to: &str| format!("[archives.a]\nsource = \"{source}\"\nto = {{ {to} }}\n");
    let cases = [
        (
            format!("{VIEW}account = \"b\"\n{both}"),
            "views.v.accounts: account is set as well; expected only one of account and accounts",
        ),
        (
            format!("{VIEW}accounts = []\n"),
            "views.v.accounts: expected the names of the accounts, such as [\"main\", \"second\"], found an empty list",
        ),
        (
            format!("{VIEW}accounts = [\"main\", \"bb\"]\n"),
            "views.v.accounts: unknown account \"bb\"; known are b, c, main",
        ),
        (
            format!("{VIEW}accounts = [\"b\", \"b\"]\n"),
            "views.v.accounts: \"b\" is named twice",
        ),
        (
            format!("{spread}[tables.ByEmail]\naccounts = [\"b\", \"c\"]\n"),
            "expected the same accounts everywhere",
        ),
        (
            format!("{VIEW}[tables.Employees]\n{both}"),
            "views.v.source: Employees is spread over several accounts; the source of a view must be in one account",
        ),
        (
            format!("[tables.Notes]\n{both}"),
            "tables.Notes.accounts: no view writes to Notes, and only tables of views can be spread over accounts",
        ),
        (
            format!("{VIEW}[tables.ByEmail]\nwide = true\n{both}"),
            "tables.ByEmail.wide: ByEmail is spread over several accounts; wide needs a table in one account",
        ),
        (
            format!(
                "{spread}{}",
                VIEW.replace("views.v", "views.w")
                    .replace("Employees", "ByEmail")
                    .replace("\"ByEmail\"\npart", "\"Copies\"\npart")
            ),
            "views.w.source: ByEmail is spread over several accounts",
        ),
        (
            format!(
                "{spread}{}",
                archive("ByEmail", "kind = \"table\", table = \"Old\"")
            ),
            "archives.a.source: ByEmail is spread over several accounts",
        ),
        (
            archive(
                "Employees",
                "kind = \"table\", table = \"Old\", accounts = [\"main\", \"b\"]",
            ),
            "archives.a.to.accounts: archived entities are not redistributed when an account is added",
        ),
        (
            archive(
                "Employees",
                "kind = \"blob\", container = \"old\", accounts = [\"b\"]",
            ),
            "archives.a.to.accounts: archived entities are not redistributed",
        ),
        (
            format!(
                "[views.p]\nkind = \"denormalize\"\nsource = \"Employees\"\ntable = \"Departments\"\npartition_key = \"d\"\nrow_key = \"{{RowKey}}\"\nset = {{ Name = \"{{LastName}}\" }}\n{both}"
            ),
            "views.p.table: Departments is spread over several accounts; denormalize needs a table in one account",
        ),
        (
            format!(
                "[views.p]\nkind = \"denormalize\"\ntargets = \"range\"\nsource = \"Employees\"\ntable = \"Departments\"\npartition_key = \"d\"\nset = {{ Name = \"{{LastName}}\" }}\n{both}"
            ),
            "views.p.accounts: denormalize sets properties on your own entities, which are in one account; expected account = \"NAME\" instead",
        ),
        (
            format!(
                "[views.p]\nkind = \"large_entity\"\nsource = \"Employees\"\nproperties = [\"Photo\"]\ncontainer = \"large\"\n{both}"
            ),
            "views.p.accounts: the pointer in a row names no account, so all values must be in one account",
        ),
        (
            format!(
                "[retention.r]\ntables = \"Logins%Y%m%d\"\nkeep = \"2d\"\n{}{both}",
                VIEW.replace("Employees", "Logins%Y%m%d")
                    .replace("ByEmail", "ByEmail%Y%m%d")
            ),
            "views.v.accounts: dated tables must be in one account",
        ),
    ];
    for (text, expected) in cases {
        let found = mistakes(&format!("{ACCOUNTS}{text}"));
        assert!(
            found.iter().any(|mistake| mistake.contains(expected)),
            "{text}\nexpected {expected}\nfound {found:#?}"
        );
    }
}
