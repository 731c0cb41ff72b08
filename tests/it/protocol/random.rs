//! Random catalogs, entities and changes, without faults. At the end derived data must equal what this file computes
//! from its own model of the primaries, and no plan may find anything to do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use evenkeel_engine::{FailureClass, Outcome};
use evenkeel_model::job::Primary;
use evenkeel_model::{ContainerName, EdmValue, Entity, EntityKey, odata};
use evenkeel_storage::{IfMatch, TableOperation};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::protocol::world::{Lab, SMALL, declared, job, table};

type Properties = BTreeMap<String, EdmValue>;
type Rows = BTreeMap<(String, String, String), Properties>;

/// The tables with primaries. The rows of `Copies` are derived from other primaries, and have views of their own.
const SOURCES: [&str; 3] = ["One", "Two", "Copies"];
const CONTAINERS: [(&str, &str); 3] = [
    ("large-one", "One"),
    ("large-two", "Two"),
    ("large-former", "Former"),
];
const MANY: usize = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Index,
    /// An index in the partition of the primaries.
    OwnIndex,
    List,
    OwnList,
    Group,
    Set,
}

#[derive(Debug, Clone)]
struct View {
    kind: Kind,
    source: usize,
    /// Whether the partition key contains the property `B`.
    by_b: bool,
    /// Number of the view's condition: none, `B == "x"`, or that `N` exists.
    when: usize,
    select: Option<Vec<&'static str>>,
    /// Whether the copies of this view are primaries of further views.
    chained: bool,
}

impl View {
    fn own(&self) -> bool {
        matches!(self.kind, Kind::OwnIndex | Kind::OwnList)
    }

    fn target(&self) -> &'static str {
        match self.kind {
            _ if self.own() => SOURCES[self.source],
            Kind::Set => "Targets",
            Kind::Index if self.chained && SOURCES[self.source] != "Copies" => "Copies",
            _ => "Out",
        }
    }

    fn toml(&self, n: usize, wide: bool) -> String {
        let mut text = format!("[views.v{n}]\nsource = \"{}\"\n", SOURCES[self.source]);
        let (kind, row_key) = match self.kind {
            Kind::Index | Kind::OwnIndex => (
                "secondary_index",
                format!("v{n}_{{A|lower}}_{{PartitionKey}}_{{RowKey}}"),
            ),
            Kind::List | Kind::OwnList => ("index_entity", format!("v{n}_{{A|lower}}")),
            Kind::Group => ("aggregate", format!("v{n}_{{A|lower}}")),
            Kind::Set => ("denormalize", "{PartitionKey}_{RowKey}".to_owned()),
        };
        writeln!(text, "kind = \"{kind}\"\nrow_key = \"{row_key}\"").unwrap();
        if self.kind == Kind::Group {
            writeln!(text, "group_table = \"Out\"\nset = {{ Count = \"count()\", Sum = \"sum(N)\", Least = \"min(N)\" }}").unwrap();
        } else if self.kind != Kind::OwnList {
            writeln!(text, "table = \"{}\"", self.target()).unwrap();
        }
        match self.kind {
            Kind::OwnIndex => writeln!(text, "partition_key = \"{{PartitionKey}}\"").unwrap(),
            Kind::OwnList => {}
            Kind::Set => writeln!(
                text,
                "partition_key = \"t\"\nset = {{ S{n} = \"{{A}}\" }}\non_conflict = \"reject\""
            )
            .unwrap(),
            _ => writeln!(
                text,
                "partition_key = \"p{}\"",
                if self.by_b { "_{B}" } else { "" }
            )
            .unwrap(),
        }
        match self.kind {
            Kind::List => {
                writeln!(text, "store = \"table\"\nmember = [\"{{PartitionKey}}\", \"{{RowKey}}\"]\nproperty = \"List\"").unwrap();
            }
            Kind::OwnList => writeln!(
                text,
                "store = \"partition\"\nmember = [\"{{RowKey}}\"]\nproperty = \"List\""
            )
            .unwrap(),
            Kind::Index | Kind::OwnIndex => {
                // A copy is a single row, even if its primary has several rows, so it cannot contain all properties.
                let select = self
                    .select
                    .clone()
                    .or_else(|| wide.then(|| vec!["A", "B", "N"]));
                if let Some(select) = select {
                    writeln!(text, "select = {select:?}").unwrap();
                }
            }
            Kind::Group | Kind::Set => {}
        }
        match self.when {
            1 => writeln!(text, "when = \"B == \\\"x\\\"\"").unwrap(),
            2 => writeln!(text, "when = \"exists(N)\"").unwrap(),
            _ => {}
        }
        text
    }

    fn admits(&self, entity: &Properties) -> bool {
        match self.when {
            1 => text(entity, "B") == Some("x"),
            2 => entity.contains_key("N"),
            _ => true,
        }
    }
}

