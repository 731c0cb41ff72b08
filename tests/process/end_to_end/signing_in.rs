//! Sign-in by workload identity. The program uses a token authority on this machine and an Azurite that checks tokens,
//! both over TLS with certificates of a private authority.

use std::fs;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::end_to_end::authority::{Authority, TENANT};
use crate::end_to_end::site::QUEUE;
use crate::support::azurite::Azurite;
use crate::support::stub::{Reply, Stub};

/// A catalog with an index of employees by e-mail address, and with photos in blobs, which the service copies.
const CATALOG: &str = r#"
[views.employees_by_email]
kind = "secondary_index"
source = "Employees"
table = "EmployeesByEmail"
partition_key = "email_{PartitionKey}"
row_key = "{Email|lower}"
select = ["LastName"]

[views.employee_photo]
kind = "large_entity"
source = "Employees"
properties = ["Photo"]
container = "employee-large"
threshold = "1KiB"
"#;

struct Tenant {
    folder: TempDir,
    _azurite: Azurite,
    authority: Authority,
}

impl Tenant {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::start();
        let azurite = Azurite::over_tls(&authority.certificate(), &authority.key());
        let endpoint = |service: &str, port: u16| {
            format!("endpoints.{service} = \"https://127.0.0.1:{port}/devstoreaccount1\"\n")
        };
        let ports = azurite.ports;
        fs::create_dir(folder.path().join("config")).unwrap();
        fs::write(
            folder.path().join("config/default.toml"),
            format!(
                "[accounts.main]\nkind = \"azure\"\nauth = \"entra\"\nname = \"devstoreaccount1\"\n{}{}{}[[queues]]\nname = \"{QUEUE}\"\n{CATALOG}",
                endpoint("table", ports.table),
                endpoint("queue", ports.queue),
                endpoint("blob", ports.blob)
            ),
        )
        .unwrap();
        Self {
            folder,
            _azurite: azurite,
            authority,
        }
    }

    /// Runs the program with the environment that the webhook of workload identity sets. Returns the exit code, the
    /// output and the log.
    fn command(&self, arguments: &[&str]) -> (i32, String, String) {
        self.command_in(arguments, &self.authority.workload())
    }

    fn command_in(
        &self,
        arguments: &[&str],
        variables: &[(String, String)],
    ) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        let ignored = |name: &str| {
            ["EVENKEEL", "AZURE_", "IDENTITY_", "MSI_"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        };
        for (name, _) in std::env::vars_os().filter(|(name, _)| ignored(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .envs(variables.iter().cloned())
            .envs([self.authority.trust()]);
        let output = assert_cmd::Command::from_std(command)
            .timeout(Duration::from_mins(2))
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code().unwrap(),
            text(output.stdout),
            text(output.stderr),
        )
    }

    /// Does the same as [`command`](Self::command), and checks that the program succeeds.
    fn succeed(&self, arguments: &[&str]) -> (String, String) {
        let (code, out, err) = self.command(arguments);
        assert_eq!(code, 0, "{arguments:?}: {out}{err}");
        (out, err)
    }
}

#[test]
fn a_pod_with_a_workload_identity_works_without_any_secret_of_the_account() {
    let tenant = Tenant::new();
    tenant.succeed(&["migrate", "up"]);
    let entity = json!({"PartitionKey": "Sales", "RowKey": "7", "FirstName": "Ada", "LastName": "Lovelace", "Email": "Ada@contoso.com", "Photo": "x".repeat(5_000)});
    tenant.succeed(&[
        "submit",
        &json!({"op": "put", "table": "Employees", "entity": entity}).to_string(),
    ]);
    let (out, log) = tenant.succeed(&["--json", "run", "--until-idle=1", "--no-http"]);
    assert!(out.contains("\"poisoned\":0"), "{out}");
    let signed_in = format!(
        "entra: [accounts.main] signs in with workload identity (client c1 in tenant {TENANT}), not client_secret without"
    );
    assert!(log.contains(&signed_in), "{log}");
    let moved = json!({"op": "move", "table": "Employees", "pk": "Sales", "rk": "7", "to_pk": "Marketing", "to_rk": "8"});
    tenant.succeed(&["submit", &moved.to_string()]);
    tenant.succeed(&["--json", "run", "--until-idle=1", "--no-http"]);
    let (out, _) = tenant.succeed(&[
        "--json",
        "get",
        "EmployeesByEmail",
        "email_Marketing",
        "ada@contoso.com",
    ]);
    assert!(out.contains("Lovelace"), "{out}");
    let (out, _) = tenant.succeed(&["--json", "get", "Employees", "Marketing", "8"]);
    assert!(out.contains("Photo"), "{out}");
    tenant.succeed(&["--json", "audit"]);
}

