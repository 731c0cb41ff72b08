//! `kind = "search"`: Azure AI Search.

use crate::accounts::{KEY, KEY_KEYS};
use crate::address;
use crate::identity;
use crate::section::Section;
use evenkeel_model::settings::{SearchSettings, SinkAuth, SinkKind};

#[derive(Clone, Copy)]
enum SearchAuth {
    Key,
    Entra,
}

pub(super) fn read(section: &Section<'_>) -> Option<SinkKind> {
    let expected =
        "the address of a search service, such as \"https://contoso.search.windows.net\"";
    let endpoint = section.required("endpoint", expected, |text| {
        address::parse_trusted(text, expected)
    });
    let auth = auth(section);
    Some(SinkKind::Search(SearchSettings {
        endpoint: endpoint?,
        auth: auth?,
    }))
}

fn auth(section: &Section<'_>) -> Option<SinkAuth> {
    section.mark_known(&KEY_KEYS);
    section.mark_known(&identity::KEYS);
    let words = [("key", SearchAuth::Key), ("entra", SearchAuth::Entra)];
    match section.with_default("auth", SearchAuth::Key, |key| section.one_of(key, &words))? {
        SearchAuth::Key => {
            section.reject_keys("auth", "auth = \"key\"", &[&identity::KEYS]);
            KEY.required(section, "an admin key of the search service")
                .map(SinkAuth::Key)
        }
        SearchAuth::Entra => {
            section.reject_keys("auth", "auth = \"entra\"", &[&KEY_KEYS]);
            identity::read(section).map(SinkAuth::Entra)
        }
    }
}
