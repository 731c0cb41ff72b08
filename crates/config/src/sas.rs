//! `[sas.NAME]`

use std::time::Duration;

use super::section::Section;
use super::views::account;
use evenkeel_model::large::{OWN_CONTAINERS, STAGING};
use evenkeel_model::names::KEYS;
use evenkeel_model::settings::{QueueSettings, SasGrant, SasRows, SasTarget, sorts_before};
use evenkeel_model::{AccountName, BlobName, ContainerName, Key, QueueName, TableName, ViewName};

/// Validity: as a user delegation key, a week at most.
const VALID: std::ops::RangeInclusive<Duration> =
    Duration::from_mins(1)..=Duration::from_hours(7 * 24);
const VALID_AS_SHIPPED: Duration = Duration::from_hours(1);

/// The services, with the key that names what is opened, their permissions in the order that they want, and the usual one.
#[derive(Clone, Copy, PartialEq)]
enum Opened {
    Table,
    Container,
    Queue,
}

impl Opened {
    const ALL: [Self; 3] = [Self::Table, Self::Container, Self::Queue];

    const fn key(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Container => "container",
            Self::Queue => "queue",
        }
    }

    const fn permissions(self) -> (&'static str, &'static str) {
        match self {
            Self::Table => ("raud", "r"),
            Self::Container => ("racwdl", "r"),
            Self::Queue => ("raup", "a"),
        }
    }

    /// The keys that have a meaning with it alone.
    const fn own(self) -> &'static [&'static str] {
        match self {
            Self::Table => &["pk", "rk_from", "rk_to"],
            Self::Container => &["blob"],
            Self::Queue => &[],
        }
    }
}

/// Warns of signatures that add to a queue which takes every operation.
pub(super) fn check(root: &Section<'_>, grants: &[SasGrant], queues: &[QueueSettings]) {
    let sections = root.named("sas");
    for grant in grants
        .iter()
        .filter(|grant| grant.permissions.contains('a'))
    {
        let SasTarget::Queue(name) = &grant.target else {
            continue;
        };
        let is_open = |queue: &&QueueSettings| {
            queue.account == grant.account
                && queue.allowed.ops.is_none()
                && queue.shard_names().contains(name)
        };
        let section = sections
            .iter()
            .find(|(name, _)| *name == grant.name.as_str());
        if let (Some(queue), Some((_, section))) = (queues.iter().find(is_open), section) {
            let problem = format!(
                "queue {:?} takes every operation of whoever has this signature, delete_where and drop_table too; better give it allow",
                queue.name.as_str()
            );
            section.warning("queue", problem);
        }
    }
}

/// Reads every grant.
pub(super) fn read(root: &Section<'_>, accounts: &[AccountName]) -> Vec<SasGrant> {
    root.named("sas")
        .into_iter()
        .filter_map(|(name, section)| grant(name, &section, accounts))
        .collect()
}

fn grant(name: &str, section: &Section<'_>, accounts: &[AccountName]) -> Option<SasGrant> {
    let name = ViewName::new(name)
        .map_err(|error| section.error("", error))
        .ok();
    let account = account(section, accounts, "account");
    let valid = if section.has("valid") {
        section.duration("valid", VALID)
    } else {
        Some(VALID_AS_SHIPPED)
    };
    section.also_known(&[
        "table",
        "container",
        "queue",
        "pk",
        "rk_from",
        "rk_to",
        "blob",
        "permissions",
    ]);
    section.finish();
    let opened: Vec<Opened> = Opened::ALL
        .into_iter()
        .filter(|opened| section.has(opened.key()))
        .collect();
    let [opened] = opened[..] else {
        section.error("table", "expected one of table, container and queue");
        return None;
    };
    for key in Opened::ALL
        .into_iter()
        .filter(|other| *other != opened)
        .flat_map(Opened::own)
        .filter(|key| section.has(key))
    {
        section.error(key, format!("has no meaning with {}", opened.key()));
    }
    let (permissions, target) = (permissions(section, opened), target(section, opened));
    let grant = SasGrant {
        name: name?,
        account: account.ok()?.unwrap_or_else(AccountName::main),
        target: target?,
        permissions: permissions?,
        valid: valid?,
    };
    if let Some(problem) = own(&grant) {
        section.error(opened.key(), problem);
        return None;
    }
    Some(grant)
}

