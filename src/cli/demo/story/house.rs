//! Chapters about Contoso's other data: large values, archives, growing tables, and tables that are
//! dropped whole.

use std::collections::BTreeSet;

use anyhow::Context as _;
use jiff::ToSpan as _;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::Story;
use evenkeel_model::{ContainerName, Entity, EntityKey, TableName, large};
use evenkeel_storage::TableOperation;

/// Size of a portrait. It is too large for a property and for a message.
const PORTRAIT_BYTES: usize = 200_000;

impl Story<'_> {
    pub(super) async fn portrait(&mut self) -> anyhow::Result<()> {
        self.begin("A portrait of Jun Cao")?;
        self.narrate("A picture of 200 KB fits neither into a property nor into a message. It is uploaded to a staging blob, and the row points to its final blob.")?;
        let job = |staged: &str| {
            json!({"op": "put", "table": "Portraits", "mode": "merge", "entity": {"PartitionKey": "Sales", "RowKey": "000101", "Painter": "Ada"},
                "blobs": {"Picture": {"blob": format!("{}/{staged}", large::STAGING)}}})
        };
        self.stage
            .stage("sketch.png", vec![1; PORTRAIT_BYTES / 2])
            .await?;
        self.stage.send(&job("sketch.png")).await?;
        self.stage.settled().await?;
        self.stage
            .stage("portrait.png", vec![2; PORTRAIT_BYTES])
            .await?;
        self.stage.send(&job("portrait.png")).await?;
        self.stage.settled().await?;
        let row = self
            .stage
            .find("Portraits", &EntityKey::new("Sales", "000101")?)
            .await?;
        let pointer: Value = serde_json::from_str(
            row.as_ref()
                .and_then(|row| row.text("Picture"))
                .context("the portrait has no picture")?,
        )?;
        let name = pointer["$blob"].as_str().unwrap_or_default();
        self.check(
            "the row points to 200,000 bytes in the container portraits",
            pointer["bytes"] == PORTRAIT_BYTES && name.starts_with("portraits/"),
        )?;
        let kept = self.stage.blobs("portraits").await?;
        self.check(
            "the sketch is no longer there",
            kept.len() == 1 && name.ends_with(&*kept[0]),
        )?;
        let staged = self.stage.blobs(large::STAGING).await?;
        self.check("nothing is staged any more", staged.is_empty())
    }

    pub(super) async fn papers(&mut self) -> anyhow::Result<()> {
        self.begin("Several kinds of papers in one table")?;
        self.narrate("One table holds invoices and contracts, distinguished by their row keys. Old ones are archived in a container or a folder.")?;
        let papers = [
            json!({"PartitionKey": "northwind", "RowKey": "INVOICE_7", "Due": "2026-12-01T00:00:00Z", "Due@odata.type": "Edm.DateTime", "Paid": false}),
            json!({"PartitionKey": "northwind", "RowKey": "CONTRACT_1", "Type": "Contract", "Subject": "Tea"}),
            json!({"PartitionKey": "northwind", "RowKey": "CONTRACT_2", "Type": "Contract@2", "Subject": "Coffee"}),
        ];
        for buffer in papers {
            self.stage
                .send(&json!({"op": "put", "table": "Papers", "entity": buffer}))
                .await?;
        }
        self.stage.settled().await?;
        self.present("OpenInvoices", "2026-12", "01_northwind_INVOICE_7")
            .await?;
        self.present("Contracts", "contracts", "coffee_northwind_CONTRACT_2")
            .await?;
        for (archive, buffer) in [
            ("ended_contracts", "CONTRACT_1"),
            ("papers_on_the_share", "INVOICE_7"),
        ] {
            self.stage
                .send(
                    &json!({"op": "archive", "archive": archive, "pk": "northwind", "rk": buffer}),
                )
                .await?;
        }
        self.stage.settled().await?;
        self.absent("Contracts", "contracts", "tea_northwind_CONTRACT_1")
            .await?;
        self.absent("OpenInvoices", "2026-12", "01_northwind_INVOICE_7")
            .await?;
        let kept = self.stage.blobs("ended-contracts").await?;
        self.check(
            "the container ended-contracts has northwind/CONTRACT_1.json",
            kept == ["northwind/CONTRACT_1.json"],
        )?;
        self.stage.send(&json!({"op": "restore", "archive": "papers_on_the_share", "pk": "northwind", "rk": "INVOICE_7"})).await?;
        self.stage.settled().await?;
        self.present("OpenInvoices", "2026-12", "01_northwind_INVOICE_7")
            .await
    }

    pub(super) async fn doors(&mut self) -> anyhow::Result<()> {
        self.begin("Doors open and close")?;
        self.narrate("The latest event is the first row of its partition. Old events become lines of a log, one blob per hour.")?;
        for (number, minute) in [5, 20, 45].into_iter().enumerate() {
            let entity = json!({"PartitionKey": "north", "RowKey": format!("{number:04}"), "Door": "main",
                "At": format!("2026-11-20T15:{minute:02}:00Z"), "At@odata.type": "Edm.DateTime"});
            self.stage
                .send(&json!({"op": "put", "table": "DoorEvents", "entity": entity}))
                .await?;
        }
        self.stage.settled().await?;
        let latest = self.stage.rows("LatestDoorEvents").await?;
        let first = latest
            .first()
            .is_some_and(|row| row.entity.key.rk.as_str().ends_with("_0002"));
        self.check(
            "the first row of LatestDoorEvents is the latest event",
            first,
        )?;
        for number in 0..2 {
            self.stage.send(&json!({"op": "archive", "archive": "door_log", "pk": "north", "rk": format!("{number:04}")})).await?;
        }
        self.stage.settled().await?;
        let (kept, rest) = (
            self.stage.blobs("door-log").await?,
            self.stage.rows("LatestDoorEvents").await?.len(),
        );
        self.check(
            "two events are lines of logs/2026/11/20/1500/000001.jsonl, one is still a row",
            kept == ["logs/2026/11/20/1500/000001.jsonl"] && rest == 1,
        )
    }

    pub(super) async fn meter(&mut self) -> anyhow::Result<()> {
        self.begin("A meter is read every hour")?;
        self.narrate(
            "One entity per day, one property per hour: 24 put jobs with mode merge, in any order.",
        )?;
        for hour in (0..24).rev() {
            let value = json!({"PartitionKey": "meter-7", "RowKey": "2026-11-20", format!("H{hour:02}"): 400 + hour});
            self.stage
                .send(&json!({"op": "put", "table": "Meters", "mode": "merge", "entity": value}))
                .await?;
        }
        self.stage.settled().await?;
        let day = self
            .stage
            .find("Meters", &EntityKey::new("meter-7", "2026-11-20")?)
            .await?;
        let hours: BTreeSet<String> = day
            .iter()
            .flat_map(Entity::user_properties)
            .map(|(name, _)| name.clone())
            .collect();
        self.check("one point read has all 24 hours", hours.len() == 24)
    }

    pub(super) async fn visitors(&mut self) -> anyhow::Result<()> {
        self.begin("Old visits are deleted with their table")?;
        self.narrate(
            "The table of each day is created in advance, with the table of its view. When they expire, each is dropped by one request, however many rows it has.",
        )?;
        let today = self.stage.now().to_zoned(TimeZone::UTC).date();
        let table = |day: jiff::civil::Date| format!("Visits{}", day.strftime("%Y%m%d"));
        let entity = json!({"PartitionKey": "lobby", "RowKey": "1", "Name": "Grace"});
        self.stage
            .send(&json!({"op": "put", "table": table(today), "entity": entity}))
            .await?;
        let old = TableName::new(table(today.checked_sub(40.days())?))?;
        let tables = &self.stage.account()?.tables;
        tables.create_table(&old).await?;
        for visitor in 0..100 {
            let visit = Entity::new(EntityKey::new("lobby", visitor.to_string())?);
            tables.apply(&old, &TableOperation::Insert(visit)).await?;
        }
        self.stage
            .send(&json!({"op": "drop_table", "table": old}))
            .await?;
        self.stage.settled().await?;
        self.present(&table(today), "lobby", "1").await?;
        self.present(
            &format!("VisitsByName{}", today.strftime("%Y%m%d")),
            "grace",
            "lobby_1",
        )
        .await?;
        let gone = !self.stage.tables().await?.contains(&old);
        self.check(
            format_args!("the table {old} is gone, with its 100 rows"),
            gone,
        )?;
        let kept = self.stage.blobs("old-visits").await?;
        let container = ContainerName::new("old-visits")?;
        self.check(
            format_args!("they are lines in the container {container}"),
            kept.iter().any(|name| name.ends_with("000001.jsonl")),
        )
    }
}
