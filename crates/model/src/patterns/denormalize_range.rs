//! Denormalization from one to many: values of a primary that are set as properties on all entities
//! of a range.
//!
//! A primary does not list the entities of the range one by one, because there may be millions, and
//! they are created and deleted independently of the primary. The primary derives one *range
//! overlay*: the range, and the properties to set on its entities. The passes and jobs that update
//! the entities read the range overlay.

use super::DeriveError;
use super::denormalize;
use super::derive::ViewContext;
use super::lookup::behind;
use crate::catalog::{DenormalizeRange, RangeRows, TableRef};
use crate::range_overlay::{RangeOverlay, TargetRange};
use crate::template::{Escaping, Template};
use crate::{Key, limits};

/// Characters in the ends of a range must be below this character. The service orders keys by
/// UTF-16 units, and the embedded store by UTF-8. If one of two characters is below this character,
/// both stores sort the two characters alike.
const FIRST_AMBIGUOUS_CHAR: char = '\u{d7fe}';

pub(super) fn range_overlay(
    context: &ViewContext<'_>,
    range: &DenormalizeRange,
) -> Result<Option<RangeOverlay>, Box<DeriveError>> {
    let Some(values) = denormalize::values(context, &range.set, &context.primary.key)? else {
        return Ok(None);
    };
    let pk = range
        .partition_key
        .render_as(Escaping::WhereForbidden, context.entity)
        .map_err(|source| context.render_error("partition_key", source))?;
    let Some((pk, (from, before))) = pk.zip(ends(context, &range.rows)?) else {
        return Ok(None);
    };
    let TableRef { account, table } = range.target.at(&pk);
    let target = TargetRange {
        account,
        table,
        pk,
        from,
        before,
    };
    let overlay = RangeOverlay {
        owner: context.primary.key.clone(),
        range: target,
        values,
    };
    let units = overlay.member().to_string().encode_utf16().count();
    if units > limits::RANGE_OVERLAY_UTF16_UNITS {
        return Err(Box::new(DeriveError::LongRangeOverlay {
            view: context.view.name.clone(),
            primary: context.primary.clone(),
            units,
        }));
    }
    Ok(Some(overlay))
}

/// The first row key of the range and the row key after the last one; `None` if the primary has no
/// range.
fn ends(
    context: &ViewContext<'_>,
    rows: &RangeRows,
) -> Result<Option<(Key, Option<Key>)>, Box<DeriveError>> {
    let first = || Key::new("").ok();
    Ok(match rows {
        RangeRows::All => first().map(|first| (first, None)),
        RangeRows::Prefix(prefix) => match end(context, "row_key_prefix", prefix)? {
            None => None,
            Some(prefix) => {
                let before = behind(prefix.as_str()).and_then(|before| Key::new(before).ok());
                Some((prefix, before))
            }
        },
        RangeRows::Between { from, before } => {
            let from = match from {
                None => first(),
                Some(from) => end(context, "row_key_from", from)?,
            };
            let before = match before {
                None => Some(None),
                Some(before) => end(context, "row_key_before", before)?.map(Some),
            };
            from.zip(before)
        }
    })
}

fn end(
    context: &ViewContext<'_>,
    part: &'static str,
    template: &Template,
) -> Result<Option<Key>, Box<DeriveError>> {
    let key = template
        .render_as(Escaping::WhereForbidden, context.entity)
        .map_err(|source| context.render_error(part, source))?;
    if let Some(found) = key
        .as_ref()
        .and_then(|key| key.as_str().chars().find(|c| *c >= FIRST_AMBIGUOUS_CHAR))
    {
        let (view, primary) = (context.view.name.clone(), context.primary.clone());
        return Err(Box::new(DeriveError::RangeEnd {
            view,
            part,
            primary,
            found,
        }));
    }
    Ok(key)
}
