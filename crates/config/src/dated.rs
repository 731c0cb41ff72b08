//! Views of dated tables. The source of such a view must be the tables of a retention, and its target must have the
//! same dates.

use super::views::{NamedTarget, ViewDraft};
use evenkeel_model::catalog::{DatedRef, FOOTPRINTS, Retention, View};
use evenkeel_model::dated::DatedTables;

type DatedDraft<'a> = ViewDraft<'a, DatedTables>;

/// Builds a view of dated tables. By default, the target is in the account of the source.
pub(super) fn view(
    draft: &DatedDraft<'_>,
    views: &[DatedDraft<'_>],
    retentions: &[Retention],
) -> Option<View<DatedRef>> {
    let retention = retention(draft, views, retentions)
        .map_err(|message| draft.section.error("source", message))
        .ok()?;
    let source = retention.source();
    let place = |target: &NamedTarget<DatedTables>| {
        let named = target
            .accounts
            .as_ref()
            .and_then(|accounts| accounts.iter().next());
        DatedRef {
            account: named.unwrap_or(&source.account).clone(),
            tables: target.tables.clone(),
        }
    };
    let kind = draft.declared.kind.map(&place);
    if let Some(target) = kind.kind().form().target() {
        let section = &draft.section;
        check_target(target, &source)
            .map_err(|message| section.error(kind.kind().target_key(), message))
            .ok()?;
        if target.tables == source.tables && target.account != source.account {
            let message = format!(
                "the tables {} are in account {}; expected the same account, found {}",
                source.tables, source.account, target.account
            );
            section.error("account", message);
        }
    }
    Some(View {
        name: draft.name.clone(),
        source,
        when: draft.when.clone(),
        kind,
        on_conflict: draft.declared.on_conflict.unwrap_or_default(),
    })
}

fn retention<'r>(
    view: &DatedDraft<'_>,
    views: &[DatedDraft<'_>],
    retentions: &'r [Retention],
) -> Result<&'r Retention, String> {
    let tables = &view.source;
    let mut known = retentions.iter();
    let Some(retention) = known.find(|retention| retention.tables == *tables) else {
        if let Some(other) = views.iter().find(|other| other.target() == Some(tables)) {
            return Err(format!(
                "{tables} are written by the view {}; expected the tables of a [retention]",
                other.name
            ));
        }
        let known: Vec<String> = retentions
            .iter()
            .map(|retention| format!("{:?}", retention.tables.to_string()))
            .collect();
        let known = if known.is_empty() {
            "declare [retention.NAME] with these tables".to_owned()
        } else {
            format!("expected one of {}", known.join(", "))
        };
        return Err(format!("no [retention] has the tables {tables}; {known}"));
    };
    let spelled = retention.tables.to_string();
    if spelled != tables.to_string() {
        return Err(format!(
            "[retention.{}] spells its tables {spelled:?}; expected the same spelling",
            retention.name
        ));
    }
    if retention.footprints().is_none() {
        return Err(format!(
            "the names of its footprint tables, {FOOTPRINTS}{tables}, would exceed 63 characters; expected a shorter name"
        ));
    }
    Ok(retention)
}

fn check_target(target: &DatedRef, source: &DatedRef) -> Result<(), String> {
    let (target, source) = (&target.tables, &source.tables);
    if !target.has_dates_of(source) {
        return Err(format!(
            "{target} has other dates than the source; expected \"{}{}\"",
            target.prefix(),
            source.dates()
        ));
    }
    let spelled = source.to_string();
    if target == source && target.to_string() != spelled {
        return Err(format!(
            "the source is spelled {spelled:?}; expected the same spelling"
        ));
    }
    Ok(())
}
