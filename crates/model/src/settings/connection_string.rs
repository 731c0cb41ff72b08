//! Connection strings of storage accounts, as the portal, the Azure CLI and people write them.
//!
//! The client library does not read these connection strings, because it supports neither
//! development storage nor explicit endpoints and is case-sensitive. No error repeats a part of the
//! text, because people paste secrets into the wrong place.

use std::collections::BTreeMap;

use url::{Host, Url};

use crate::nearest::nearest;

/// The names of the supported settings.
const NAMES: [&str; 10] = [
    "AccountName",
    "AccountKey",
    "SharedAccessSignature",
    "DefaultEndpointsProtocol",
    "EndpointSuffix",
    "TableEndpoint",
    "QueueEndpoint",
    "BlobEndpoint",
    "UseDevelopmentStorage",
    "DevelopmentStorageProxyUri",
];

/// Names of settings that tools write for services or replicas that evenkeel does not use. These
/// settings are ignored.
const UNUSED: [&str; 7] = [
    "FileEndpoint",
    "DfsEndpoint",
    "WebEndpoint",
    "TableSecondaryEndpoint",
    "QueueSecondaryEndpoint",
    "BlobSecondaryEndpoint",
    "FileSecondaryEndpoint",
];

const ENDPOINTS: [&str; 3] = ["TableEndpoint", "QueueEndpoint", "BlobEndpoint"];

/// The values of a connection string, by their names.
#[derive(Clone)]
pub struct ConnectionString<'t>(BTreeMap<&'static str, &'t str>);

/// Why a text is not a connection string. The error contains nothing of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionStringError {
    /// A part has no equals sign.
    #[error(
        "part {0} of the connection string is not Name=Value; expected pairs separated by ';', such as AccountName=contoso"
    )]
    Part(usize),
    /// A part has an unknown name.
    #[error("part {part} of the connection string has an unknown name{}", .suggestion.map_or_else(String::new, |suggestion| format!("; did you mean {suggestion}?")))]
    Unknown {
        /// The position of the part, from 1.
        part: usize,
        /// The known name that is probably meant.
        suggestion: Option<&'static str>,
    },
    /// A name is given twice.
    #[error("the connection string gives {0} twice")]
    Twice(&'static str),
    /// The text has another setting beside `UseDevelopmentStorage=true`, which implies its own
    /// account and endpoints.
    #[error(
        "the connection string gives {0} beside UseDevelopmentStorage=true, which has its own account and endpoints. Remove one of them"
    )]
    Development(&'static str),
    /// A proxy has a port or path.
    #[error(
        "DevelopmentStorageProxyUri must be a scheme and a host without port or path, such as http://azurite"
    )]
    Proxy,
    /// An endpoint names more than the account.
    #[error("{0} names a container, table or queue; expected the address of the account only")]
    Path(&'static str),
}

impl<'t> ConnectionString<'t> {
    /// Parses a text. Names may have any case and order; quotes and blanks around the text are
    /// ignored.
    pub fn parse(text: &'t str) -> Result<Self, ConnectionStringError> {
        let mut values = BTreeMap::new();
        let around = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';' | '\u{feff}');
        let parts = text
            .trim_matches(around)
            .split(';')
            .map(str::trim)
            .enumerate();
        for (at, part) in parts.filter(|(_, part)| !part.is_empty()) {
            // Keys are Base64 and signatures are query strings, so the values contain equals signs
            // too.
            let (name, value) = part
                .split_once('=')
                .ok_or(ConnectionStringError::Part(at + 1))?;
            let (name, value) = (name.trim(), value.trim());
            if UNUSED
                .iter()
                .any(|unused| unused.eq_ignore_ascii_case(name))
            {
                continue;
            }
            let Some(known) = NAMES
                .into_iter()
                .find(|known| known.eq_ignore_ascii_case(name))
            else {
                return Err(ConnectionStringError::Unknown {
                    part: at + 1,
                    suggestion: suggestion(name),
                });
            };
            if !value.is_empty() && values.insert(known, value).is_some() {
                return Err(ConnectionStringError::Twice(known));
            }
        }
        let parsed = Self(values);
        parsed.check().map(|()| parsed)
    }

    /// The value of a setting.
    pub fn get(&self, name: &str) -> Option<&'t str> {
        self.0.get(name).copied()
    }

    /// Whether the connection string means the emulator, whose account and key are public.
    pub fn is_development(&self) -> bool {
        self.get("UseDevelopmentStorage")
            .is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    fn check(&self) -> Result<(), ConnectionStringError> {
        if self.is_development() {
            let beside = [
                "AccountName",
                "AccountKey",
                "SharedAccessSignature",
                "EndpointSuffix",
            ]
            .into_iter()
            .chain(ENDPOINTS);
            if let Some(name) = beside.into_iter().find(|name| self.get(name).is_some()) {
                return Err(ConnectionStringError::Development(name));
            }
            let is_host = |uri: &str| {
                Url::parse(uri).is_ok_and(|url| {
                    url.has_host()
                        && url.port().is_none()
                        && url.path() == "/"
                        && url.query().is_none()
                })
            };
            return if self.get("DevelopmentStorageProxyUri").is_none_or(is_host) {
                Ok(())
            } else {
                Err(ConnectionStringError::Proxy)
            };
        }
        let account = self.get("AccountName");
        let names_more_than_account = |name: &&str| {
            self.get(name)
                .and_then(|value| Url::parse(value).ok())
                .is_some_and(|url| names_more_than_account(&url, account))
        };
        ENDPOINTS
            .into_iter()
            .find(names_more_than_account)
            .map_or(Ok(()), |name| Err(ConnectionStringError::Path(name)))
    }
}

