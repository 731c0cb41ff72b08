//! Circles: one declaration writes, another reads that and writes in turn, and so on back to the first. No two of them need contradict each
//! other, so clauses cannot find one: it is a way through many.
//!
//! | a circle | |
//! |---|---|
//! | of views that write whenever a primary was written | goes round for ever with any properties: refused where it leads over several tables |
//! | with a view over a range in it | that one acts where a value has changed: refused where each view reads a property that the one before it sets |
//! | of archives | brings an entity back as a primary of the first: refused, as the way back is a `restore` job |
//!
//! Where some step of every circle of properties reads nothing of the one before, each change of a value causes finitely many others.

use std::ptr;

use super::clauses::error;
use super::section::Section;
use evenkeel_model::TableName;
use evenkeel_model::catalog::{Archive, Catalog, Declaration, Form, OnConflict, View};

/// Checks that neither views nor archives go round in a circle.
pub(super) fn check(root: &Section<'_>, catalog: &Catalog) {
    let views: Vec<&View> = catalog.views.values().map(AsRef::as_ref).collect();
    for view in &views {
        if view.range().is_some() {
            of_properties(root, view, &views);
        } else {
            of_tables(root, view, &views);
        }
    }
    let archives: Vec<&Archive> = catalog.archives.values().map(AsRef::as_ref).collect();
    for archive in archives.iter().copied() {
        let leads_on = |from: &Archive, to: &Archive| {
            (from.target.table() == Some(&to.source)).then(|| format!("{:?}", to.name.as_str()))
        };
        if let Some([others @ .., _]) = way_back(archive, &archives, leads_on).as_deref() {
            let (source, others) = (&archive.source.table, others.join(", then "));
            let message = format!(
                "the archives go round in a circle: what leaves {source} comes back into it by {others}; the way out of an archive is a restore job"
            );
            error(
                root,
                Declaration::Archive(&archive.name),
                "to.table",
                &message,
            );
        }
    }
}

/// Copies in another table are primaries of the views there, so views that lead back to where they began would copy
/// copies for ever. (A copy in its primary's own table is never a primary.)
fn of_tables(root: &Section<'_>, view: &View, views: &[&View]) {
    let leads_on = |from: &View, to: &View| {
        (from.range().is_none() && elsewhere(from) == Some(&to.source.table))
            .then(|| to.name.to_string())
    };
    let way = way_back(view, views, leads_on);
    if let (Some([others @ .., _]), Some(target)) = (way.as_deref(), target(view)) {
        let (name, source, others) = (&view.name, &view.source.table, others.join(", then "));
        let message = format!(
            "the views go round in a circle: what {name} copies into {target} is copied back into {source} by {others}; expected another table for one of them"
        );
        let key = view.kind.kind().place_key();
        error(root, Declaration::View(name), key, &message);
    }
}

/// A view over a range whose properties come back to it, by way of other views or at once.
fn of_properties(root: &Section<'_>, view: &View, views: &[&View]) {
    let leads_on = |from: &View, to: &View| {
        passed_on(from, to).map(|property| format!("{property}, which {} reads", to.name))
    };
    if let Some(way) = way_back(view, views, leads_on) {
        let message = format!(
            "the views go round in a circle: {} sets {}; expected a property that none of them reads",
            view.name,
            way.join(" and sets ")
        );
        error(root, Declaration::View(&view.name), "set", &message);
    }
}

/// The steps of the shortest way from a declaration back to itself, each in words.
fn way_back<N>(
    first: &N,
    all: &[&N],
    step: impl Fn(&N, &N) -> Option<String>,
) -> Option<Vec<String>> {
    // Those reached, each with the way there.
    let mut reached: Vec<(&N, Vec<String>)> = Vec::new();
    let (mut from, mut at) = ((first, Vec::new()), 0);
    loop {
        let (last, way) = from;
        for next in all.iter().copied() {
            if let Some(words) = step(last, next)
                && !reached.iter().any(|(passed, _)| ptr::eq(*passed, next))
            {
                let way = [way.as_slice(), &[words]].concat();
                if ptr::eq(next, first) {
                    return Some(way);
                }
                reached.push((next, way));
            }
        }
        from = reached.get(at)?.clone();
        at += 1;
    }
}

fn target(view: &View) -> Option<&TableName> {
    view.form().target().map(|target| &target.table)
}

/// The table that a view writes into, where it is not its source.
fn elsewhere(view: &View) -> Option<&TableName> {
    target(view).filter(|target| **target != view.source.table)
}

/// A property that one view sets and the other reads.
fn passed_on(from: &View, to: &View) -> Option<String> {
    if target(from) != Some(&to.source.table) {
        return None;
    }
    let Some((_, set)) = from.set_properties() else {
        // Rows of its own, with any properties; in the primaries' table they are no primaries.
        return elsewhere(from).map(|target| format!("the rows of {target}"));
    };
    // Which of several primaries was written last depends on all of each.
    let reads_all = to.on_conflict == OnConflict::LastWriter
        || matches!(to.form(), Form::Copies { select: None, .. });
    let reads = to.properties();
    let mut names = set.keys();
    names
        .find(|name| reads_all || reads.contains(name.as_str()))
        .cloned()
}
