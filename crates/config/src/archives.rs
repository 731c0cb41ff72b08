//! `[archives.NAME]`: where entities are stored after they leave their table.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::section::Section;
use super::views::{account, reject_accounts, user_table};
use evenkeel_model::catalog::{BlobTarget, FileTarget, LogTarget};
use evenkeel_model::document::{DEFAULT_PATH, DocumentPath};
use evenkeel_model::entity::valid_property_name;
use evenkeel_model::large::OWN_CONTAINERS;
use evenkeel_model::log::LogPath;
use evenkeel_model::names::NameError;
use evenkeel_model::template::Template;
use evenkeel_model::{AccountName, ContainerName, TableName, ViewName};

const LOG_PATH: &str = "logs/%Y/%m/%d/%H00";

pub(super) struct ArchiveDraft<'a> {
    pub(super) section: Section<'a>,
    pub(super) to: Section<'a>,
    pub(super) name: ViewName,
    pub(super) source: TableName,
    pub(super) target: TargetDraft,
}

pub(super) enum TargetDraft {
    /// A table, and its account if the section has one.
    Table(TableName, Option<AccountName>),
    Blob(BlobTarget),
    File(FileTarget),
    Log(LogTarget),
}

pub(super) fn archives<'a>(root: &Section<'a>, accounts: &[AccountName]) -> Vec<ArchiveDraft<'a>> {
    root.subsections("archives")
        .into_iter()
        .filter_map(|(name, section)| archive(name, section, accounts))
        .collect()
}

fn archive<'a>(
    name: &str,
    section: Section<'a>,
    accounts: &[AccountName],
) -> Option<ArchiveDraft<'a>> {
    let name = ViewName::new(name)
        .map_err(|error| section.error("", error))
        .ok();
    let source = section.required("source", "the table of the primaries", user_table);
    let to = section.section("to");
    if !section.has("to") {
        section.error("to", "missing; expected { kind = \"table\", table = \"…\" }, { kind = \"blob\", container = \"…\" }, { kind = \"file\", dir = \"…\" } or { kind = \"append_blob\", container = \"…\" }");
    }
    section.finish();
    let to = to?;
    let read = to.required_one_of("kind", &TARGETS)?;
    let target = read(&to, accounts);
    to.finish();
    if let (Some(source), Some(TargetDraft::Table(table, _))) = (&source, &target)
        && source == table
    {
        let message = format!("{source} is the source of this archive; expected another table");
        to.error("table", message);
        return None;
    }
    Some(ArchiveDraft {
        name: name?,
        source: source?,
        target: target?,
        section,
        to,
    })
}

type ReadTarget = fn(&Section<'_>, &[AccountName]) -> Option<TargetDraft>;

const TARGETS: [(&str, ReadTarget); 4] = [
    ("table", table),
    ("blob", blob),
    ("file", file),
    ("append_blob", log),
];

fn table(to: &Section<'_>, accounts: &[AccountName]) -> Option<TargetDraft> {
    let target = to.required("table", "the table for archived entities", user_table);
    reject_accounts(
        to,
        "archived entities are not redistributed when an account is added",
    );
    let account = account(to, accounts, "account");
    Some(TargetDraft::Table(target?, account.ok()?))
}

fn blob(to: &Section<'_>, accounts: &[AccountName]) -> Option<TargetDraft> {
    let container = to.required("container", "the container of the documents", container);
    reject_accounts(
        to,
        "archived entities are not redistributed when an account is added",
    );
    let account = account(to, accounts, "account");
    let path = path(to);
    let mut metadata: Option<BTreeMap<String, Template>> = Some(BTreeMap::new());
    let texts = to.texts_by_name("metadata").map(|(_, texts)| texts);
    for (name, text) in texts.unwrap_or_default() {
        let template = metadatum(to, name, text);
        if let Some(same) = metadata
            .iter()
            .flat_map(BTreeMap::keys)
            .find(|known| known.eq_ignore_ascii_case(name))
        {
            to.error(
                "metadata",
                format!("{name:?} and {same:?} differ only in case, which HTTP headers ignore"),
            );
        }
        match (&mut metadata, template) {
            (Some(metadata), Some(template)) => drop(metadata.insert(name.to_owned(), template)),
            _ => metadata = None,
        }
    }
    Some(TargetDraft::Blob(BlobTarget {
        account: account.ok()?.unwrap_or_else(AccountName::main),
        container: container?,
        path: path?,
        metadata: metadata?,
    }))
}

pub(super) const SHARED_FOLDER: &str =
    "a folder that every worker shares, such as \"/mnt/archive/employees\"";

/// Parses an absolute folder and removes repeated slashes, `.` and a slash at the end, because footprints identify files by the
/// text of their folder.
pub(super) fn shared_folder(text: &str) -> Result<String, String> {
    let path = Path::new(text);
    if !path.is_absolute() {
        return Err(format!(
            "expected an absolute path of a folder that all workers share, found {text:?}"
        ));
    }
    if path
        .components()
        .any(|component| component == Component::ParentDir)
    {
        return Err(format!("expected a path without \"..\", found {text:?}"));
    }
    Ok(path
        .components()
        .collect::<PathBuf>()
        .to_string_lossy()
        .into_owned())
}

fn file(to: &Section<'_>, _: &[AccountName]) -> Option<TargetDraft> {
    let dir = to.required("dir", SHARED_FOLDER, shared_folder);
    let path = path(to);
    Some(TargetDraft::File(FileTarget {
        dir: dir?,
        path: path?,
    }))
}

fn log(to: &Section<'_>, accounts: &[AccountName]) -> Option<TargetDraft> {
    let container = to.required("container", "the container of the logs", container);
    reject_accounts(
        to,
        "archived entities are not redistributed when an account is added",
    );
    let account = account(to, accounts, "account");
    let path = if to.has("path") {
        to.parsed("path", LogPath::parse)
    } else {
        LogPath::parse(LOG_PATH).ok()
    };
    let time = to.optional("time", |to| to.parsed("time", property));
    let spread = to.with_default("spread", 1, |key| to.integer(key, 1..=64));
    Some(TargetDraft::Log(LogTarget {
        account: account.ok()?.unwrap_or_else(AccountName::main),
        container: container?,
        path: path?,
        time: time.ok()?,
        spread: spread?,
        roll_at: LogTarget::ROLL_AT,
    }))
}

fn property(text: &str) -> Result<String, String> {
    if valid_property_name(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("expected the name of a property, found {text:?}"))
    }
}

/// Refuses the program's own containers, because the program deletes staged blobs in them and trusts their content.
fn container(text: &str) -> Result<ContainerName, String> {
    if OWN_CONTAINERS.contains(&text) {
        return Err(format!(
            "{text} is reserved for evenkeel; expected another container"
        ));
    }
    text.parse().map_err(|error: NameError| error.to_string())
}

fn path(to: &Section<'_>) -> Option<DocumentPath> {
    if to.has("path") {
        to.parsed("path", DocumentPath::parse)
    } else {
        DocumentPath::parse(DEFAULT_PATH).ok()
    }
}

fn metadatum(to: &Section<'_>, name: &str, text: &str) -> Option<Template> {
    let identifier = !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !identifier {
        to.error("metadata", format!("{name:?} is not a metadata name; expected letters, digits and underscores, not starting with a digit"));
        return None;
    }
    Template::parse_text(text)
        .map_err(|error| to.error("metadata", format!("{name}: {error}")))
        .ok()
}
