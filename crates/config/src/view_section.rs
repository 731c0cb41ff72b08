//! Implements [`ViewSection`]. Through this trait, the kinds of views in [`catalog`](evenkeel_model::catalog) read the
//! section of a view.

use std::fmt::Display;

use super::section::{AlreadyReported, Section, alternatives};
use super::sinks::{self, Sinks};
use super::views::{NamedTarget, ViewTables, account, account_set, reject_accounts};
use evenkeel_model::catalog::{AccountSet, ReadKind, ViewSection, declared_kinds};
use evenkeel_model::settings::SinkKind;
use evenkeel_model::{AccountName, ViewName};

pub(super) struct DraftSection<'r, 'a, T> {
    pub(super) section: &'r Section<'a>,
    pub(super) name: Option<&'r ViewName>,
    pub(super) source: Option<&'r T>,
    pub(super) accounts: &'r [AccountName],
    pub(super) sinks: Sinks<'r>,
}

/// Reads the key `kind`, and returns the function that reads views of this kind. An unknown kind is reported.
pub(super) fn kind_reader<S: ViewSection>(section: &Section<'_>) -> Option<ReadKind<S>> {
    let kinds = declared_kinds::<S>();
    if !section.has("kind") {
        section.missing("kind", &format!("a kind of view: {}", alternatives(&kinds)));
    }
    section.one_of("kind", &kinds)
}

impl<T: ViewTables> ViewSection for DraftSection<'_, '_, T> {
    type Target = NamedTarget<T>;

    fn is_by_date(&self) -> bool {
        T::BY_DATE
    }

    fn view_name(&self) -> Option<&ViewName> {
        self.name
    }

    fn has(&self, key: &'static str) -> bool {
        self.section.has(key)
    }

    fn error(&self, key: &str, message: impl Display) {
        self.section.error(key, message);
    }

    fn error_in(&self, key: &'static str, name: &str, message: impl Display) {
        if let Some(inner) = self.section.section(key) {
            inner.error(name, message);
        }
    }

    fn ignore_unknown_keys(&self) {
        self.section.ignore_unknown_keys();
    }

    fn required<R, E: Display>(
        &self,
        key: &'static str,
        expected: &str,
        parse: impl FnOnce(&str) -> Result<R, E>,
    ) -> Option<R> {
        self.section.required(key, expected, parse)
    }

    fn parsed<R, E: Display>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<R, E>,
    ) -> Option<R> {
        self.section.parsed(key, parse)
    }

    fn quantity<R>(
        &self,
        key: &'static str,
        expected: &str,
        unit: &str,
        parse: impl FnOnce(&str) -> Result<R, String>,
    ) -> Option<R> {
        self.section.quantity(key, expected, unit, parse)
    }

    fn one_of<R: Copy>(&self, key: &'static str, words: &[(&'static str, R)]) -> Option<R> {
        self.section.one_of(key, words)
    }

    fn list<R>(
        &self,
        key: &'static str,
        read: impl FnMut(String) -> Result<R, String>,
    ) -> Option<Vec<R>> {
        self.section.list(key, read)
    }

    fn texts_by_name(&self, key: &'static str) -> Option<Vec<(&str, &str)>> {
        self.section.texts_by_name(key).map(|(_, texts)| texts)
    }

    fn target(&self, key: &'static str) -> Option<NamedTarget<T>> {
        let tables = self
            .section
            .required(key, "the table for the items of the view", T::target);
        let accounts = self.accounts();
        Some(NamedTarget {
            tables: tables?,
            accounts: accounts.ok()?,
        })
    }

    fn target_in_one_account(&self, key: &'static str, why: &str) -> Option<NamedTarget<T>> {
        let tables = self
            .section
            .required(key, "the table of the entities", T::target);
        let account = self.account(why);
        Some(NamedTarget {
            tables: tables?,
            accounts: account.ok()?.map(AccountSet::from),
        })
    }

    fn source_as_target(&self) -> Option<NamedTarget<T>> {
        Some(NamedTarget {
            tables: self.source?.clone(),
            accounts: None,
        })
    }

    fn account(&self, why: &str) -> Result<Option<AccountName>, AlreadyReported> {
        reject_accounts(self.section, why);
        account(self.section, self.accounts, "account")
    }

    fn accounts(&self) -> Result<Option<AccountSet>, AlreadyReported> {
        if T::BY_DATE {
            return Ok(self
                .account("dated tables must be in one account")?
                .map(AccountSet::from));
        }
        account_set(self.section, self.accounts)
    }

    fn sink<R>(
        &self,
        wanted: (&str, &str),
        of: impl Fn(&SinkKind) -> Option<R>,
    ) -> Option<(AccountName, Option<R>)> {
        sinks::sink_of_view(self.section, self.sinks, wanted, of)
    }
}
