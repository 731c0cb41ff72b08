//! Opens a sink from its settings.

use std::sync::Arc;

use evenkeel_azure::keyring::Keyring;
use evenkeel_model::AccountName;
use evenkeel_model::settings::{SinkKind, SqlSettings};
use evenkeel_storage::{Clock, Sink};

pub struct OpenedSink {
    pub sink: Arc<dyn Sink>,
    /// The keys of the sink, if they can be rotated.
    pub keyring: Option<Arc<Keyring>>,
}

#[derive(Debug, thiserror::Error)]
pub enum SinkOpenError {
    /// The program lacks the feature for this kind of sink.
    #[error(
        "this program was built without {what}. Build it with the feature {feature:?}, or remove the sink"
    )]
    NotBuilt {
        what: &'static str,
        feature: &'static str,
    },
    #[cfg(feature = "search")]
    #[error(transparent)]
    Search(#[from] crate::search::SearchError),
    #[cfg(feature = "webhooks")]
    #[error(transparent)]
    Webhook(#[from] crate::webhook::WebhookError),
}

/// Opens a sink. Nothing is sent yet, so a wrong key or address shows at the first request.
pub fn open(
    name: &AccountName,
    kind: SinkKind,
    clock: &Arc<dyn Clock>,
) -> Result<OpenedSink, SinkOpenError> {
    // Avoids warnings about unused parameters when no feature is enabled.
    let _ = (name, clock);
    match kind {
        #[cfg(feature = "search")]
        SinkKind::Search(settings) => {
            let service = crate::search::SearchService::of(name.clone(), settings);
            let opened = crate::search::open(service)?;
            Ok(OpenedSink {
                sink: opened.sink,
                keyring: opened.keyring,
            })
        }
        #[cfg(not(feature = "search"))]
        SinkKind::Search(_) => Err(SinkOpenError::NotBuilt {
            what: "Azure AI Search",
            feature: "search",
        }),
        #[cfg(feature = "postgres")]
        SinkKind::Sql(SqlSettings::Postgres(settings)) => {
            Ok(keyless(crate::sql::postgres(name, *settings)))
        }
        #[cfg(not(feature = "postgres"))]
        SinkKind::Sql(SqlSettings::Postgres(_)) => Err(SinkOpenError::NotBuilt {
            what: "PostgreSQL",
            feature: "postgres",
        }),
        #[cfg(feature = "sqlite")]
        SinkKind::Sql(SqlSettings::Sqlite { path }) => Ok(keyless(crate::sql::sqlite(name, path))),
        #[cfg(not(feature = "sqlite"))]
        SinkKind::Sql(SqlSettings::Sqlite { .. }) => Err(SinkOpenError::NotBuilt {
            what: "SQLite",
            feature: "sqlite",
        }),
        #[cfg(feature = "webhooks")]
        SinkKind::Webhook(settings) => Ok(keyless(crate::webhook::open(
            name,
            settings,
            Arc::clone(clock),
        )?)),
        #[cfg(not(feature = "webhooks"))]
        SinkKind::Webhook(_) => Err(SinkOpenError::NotBuilt {
            what: "webhooks",
            feature: "webhooks",
        }),
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "webhooks"))]
fn keyless(sink: Arc<dyn Sink>) -> OpenedSink {
    OpenedSink {
        sink,
        keyring: None,
    }
}
