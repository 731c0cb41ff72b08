//! `[encryption]`, and declarations that use encrypted properties.

use super::*;
use evenkeel_model::settings::KeySource;
use evenkeel_model::{AccountName, EntityKey, TableName};

const KEYS: &str = "[encryption]\ncurrent = \"k2\"\n[encryption.keys.k1]\nkey_env = \"FIRST\"\n[encryption.keys.k2]\nkey_env = \"SECOND\"\n";
const TABLE: &str = "[tables.Staff]\nencrypt = [\"Ssn\", \"Salary\"]\n";
/// A key of 32 bytes in Base64. `HEX` is the same key in hexadecimal.
const BASE64: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn with_keys(
    text: &str,
    environment: &[(&str, &str)],
) -> Result<Configuration, crate::ConfigErrors> {
    load(&with_environment(
        request(folder(&[("default.toml", &format!("{KEYS}{text}"))]).path()),
        environment,
    ))
}

fn wrong(text: &str) -> Vec<String> {
    let error = with_keys(text, &[("FIRST", HEX), ("SECOND", BASE64)]).unwrap_err();
    error.errors.iter().map(ToString::to_string).collect()
}

#[test]
fn keys_are_read_in_both_forms_and_never_printed() {
    let loaded = with_keys(TABLE, &[("FIRST", HEX), ("SECOND", BASE64)]).unwrap();
    let encryption = &loaded.settings.encryption;
    assert_eq!(
        (encryption.current.as_deref(), encryption.missing()),
        (Some("k2"), None)
    );
    let [first, second] = ["k1", "k2"].map(|name| match &encryption.keys[name] {
        KeySource::Here(key) => key.clone(),
        KeySource::Wrapped { .. } => panic!("{name} is wrapped"),
    });
    assert_eq!(first, second);
    assert_eq!(first.0[31], 31);
    let staff = loaded
        .catalog
        .table(&TableName::new("staff").unwrap())
        .unwrap();
    assert_eq!(
        loaded.catalog.encrypted[staff].iter().collect::<Vec<_>>(),
        ["Salary", "Ssn"]
    );
    let everything = format!("{loaded:?} {} {}", show_text(&loaded), show_json(&loaded));
    assert!(
        !everything.contains(BASE64) && !everything.contains("0, 1, 2"),
        "{everything}"
    );
}

#[test]
fn an_entity_keeps_its_encryption_owner_in_archives_of_archives() {
    let archive = |name: &str, source: &str, table: &str| {
        format!(
            "[archives.{name}]\nsource = {source:?}\nto = {{ kind = \"table\", table = {table:?} }}\n"
        )
    };
    let archives = [
        archive("former", "Staff", "Former"),
        archive("old", "Former", "Old"),
        archive("visits", "Visits", "OldVisits"),
    ]
    .concat();
    let catalog = with_keys(
        &format!("{TABLE}{archives}"),
        &[("FIRST", HEX), ("SECOND", BASE64)],
    )
    .unwrap()
    .catalog;
    let home = |name: &str| {
        let (table, key) = (
            catalog.table(&TableName::new(name).unwrap()).unwrap(),
            EntityKey::new("p", "r").unwrap(),
        );
        catalog
            .encryption_owner(table, &key)
            .map(|(_, home)| home.table.to_string())
    };
    let staff = Some("Staff".to_owned());
    assert_eq!(
        ["Staff", "Former", "Old", "OldVisits"].map(home),
        [staff.clone(), staff.clone(), staff, None]
    );
}

