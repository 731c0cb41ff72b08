//! `[sas.NAME]`

use std::time::Duration;

use super::section::Section;
use super::views::account;
use evenkeel_model::large::{OWN_CONTAINERS, STAGING};
use evenkeel_model::names::KEYS;
use evenkeel_model::settings::{QueueSettings, SasGrant, SasRows, SasTarget, sorts_before};
use evenkeel_model::{AccountName, BlobName, ContainerName, Key, QueueName, TableName, ViewName};

/// Bounds of the validity. A user delegation key is valid for a week at most (Azure).
const VALIDITY: std::ops::RangeInclusive<Duration> =
    Duration::from_mins(1)..=Duration::from_hours(7 * 24);
const DEFAULT_VALIDITY: Duration = Duration::from_hours(1);

#[derive(Clone, Copy, PartialEq)]
enum ResourceKind {
    Table,
    Container,
    Queue,
}

impl ResourceKind {
    const ALL: [Self; 3] = [Self::Table, Self::Container, Self::Queue];

    const fn key(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Container => "container",
            Self::Queue => "queue",
        }
    }

    /// Returns all permissions in the order that the service requires, and the default permissions.
    const fn permissions(self) -> (&'static str, &'static str) {
        match self {
            Self::Table => ("raud", "r"),
            Self::Container => ("racwdl", "r"),
            Self::Queue => ("raup", "a"),
        }
    }

    const fn exclusive_keys(self) -> &'static [&'static str] {
        match self {
            Self::Table => &["pk", "rk_from", "rk_to"],
            Self::Container => &["blob"],
            Self::Queue => &[],
        }
    }
}

/// Warns about signatures that may add messages to a queue that accepts every operation.
pub(super) fn check(root: &Section<'_>, grants: &[SasGrant], queues: &[QueueSettings]) {
    let sections = root.subsections("sas");
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
                "queue {:?} accepts every operation from holders of this signature, including delete_where and drop_table. Set allow in its [[queues]] table",
                queue.name.as_str()
            );
            section.warning("queue", problem);
        }
    }
}

pub(super) fn read(root: &Section<'_>, accounts: &[AccountName]) -> Vec<SasGrant> {
    root.subsections("sas")
        .into_iter()
        .filter_map(|(name, section)| grant(name, &section, accounts))
        .collect()
}

fn grant(name: &str, section: &Section<'_>, accounts: &[AccountName]) -> Option<SasGrant> {
    let name = ViewName::new(name)
        .map_err(|error| section.error("", error))
        .ok();
    let account = account(section, accounts, "account");
    let valid = section.with_default("valid", DEFAULT_VALIDITY, |key| {
        section.duration(key, VALIDITY)
    });
    section.mark_known(&[
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
    let resource: Vec<ResourceKind> = ResourceKind::ALL
        .into_iter()
        .filter(|resource| section.has(resource.key()))
        .collect();
    let [resource] = resource[..] else {
        section.error(
            "table",
            "expected exactly one of table, container and queue",
        );
        return None;
    };
    for key in ResourceKind::ALL
        .into_iter()
        .filter(|other| *other != resource)
        .flat_map(ResourceKind::exclusive_keys)
        .filter(|key| section.has(key))
    {
        section.error(key, format!("not allowed with {}", resource.key()));
    }
    let (permissions, target) = (permissions(section, resource), target(section, resource));
    let grant = SasGrant {
        name: name?,
        account: account.ok()?.unwrap_or_else(AccountName::main),
        target: target?,
        permissions: permissions?,
        valid: valid?,
    };
    if let Some(problem) = refusal(&grant) {
        section.error(resource.key(), problem);
        return None;
    }
    Some(grant)
}

fn permissions(section: &Section<'_>, resource: ResourceKind) -> Option<String> {
    let (known, usual) = match resource.permissions() {
        // List permission applies to containers, not to single blobs.
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
            Err(format!(
                "expected one or more letters of {known:?}, found {text:?}"
            ))
        }
    })
}

fn target(section: &Section<'_>, resource: ResourceKind) -> Option<SasTarget> {
    match resource {
        ResourceKind::Table => {
            let table = section.parsed("table", str::parse::<TableName>);
            let [pk, rk_from, rk_to] = ["pk", "rk_from", "rk_to"]
                .map(|key| section.optional(key, |section| section.parsed(key, non_empty_key)));
            let rows = SasRows {
                pk: pk.ok()?,
                rk_from: rk_from.ok()?,
                rk_to: rk_to.ok()?,
            };
            if let (Some(from), Some(to)) = (&rows.rk_from, &rows.rk_to)
                && sorts_before(to, from)
            {
                section.error(
                    "rk_to",
                    format!(
                        "expected at least rk_from ({:?}), found {:?}",
                        from.as_str(),
                        to.as_str()
                    ),
                );
            }
            Some(SasTarget::Table(table?, rows))
        }
        ResourceKind::Container => {
            let container = section.parsed("container", str::parse::<ContainerName>);
            let blob = section.optional("blob", |section| {
                section.parsed("blob", |name| BlobName::new(name))
            });
            Some(SasTarget::Blob(container?, blob.ok()?))
        }
        ResourceKind::Queue => section
            .parsed("queue", str::parse::<QueueName>)
            .map(SasTarget::Queue),
    }
}

/// Parses a key that must not be empty, because the services ignore an empty bound of a range.
fn non_empty_key(text: &str) -> Result<Key, String> {
    if text.is_empty() {
        Err("expected a key, found an empty string".to_owned())
    } else {
        Key::new(text).map_err(|error| error.to_string())
    }
}

/// Returns the reason to refuse a grant that would give access to the program's own records. `None` if the grant is
/// allowed.
fn refusal(grant: &SasGrant) -> Option<String> {
    let refuse = |name: &str| {
        Some(format!(
            "{name:?} holds evenkeel's own records, which applications must not access"
        ))
    };
    match &grant.target {
        // Clients that decrypt properties have to read wrapped data keys, and clients that encrypt properties have to
        // add wrapped data keys.
        SasTarget::Table(table, _) if table.as_str().eq_ignore_ascii_case(KEYS) => {
            let is_allowed = matches!(grant.permissions.as_str(), "r" | "ra");
            if is_allowed {
                None
            } else {
                Some(format!(
                    "{KEYS:?} holds data keys; expected permissions = \"r\", or \"ra\" for clients that encrypt"
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
                "clients may only create blobs in {STAGING:?}; expected permissions = \"c\""
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