/// Whether the address of a service names more than an account, such as a container.
///
/// Azure's addresses name the account in the host and have no path. Addresses of an emulator, and
/// perhaps those of a proxy, name the account in the path.
pub fn names_more_than_account(endpoint: &Url, account: Option<&str>) -> bool {
    let Some(mut path) = endpoint
        .path_segments()
        .map(|segments| segments.filter(|segment| !segment.is_empty()))
    else {
        return false;
    };
    let Some(first) = path.next() else {
        return false;
    };
    let is_of_a_service = |host: &str| {
        [".table.", ".queue.", ".blob."]
            .iter()
            .any(|service| host.contains(service))
    };
    match endpoint.host() {
        _ if path.next().is_some() => true,
        Some(Host::Domain(host)) => is_of_a_service(host),
        Some(Host::Ipv4(_) | Host::Ipv6(_)) => account.is_some_and(|account| account != first),
        None => false,
    }
}

/// Returns the known name that is probably meant by an unknown one. The unknown name may be a
/// secret and is not repeated.
fn suggestion(name: &str) -> Option<&'static str> {
    nearest(name, NAMES).and_then(|nearest| NAMES.into_iter().find(|known| *known == nearest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> ConnectionStringError {
        ConnectionString::parse(text).map(|_| ()).expect_err(text)
    }

    #[test]
    fn quotes_blanks_and_empty_parts_are_ignored() {
        for text in [
            "AccountName=contoso;AccountKey=a2V5;",
            "\"AccountName=contoso;AccountKey=a2V5;\"",
            "'AccountName=contoso;AccountKey=a2V5'\r\n",
            "\u{feff}AccountName=contoso;AccountKey=a2V5\r\n",
            " accountname = contoso ;; ACCOUNTKEY= a2V5 ; FileEndpoint=https://x/ ",
        ] {
            let parsed = ConnectionString::parse(text).unwrap();
            assert_eq!(
                (parsed.get("AccountName"), parsed.get("AccountKey")),
                (Some("contoso"), Some("a2V5")),
                "{text:?}"
            );
        }
        assert!(
            ConnectionString::parse("\"UseDevelopmentStorage=true;\"")
                .unwrap()
                .is_development()
        );
    }

    #[test]
    fn a_misspelt_name_is_an_error_with_a_suggestion() {
        let misspelt = error("AccountName=a;AccountKey=a2V5;BlobEndpont=http://127.0.0.1:1/a");
        assert_eq!(
            misspelt,
            ConnectionStringError::Unknown {
                part: 3,
                suggestion: Some("BlobEndpoint")
            }
        );
        assert!(misspelt.to_string().ends_with("did you mean BlobEndpoint?"));
        assert_eq!(
            error("AccountName=a;c2VjcmV0LWtleQ=="),
            ConnectionStringError::Unknown {
                part: 2,
                suggestion: None
            }
        );
        assert_eq!(
            error("AccountName=a;c2VjcmV0"),
            ConnectionStringError::Part(2)
        );
        assert_eq!(
            error("AccountName=a;accountname=b"),
            ConnectionStringError::Twice("AccountName")
        );
    }

    #[test]
    fn the_emulator_has_endpoints_of_its_own() {
        for name in [
            "TableEndpoint=http://127.0.0.1:9/devstoreaccount1",
            "AccountName=contoso",
            "EndpointSuffix=example.net",
        ] {
            let name_alone = name.split('=').next().unwrap();
            assert!(
                matches!(error(&format!("UseDevelopmentStorage=true;{name}")), ConnectionStringError::Development(found) if found == name_alone)
            );
        }
        for proxy in [
            "http://127.0.0.1:9",
            "http://azurite/devstoreaccount1",
            "azurite",
        ] {
            assert_eq!(
                error(&format!(
                    "UseDevelopmentStorage=true;DevelopmentStorageProxyUri={proxy}"
                )),
                ConnectionStringError::Proxy
            );
        }
        let proxy = "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite;DefaultEndpointsProtocol=http";
        assert!(ConnectionString::parse(proxy).is_ok());
    }

    #[test]
    fn an_endpoint_names_the_account_alone() {
        let names_more_than_account =
            |url: &str, account| names_more_than_account(&Url::parse(url).unwrap(), account);
        assert!(names_more_than_account(
            "https://contoso.blob.core.windows.net/photos",
            Some("contoso")
        ));
        assert!(names_more_than_account(
            "http://127.0.0.1:10000/devstoreaccount1/photos",
            None
        ));
        assert!(names_more_than_account(
            "http://127.0.0.1:10000/photos",
            Some("devstoreaccount1")
        ));
        assert!(!names_more_than_account(
            "http://127.0.0.1:10000/devstoreaccount1/",
            Some("devstoreaccount1")
        ));
        assert!(
            !names_more_than_account("https://contoso.blob.core.windows.net/", Some("contoso"))
                && !names_more_than_account("http://azurite:10000/a", Some("a"))
        );
        assert_eq!(
            error(
                "AccountName=a;AccountKey=a2V5;BlobEndpoint=https://a.blob.core.windows.net/photos"
            ),
            ConnectionStringError::Path("BlobEndpoint")
        );
    }
}
