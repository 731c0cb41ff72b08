//! The Azure clouds: domains of their services, token authorities, and token scopes.

use url::Url;

#[derive(Debug, PartialEq, Eq)]
pub struct Cloud {
    /// Domains of storage accounts, search services and key vaults.
    domains: &'static [&'static str],
    pub authority: &'static str,
    pub search_scope: &'static str,
    pub vault_scope: &'static str,
}

/// Token scope of storage accounts in every cloud ("Authorize with Microsoft Entra ID", resource scope).
pub const STORAGE_SCOPE: &str = "https://storage.azure.com/.default";

const CLOUDS: [Cloud; 3] = [
    Cloud {
        domains: &[
            ".core.windows.net",
            ".storage.azure.net",
            ".search.windows.net",
            ".vault.azure.net",
        ],
        authority: "https://login.microsoftonline.com",
        search_scope: "https://search.azure.com/.default",
        vault_scope: "https://vault.azure.net/.default",
    },
    Cloud {
        domains: &[
            ".core.chinacloudapi.cn",
            ".search.azure.cn",
            ".vault.azure.cn",
        ],
        authority: "https://login.chinacloudapi.cn",
        search_scope: "https://search.azure.cn/.default",
        vault_scope: "https://vault.azure.cn/.default",
    },
    Cloud {
        domains: &[
            ".core.usgovcloudapi.net",
            ".search.azure.us",
            ".vault.usgovcloudapi.net",
        ],
        authority: "https://login.microsoftonline.us",
        search_scope: "https://search.azure.us/.default",
        vault_scope: "https://vault.usgovcloudapi.net/.default",
    },
];

impl Cloud {
    /// The cloud of an endpoint; `None` for an emulator or a custom domain.
    pub fn of(endpoint: &Url) -> Option<&'static Self> {
        let host = endpoint.host_str()?;
        CLOUDS
            .iter()
            .find(|cloud| cloud.domains.iter().any(|domain| host.ends_with(domain)))
    }

    /// Like [`of`](Self::of), but the public cloud for custom domains.
    pub fn or_public(endpoint: &Url) -> &'static Self {
        Self::of(endpoint).unwrap_or(&CLOUDS[0])
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_model::settings::VAULT_DOMAINS;

    use super::*;

    #[test]
    fn national_clouds_have_authorities_and_audiences_of_their_own() {
        let cloud = |text: &str| Cloud::or_public(&Url::parse(text).unwrap());
        assert_eq!(
            cloud("https://contoso.table.core.chinacloudapi.cn").authority,
            "https://login.chinacloudapi.cn"
        );
        assert_eq!(
            cloud("https://contoso.search.azure.us").search_scope,
            "https://search.azure.us/.default"
        );
        assert_eq!(
            cloud("https://contoso.z1.table.storage.azure.net").authority,
            "https://login.microsoftonline.com"
        );
        assert_eq!(
            cloud("https://tables.example.com").search_scope,
            "https://search.azure.com/.default"
        );
        for domain in VAULT_DOMAINS {
            let cloud =
                Cloud::of(&Url::parse(&format!("https://contoso{domain}")).unwrap()).unwrap();
            assert_eq!(
                cloud.vault_scope,
                format!("https://{}/.default", domain.trim_start_matches('.'))
            );
        }
        assert_eq!(
            Cloud::of(&Url::parse("http://127.0.0.1:10002/devstoreaccount1").unwrap()),
            None
        );
    }
}
