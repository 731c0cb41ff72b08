//! Identities of Entra ID: keys, environment variables, and the choice of `auto`.

use std::sync::Arc;

use super::*;
use evenkeel_model::settings::{EntraCredential, Identity, SinkAuth, SinkKind};

const ACCOUNT: &str = "[accounts.main]\nkind = \"azure\"\nauth = \"entra\"\nname = \"contoso\"\n";

fn identity(keys: &str, variables: &[(&str, &str)]) -> Result<Arc<Identity>, String> {
    let folder = folder(&[("default.toml", &format!("{ACCOUNT}{keys}"))]);
    let loaded = load(&with_environment(request(folder.path()), variables));
    let loaded = loaded.map_err(|errors| {
        errors
            .errors
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    })?;
    match loaded.settings.accounts.into_iter().next().unwrap().kind {
        AccountKind::Azure(AzureAuth::Entra { identity, .. }) => Ok(identity),
        other => panic!("{other:?}"),
    }
}

fn shown(keys: &str, variables: &[(&str, &str)]) -> Vec<String> {
    identity(keys, variables)
        .unwrap()
        .credentials
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// The variables that the workload identity webhook sets in a pod.
pub(super) const WEBHOOK: [(&str, &str); 4] = [
    ("AZURE_TENANT_ID", "t"),
    ("AZURE_CLIENT_ID", "c"),
    (
        "AZURE_FEDERATED_TOKEN_FILE",
        "/var/run/secrets/azure/tokens/azure-identity-token",
    ),
    ("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.us/"),
];

#[test]
fn auto_uses_the_first_complete_credential() {
    assert_eq!(
        shown("", &WEBHOOK),
        ["workload identity (client c in tenant t)"]
    );
    let with_secret = [WEBHOOK.as_slice(), &[("AZURE_CLIENT_SECRET", "s")]].concat();
    assert_eq!(
        shown("", &with_secret),
        ["client secret (client c in tenant t)"]
    );
    let found = identity("", &WEBHOOK).unwrap();
    assert_eq!(
        found.authority.as_ref().unwrap().as_str(),
        "https://login.microsoftonline.us/"
    );
    assert_eq!(
        found.ruled_out,
        [
            "client_secret without client_secret_file or AZURE_CLIENT_SECRET",
            "client_certificate without client_certificate_file or AZURE_CLIENT_CERTIFICATE_PATH"
        ]
    );
}

#[test]
fn auto_without_a_complete_credential_tries_the_managed_identity_and_then_developer_tools() {
    assert_eq!(
        shown("", &[]),
        [
            "managed identity (system-assigned)",
            "Azure CLI",
            "Azure Developer CLI"
        ]
    );
    assert_eq!(
        shown("client_id = \"c\"", &[])[0],
        "managed identity (client c)"
    );
    assert_eq!(identity("", &[]).unwrap().ruled_out.len(), 3);
}

#[test]
fn a_key_wins_over_the_variable() {
    assert_eq!(
        shown("tenant_id = \"own\"", &WEBHOOK),
        ["workload identity (client c in tenant own)"]
    );
    assert_eq!(
        shown("credential = \"managed_identity\"", &WEBHOOK),
        ["managed identity (client c)"]
    );
    let folder = folder(&[("secret", "topsecret\n")]);
    let keys = format!(
        "credential = \"client_secret\"\ntenant_id = \"t\"\nclient_id = \"c\"\nclient_secret_file = {:?}",
        folder.path().join("secret").display().to_string()
    );
    let found = identity(&keys, &[("AZURE_CLIENT_SECRET", "other")]).unwrap();
    assert!(
        matches!(&found.credentials[0], EntraCredential::ClientSecret { secret, .. } if secret.expose_secret() == "topsecret")
    );
    assert!(!format!("{found:?}").contains("topsecret"));
}

#[test]
fn mistakes_name_the_key_and_the_variable_and_no_secret() {
    for (keys, expected) in [
        (
            "credential = \"workload_identity\"",
            "accounts.main.tenant_id: missing; expected the id or domain of the tenant, or the environment variable AZURE_TENANT_ID",
        ),
        (
            "credential = \"workload_identity\"",
            "accounts.main.credential: expected the file with the token that the application trusts in the environment variable AZURE_FEDERATED_TOKEN_FILE",
        ),
        (
            "credential = \"client_secret\"\ntenant_id = \"t\"\nclient_id = \"c\"",
            "client_secret_file: missing; expected a file with an application's secret, or the environment variable AZURE_CLIENT_SECRET",
        ),
        (
            "credential = \"client_certificate\"\ntenant_id = \"t\"\nclient_id = \"c\"",
            "environment variable AZURE_CLIENT_CERTIFICATE_PATH",
        ),
        (
            "credential = \"managed_identity\"\nclient_secret_file = \"topsecret\"",
            "client_secret_file: not allowed with credential = \"managed_identity\"",
        ),
        (
            "credential = \"managed_identiy\"",
            "did you mean \"managed_identity\"?",
        ),
        (
            "client_secret_file = \"topsecret\"",
            "accounts.main.tenant_id: missing",
        ),
        (
            "client_secret = \"topsecret\"",
            "accounts.main.client_secret: unknown key; secrets cannot be written in a configuration; expected client_secret_file",
        ),
        (
            "credential = \"client_secret\"\ntenant_id = \"t/../u\"\nclient_id = \"c\"\nclient_secret_file = \"topsecret\"",
            "found \"t/../u\"",
        ),
        ("tenant = \"t\"", "unknown key; did you mean \"tenant_id\"?"),
        (
            "key_file = \"topsecret\"",
            "accounts.main.key_file: not allowed with auth = \"entra\"",
        ),
    ] {
        let errors = identity(keys, &[]).unwrap_err();
        assert!(errors.contains(expected), "{keys}: {errors}");
        assert!(!errors.contains("topsecret"), "{errors}");
    }
    let elsewhere =
        identity("", &[("AZURE_AUTHORITY_HOST", "http://login.example.com")]).unwrap_err();
    assert!(
        elsewhere.contains("accounts.main.credential: expected an https address"),
        "{elsewhere}"
    );
    let with_key = mistakes(
        "[accounts.main]\nkind = \"azure\"\nauth = \"key\"\nname = \"contoso\"\nkey_env = \"K\"\ntenant_id = \"t\"",
    );
    assert!(
        with_key[1].contains("accounts.main.tenant_id: not allowed with auth = \"key\""),
        "{with_key:?}"
    );
}

#[test]
fn a_sink_signs_in_by_an_identity_with_the_same_keys() {
    let sink = "[sinks.catalog]\nkind = \"search\"\nendpoint = \"https://contoso.search.windows.net\"\nauth = \"entra\"\n";
    let loaded = load_text(&format!(
        "{sink}credential = \"managed_identity\"\nclient_id = \"c\""
    ))
    .unwrap();
    let SinkKind::Search(search) = &loaded.settings.sinks[0].kind else {
        panic!("no search service")
    };
    assert!(matches!(&search.auth, SinkAuth::Entra(identity) if identity.credentials.len() == 1));
    let found = mistakes(&format!("{sink}key_env = \"SEARCH\""));
    assert!(
        found[0].contains("sinks.catalog.key_env: not allowed with auth = \"entra\""),
        "{found:?}"
    );
}