fn text<'e>(entity: &'e Properties, name: &str) -> Option<&'e str> {
    entity
        .get(name)
        .and_then(EdmValue::as_str)
        .filter(|text| !text.is_empty())
}

fn number(entity: &Properties) -> Option<i64> {
    match entity.get("N") {
        Some(EdmValue::Int32(number)) => Some(i64::from(*number)),
        _ => None,
    }
}

fn catalog(views: &[View], wide: bool, large: bool) -> evenkeel_model::catalog::Catalog {
    let mut toml = "[accounts.main]\nkind = \"embedded\"\npath = \"unused.db\"\n[archives.former]\nsource = \"One\"\nto = { kind = \"table\", table = \"Former\" }\n".to_owned();
    for name in ["One", "Two", "Former"] {
        write!(toml, "[tables.{name}]\nwide = {wide}\n").unwrap();
    }
    for (container, table) in CONTAINERS.iter().filter(|_| large) {
        write!(toml, "[views.{container}]\nkind = \"large_entity\"\nsource = \"{table}\"\ncontainer = \"{container}\"\n").unwrap();
        toml.push_str("properties = [\"L\"]\nthreshold = \"1KiB\"\n");
    }
    toml.push_str("[tables.Out]\n[tables.Copies]\n[tables.Targets]\n");
    views
        .iter()
        .enumerate()
        .for_each(|(n, view)| toml.push_str(&view.toml(n, wide)));
    declared(&toml)
}

#[derive(Debug, Clone)]
enum Step {
    Put {
        at: Place,
        entity: Properties,
        merge: bool,
    },
    Delete(Place),
    Archive(Place),
    Restore(Place),
    Move(Place, Place),
    /// An application writes directly. It sends a message at once, or only at the end.
    Write {
        at: Place,
        entity: Properties,
        told: bool,
    },
    Remove {
        at: Place,
        told: bool,
    },
    Thorough(Place),
    Backfill(usize),
}

type Place = (usize, &'static str, &'static str);

fn place() -> impl Strategy<Value = Place> {
    (
        0..2_usize,
        prop::sample::select(vec!["a", "b"]),
        prop::sample::select(vec!["1", "2", "10"]),
    )
}

