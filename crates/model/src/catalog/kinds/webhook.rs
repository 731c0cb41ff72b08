//! `kind = "webhook"`: an event for each change of a primary's document.

use std::collections::BTreeMap;

use super::Kind;
use super::search_index::fields;
use super::section::{DeclaredKind, ViewSection};
use crate::CollectionName;
use crate::catalog::definition::Definition;
use crate::catalog::form::{Documents, Form};
use crate::catalog::view::OnConflict;
use crate::settings::SinkKind;

/// `kind = "webhook"`: a document for each primary. A receiver gets an event for each change of the
/// document.
#[derive(Debug, Clone)]
pub struct WebhookEvents(pub Documents);

impl<P> Kind<P> for WebhookEvents {
    fn form(&self) -> Form<'_, P> {
        Form::Documents(&self.0)
    }

    fn define(&self, keys: Definition, _: OnConflict) -> Definition {
        keys.with("topic", &self.0.collection)
            .with_map("fields", &self.0.fields)
    }

    fn target_key(&self) -> &'static str {
        "topic"
    }
}

pub(super) fn read<S: ViewSection>(view: &S) -> Option<DeclaredKind<S::Target>> {
    view.reject_dated_source("kind", "no webhook view")?;
    view.reject_keys(
        &["on_conflict"],
        "each event is about one primary, so there are no conflicts",
    );
    view.reject_keys(
        &["table", "partition_key", "row_key", "key", "index"],
        "an event already names its primary",
    );
    let wanted = (
        "a receiver of events",
        "kind = \"webhook\", its url and its secret",
    );
    let sink = view.sink(wanted, |kind| {
        matches!(kind, SinkKind::Webhook(_)).then_some(())
    });
    let topic = view.required(
        "topic",
        "the topic of the events, such as \"staff\"",
        str::parse::<CollectionName>,
    );
    let fields = fields(view, None);
    let documents = Documents {
        sink: sink?.0,
        collection: topic?,
        fields: fields?,
        types: BTreeMap::new(),
    };
    Some(DeclaredKind::new(WebhookEvents(documents)))
}
