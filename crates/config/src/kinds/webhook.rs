//! `kind = "webhook"`: the receiver, the topic, and the fields of its documents

use std::collections::BTreeMap;

use super::search_index::fields;
use super::{DeclaredKind, ViewSection};
use crate::section::Section;
use crate::sinks::named;
use crate::views::ViewTables;
use evenkeel_model::catalog::{Documents, ViewKind, WebhookEvents};
use evenkeel_model::model::CollectionName;
use evenkeel_model::settings::SinkKind;

pub(super) fn read<T: ViewTables>(view: &ViewSection<'_, '_, T>) -> Option<DeclaredKind<T>> {
    view.of_one_table("kind", "no webhook view")?;
    view.refuse(&["on_conflict"], "events are about their primaries, so there are no conflicts");
    view.refuse(&["table", "partition_key", "row_key", "key", "index"], "an event names its primary by itself");
    let section: &Section<'_> = view.section;
    let wanted = ("a receiver of events", "kind = \"webhook\", its url and its secret");
    let sink = named(section, view.sinks, wanted, |kind| if let SinkKind::Webhook(webhook) = kind { Some(webhook) } else { None });
    let topic = section.required("topic", "the name of what the events are about, such as \"staff\"", str::parse::<CollectionName>);
    let fields = fields(section, None);
    let documents = Documents { sink: sink?.0.clone(), collection: topic?, fields: fields?, types: BTreeMap::new() };
    Some(DeclaredKind::new(ViewKind::WebhookEvents(WebhookEvents(documents))))
}
