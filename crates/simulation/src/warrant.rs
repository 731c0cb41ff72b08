//! The rules for writes of a primary, checked at each operation:
//!
//! * A worker changes or deletes a primary only for a job that runs, or that ran when the request was sent.
//! * A put writes only if its condition holds. The result must equal the content that a second implementation computes.
//! * An archive, a move or a restore writes content that the source had at some time since the first delivery of the job. A restore or a
//!   move never overwrites what another writer has created.
//! * Other writes of a worker leave the content unchanged.
//! * A delete job may delete a primary. A redelivery of the job does not delete what was created after the job was enqueued.
//! * An archive job may delete a primary if the archive contains exactly the same content. A move may delete a primary if the job has
//!   written exactly the same content to the new key.
//! * A restore may delete an archived row if the job has written exactly the same content to the source after the row was written.
//! * The archive job that wrote an archived row may delete this row again, unless an original was deleted because the row existed.
//! * A client may merge a property into content that a job wrote. The merge counts as a later write: the job does not overwrite the merged
//!   content. A delete job that was enqueued before the merge does not delete the merged content.
//! * The row that an archive or a move has written may be the only copy of the content. A job that has already deleted its own source does
//!   not overwrite such a row.
//! * An archived row is not overwritten by a job that was enqueued in an earlier second than the job that wrote the row.
//! * A primary is created only if a running job asks for it. So a deleted primary stays deleted.
//!
//! One limit is known. An insert may arrive after its worker has given up. If the same row was deleted in between, the insert restores it.
//! No condition of an insert prevents this. The row can be a primary, inserted by a `put`, `restore` or `move`, or an archived row, inserted
//! by an `archive`. Such a resurrection is counted. It is not a violation if the run that sent the insert was allowed to write. Derived data
//! must still be correct.

use super::content::{Content, difference};
use super::expectation::{EntityJob, JobCondition};
use super::history::{Event, History, KnownPrimary, SOURCE, TARGET};
use super::items::Properties;
use super::ledger::{Author, Ledger};
use evenkeel_model::Row;

