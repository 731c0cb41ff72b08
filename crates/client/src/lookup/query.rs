//! Lookups and their results.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::join_spec::JoinSpec;
use crate::{Client, ClientError};
use evenkeel_model::condition::Condition;
use evenkeel_model::patterns::lookup::{QueryClass, Term};
use evenkeel_model::{Row, TableName, ViewName};

/// Default maximum number of rows.
const TOP: u32 = 1_000;

/// Builder of a lookup.
#[derive(Debug, Clone)]
pub struct Lookup<'c> {
    pub(super) client: &'c Client,
    pub(super) subject: LookupSubject,
    pub(super) table: Option<TableName>,
    pub(super) terms: Vec<Term>,
    pub(super) top: u32,
    pub(super) select: Vec<String>,
    pub(super) after: Option<String>,
    pub(super) entities: bool,
    pub(super) decrypted: bool,
    pub(super) condition: Option<Condition>,
    pub(super) scan: bool,
    pub(super) joins: Vec<JoinSpec>,
}

#[derive(Debug, Clone)]
pub(super) enum LookupSubject {
    /// The items of a view, or the entities of an archive.
    View(ViewName),
    /// The entities of a table, which are looked up by their own keys.
    Table(TableName),
}

/// The result of a lookup.
#[derive(Debug, Clone, PartialEq)]
pub struct LookupResult {
    /// The rows in the order of their keys. Buckets are ignored in this order.
    pub rows: Vec<Row>,
    /// For each joined table, the entities that are joined to the rows, in the order of `rows`. An entity is `None` if
    /// it does not exist, or if the row lacks a property of its key. Rows with the same key share one entity.
    pub joined: BTreeMap<TableName, Vec<Option<Arc<Row>>>>,
    /// The class of the query.
    pub class: QueryClass,
    /// Storage requests sent.
    pub requests: u64,
    /// Token with which another lookup continues; `None` at the end.
    pub continuation: Option<String>,
}

impl LookupResult {
    pub(super) const fn new(
        rows: Vec<Row>,
        class: QueryClass,
        requests: u64,
        continuation: Option<String>,
    ) -> Self {
        Self {
            rows,
            joined: BTreeMap::new(),
            class,
            requests,
            continuation,
        }
    }
}

impl Client {
    /// Looks up the items of a view, or the entities of an archive, by the values in their keys.
    ///
    /// A term is `Property=value`, `Property>=value`, `Property<value` or `Property^=prefix`. The result depends on the view:
    ///
    /// - a secondary index returns its copies;
    /// - an index entity returns the members of its lists;
    /// - an aggregate returns its groups, each with its measures over all buckets;
    /// - a denormalization returns the entities that have its properties;
    /// - an archive in a table returns archived entities by their keys or ranges of keys;
    /// - an archive in a container or folder returns an archived entity by both its keys.
    ///
    /// ```
    /// # use evenkeel_client::{Client, ClientError};
    /// # use evenkeel_model::ViewName;
    /// # async fn example(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let by_name = ViewName::new("employees_by_last_name")?;
    /// // The first twenty names that begin with K, and their entities.
    /// let mut lookup = client.lookup(&by_name, &["PartitionKey=Sales", "LastName^=K"])?.top(20).entities();
    /// loop {
    ///     let found = lookup.run().await?;
    ///     for employee in &found.rows {
    ///         println!("{}", employee.entity.key);
    ///     }
    ///     // The next twenty.
    ///     let Some(continuation) = found.continuation else { break };
    ///     lookup = lookup.after(continuation);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn lookup(
        &self,
        view: &ViewName,
        terms: &[impl AsRef<str>],
    ) -> Result<Lookup<'_>, ClientError> {
        Lookup::of(self, LookupSubject::View(view.clone()), terms)
    }

    /// Looks up entities of a table of the catalog by their own keys: `PartitionKey=Sales`, `RowKey>=0002`.
    pub fn lookup_table(
        &self,
        table: &TableName,
        terms: &[impl AsRef<str>],
    ) -> Result<Lookup<'_>, ClientError> {
        Lookup::of(self, LookupSubject::Table(table.clone()), terms)
    }
}

