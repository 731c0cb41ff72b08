//! The story: what happens to Contoso's people, each chapter checked against what the tables hold.

use std::collections::BTreeMap;
use std::fmt::Display;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::people::{self, Person};
use super::stage::{Stage, employees};
use super::verify::verify;
use crate::cli::output::printable;
use crate::cli::{Exit, Format, Output, Tone};
use crate::model::job::Primary;
use crate::model::{ETag, EdmValue, Entity, EntityKey, body, odata};
use crate::ports::MessageText;

/// Tells the story. [`Exit::Failed`] where something is not as it should be.
pub async fn tell(stage: &Stage, out: &mut Output) -> anyhow::Result<Exit> {
    let mut story = Story { stage, out, chapter: String::new(), chapters: 0, checks: 0, wrong: 0 };
    story.hires().await?;
    story.repeats().await?;
    story.rename().await?;
    story.new_address().await?;
    story.leaves().await?;
    story.comes_back().await?;
    story.taken_address().await?;
    story.broken_message().await?;
    story.correction().await?;
    story.acquisition().await?;
    story.survey().await?;
    story.new_building().await?;
    story.inventory().await?;
    story.end()
}

struct Story<'a> {
    stage: &'a Stage,
    out: &'a mut Output,
    chapter: String,
    chapters: u32,
    checks: u32,
    wrong: u32,
}

