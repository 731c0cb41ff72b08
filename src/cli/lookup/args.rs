//! The arguments.

use clap::Args;

use crate::cli::help;
use evenkeel_client::JoinSpec;
use evenkeel_model::TableName;
use evenkeel_model::condition::Condition;

/// Arguments of `lookup`.
#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel lookup employees_by_email PartitionKey=Sales Email=jun.cao@contoso.com", "one copy, by one point query"),
    ("evenkeel lookup employees_by_last_name PartitionKey=Sales 'LastName^=K' --entities", "the entities themselves, of a prefix"),
    ("evenkeel lookup employees_by_last_name PartitionKey=Sales 'LastName>=K' 'LastName<M' --top 20", "the first twenty of a range"),
    ("evenkeel lookup stock_by_zip 'Zip=\"07000\"'", "a text that could be a number, and no number"),
    ("evenkeel lookup --table Employees PartitionKey=Sales 'RowKey>=0002' --where 'Salary > 100'", "entities by their own keys, filtered"),
    ("evenkeel lookup employees_named LastName=Jones --entities --with 'Departments={PartitionKey}/{DepartmentId}'", "each beside its department"),
    ("evenkeel lookup logins_by_user --table LoginAttempts20261120 User=jun", "of one of many tables by date"),
]))]
#[expect(
    clippy::struct_excessive_bools,
    reason = "one for each switch of the command"
)]
pub struct LookupArgs {
    /// The view, or an archive, whose entities are found by their own keys; then terms: Property=value, Property>=value, Property<value, or
    /// Property^=prefix
    #[arg(value_name = "VIEW|TERM")]
    pub words: Vec<String>,
    /// Without a view: the entities of this table, by their own keys. With one of tables by date: which of them
    #[arg(long, value_name = "TABLE")]
    pub table: Option<TableName>,
    /// Only rows that satisfy this condition, in the words of `when`: of a table, of an archive in a table, or of copies
    #[arg(long = "where", value_name = "CONDITION", value_parser = Condition::parse)]
    pub condition: Option<Condition>,
    /// May read a whole table, where no term says which partition
    #[arg(long)]
    pub scan: bool,
    /// Most rows
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub top: u32,
    /// Only these properties, separated by commas
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub select: Vec<String>,
    /// Go on where an earlier lookup with the same terms ended
    #[arg(long = "continue", value_name = "TOKEN")]
    pub token: Option<String>,
    /// Beside each row the entity of another table whose PartitionKey and RowKey these templates make of the row's properties; several
    /// times for several tables
    #[arg(long = "with", value_name = "TABLE=PK/RK")]
    pub joins: Vec<JoinSpec>,
    /// Open encrypted properties, where this configuration has the key-encryption keys
    #[arg(long)]
    pub decrypt: bool,
    /// Also read encrypted properties that lie in clear, as a table has them from before it said `encrypt`: an error otherwise
    #[arg(long, requires = "decrypt")]
    pub allow_plain: bool,
    /// Print the primaries that the copies belong to
    #[arg(long)]
    pub entities: bool,
}
