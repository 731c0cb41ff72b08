//! The story of Contoso. Each chapter is checked against the contents of the stores.

mod house;
mod staff;

use std::fmt::Display;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::stage::{DemoStage, employees};
use crate::cli::output::printable;
use crate::cli::verify::verify;
use crate::cli::{Exit, Format, Output, Tone};
use evenkeel_model::job::Primary;
use evenkeel_model::{EdmValue, EntityKey, body};
use evenkeel_storage::MessageText;

/// Runs all chapters. Returns [`Exit::Failed`] if a check fails.
pub async fn run_story(stage: &DemoStage, out: &mut Output) -> anyhow::Result<Exit> {
    let mut story = Story {
        stage,
        out,
        chapter: String::new(),
        chapters: 0,
        checks: 0,
        wrong: 0,
    };
    story.hires().await?;
    story.repeats().await?;
    story.rename().await?;
    story.new_address().await?;
    story.leaves().await?;
    story.comes_back().await?;
    story.taken_address().await?;
    story.broken_message().await?;
    story.correction().await?;
    story.transfer().await?;
    story.acquisition().await?;
    story.survey().await?;
    story.new_building().await?;
    story.portrait().await?;
    story.papers().await?;
    story.doors().await?;
    story.meter().await?;
    story.visitors().await?;
    story.inventory().await?;
    story.end()
}

struct Story<'a> {
    stage: &'a DemoStage,
    out: &'a mut Output,
    chapter: String,
    chapters: u32,
    checks: u32,
    wrong: u32,
}

impl Story<'_> {
    async fn inventory(&mut self) -> anyhow::Result<()> {
        self.begin("Taking stock")?;
        self.narrate("Every primary is read, its derived rows are computed again, and they are compared with the rows that exist.")?;
        let findings = verify(&self.stage.stores, &self.stage.catalog).await?;
        self.check(
            format_args!(
                "{} primaries and {} derived rows: none missing, none different, none stale",
                findings.primaries, findings.right
            ),
            findings.consistent() && findings.taken.is_empty(),
        )?;
        let table = employees()?;
        let mut in_step = 0;
        let rows = self.stage.rows(table.table.as_str()).await?;
        for row in &rows {
            let primary = Primary {
                table: table.table.clone(),
                key: row.entity.key.clone(),
            };
            in_step += usize::from(self.stage.engine.plan(&primary).await?.in_step);
        }
        self.check(
            format_args!(
                "a plan for each of the {} employees finds nothing to do",
                rows.len()
            ),
            in_step == rows.len(),
        )?;
        let poison = self.poisoned().await?.len();
        self.check(
            "two messages are in the poison queue, each with its reason",
            poison == 2,
        )
    }

    fn end(&mut self) -> anyhow::Result<Exit> {
        if self.out.format() == Format::Json {
            self.out.value(&json!({"checks": self.checks, "wrong": self.wrong, "consistent": self.wrong == 0, "at": self.stage.now()}))?;
        } else {
            let text = if self.wrong == 0 {
                self.out.tone(
                    Tone::Good,
                    format_args!("All {} checks hold: everything is consistent.", self.checks),
                )
            } else {
                self.out.tone(
                    Tone::Bad,
                    format_args!("{} of {} checks do not hold.", self.wrong, self.checks),
                )
            };
            self.out.line(format_args!("\n{text}"))?;
        }
        Ok(if self.wrong == 0 {
            Exit::Done
        } else {
            Exit::Failed
        })
    }

    fn begin(&mut self, title: &str) -> anyhow::Result<()> {
        self.chapters += 1;
        title.clone_into(&mut self.chapter);
        if self.out.format() == Format::Text {
            let title = self
                .out
                .tone(Tone::Strong, format_args!("{:>2}  {title}", self.chapters));
            self.out.line(format_args!("\n{title}"))?;
        }
        Ok(())
    }

    fn narrate(&mut self, text: impl Display) -> anyhow::Result<()> {
        if self.out.format() == Format::Text {
            self.out.line(format_args!("    {text}"))?;
        }
        Ok(())
    }

    /// Checks that a row has this value of a property; `None` means that the row must lack the
    /// property.
    async fn check_property(
        &mut self,
        table: &str,
        pk: &str,
        rk: &str,
        property: &str,
        wanted: Option<&EdmValue>,
    ) -> anyhow::Result<()> {
        let row = self.stage.find(table, &EntityKey::new(pk, rk)?).await?;
        let holds = row.is_some_and(|row| row.get(property) == wanted);
        let wanted = match wanted {
            Some(EdmValue::String(text)) => format!("is {text}"),
            Some(EdmValue::Int64(number)) => format!("is {number}"),
            Some(other) => format!("is {other:?}"),
            None => "is gone".to_owned(),
        };
        self.check(
            format_args!("{property} of {table}({pk:?}, {rk:?}) {wanted}"),
            holds,
        )
    }

    /// Prints the reason and the error of a poison message.
    fn quote(&mut self, poison: Option<&Value>) -> anyhow::Result<()> {
        let Some(poison) = poison else { return Ok(()) };
        let words = |name: &str| printable(poison[name].as_str().unwrap_or("?"));
        let quoted = self.out.tone(
            Tone::Faint,
            format_args!("{}: {}", words("reason"), words("error")),
        );
        self.narrate(quoted)
    }

    fn check(&mut self, what: impl Display, holds: bool) -> anyhow::Result<()> {
        self.checks += 1;
        self.wrong += u32::from(!holds);
        if self.out.format() == Format::Json {
            self.out.value(
                &json!({"chapter": self.chapter, "check": what.to_string(), "holds": holds}),
            )?;
        } else {
            let mark = if holds {
                self.out.tone(Tone::Good, "ok   ")
            } else {
                self.out.tone(Tone::Bad, "WRONG")
            };
            self.out.line(format_args!("    {mark} {what}"))?;
        }
        Ok(())
    }

    async fn present(&mut self, table: &str, pk: &str, rk: &str) -> anyhow::Result<()> {
        let found = self.stage.find(table, &EntityKey::new(pk, rk)?).await?;
        self.check(
            format_args!("{table} has ({pk:?}, {rk:?})"),
            found.is_some(),
        )
    }

    async fn absent(&mut self, table: &str, pk: &str, rk: &str) -> anyhow::Result<()> {
        let found = self.stage.find(table, &EntityKey::new(pk, rk)?).await?;
        self.check(
            format_args!("{table} no longer has ({pk:?}, {rk:?})"),
            found.is_none(),
        )
    }

    async fn poisoned(&self) -> anyhow::Result<Vec<Value>> {
        let queue = self.stage.queue.with_suffix("-poison")?;
        let messages = self
            .stage
            .account()?
            .queues
            .peek(&queue, 32)
            .await
            .context("could not read the poison queue")?;
        let mut found = Vec::new();
        for message in messages {
            if let MessageText::Readable(text) = message.text {
                found.push(serde_json::from_str(&body::decode(&text)?.text)?);
            }
        }
        Ok(found)
    }

    /// Finds the poison message whose body contains a text.
    async fn poison(&self, part: &str) -> anyhow::Result<Option<Value>> {
        Ok(self.poisoned().await?.into_iter().find(|poison| {
            let text = poison["body"].as_str().unwrap_or_default();
            text.contains(part) || body::decode(text).is_ok_and(|body| body.text.contains(part))
        }))
    }
}
