//! `kind = "search"`: Azure AI Search.

use url::Url;

use crate::accounts::{KEY, KEY_KEYS};
use crate::identity;
use crate::section::Section;
use evenkeel_model::catalog::field_name;
use evenkeel_model::model::local::is_local_host;
use evenkeel_model::settings::{SearchSettings, SinkAuth, SinkKind};

/// The field of an index that is its key, where nothing is said.
const KEY_FIELD: &str = "id";

#[derive(Clone, Copy)]
enum SearchAuth {
    Key,
    Entra,
}

pub(super) fn read(section: &Section<'_>) -> Option<SinkKind> {
    let endpoint =
        section.required("endpoint", "the address of a search service, such as \"https://contoso.search.windows.net\"", |text| {
            endpoint(text, "expected an address such as \"https://contoso.search.windows.net\", without query or user")
        });
    let auth = auth(section);
    let key_field = if section.has("key_field") { section.parsed("key_field", field_name) } else { Some(KEY_FIELD.to_owned()) };
    Some(SinkKind::Search(SearchSettings { endpoint: endpoint?, auth: auth?, key_field: key_field? }))
}

fn auth(section: &Section<'_>) -> Option<SinkAuth> {
    section.also_known(&KEY_KEYS);
    section.also_known(&identity::KEYS);
    let words = [("key", SearchAuth::Key), ("entra", SearchAuth::Entra)];
    match if section.has("auth") { section.word("auth", &words)? } else { SearchAuth::Key } {
        SearchAuth::Key => {
            section.refuse("auth", "auth = \"key\"", &[&identity::KEYS]);
            KEY.required(section, "an admin key of the search service").map(SinkAuth::Key)
        }
        SearchAuth::Entra => {
            section.refuse("auth", "auth = \"entra\"", &[&KEY_KEYS]);
            identity::read(section).map(SinkAuth::Entra)
        }
    }
}

/// Checks an address. The message never repeats it, since people paste keys into it.
pub(crate) fn endpoint(text: &str, expected: &str) -> Result<Url, String> {
    let url = Url::parse(text.trim()).map_err(|error| format!("{expected}: {error}"))?;
    let plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty() && url.password().is_none();
    if !plain || !url.has_host() || !matches!(url.scheme(), "http" | "https") {
        return Err(expected.to_owned());
    }
    if url.scheme() == "http" && !url.host_str().is_some_and(is_local_host) {
        return Err(format!("{expected}: over http everybody on the way would read the credential"));
    }
    Ok(url)
}