fn properties() -> impl Strategy<Value = Properties> {
    let a = prop::option::weighted(
        0.8,
        prop::sample::select(vec!["Ab", "aB", "c", "", "한 글"]),
    );
    let b = prop::option::of(prop::sample::select(vec!["x", "y"]));
    let n = prop::option::of(-3..4_i32);
    let l = prop::option::weighted(
        0.3,
        prop::sample::select(vec![("l", 2_000), ("m", 2_000), ("n", 20)]),
    );
    (a, b, n, l, prop::bool::weighted(0.3)).prop_map(|(a, b, n, l, many)| {
        let mut entity = Properties::new();
        entity.extend(l.map(|(letter, length)| ("L".to_owned(), letter.repeat(length).into())));
        entity.extend(a.map(|a| ("A".to_owned(), a.into())));
        entity.extend(b.map(|b| ("B".to_owned(), b.into())));
        entity.extend(n.map(|n| ("N".to_owned(), n.into())));
        if many {
            entity.extend((0..MANY).map(|n| (format!("Q{n}"), EdmValue::Bool(n % 2 == 0))));
        }
        entity
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (place(), properties(), any::<bool>()).prop_map(|(at, entity, merge)| Step::Put { at, entity, merge }),
        2 => place().prop_map(Step::Delete),
        2 => place().prop_map(Step::Archive),
        2 => place().prop_map(Step::Restore),
        2 => (place(), place()).prop_map(|(from, to)| Step::Move(from, to)),
        2 => (place(), properties(), any::<bool>()).prop_map(|(at, entity, told)| Step::Write { at, entity, told }),
        1 => (place(), any::<bool>()).prop_map(|(at, told)| Step::Remove { at, told }),
        1 => place().prop_map(Step::Thorough),
        1 => (0..2_usize).prop_map(Step::Backfill),
    ]
}

fn view() -> impl Strategy<Value = View> {
    let kinds = vec![
        Kind::Index,
        Kind::OwnIndex,
        Kind::List,
        Kind::OwnList,
        Kind::Group,
        Kind::Set,
    ];
    let selects = vec![None, Some(vec!["A"]), Some(vec!["A", "N"]), Some(vec![])];
    (
        prop::sample::select(kinds),
        0..3_usize,
        any::<bool>(),
        0..3_usize,
        prop::sample::select(selects),
        any::<bool>(),
    )
        .prop_map(|(kind, source, by_b, when, select, chained)| {
            // A view sets properties only on targets for `One` and `Two`, because `Copies` has no targets.
            let source = if kind == Kind::Set {
                source % 2
            } else {
                source
            };
            View {
                kind,
                source,
                by_b,
                when,
                select,
                chained,
            }
        })
}

#[derive(Default)]
struct Model {
    primaries: Rows,
    archived: Rows,
    untold: BTreeSet<Place>,
}

fn key((source, pk, rk): Place) -> (String, String, String) {
    (SOURCES[source].to_owned(), pk.to_owned(), rk.to_owned())
}

struct Run {
    lab: Lab,
    model: Model,
    wide: bool,
}

impl Run {
    async fn work(&self, json: Value) -> bool {
        match self.lab.work(&job(&json)).await {
            Ok(Outcome::Done(_)) => true,
            Ok(Outcome::Skipped { .. }) => false,
            Ok(Outcome::Advanced { .. }) => panic!("{json} is not done"),
            Err(failure) if failure.class == FailureClass::Permanent => {
                assert!(
                    failure.chain().contains("exists and was not"),
                    "{json}: {}",
                    failure.chain()
                );
                false
            }
            Err(failure) => panic!("{json}: {}", failure.chain()),
        }
    }

    async fn on(&self, op: &str, (source, pk, rk): Place) -> bool {
        let target = if matches!(op, "archive" | "restore") {
            "archive"
        } else {
            "table"
        };
        let name = if target == "archive" {
            "former"
        } else {
            SOURCES[source]
        };
        self.work(json!({"op": op, target: name, "pk": pk, "rk": rk}))
            .await
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Put {
                at,
                mut entity,
                merge,
            } => {
                self.narrow(&mut entity);
                let row = Entity {
                    key: EntityKey::new(at.1, at.2).unwrap(),
                    properties: entity.clone(),
                };
                let mode = if merge { "merge" } else { "replace" };
                assert!(self.work(json!({"op": "put", "table": SOURCES[at.0], "mode": mode, "entity": odata::encode(&row)})).await);
                let stored = self.model.primaries.entry(key(at)).or_default();
                if !merge {
                    stored.clear();
                }
                stored.extend(entity);
            }
            Step::Delete(at) => {
                assert!(self.on("delete", at).await);
                self.model.primaries.remove(&key(at));
            }
            Step::Archive((_, pk, rk)) => {
                let at = (0, pk, rk);
                let done = self.on("archive", at).await;
                assert_eq!(done, self.model.primaries.contains_key(&key(at)));
                if let Some(entity) = self.model.primaries.remove(&key(at)) {
                    self.model.archived.insert(key(at), entity);
                }
            }
            Step::Restore((_, pk, rk)) => {
                let at = (0, pk, rk);
                let free = !self.model.primaries.contains_key(&key(at));
                assert_eq!(
                    self.on("restore", at).await,
                    free && self.model.archived.contains_key(&key(at))
                );
                if free && let Some(entity) = self.model.archived.remove(&key(at)) {
                    self.model.primaries.insert(key(at), entity);
                }
            }
            Step::Move(from, to) if from == to => {}
            Step::Move(from, to) => {
                let (table, to_table) = (SOURCES[from.0], SOURCES[to.0]);
                let json = json!({"op": "move", "table": table, "pk": from.1, "rk": from.2, "to_table": to_table, "to_pk": to.1, "to_rk": to.2});
                let free = !self.model.primaries.contains_key(&key(to));
                assert_eq!(
                    self.work(json).await,
                    free && self.model.primaries.contains_key(&key(from))
                );
                if free && let Some(entity) = self.model.primaries.remove(&key(from)) {
                    self.model.primaries.insert(key(to), entity);
                }
            }
            // The client of a wide table sends jobs and does not write directly.
            Step::Write { .. } | Step::Remove { .. } if self.wide => {}
            Step::Write {
                at,
                mut entity,
                told,
            } => {
                self.narrow(&mut entity);
                let row = Entity {
                    key: EntityKey::new(at.1, at.2).unwrap(),
                    properties: entity.clone(),
                };
                self.lab
                    .account
                    .tables
                    .apply(&table(SOURCES[at.0]), &TableOperation::InsertOrReplace(row))
                    .await
                    .unwrap();
                self.model.primaries.insert(key(at), entity);
                self.tell(at, told).await;
            }
            Step::Remove { at, told } => {
                let operation =
                    TableOperation::Delete(EntityKey::new(at.1, at.2).unwrap(), IfMatch::Any);
                drop(
                    self.lab
                        .account
                        .tables
                        .apply(&table(SOURCES[at.0]), &operation)
                        .await,
                );
                self.model.primaries.remove(&key(at));
                self.tell(at, told).await;
            }
            Step::Thorough((source, pk, rk)) => {
                self.work(json!({"op": "sync", "table": SOURCES[source], "pk": pk, "rk": rk, "thorough": true})).await;
            }
            Step::Backfill(source) => {
                self.work(json!({"op": "backfill", "table": SOURCES[source]}))
                    .await;
            }
        }
    }

    async fn tell(&mut self, at: Place, told: bool) {
        if told {
            assert!(self.on("sync", at).await);
        } else {
            self.model.untold.insert(at);
        }
    }

    /// Removes the properties that only a wide table has room for.
    fn narrow(&self, entity: &mut Properties) {
        if !self.wide {
            entity.retain(|name, _| !name.starts_with('Q'));
        }
    }
}

