//! Open connections, and which of them gives way to a newcomer where there is no room.
//!
//! A newcomer is never refused and never waits: a probe comes in for any number of open connections. At the limit of its
//! network the connection of that network gives way that has been silent longest; at the limit of the server one of the network that
//! has the most. A connection with a request being answered is the last to go.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Most connections at a time: twice the pages that may be live, and half of the file descriptors that a process has by default.
const CONNECTIONS: usize = 512;
/// Most of one network: the rest is out of its reach.
const OF_ONE_NETWORK: usize = 384;

/// The network of a client: an IPv4 address, or the 64 bits of an IPv6 address that one customer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Network(IpAddr);

impl Network {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => Self(IpAddr::V6(Ipv6Addr::from_bits(
                address.to_bits() >> 64 << 64,
            ))),
            address @ IpAddr::V4(_) => Self(address),
        }
    }
}

/// The open connections of a server.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: Mutex<BTreeMap<u64, OpenConnection>>,
    /// Counts events on connections: their order, without a clock.
    events: Arc<AtomicU64>,
}

#[derive(Debug)]
struct OpenConnection {
    network: Network,
    activity: Arc<Activity>,
    evicted: CancellationToken,
}

/// When a connection was last heard from, and whether it is being answered.
#[derive(Debug)]
pub(super) struct Activity {
    events: Arc<AtomicU64>,
    last: AtomicU64,
    answering: AtomicUsize,
}

impl Activity {
    /// Bytes came or went.
    pub(super) fn heard(&self) {
        self.last.store(
            self.events.fetch_add(1, Ordering::Relaxed),
            Ordering::Relaxed,
        );
    }

    /// A request is being answered until the result is dropped.
    pub(super) fn answering(self: Arc<Self>) -> Answering {
        self.answering.fetch_add(1, Ordering::Relaxed);
        Answering(self)
    }

    /// Smaller for the connection that goes first.
    fn worth(&self) -> (bool, u64) {
        (
            self.answering.load(Ordering::Relaxed) > 0,
            self.last.load(Ordering::Relaxed),
        )
    }
}

/// A request that is being answered.
pub(super) struct Answering(Arc<Activity>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answering.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection's place among the open ones, until it is dropped.
pub(super) struct ConnectionSlot {
    among: Arc<Connections>,
    id: u64,
    activity: Arc<Activity>,
    evicted: CancellationToken,
}

impl Connections {
    /// Takes a connection in; another one gives way where there is no room.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> ConnectionSlot {
        let network = Network::of(address);
        let id = self.events.fetch_add(1, Ordering::Relaxed);
        let activity = Arc::new(Activity {
            events: Arc::clone(&self.events),
            last: AtomicU64::new(id),
            answering: AtomicUsize::new(0),
        });
        let evicted = CancellationToken::new();
        let mut open = self.lock();
        if let Some(victim) = victim(&open, network)
            && let Some(victim) = open.remove(&victim)
        {
            tracing::debug!(network = %victim.network.0, "no room for another connection: the one that was silent longest is closed");
            victim.evicted.cancel();
        }
        open.insert(
            id,
            OpenConnection {
                network,
                activity: Arc::clone(&activity),
                evicted: evicted.clone(),
            },
        );
        drop(open);
        ConnectionSlot {
            among: Arc::clone(self),
            id,
            activity,
            evicted,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, OpenConnection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection that gives way to a newcomer of a network; none where there is room. Pure.
fn victim(open: &BTreeMap<u64, OpenConnection>, newcomer: Network) -> Option<u64> {
    let mut counts: BTreeMap<Network, usize> = BTreeMap::new();
    for connection in open.values() {
        *counts.entry(connection.network).or_default() += 1;
    }
    let crowded = if counts
        .get(&newcomer)
        .is_some_and(|count| *count >= OF_ONE_NETWORK)
    {
        newcomer
    } else if open.len() >= CONNECTIONS {
        // Of two that have as many, the newcomer's own.
        counts
            .into_iter()
            .max_by_key(|(network, count)| (*count, *network == newcomer))
            .map(|(network, _)| network)?
    } else {
        return None;
    };
    let of_it = open
        .iter()
        .filter(|(_, connection)| connection.network == crowded);
    of_it
        .min_by_key(|(_, connection)| connection.activity.worth())
        .map(|(id, _)| *id)
}

impl ConnectionSlot {
    /// The activity of the connection, to be reported to.
    pub(super) fn activity(&self) -> Arc<Activity> {
        Arc::clone(&self.activity)
    }

    /// Ends when the connection has to give way.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.among.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn evicted(places: &[ConnectionSlot]) -> Vec<usize> {
        (0..places.len())
            .filter(|at| places[*at].evicted.is_cancelled())
            .collect()
    }

    #[test]
    fn one_network_gives_way_to_itself_silent_connections_first() {
        let connections = Arc::new(Connections::default());
        let places: Vec<ConnectionSlot> = (0..OF_ONE_NETWORK)
            .map(|_| connections.admit(address(1)))
            .collect();
        let answered = places[0].activity().answering();
        places[1].activity().heard();
        let newcomer = connections.admit(address(1));
        assert_eq!(
            evicted(&places),
            [2],
            "the first is being answered, the second was heard since"
        );
        let other = connections.admit(address(2));
        assert_eq!(evicted(&places), [2], "others have room");
        drop(answered);
        let next = connections.admit(address(1));
        assert_eq!(
            evicted(&places),
            [0, 2],
            "an answer that is over protects no more"
        );
        assert!(
            [newcomer, other, next]
                .iter()
                .all(|place| !place.evicted.is_cancelled())
        );
    }

    #[test]
    fn at_the_limit_the_network_that_has_the_most_gives_way() {
        let connections = Arc::new(Connections::default());
        let many: Vec<ConnectionSlot> = (0..OF_ONE_NETWORK)
            .map(|_| connections.admit(address(1)))
            .collect();
        let few: Vec<ConnectionSlot> = (OF_ONE_NETWORK..CONNECTIONS)
            .map(|_| connections.admit(address(2)))
            .collect();
        let scraper = connections.admit(address(3));
        assert_eq!((evicted(&many), evicted(&few)), (vec![0], vec![]));
        assert_eq!(connections.lock().len(), CONNECTIONS);
        drop((many, few, scraper));
        assert_eq!(connections.lock().len(), 0);
    }

    #[test]
    fn a_network_is_an_address_or_what_one_customer_has() {
        let of = |text: &str| Network::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1:2:3"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.2"), of("10.0.0.1"));
    }
}
