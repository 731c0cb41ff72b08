//! Tracks open connections and selects the one to close when a limit is reached.
//!
//! A new connection is always accepted at once, so that a probe succeeds no matter how many connections are open. If a
//! limit is reached, another connection is closed. At the limit of the new connection's network, it is a connection of
//! this network. At the limit of the server, it is a connection of the network with the most connections. From this
//! network, the connection that was idle longest is closed. A connection with a request in progress is closed only if
//! all connections of the network have one.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Maximum number of connections: twice the maximum number of live pages, and half of the default limit of file
/// descriptors.
const CONNECTIONS: usize = 512;
/// Maximum number of connections per network, so that one network cannot use all connections of the server.
const OF_ONE_NETWORK: usize = 384;

/// The network of a client: an IPv4 address, or the /64 prefix that one customer usually has in IPv6.
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

#[derive(Debug, Default)]
pub(super) struct Connections {
    open: Mutex<BTreeMap<u64, OpenConnection>>,
    /// Number of connection events so far. It orders the events without a clock.
    events: Arc<AtomicU64>,
}

#[derive(Debug)]
struct OpenConnection {
    network: Network,
    activity: Arc<Activity>,
    evicted: CancellationToken,
}

/// The last event of a connection and the number of its requests in progress.
#[derive(Debug)]
pub(super) struct Activity {
    events: Arc<AtomicU64>,
    last: AtomicU64,
    answering: AtomicUsize,
}

impl Activity {
    /// Records that bytes were read or written.
    pub(super) fn record_activity(&self) {
        self.last.store(
            self.events.fetch_add(1, Ordering::Relaxed),
            Ordering::Relaxed,
        );
    }

    /// Marks a request as in progress until the returned value is dropped.
    pub(super) fn answering(self: Arc<Self>) -> Answering {
        self.answering.fetch_add(1, Ordering::Relaxed);
        Answering(self)
    }

    /// Returns a value that orders connections: the one with the smallest value is closed first.
    fn eviction_order(&self) -> (bool, u64) {
        (
            self.answering.load(Ordering::Relaxed) > 0,
            self.last.load(Ordering::Relaxed),
        )
    }
}

pub(super) struct Answering(Arc<Activity>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answering.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The registration of an open connection, removed on drop.
pub(super) struct ConnectionSlot {
    among: Arc<Connections>,
    id: u64,
    activity: Arc<Activity>,
    evicted: CancellationToken,
}

impl Connections {
    /// Registers a connection and closes another one if a limit is reached.
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
            tracing::debug!(network = %victim.network.0, "connection limit reached: closing the idle connection of {}", victim.network.0);
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

/// Returns the connection to close before a connection of this network is accepted; `None` if no limit is reached.
/// Pure.
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
        // If several networks have the most connections, the network of the new connection is preferred.
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
        .min_by_key(|(_, connection)| connection.activity.eviction_order())
        .map(|(id, _)| *id)
}

impl ConnectionSlot {
    pub(super) fn activity(&self) -> Arc<Activity> {
        Arc::clone(&self.activity)
    }

    /// Completes when the connection has to be closed.
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
    fn a_network_at_its_limit_loses_its_longest_idle_connection() {
        let connections = Arc::new(Connections::default());
        let places: Vec<ConnectionSlot> = (0..OF_ONE_NETWORK)
            .map(|_| connections.admit(address(1)))
            .collect();
        let answered = places[0].activity().answering();
        places[1].activity().record_activity();
        let newcomer = connections.admit(address(1));
        assert_eq!(
            evicted(&places),
            [2],
            "the first has a request in progress, and the second was active later"
        );
        let other = connections.admit(address(2));
        assert_eq!(
            evicted(&places),
            [2],
            "another network has not reached its limit"
        );
        drop(answered);
        let next = connections.admit(address(1));
        assert_eq!(
            evicted(&places),
            [0, 2],
            "a connection is not protected after its request"
        );
        assert!(
            [newcomer, other, next]
                .iter()
                .all(|place| !place.evicted.is_cancelled())
        );
    }

    #[test]
    fn at_the_server_limit_the_network_with_most_connections_loses_one() {
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
    fn a_network_is_an_ipv4_address_or_an_ipv6_prefix() {
        let of = |text: &str| Network::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1:2:3"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.2"), of("10.0.0.1"));
    }
}