impl History {
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
                "lost update: {table}{key} was deleted at version {:?}, expected a copy or a job that allows it; the worker's runs: {}",
                before.version,
                for_whom(&authors, ledger)
            ));
        };
        if (event.table, asked.op) == (SOURCE, "archive") {
            self.record_original_deleted(key, &before.content);
        }
        let copied_by = || self.known(TARGET, key).and_then(|kept| kept.by.as_ref());
        match asked.op {
            "delete" => ledger.has_deleted(author),
            "move" => {
                if let Some(to) = &asked.to {
                    self.record_source_deleted(&author.message, (SOURCE, to), &before.content);
                }
            }
            // Two jobs may have copied this version. Only the job whose copy is in the archive is recorded. The other
            // job cannot know whether its own delete request succeeded.
            "archive" if copied_by() == Some(&author.message) => {
                self.record_source_deleted(&author.message, (TARGET, key), &before.content);
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
        // Two messages may contain the same job. The run of one message may write the copy, and then the run of the
        // other message may delete the original.
        let has_written = |there, since| {
            ledger
                .same_job(&author.message)
                .into_iter()
                .any(|message| self.has_written(message, there, &before.content, since))
        };
        match (event.table, asked.op) {
            (SOURCE, "delete") => ledger.may_have_deleted(author, before.last_write()),
            (SOURCE, "archive") => self
                .known(TARGET, event.key)
                .is_some_and(|kept| kept.present && kept.content == before.content),
            (SOURCE, "move") => asked
                .to
                .as_ref()
                .is_some_and(|to| has_written((SOURCE, to), 0)),
            (TARGET, "restore") => has_written((SOURCE, event.key), before.written.0),
            (TARGET, "archive") => Self::is_unused_copy(before, &author.message, ledger),
            _ => false,
        }
    }

    /// Whether this job has written the archived row, and no original was deleted because of the row.
    fn is_unused_copy(before: &KnownPrimary, message: &str, ledger: &Ledger) -> bool {
        !before.used
            && before
                .by
                .as_ref()
                .is_some_and(|by| ledger.same_job(message).contains(&by.as_str()))
    }

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
                "lost update: {table}{key} was at version {old:?}, then message {by:?} wrote ETag {etag}: {why}"
            ))
        };
        let Some(by) = &by else {
            return wrong(format!(
                "the write has no job stamp, but changed the content: {}",
                difference(content, &before.content)
            ));
        };
        let Some(asked) = Self::job(ledger, by) else {
            return wrong("its message is not a job for an entity".to_owned());
        };
        let authors = event.authors(ledger);
        if !authors.iter().any(|author| author.message == *by) {
            return wrong(format!(
                "this worker did not run the job; it ran {}",
                for_whom(&authors, ledger)
            ));
        }
        // Two messages may contain the same job. Each run may overwrite what the other has written.
        let of_another_job = |other: &String| !ledger.same_job(by).contains(&other.as_str());
        if before.by.as_ref().is_none_or(of_another_job) && !allows(asked, before) {
            return wrong(format!(
                "the condition of the job does not allow it: {asked:?}"
            ));
        }
        let after = |other: &String| of_another_job(other) && ledger.was_enqueued_later(other, by);
        let is_own = before
            .by
            .as_ref()
            .is_some_and(|other| !of_another_job(other));
        if is_own && before.merged.is_some() && before.content != *content {
            return wrong(format!(
                "a client had merged a property into what this job wrote: {}",
                difference(content, &before.content)
            ));
        }
        if before.present && *table == TARGET && before.by.as_ref().is_some_and(after) {
            return wrong("the job was enqueued before the job that wrote the row".to_owned());
        }
        if before.only && before.content != *content && self.has_moved_away(by) {
            return wrong(
                "the job had already deleted its source, and this row was the only copy of its content".to_owned(),
            );
        }
        self.is_brought(event, content, before, (by, asked), ledger)
            .or_else(wrong)?;
        if !before.present && event.execution.late {
            self.resurrections += 1;
        }
        Ok(())
    }

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
            if self.had_content_since(from, &asked.key, content, since) {
                return Ok(());
            }
            let known = self.known(from, &asked.key);
            let from_there = known
                .map(|known| difference(content, &known.content))
                .unwrap_or_default();
            Err(format!(
                "expected content that {from}{} has had since the first delivery: {from_there}",
                asked.key
            ))
        };
        match (*table, asked.op) {
            (SOURCE, "put") if asked.key == **key => {
                if before.by.as_deref() == Some(by) && before.present {
                    return Err(format!(
                        "the job had written other content before: {}",
                        difference(content, &before.content)
                    ));
                }
                let there: Option<&Properties> = before.present.then_some(before.content.as_ref());
                let expected = asked
                    .put_content
                    .as_ref()
                    .map(|put_content| put_content.over(there))
                    .unwrap_or_default();
                if expected == **content {
                    Ok(())
                } else {
                    Err(format!(
                        "the job was expected to write other content: {}",
                        difference(content, &expected)
                    ))
                }
            }
            (SOURCE, "restore") if asked.key == **key => copied(TARGET),
            (SOURCE, "move") if asked.to.as_ref() == Some(*key) => copied(SOURCE),
            (TARGET, "archive") if asked.key == **key => copied(SOURCE),
            _ => Err(format!("the job must not write this row: {asked:?}")),
        }
    }
}

/// Whether the condition of a job allows it to overwrite content that another job or a client has written.
fn allows(asked: &EntityJob, before: &KnownPrimary) -> bool {
    match (asked.op, &asked.guard) {
        ("put", Some(JobCondition::Match(wanted))) => before.etag.as_ref() == Some(wanted),
        ("restore" | "move", _) | ("put", Some(JobCondition::Absent)) => !before.present,
        ("put", Some(JobCondition::Newer(new))) => before.version.is_none_or(|old| old < *new),
        _ => true,
    }
}

pub(super) fn for_whom(authors: &[Author], ledger: &Ledger) -> String {
    let each = authors
        .iter()
        .map(|author| format!("{author:?}: {:?}", ledger.expectation_of(&author.message)));
    format!("[{}]", each.collect::<Vec<_>>().join("; "))
}