impl<'c> Lookup<'c> {
    fn of(
        client: &'c Client,
        subject: LookupSubject,
        terms: &[impl AsRef<str>],
    ) -> Result<Self, ClientError> {
        let terms = terms
            .iter()
            .map(|term| term.as_ref().parse())
            .collect::<Result<_, _>>()?;
        let (select, top) = (Vec::new(), TOP);
        Ok(Self {
            client,
            subject,
            table: None,
            terms,
            top,
            select,
            after: None,
            entities: false,
            decrypted: false,
            condition: None,
            scan: false,
            joins: Vec::new(),
        })
    }

    /// Limits the number of rows; the default is 1,000. In lists the rows are members. In groups the rows are groups,
    /// or entities if [`entities`](Self::entities) is used.
    #[must_use]
    pub const fn top(mut self, top: u32) -> Self {
        self.top = top;
        self
    }

    /// Selects one of the dated tables that are the source of the view.
    #[must_use]
    pub fn table(mut self, table: TableName) -> Self {
        self.table = Some(table);
        self
    }

    /// Reads only these properties. If the selection is empty, all properties are read.
    #[must_use]
    pub fn select(mut self, properties: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.select = properties.into_iter().map(Into::into).collect();
        self
    }

    /// Continues where an earlier lookup with the same view and terms ended.
    #[must_use]
    pub fn after(mut self, continuation: impl Into<String>) -> Self {
        self.after = Some(continuation.into());
        self
    }

    /// Returns only rows that satisfy a condition in the language of `when`. The condition applies to tables, archives in tables, and
    /// copies. The service evaluates as much of the condition as it can, but it still reads the rows that do not satisfy the condition.
    /// The class of the query shows how many rows the service may read. If the condition needs properties that are not in the first row
    /// of an entity, two more requests read them.
    #[must_use]
    pub fn filtered(mut self, condition: Condition) -> Self {
        self.condition = Some(condition);
        self
    }

    /// Allows reading a whole table if no term gives the partition.
    #[must_use]
    pub const fn scan(mut self) -> Self {
        self.scan = true;
        self
    }

    /// Decrypts properties if the key-encryption keys are available. This takes one more request for each primary with
    /// encrypted properties.
    #[must_use]
    pub const fn decrypted(mut self) -> Self {
        self.decrypted = true;
        self
    }

    /// Joins each row with an entity of another table, whose keys are made from properties of the row. Call this once for each table.
    /// [`LookupResult::joined`] contains the entities with all their properties. Large values are pointers to their blobs, as they are
    /// in rows.
    ///
    /// This takes one point read for each distinct key: 50 employees of five departments take five point reads. Up to 16 entities of each
    /// table are read at once. If an entity has several rows, it takes one more request.
    ///
    /// # Errors
    ///
    /// [`run`](Self::run) returns [`ClientError::Unknown`] for a table that is not in the catalog and for a table that is joined twice. It
    /// returns the same error for an encrypted property in a key unless the lookup is [`decrypted`](Self::decrypted). It returns
    /// [`ClientError::Join`] for a value that cannot be part of a key, such as a Double.
    ///
    /// ```
    /// # use evenkeel_client::Client;
    /// # use evenkeel_model::{TableName, ViewName};
    /// # async fn example(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let by_name = ViewName::new("employees_by_last_name")?;
    /// let lookup = client.lookup(&by_name, &["PartitionKey=Sales", "LastName^=K"])?.entities();
    /// let found = lookup.with("Departments={PartitionKey}/{DepartmentId}".parse()?).run().await?;
    /// for (employee, department) in found.rows.iter().zip(&found.joined[&TableName::new("Departments")?]) {
    ///     let name = department.as_ref().and_then(|department| department.entity.text("Name"));
    ///     println!("{}: {}", employee.entity.key, name.unwrap_or("no department"));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with(mut self, join: JoinSpec) -> Self {
        self.joins.push(join);
        self
    }

    /// Returns the primaries instead of the derived items. The primaries are read in parallel. A primary that was
    /// deleted meanwhile is left out.
    #[must_use]
    pub const fn entities(mut self) -> Self {
        self.entities = true;
        self
    }
}