#[test]
fn an_identity_that_is_refused_is_named_with_the_remedy_and_ends_a_command_as_refused_credentials_do()
 {
    let tenant = Tenant::new();
    tenant.authority.federate(
        &json!({"refuse": "AADSTS700016: Application c1 was not found in the directory."}),
    );
    let (code, _, log) = tenant.command(&["migrate", "up"]);
    assert_eq!(code, 4, "{log}");
    assert!(
        log.contains(
            "127.0.0.1 answered 401: AADSTS700016: Application c1 was not found in the directory."
        ),
        "{log}"
    );
    assert!(!log.contains("Trace ID"), "{log}");

    for claims in [
        json!({"iss": "https://login.example.com/"}),
        json!({"aud": "https://vault.azure.net"}),
        json!({"exp": 1}),
    ] {
        tenant.authority.federate(&claims);
        let (code, _, log) = tenant.command(&["migrate", "up"]);
        assert_eq!(code, 4, "{claims}: {log}");
        assert!(
            log.contains("Storage Table Data Contributor")
                && log.contains("the storage account devstoreaccount1"),
            "{claims}: {log}"
        );
        assert!(!log.contains("eyJ"), "a token is printed: {log}");
    }
    // The next token is valid, and the new process succeeds, because errors are only remembered within a process.
    tenant.authority.federate(&json!({}));
    tenant.succeed(&["migrate", "up"]);
}

