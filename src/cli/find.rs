use anyhow::bail;
use clap::Args;
use serde::Serialize;

use super::exit::client_error;
use super::row::{RowJson, report_encrypted};
use super::{Context, Exit, Output, args, help};
use evenkeel_client::{EntityLocation, FoundEntity};
use evenkeel_model::{EntityKey, Key, ViewName};

#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel find former_employees Sales 000223", "the employee, from its table or from the archive, also while it moves"),
]))]
pub struct FindArgs {
    /// The archive, whose source is searched too
    #[arg(value_name = "ARCHIVE")]
    pub archive: ViewName,
    /// The PartitionKey
    #[arg(value_name = "PK", value_parser = args::key, allow_hyphen_values = true)]
    pub pk: Key,
    /// The RowKey
    #[arg(value_name = "RK", value_parser = args::key, allow_hyphen_values = true)]
    pub rk: Key,
    /// Decrypt encrypted properties, if the configuration has the keys
    #[arg(long)]
    pub decrypt: bool,
    /// Accept plain values of encrypted properties, written before the table was encrypted; without this option, reading one is an error
    #[arg(long, requires = "decrypt")]
    pub allow_plain: bool,
}

#[derive(Serialize)]
struct FoundJson {
    found: &'static str,
    entity: RowJson,
}

pub async fn find(args: &FindArgs, context: &Context, out: &mut Output) -> anyhow::Result<Exit> {
    let key = EntityKey {
        pk: args.pk.clone(),
        rk: args.rk.clone(),
    };
    let archive = &args.archive;
    let client = context.reading(args.allow_plain);
    let Some(FoundEntity { row, at }) = client.find(archive, &key).await.map_err(client_error)?
    else {
        bail!("there is no entity {key} in the archive {archive} or in its source");
    };
    let mut row = row;
    if args.decrypt {
        client
            .decrypt_found(archive, at, &mut row)
            .await
            .map_err(client_error)?;
    }
    let found = match at {
        EntityLocation::Source => "source",
        EntityLocation::Archive => "archive",
    };
    out.value(&FoundJson {
        found,
        entity: RowJson::of(&row),
    })?;
    if args.decrypt {
        report_encrypted(std::slice::from_ref(&row), out)?;
    }
    Ok(Exit::Done)
}
