use clap::Args;

use super::{Exit, Output, help};
use evenkeel_model::job;

#[derive(Debug, Args)]
#[command(after_help = help::after(&[("evenkeel schema > job.schema.json", "saves the schema, for an editor or a validator")]))]
pub struct SchemaArgs {}

pub fn schema(out: &mut Output) -> anyhow::Result<Exit> {
    out.value(&job::schema())?;
    Ok(Exit::Done)
}