/// The letters, each once, in the service's order.
fn permissions(section: &Section<'_>, opened: Opened) -> Option<String> {
    let (known, usual) = match opened.permissions() {
        // A blob is not listed.
        (known, usual) if section.has("blob") => (known.trim_end_matches('l'), usual),
        all => all,
    };
    if !section.has("permissions") {
        return Some(usual.to_owned());
    }
    section.parsed("permissions", |text| {
        let valid = !text.is_empty() && text.chars().all(|letter| known.contains(letter));
        if valid {
            Ok(known
                .chars()
                .filter(|letter| text.contains(*letter))
                .collect())
        } else {
            Err(format!("expected letters of {known:?}, found {text:?}"))
        }
    })
}

fn target(section: &Section<'_>, opened: Opened) -> Option<SasTarget> {
    match opened {
        Opened::Table => {
            let table = section.parsed("table", str::parse::<TableName>);
            let [pk, rk_from, rk_to] = ["pk", "rk_from", "rk_to"]
                .map(|key| section.optional(key, |section| section.parsed(key, filled)));
            let rows = SasRows {
                pk: pk.ok()?,
                rk_from: rk_from.ok()?,
                rk_to: rk_to.ok()?,
            };
            if let (Some(from), Some(to)) = (&rows.rk_from, &rows.rk_to)
                && sorts_before(to, from)
            {
                section.error("rk_to", "the range of rows ends before it begins");
            }
            Some(SasTarget::Table(table?, rows))
        }
        Opened::Container => {
            let container = section.parsed("container", str::parse::<ContainerName>);
            let blob = section.optional("blob", |section| {
                section.parsed("blob", |name| BlobName::new(name))
            });
            Some(SasTarget::Blob(container?, blob.ok()?))
        }
        Opened::Queue => section
            .parsed("queue", str::parse::<QueueName>)
            .map(SasTarget::Queue),
    }
}

/// A key with a character: the services read an empty end of a range as none.
fn filled(text: &str) -> Result<Key, String> {
    if text.is_empty() {
        Err("expected a key that is not empty".to_owned())
    } else {
        Key::new(text).map_err(|error| error.to_string())
    }
}

/// Why a grant would open the program's own records.
fn own(grant: &SasGrant) -> Option<String> {
    let refuse = |name: &str| {
        Some(format!(
            "{name:?} holds evenkeel's own records, which no application may open"
        ))
    };
    match &grant.target {
        // Wrapped data keys are read by who opens encrypted properties, and added by who seals them.
        SasTarget::Table(table, _) if table.as_str().eq_ignore_ascii_case(KEYS) => {
            let opens_or_seals = matches!(grant.permissions.as_str(), "r" | "ra");
            if opens_or_seals {
                None
            } else {
                Some(format!(
                    "{KEYS:?} holds data keys: expected permissions = \"r\", or \"ra\" for who seals"
                ))
            }
        }
        SasTarget::Table(table, _)
            if table.as_str().to_ascii_lowercase().starts_with("evenkeel") =>
        {
            refuse(table.as_str())
        }
        SasTarget::Queue(queue)
            if ["-poison", "-recheck"]
                .iter()
                .any(|suffix| queue.as_str().ends_with(suffix)) =>
        {
            refuse(queue.as_str())
        }
        SasTarget::Blob(container, _)
            if container.as_str() == STAGING && grant.permissions != "c" =>
        {
            Some(format!(
                "senders stage in {STAGING:?}, where they may create alone: expected permissions = \"c\""
            ))
        }
        SasTarget::Blob(container, _)
            if container.as_str() != STAGING && OWN_CONTAINERS.contains(&container.as_str()) =>
        {
            refuse(container.as_str())
        }
        SasTarget::Table(..) | SasTarget::Queue(_) | SasTarget::Blob(..) => None,
    }
}
