//! Addresses of servers. No error repeats an address, because people paste passwords, keys and signatures into them.

use url::Url;

use evenkeel_model::local::is_local_host;

/// Parses an http or https address. A user, password, query or fragment is an error, because each may be a secret.
pub(super) fn parse(text: &str, expected: &str) -> Result<Url, String> {
    let url = Url::parse(text.trim()).map_err(|error| format!("expected {expected}: {error}"))?;
    let is_plain = url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    if is_plain && url.has_host() && matches!(url.scheme(), "http" | "https") {
        Ok(url)
    } else {
        Err(format!(
            "expected {expected}, without user, password, query or fragment"
        ))
    }
}

/// Like [`parse`], for servers that receive a credential. The address must be https, unless the server is this
/// machine.
pub(super) fn parse_trusted(text: &str, expected: &str) -> Result<Url, String> {
    let url = parse(text, expected)?;
    if url.scheme() == "https" || url.host_str().is_some_and(is_local_host) {
        Ok(url)
    } else {
        Err(format!(
            "expected {expected}; http would send the credential unencrypted"
        ))
    }
}
