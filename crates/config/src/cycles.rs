//! Finds cycles of declarations. In a cycle, each declaration writes what the next one reads, and the last one writes what the first
//! one reads. Clauses compare only two declarations at a time, so they cannot find a cycle.
//!
//! | cycle of | refused if |
//! |---|---|
//! | views that write whenever a primary is written | it spans several tables, because its writes would never end |
//! | views, at least one of which is over a range (such a view writes only changed values) | each view reads a property that the previous view sets |
//! | archives | always, because archived entities would become primaries again; only a `restore` job may do that |
//!
//! In the second case, there is no cycle if one view reads none of the properties that the previous view sets: a change of a value then
//! causes only finitely many further changes.

use std::ptr;

use super::clauses::error;
use super::section::Section;
use evenkeel_model::TableName;
use evenkeel_model::catalog::{Archive, Catalog, Declaration, Form, OnConflict, View};

pub(super) fn check(root: &Section<'_>, catalog: &Catalog) {
    let views: Vec<&View> = catalog.views.values().map(AsRef::as_ref).collect();
    for view in &views {
        if view.range().is_some() {
            check_properties(root, view, &views);
        } else {
            check_tables(root, view, &views);
        }
    }
    let archives: Vec<&Archive> = catalog.archives.values().map(AsRef::as_ref).collect();
    for archive in archives.iter().copied() {
        let step = |from: &Archive, to: &Archive| {
            (from.target.table() == Some(&to.source)).then(|| format!("{:?}", to.name.as_str()))
        };
        if let Some([others @ .., _]) = shortest_cycle(archive, &archives, step).as_deref() {
            let (source, others) = (&archive.source.table, others.join(", then "));
            let message = format!(
                "the archives form a cycle: entities archived from {source} come back through {others}. Use a restore job to bring entities back"
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

/// Reports a cycle of copies. Copies in another table are primaries of the views of that table, so a cycle would copy copies for
/// ever. A copy in the table of its primary is never a primary.
fn check_tables(root: &Section<'_>, view: &View, views: &[&View]) {
    let step = |from: &View, to: &View| {
        (from.range().is_none() && other_table(from) == Some(&to.source.table))
            .then(|| to.name.to_string())
    };
    let way = shortest_cycle(view, views, step);
    if let (Some([others @ .., _]), Some(target)) = (way.as_deref(), target(view)) {
        let (name, source, others) = (&view.name, &view.source.table, others.join(", then "));
        let message = format!(
            "the views form a cycle: {name} copies {source} into {target}, and {others} copies it back; expected another table for one of them"
        );
        let key = view.kind.kind().target_key();
        error(root, Declaration::View(name), key, &message);
    }
}

/// Reports a view over a range that reads, directly or through other views, a property that it sets.
fn check_properties(root: &Section<'_>, view: &View, views: &[&View]) {
    let step = |from: &View, to: &View| {
        dependency(from, to)
            .map(|writes| format!("{} {writes}, which {} reads", from.name, to.name))
    };
    if let Some(way) = shortest_cycle(view, views, step) {
        let message = format!(
            "the views form a cycle: {}. Set a property that none of them reads",
            way.join("; ")
        );
        error(root, Declaration::View(&view.name), "set", &message);
    }
}

/// Returns the shortest cycle from a declaration back to itself, with a text for each step.
fn shortest_cycle<N>(
    first: &N,
    all: &[&N],
    step: impl Fn(&N, &N) -> Option<String>,
) -> Option<Vec<String>> {
    // The declarations that a breadth-first search has reached, each with the steps that lead to it.
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

fn other_table(view: &View) -> Option<&TableName> {
    target(view).filter(|target| **target != view.source.table)
}

/// Describes what `from` writes and `to` reads, as a text that begins with a verb.
fn dependency(from: &View, to: &View) -> Option<String> {
    if target(from) != Some(&to.source.table) {
        return None;
    }
    let Some((_, set)) = from.set_properties() else {
        // The view writes whole rows, with any properties. Rows that a view writes into its source table are not primaries, so no view
        // reads them.
        return other_table(from).map(|target| format!("writes rows of {target}"));
    };
    // If the last writer wins among several primaries, the view depends on all properties of these primaries.
    let reads_all = to.on_conflict == OnConflict::LastWriter
        || matches!(to.form(), Form::Copies { select: None, .. });
    let reads = to.properties();
    let mut names = set.keys();
    names
        .find(|name| reads_all || reads.contains(name.as_str()))
        .map(|name| format!("sets {name}"))
}
