//! The sender of a request, for audit lines in the log.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::http::HeaderMap;

use super::origin;

/// Maximum number of bytes of a forwarding header that the log shows.
const CLAIM_BYTES: usize = 128;

/// The address at the other end of the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

impl Peer {
    /// Stands for an unknown address.
    pub(super) const NOBODY: Self = Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
}

/// The sender of a change, as audit lines name it.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    pub(crate) peer: IpAddr,
    /// Name of the token.
    by: Option<Arc<str>>,
    /// The client address in a proxy's header. Any sender can forge it.
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

    pub(crate) fn by(&self) -> Option<&str> {
        self.by.as_deref()
    }

    pub(crate) fn claimed(&self) -> Option<&str> {
        self.claimed.as_deref()
    }
}
