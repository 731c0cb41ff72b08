//! `[retention.NAME]`

use std::time::Duration;

use super::archives::{SHARED_FOLDER, shared_folder};
use super::section::Section;
use super::views::{account, user_tables};
use evenkeel_model::catalog::{Retention, TableArchive};
use evenkeel_model::{AccountName, ContainerName, ViewName};

/// Maximum age of tables: ten years.
const MAX_KEEP: Duration = Duration::from_hours(24 * 3_660);

pub(super) fn retentions(root: &Section<'_>, accounts: &[AccountName]) -> Vec<Retention> {
    root.subsections("retention")
        .into_iter()
        .filter_map(|(name, section)| retention(name, &section, accounts))
        .collect()
}

fn retention(name: &str, section: &Section<'_>, accounts: &[AccountName]) -> Option<Retention> {
    let name = ViewName::new(name)
        .map_err(|error| section.error("", error))
        .ok();
    let tables = section.required(
        "tables",
        "a pattern of table names, such as \"LoginAttempts%Y%m%d\"",
        user_tables,
    );
    let keep = section.duration("keep", Duration::from_hours(1)..=MAX_KEEP);
    let account = account(section, accounts, "account");
    let archive_to = section.optional("archive_to", |section| {
        archive_to(&section.section("archive_to")?, accounts)
    });
    section.finish();
    let account = account.ok()?.unwrap_or_else(AccountName::main);
    Some(Retention {
        name: name?,
        account,
        tables: tables?,
        keep: keep?,
        ahead: Retention::AHEAD,
        archive_to: archive_to.ok()?,
    })
}

fn archive_to(to: &Section<'_>, accounts: &[AccountName]) -> Option<TableArchive> {
    #[derive(Clone, Copy)]
    enum Medium {
        Blob,
        File,
    }
    let media = [("blob", Medium::Blob), ("file", Medium::File)];
    let target = match to.required_one_of("kind", &media) {
        None => None,
        Some(Medium::Blob) => {
            let container = to.required(
                "container",
                "the container of the files",
                str::parse::<ContainerName>,
            );
            let account = account(to, accounts, "account");
            account.ok().and_then(|account| {
                Some(TableArchive::Blob {
                    account: account.unwrap_or_else(AccountName::main),
                    container: container?,
                })
            })
        }
        Some(Medium::File) => to
            .required("dir", SHARED_FOLDER, shared_folder)
            .map(|dir| TableArchive::File { dir }),
    };
    to.finish();
    target
}
