//! Addresses of servers. No error repeats one: people paste users, passwords, keys and signatures into them.

use url::Url;

use evenkeel_model::local::is_local_host;

/// An address over http or https, with nothing beside it that may be a secret. `expected` describes it where it is none.
pub(super) fn plain(text: &str, expected: &str) -> Result<Url, String> {
    let url = Url::parse(text.trim()).map_err(|error| format!("expected {expected}: {error}"))?;
    let is_plain = url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    if is_plain && url.has_host() && matches!(url.scheme(), "http" | "https") {
        Ok(url)
    } else {
        Err(format!("expected {expected}, without query or user"))
    }
}

/// As [`plain`], of a server that a credential is sent to: over https, or on this machine.
pub(super) fn trusted(text: &str, expected: &str) -> Result<Url, String> {
    let url = plain(text, expected)?;
    if url.scheme() == "https" || url.host_str().is_some_and(is_local_host) {
        Ok(url)
    } else {
        Err(format!(
            "expected {expected}: over http everybody on the way would read the credential"
        ))
    }
}
