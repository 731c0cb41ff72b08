//! Index entities: for each value a list of the primaries that have it.
//!
//! What is derived from one primary is its *membership*: the address of the list and the member. The list itself is a
//! document that many primaries share.

use super::DeriveError;
use crate::catalog::{IndexEntity, View};
use crate::model::job::Primary;
use crate::model::template::{RenderError, Template};
use crate::model::{Entity, EntityKey, ItemAddress, Member, Part, Site, limits};

/// The membership of a primary, where it has one.
pub(super) fn derive(
    view: &View,
    index: &IndexEntity,
    primary: &Primary,
    entity: &Entity,
) -> Result<Option<ItemAddress>, Box<DeriveError>> {
    let problem = |part: &'static str| {
        move |source: RenderError| Box::new(DeriveError::Render { view: view.name.clone(), part, primary: primary.clone(), source })
    };
    let key = |part, template: &Template| template.render(entity).map_err(problem(part));
    let (Some(pk), Some(rk)) = (key("partition_key", &index.partition_key)?, key("row_key", &index.row_key)?) else {
        return Ok(None);
    };
    let mut texts = Vec::with_capacity(index.member.len());
    for template in &index.member {
        match template.render_text(entity).map_err(problem("member"))? {
            Some(text) => texts.push(text),
            None => return Ok(None),
        }
    }
    let member = Member(texts);
    let units = member.to_string().encode_utf16().count();
    if units > limits::MEMBER_UTF16_UNITS {
        return Err(Box::new(DeriveError::LongMember { view: view.name.clone(), primary: primary.clone(), units }));
    }
    Ok(Some(ItemAddress {
        view: view.name.clone(),
        account: index.target.account.clone(),
        site: Site::Row { table: index.target.table.clone(), key: EntityKey { pk, rk } },
        part: Some(Part::Member(member)),
    }))
}
