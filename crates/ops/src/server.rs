//! The HTTP server: it binds an address, accepts connections, and limits what clients can use.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::Routes;
use super::connections::{ConnectionSlot, Connections};
use super::guard::{Guard, Peer};
use super::write_timeout::WriteTimeout;
use evenkeel_model::local::is_loopback;
use evenkeel_model::settings::HttpSettings;

/// Maximum time in which a client may send the head of a request. It exceeds the usual 15 s between scrapes, so that
/// the idle connection of a scraper stays open.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a request head.
const HEAD_BYTES: usize = 16 * 1_024;
/// Maximum age of a connection, even if its client reads the answer one byte at a time.
const LONGEST_CONNECTION: Duration = Duration::from_mins(10);
/// How long a request in progress may continue when its connection has to be closed.
const LAST_REQUEST: Duration = Duration::from_secs(5);
/// Interval at which the recorder aggregates the samples of histograms, which use more and more memory until then.
const UPKEEP: Duration = Duration::from_secs(5);
/// Pause after a failed accept, which usually means that no file descriptor is left.
const AFTER_A_FAILED_ACCEPT: Duration = Duration::from_millis(100);

/// A bound server that is not running yet.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
    metrics: PrometheusHandle,
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is in use, or is no address of this machine.
    #[error(
        "could not listen on {address} (http.listen). Is another evenkeel running? Choose another port, or 127.0.0.1:0 for any"
    )]
    Bind {
        address: SocketAddr,
        #[source]
        cause: io::Error,
    },
    /// The address can be reached from other machines, so a token is required.
    #[error(
        "listening on {0} (http.listen) requires a token, because other machines can connect. Set http.token_env and its variable"
    )]
    TokenNeeded(SocketAddr),
}

impl Server {
    /// Binds the configured address. `more` contains further routes, which the guard also protects. No path may be both
    /// in `more` and in [`Routes`].
    pub async fn bind(
        settings: &HttpSettings,
        routes: Routes,
        more: Router,
    ) -> Result<Self, ServerError> {
        let wanted = settings.listen;
        if !is_loopback(wanted.ip()) && settings.tokens.is_empty() {
            return Err(ServerError::TokenNeeded(wanted));
        }
        let failed = |cause| ServerError::Bind {
            address: wanted,
            cause,
        };
        let listener = TcpListener::bind(wanted).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let metrics = routes.metrics.clone();
        let guard = Guard::new(address, settings, Arc::clone(&routes.clock));
        let router = routes.router(guard, more);
        Ok(Self {
            listener,
            address,
            router,
            metrics,
        })
    }

    /// Returns the bound address. If port 0 was requested, the result contains the actual port.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is cancelled. Then no more connections are accepted, and requests in progress may take up to
    /// 5 s to end.
    pub async fn serve(self, stop: CancellationToken) {
        tracing::debug!(address = %self.address, "accepting connections");
        let open = Arc::new(Connections::default());
        let mut connections = JoinSet::new();
        let mut upkeep = tokio::time::interval(UPKEEP);
        upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = upkeep.tick() => self.metrics.run_upkeep(),
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        connections.spawn(serve_connection(stream, peer, self.router.clone(), stop.clone(), open.admit(peer.ip())));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "could not accept a connection: {error}");
                        tokio::time::sleep(AFTER_A_FAILED_ACCEPT).await;
                    }
                },
            }
        }
        drop(self.listener);
        while connections.join_next().await.is_some() {}
    }
}

/// Serves one connection until it is closed.
async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    stop: CancellationToken,
    place: ConnectionSlot,
) {
    let peer = Peer(peer.ip().to_canonical());
    let router = TowerToHyperService::new(router);
    let activity = place.activity();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let (answering, answer) = (Arc::clone(&activity).answering(), router.call(request));
        async move {
            let _answering = answering;
            answer.await
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(
            TokioIo::new(WriteTimeout::new(stream, place.activity())),
            service,
        );
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        // This connection is closed at once, because its slot has been given to another connection.
        () = place.evicted() => return,
        () = stop.cancelled() => None,
        () = tokio::time::sleep(LONGEST_CONNECTION) => None,
    };
    let ended = if let Some(ended) = ended {
        ended
    } else {
        connection.as_mut().graceful_shutdown();
        tokio::time::timeout(LAST_REQUEST, connection)
            .await
            .unwrap_or(Ok(()))
    };
    if let Err(error) = ended {
        // Clients disconnect at any time, so this is logged only for debugging.
        tracing::debug!(%error, "connection ended early: {error}");
    }
}
