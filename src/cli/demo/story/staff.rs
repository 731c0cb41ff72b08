//! Chapters about Contoso's people: copies, lists, groups, denormalized properties, archives, and
//! messages that cannot succeed.

use std::collections::BTreeMap;

use serde_json::json;

use super::Story;
use crate::cli::demo::people::{self, Person};
use evenkeel_model::{ETag, Entity, EntityKey, odata};

impl Story<'_> {
    pub(super) async fn hires(&mut self) -> anyhow::Result<()> {
        self.begin("Six people are hired")?;
        self.narrate(
            "Six put jobs go on the queue. Each writes an employee and the rows derived from it.",
        )?;
        for department in ["Marketing", "Sales"] {
            let entity =
                json!({"PartitionKey": department, "RowKey": "department", "Budget": "plenty"});
            self.stage
                .send(&json!({"op": "put", "table": "Departments", "entity": entity}))
                .await?;
        }
        self.stage.settled().await?;
        for person in people::founders() {
            self.stage.send(&person.hire()).await?;
        }
        self.stage.settled().await?;
        self.check_property(
            "Departments",
            "Sales",
            "department",
            "ManagerName",
            Some(&"Jun Cao".into()),
        )
        .await?;
        self.check_property(
            "Headcount",
            "department",
            "Sales",
            "Headcount",
            Some(&3_i64.into()),
        )
        .await?;
        for (table, expected) in [
            ("Employees", 6),
            ("EmployeesByEmail", 6),
            ("EmployeesByName", 6),
            ("Managers", 2),
        ] {
            let found = self.stage.rows(table).await?.len();
            self.check(
                format_args!("{table} has {expected} rows"),
                found == expected,
            )?;
        }
        Ok(())
    }

    pub(super) async fn repeats(&mut self) -> anyhow::Result<()> {
        self.begin("Every message is delivered three more times, in another order")?;
        self.narrate("A queue delivers at least once. A sync job names only the entity; a worker compares the entity with its copies.")?;
        let before = self.versions().await?;
        for _ in 0..3 {
            for person in people::founders().iter().rev() {
                self.stage.sync(&person.key()?).await?;
            }
        }
        self.stage.settled().await?;
        let after = self.versions().await?;
        self.check(
            "no row was written again: all ETags are unchanged",
            before == after,
        )
    }

    pub(super) async fn rename(&mut self) -> anyhow::Result<()> {
        self.begin("Maria Anders is now Maria Larsson")?;
        self.narrate("The application changes its own table, as it always did, and puts a sync job on the queue.")?;
        let maria = EntityKey::new("Sales", "000103")?;
        self.stage
            .change(Entity::new(maria.clone()).with("LastName", "Larsson"))
            .await?;
        self.stage.sync(&maria).await?;
        self.stage.settled().await?;
        self.absent("EmployeesByName", "Sales", "anders_maria_000103")
            .await?;
        self.present("EmployeesByName", "Sales", "larsson_maria_000103")
            .await
    }

    pub(super) async fn new_address(&mut self) -> anyhow::Result<()> {
        self.begin("Ken Kwok gets another address")?;
        self.narrate(
            "A put job with mode merge: only the address is named, everything else stays.",
        )?;
        let job = json!({"op": "put", "table": "Employees", "mode": "merge",
            "entity": {"PartitionKey": "Sales", "RowKey": "000102", "Email": "ken@contoso.com"}});
        self.stage.send(&job).await?;
        self.stage.settled().await?;
        let rows = self.addresses().await?;
        self.check(
            "the old address finds nobody",
            !rows.contains_key("ken.kwok@contoso.com"),
        )?;
        self.check(
            "the new address finds Ken Kwok",
            rows.get("ken@contoso.com")
                .is_some_and(|row| row.text("LastName") == Some("Kwok")),
        )
    }

    pub(super) async fn leaves(&mut self) -> anyhow::Result<()> {
        self.begin("Donna Wells leaves")?;
        self.narrate("An archive job copies her entity, deletes the original if it still has the copied ETag, and deletes the rows derived from it.")?;
        self.stage.send(&json!({"op": "archive", "archive": "former_employees", "pk": "Marketing", "rk": "000202"})).await?;
        self.stage.settled().await?;
        self.present("FormerEmployees", "Marketing", "000202")
            .await?;
        self.absent("Employees", "Marketing", "000202").await?;
        self.absent("Managers", "manager", "Marketing_000202")
            .await?;
        self.check_property(
            "Departments",
            "Marketing",
            "department",
            "ManagerName",
            None,
        )
        .await?;
        self.check_property(
            "Headcount",
            "department",
            "Marketing",
            "Headcount",
            Some(&1_i64.into()),
        )
        .await?;
        let rows = self.addresses().await?;
        self.check(
            "her address finds nobody",
            !rows.contains_key("donna.wells@contoso.com"),
        )
    }

    pub(super) async fn comes_back(&mut self) -> anyhow::Result<()> {
        self.begin("Donna Wells comes back")?;
        self.narrate("A restore job brings her entity back, and everything derived from it.")?;
        self.stage.send(&json!({"op": "restore", "archive": "former_employees", "pk": "Marketing", "rk": "000202"})).await?;
        self.stage.settled().await?;
        self.absent("FormerEmployees", "Marketing", "000202")
            .await?;
        self.present("Employees", "Marketing", "000202").await?;
        self.present("Managers", "manager", "Marketing_000202")
            .await?;
        let rows = self.addresses().await?;
        self.check(
            "her address finds her again",
            rows.contains_key("donna.wells@contoso.com"),
        )
    }

    pub(super) async fn taken_address(&mut self) -> anyhow::Result<()> {
        self.begin("Jim Cao is hired with the address of Jun Cao")?;
        self.narrate("An address is a key that only one person can have. The job goes to the poison queue, and its error names the owner.")?;
        self.stage.send(&people::namesake().hire()).await?;
        self.stage.settled().await?;
        let poison = self.poison("hire-000302").await?;
        let error = poison
            .as_ref()
            .and_then(|poison| poison["error"].as_str())
            .unwrap_or_default()
            .to_owned();
        self.quote(poison.as_ref())?;
        self.check(
            "the poison message names the owner, Employees(\"Sales\", \"000101\")",
            error.contains("Employees(\"Sales\", \"000101\")"),
        )?;
        let rows = self.addresses().await?;
        let owner = rows
            .get("jun.cao@contoso.com")
            .and_then(|row| row.text("FirstName"));
        self.check("the address still finds Jun", owner == Some("Jun"))
    }

    pub(super) async fn broken_message(&mut self) -> anyhow::Result<()> {
        self.begin("Somebody sends a message that is not a job")?;
        self.stage
            .send_text("hello? is this the right queue?")
            .await?;
        self.stage.settled().await?;
        let poison = self.poison("hello? is this the right queue?").await?;
        self.quote(poison.as_ref())?;
        self.check(
            "it is in the poison queue as undecodable",
            poison.is_some_and(|poison| poison["reason"] == "undecodable"),
        )
    }

    pub(super) async fn transfer(&mut self) -> anyhow::Result<()> {
        self.begin("Ken Kwok moves to Marketing")?;
        self.narrate("A department is a partition: a move job changes his key, and everything that is derived from him follows.")?;
        let job = json!({"op": "move", "table": "Employees", "pk": "Sales", "rk": "000102", "to_pk": "Marketing", "to_rk": "000102"});
        self.stage.send(&job).await?;
        self.stage.settled().await?;
        self.absent("Employees", "Sales", "000102").await?;
        self.present("EmployeesByName", "Marketing", "kwok_ken_000102")
            .await?;
        self.absent("EmployeesByName", "Sales", "kwok_ken_000102")
            .await?;
        self.check_property(
            "Headcount",
            "department",
            "Marketing",
            "Headcount",
            Some(&3_i64.into()),
        )
        .await
    }

    pub(super) async fn correction(&mut self) -> anyhow::Result<()> {
        self.begin("Jim Cao gets an address of his own")?;
        self.narrate("The application corrects its table and sends a sync job.")?;
        let jim = people::namesake().key()?;
        self.stage
            .change(Entity::new(jim.clone()).with("Email", "jim.cao@contoso.com"))
            .await?;
        self.stage.sync(&jim).await?;
        self.stage.settled().await?;
        let rows = self.addresses().await?;
        self.check(
            "both addresses find their owners",
            rows.contains_key("jim.cao@contoso.com") && rows.contains_key("jun.cao@contoso.com"),
        )
    }

    pub(super) async fn acquisition(&mut self) -> anyhow::Result<()> {
        self.begin("Contoso buys Fabrikam: two hundred people at once")?;
        let people: Vec<Person> = people::acquired();
        let started = self.stage.clock.monotonic();
        for person in &people {
            self.stage.send(&person.hire()).await?;
        }
        self.stage.settled().await?;
        let seconds = self
            .stage
            .clock
            .monotonic()
            .saturating_sub(started)
            .as_secs_f64();
        self.narrate(format_args!(
            "{} jobs sent and done in {seconds:.1} s",
            people.len()
        ))?;
        self.check_property(
            "Headcount",
            "department",
            "Fabrikam",
            "Headcount",
            Some(&200_i64.into()),
        )
        .await?;
        self.check_property(
            "EmployeesNamed",
            "named",
            "Cao",
            "ek_count",
            Some(&2_i64.into()),
        )
        .await?;
        let found = self.addresses().await?.len();
        self.check(
            format_args!("{} addresses find somebody", people.len() + 7),
            found == people.len() + 7,
        )
    }

    pub(super) async fn survey(&mut self) -> anyhow::Result<()> {
        self.begin("Jun Cao answers three hundred questions")?;
        self.narrate("A row has at most 252 properties. The table is wide: one put, one transaction, two rows, one entity.")?;
        let key = EntityKey::new("2026", "000101")?;
        let mut entity = Entity::new(key.clone()).with("Rating", 3);
        for question in 1..=300 {
            entity = entity.with(format!("Q{question:03}"), question % 5);
        }
        self.stage
            .send(&json!({"op": "put", "table": "Surveys", "entity": odata::encode(&entity)}))
            .await?;
        self.stage.settled().await?;
        self.present("SurveysByRating", "rating", "3_2026_000101")
            .await?;
        let change = Entity::new(key.clone()).with("Rating", 5).with("Q300", 4);
        self.stage.send(&json!({"op": "put", "table": "Surveys", "mode": "merge", "entity": odata::encode(&change)})).await?;
        self.stage.settled().await?;
        let rows = self.stage.rows("Surveys").await?.len();
        self.check("Surveys has two rows", rows == 2)?;
        let found = self.stage.whole("Surveys", &key).await?;
        let answers = found.map_or(0, |survey| survey.user_properties().count());
        self.check(
            "read as one entity it has 300 answers and a rating",
            answers == 301,
        )?;
        self.absent("SurveysByRating", "rating", "3_2026_000101")
            .await?;
        self.check_property(
            "SurveysByRating",
            "rating",
            "5_2026_000101",
            "Q300",
            Some(&4.into()),
        )
        .await
    }

    pub(super) async fn new_building(&mut self) -> anyhow::Result<()> {
        self.begin("Fabrikam moves to another building")?;
        self.narrate(
            "One put job names the building, and a worker writes it to every employee of the department, page by page. Employees who come later get it from their own job.",
        )?;
        for (department, name) in [
            ("Fabrikam", "North"),
            ("Fabrikam", "Tower"),
            ("Sales", "Lakeside"),
        ] {
            let entity = json!({"PartitionKey": department, "RowKey": "building", "Name": name});
            self.stage
                .send(&json!({"op": "put", "table": "Buildings", "entity": entity}))
                .await?;
            self.stage.settled().await?;
        }
        let late = Person {
            number: "000201".to_owned(),
            email: "late@contoso.com".to_owned(),
            ..people::namesake()
        };
        let late = Person {
            department: "Fabrikam".to_owned(),
            ..late
        };
        self.stage.send(&late.hire()).await?;
        self.stage.settled().await?;
        let rows = self.stage.rows("Employees").await?;
        let count = |building: &str| {
            rows.iter()
                .filter(|row| row.entity.text("Building") == Some(building))
                .count()
        };
        let found = (count("Tower"), count("Lakeside"), count("North"));
        self.check("201 people are in the Tower, the two of Sales at Lakeside, nobody is left in the North", found == (201, 2, 0))?;
        self.stage
            .send(&json!({"op": "delete", "table": "Employees", "pk": "Fabrikam", "rk": "000201"}))
            .await?;
        self.stage.settled().await
    }

    /// The rows of the index by e-mail address.
    async fn addresses(&self) -> anyhow::Result<BTreeMap<String, Entity>> {
        let rows = self.stage.rows("EmployeesByEmail").await?;
        Ok(rows
            .into_iter()
            .map(|row| (row.entity.key.rk.as_str().to_owned(), row.entity))
            .collect())
    }

    /// The ETags of all derived rows.
    async fn versions(&self) -> anyhow::Result<BTreeMap<(&'static str, EntityKey), ETag>> {
        let mut versions = BTreeMap::new();
        for table in ["EmployeesByEmail", "EmployeesByName", "Managers"] {
            for row in self.stage.rows(table).await? {
                versions.insert((table, row.entity.key), row.etag);
            }
        }
        Ok(versions)
    }
}