/// The expected derived data: copies, lists and groups by key, and properties set on targets.
fn expected(views: &[View], primaries: &Rows, wide: bool) -> Rows {
    let mut rows = Rows::new();
    let mut copies = Rows::new();
    // The rows in `Copies` are derived first, because they are primaries of further views.
    for chained in [false, true] {
        for (n, view) in views
            .iter()
            .enumerate()
            .filter(|(_, view)| (SOURCES[view.source] == "Copies") == chained)
        {
            let from = if chained {
                copies.clone()
            } else {
                primaries.clone()
            };
            for ((table, pk, rk), entity) in from
                .iter()
                .filter(|((table, ..), _)| table == SOURCES[view.source])
            {
                let Some((at, row)) = item(n, view, (pk, rk), entity, wide) else {
                    continue;
                };
                if at.0 == "Copies" && !chained {
                    copies.insert(at.clone(), row.clone());
                }
                assert_eq!(table, SOURCES[view.source]);
                add(&mut rows, view.kind, at, row);
            }
        }
    }
    rows
}

fn item(
    n: usize,
    view: &View,
    (pk, rk): (&str, &str),
    entity: &Properties,
    wide: bool,
) -> Option<((String, String, String), Properties)> {
    if !view.admits(entity) {
        return None;
    }
    if view.kind == Kind::Set {
        let value = text(entity, "A")?;
        // Only the entities in the partition `a` have a target.
        return (pk == "a").then(|| {
            (
                ("Targets".to_owned(), "t".to_owned(), format!("{pk}_{rk}")),
                Properties::from([(format!("S{n}"), value.into())]),
            )
        });
    }
    let start = format!("v{n}_{}", text(entity, "A")?.to_lowercase());
    let partition = match (view.own(), view.by_b) {
        (true, _) => pk.to_owned(),
        (false, true) => format!("p_{}", text(entity, "B")?),
        (false, false) => "p".to_owned(),
    };
    let row_key = if matches!(view.kind, Kind::Index | Kind::OwnIndex) {
        format!("{start}_{pk}_{rk}")
    } else {
        start
    };
    let at = (view.target().to_owned(), partition, row_key);
    Some(match view.kind {
        Kind::Index | Kind::OwnIndex => {
            let select = view
                .select
                .clone()
                .or_else(|| wide.then(|| vec!["A", "B", "N"]));
            let kept = |name: &String| {
                select
                    .as_ref()
                    .is_none_or(|select| select.contains(&name.as_str()))
            };
            (
                at,
                entity
                    .iter()
                    .filter(|(name, _)| kept(name))
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
            )
        }
        Kind::List => (
            at,
            Properties::from([("List".to_owned(), json!([[pk, rk]]).to_string().into())]),
        ),
        Kind::OwnList => (
            at,
            Properties::from([("List".to_owned(), json!([[rk]]).to_string().into())]),
        ),
        Kind::Group => {
            let mut row = Properties::from([
                ("Count".to_owned(), 1_i64.into()),
                ("Sum".to_owned(), number(entity).unwrap_or(0).into()),
            ]);
            row.extend(number(entity).map(|number| ("Least".to_owned(), EdmValue::from(number))));
            (at, row)
        }
        Kind::Set => unreachable!("returned above"),
    })
}

