//! `kind = "webhook"`: an event for each change of a primary's document.

use std::collections::BTreeSet;

use super::Kind;
use crate::catalog::canonical;
use crate::catalog::form::{Documents, Form};
use crate::catalog::view::OnConflict;

/// `kind = "webhook"`: a document for each primary that a receiver is told of when it changes.
#[derive(Debug, Clone)]
pub struct WebhookEvents(pub Documents);

impl<P> Kind<P> for WebhookEvents {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn form(&self) -> Form<'_, P> {
        Form::Documents(&self.0)
    }

    fn properties(&self) -> BTreeSet<&str> {
        self.0.properties()
    }

    fn canonical(&self, _: OnConflict) -> String {
        format!("fields {}", canonical::map(&self.0.fields))
    }
}