#[test]
fn a_key_without_its_secret_is_a_warning_and_a_broken_one_a_mistake() {
    let loaded = with_keys(TABLE, &[("FIRST", HEX)]).unwrap();
    assert_eq!(loaded.settings.encryption.missing(), Some("k2"));
    assert!(
        loaded
            .warnings
            .iter()
            .any(|warning| warning.to_string().contains("SECOND is not set")),
        "{:?}",
        loaded.warnings
    );
    let error = with_keys(TABLE, &[("FIRST", HEX), ("SECOND", "c2hvcnQ=")])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("encryption.keys.k2.key_env: expected 32 bytes in Base64"),
        "{error}"
    );
    for (text, expected) in [
        (
            KEYS.replace("current = \"k2\"", "current = \"k3\""),
            "encryption.current: expected one of [encryption.keys], found \"k3\"",
        ),
        (
            KEYS.replace("current = \"k2\"\n", ""),
            "encryption.current: missing",
        ),
        (
            KEYS.replace("key_env = \"SECOND\"", ""),
            "encryption.keys.k2.key_env: missing; expected key_env or key_file",
        ),
        (
            TABLE.to_owned(),
            "tables.Staff.encrypt: there is no encryption key; expected [encryption]",
        ),
    ] {
        let found = mistakes(&text);
        assert!(
            found.iter().any(|found| found.contains(expected)),
            "{expected}: {found:#?}"
        );
    }
}

#[test]
fn using_an_encrypted_property_is_refused_at_its_key() {
    let index = |more: &str| {
        format!(
            "{TABLE}[views.v]\nkind = \"secondary_index\"\nsource = \"Staff\"\ntable = \"Copies\"\npartition_key = \"{{PartitionKey}}\"\nrow_key = \"c_{{RowKey}}\"\n{more}"
        )
    };
    assert!(
        with_keys(&index("select = [\"Ssn\", \"Name\"]\n"), &[]).is_ok(),
        "a copy may contain the encrypted value unchanged"
    );
    let log = "[archives.a]\nsource = \"Staff\"\nto = { kind = \"append_blob\", container = \"logs\", time = \"Salary\" }\n";
    let list = "[views.l]\nkind = \"index_entity\"\nstore = \"table\"\nsource = \"Staff\"\ntable = \"Lists\"\npartition_key = \"p\"\nrow_key = \"{PartitionKey}\"\nmember = [\"{PartitionKey}\", \"{RowKey}\", \"{Ssn}\"]\nproperty = \"Of\"\n";
    let chained = "[views.w]\nkind = \"secondary_index\"\nsource = \"Copies\"\ntable = \"Again\"\npartition_key = \"{Ssn}\"\nrow_key = \"{RowKey}\"\n";
    let archived = "[archives.a]\nsource = \"Staff\"\nto = { kind = \"table\", table = \"Former\" }\n[views.f]\nkind = \"secondary_index\"\nsource = \"Former\"\ntable = \"FormerCopies\"\npartition_key = \"p\"\nrow_key = \"{Salary|pad:8}_{RowKey}\"\n";
    for (text, place) in [
        (index("when = \"Salary > 3\"\n"), "views.v.when"),
        (
            index("").replace("c_{RowKey}", "{Ssn|hash:16}_{RowKey}"),
            "views.v.row_key",
        ),
        (format!("{TABLE}{log}"), "archives.a.to.time"),
        (format!("{TABLE}{list}"), "views.l.member"),
        (index(chained), "views.w.partition_key"),
        (format!("{TABLE}{archived}"), "views.f.row_key"),
    ] {
        let found = wrong(&text);
        assert!(
            found
                .iter()
                .any(|found| found.contains(place) && found.contains("is encrypted in")),
            "{place}: {found:#?}"
        );
    }
}