fn add(rows: &mut Rows, kind: Kind, at: (String, String, String), row: Properties) {
    let Some(there) = rows.get_mut(&at) else {
        rows.insert(at, row);
        return;
    };
    match kind {
        Kind::Index | Kind::OwnIndex => panic!("duplicate {at:?}"),
        Kind::Set => there.extend(row),
        Kind::List | Kind::OwnList => {
            let mut members = members(there);
            members.extend(self::members(&row));
            there.insert("List".to_owned(), json!(members).to_string().into());
        }
        Kind::Group => {
            for (name, value) in row {
                let EdmValue::Int64(value) = value else {
                    panic!("{value:?}")
                };
                let both = match (there.get(&name), name.as_str()) {
                    (Some(EdmValue::Int64(other)), "Least") => value.min(*other),
                    (Some(EdmValue::Int64(other)), _) => value + other,
                    _ => value,
                };
                there.insert(name, both.into());
            }
        }
    }
}

fn members(row: &Properties) -> BTreeSet<Vec<String>> {
    row.get("List")
        .and_then(EdmValue::as_str)
        .map(|text| serde_json::from_str(text).unwrap())
        .unwrap_or_default()
}

/// The actual derived rows, primaries and archived entities, each put together from its rows. Large values are replaced
/// by their content. A blob without a pointer is an error.
async fn found(lab: &Lab) -> (Rows, Rows, Rows) {
    let mut blobs = BTreeMap::new();
    for (container, _) in CONTAINERS {
        let container = ContainerName::new(container).unwrap();
        for blob in lab
            .account
            .blobs
            .list(&container, "", None)
            .await
            .unwrap()
            .blobs
        {
            let content = lab
                .account
                .blobs
                .get(&container, &blob.name, None)
                .await
                .unwrap()
                .unwrap()
                .content;
            blobs.insert(
                format!("{container}/{}", blob.name),
                String::from_utf8(content.to_vec()).unwrap(),
            );
        }
    }
    let mut pointed = BTreeSet::new();
    let mut told = |value: &EdmValue| match value.as_str().filter(|text| text.starts_with('{')) {
        None => value.clone(),
        Some(text) => {
            let pointer: Value = serde_json::from_str(text).unwrap();
            let name = pointer["$blob"].as_str().unwrap().to_owned();
            let content = blobs
                .get(&name)
                .unwrap_or_else(|| panic!("{name} is no blob"));
            pointed.insert(name);
            content.as_str().into()
        }
    };
    let (mut derived, mut primaries, mut archived) = (Rows::new(), Rows::new(), Rows::new());
    for name in ["One", "Two", "Former", "Out", "Copies", "Targets"] {
        for row in lab.sim.rows(&table(name)) {
            let is_derived = row.entity.get("ek_view").is_some();
            let is_list = is_derived && row.entity.get("List").is_some();
            let key = &row.entity.key;
            let mut properties: Properties = row
                .entity
                .user_properties()
                .map(|(name, value)| (name.clone(), told(value)))
                .collect();
            if is_list {
                // Lists are compared without regard to order.
                properties = Properties::from([(
                    "List".to_owned(),
                    json!(members(&properties)).to_string().into(),
                )]);
            }
            let rk = key.rk.as_str();
            let own = rk
                .split_once('~')
                .filter(|_| !is_derived)
                .map_or(rk, |(own, _)| own);
            let at = (name.to_owned(), key.pk.as_str().to_owned(), own.to_owned());
            match name {
                "Former" => archived.entry(at).or_default().extend(properties),
                "One" | "Two" if !is_derived => primaries.entry(at).or_default().extend(properties),
                "Targets" if properties.is_empty() => {}
                _ => drop(derived.insert(at, properties)),
            }
        }
    }
    assert_eq!(
        blobs.into_keys().collect::<BTreeSet<_>>(),
        pointed,
        "the blobs must match the pointers"
    );
    (derived, primaries, archived)
}

