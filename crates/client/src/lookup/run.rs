//! Runs a lookup.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::cursor::{AccountRange, LookupTarget, PAGES, ReadContext, page_rows};
use super::merge::Merge;
use super::query::{Lookup, LookupResult, LookupSubject};
use super::token::{Inside, Position, Token};
use super::{members, merge};
use crate::{ClientError, lists};
use evenkeel_model::catalog::{
    AggregateFunction, Archive, ArchiveTarget, Documents, Form, Members, TableRef, TargetRef, View,
};
use evenkeel_model::condition::Condition;
use evenkeel_model::item::{Owner, SOURCE_PROPERTY, VIEW_PROPERTY};
use evenkeel_model::job::Primary;
use evenkeel_model::patterns::lookup::{self, KeyRange, LookupPlan, Meaning, QueryClass, TermOp};
use evenkeel_model::shared::OwnedProperties;
use evenkeel_model::sink;
use evenkeel_model::template::Template;
use evenkeel_model::{
    BlobName, EdmValue, Entity, EntityKey, Member, Row, Site, TableName, ViewName, limits,
};

impl Lookup<'_> {
    /// Runs the lookup.
    pub async fn run(&self) -> Result<LookupResult, ClientError> {
        let catalog = self.client.catalog();
        self.refuse_encrypted()?;
        if let Some((hashed, requests)) = self.hashed().await? {
            let mut found = Box::pin(hashed.run()).await?;
            found.requests += requests;
            return Ok(found);
        }
        let joins = self.joins()?;
        let mut found = match &self.subject {
            LookupSubject::Table(table) => {
                self.in_own_keys(format!("table {table}"), &self.client.target(table)?)
                    .await?
            }
            LookupSubject::View(name) => match (self.view(name)?, catalog.archives.get(name)) {
                (Some(view), _) => self.in_view(&view).await?,
                (None, Some(archive)) => self.in_archive(archive).await?,
                (None, None) => {
                    return Err(ClientError::unknown(
                        "view",
                        name,
                        catalog
                            .declared()
                            .into_keys()
                            .chain(catalog.archives.keys()),
                    ));
                }
            },
        };
        if self.decrypted
            && let Some(table) = self.result_table()?
        {
            found.requests += self.client.decrypt(&table, &mut found.rows).await?.requests;
        }
        self.join(&joins, &mut found).await?;
        // Properties that were read only for evenkeel itself or for joins are removed.
        if !self.select.is_empty() {
            for row in &mut found.rows {
                row.entity
                    .properties
                    .retain(|name, _| self.select.contains(name));
            }
        }
        Ok(found)
    }

    /// Returns the view with this name. If its source is dated tables, the result is the view of the dated table that
    /// the lookup names.
    fn view(&self, name: &ViewName) -> Result<Option<Arc<View>>, ClientError> {
        let catalog = self.client.catalog();
        match (catalog.dated_views.get(name), &self.table) {
            (None, None) => Ok(catalog.views.get(name).cloned()),
            (None, Some(table)) => {
                let view = catalog
                    .views
                    .get(name)
                    .filter(|view| view.source.table == *table)
                    .cloned();
                let message =
                    || format!("view {name} is not a view of dated tables. Omit the table");
                if view.is_none() {
                    Err(ClientError::Unknown(message()))
                } else {
                    Ok(view)
                }
            }
            (Some(view), None) => {
                let (tables, example) = (&view.source, view.source.at(Timestamp::UNIX_EPOCH));
                Err(ClientError::Unknown(format!(
                    "view {name} has the dated tables {tables} as its source. Name one with --table, such as {example}"
                )))
            }
            (Some(view), Some(table)) => match view.source.tables.period(table) {
                Some((begins, _)) => Ok(Some(Arc::new(view.at(begins)))),
                None => Err(ClientError::Unknown(format!(
                    "{table} does not match {}, the dated tables of view {name}",
                    view.source
                ))),
            },
        }
    }

    async fn in_view(&self, view: &View) -> Result<LookupResult, ClientError> {
        if self.entities || !matches!(view.form(), Form::Copies { .. }) {
            self.refuse_condition(&view.name)?;
        }
        let (mut found, keys) = match view.form() {
            Form::BlobLists(lists) => {
                let names = lookup::blobs(view, lists, &self.terms)?;
                let after = self
                    .start_positions(0)?
                    .inside
                    .pop()
                    .map(|inside| inside.member);
                let account =
                    |name: &BlobName| self.client.account(lists.accounts.holder(name.as_str()));
                let blobs = names
                    .iter()
                    .map(|name| Ok((name, account(name)?)))
                    .collect::<Result<Vec<_>, ClientError>>()?;
                let (rows, more) =
                    members::in_blobs(view, lists, &blobs, after.as_ref(), self.top as usize)
                        .await?;
                let requests = names.len() as u64;
                let keys = rows.iter().map(|row| row.entity.key.clone()).collect();
                let continuation = more.map(|member| {
                    self.token(Vec::new())
                        .inside(vec![Inside { list: None, member }])
                        .encode()
                });
                (
                    LookupResult::new(rows, QueryClass::Point, requests, continuation),
                    keys,
                )
            }
            Form::Documents(documents) => {
                let rows: Vec<Row> = self.in_sink(view, documents).await?.into_iter().collect();
                let keys = rows.iter().map(|row| row.entity.key.clone()).collect();
                (LookupResult::new(rows, QueryClass::Point, 1, None), keys)
            }
            Form::Copies { .. }
            | Form::Lists { .. }
            | Form::Properties { .. }
            | Form::RangeOverlays(_)
            | Form::Values(_) => self.in_rows(view).await?,
        };
        if self.entities {
            let (read, requests) = self.read_all(&view.source, &keys).await?;
            found.rows = read;
            found.requests += requests;
        }
        Ok(found)
    }

    /// Reads the document of a primary and returns it as a row with the primary's keys.
    async fn in_sink(
        &self,
        view: &View,
        documents: &Documents,
    ) -> Result<Option<Row>, ClientError> {
        let what = format!("a document of [views.{}]", view.name);
        let key = self.both_keys(&what)?;
        let primary = Primary {
            table: view.source.table.clone(),
            key,
        };
        let Documents {
            sink, collection, ..
        } = documents;
        let sink = self
            .client
            .stores
            .sink(sink)
            .map_err(|error| ClientError::Unknown(error.to_string()))?;
        let found = sink.get(collection, &sink::key(&primary)).await;
        let found = found.map_err(ClientError::store(format!(
            "could not read the document of {primary} in {collection}"
        )))?;
        if found.as_ref().is_some_and(|document| document.0.is_empty()) {
            return Err(ClientError::Unknown(format!(
                "{what} was sent as an event and cannot be read back. Look up the primary instead"
            )));
        }
        Ok(found.map(|document| {
            let etag = document.token();
            let fields = document
                .0
                .into_iter()
                .filter_map(|(name, value)| Some((name, sink::property(value)?)));
            Row {
                entity: Entity {
                    key: primary.key,
                    properties: fields.collect(),
                },
                etag,
                timestamp: None,
            }
        }))
    }

    /// Returns the entity key from terms for both keys. Any other term is an error.
    fn both_keys(&self, what: &str) -> Result<EntityKey, ClientError> {
        let (Some(pk), Some(rk), 2) = (
            self.value("PartitionKey"),
            self.value("RowKey"),
            self.terms.len(),
        ) else {
            return Err(ClientError::Unknown(format!(
                "{what} is found by the keys of its primary only. Give PartitionKey=… and RowKey=…"
            )));
        };
        EntityKey::new(pk, rk).map_err(|error| ClientError::Unknown(error.to_string()))
    }

    /// Returns the rows of a view and the keys of their primaries.
    async fn in_rows(&self, view: &View) -> Result<(LookupResult, Vec<EntityKey>), ClientError> {
        let plan = lookup::plan(view, &self.terms)?;
        let table = &plan.table.table;
        let found = match view.form() {
            Form::Lists {
                members: Members::Rendered { templates, .. },
                ..
            } => {
                self.in_lists(view, &plan, |member, list| {
                    members::of_list(member, list, table, templates)
                })
                .await?
            }
            Form::Lists {
                members: Members::Contributions(_),
                ..
            } if self.entities => {
                self.in_lists(view, &plan, |member, group| {
                    members::of_group(member, group, table)
                })
                .await?
            }
            Form::Lists {
                members: Members::Contributions(measures),
                ..
            } if plan.ranges.iter().any(KeyRange::is_bucket) => {
                self.over_buckets(view, &plan, measures).await?
            }
            _ => self.read(&plan, view).await?,
        };
        let keys = primaries(view, table, &found.rows)?;
        Ok((found, keys))
    }

    /// Returns the members of the lists in the ranges of a plan. Each member becomes a row. The members are in order.
    async fn in_lists(
        &self,
        view: &View,
        plan: &LookupPlan,
        as_row: impl Fn(&Member, &Row) -> Result<Row, ClientError>,
    ) -> Result<LookupResult, ClientError> {
        let Token {
            ranges: from,
            mut inside,
            ..
        } = self.start_positions(plan.ranges.len())?;
        let (ranges, top) = (self.account_ranges(plan)?, self.top as usize);
        let reading = ReadContext {
            target: LookupTarget::View(view),
            table: &plan.table,
            select: None,
            page: page_rows(self.top),
            pages: PAGES,
            condition: None,
        };
        let failed = |error| ClientError::store(format!("could not read {}", plan.table))(error);
        let mut merge = Merge::start(&reading, &ranges, from)
            .await
            .map_err(failed)?;
        let (mut rows, mut rest) = (Vec::new(), None);
        while rows.len() < top && rest.is_none() {
            let Some((list, _)) = merge.next(&reading).await.map_err(failed)? else {
                break;
            };
            let key = &list.entity.key;
            let site = Site::Row {
                table: plan.table.table.clone(),
                key: key.clone(),
            };
            let found = lists::of_row(&site, &list.entity)?;
            let mark = inside
                .iter()
                .position(|inside| inside.list.as_ref() == Some(key));
            let after = mark.map(|mark| inside.swap_remove(mark).member);
            let mut left = found
                .members
                .into_keys()
                .filter(|member| after.as_ref().is_none_or(|after| member > after));
            let mut last = None;
            for member in left.by_ref().take(top - rows.len()) {
                rows.push(as_row(&member, &list)?);
                last = Some(member);
            }
            if let (Some(member), Some(_)) = (last, left.next()) {
                rest = Some(merge.positions_before_last());
                inside.push(Inside {
                    list: Some(key.clone()),
                    member,
                });
            }
        }
        let rest = rest
            .or_else(|| merge.positions())
            .map(|positions| self.token(positions).inside(inside).encode());
        Ok(LookupResult::new(rows, plan.class, merge.requests(), rest))
    }

    /// Returns the groups in the ranges of a plan, in order. The measures of the buckets of a group are combined, and
    /// the bucket is removed from the key of the group.
    async fn over_buckets(
        &self,
        view: &View,
        plan: &LookupPlan,
        measures: &BTreeMap<String, AggregateFunction>,
    ) -> Result<LookupResult, ClientError> {
        let from = self.start_positions(plan.ranges.len())?.ranges;
        let (ranges, top) = (self.account_ranges(plan)?, self.top as usize);
        let reading = ReadContext {
            target: LookupTarget::View(view),
            table: &plan.table,
            select: None,
            page: limits::PAGE_ROWS,
            pages: PAGES,
            condition: None,
        };
        let failed = |error| ClientError::store(format!("could not read {}", plan.table))(error);
        let mut merge = Merge::start(&reading, &ranges, from)
            .await
            .map_err(failed)?;
        let (mut groups, mut rest): (Vec<Row>, _) = (Vec::new(), None);
        while let Some((row, range)) = merge.next(&reading).await.map_err(failed)? {
            let Some(key) = range.without_buckets(&row.entity.key) else {
                continue;
            };
            if let Some(group) = groups.last_mut().filter(|group| group.entity.key == key) {
                group.entity = added(measures, &group.entity, &row.entity);
                continue;
            }
            if groups.len() == top {
                rest = Some(merge.positions_before_last());
                break;
            }
            groups.push(Row {
                entity: added(measures, &Entity::new(key), &row.entity),
                ..row
            });
        }
        if rest.is_none() && merge.positions().is_some() {
            return Err(ClientError::Unknown(format!(
                "could not add up the buckets of view {}: too many other rows between its groups. Give more values with =",
                view.name
            )));
        }
        let continuation = rest.map(|positions| self.token(positions).encode());
        Ok(LookupResult::new(
            groups,
            plan.class,
            merge.requests(),
            continuation,
        ))
    }

    async fn in_archive(&self, archive: &Archive) -> Result<LookupResult, ClientError> {
        match &archive.target {
            ArchiveTarget::Table(table) => {
                self.in_own_keys(format!("archive {}", archive.name), &table.clone().into())
                    .await
            }
            ArchiveTarget::Blob(_) | ArchiveTarget::File(_) => {
                self.refuse_condition(&archive.name)?;
                let key = self.both_keys(&format!("a document of [archives.{}]", archive.name))?;
                let (row, requests) = self.client.in_archive(archive, &key).await?;
                Ok(LookupResult::new(
                    row.into_iter().collect(),
                    QueryClass::Point,
                    requests,
                    None,
                ))
            }
            ArchiveTarget::Log(_) => {
                let name = &archive.name;
                Err(ClientError::Unknown(format!(
                    "cannot look up entities in log archive {name}. Read it with `evenkeel logs {name}`"
                )))
            }
        }
    }

    /// Returns entities of a table by their own keys. In a table of wide entities, all rows of an entity are read
    /// before the condition is evaluated. For each entity that does not satisfy the condition, another entity is read.
    async fn in_own_keys(
        &self,
        what: String,
        table: &TargetRef,
    ) -> Result<LookupResult, ClientError> {
        let plan = lookup::plan_by_own_keys(what, table, &self.terms, self.scan)?;
        // The table in which all rows of a wide entity are read. A table that is spread over several accounts has no wide
        // entities, so its first account is sufficient.
        let whole_in = table.first();
        let catalog = self.client.catalog();
        let is_wide = catalog.wide.contains(&whole_in);
        // Any row of a wide entity may have a property of the condition, so the condition needs all rows.
        let condition = self.condition.as_ref().filter(|_| !is_wide);
        let reading = ReadContext {
            target: LookupTarget::Own(&table.table),
            table: &plan.table,
            select: (!self.select.is_empty() && !is_wide).then(|| self.selected()),
            page: self.page(condition),
            pages: PAGES,
            condition,
        };
        let (from, ranges, top) = (
            self.start_positions(plan.ranges.len())?.ranges,
            self.account_ranges(&plan)?,
            self.top as usize,
        );
        let failed = |error| ClientError::store(format!("could not read {}", plan.table))(error);
        let mut merge = Merge::start(&reading, &ranges, from)
            .await
            .map_err(failed)?;
        let (mut rows, mut requests) = (Vec::new(), 0);
        for _ in 0..PAGES {
            let most = top - rows.len();
            let read = merge.rows(&reading, most).await.map_err(failed)?;
            let is_last = read.len() < most;
            let (whole, took) = self.complete_all(&whole_in, read).await?;
            rows.extend(whole);
            requests += took;
            if is_last || rows.len() == top {
                break;
            }
        }
        let continuation = merge
            .positions()
            .map(|positions| self.token(positions).encode());
        Ok(LookupResult::new(
            rows,
            plan.class,
            requests + merge.requests(),
            continuation,
        ))
    }

    /// Returns the table that the rows of the result belong to. For archived documents this is the source table of the
    /// archive. A table in several accounts is represented by its first account. `None` if the items of the view are
    /// not rows, such as lists in blobs or documents of sinks.
    fn result_table(&self) -> Result<Option<TableRef>, ClientError> {
        let name = match &self.subject {
            LookupSubject::Table(table) => {
                return self.client.target(table).map(|table| Some(table.first()));
            }
            LookupSubject::View(name) => name,
        };
        Ok(
            match (self.view(name)?, self.client.catalog().archives.get(name)) {
                (Some(view), _) if self.entities => Some(view.source.clone()),
                (Some(view), _) => view.rows().map(|rows| rows.target.first()),
                (None, Some(archive)) => {
                    Some(archive.target.table().unwrap_or(&archive.source).clone())
                }
                (None, None) => None,
            },
        )
    }

    /// Replaces each term on an encrypted property by a term on the keyed hash of that property, and returns the number
    /// of requests sent. `None` if no term names an encrypted property.
    async fn hashed(&self) -> Result<Option<(Self, u64)>, ClientError> {
        let LookupSubject::View(name) = &self.subject else {
            return Ok(None);
        };
        let Some(view) = self.view(name)? else {
            return Ok(None);
        };
        let catalog = self.client.catalog();
        let Some(encrypted) = catalog.encrypted.get(&view.source) else {
            return Ok(None);
        };
        let (mut lookup, mut requests) = (self.clone(), 0);
        for term in lookup
            .terms
            .iter_mut()
            .filter(|term| encrypted.contains(&term.property))
        {
            let property = term.property.clone();
            let hashes = catalog.hashed.get(&view.source).into_iter().flatten();
            let in_keys = view.properties();
            let of_it = |(name, template): &(&String, &Template)| {
                in_keys.contains(name.as_str()) && template.properties().contains(property.as_str())
            };
            let hash = hashes
                .clone()
                .find(of_it)
                .filter(|_| term.op == TermOp::Equal);
            let Some((name, template)) = hash else {
                return Err(ClientError::Unknown(format!(
                    "{property} is encrypted. Look it up by its whole value (`{property}=…`) in a view with its keyed hash in the keys (`hash` of [tables.{}])",
                    view.source.table
                )));
            };
            let mut hashes = Vec::new();
            for text in texts(template, &property, term.values())? {
                hashes.push(self.client.hashed(&view.source, name, &text).await?);
                requests += 1;
            }
            term.value = hashes.first().cloned().unwrap_or_default();
            term.meaning = Meaning::OneOf(hashes);
            term.property.clone_from(name);
        }
        Ok((requests > 0).then_some((lookup, requests)))
    }

    /// Returns an error if the condition names an encrypted property, because encrypted values cannot be compared. Also
    /// returns an error if a key of a join needs an encrypted property, unless the lookup decrypts properties.
    fn refuse_encrypted(&self) -> Result<(), ClientError> {
        if self.condition.is_none() && self.joins.is_empty() {
            return Ok(());
        }
        let catalog = self.client.catalog();
        // For a view, this is the source of the view, because the target table may also contain rows of other views.
        let table = match &self.subject {
            LookupSubject::Table(table) => Some(self.client.target(table)?.table),
            LookupSubject::View(name) => {
                let of_a_view = self.view(name)?.map(|view| view.source.clone());
                let of_an_archive = |archive: &Arc<Archive>| {
                    archive.target.table().unwrap_or(&archive.source).clone()
                };
                of_a_view
                    .or_else(|| catalog.archives.get(name).map(of_an_archive))
                    .map(|table| table.table)
            }
        };
        let everywhere = catalog.encrypted_properties();
        let Some(encrypted) = table.and_then(|table| everywhere.get(&table)) else {
            return Ok(());
        };
        let is_encrypted = |property: &&str| encrypted.contains(*property);
        if let Some(property) = self
            .condition
            .iter()
            .flat_map(Condition::properties)
            .find(is_encrypted)
        {
            return Err(ClientError::Unknown(format!(
                "{property} is encrypted and cannot be used in a condition"
            )));
        }
        match self
            .join_properties()
            .find(is_encrypted)
            .filter(|_| !self.decrypted)
        {
            Some(property) => Err(ClientError::Unknown(format!(
                "{property} is encrypted and cannot be used in the keys of a join unless it is decrypted (--decrypt)"
            ))),
            None => Ok(()),
        }
    }

    fn refuse_condition(&self, name: &ViewName) -> Result<(), ClientError> {
        if self.condition.is_none() {
            return Ok(());
        }
        Err(ClientError::Unknown(format!(
            "cannot filter {name}: conditions apply to tables, archives in tables and secondary indexes only"
        )))
    }

    /// Reads the ranges of a view's plan.
    async fn read(&self, plan: &LookupPlan, view: &View) -> Result<LookupResult, ClientError> {
        let from = self.start_positions(plan.ranges.len())?.ranges;
        let ranges = self.account_ranges(plan)?;
        let condition = self.condition.as_ref();
        let reading = ReadContext {
            target: LookupTarget::View(view),
            table: &plan.table,
            select: self.copy_select(view),
            page: self.page(condition),
            pages: PAGES,
            condition,
        };
        let found = merge::read(&reading, &ranges, from, self.top).await;
        let found = found.map_err(ClientError::store(format!("could not read {}", plan.table)))?;
        let continuation = found
            .positions
            .map(|positions| self.token(positions).encode());
        Ok(LookupResult::new(
            found.rows,
            plan.class,
            found.requests,
            continuation,
        ))
    }

    /// Returns the number of rows per page. Without a condition, this is at most `top`. With a condition, a page is as
    /// large as possible, because it is unknown how many rows satisfy the condition.
    fn page(&self, condition: Option<&Condition>) -> u32 {
        page_rows(if condition.is_some() {
            u32::MAX
        } else {
            self.top
        })
    }

    fn account_ranges<'p>(
        &'p self,
        plan: &'p LookupPlan,
    ) -> Result<Vec<AccountRange<'p>>, ClientError> {
        plan.ranges
            .iter()
            .map(|range| {
                Ok(AccountRange {
                    range,
                    account: self.client.account(&range.account)?,
                })
            })
            .collect()
    }

    /// Returns the positions at which the lookup begins: the positions in the continuation, or the start of each range.
    fn start_positions(&self, ranges: usize) -> Result<Token, ClientError> {
        match &self.after {
            Some(text) => Token::decode(text, &self.scope(), &self.terms, ranges),
            None => Ok(self.token(vec![Position::default(); ranges])),
        }
    }

    fn token(&self, positions: Vec<Position>) -> Token {
        Token::new(&self.scope(), &self.terms, positions)
    }

    /// Returns a text that, together with the terms, identifies the lookup in a continuation.
    fn scope(&self) -> String {
        let place = match (&self.subject, &self.table) {
            (LookupSubject::Table(table), _) => format!("rows of {}", table.canonical()),
            (LookupSubject::View(view), Some(table)) => format!("{view} of {}", table.canonical()),
            (LookupSubject::View(view), None) => view.to_string(),
        };
        // A condition changes which rows are on a page, so a continuation is valid only with the same condition.
        match &self.condition {
            Some(condition) => format!("{place} where {condition}"),
            None => place,
        }
    }

    /// Returns the names of the properties to read if the view has copies: the selected properties, and those that name
    /// the owner. `None` for all properties.
    fn copy_select(&self, view: &View) -> Option<Vec<String>> {
        if !matches!(view.form(), Form::Copies { .. }) {
            return None;
        }
        if self.entities {
            return Some(own().into());
        }
        (!self.select.is_empty()).then(|| self.selected())
    }

    /// Returns the names of the selected properties, and of the properties that decide which rows are returned.
    pub(super) fn selected(&self) -> Vec<String> {
        self.properties().map(str::to_owned).chain(own()).collect()
    }

    fn value(&self, property: &str) -> Option<&str> {
        let term = self
            .terms
            .iter()
            .find(|term| term.property == property && term.op == TermOp::Equal);
        term.map(|term| term.value.as_str())
    }
}

