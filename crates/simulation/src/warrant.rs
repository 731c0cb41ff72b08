//! What may be done to a primary, judged at the very operation that does it:
//!
//! * A worker acts for a job only that it runs, or ran when the request was sent.
//! * A put writes what it says over what was there, merged by an implementation of its own, and only what its condition allows.
//! * An archive, a move and a restore write what the other place said since their first delivery. A restore and a move never write
//!   over what somebody else has created.
//! * Whatever else a worker writes leaves the content as it was.
//! * A primary is deleted for a delete job that has not deleted one before and, delivered again, leaves alone what was created since;
//!   or when its very content lies in the archive, or where the job has moved it.
//! * An archived row is deleted when its very content has been restored since it was written. The job that has copied it there may
//!   delete it too, where nobody has deleted by it.
//! * What a client has merged by itself into what a job had left is nobody's older write: a delete job leaves it alone as any later
//!   write, and the job behind the rest writes over it no more.
//! * What was archived or moved, and so lies there alone, is not overwritten by a job that has taken anything there and seen it go; nor
//!   is what was archived by a job that was enqueued in a later second than the one that writes.
//! * A primary is created for a job that asks for it and runs: deletes stay deleted.
//!
//! A known limit: the insert of a primary by a `put`, `restore` or `move`, or of an archived row by an `archive`, that arrives after
//! its worker gave it up may bring back what was deleted meanwhile. Nothing conditional stops an insert. Such a resurrection is
//! counted, where the run that sent it had a right to it then; its derived data must be right all the same.

use super::asked::{EntityJob, JobCondition};
use super::content::{Content, difference};
use super::history::{Event, History, KnownPrimary, SOURCE, TARGET};
use super::items::Properties;
use super::ledger::{Author, Ledger};
use evenkeel_model::Row;

impl History {
    /// Whether a worker may delete what was there.
    pub(super) fn may_delete(
        &mut self,
        event: &Event<'_>,
        before: &KnownPrimary,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let Event { table, key, .. } = event;
        let authors = event.authors(ledger);
        let mut jobs = authors
            .iter()
            .filter_map(|author| Some((author, Self::job(ledger, &author.message)?)));
        let warranted = jobs.find(|(author, asked)| {
            asked.key == **key && self.warrants_deletion(event, before, (author, asked), ledger)
        });
        let Some((author, asked)) = warranted else {
            return Err(format!(
                "lost update: {table}{key} was deleted at version {:?}, which is nowhere else and which nobody asked to delete: {}",
                before.version,
                for_whom(&authors, ledger)
            ));
        };
        if (event.table, asked.op) == (SOURCE, "archive") {
            self.uses(key, &before.content);
        }
        let copied_by = || self.known(TARGET, key).and_then(|kept| kept.by.as_ref());
        match asked.op {
            "delete" => ledger.has_deleted(author),
            "move" => {
                if let Some(to) = &asked.to {
                    self.takes(&author.message, (SOURCE, to), &before.content);
                }
            }
            // Of two jobs that have copied the same version, the first cannot know that its own deletion was the one.
            "archive" if copied_by() == Some(&author.message) => {
                self.takes(&author.message, (TARGET, key), &before.content);
            }
            _ => {}
        }
        Ok(())
    }

    fn warrants_deletion(
        &self,
        event: &Event<'_>,
        before: &KnownPrimary,
        (author, asked): (&Author, &EntityJob),
        ledger: &Ledger,
    ) -> bool {
        // Of two messages with one job, either goes on with what the other has brought.
        let brought = |there, since| {
            ledger
                .same_job(&author.message)
                .into_iter()
                .any(|message| self.has_brought(message, there, &before.content, since))
        };
        match (event.table, asked.op) {
            (SOURCE, "delete") => ledger.may_have_deleted(author, before.last_write()),
            (SOURCE, "archive") => self
                .known(TARGET, event.key)
                .is_some_and(|kept| kept.present && kept.content == before.content),
            (SOURCE, "move") => asked.to.as_ref().is_some_and(|to| brought((SOURCE, to), 0)),
            (TARGET, "restore") => brought((SOURCE, event.key), before.written.0),
            (TARGET, "archive") => Self::is_unused_copy(before, &author.message, ledger),
            _ => false,
        }
    }

    /// Whether a job has copied this into the archive, and nobody has deleted by it.
    fn is_unused_copy(before: &KnownPrimary, message: &str, ledger: &Ledger) -> bool {
        !before.used
            && before
                .by
                .as_ref()
                .is_some_and(|by| ledger.same_job(message).contains(&by.as_str()))
    }

