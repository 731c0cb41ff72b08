//! Wakes a worker with the same configuration, so that it polls its queue at once.
//!
//! The request does not contain the token, but a key that is derived from the token and can only
//! wake a worker. So another program that listens on the port gets no right to change anything.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use evenkeel_model::QueueName;
use evenkeel_model::settings::HttpSettings;
use evenkeel_ops::bell_key;

/// Maximum time that a command waits for a worker's answer.
const WAKE_TIMEOUT: Duration = Duration::from_millis(500);

/// Wakes a worker if one is reachable and a token is configured. Otherwise the worker finds the job
/// with its next poll.
pub(super) async fn wake_worker(http: &HttpSettings, queue: &QueueName) {
    let Some(token) = http.operator() else { return };
    if http.listen.port() == 0 {
        return;
    }
    let rung = timeout(
        WAKE_TIMEOUT,
        post(
            reachable(http.listen),
            &bell_key(token),
            &json!({"queue": queue}).to_string(),
        ),
    )
    .await;
    if !matches!(rung, Ok(Ok(()))) {
        tracing::debug!(address = %http.listen, "could not wake a worker: the job waits for the next poll");
    }
}

async fn post(address: SocketAddr, key: &str, body: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "POST /api/v1/wake HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    // Any answer means that the worker was woken.
    stream.read_exact(&mut [0; 12]).await.map(drop)
}

/// The address at which a program on this machine reaches a server that listens at `listen`.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_every_address_is_reached_on_this_machine() {
        for (listen, reached) in [
            ("0.0.0.0:1", "127.0.0.1:1"),
            ("[::]:1", "[::1]:1"),
            ("10.0.0.7:1", "10.0.0.7:1"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()), reached.parse().unwrap());
        }
    }
}
