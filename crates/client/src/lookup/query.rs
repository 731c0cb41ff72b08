//! Lookups and their results.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::join_spec::JoinSpec;
use crate::{Client, ClientError};
use evenkeel_model::condition::Condition;
use evenkeel_model::patterns::lookup::{QueryClass, Term};
use evenkeel_model::{Row, TableName, ViewName};

/// Most rows where nothing is said.
const TOP: u32 = 1_000;

/// A lookup that is being put together.
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

/// What is looked up.
#[derive(Debug, Clone)]
pub(super) enum LookupSubject {
    /// The items of a view, or the entities of an archive.
    View(ViewName),
    /// The entities of a table, by their own keys.
    Table(TableName),
}

/// Result of a lookup.
#[derive(Debug, Clone, PartialEq)]
pub struct LookupResult {
    /// The rows, in the order of their keys, buckets apart.
    pub rows: Vec<Row>,
    /// Of each joined table the entity for each row, in the order of `rows`; `None` where the row lacks a value of the keys, and where
    /// there is no such entity. Rows with one key share one entity.
    pub joined: BTreeMap<TableName, Vec<Option<Arc<Row>>>>,
    /// Class of the query.
    pub class: QueryClass,
    /// Storage requests that it took.
    pub requests: u64,
    /// Where to go on; nothing at the end.
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
    /// Looks up the items of a view, or the entities of an archive, by the values that its keys are made of.
    ///
    /// A term is `Property=value`, `Property>=value`, `Property<value` or `Property^=prefix`. The result: of a secondary index
    /// the copies, of an index entity the members of its lists, of an aggregate the groups (with their figures over all of their buckets), of a
    /// denormalization the entities
    /// that have its properties, of an archive the archived entities (in a table by their keys or ranges of them, in a container
    /// or folder by both keys).
    ///
    /// ```
    /// # use evenkeel_client::{Client, ClientError};
    /// # use evenkeel_model::ViewName;
    /// # async fn example(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let by_name = ViewName::new("employees_by_last_name")?;
    /// // The first twenty with names that begin with K, and their entities.
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

    /// Looks up the entities of a table of the catalog by their own keys: `PartitionKey=Sales`, `RowKey>=0002`.
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

    /// Most rows; 1,000 where nothing is said. Of lists these are members, of groups that are followed to their entities the entities.
    #[must_use]
    pub const fn top(mut self, top: u32) -> Self {
        self.top = top;
        self
    }

    /// Of this table: one of those by date that the view is of.
    #[must_use]
    pub fn table(mut self, table: TableName) -> Self {
        self.table = Some(table);
        self
    }

    /// Only these properties; all where there are none.
    #[must_use]
    pub fn select(mut self, properties: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.select = properties.into_iter().map(Into::into).collect();
        self
    }

    /// Go on where an earlier lookup with the same view and terms ended.
    #[must_use]
    pub fn after(mut self, continuation: impl Into<String>) -> Self {
        self.after = Some(continuation.into());
        self
    }

    /// Only rows that satisfy a condition, in the words of `when`: of a table, of an archive in a table, or of copies. The service leaves out
    /// what it can decide, and reads the others nevertheless: the class of the query says how much that is. Properties that have left the
    /// row of an entity are read for two requests more.
    #[must_use]
    pub fn filtered(mut self, condition: Condition) -> Self {
        self.condition = Some(condition);
        self
    }

    /// May read a whole table, where no term says which partition.
    #[must_use]
    pub const fn scan(mut self) -> Self {
        self.scan = true;
        self
    }

    /// Opens encrypted properties, where the key-encryption keys are here: one more request for each primary that has any.
    #[must_use]
    pub const fn decrypted(mut self) -> Self {
        self.decrypted = true;
        self
    }

    /// Joins each row to an entity of another table, whose keys are made of the row's properties; of several tables, where it is called
    /// several times. The entities come beside the rows, in [`LookupResult::joined`], with all their properties; large values
    /// as pointers to their blobs, as in rows.
    ///
    /// One point read for each distinct key, 16 at a time of each table: 50 employees of five departments take five. One more for each wide
    /// entity of several rows.
    ///
    /// # Errors
    ///
    /// When it is [run](Self::run): [`ClientError::Unknown`] for a table that the catalog does not know, for one that is joined twice, and
    /// for an encrypted property in a key unless the lookup is [`decrypted`](Self::decrypted); [`ClientError::Join`] for a value
    /// that its template makes no key of, such as a Double.
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

    /// The primaries instead of the items derived from them, read in parallel. One that is gone meanwhile is left out.
    #[must_use]
    pub const fn entities(mut self) -> Self {
        self.entities = true;
        self
    }
}
