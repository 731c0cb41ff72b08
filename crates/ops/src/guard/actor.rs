//! The sender of a request, for the audit lines of the log.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::http::HeaderMap;

use super::origin;

/// Longest text of a forwarding header that is logged, in bytes.
const CLAIM_BYTES: usize = 128;

/// The sender's address, by the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

impl Peer {
    /// A placeholder, where the connection has no address.
    pub(super) const NOBODY: Self = Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
}

/// The originator of a change: each audit line names it.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    /// The other end of the connection.
    pub(crate) peer: IpAddr,
    /// The name of their token.
    by: Option<Arc<str>>,
    /// The client that a proxy claims to ask for. Any sender can write it.
    claimed: Option<String>,
}

impl Actor {
    pub(super) fn of(peer: Peer, by: Option<Arc<str>>, headers: &HeaderMap) -> Self {
        let claimed =
            origin::forwarded_for(headers).map(|text| text.chars().take(CLAIM_BYTES).collect());
        Self {
            peer: peer.0,
            by,
            claimed,
        }
    }

    /// The name of their token, for a field of the log.
    pub(crate) fn by(&self) -> Option<&str> {
        self.by.as_deref()
    }

    /// The client that a proxy claims to ask for, for a field of the log.
    pub(crate) fn claimed(&self) -> Option<&str> {
        self.claimed.as_deref()
    }
}
