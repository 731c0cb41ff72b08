//! Who sent a request, for the audit lines of the log.

use std::net::{IpAddr, Ipv4Addr};

use axum::http::HeaderMap;

use super::origin;

/// Longest text of a forwarding header that is told, in bytes.
const CLAIM_BYTES: usize = 128;

/// Who sent a request, as the connection says.
#[derive(Debug, Clone, Copy)]
pub(in crate::ops) struct Peer(pub(in crate::ops) IpAddr);

impl Peer {
    /// Nobody's address, where the connection does not say.
    pub(super) const NOBODY: Self = Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
}

/// Who asks for a change: each audit line tells of it.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    /// The other end of the connection.
    pub(crate) peer: IpAddr,
    /// For whom a proxy says that it asks. Anybody can write it.
    claimed: Option<String>,
}

impl Actor {
    pub(super) fn of(peer: Peer, headers: &HeaderMap) -> Self {
        let claimed = origin::forwarded_for(headers).map(|text| text.chars().take(CLAIM_BYTES).collect());
        Self { peer: peer.0, claimed }
    }

    /// For whom a proxy says that it asks, for a field of the log.
    pub(crate) fn claimed(&self) -> Option<&str> {
        self.claimed.as_deref()
    }
}
