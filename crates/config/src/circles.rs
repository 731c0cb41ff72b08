//! Circles of views: one writes, another reads that and writes in turn, and so on back to the first.
//!
//! | a circle | |
//! |---|---|
//! | of views that write whenever a primary was written | goes round for ever with any properties: refused where it leads over several tables |
//! | with a view over a range in it | that one acts where a value has changed: refused where each view reads a property that the one before it sets |
//!
//! Where some step of every circle reads nothing of the one before, each change of a value causes finitely many others: record 67.

use std::collections::BTreeSet;

use super::views::ViewDraft;
use evenkeel_model::TableName;
use evenkeel_model::catalog::{Form, OnConflict, RowForm};
use evenkeel_model::condition::Condition;
use evenkeel_model::template::Template;

/// Checks that no views go round in a circle.
pub(super) fn check(views: &[ViewDraft<'_>]) {
    of_tables(views);
    of_properties(views);
}

/// Copies in another table are primaries of the views there, so views that lead back to where they began would copy
/// copies for ever. (A copy in its primary's own table is never a primary.)
fn of_tables(views: &[ViewDraft<'_>]) {
    let leads_on = |view: &ViewDraft<'_>| {
        !is_range(view) && view.target().is_some_and(|target| *target != view.source)
    };
    for view in views.iter().filter(|view| leads_on(view)) {
        let mut reached: Vec<&TableName> = view.target().into_iter().collect();
        let mut at = 0;
        while let Some(table) = reached.get(at).copied() {
            for next in views
                .iter()
                .filter(|next| next.source == *table && leads_on(next))
                .filter_map(ViewDraft::target)
            {
                if !reached.contains(&next) {
                    reached.push(next);
                }
            }
            at += 1;
        }
        if reached.contains(&&view.source) {
            view.section.error(
                "table",
                format!(
                    "the views go round in a circle: what {} copies into {} is copied back into {}",
                    view.name, reached[0], view.source
                ),
            );
        }
    }
}

/// A view over a range whose properties come back to it, by way of other views or at once.
fn of_properties(views: &[ViewDraft<'_>]) {
    for view in views.iter().filter(|view| is_range(view)) {
        if let Some(way) = way_back(views, view) {
            let way = way.join(" and sets ");
            let message = format!(
                "the views go round in a circle: {} sets {way}; expected a property that none of them reads",
                view.name
            );
            view.section.error("set", message);
        }
    }
}

/// The shortest way from a view back to itself: each step a property, and the view that reads it.
fn way_back(views: &[ViewDraft<'_>], first: &ViewDraft<'_>) -> Option<Vec<String>> {
    // The views reached, each with a property read of the one before, and the index of that one.
    let mut reached: Vec<(&ViewDraft<'_>, String, Option<usize>)> = Vec::new();
    let mut last = None;
    loop {
        let from = last.map_or(first, |last: usize| reached[last].0);
        for next in views {
            if let Some(property) = passed_on(from, next)
                && !reached.iter().any(|(passed, ..)| passed.name == next.name)
            {
                reached.push((next, property, last));
            }
        }
        let at = last.map_or(0, |last| last + 1);
        let (reader, ..) = reached.get(at)?;
        if reader.name == first.name {
            let back =
                std::iter::successors(reached.get(at), |(.., before)| reached.get((*before)?));
            let mut way: Vec<String> = back
                .map(|(reader, property, _)| format!("{property}, which {} reads", reader.name))
                .collect();
            way.reverse();
            return Some(way);
        }
        last = Some(at);
    }
}

fn is_range(view: &ViewDraft<'_>) -> bool {
    matches!(view.form(), Form::Claims(_))
}

/// A property that one view sets and the other reads.
fn passed_on(from: &ViewDraft<'_>, to: &ViewDraft<'_>) -> Option<String> {
    let target = from.target().filter(|target| **target == to.source)?;
    match (from.sets(), reads(to)) {
        (Some(set), Some(reads)) => set
            .keys()
            .find(|name| reads.contains(name.as_str()))
            .cloned(),
        (Some(set), None) => set.keys().next().cloned(),
        // Rows of its own, with any properties; in the primaries' table they are no primaries.
        (None, _) => (*target != from.source).then(|| format!("the rows of {target}")),
    }
}

/// The properties of its primaries that a view derives from; `None` for all.
fn reads<'v>(view: &'v ViewDraft<'_>) -> Option<BTreeSet<&'v str>> {
    // Which of several primaries was written last depends on all of each.
    if view.declared.on_conflict == Some(OnConflict::LastWriter)
        || matches!(view.form(), Form::Copies { select: None, .. })
    {
        return None;
    }
    let mut names = view
        .when
        .as_ref()
        .map(Condition::properties)
        .unwrap_or_default();
    let keys = view.rows().into_iter().flat_map(
        |RowForm {
             partition_key,
             row_key,
             ..
         }| [partition_key, row_key],
    );
    names.extend(keys.flat_map(Template::properties));
    names.extend(view.form().properties());
    Some(names)
}