#[test]
fn properties_that_cannot_be_encrypted_and_ambiguous_owners_are_refused() {
    for name in ["PartitionKey", "ek_job", "Timestamp", "no name"] {
        let found = wrong(&format!("[tables.Staff]\nencrypt = [{name:?}]\n"));
        assert!(
            found
                .iter()
                .any(|found| found.contains("tables.Staff.encrypt")),
            "{name}: {found:#?}"
        );
    }
    let archive = "[archives.a]\nsource = \"Staff\"\nto = { kind = \"table\", table = \"Former\" }\n[tables.Former]\nencrypt = [\"Ssn\"]\n";
    let found = wrong(&format!("{TABLE}{archive}"));
    assert!(found[0].contains("archives.a.to.table: Former has its own encrypted properties and also receives encrypted rows of Staff"), "{found:#?}");
    let found = wrong(
        "[views.v]\nkind = \"secondary_index\"\nsource = \"evenkeelkeys\"\ntable = \"Copies\"\npartition_key = \"a\"\nrow_key = \"{RowKey}\"\n",
    );
    assert!(
        found
            .iter()
            .any(|found| found.contains("holds evenkeel's own records")),
        "{found:#?}"
    );
    let staff = TableName::new("Staff").unwrap();
    let loaded = with_keys(TABLE, &[]).unwrap();
    assert_eq!(loaded.catalog.tables[&staff].account, AccountName::main());
}

#[test]
fn a_vault_key_is_used_once_it_has_a_wrapped_key() {
    let vault = |more: &str| {
        format!(
            "[encryption]\ncurrent = \"k\"\n[encryption.keys.k]\nvault_key = \"https://contoso.vault.azure.net/keys/evenkeel\"\ncredential = \"managed_identity\"\n{more}{TABLE}"
        )
    };
    let unused = load_text(&vault("")).unwrap();
    assert_eq!(
        (
            unused.settings.encryption.missing(),
            unused.settings.encryption.unused.len()
        ),
        (Some("k"), 1)
    );
    assert!(
        unused
            .warnings
            .iter()
            .any(|warning| warning.to_string().contains("`evenkeel keys new k`")),
        "{:?}",
        unused.warnings
    );
    let used = load_text(&vault("wrapped_key = \"0f1e.q7-_\"\n")).unwrap();
    assert_eq!(used.settings.encryption.missing(), None);
    let KeySource::Wrapped { wrapped, .. } = &used.settings.encryption.keys["k"] else {
        panic!("it is wrapped")
    };
    assert_eq!(
        (wrapped.version.as_str(), wrapped.to_string().as_str()),
        ("0f1e", "0f1e.q7-_")
    );
    for (right, wrong, expected) in [
        (
            "wrapped_key = \"0f1e.q7-_\"",
            "wrapped_key = \"q7\"",
            "encryption.keys.k.wrapped_key: expected what `evenkeel keys new` prints",
        ),
        (
            "wrapped_key = \"0f1e.q7-_\"",
            "key_env = \"SECRET\"",
            "encryption.keys.k.key_env: not allowed with vault_key",
        ),
        ("keys/evenkeel", "keys/evenkeel/0f1e", "without its version"),
        (
            "keys/evenkeel",
            "secrets/evenkeel",
            "expected the address of a key",
        ),
        ("https:", "http:", "would send the credential unencrypted"),
        (
            "contoso.vault.azure.net",
            "evil.example",
            "sent only to Azure Key Vault",
        ),
        (
            "contoso.vault.azure.net",
            "contoso.vault.azure.net.evil.example",
            "sent only to Azure Key Vault",
        ),
        (
            "managed_identity",
            "client_secret",
            "encryption.keys.k.tenant_id: missing",
        ),
    ] {
        let found = mistakes(&vault("wrapped_key = \"0f1e.q7-_\"\n").replace(right, wrong));
        assert!(
            found.iter().any(|found| found.contains(expected)),
            "{expected}: {found:#?}"
        );
    }
}

