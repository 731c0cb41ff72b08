use anyhow::{Context as _, anyhow};
use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

use super::output::counted;
use super::{Context, Exit, Output, UsageError, help};
use evenkeel_model::catalog::{ArchiveTarget, LogTarget};
use evenkeel_model::condition::Condition;
use evenkeel_model::log::{Bounds, check_line, moment_of_line};
use evenkeel_model::{BlobName, EdmDateTime, ViewName, odata};
use evenkeel_storage::{BlobItem, BlobStore, all_blobs};

/// Number of bytes per read.
const PIECE: u64 = 4 << 20;

#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel logs sign_ins --from 2026-11-20T15:00:00Z --to 2026-11-20T15:30:00Z", "the lines of half an hour"),
    ("evenkeel logs sign_ins --from 2026-11-20 --where 'Level == \"error\" and Took > 500'", "lines that satisfy a condition"),
    ("evenkeel logs sign_ins --from 2026-11-20 --to 2026-11-21 | jq -r .RowKey", "the lines of a day, as JSON lines for another program"),
]))]
pub struct LogsArgs {
    /// An archive in append blobs
    #[arg(value_name = "ARCHIVE")]
    pub archive: String,
    /// Start of the range, such as 2026-11-20T15:00:00Z or 2026-11-20 (midnight UTC)
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub from: Timestamp,
    /// End of the range (exclusive); default now
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub to: Option<Timestamp>,
    /// Only lines that satisfy this condition
    #[arg(long = "where", value_name = "CONDITION", value_parser = Condition::parse)]
    pub condition: Option<Condition>,
}

struct LineFilter<'a> {
    /// Beginning (inclusive) and end (exclusive) of the time range.
    span: (Timestamp, Timestamp),
    /// Property with the time of a line; `None` stands for the time of writing.
    time: Option<&'a str>,
    condition: Option<&'a Condition>,
}

impl LineFilter<'_> {
    fn matches(&self, line: Value) -> bool {
        let (from, to) = self.span;
        let in_time =
            moment_of_line(&line, self.time).is_none_or(|moment| from <= moment && moment < to);
        in_time
            && self.condition.is_none_or(|condition| {
                odata::decode_owned(line).is_ok_and(|entity| condition.holds(&entity))
            })
    }
}

/// Parses a time in the format of an entity's times, or a day, which stands for its midnight. A
/// time without an offset is in UTC. A day is completed to a time before it is parsed: a parser of
/// days would also accept times, and ignore the time of day.
fn moment(text: &str) -> Result<Timestamp, String> {
    EdmDateTime::parse(text)
        .or_else(|_| EdmDateTime::parse(&format!("{text}T00:00:00Z")))
        .map(EdmDateTime::timestamp)
        .map_err(|_| format!("expected a time such as 2026-11-20T15:00:00Z or a day such as 2026-11-20, found {text:?}"))
}

pub async fn logs(args: &LogsArgs, context: &Context, out: &mut Output) -> anyhow::Result<Exit> {
    let target = target(&args.archive, context)?;
    let (from, to) = (args.from, args.to.unwrap_or_else(|| context.clock.now()));
    if to <= from {
        return Err(UsageError::new(format!(
            "--to must be after --from: --to is {to}, --from is {from}"
        ))
        .into());
    }
    let filter = LineFilter {
        span: (from, to),
        time: target.time.as_deref(),
        condition: args.condition.as_ref(),
    };
    let blobs = context.stores.account(&target.account)?.blobs.as_ref();
    let (mut lines, mut read) = (0_u64, 0_u64);
    for folder in folders(target, from, to) {
        let prefix = format!("{folder}/");
        let listed = all_blobs(blobs, &target.container, &prefix).await;
        for BlobItem { name, .. } in
            listed.with_context(|| format!("could not list {}/{prefix}", target.container))?
        {
            let found = blobs.properties(&target.container, &name).await;
            let Some(found) = found.with_context(|| {
                format!(
                    "could not read the properties of {}/{name}",
                    target.container
                )
            })?
            else {
                continue;
            };
            // If the bounds of a blob were not recorded, the blob is read.
            if Bounds::of(&found.metadata).is_some_and(|span| !span.meets(&Bounds::new(from, to))) {
                continue;
            }
            read += 1;
            lines += print(blobs, target, &name, found.length, &filter, out).await?;
        }
    }
    let (lines, blobs) = (counted(lines, "line"), counted(read, "blob"));
    out.write_note(format_args!("{lines} from {blobs}"))?;
    Ok(Exit::Done)
}

