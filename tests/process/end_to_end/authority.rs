//! Entra ID on this machine: a token authority, and a gateway to an Azurite. The gateway accepts only tokens. The TLS
//! certificate of the token authority was issued by a private authority.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::azurite::{KEY, Ports};

pub(crate) const TENANT: &str = "72f988bf-0000-0000-0000-2d7cd011db47";

/// A script of `tests/azurite` that runs until its standard input closes. It prints JSON when it is ready.
struct Script(Child);

impl Script {
    fn start(name: &str, arguments: &[&str]) -> (Self, String) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/azurite")
            .join(name);
        let mut command = Command::new("node");
        command
            .arg(script)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        (Self(process), line)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

pub(crate) struct Authority {
    folder: TempDir,
    _process: Script,
    pub(crate) port: u64,
}

fn certificates(folder: &Path) {
    let (root_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut root = CertificateParams::new(Vec::new()).unwrap();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let leaf = leaf
        .signed_by(&key, &Issuer::from_params(&root, &root_key))
        .unwrap();
    let root = root.self_signed(&root_key).unwrap();
    for (name, pem) in [
        ("leaf.pem", leaf.pem()),
        ("leaf.key", key.serialize_pem()),
        ("root.pem", root.pem()),
    ] {
        fs::write(folder.join(name), pem).unwrap();
    }
}

impl Authority {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        certificates(folder.path());
        let file = |name: &str| folder.path().join(name).display().to_string();
        let (process, line) =
            Script::start("authority.mjs", &[&file("leaf.pem"), &file("leaf.key")]);
        let port = serde_json::from_str::<Value>(&line).unwrap()["port"]
            .as_u64()
            .unwrap();
        let authority = Self {
            folder,
            _process: process,
            port,
        };
        authority.federate(&json!({}));
        authority
    }

    /// The certificate of the token authority for loopback, with which it also signs tokens.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.path().join("leaf.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.folder.path().join("leaf.key")
    }

    /// Gives the pod this federated token. `authority.mjs` describes the fields.
    pub(crate) fn federate(&self, token: &Value) {
        // The file is replaced by a rename, as a kubelet does, so that a reader finds either the old or the new token.
        let (new, token_file) = (
            self.folder.path().join("token.new"),
            self.folder.path().join("token"),
        );
        fs::write(&new, token.to_string()).unwrap();
        fs::rename(new, token_file).unwrap();
    }

    /// The environment variable that makes a program trust the certificate.
    pub(crate) fn trust(&self) -> (String, String) {
        (
            "SSL_CERT_FILE".to_owned(),
            self.folder.path().join("root.pem").display().to_string(),
        )
    }

    /// The environment that the webhook of workload identity gives to a pod.
    pub(crate) fn workload(&self) -> Vec<(String, String)> {
        let (token, authority) = (
            self.folder.path().join("token").display().to_string(),
            format!("https://127.0.0.1:{}/", self.port),
        );
        let variables = [
            ("TENANT_ID", TENANT),
            ("CLIENT_ID", "c1"),
            ("FEDERATED_TOKEN_FILE", &token),
            ("AUTHORITY_HOST", &authority),
        ];
        variables
            .map(|(name, value)| (format!("AZURE_{name}"), value.to_owned()))
            .into()
    }

    /// A gateway to the accounts of an Azurite. The gateway accepts tokens of this authority, and no shared key.
    pub(crate) fn gateway(&self, azurite: Ports) -> Gateway {
        let behind = json!({"blob": azurite.blob, "queue": azurite.queue, "table": azurite.table})
            .to_string();
        let (process, line) = Script::start(
            "gateway.mjs",
            &[&self.certificate().display().to_string(), KEY, &behind],
        );
        Gateway {
            _process: process,
            ports: serde_json::from_str(&line).unwrap(),
        }
    }
}

pub(crate) struct Gateway {
    _process: Script,
    pub(crate) ports: Ports,
}

impl Gateway {
    pub(crate) fn account(&self, name: &str) -> String {
        let endpoint = |service: &str, port: u16| {
            format!("endpoints.{service} = \"http://127.0.0.1:{port}/{name}\"\n")
        };
        let Ports { blob, queue, table } = self.ports;
        format!(
            "auth = \"entra\"\nname = \"{name}\"\n{}{}{}",
            endpoint("table", table),
            endpoint("queue", queue),
            endpoint("blob", blob)
        )
    }
}
