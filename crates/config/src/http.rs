//! `[http]`: the address, and the tokens with their rights.

use std::net::SocketAddr;

use secrecy::ExposeSecret as _;

use super::secret::SecretKeys;
use super::section::{AlreadyReported, Section};
use evenkeel_model::ViewName;
use evenkeel_model::local::is_loopback;
use evenkeel_model::settings::{HttpRole, HttpSettings, HttpToken};

const TOKEN: SecretKeys = SecretKeys {
    env: "token_env",
    file: "token_file",
};
/// The name of the token that is set directly in `[http]`. The holder of this token may see contents of entities.
const DEFAULT_NAME: &str = "token";

pub(super) fn http(root: &Section<'_>) -> Option<HttpSettings> {
    let section = root.section("http")?;
    let listen = section.required("listen", "an address and a port, such as \"127.0.0.1:9464\"", |text| {
        text.parse::<SocketAddr>()
            .map_err(|_| format!("expected an address and a port, such as \"127.0.0.1:9464\" or \"[::1]:9464\", found {text:?}"))
    });
    let open_reads = section.boolean("open_reads");
    let mut tokens = Vec::new();
    let mut is_whole = true;
    if let Some(secret) = TOKEN.configured(&section) {
        is_whole &= add_token(
            &mut tokens,
            &section,
            HttpToken {
                name: DEFAULT_NAME.to_owned(),
                secret,
                role: HttpRole::Operate,
                contents: true,
            },
        );
    }
    for (name, token) in section.subsections("tokens") {
        match named_token(name, &token) {
            Ok(Some(read)) => is_whole &= add_token(&mut tokens, &token, read),
            Ok(None) => {}
            Err(AlreadyReported) => is_whole = false,
        }
    }
    section.finish();
    let listen = listen?;
    if !is_loopback(listen.ip()) && tokens.is_empty() {
        let hint = match TOKEN.describe_variable(&section) {
            Some(variable) => format!("set {variable}"),
            None => "set token_env or token_file".to_owned(),
        };
        section.error("listen", format!("{listen} is reachable from other machines and needs a token: {hint}, or listen on 127.0.0.1"));
        return None;
    }
    Some(HttpSettings {
        listen,
        tokens,
        open_reads: open_reads?,
    })
    .filter(|_| is_whole)
}

/// Reads `[http.tokens.NAME]`. `None` if the environment variable of the token is not set.
fn named_token(name: &str, section: &Section<'_>) -> Result<Option<HttpToken>, AlreadyReported> {
    let valid = ViewName::new(name)
        .map_err(|error| section.error("", error))
        .is_ok();
    let is_taken = name == DEFAULT_NAME;
    if is_taken {
        section.error(
            "",
            format!("{name:?} is the name of the token in [http] itself; expected another name"),
        );
    }
    let role = section.required_one_of(
        "role",
        &[("read", HttpRole::Read), ("operate", HttpRole::Operate)],
    );
    let contents = section
        .optional("contents", |section| section.boolean("contents"))?
        .unwrap_or(false);
    let secret = TOKEN.configured(section);
    section.finish();
    let (Some(role), true, false) = (role, valid, is_taken) else {
        return Err(AlreadyReported);
    };
    if let Some(secret) = secret {
        return Ok(Some(HttpToken {
            name: name.to_owned(),
            secret,
            role,
            contents,
        }));
    }
    let Some(variable) = TOKEN.describe_variable(section) else {
        // Problems with the token's file are already reported.
        if !section.has("token_file") {
            section.error(
                "token_env",
                "missing; expected the name of an environment variable, or token_file with the path of a file",
            );
        }
        return Err(AlreadyReported);
    };
    section.warning(
        "token_env",
        format!("{variable} is not set, so this token grants no access"),
    );
    Ok(None)
}

/// Adds a token. If the token can be guessed or is already in use, the mistake is reported and the result is false.
fn add_token(tokens: &mut Vec<HttpToken>, section: &Section<'_>, token: HttpToken) -> bool {
    let text = &token.secret.text;
    let same = tokens
        .iter()
        .find(|other| other.secret.text.expose_secret() == text.expose_secret());
    let problem = HttpToken::refusal(text).or_else(|| {
        same.map(|other| format!("same token as {:?}; expected a different one", other.name))
    });
    let is_token = problem.is_none();
    match problem {
        Some(problem) => {
            let variable = section
                .text(token.secret.setting)
                .filter(|_| token.secret.setting.ends_with("_env"));
            let of = variable
                .map(|name| format!(" (environment variable {name})"))
                .unwrap_or_default();
            section.error(token.secret.setting, format!("{problem}{of}"));
        }
        None => tokens.push(token),
    }
    is_token
}