async fn everything_in_step(views: Vec<View>, wide: bool, large: bool, steps: Vec<Step>) {
    let mut run = Run {
        lab: Lab::with(SMALL, catalog(&views, wide, large)),
        model: Model::default(),
        wide,
    };
    for (container, _) in CONTAINERS {
        run.lab
            .account
            .blobs
            .create_container(&ContainerName::new(container).unwrap())
            .await
            .unwrap();
    }
    for rk in ["1", "2", "10"] {
        let target = Entity::new(EntityKey::new("t", format!("a_{rk}")).unwrap());
        run.lab
            .account
            .tables
            .apply(&table("Targets"), &TableOperation::Insert(target))
            .await
            .unwrap();
    }
    for step in steps {
        run.step(step).await;
    }
    for at in std::mem::take(&mut run.model.untold) {
        assert!(run.on("sync", at).await);
    }
    run.lab.finish().await;

    let (derived, primaries, archived) = found(&run.lab).await;
    let former = run
        .model
        .archived
        .into_iter()
        .map(|((_, pk, rk), entity)| (("Former".to_owned(), pk, rk), entity))
        .collect();
    assert_eq!(
        (&primaries, &archived),
        (&run.model.primaries, &former),
        "the primaries"
    );
    assert_eq!(
        derived,
        expected(&views, &primaries, wide),
        "what is derived"
    );
    let copies = derived.into_keys().filter(|(name, ..)| name == "Copies");
    for (name, pk, rk) in primaries.into_keys().chain(copies) {
        let primary = Primary {
            table: table(&name),
            key: EntityKey::new(pk, rk).unwrap(),
        };
        let plan = run.lab.engine.plan(&primary).await.unwrap();
        assert!(plan.in_step, "{plan}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn derived_data_is_what_a_recomputation_gives(
        views in prop::collection::vec(view(), 1..6),
        wide in any::<bool>(),
        large in any::<bool>(),
        steps in prop::collection::vec(step(), 1..24),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(everything_in_step(views, wide, large, steps));
    }
}