#[test]
fn a_keyed_hash_of_one_encrypted_property_is_an_ordinary_property() {
    let table = |hash: &str| {
        format!("[tables.Staff]\nencrypt = [\"Ssn\", \"Salary\"]\nhash = {{ {hash} }}\n")
    };
    let view = "[views.v]\nkind = \"secondary_index\"\nsource = \"Staff\"\ntable = \"Copies\"\npartition_key = \"p\"\nrow_key = \"{SsnHash}\"\n";
    let loaded = with_keys(
        &format!("{}{view}", table("SsnHash = \"{Ssn|trim|lower}\"")),
        &[],
    )
    .unwrap();
    let staff = loaded
        .catalog
        .table(&TableName::new("Staff").unwrap())
        .unwrap();
    assert_eq!(
        loaded.catalog.hashed[staff]["SsnHash"].to_string(),
        "{Ssn|trim|lower}"
    );
    for (hash, expected) in [
        (
            "SsnHash = \"{Name}\"",
            "expected a template of one encrypted property",
        ),
        (
            "SsnHash = \"{Ssn}_{Salary}\"",
            "expected a template of one encrypted property",
        ),
        (
            "SsnHash = \"constant\"",
            "expected a template of one encrypted property",
        ),
        ("SsnHash = \"{Ssn|int}\"", "unknown filter"),
        ("Salary = \"{Ssn}\"", "is itself encrypted"),
        ("ek_hash = \"{Ssn}\"", "evenkeel's own properties"),
    ] {
        let found = wrong(&table(hash));
        assert!(
            found
                .iter()
                .any(|found| found.contains("tables.Staff.hash") && found.contains(expected)),
            "{hash}: {found:#?}"
        );
    }
}

#[test]
fn signatures_on_data_keys_may_only_read_and_add() {
    let grant = |permissions: &str| {
        format!("[sas.g]\ntable = \"EvenkeelKeys\"\npermissions = {permissions:?}\n")
    };
    for permissions in ["r", "ra"] {
        assert_eq!(
            load_text(&grant(permissions)).unwrap().settings.sas[0].permissions,
            permissions
        );
    }
    for permissions in ["a", "raud", "rd"] {
        assert!(
            mistakes(&grant(permissions))[0].contains("holds data keys"),
            "{permissions}"
        );
    }
}

#[test]
fn an_encryption_condition_may_use_only_plain_properties_that_jobs_write() {
    let table = |when: &str| {
        format!(
            "[tables.Staff]\nencrypt = [\"Ssn\"]\nhash = {{ SsnHash = \"{{Ssn}}\" }}\nwhen = {when:?}\n"
        )
    };
    let loaded = with_keys(
        &table("Region == \"EU\" or startsWith(PartitionKey, \"eu-\")"),
        &[],
    )
    .unwrap();
    let staff = loaded
        .catalog
        .table(&TableName::new("Staff").unwrap())
        .unwrap();
    assert!(loaded.catalog.encrypted_when.contains_key(staff));
    let sets = "[views.d]\nkind = \"denormalize\"\nsource = \"Offices\"\ntable = \"Staff\"\npartition_key = \"{PartitionKey}\"\nrow_key = \"{Head}\"\nset = { Region = \"{Land}\" }\n";
    let large = "[views.l]\nkind = \"large_entity\"\nsource = \"Staff\"\ncontainer = \"values\"\nproperties = [\"Photo\"]\n";
    for (text, expected) in [
        (table("Ssn == \"1\""), "Ssn is itself encrypted"),
        (table("exists(SsnHash)"), "SsnHash is the keyed hash"),
        (table("Region = \"EU\""), "to compare"),
        (table("exists(Timestamp)"), "Timestamp cannot be used here"),
        (
            format!("{}{sets}", table("Region == \"EU\"")),
            "property Region is set by the view d",
        ),
        (
            format!("{}{large}", table("Region == \"EU\"")),
            "the view l stores large values of Staff in blobs",
        ),
        (
            "[tables.Staff]\nwhen = \"Region == 1\"\n".to_owned(),
            "expected encrypt = [\"PROPERTY\"] as well",
        ),
    ] {
        let found = wrong(&text);
        assert!(
            found
                .iter()
                .any(|found| found.contains("tables.Staff.when") && found.contains(expected)),
            "{expected}: {found:#?}"
        );
    }
}
