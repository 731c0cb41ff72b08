use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use futures::stream::{self, FuturesOrdered, StreamExt as _};
use serde::Serialize;
use tokio::io::{AsyncBufRead, BufReader};
use tokio::time::sleep;

use self::lines::{InputLine, InputLines};
use self::unsent::UnsentLines;
use super::exit::store_error;
use super::output::{counted, printable, printable_lines};
use super::progress::Progress;
use super::wake;
use super::{Context, Exit, Format, Output, Tone, UsageError, help};
use evenkeel_client::{Client, ClientError, IN_FLIGHT, PreparedMessage, ReadyMessage};
use evenkeel_model::{QueueName, cause};
use evenkeel_storage::ErrorClass;

mod lines;
mod unsent;

#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    (r#"evenkeel submit '{"op":"sync","table":"Employees","pk":"Sales","rk":"000223"}'"#, "brings every copy of one entity in step"),
    (r#"evenkeel submit '{"op":"archive","archive":"former_employees","pk":"Sales","rk":"000223"}'"#, "moves an entity into its archive"),
    ("evenkeel submit --queue bulk - < jobs.jsonl", "one job per line, to another queue; bad lines are reported and skipped"),
    ("evenkeel submit --unsent rest.jsonl - < jobs.jsonl", "writes the lines that were not sent to rest.jsonl"),
    ("evenkeel submit --pack 100 - < jobs.jsonl", "packs up to 100 neighbouring lines into a message, so that sending costs a hundredth"),
]))]
pub struct SubmitArgs {
    /// Queue; default the first that allows the operation
    #[arg(long, value_name = "NAME")]
    pub queue: Option<QueueName>,
    /// Put up to N neighbouring lines that differ only in their primary into one message (1 to 1,000)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub pack: u16,
    /// Write the lines that were not sent to FILE, including those that were not read
    #[arg(long, value_name = "FILE")]
    pub unsent: Option<PathBuf>,
    /// A job, or - for one per line on standard input
    #[arg(value_name = "JSON|-")]
    pub job: String,
}

pub async fn submit(
    args: &SubmitArgs,
    context: &Context,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    context.check_queue(args.queue.as_ref())?;
    let many = args.job == "-";
    if args.unsent.is_some() && !many {
        return Err(UsageError::new(
            "--unsent needs jobs on standard input: give - instead of the job",
        )
        .into());
    }
    let (client, queue, unsent) = (
        context.client(),
        args.queue.as_ref(),
        args.unsent.as_deref(),
    );
    let submission = Submission {
        client,
        queue,
        many,
        pack: usize::from(args.pack),
        unsent,
        context,
    };
    if submission.many {
        submission
            .run(BufReader::new(tokio::io::stdin()), out)
            .await
    } else {
        // An empty argument counts as a line, so that it is reported.
        submission
            .run(
                format!("{}\n", args.job.replace(['\r', '\n'], " ")).as_bytes(),
                out,
            )
            .await
    }
}

/// A warning, if continuing with `tail` from this line on would send some lines a second time;
/// otherwise empty.
fn resend_warning(next_line: u64, tally: &SubmitTally) -> &'static str {
    let read = (tally.last + 1).saturating_sub(next_line);
    if read > tally.unconfirmed {
        "; this repeats later lines that were sent already; use --unsent to avoid that"
    } else {
        ""
    }
}

struct Submission<'a> {
    client: Client,
    queue: Option<&'a QueueName>,
    many: bool,
    pack: usize,
    /// File for the lines that were not sent.
    unsent: Option<&'a Path>,
    context: &'a Context,
}

/// Maximum number of ignored fields that a warning names.
const FIELDS_NAMED: usize = 5;
/// Lines wait so that later lines can be packed into the same message. If no line arrives for this time, the waiting lines are
/// sent.
const PACKED_WITHIN: Duration = Duration::from_millis(20);

/// A job that was sent, for `--json`.
#[derive(Serialize)]
struct SentLine<'a> {
    line: u64,
    queue: &'a QueueName,
    message_id: &'a str,
    op: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    /// Number of jobs in the message: the job of this line and those of the lines after it.
    #[serde(skip_serializing_if = "is_one")]
    jobs: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
