use clap::Args;

use crate::cli::help;
use evenkeel_client::JoinSpec;
use evenkeel_model::TableName;
use evenkeel_model::condition::Condition;

#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel lookup employees_by_email PartitionKey=Sales Email=jun.cao@contoso.com", "one copy, by one point query"),
    ("evenkeel lookup employees_by_last_name PartitionKey=Sales 'LastName^=K' --entities", "the entities themselves, by a prefix"),
    ("evenkeel lookup employees_by_last_name PartitionKey=Sales 'LastName>=K' 'LastName<M' --top 20", "the first twenty of a range"),
    ("evenkeel lookup stock_by_zip 'Zip=\"07000\"'", "the text 07000, not the number"),
    ("evenkeel lookup --table Employees PartitionKey=Sales 'RowKey>=0002' --where 'Salary > 100'", "entities by their own keys, filtered"),
    ("evenkeel lookup employees_named LastName=Jones --entities --with 'Departments={PartitionKey}/{DepartmentId}'", "each entity with its department"),
    ("evenkeel lookup logins_by_user --table LoginAttempts20261120 User=jun", "in one of the dated tables"),
]))]
#[expect(
    clippy::struct_excessive_bools,
    reason = "one for each switch of the command"
)]
pub struct LookupArgs {
    /// A view or an archive, then terms: Property=value, Property>=value, Property<value or Property^=prefix (for an archive, terms for its own keys)
    #[arg(value_name = "VIEW|TERM")]
    pub words: Vec<String>,
    /// Table to look up by its own keys; with a view of dated tables, the source table of one date
    #[arg(long, value_name = "TABLE")]
    pub table: Option<TableName>,
    /// Only rows that satisfy this condition (tables, archives in tables, copies)
    #[arg(long = "where", value_name = "CONDITION", value_parser = Condition::parse)]
    pub condition: Option<Condition>,
    /// Allow a table scan, if no term gives the partition
    #[arg(long)]
    pub scan: bool,
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub top: u32,
    /// Only these properties, separated by commas
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub select: Vec<String>,
    /// Continue an earlier lookup with the same terms
    #[arg(long = "continue", value_name = "TOKEN")]
    pub token: Option<String>,
    /// Join an entity of another table: PK and RK are templates over the row's properties; repeatable
    #[arg(long = "with", value_name = "TABLE=PK/RK")]
    pub joins: Vec<JoinSpec>,
    /// Decrypt encrypted properties, if the configuration has the keys
    #[arg(long)]
    pub decrypt: bool,
    /// Accept plain values of encrypted properties, written before the table was encrypted; without this option, reading one is an error
    #[arg(long, requires = "decrypt")]
    pub allow_plain: bool,
    /// Print the primaries instead of the copies or members
    #[arg(long)]
    pub entities: bool,
}
