//! Log levels: `info`, or `info,evenkeel_worker=debug`.
//!
//! `EnvFilter` has the same grammar, but treats every word that is not a level as a module. It would accept `inof` and silence
//! everything else. Here, a word must be a level or an existing module.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::EnvFilter;

/// Prefixes of the modules of libraries that may write log lines.
const LIBRARY_PREFIXES: [&str; 10] = [
    "azure_",
    "typespec",
    "reqwest",
    "hyper",
    "h2",
    "rustls",
    "opentelemetry",
    "axum",
    "tokio",
    "tower",
];

const PROGRAM: &str = "evenkeel";
const CRATE_PREFIX: &str = "evenkeel_";

const MAX_SHOWN_CHARS: usize = 60;

/// Maximum length of the text in bytes. Each log line is compared with every directive in the text.
const MAX_BYTES: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a log level (error, warn, info, debug, trace, off) or a list such as \"info,evenkeel_worker=trace\": {problem}"
)]
pub struct LevelsError {
    text: String,
    problem: String,
}

pub fn levels(text: &str) -> Result<EnvFilter, LevelsError> {
    if text.len() > MAX_BYTES {
        let beginning: String = text.chars().take(MAX_SHOWN_CHARS).collect();
        let problem = format!(
            "it has {} bytes, at most {MAX_BYTES} are allowed",
            text.len()
        );
        return Err(LevelsError {
            text: format!("{beginning}…"),
            problem,
        });
    }
    let failed = |problem: String| LevelsError {
        text: text.to_owned(),
        problem,
    };
    let directives: Vec<&str> = text
        .split(',')
        .map(str::trim)
        .filter(|directive| !directive.is_empty())
        .collect();
    if directives.is_empty() {
        return Err(failed("it is empty".to_owned()));
    }
    if let Some(problem) = directives
        .iter()
        .find_map(|directive| problem(directive).err())
    {
        return Err(failed(problem));
    }
    EnvFilter::builder()
        .parse(directives.join(","))
        .map_err(|error| failed(error.to_string()))
}

fn problem(directive: &str) -> Result<(), String> {
    let is_level = |text: &str| !text.is_empty() && text.parse::<LevelFilter>().is_ok();
    if is_level(directive) {
        return Ok(());
    }
    // A directive is a module, perhaps a span, and perhaps a level. A span may contain equals signs, so the level follows
    // the last one: `a[b{c=d}]=info`.
    let (target, level) = match directive.rsplit_once('=') {
        Some((target, level)) if !level.contains(']') => (target, Some(level.trim())),
        _ => (directive, None),
    };
    let module = target.split(['[', ':']).next().unwrap_or_default().trim();
    let exists = module == PROGRAM
        || module.starts_with(CRATE_PREFIX)
        || LIBRARY_PREFIXES
            .iter()
            .any(|library| module.starts_with(library));
    let any_module = module.is_empty() && target.starts_with('[');
    if !exists && !any_module {
        let module: String = module.chars().take(MAX_SHOWN_CHARS).collect();
        return Err(format!(
            "{module:?} is not a module; modules of this program begin with evenkeel"
        ));
    }
    match level {
        Some(level) if !is_level(level) => Err(format!("{level:?} is not a level")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_levels_of_existing_modules_are_accepted() {
        for text in [
            "info",
            "WARN",
            "off",
            "info,evenkeel=debug",
            "info, evenkeel_worker=trace,",
            "evenkeel",
            "evenkeel_azure=debug",
            "trace,azure_core::policies::transport=trace,hyper_util=trace",
            "info,evenkeel[job{op=\"sync\"}]=debug",
            "[job]=trace",
        ] {
            assert!(
                levels(text).is_ok(),
                "{text}: {}",
                levels(text).unwrap_err()
            );
        }
    }

    #[test]
    fn a_text_that_is_too_long_is_refused() {
        let text = format!("info,{}", "evenkeel_worker=trace,".repeat(30));
        let error = levels(&text).unwrap_err().to_string();
        assert!(
            error.contains("it has 665 bytes, at most 512 are allowed") && error.len() < 300,
            "{error}"
        );
        assert!(levels(&text[..510]).is_ok());
    }

    #[test]
    fn a_misspelt_level_or_module_is_refused_with_a_list_of_levels() {
        for (text, misspelt) in [
            ("inof", "\"inof\""),
            ("info,evenkel=debug", "\"evenkel\""),
            ("evenkeel=loud", "\"loud\""),
            ("evenkeel=", "\"\""),
            ("info=debug", "\"info\""),
            ("=debug", "\"\""),
            ("", "empty"),
            (" , ", "empty"),
        ] {
            let error = levels(text).expect_err(text).to_string();
            assert!(
                error.contains("(error, warn, info, debug, trace, off)")
                    && error.contains(misspelt),
                "{text}: {error}"
            );
        }
    }
}