#[test]
fn an_app_of_app_service_signs_in_by_its_managed_identity() {
    let tenant = Tenant::new();
    let environment = |header: &str| {
        let endpoint = format!("https://127.0.0.1:{}/msi/token", tenant.authority.port);
        [
            ("IDENTITY_ENDPOINT", endpoint.as_str()),
            ("IDENTITY_HEADER", header),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    let (code, _, log) = tenant.command_in(&["migrate", "up"], &environment("app-service"));
    assert_eq!(code, 0, "{log}");
    let (code, _, log) = tenant.command_in(&["migrate", "up"], &environment("forged"));
    assert_eq!(code, 4, "{log}");
    for part in [
        "managed identity (system-assigned): 127.0.0.1 answered 401: no X-IDENTITY-HEADER",
        "Azure CLI: ",
        "Azure Developer CLI: ",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
}

const FETCH: &str = "const [method, url] = process.argv.slice(1); \
    fetch(url, { method, headers: { 'x-ms-blob-type': 'BlockBlob' }, body: method === 'PUT' ? 'photo' : undefined }).then((answer) => console.log(answer.status));";

#[test]
fn an_identity_signs_for_containers_and_blobs_and_for_nothing_else() {
    let tenant = Tenant::new();
    let config = tenant.folder.path().join("config/default.toml");
    let grant = |name: &str, what: &str| format!("[sas.{name}]\n{what}\n");
    let grants = [
        grant("photos", "container = \"employee-large\""),
        grant(
            "album",
            "container = \"employee-large\"\npermissions = \"rl\"",
        ),
        grant(
            "upload",
            "container = \"employee-large\"\npermissions = \"c\"",
        ),
        grant("staff", "table = \"Employees\""),
        grant("sender", &format!("queue = \"{QUEUE}\"")),
    ];
    fs::write(
        &config,
        format!(
            "{}\n{}",
            fs::read_to_string(&config).unwrap(),
            grants.concat()
        ),
    )
    .unwrap();
    tenant.succeed(&["migrate", "up"]);
    let sign = |arguments: &[&str]| {
        let (out, log) = tenant.succeed(&[&["sas"], arguments].concat());
        assert!(
            log.contains("audit: shared access signature issued") && !log.contains("sig="),
            "{log}"
        );
        out.trim().to_owned()
    };
    let fetch = |method: &str, url: &str| -> u16 {
        let mut command = Command::new("node");
        command
            .args(["-e", FETCH, method, url])
            .env("NODE_TLS_REJECT_UNAUTHORIZED", "0");
        let output = assert_cmd::Command::from_std(command).output().unwrap();
        String::from_utf8(output.stdout)
            .unwrap()
            .trim()
            .parse()
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
    };
    let upload = sign(&["upload", "--blob", "a.png"]);
    assert!(
        upload.contains("&skoid=0b0e&") && upload.contains("&spr=https&"),
        "{upload}"
    );
    assert_eq!(
        (
            fetch("PUT", &upload),
            fetch("PUT", &upload),
            fetch("GET", &upload)
        ),
        (201, 403, 403),
        "created once"
    );
    let photo = sign(&["photos", "--blob", "a.png"]);
    assert_eq!(
        (
            fetch("GET", &photo),
            fetch("PUT", &photo),
            fetch("DELETE", &photo)
        ),
        (200, 403, 403)
    );
    for (part, forged) in [
        ("a.png", "b.png"),
        ("sp=r", "sp=rw"),
        ("skoid=0b0e", "skoid=0b0f"),
        ("se=2", "se=3"),
    ] {
        assert_eq!(
            fetch("GET", &photo.replacen(part, forged, 1)),
            403,
            "{part}"
        );
    }
    let album = sign(&["album"]);
    assert_eq!(
        fetch(
            "GET",
            &album.replacen('?', "?restype=container&comp=list&", 1)
        ),
        200
    );

    for name in ["staff", "sender"] {
        let (code, out, log) = tenant.command(&["sas", name]);
        assert!(
            code == 2 && out.is_empty() && log.contains("signs for blobs only"),
            "{code} {log}"
        );
    }
    tenant.authority.federate(
        &json!({"refuse": "AADSTS700016: Application c1 was not found in the directory."}),
    );
    let (code, out, log) = tenant.command(&["sas", "photos"]);
    assert!(
        code == 4 && out.is_empty() && log.contains("AADSTS700016"),
        "{code} {log}"
    );
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum VaultMood {
    Answers,
    Forbids,
    IsBusy,
}

/// A key vault that has one version of one key, and "encrypts" by inverting bits. It refuses tokens for other
/// audiences.
fn key_vault(mood: Arc<Mutex<VaultMood>>) -> Stub {
    let error = |status: u16, message: &str| {
        Reply::status(status).body(json!({"error": {"code": "C", "message": message}}).to_string())
    };
    Stub::start(move |request| {
        let claims = request
            .header("authorization")
            .and_then(|header| header.split('.').nth(1))
            .and_then(|part| BASE64URL.decode(part).ok());
        let claims: Value = claims
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        if claims["aud"] != "https://vault.azure.net" {
            return error(401, "AKV10022: Invalid audience").into();
        }
        match *mood.lock().unwrap() {
            VaultMood::Forbids => {
                return error(403, "Caller is not authorized to perform action").into();
            }
            VaultMood::IsBusy => return error(429, "Throttled").into(),
            VaultMood::Answers => {}
        }
        let asked: Value = serde_json::from_slice(&request.body).unwrap();
        let turned = |text: &str| {
            BASE64URL.encode(
                BASE64URL
                    .decode(text)
                    .unwrap()
                    .iter()
                    .map(|byte| byte ^ 0x5a)
                    .collect::<Vec<u8>>(),
            )
        };
        match (
            request.method.as_str(),
            request.target.as_str(),
            asked["alg"].as_str(),
            asked["value"].as_str(),
        ) {
            (
                "POST",
                "/keys/evenkeel/wrapkey?api-version=7.4"
                | "/keys/evenkeel/v1/unwrapkey?api-version=7.4",
                Some("RSA-OAEP-256"),
                Some(value),
            ) => {
                let kid = "https://contoso.vault.azure.net/keys/evenkeel/v1";
                Reply::status(200)
                    .body(json!({"kid": kid, "value": turned(value)}).to_string())
                    .into()
            }
            _ => error(404, "A key with (name/id) was not found in this key vault").into(),
        }
    })
}

#[test]
fn a_key_vault_unwraps_the_key_of_encrypted_properties_once_for_each_process() {
    let tenant = Tenant::new();
    let mood = Arc::new(Mutex::new(VaultMood::Answers));
    let vault = key_vault(Arc::clone(&mood));
    let config = tenant.folder.path().join("config/default.toml");
    let before = fs::read_to_string(&config).unwrap();
    let declare = |more: &str| {
        let key = format!(
            "vault_key = \"http://{}/keys/evenkeel\"\n{more}",
            format_args!("127.0.0.1:{}", vault.port())
        );
        fs::write(
            &config,
            format!("{before}\n[encryption]\ncurrent = \"k\"\n[encryption.keys.k]\n{key}\n[tables.Employees]\nencrypt = [\"Ssn\"]\n"),
        )
        .unwrap();
    };
    declare("");
    let (code, _, log) = tenant.command(&["run", "--until-idle=1", "--no-http"]);
    assert!(
        code == 2 && log.contains("the current key [encryption.keys.k] is not set"),
        "{log}"
    );
    let (out, _) = tenant.succeed(&["--json", "keys", "new", "k"]);
    let drawn: Value = serde_json::from_str(&out).unwrap();
    assert!(
        drawn["wrapped_key"].as_str().unwrap().starts_with("v1."),
        "{out}"
    );
    declare(&format!("wrapped_key = {}", drawn["wrapped_key"]));
    let (code, _, log) = tenant.command(&["keys", "new", "k"]);
    assert!(code == 2 && log.contains("Declare another name"), "{log}");

    tenant.succeed(&["migrate", "up"]);
    assert_eq!(
        vault.requests().len(),
        1,
        "a command that encrypts nothing must not contact the vault"
    );
    let entity = |rk: usize| json!({"PartitionKey": "Sales", "RowKey": rk.to_string(), "Ssn": format!("canary {rk}")});
    let entities: Vec<Value> = (0..30).map(entity).collect();
    tenant.succeed(&[
        "submit",
        &json!({"op": "put", "table": "Employees", "entities": entities}).to_string(),
    ]);
    assert_eq!(vault.requests().len(), 2);
    let (out, _) = tenant.succeed(&["--json", "run", "--until-idle=1", "--no-http"]);
    assert!(out.contains("\"done\":30"), "{out}");
    assert_eq!(vault.requests().len(), 3);
    let (out, _) = tenant.succeed(&["--json", "get", "Employees", "Sales", "7"]);
    assert!(out.contains("ek1.") && !out.contains("canary"), "{out}");
    let (out, _) = tenant.succeed(&["--json", "get", "Employees", "Sales", "7", "--resolve"]);
    assert!(out.contains("canary 7"), "{out}");

    for (wrong, expected) in [
        (VaultMood::Forbids, "Key Vault Crypto User"),
        (VaultMood::IsBusy, "does not answer: HTTP 429"),
    ] {
        *mood.lock().unwrap() = wrong;
        let (code, out, log) =
            tenant.command(&["--json", "get", "Employees", "Sales", "7", "--resolve"]);
        assert!(
            code != 0 && !out.contains("canary") && log.contains(expected),
            "{wrong:?}: {code} {out} {log}"
        );
        assert!(!log.contains("eyJ"), "a token is printed: {log}");
    }
}