fn target<'a>(archive: &str, context: &'a Context) -> anyhow::Result<&'a LogTarget> {
    let name = ViewName::new(archive).map_err(UsageError::of)?;
    match context
        .catalog
        .archives
        .get(&name)
        .map(|archive| &archive.target)
    {
        Some(ArchiveTarget::Log(target)) => Ok(target),
        Some(ArchiveTarget::Table(_) | ArchiveTarget::Blob(_) | ArchiveTarget::File(_)) => {
            Err(UsageError::new(format!(
                "[archives.{name}] is not a log: its target is not an append blob"
            ))
            .into())
        }
        None => {
            let is_log = |archive: &&std::sync::Arc<evenkeel_model::catalog::Archive>| {
                matches!(archive.target, ArchiveTarget::Log(_))
            };
            let known: Vec<String> = context
                .catalog
                .archives
                .values()
                .filter(is_log)
                .map(|archive| archive.name.to_string())
                .collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            Err(UsageError::new(format!(
                "the catalog has no archive {name}; its logs are {known}"
            ))
            .into())
        }
    }
}

/// The archive folders of all hours of a time range.
fn folders(target: &LogTarget, from: Timestamp, to: Timestamp) -> impl Iterator<Item = String> {
    let hour = |moment: Timestamp| moment.as_second().div_euclid(3_600);
    (hour(from)..=hour(to))
        .filter_map(|hour| Some(target.path.of(Timestamp::from_second(hour * 3_600).ok()?)))
}

/// Prints the matching lines of one blob. Lines that were appended after the blob was listed are
/// not read.
async fn print(
    blobs: &dyn BlobStore,
    target: &LogTarget,
    name: &BlobName,
    length: u64,
    filter: &LineFilter<'_>,
    out: &mut Output,
) -> anyhow::Result<u64> {
    let (mut position, mut rest, mut printed) = (0, Vec::new(), 0);
    while position < length {
        let end = length.min(position + PIECE);
        let piece = blobs
            .get(&target.container, name, Some(position..end))
            .await;
        let piece = piece.with_context(|| format!("could not read {}/{name}", target.container))?;
        let piece = piece.ok_or_else(|| {
            anyhow!(
                "{}/{name} was deleted while it was being read",
                target.container
            )
        })?;
        rest.extend_from_slice(&piece.content);
        position = end;
        let whole = rest
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        for line in rest[..whole]
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let json: Value = serde_json::from_slice(line).with_context(|| {
                format!("{}/{name} has a line that is not JSON", target.container)
            })?;
            check_line(&json)
                .with_context(|| format!("could not read {}/{name}", target.container))?;
            if filter.matches(json) {
                out.line(String::from_utf8_lossy(line))?;
                printed += 1;
            }
        }
        rest.drain(..whole);
    }
    Ok(printed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::log::LogPath;
    use evenkeel_model::{AccountName, ContainerName};

    #[test]
    fn a_range_touches_the_folder_of_each_of_its_hours() {
        let target = LogTarget {
            account: AccountName::main(),
            container: ContainerName::new("logs").unwrap(),
            path: LogPath::parse("%Y/%m/%d/%H00").unwrap(),
            time: None,
            spread: 1,
            roll_at: LogTarget::ROLL_AT,
        };
        let of = |from: &str, to: &str| {
            folders(&target, moment(from).unwrap(), moment(to).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(
            of("2026-11-20T15:30:00Z", "2026-11-20T16:00:01Z"),
            ["2026/11/20/1500", "2026/11/20/1600"]
        );
        assert_eq!(of("2026-11-20", "2026-11-21").len(), 25);
    }

    #[test]
    fn a_time_is_parsed_in_full_with_or_without_an_offset() {
        let at = |text: &str| moment(text).map(|moment| moment.to_string());
        for text in [
            "2026-11-20T15:30:00Z",
            "2026-11-20T15:30:00",
            "2026-11-20T16:30:00+01:00",
            "2026-11-20 15:30:00Z",
        ] {
            assert_eq!(at(text).unwrap(), "2026-11-20T15:30:00Z", "{text}");
        }
        assert_eq!(at("2026-11-20").unwrap(), "2026-11-20T00:00:00Z");
        assert!(moment("9999-12-31").is_ok(), "behind the last entity");
        for text in ["2026-11-20T15", "20261120", "2026-11-20T25:00:00Z"] {
            assert!(moment(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_invalid_time_is_refused_with_an_example() {
        assert!(
            moment("yesterday")
                .unwrap_err()
                .contains("2026-11-20T15:00:00Z")
        );
    }
}
