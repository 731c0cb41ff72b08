//! Logs on standard error: text on a terminal, otherwise one JSON object per line.
//!
//! The level comes from `-v` and `-q`. If neither is given, it comes from `EVENKEEL_LOG`, then from `RUST_LOG`, and
//! otherwise it is `info`. Audit lines ([`AUDIT`]) are written at every level. Lines of the storage client and the HTTP
//! stack below `INFO` are never logged, because at `DEBUG` these libraries print `Authorization` headers and URLs with
//! SAS tokens.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};

use super::escape_bidi::BidiEscaper;
use evenkeel_config::{LevelsError, levels};
use evenkeel_telemetry::traces::Traces;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::{EnvFilter, FilterExt, FilterFn, ParseError, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Filter, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, Registry};

/// Prefixes of targets, each with the most verbose level at which its lines are logged. More verbose lines may contain
/// secrets. (`hyper` includes `hyper_util` and `hyper_rustls`; `h2` prints header frames.) The identity library logs
/// every token request at `INFO`, including failures that this program reports itself.
const CAPPED: [(&str, Level); 7] = [
    ("azure_identity", Level::WARN),
    ("typespec", Level::WARN),
    ("azure_", Level::INFO),
    ("reqwest", Level::INFO),
    ("hyper", Level::INFO),
    ("h2", Level::INFO),
    ("rustls", Level::INFO),
];

/// Target of audit lines: changes that are made over HTTP or by a signal. They are logged at every level.
pub const AUDIT: &str = "evenkeel::audit";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verbosity {
    /// Number of `-v` flags.
    pub verbose: u8,
    /// Number of `-q` flags.
    pub quiet: u8,
}