    /// Whether a worker may have written this over what was there.
    pub(super) fn may_write(
        &mut self,
        event: &Event<'_>,
        (row, content): (&Row, &Content),
        before: &KnownPrimary,
        ledger: &Ledger,
    ) -> Result<(), String> {
        let Event { table, key, .. } = event;
        let by = event.by(ledger);
        if before.present && before.content == *content && before.by == by {
            return Ok(());
        }
        let wrong = |why: String| {
            let (old, etag) = (before.version, &row.etag);
            Err(format!(
                "lost update: {table}{key} at version {old:?} was overwritten by {by:?} (now at {etag}), {why}"
            ))
        };
        let Some(by) = &by else {
            return wrong(format!(
                "which is no job and left something else: {}",
                difference(content, &before.content)
            ));
        };
        let Some(asked) = Self::job(ledger, by) else {
            return wrong("which is no job about an entity".to_owned());
        };
        let authors = event.authors(ledger);
        if !authors.iter().any(|author| author.message == *by) {
            return wrong(format!(
                "which nobody runs there, but {}",
                for_whom(&authors, ledger)
            ));
        }
        // Of two messages with one job, either may write what the other has.
        let of_another_job = |other: &String| !ledger.same_job(by).contains(&other.as_str());
        if before.by.as_ref().is_none_or(of_another_job) && !allows(asked, before) {
            return wrong(format!("which may not: {asked:?}"));
        }
        let after = |other: &String| of_another_job(other) && ledger.was_enqueued_later(other, by);
        let is_own = before
            .by
            .as_ref()
            .is_some_and(|other| !of_another_job(other));
        if is_own && before.merged.is_some() && before.content != *content {
            return wrong(format!(
                "which had written it before a client merged into that: {}",
                difference(content, &before.content)
            ));
        }
        if before.present && *table == TARGET && before.by.as_ref().is_some_and(after) {
            return wrong("which was enqueued before the job that wrote it".to_owned());
        }
        if before.only && before.content != *content && self.has_taken(by) {
            return wrong(
                "which has taken another one there, and this one is nowhere else".to_owned(),
            );
        }
        self.is_brought(event, content, before, (by, asked), ledger)
            .or_else(wrong)?;
        if !before.present && event.execution.late {
            self.resurrections += 1;
        }
        Ok(())
    }

    /// Whether this is what the job is to write; why not, in words.
    fn is_brought(
        &self,
        event: &Event<'_>,
        content: &Content,
        before: &KnownPrimary,
        (by, asked): (&str, &EntityJob),
        ledger: &Ledger,
    ) -> Result<(), String> {
        let Event { table, key, .. } = event;
        let since = ledger.first_delivered(by);
        let copied = |from: &str| {
            if self.said_since(from, &asked.key, content, since) {
                return Ok(());
            }
            let known = self.known(from, &asked.key);
            let from_there = known
                .map(|known| difference(content, &known.content))
                .unwrap_or_default();
            Err(format!(
                "which has never met that in {from}{} since it was delivered: {from_there}",
                asked.key
            ))
        };
        match (*table, asked.op) {
            (SOURCE, "put") if asked.key == **key => {
                if before.by.as_deref() == Some(by) && before.present {
                    return Err(format!(
                        "which had written something else before: {}",
                        difference(content, &before.content)
                    ));
                }
                let there: Option<&Properties> = before.present.then_some(before.content.as_ref());
                let expected = asked
                    .brings
                    .as_ref()
                    .map(|brings| brings.over(there))
                    .unwrap_or_default();
                if expected == **content {
                    Ok(())
                } else {
                    Err(format!(
                        "which was to write something else: {}",
                        difference(content, &expected)
                    ))
                }
            }
            (SOURCE, "restore") if asked.key == **key => copied(TARGET),
            (SOURCE, "move") if asked.to.as_ref() == Some(*key) => copied(SOURCE),
            (TARGET, "archive") if asked.key == **key => copied(SOURCE),
            _ => Err(format!("which has no business there: {asked:?}")),
        }
    }
}

/// Whether a job may write over what is there for the first time.
fn allows(asked: &EntityJob, before: &KnownPrimary) -> bool {
    match (asked.op, &asked.guard) {
        ("put", Some(JobCondition::Match(wanted))) => before.etag.as_ref() == Some(wanted),
        ("restore" | "move", _) | ("put", Some(JobCondition::Absent)) => !before.present,
        ("put", Some(JobCondition::Newer(new))) => before.version.is_none_or(|old| old < *new),
        _ => true,
    }
}

/// The runs on whose behalf a request was sent, in words.
pub(super) fn for_whom(authors: &[Author], ledger: &Ledger) -> String {
    let each = authors
        .iter()
        .map(|author| format!("{author:?}: {:?}", ledger.asked(&author.message)));
    format!("[{}]", each.collect::<Vec<_>>().join("; "))
}