/// Renders a template with each value of a property. A value with which the template cannot be rendered is skipped. If
/// this is the case for all values, the function returns an error.
fn texts(
    template: &Template,
    property: &str,
    values: Vec<EdmValue>,
) -> Result<Vec<String>, ClientError> {
    let (mut texts, mut problem) = (Vec::new(), None);
    for value in values {
        match template.render_text_with(|name| (name == property).then(|| value.clone())) {
            Ok(text) => texts.push(text.unwrap_or_default()),
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    texts.sort_unstable();
    texts.dedup();
    match problem {
        Some(problem) if texts.is_empty() => Err(ClientError::Unknown(problem.to_string())),
        _ => Ok(texts),
    }
}

/// Combines the measures of one bucket of a group with those of the buckets before it.
fn added(
    measures: &BTreeMap<String, AggregateFunction>,
    group: &Entity,
    bucket: &Entity,
) -> Entity {
    let over = |(name, measure): (&String, &AggregateFunction)| {
        let values = [group, bucket]
            .into_iter()
            .filter_map(|entity| entity.get(name).cloned());
        Some((name.clone(), measure.combine(values)?))
    };
    Entity {
        key: group.key.clone(),
        properties: measures.iter().filter_map(over).collect(),
    }
}

fn own() -> [String; 2] {
    [SOURCE_PROPERTY, VIEW_PROPERTY].map(str::to_owned)
}

/// Returns the keys of the primaries that the rows of a view belong to.
fn primaries(view: &View, table: &TableName, rows: &[Row]) -> Result<Vec<EntityKey>, ClientError> {
    Ok(match view.form() {
        Form::Copies { .. } => rows
            .iter()
            .filter_map(|copy| Owner::of(&copy.entity))
            .map(|owner| owner.primary.key)
            .collect(),
        Form::Properties { .. } | Form::RangeOverlays(_) => {
            let site = |key: &EntityKey| Site::Row {
                table: table.clone(),
                key: key.clone(),
            };
            let owned = rows
                .iter()
                .map(|row| OwnedProperties::read(&site(&row.entity.key), &row.entity, &view.name));
            let owned = owned
                .collect::<Result<Vec<Option<OwnedProperties>>, _>>()
                .map_err(|error| ClientError::Broken(error.to_string()))?;
            owned
                .into_iter()
                .flatten()
                .map(|owned| owned.primary.key)
                .collect()
        }
        // The rows of members already have the keys of their primaries.
        Form::Lists { .. } => rows.iter().map(|row| row.entity.key.clone()).collect(),
        Form::BlobLists(_) | Form::Values(_) | Form::Documents(_) => Vec::new(),
    })
}
