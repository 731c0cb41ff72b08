//! Constructors of the passes that jobs begin.

use crate::env::Env;
use crate::execute::{Delivery, Failure};
use crate::items::document::ArchiveDocument;
use crate::protocol::primary::check_key;
use crate::protocol::run::reconciler::Reconciler;
use crate::protocol::scope::PassOptions;
use evenkeel_model::job::Primary;

pub(crate) fn pass<'e>(
    env: &'e Env,
    primary: &Primary,
    delivery: &'e Delivery,
) -> Result<Reconciler<'e>, Failure> {
    env.table(&primary.table)?;
    pass_over(env, primary, Some(delivery))
}

/// Like [`pass`], but also for an archived entity, which has a document in place of a row.
pub(crate) fn pass_over<'e>(
    env: &'e Env,
    primary: &Primary,
    delivery: Option<&'e Delivery>,
) -> Result<Reconciler<'e>, Failure> {
    pass_with(env, primary, delivery, PassOptions::default())
}

pub(crate) fn pass_with<'e>(
    env: &'e Env,
    primary: &Primary,
    delivery: Option<&'e Delivery>,
    options: PassOptions<'e>,
) -> Result<Reconciler<'e>, Failure> {
    let Some(archived) = env.catalog.archived_values.get(&primary.table) else {
        let source = env.table(&primary.table)?;
        check_key(env, source, &primary.key)?;
        let primary = Primary {
            table: source.table.clone(),
            key: primary.key.clone(),
        };
        return Ok(Reconciler::new(env, source, primary, delivery, options));
    };
    let document = ArchiveDocument::filed(env, env.archive(&archived.archive)?, &primary.key)?;
    let primary = Primary {
        table: archived.table.table.clone(),
        key: primary.key.clone(),
    };
    let options = PassOptions {
        document: Some(document),
        ..options
    };
    Ok(Reconciler::new(
        env,
        &archived.table,
        primary,
        delivery,
        options,
    ))
}
