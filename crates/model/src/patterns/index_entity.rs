//! Index entities: for each value, a list of the primaries that have the value.
//!
//! A primary derives its *membership*: the address of the list, and the member. The list is a row
//! or blob in which many primaries have a member.

use super::DeriveError;
use super::derive::ViewContext;
use crate::template::Template;
use crate::{Member, limits};

/// The membership of a primary; `None` if the primary lacks a property that the member contains.
pub(super) fn membership(
    context: &ViewContext<'_>,
    member: &[Template],
) -> Result<Option<Member>, Box<DeriveError>> {
    let mut texts = Vec::with_capacity(member.len());
    for template in member {
        match template
            .render_text(context.entity)
            .map_err(|source| context.render_error("member", source))?
        {
            Some(text) => texts.push(text),
            None => return Ok(None),
        }
    }
    let member = Member(texts);
    let units = member.to_string().encode_utf16().count();
    if units > limits::MEMBER_UTF16_UNITS {
        return Err(Box::new(DeriveError::LongMember {
            view: context.view.name.clone(),
            primary: context.primary.clone(),
            units,
        }));
    }
    Ok(Some(member))
}
