//! `[http]`: the address, and the tokens with their rights.

use std::net::SocketAddr;

use secrecy::{ExposeSecret as _, SecretString};

use super::ConfiguredSecret;

/// Shortest token, in characters: it has to withstand years of attempts from the network.
const TOKEN_CHARACTERS: usize = 16;

/// `[http]`
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// Where health, metrics and the dashboard listen.
    pub listen: SocketAddr,
    /// The tokens that are let in, each of a name of its own.
    pub tokens: Vec<HttpToken>,
    /// Clients that may read without a token on loopback. On any other address none may.
    pub open_reads: OpenReads,
    /// Whether they see contents of entities.
    pub open_contents: bool,
}

/// A token, its holder and their rights.
#[derive(Debug, Clone)]
pub struct HttpToken {
    /// Name of the holder, in audit lines.
    pub name: String,
    /// The token.
    pub secret: ConfiguredSecret,
    /// Its role.
    pub role: HttpRole,
    /// Whether it sees contents of entities: their properties, and the bodies of poison messages.
    pub contents: bool,
}

/// Role of a token's holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HttpRole {
    /// Read.
    Read,
    /// Read and change.
    Operate,
}

/// Clients that may read without a token on loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenReads {
    /// Those that connect from this machine, but through no proxy that shows itself.
    Direct,
    /// Those that connect from this machine, through a proxy too: the proxy authenticates its users.
    Proxied,
    /// None.
    Never,
}

impl HttpSettings {
    /// An address that programs of this machine read at, and without tokens.
    pub const fn open(listen: SocketAddr) -> Self {
        Self { listen, tokens: Vec::new(), open_reads: OpenReads::Direct, open_contents: true }
    }

    /// The first token that may change something.
    pub fn operator(&self) -> Option<&SecretString> {
        self.tokens.iter().find(|token| token.role == HttpRole::Operate).map(|token| &token.secret.text)
    }
}

impl HttpToken {
    /// Why a text is no token: it can be guessed.
    pub fn refusal(text: &SecretString) -> Option<String> {
        let characters = text.expose_secret().chars().count();
        (characters < TOKEN_CHARACTERS).then(|| {
            format!(
                "a token of {characters} characters can be guessed: expected at least {TOKEN_CHARACTERS}, such as `openssl rand -hex 32` prints"
            )
        })
    }
}