impl Story<'_> {
    async fn hires(&mut self) -> anyhow::Result<()> {
        self.begin("Six people are hired")?;
        self.tell("Six put jobs go on the queue. Each writes an employee and, with it, the rows derived from it.")?;
        for department in ["Marketing", "Sales"] {
            let entity = json!({"PartitionKey": department, "RowKey": "department", "Budget": "plenty"});
            self.stage.send(&json!({"op": "put", "table": "Departments", "entity": entity})).await?;
        }
        self.stage.settled().await?;
        for person in people::founders() {
            self.stage.send(&person.hire()).await?;
        }
        self.stage.settled().await?;
        self.is("Departments", ("Sales", "department"), "ManagerName", Some(&"Jun Cao".into())).await?;
        self.is("Headcount", ("department", "Sales"), "Headcount", Some(&3_i64.into())).await?;
        for (table, expected) in [("Employees", 6), ("EmployeesByEmail", 6), ("EmployeesByName", 6), ("Managers", 2)] {
            let found = self.stage.rows(table).await?.len();
            self.check(format_args!("{table} has {expected} rows"), found == expected)?;
        }
        Ok(())
    }

    async fn repeats(&mut self) -> anyhow::Result<()> {
        self.begin("Every message comes again, three times and in another order")?;
        self.tell("A queue delivers at least once. A sync job says which entity to look at, not what to do to it.")?;
        let before = self.versions().await?;
        for _ in 0..3 {
            for person in people::founders().iter().rev() {
                self.stage.sync(&person.key()?).await?;
            }
        }
        self.stage.settled().await?;
        let after = self.versions().await?;
        self.check("no row was written again: all have the ETags they had", before == after)
    }

    async fn rename(&mut self) -> anyhow::Result<()> {
        self.begin("Maria Anders is now Maria Larsson")?;
        self.tell("The application changes its own table, as it always did, and puts a sync job on the queue.")?;
        let maria = EntityKey::new("Sales", "000103")?;
        self.stage.change(Entity::new(maria.clone()).with("LastName", "Larsson")).await?;
        self.stage.sync(&maria).await?;
        self.stage.settled().await?;
        self.absent("EmployeesByName", "Sales", "anders_maria_000103").await?;
        self.present("EmployeesByName", "Sales", "larsson_maria_000103").await
    }

    async fn new_address(&mut self) -> anyhow::Result<()> {
        self.begin("Ken Kwok gets another address")?;
        self.tell("A put job with mode merge: only the address is named, everything else stays.")?;
        let job = json!({"op": "put", "table": "Employees", "mode": "merge",
            "entity": {"PartitionKey": "Sales", "RowKey": "000102", "Email": "ken@contoso.com"}});
        self.stage.send(&job).await?;
        self.stage.settled().await?;
        let rows = self.addresses().await?;
        self.check("the old address finds nobody", !rows.contains_key("ken.kwok@contoso.com"))?;
        self.check("the new address finds Ken Kwok", rows.get("ken@contoso.com").is_some_and(|row| row.text("LastName") == Some("Kwok")))
    }

    async fn leaves(&mut self) -> anyhow::Result<()> {
        self.begin("Donna Wells leaves")?;
        self.tell("An archive job: her entity is copied, removed at the very ETag that was copied, and her rows are dropped.")?;
        self.stage.send(&json!({"op": "archive", "archive": "former_employees", "pk": "Marketing", "rk": "000202"})).await?;
        self.stage.settled().await?;
        self.present("FormerEmployees", "Marketing", "000202").await?;
        self.absent("Employees", "Marketing", "000202").await?;
        self.absent("Managers", "manager", "Marketing_000202").await?;
        self.is("Departments", ("Marketing", "department"), "ManagerName", None).await?;
        self.is("Headcount", ("department", "Marketing"), "Headcount", Some(&1_i64.into())).await?;
        let rows = self.addresses().await?;
        self.check("her address finds nobody", !rows.contains_key("donna.wells@contoso.com"))
    }

    async fn comes_back(&mut self) -> anyhow::Result<()> {
        self.begin("Donna Wells comes back")?;
        self.tell("A restore job is the way back, with everything that is derived from her.")?;
        self.stage.send(&json!({"op": "restore", "archive": "former_employees", "pk": "Marketing", "rk": "000202"})).await?;
        self.stage.settled().await?;
        self.absent("FormerEmployees", "Marketing", "000202").await?;
        self.present("Employees", "Marketing", "000202").await?;
        self.present("Managers", "manager", "Marketing_000202").await?;
        let rows = self.addresses().await?;
        self.check("her address finds her again", rows.contains_key("donna.wells@contoso.com"))
    }

    async fn taken_address(&mut self) -> anyhow::Result<()> {
        self.begin("Jim Cao is hired with the address of Jun Cao")?;
        self.tell("The address is a key that can belong to one person only. The job goes to the poison queue and says whose it is.")?;
        self.stage.send(&people::namesake().hire()).await?;
        self.stage.settled().await?;
        let poison = self.poison("hire-000302").await?;
        let error = poison.as_ref().and_then(|poison| poison["error"].as_str()).unwrap_or_default().to_owned();
        self.quote(poison.as_ref())?;
        self.check(
            "the poison message names the owner, Employees(\"Sales\", \"000101\")",
            error.contains("Employees(\"Sales\", \"000101\")"),
        )?;
        let rows = self.addresses().await?;
        let owner = rows.get("jun.cao@contoso.com").and_then(|row| row.text("FirstName"));
        self.check("the address still finds Jun", owner == Some("Jun"))
    }

    async fn broken_message(&mut self) -> anyhow::Result<()> {
        self.begin("Somebody sends a message that is no job")?;
        self.stage.send_text("hello? is this the right queue?").await?;
        self.stage.settled().await?;
        let poison = self.poison("hello? is this the right queue?").await?;
        self.quote(poison.as_ref())?;
        self.check("it is in the poison queue as undecodable", poison.is_some_and(|poison| poison["reason"] == "undecodable"))
    }

    async fn correction(&mut self) -> anyhow::Result<()> {
        self.begin("Jim Cao gets an address of his own")?;
        self.tell("What was wrong is put right in the table; a sync job does the rest.")?;
        let jim = people::namesake().key()?;
        self.stage.change(Entity::new(jim.clone()).with("Email", "jim.cao@contoso.com")).await?;
        self.stage.sync(&jim).await?;
        self.stage.settled().await?;
        let rows = self.addresses().await?;
        self.check("both addresses find their owners", rows.contains_key("jim.cao@contoso.com") && rows.contains_key("jun.cao@contoso.com"))
    }

    async fn acquisition(&mut self) -> anyhow::Result<()> {
        self.begin("Contoso buys Fabrikam: two hundred people at once")?;
        let people: Vec<Person> = people::acquired();
        let started = self.stage.clock.monotonic();
        for person in &people {
            self.stage.send(&person.hire()).await?;
        }
        self.stage.settled().await?;
        let seconds = self.stage.clock.monotonic().saturating_sub(started).as_secs_f64();
        self.tell(format_args!("{} jobs sent and done in {seconds:.1} s", people.len()))?;
        self.is("Headcount", ("department", "Fabrikam"), "Headcount", Some(&200_i64.into())).await?;
        self.is("EmployeesNamed", ("named", "Cao"), "ek_count", Some(&2_i64.into())).await?;
        let found = self.addresses().await?.len();
        self.check(format_args!("{} addresses find somebody", people.len() + 7), found == people.len() + 7)
    }

    async fn survey(&mut self) -> anyhow::Result<()> {
        self.begin("Jun Cao answers three hundred questions")?;
        self.tell("A row has at most 252 properties. The table is wide: one put, one transaction, two rows, one entity.")?;
        let key = EntityKey::new("2026", "000101")?;
        let mut entity = Entity::new(key.clone()).with("Rating", 3);
        for question in 1..=300 {
            entity = entity.with(format!("Q{question:03}"), question % 5);
        }
        self.stage.send(&json!({"op": "put", "table": "Surveys", "entity": odata::encode(&entity)})).await?;
        self.stage.settled().await?;
        self.present("SurveysByRating", "rating", "3_2026_000101").await?;
        let change = Entity::new(key.clone()).with("Rating", 5).with("Q300", 4);
        self.stage.send(&json!({"op": "put", "table": "Surveys", "mode": "merge", "entity": odata::encode(&change)})).await?;
        self.stage.settled().await?;
        let rows = self.stage.rows("Surveys").await?.len();
        self.check("Surveys has two rows", rows == 2)?;
        let found = self.stage.whole("Surveys", &key).await?;
        let answers = found.map_or(0, |survey| survey.user_properties().count());
        self.check("read as one it has 300 answers and a rating", answers == 301)?;
        self.absent("SurveysByRating", "rating", "3_2026_000101").await?;
        self.is("SurveysByRating", ("rating", "5_2026_000101"), "Q300", Some(&4.into())).await
    }

    async fn new_building(&mut self) -> anyhow::Result<()> {
        self.begin("Fabrikam moves to another building")?;
        self.tell(
            "One put job says where they are; what it says is carried to all of them, in pages. Who comes later asks by themselves.",
        )?;
        for (department, name) in [("Fabrikam", "North"), ("Fabrikam", "Tower"), ("Sales", "Lakeside")] {
            let entity = json!({"PartitionKey": department, "RowKey": "building", "Name": name});
            self.stage.send(&json!({"op": "put", "table": "Buildings", "entity": entity})).await?;
            self.stage.settled().await?;
        }
        let late = Person { number: "000201".to_owned(), email: "late@contoso.com".to_owned(), ..people::namesake() };
        let late = Person { department: "Fabrikam".to_owned(), ..late };
        self.stage.send(&late.hire()).await?;
        self.stage.settled().await?;
        let rows = self.stage.rows("Employees").await?;
        let count = |building: &str| rows.iter().filter(|row| row.entity.text("Building") == Some(building)).count();
        let found = (count("Tower"), count("Lakeside"), count("North"));
        self.check("201 people are in the Tower, the three of Sales at Lakeside, nobody in the North any more", found == (201, 3, 0))?;
        self.stage.send(&json!({"op": "delete", "table": "Employees", "pk": "Fabrikam", "rk": "000201"})).await?;
        self.stage.settled().await
    }

    async fn inventory(&mut self) -> anyhow::Result<()> {
        self.begin("Taking stock")?;
        self.tell("Every primary is read, what should be derived from it is computed anew, and compared with every row there is.")?;
        let findings = verify(&self.stage.stores, &self.stage.catalog).await?;
        self.check(
            format_args!("{} primaries and {} derived rows: none missing, none different, none stale", findings.primaries, findings.right),
            findings.consistent() && findings.taken.is_empty(),
        )?;
        let table = employees()?;
        let mut in_step = 0;
        let rows = self.stage.rows(table.table.as_str()).await?;
        for row in &rows {
            let primary = Primary { table: table.table.clone(), key: row.entity.key.clone() };
            in_step += usize::from(self.stage.engine.plan(&primary).await?.in_step);
        }
        self.check(format_args!("a plan for each of the {} employees finds nothing to do", rows.len()), in_step == rows.len())?;
        let poison = self.poisoned().await?.len();
        self.check("two messages are in the poison queue, each with its reason", poison == 2)
    }

    fn end(&mut self) -> anyhow::Result<Exit> {
        if self.out.format() == Format::Json {
            self.out.value(&json!({"checks": self.checks, "wrong": self.wrong, "consistent": self.wrong == 0, "at": self.stage.now()}))?;
        } else {
            let text = if self.wrong == 0 {
                self.out.tone(Tone::Good, format_args!("All {} checks hold: everything is consistent.", self.checks))
            } else {
                self.out.tone(Tone::Bad, format_args!("{} of {} checks do not hold.", self.wrong, self.checks))
            };
            self.out.line(format_args!("\n{text}"))?;
        }
        Ok(if self.wrong == 0 { Exit::Done } else { Exit::Failed })
    }

    fn begin(&mut self, title: &str) -> anyhow::Result<()> {
        self.chapters += 1;
        title.clone_into(&mut self.chapter);
        if self.out.format() == Format::Text {
            let title = self.out.tone(Tone::Strong, format_args!("{:>2}  {title}", self.chapters));
            self.out.line(format_args!("\n{title}"))?;
        }
        Ok(())
    }

    fn tell(&mut self, text: impl Display) -> anyhow::Result<()> {
        if self.out.format() == Format::Text {
            self.out.line(format_args!("    {text}"))?;
        }
        Ok(())
    }

    /// Checks one property of one row; nothing: that the row does not have it.
    async fn is(&mut self, table: &str, (pk, rk): (&str, &str), property: &str, wanted: Option<&EdmValue>) -> anyhow::Result<()> {
        let row = self.stage.find(table, &EntityKey::new(pk, rk)?).await?;
        let holds = row.is_some_and(|row| row.get(property) == wanted);
        let wanted = match wanted {
            Some(EdmValue::String(text)) => format!("is {text}"),
            Some(EdmValue::Int64(number)) => format!("is {number}"),
            Some(other) => format!("is {other:?}"),
            None => "is gone".to_owned(),
        };
        self.check(format_args!("{property} of {table}({pk:?}, {rk:?}) {wanted}"), holds)
    }

    /// Shows what a poison message says.
    fn quote(&mut self, poison: Option<&Value>) -> anyhow::Result<()> {
        let Some(poison) = poison else { return Ok(()) };
        let words = |name: &str| printable(poison[name].as_str().unwrap_or("?"));
        let quoted = self.out.tone(Tone::Faint, format_args!("{}: {}", words("reason"), words("error")));
        self.tell(quoted)
    }

    fn check(&mut self, what: impl Display, holds: bool) -> anyhow::Result<()> {
        self.checks += 1;
        self.wrong += u32::from(!holds);
        if self.out.format() == Format::Json {
            self.out.value(&json!({"chapter": self.chapter, "check": what.to_string(), "holds": holds}))?;
        } else {
            let mark = if holds { self.out.tone(Tone::Good, "ok   ") } else { self.out.tone(Tone::Bad, "WRONG") };
            self.out.line(format_args!("    {mark} {what}"))?;
        }
        Ok(())
    }

    async fn present(&mut self, table: &str, pk: &str, rk: &str) -> anyhow::Result<()> {
        let found = self.stage.find(table, &EntityKey::new(pk, rk)?).await?;
        self.check(format_args!("{table} has ({pk:?}, {rk:?})"), found.is_some())
    }

    async fn absent(&mut self, table: &str, pk: &str, rk: &str) -> anyhow::Result<()> {
        let found = self.stage.find(table, &EntityKey::new(pk, rk)?).await?;
        self.check(format_args!("{table} no longer has ({pk:?}, {rk:?})"), found.is_none())
    }

    /// The rows of the index by address.
    async fn addresses(&self) -> anyhow::Result<BTreeMap<String, Entity>> {
        let rows = self.stage.rows("EmployeesByEmail").await?;
        Ok(rows.into_iter().map(|row| (row.entity.key.rk.as_str().to_owned(), row.entity)).collect())
    }

    /// The version of every derived row.
    async fn versions(&self) -> anyhow::Result<BTreeMap<(&'static str, EntityKey), ETag>> {
        let mut versions = BTreeMap::new();
        for table in ["EmployeesByEmail", "EmployeesByName", "Managers"] {
            for row in self.stage.rows(table).await? {
                versions.insert((table, row.entity.key), row.etag);
            }
        }
        Ok(versions)
    }

    /// The poison messages, as JSON.
    async fn poisoned(&self) -> anyhow::Result<Vec<Value>> {
        let queue = self.stage.queue.with_suffix("-poison")?;
        let messages = self.stage.account()?.queues.peek(&queue, 32).await.context("reading the poison queue")?;
        let mut found = Vec::new();
        for message in messages {
            if let MessageText::Readable(text) = message.text {
                found.push(serde_json::from_str(&body::decode(&text)?.text)?);
            }
        }
        Ok(found)
    }

    /// The poison message whose body contains a text.
    async fn poison(&self, part: &str) -> anyhow::Result<Option<Value>> {
        Ok(self.poisoned().await?.into_iter().find(|poison| {
            let text = poison["body"].as_str().unwrap_or_default();
            text.contains(part) || body::decode(text).is_ok_and(|body| body.text.contains(part))
        }))
    }
}