const fn is_one(jobs: &usize) -> bool {
    *jobs == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
const fn is_none(lines: &u64) -> bool {
    *lines == 0
}

/// A line that was not sent, or that may not have been sent, for `--json`.
#[derive(Serialize)]
struct UnsentLine {
    line: u64,
    error: String,
    /// Number of lines in the refused message: this line and those after it.
    #[serde(skip_serializing_if = "is_one")]
    jobs: usize,
    /// Whether the lines may have been sent. Sending them again is safe.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unconfirmed: bool,
}

struct MessageResult {
    line: u64,
    /// Number of lines in the message.
    lines: usize,
    /// The job and the id of its message, or the line that was not sent.
    result: Result<(PreparedMessage, String), UnsentLine>,
    /// A failure after which no further line is sent; `None` if sending continues.
    failure: Option<anyhow::Error>,
}

#[derive(Default)]
struct SubmitTally {
    sent: u64,
    refused: u64,
    /// Number of lines that may have been sent.
    unconfirmed: u64,
    queues: BTreeSet<QueueName>,
    /// The last line that was read.
    last: u64,
    /// The first line that may have to be sent again.
    first_unsure: Option<u64>,
    /// Whether reading was interrupted, so that there may be more lines.
    interrupted: bool,
    /// The first failure of a store or of the input, after which reading stopped.
    failure: Option<anyhow::Error>,
}

/// Progress of a submission that was interrupted or failed, for `--json`.
#[derive(Serialize)]
struct PartialReport<'a> {
    interrupted: bool,
    sent: u64,
    refused: u64,
    /// Number of lines that may have been sent.
    #[serde(skip_serializing_if = "is_none")]
    unconfirmed: u64,
    /// The first line that was not sent or may not have been sent.
    next_line: u64,
    /// The file with the lines that were not sent or may not have been sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    unsent: Option<&'a Path>,
}

