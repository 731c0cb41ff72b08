//! `kind = "postgresql"`: a database on a server.

use std::net::IpAddr;
use std::path::PathBuf;

use crate::secret::SecretKeys;
use crate::section::Section;
use evenkeel_model::local::is_local_host;
use evenkeel_model::settings::{PostgresSettings, SinkKind, SqlSettings, SqlTls};

const PASSWORD: SecretKeys = SecretKeys {
    env: "password_env",
    file: "password_file",
};
const PORT: u16 = 5_432;

pub(super) fn read(section: &Section<'_>) -> Option<SinkKind> {
    let host = section.required(
        "host",
        "the name of a server, or the folder of its socket, such as \"/run/postgresql\"",
        parse_host,
    );
    let port = section.with_default("port", PORT, |key| {
        u16::try_from(section.integer(key, 1..=65_535)?).ok()
    });
    let database = section.required("database", "the name of a database", non_empty_name);
    let user = section.required("user", "the role to sign in as", non_empty_name);
    let password = PASSWORD.optional(section);
    let socket = host.as_deref().is_some_and(|host| host.starts_with('/'));
    let ca_file = section.optional("ca_file", |section| {
        section.text("ca_file").map(PathBuf::from)
    });
    let host = host?;
    // Connections within this machine do not use TLS.
    let tls = match ca_file.ok()? {
        Some(_) if socket => {
            section.error("ca_file", "a socket has no TLS; remove this key");
            return None;
        }
        None if socket || is_local_host(&host) => SqlTls::Off,
        ca_file => SqlTls::Verify { ca_file },
    };
    let settings = PostgresSettings {
        host,
        port: port?,
        database: database?,
        user: user?,
        password: password.ok()?,
        tls,
    };
    Some(SinkKind::Sql(SqlSettings::Postgres(Box::new(settings))))
}

/// Parses the name, address or folder of a server. The error does not repeat the text, because people paste whole
/// connection strings.
fn parse_host(text: &str) -> Result<String, String> {
    let host = non_empty_name(text)?;
    let is_host = host.starts_with('/')
        || host.parse::<IpAddr>().is_ok()
        || !host.contains(['/', '@', ':', '=', ' ']);
    if is_host {
        Ok(host)
    } else {
        Err("expected the name of a server, without port, user or password".to_owned())
    }
}

fn non_empty_name(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("expected a name, found an empty string".to_owned()),
        name => Ok(name.to_owned()),
    }
}
