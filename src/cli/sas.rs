use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::{Context, Exit, Format, Output, UsageError, args, help};
use evenkeel_model::nearest::meant_or_known;
use evenkeel_model::settings::{IssuedSas, SasGrant, SasRequest, SasRows, SasTarget};
use evenkeel_model::units::parse_duration;
use evenkeel_model::{BlobName, Key, ViewName};
use evenkeel_ops::logging::AUDIT;

#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel sas sales_staff", "a URL with the scope and validity that [sas.sales_staff] declares"),
    ("evenkeel sas employees --pk Sales --valid 15m", "the same for one partition, for a quarter of an hour"),
    ("evenkeel sas upload --blob 7f3c.png --json", "one blob of a container, with address and token as separate fields"),
]))]
pub struct SasArgs {
    /// The signature, as `[sas.NAME]` declares it
    #[arg(value_name = "NAME")]
    pub name: ViewName,
    /// Only this PartitionKey
    #[arg(long, value_name = "PK", value_parser = filled, allow_hyphen_values = true)]
    pub pk: Option<Key>,
    /// Only RowKeys from this one on (inclusive)
    #[arg(long, value_name = "RK", value_parser = filled, allow_hyphen_values = true)]
    pub rk_from: Option<Key>,
    /// Only RowKeys up to this one (inclusive)
    #[arg(long, value_name = "RK", value_parser = filled, allow_hyphen_values = true)]
    pub rk_to: Option<Key>,
    /// Only this blob
    #[arg(long, value_name = "BLOB", value_parser = |text: &str| BlobName::new(text))]
    pub blob: Option<BlobName>,
    /// Validity; default as declared
    #[arg(long, value_name = "DURATION", value_parser = valid)]
    pub valid: Option<Duration>,
}

/// Parses a key and refuses an empty one, because the services would ignore an empty bound of a
/// range.
fn filled(text: &str) -> Result<Key, String> {
    if text.is_empty() {
        Err("expected a key, found an empty string".to_owned())
    } else {
        args::key(text)
    }
}

fn valid(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if duration < Duration::from_mins(1) {
        Err("expected at least 1m".to_owned())
    } else {
        Ok(duration)
    }
}

/// The signature, for `--json`.
#[derive(Serialize)]
struct SasAnswer<'a> {
    name: &'a ViewName,
    url: &'a str,
    token: &'a str,
    permissions: &'a str,
    expires: String,
}

/// Signs a shared access signature by calling `issue`, and prints it.
pub async fn sas(
    args: &SasArgs,
    context: &Context,
    issue: impl AsyncFnOnce(&SasGrant, Timestamp) -> anyhow::Result<IssuedSas>,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let grant = declared(&args.name, &context.settings.sas)?;
    let rows = SasRows {
        pk: args.pk.clone(),
        rk_from: args.rk_from.clone(),
        rk_to: args.rk_to.clone(),
    };
    let request = SasRequest {
        rows,
        blob: args.blob.clone(),
        valid: args.valid,
    };
    let grant = grant
        .narrowed(&request)
        .map_err(|refusal| UsageError::new(refusal.to_string()))?;
    let too_long = || format!("the validity of {} s is too long", grant.valid.as_secs());
    let valid = SignedDuration::try_from(grant.valid).with_context(too_long)?;
    let expires = context
        .clock
        .now()
        .checked_add(valid)
        .with_context(too_long)?;
    let issued = issue(&grant, expires).await?;
    let (opens, permissions) = (described(&grant.target), grant.permissions.as_str());
    // The expiry is shown in whole seconds, as the token contains it.
    let expires = issued.expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    tracing::warn!(target: AUDIT, name = %grant.name, account = %grant.account, %opens, permissions, %expires, "audit: shared access signature issued");
    let token = issued.token.expose_secret();
    match out.format() {
        Format::Json => out.value(&SasAnswer {
            name: &grant.name,
            url: &issued.url,
            token,
            permissions,
            expires,
        })?,
        Format::Text => out.line(format_args!("{}?{token}", issued.url))?,
    }
    Ok(Exit::Done)
}

fn declared<'a>(name: &ViewName, grants: &'a [SasGrant]) -> Result<&'a SasGrant, UsageError> {
    grants
        .iter()
        .find(|grant| grant.name == *name)
        .ok_or_else(|| {
            let known: Vec<&str> = grants.iter().map(|grant| grant.name.as_str()).collect();
            let hint = if known.is_empty() {
                "none is declared".to_owned()
            } else {
                meant_or_known(name.as_str(), &known)
            };
            UsageError::new(format!("there is no [sas.{name}]; {hint}"))
        })
}

/// The scope of a signature, for the log.
fn described(target: &SasTarget) -> String {
    match target {
        SasTarget::Table(table, SasRows { pk, rk_from, rk_to }) => {
            let part = |label: &str, key: &Option<Key>| {
                key.as_ref()
                    .map(|key| format!(", {label} {key}"))
                    .unwrap_or_default()
            };
            format!(
                "table {table}{}{}{}",
                part("PartitionKey", pk),
                part("RowKeys from", rk_from),
                part("up to", rk_to)
            )
        }
        SasTarget::Blob(container, None) => format!("container {container}"),
        SasTarget::Blob(container, Some(blob)) => format!("blob {container}/{blob}"),
        SasTarget::Queue(queue) => format!("queue {queue}"),
    }
}