impl Submission<'_> {
    async fn run(
        &self,
        input: impl AsyncBufRead + Unpin,
        out: &mut Output,
    ) -> anyhow::Result<Exit> {
        let mut progress = self
            .many
            .then(|| Progress::begin("submit", "lines", None, out, &self.context.clock));
        let mut tally = SubmitTally::default();
        let mut unsent = match self.unsent {
            Some(path) => Some(UnsentLines::begin(path.to_path_buf()).await?),
            None => None,
        };
        let mut lines = InputLines::new(input);
        let ended = self
            .pump(
                &mut lines,
                &mut tally,
                unsent.as_mut(),
                progress.as_mut(),
                out,
            )
            .await;
        if let Some(progress) = progress {
            progress.end();
        }
        if let (Some(unsent), Some(path)) = (unsent, self.unsent)
            && unsent.end(lines).await?
        {
            let path = path.display();
            out.write_error(format_args!("The lines that were not sent are in {path}. To continue: `evenkeel submit --unsent {path} - < {path}`"))?;
        }
        for queue in &tally.queues {
            wake::wake_worker(&self.context.settings.http, queue).await;
        }
        if let Err(error) = ended {
            let before = format!("{} sent before this", counted(tally.sent, "job"));
            return Err(if self.many {
                error.context(before)
            } else {
                error
            });
        }
        if let Some(error) = tally.failure.take() {
            self.report_partial(&tally, out)?;
            return Err(error);
        }
        if self.many && out.format() == Format::Text {
            let sent = out.tone(
                Tone::Good,
                format_args!("{} sent", counted(tally.sent, "job")),
            );
            let refused = out.tone(
                Tone::Bad,
                format_args!(", {} refused", counted(tally.refused, "line")),
            );
            out.line(format_args!(
                "{sent}{}",
                if tally.refused > 0 {
                    refused.as_str()
                } else {
                    ""
                }
            ))?;
        }
        if tally.interrupted {
            self.report_partial(&tally, out)?;
            return Ok(Exit::Interrupted);
        }
        Ok(if tally.refused > 0 {
            Exit::Failed
        } else {
            Exit::Done
        })
    }

    /// Reads, checks and sends lines. The number of requests in flight is limited, and results are
    /// reported in the order of the lines. After an interruption or a failure, the lines that were
    /// already read are still sent and reported.
    async fn pump(
        &self,
        lines: &mut InputLines<impl AsyncBufRead + Unpin>,
        tally: &mut SubmitTally,
        mut unsent: Option<&mut UnsentLines>,
        mut progress: Option<&mut Progress>,
        out: &mut Output,
    ) -> anyhow::Result<()> {
        let lines = stream::unfold(lines, async |lines| {
            lines.next().await.transpose().map(|line| (line, lines))
        });
        let mut lines = pin!(lines);
        let mut on_their_way = FuturesOrdered::new();
        let mut packing = self.client.packing(self.queue, self.pack);
        let mut more = true;
        loop {
            if !more {
                // Lines that wait to be packed were already read, so they are sent now.
                on_their_way.extend(packing.flush().map(|ready| self.send(ready)));
            }
            // The next line may never come, so requests in flight continue while it is awaited.
            tokio::select! {
                biased;
                Some(MessageResult { line, lines: many, result, failure }) = on_their_way.next(), if !on_their_way.is_empty() => {
                    match failure {
                        Some(error) if !self.many => return Err(error),
                        Some(error) => {
                            more = false;
                            tally.failure.get_or_insert(error);
                        }
                        None => {}
                    }
                    if let Some(unsent) = unsent.as_deref_mut() {
                        unsent.settle(line, many, result.is_ok()).await.context("could not write unsent lines")?;
                    }
                    self.report_result(line, &result, tally, progress.as_deref_mut(), out)?;
                }
                () = self.context.stop.cancelled(), if more => (more, tally.interrupted) = (false, true),
                line = lines.next(), if more && on_their_way.len() < IN_FLIGHT => {
                    match line.transpose().context("could not read standard input") {
                        Err(error) => {
                            more = false;
                            tally.failure.get_or_insert(error);
                        }
                        Ok(None) => more = false,
                        Ok(Some(InputLine { text, number })) if self.many && text.as_ref().is_ok_and(|text| text.trim().is_empty()) => tally.last = number,
                        Ok(Some(InputLine { number, text })) => {
                            tally.last = number;
                            if let (Some(unsent), Ok(text)) = (unsent.as_deref_mut(), &text) {
                                unsent.read(number, text);
                            }
                            let ready = match text {
                                Ok(text) => packing.add(number, &text),
                                Err(problem) => vec![ReadyMessage { first: number, jobs: 1, message: Err(ClientError::Job(problem)) }],
                            };
                            on_their_way.extend(ready.into_iter().map(|ready| self.send(ready)));
                        }
                    }
                }
                () = sleep(PACKED_WITHIN), if more && !packing.is_empty() && on_their_way.len() < IN_FLIGHT => {
                    on_their_way.extend(packing.flush().map(|ready| self.send(ready)));
                }
                else => return Ok(()),
            }
        }
    }

    async fn send(&self, ready: ReadyMessage) -> MessageResult {
        let ReadyMessage {
            first: line,
            jobs,
            message,
        } = ready;
        let refused = |error: String, unconfirmed: bool| {
            Err(UnsentLine {
                line,
                error,
                jobs,
                unconfirmed,
            })
        };
        let job = match message {
            Ok(job) => job,
            Err(problem) => {
                return MessageResult {
                    line,
                    lines: jobs,
                    result: refused(problem.to_string(), false),
                    failure: None,
                };
            }
        };
        let (result, failure) = match self.client.send(&job).await {
            Ok(sent) => (Ok((job, sent.message_id)), None),
            // Encryption has made the job too large for a message.
            Err(problem @ ClientError::Job(_)) => (refused(problem.to_string(), false), None),
            Err(error) => {
                let text = cause::chain(&error);
                let error = anyhow::Error::new(error);
                // If an attempt had no answer, the job may have been sent, even if a later attempt
                // was refused.
                let is_known = error
                    .chain()
                    .find_map(store_error)
                    .is_some_and(|store| store.class != ErrorClass::Ambiguous);
                let unsent = refused(
                    format!(
                        "{text}; {}",
                        if is_known {
                            "it was not sent"
                        } else {
                            "it may have been sent"
                        }
                    ),
                    true,
                );
                (
                    unsent,
                    Some(if self.many {
                        error.context(format!("could not send line {line}"))
                    } else {
                        error
                    }),
                )
            }
        };
        MessageResult {
            line,
            lines: jobs,
            result,
            failure,
        }
    }

    fn report_result(
        &self,
        line: u64,
        result: &Result<(PreparedMessage, String), UnsentLine>,
        tally: &mut SubmitTally,
        mut progress: Option<&mut Progress>,
        out: &mut Output,
    ) -> io::Result<()> {
        match result {
            Ok((job, _)) => {
                tally.sent += job.jobs as u64;
                if !tally.queues.contains(&job.queue) {
                    tally.queues.insert(job.queue.clone());
                }
            }
            Err(refused) if refused.unconfirmed => {
                tally.unconfirmed += refused.jobs as u64;
                tally.first_unsure = Some(tally.first_unsure.unwrap_or(line).min(line));
            }
            Err(refused) => tally.refused += refused.jobs as u64,
        }
        if let Some(progress) = progress.as_deref_mut() {
            progress.set(tally.sent + tally.refused + tally.unconfirmed, out)?;
        }
        let mut report = || match result {
            Ok((job, message_id)) => {
                self.report_sent(line, job, message_id, out)?;
                if job.unknown_fields.is_empty() {
                    Ok(())
                } else {
                    self.report_ignored(line, job, out)
                }
            }
            Err(refused) => self.report_unsent(refused, out),
        };
        match progress {
            Some(progress) => progress.suspend(report),
            None => report(),
        }
    }

    fn report_partial(&self, tally: &SubmitTally, out: &mut Output) -> io::Result<()> {
        if !self.many {
            return Ok(());
        }
        let SubmitTally {
            sent,
            refused,
            unconfirmed,
            last,
            first_unsure,
            interrupted,
            ..
        } = *tally;
        let next_line = first_unsure.unwrap_or(last + 1);
        if out.format() == Format::Json {
            out.value(&PartialReport {
                interrupted,
                sent,
                refused,
                unconfirmed,
                next_line,
                unsent: self.unsent,
            })?;
        }
        let ended = if interrupted { "Interrupted" } else { "Ended" };
        let unsure = match counted(unconfirmed, "line") {
            _ if unconfirmed == 0 => String::new(),
            lines => format!(", {lines} to be sent again"),
        };
        let go_on = if self.unsent.is_some() {
            String::new()
        } else {
            format!(
                ". To continue: `tail -n +{next_line}`{}",
                resend_warning(next_line, tally)
            )
        };
        out.write_error(format_args!(
            "{ended} after line {last}: {} sent, {} refused{unsure}{go_on}",
            counted(sent, "job"),
            counted(refused, "line")
        ))
    }

    fn report_sent(
        &self,
        line: u64,
        job: &PreparedMessage,
        message_id: &str,
        out: &mut Output,
    ) -> io::Result<()> {
        match out.format() {
            Format::Json => out.value(&SentLine {
                line,
                queue: &job.queue,
                message_id,
                op: job.op,
                id: job.id.as_deref(),
                jobs: job.jobs,
            }),
            Format::Text if self.many => Ok(()),
            Format::Text => out.line(format_args!(
                "sent {} {} to {} as {message_id}",
                job.op, job.about, job.queue
            )),
        }
    }

    /// Reports fields that workers ignore. Workers ignore unknown fields so that newer senders may
    /// add fields. In a job that a person wrote, an unknown field is probably a typing error.
    fn report_ignored(&self, line: u64, job: &PreparedMessage, out: &mut Output) -> io::Result<()> {
        let start = if self.many {
            format!("line {line}: ")
        } else {
            String::new()
        };
        let start = out.note_tone(Tone::Warning, format_args!("warning: {start}"));
        let named: Vec<String> = job
            .unknown_fields
            .iter()
            .take(FIELDS_NAMED)
            .map(|name| format!("{name:?}"))
            .collect();
        let others = job.unknown_fields.len() - named.len();
        let others = if others == 0 {
            String::new()
        } else {
            format!(" and {} more", counted(others as u64, "field"))
        };
        let named = printable(&named.join(", "));
        out.write_note(format_args!("{start}{named}{others} will be ignored: `evenkeel schema` shows the fields of a {} job", job.op))
    }

    fn report_unsent(&self, refused: &UnsentLine, out: &mut Output) -> io::Result<()> {
        if out.format() == Format::Json {
            out.value(refused)?;
        }
        let start = match refused {
            _ if !self.many => "not sent".to_owned(),
            UnsentLine { line, jobs: 1, .. } => format!("line {line}"),
            UnsentLine {
                line,
                jobs,
                unconfirmed,
                ..
            } => {
                let hint = if *unconfirmed {
                    ""
                } else {
                    " (--pack 1 sends the valid ones)"
                };
                format!(
                    "line {line} and {} packed with it{hint}",
                    counted(*jobs as u64 - 1, "line")
                )
            }
        };
        let start = out.note_tone(Tone::Bad, start);
        out.write_error(format_args!("{start}: {}", printable_lines(&refused.error)))
    }
}