/// Log levels in the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogEnvironment {
    pub evenkeel_log: Option<String>,
    pub rust_log: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text with colours.
    Coloured,
    /// Text without colours.
    Plain,
    /// One JSON object per line.
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    #[error(
        "{variable} is {text:?}, expected a log filter such as \"info,evenkeel_worker=trace\": {cause}"
    )]
    Filter {
        variable: &'static str,
        text: String,
        /// The cause is part of the message. It is no `source`, because the text would then be printed twice.
        cause: ParseError,
    },
    #[error(transparent)]
    Level(#[from] LevelsError),
    #[error("invalid EVENKEEL_LOG")]
    Own(#[source] LevelsError),
    #[error("could not change the log level")]
    Gone(#[source] reload::Error),
    #[error("logging is already set up")]
    Already(#[source] TryInitError),
}

impl LogEnvironment {
    pub fn read() -> Self {
        let variable = |name| {
            std::env::var(name)
                .ok()
                .filter(|text: &String| !text.trim().is_empty())
        };
        Self {
            evenkeel_log: variable("EVENKEEL_LOG"),
            rust_log: variable("RUST_LOG"),
        }
    }
}

/// Changes the log level at run time.
#[derive(Clone)]
pub struct LogControl(Arc<Control>);

struct Control {
    apply: Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>,
    now: Mutex<String>,
    /// Whether flags or environment variables set the level at the start. They have precedence over the configuration.
    explicit: bool,
}

impl LogControl {
    fn new<S: 'static>(filter: EnvFilter, explicit: bool) -> (reload::Layer<EnvFilter, S>, Self) {
        let now = Mutex::new(filter.to_string());
        let (filter, handle) = reload::Layer::new(filter);
        let apply = Box::new(move |filter| handle.reload(filter));
        (
            filter,
            Self(Arc::new(Control {
                apply,
                now,
                explicit,
            })),
        )
    }

    /// Creates a control without effect, for programs that log nothing.
    pub fn silent() -> Self {
        Self(Arc::new(Control {
            apply: Box::new(|_| Ok(())),
            now: Mutex::new("off".to_owned()),
            explicit: true,
        }))
    }

    pub fn filter(&self) -> String {
        self.0
            .now
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Sets another filter: a level, or levels by module.
    pub fn change(&self, text: &str) -> Result<(), LoggingError> {
        let filter = levels(text)?;
        let shown = filter.to_string();
        (self.0.apply)(filter).map_err(LoggingError::Gone)?;
        *self.0.now.lock().unwrap_or_else(PoisonError::into_inner) = shown;
        Ok(())
    }

    /// Applies the configured level, unless flags or environment variables set one at the start.
    pub fn configured(&self, text: &str) -> Result<(), LoggingError> {
        if self.0.explicit {
            Ok(())
        } else {
            self.change(text)
        }
    }
}

/// Sets up logging for the whole process. Call it once, in `main`. `traces` exports spans if it is configured.
pub fn init(verbosity: Verbosity, traces: Option<&Traces>) -> Result<LogControl, LoggingError> {
    let environment = LogEnvironment::read();
    let filter = filter(verbosity, &environment)?;
    let explicit = verbosity != Verbosity::default() || environment != LogEnvironment::default();
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let format = format(std::io::stderr().is_terminal(), plain);
    let (filter, control) = LogControl::new(filter, explicit);
    let lines = layer(filter, format, std::io::stderr);
    Registry::default()
        .with(lines)
        .with(traces.map(Traces::layer))
        .try_init()
        .map_err(LoggingError::Already)?;
    Ok(control)
}

const fn format(terminal: bool, no_colour: bool) -> LogFormat {
    match (terminal, no_colour) {
        (true, false) => LogFormat::Coloured,
        (true, true) => LogFormat::Plain,
        (false, _) => LogFormat::Json,
    }
}

/// Returns the filter that flags and environment variables request. Flags have precedence.
fn filter(verbosity: Verbosity, environment: &LogEnvironment) -> Result<EnvFilter, LoggingError> {
    let parse = |variable, text: &str| {
        EnvFilter::builder()
            .parse(text)
            .map_err(|cause| LoggingError::Filter {
                variable,
                text: text.to_owned(),
                cause,
            })
    };
    let offset = i16::from(verbosity.verbose) - i16::from(verbosity.quiet);
    let level = match offset {
        ..=-3 => "off",
        -2 => "error",
        -1 => "warn",
        0 => match (&environment.evenkeel_log, &environment.rust_log) {
            (Some(text), _) => return levels(text).map_err(LoggingError::Own),
            (None, Some(text)) => return parse("RUST_LOG", text),
            (None, None) => "info",
        },
        1 => "info,evenkeel=debug",
        2 => "debug,evenkeel=trace",
        3.. => "trace",
    };
    Ok(EnvFilter::new(level))
}

/// Whether a line cannot contain a secret, according to `CAPPED`. Both its target and its module path are checked,
/// because a library can choose any target.
fn harmless(metadata: &Metadata<'_>) -> bool {
    let most = |name: &str| {
        CAPPED
            .iter()
            .find(|(start, _)| name.starts_with(start))
            .map_or(Level::TRACE, |(_, level)| *level)
    };
    let level = metadata.level();
    *level <= most(metadata.target())
        && metadata
            .module_path()
            .is_none_or(|path| *level <= most(path))
}

fn is_audit(metadata: &Metadata<'_>) -> bool {
    metadata.target() == AUDIT && *metadata.level() <= Level::INFO
}

fn layer<S, F, W>(filter: F, format: LogFormat, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    F: Filter<S> + Send + Sync + 'static,
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let cap: FilterFn<fn(&Metadata<'_>) -> bool> = filter_fn(harmless);
    let audit: FilterFn<fn(&Metadata<'_>) -> bool> = filter_fn(is_audit);
    let filter = filter.or(audit.with_max_level_hint(Level::INFO)).and(cap);
    let lines = tracing_subscriber::fmt::layer();
    match format {
        LogFormat::Json => lines
            .with_writer(writer)
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .with_filter(filter)
            .boxed(),
        LogFormat::Coloured => lines
            .with_writer(BidiEscaper(writer))
            .with_ansi(true)
            .with_filter(filter)
            .boxed(),
        LogFormat::Plain => lines
            .with_writer(BidiEscaper(writer))
            .with_ansi(false)
            .with_filter(filter)
            .boxed(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(filter: EnvFilter, format: LogFormat, log: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = Registry::default().with(layer(filter, format, move || writer.clone()));
        tracing::subscriber::with_default(subscriber, log);
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn log_lines_for_terminals_escape_bidi_characters() {
        for format in [LogFormat::Plain, LogFormat::Coloured] {
            let text = logged(
                EnvFilter::new("info"),
                format,
                || tracing::info!(key = %"a\u{202e}b\u{200b}한", "said\u{2066}"),
            );
            assert!(
                text.contains("a\\u{202e}b\\u{200b}한") && text.contains("said\\u{2066}"),
                "{text}"
            );
            assert!(
                !text.chars().any(evenkeel_model::unprintable::is_format),
                "{text}"
            );
        }
    }

    fn environment(evenkeel_log: Option<&str>, rust_log: Option<&str>) -> LogEnvironment {
        LogEnvironment {
            evenkeel_log: evenkeel_log.map(str::to_owned),
            rust_log: rust_log.map(str::to_owned),
        }
    }

    #[test]
    fn the_storage_client_and_the_http_stack_never_log_below_info() {
        for directives in [
            "trace",
            "trace,azure_core=trace",
            "azure_core::policies::transport=trace,reqwest=debug,hyper_util=trace",
        ] {
            let text = logged(EnvFilter::new(directives), LogFormat::Json, || {
                tracing::debug!(target: "azure_core::policies::transport", "SharedKey secret");
                tracing::trace!(target: "azure_data_tables", "SharedKey secret");
                tracing::debug!(target: "reqwest::connect", "?sig=secret");
                tracing::trace!(target: "hyper_util::client", "?sig=secret");
                tracing::debug!(target: "typespec_client_core::http::policies::logging", "Bearer secret");
                tracing::info!(target: "azure_core", "harmless");
            });
            assert!(!text.contains("secret"), "{directives}: {text}");
        }
        let text = logged(
            EnvFilter::new("trace"),
            LogFormat::Json,
            || tracing::info!(target: "azure_core", "harmless"),
        );
        assert!(text.contains("harmless"));
    }

    #[test]
    fn the_level_is_changed_while_the_program_runs_and_never_lets_secrets_through() {
        let lines = Lines::default();
        let writer = lines.clone();
        let (filter, control) = LogControl::new(EnvFilter::new("info"), false);
        let subscriber =
            Registry::default().with(layer(filter, LogFormat::Json, move || writer.clone()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!(target: "evenkeel", "first");
            control.change("trace").unwrap();
            tracing::debug!(target: "evenkeel", "second");
            tracing::debug!(target: "hyper_util", "?sig=secret");
            assert_eq!(control.filter(), "trace");
            assert!(control.change("evenkeel=loud").is_err());
            assert!(
                control
                    .change(&"x=".repeat(9_000))
                    .unwrap_err()
                    .to_string()
                    .len()
                    < 1_000
            );
            assert!(
                control.change(&"evenkeel_worker=warn,".repeat(30)).is_err(),
                "a filter that is too long must not be shortened"
            );
            assert_eq!(control.filter(), "trace");
            control.configured("warn").unwrap();
            tracing::info!(target: "evenkeel", "third");
        });
        let bytes = lines.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains("second"), "{text}");
        assert!(
            !text.contains("first") && !text.contains("third") && !text.contains("secret"),
            "{text}"
        );
    }

    #[test]
    fn audit_lines_are_written_at_every_level() {
        for level in [
            "off",
            "error",
            "evenkeel_worker=trace",
            "evenkeel::audit=off",
        ] {
            let text = logged(EnvFilter::new(level), LogFormat::Json, || {
                tracing::info!(target: AUDIT, "audit: job submitted");
                tracing::debug!(target: AUDIT, "below");
                tracing::info!(target: "evenkeel_ops", "another");
            });
            assert!(
                text.contains("audit: job submitted")
                    && !text.contains("below")
                    && !text.contains("another"),
                "{level}: {text}"
            );
        }
    }

    #[test]
    fn flags_win_over_evenkeel_log_which_wins_over_rust_log() {
        let of = |verbose, quiet, environment: &LogEnvironment| {
            filter(Verbosity { verbose, quiet }, environment)
                .unwrap()
                .to_string()
        };
        assert_eq!(of(0, 0, &environment(None, None)), "info");
        assert_eq!(of(0, 0, &environment(None, Some("warn"))), "warn");
        assert_eq!(of(0, 0, &environment(Some("error"), Some("warn"))), "error");
        assert_eq!(of(0, 1, &environment(Some("trace"), None)), "warn");
        assert_eq!(
            of(1, 0, &environment(Some("error"), None)),
            "evenkeel=debug,info"
        );
        assert_eq!(of(0, 9, &environment(None, None)), "off");
        assert_eq!(of(2, 2, &environment(None, None)), "info");
    }

    #[test]
    fn an_invalid_filter_is_reported_with_its_variable() {
        let error = filter(
            Verbosity::default(),
            &environment(Some("evenkeel=loud"), None),
        )
        .unwrap_err();
        assert!(error.to_string().contains("EVENKEEL_LOG"), "{error}");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(
            cause.starts_with("\"evenkeel=loud\" is not a log level") && cause.contains("\"loud\""),
            "{cause}"
        );
        let error =
            filter(Verbosity::default(), &environment(None, Some("mine=loud"))).unwrap_err();
        assert!(
            error.to_string().starts_with("RUST_LOG is \"mine=loud\""),
            "{error}"
        );
        // Other programs also read `RUST_LOG`, so directives for their modules are valid.
        assert!(
            filter(
                Verbosity::default(),
                &environment(None, Some("mine=debug,info"))
            )
            .is_ok()
        );
    }

    #[test]
    fn terminals_get_text_and_others_one_json_object_per_line() {
        let log = || tracing::info!(target: "evenkeel", queue = "evenkeel-jobs", "polled\nonce");
        let json = logged(EnvFilter::new("info"), LogFormat::Json, log);
        assert_eq!(json.lines().count(), 1);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (value["queue"].as_str(), value["message"].as_str()),
            (Some("evenkeel-jobs"), Some("polled\nonce"))
        );
        assert!(
            logged(EnvFilter::new("info"), LogFormat::Plain, log)
                .contains("queue=\"evenkeel-jobs\"")
        );
        assert_eq!(format(false, false), LogFormat::Json);
        assert_eq!(format(true, true), LogFormat::Plain);
    }
}
