//! A scripted HTTP/1.1 server on loopback, for behavior that a real service shows rarely, and an emulator never.
//!
//! A closure decides what happens to each request. It is answered, perhaps late or only in part; or it gets no answer; or the connection
//! breaks; or a real service behind the stub answers ([`Reply::Forward`]). So most requests can run against Azurite, while some get a 503.
//!
//! ```no_run
//! let stub = Stub::start(|request| match request.number {
//!     0 => Reply::status(503).header("Retry-After", "2").into(),
//!     _ => Reply::Forward,
//! })
//! .forward_to(azurite.table);
//! ```

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Request {
    /// Number of the request since the stub was started, from 0.
    pub number: usize,
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

#[derive(Debug, Clone)]
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    keep: Option<usize>,
    delay: Duration,
}

#[derive(Debug, Clone)]
pub enum Reply {
    Answer(Answer),
    Forward,
    /// The service behind the stub executes the request. Then the connection is reset before the answer.
    ForwardThenReset,
    /// The connection is reset, and nothing is executed.
    Reset,
    /// The request is not answered while the stub runs.
    Silence,
}

impl Reply {
    pub const fn status(status: u16) -> Answer {
        Answer {
            status,
            headers: Vec::new(),
            body: Vec::new(),
            keep: None,
            delay: Duration::ZERO,
        }
    }
}

impl Answer {
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Cuts the answer off after this many bytes of the body, although the Content-Length header states the full
    /// length.
    pub const fn cut_after(mut self, bytes: usize) -> Self {
        self.keep = Some(bytes);
        self
    }

    /// Delays the answer in real time, so keep the delay short.
    pub const fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    pub fn like_azure(self) -> Self {
        self.header("Server", "Windows-Azure-Table/1.0 Microsoft-HTTPAPI/2.0")
            .header("x-ms-request-id", "7d6eb5c1-0002-0000-0000-000000000000")
            .header("x-ms-version", "2022-11-02")
            .header("Date", "Fri, 20 Nov 2026 15:00:00 GMT")
    }
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}

type Script = Box<dyn Fn(&Request) -> Reply + Send + Sync>;

/// A running stub. Dropping it closes its connections and waits for its threads.
pub struct Stub {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    address: SocketAddr,
    script: Script,
    behind: AtomicU16,
    stopping: AtomicBool,
    count: AtomicUsize,
    seen: Mutex<Vec<Request>>,
    connections: Mutex<Vec<(TcpStream, Option<JoinHandle<()>>)>>,
    stopped: (Mutex<bool>, Condvar),
}

impl Stub {
    pub fn start(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let shared = Arc::new(Shared {
            address: listener.local_addr().expect("its address"),
            script: Box::new(script),
            behind: AtomicU16::new(0),
            stopping: AtomicBool::new(false),
            count: AtomicUsize::new(0),
            seen: Mutex::default(),
            connections: Mutex::default(),
            stopped: Default::default(),
        });
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.accept(&listener)
        });
        Self {
            shared,
            acceptor: Some(acceptor),
        }
    }

    pub fn always(answer: Answer) -> Self {
        Self::start(move |_| answer.clone().into())
    }

    #[must_use]
    pub fn forward_to(self, port: u16) -> Self {
        self.shared.behind.store(port, Ordering::SeqCst);
        self
    }

    pub fn port(&self) -> u16 {
        self.shared.address.port()
    }

    pub fn requests(&self) -> Vec<Request> {
        self.shared.seen.lock().unwrap().clone()
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        *self.shared.stopped.0.lock().unwrap() = true;
        self.shared.stopped.1.notify_all();
        // The acceptor thread waits in `accept`, so one more connection wakes it.
        let _ = TcpStream::connect(self.shared.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        let connections = std::mem::take(&mut *self.shared.connections.lock().unwrap());
        for (stream, worker) in connections {
            let _ = stream.shutdown(Shutdown::Both);
            if let Some(worker) = worker {
                let _ = worker.join();
            }
        }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming().flatten() {
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            let Ok(handle) = stream.try_clone() else {
                continue;
            };
            let worker = thread::spawn({
                let shared = Arc::clone(self);
                move || {
                    let _ = shared.serve(stream);
                }
            });
            self.connections
                .lock()
                .unwrap()
                .push((handle, Some(worker)));
        }
    }

    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut unread = Vec::new();
        let mut behind = None;
        while let Some(message) = Head::read(&mut stream, &mut unread)? {
            let request = self.request(message, &mut stream, &mut unread)?;
            match (self.script)(&request) {
                Reply::Answer(answer) => {
                    if !self.pause(answer.delay)
                        || !answer.write(&mut stream, request.method == "HEAD")?
                    {
                        return stream.shutdown(Shutdown::Both);
                    }
                }
                Reply::Forward => {
                    let answer = self.forward(&request, &mut behind)?;
                    stream.write_all(&answer)?;
                }
                Reply::ForwardThenReset => {
                    self.forward(&request, &mut behind)?;
                    return reset(&stream);
                }
                Reply::Reset => return reset(&stream),
                Reply::Silence => {
                    let stopped = self.stopped.0.lock().unwrap();
                    drop(
                        self.stopped
                            .1
                            .wait_while(stopped, |stopped| !*stopped)
                            .unwrap(),
                    );
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Waits for this time. Returns `false` if the stub is stopped meanwhile.
    fn pause(&self, time: Duration) -> bool {
        if time.is_zero() {
            return true;
        }
        let stopped = self.stopped.0.lock().unwrap();
        !*self
            .stopped
            .1
            .wait_timeout_while(stopped, time, |stopped| !*stopped)
            .unwrap()
            .0
    }

    fn request(
        &self,
        head: Head,
        stream: &mut TcpStream,
        unread: &mut Vec<u8>,
    ) -> io::Result<Request> {
        let body = head.body(stream, unread, true)?;
        let mut words = head.first.split(' ');
        let request = Request {
            number: self.count.fetch_add(1, Ordering::SeqCst),
            method: words.next().unwrap_or_default().to_owned(),
            target: words.next().unwrap_or_default().to_owned(),
            headers: head.headers,
            body,
        };
        self.seen.lock().unwrap().push(request.clone());
        Ok(request)
    }

    fn forward(&self, request: &Request, behind: &mut Option<TcpStream>) -> io::Result<Vec<u8>> {
        let port = self.behind.load(Ordering::SeqCst);
        assert_ne!(port, 0, "Reply::Forward needs Stub::forward_to");
        let mut stream = match behind.take() {
            Some(open) => open,
            None => TcpStream::connect((Ipv4Addr::LOCALHOST, port))?,
        };
        let mut bytes = format!("{} {} HTTP/1.1\r\n", request.method, request.target).into_bytes();
        for (name, value) in request
            .headers
            .iter()
            .filter(|(name, _)| !matches!(name.as_str(), "transfer-encoding" | "content-length"))
        {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        bytes.extend_from_slice(
            format!("content-length: {}\r\n\r\n", request.body.len()).as_bytes(),
        );
        bytes.extend_from_slice(&request.body);
        stream.write_all(&bytes)?;
        let mut unread = Vec::new();
        let head = Head::read(&mut stream, &mut unread)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let status: u16 = head
            .first
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0);
        let empty = request.method == "HEAD" || matches!(status, 100..=199 | 204 | 304);
        let body = if empty {
            Vec::new()
        } else {
            head.body(&mut stream, &mut unread, false)?
        };
        let mut answer = format!("{}\r\n", head.first).into_bytes();
        for (name, value) in &head.headers {
            // The stub forwards a chunked body in one piece, without the header.
            if name != "transfer-encoding" && (name != "content-length" || request.method == "HEAD")
            {
                answer.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
            }
        }
        if !empty {
            answer.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        answer.extend_from_slice(b"\r\n");
        answer.extend_from_slice(&body);
        *behind = Some(stream);
        Ok(answer)
    }
}

/// Closes a connection with RST and not with FIN if the platform allows that, so that the client sees a reset.
fn reset(stream: &TcpStream) -> io::Result<()> {
    // If there are unread bytes, the kernel sends RST. If there are none, the connection ends early, which the client
    // must treat like a reset.
    stream.shutdown(Shutdown::Both)
}

impl Answer {
    /// Writes the answer. Returns `false` if the connection cannot be used any more.
    fn write(&self, stream: &mut TcpStream, head: bool) -> io::Result<bool> {
        let mut bytes = format!("HTTP/1.1 {} Scripted\r\n", self.status).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        let bodiless = matches!(self.status, 100..=199 | 204 | 304);
        let named = self
            .headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        if !bodiless && !named {
            bytes.extend_from_slice(format!("Content-Length: {}\r\n", self.body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        if !head && !bodiless {
            bytes.extend_from_slice(
                &self.body[..self.keep.unwrap_or(self.body.len()).min(self.body.len())],
            );
        }
        stream.write_all(&bytes)?;
        Ok(self.keep.is_none())
    }
}

struct Head {
    first: String,
    headers: Vec<(String, String)>,
}

impl Head {
    /// Reads a request or an answer. Returns `None` if the connection ends before the head begins.
    fn read(stream: &mut impl Read, unread: &mut Vec<u8>) -> io::Result<Option<Self>> {
        let end = loop {
            if let Some(end) = unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            if more(stream, unread)? == 0 {
                return Ok(None);
            }
        };
        let text = String::from_utf8_lossy(&unread[..end]).into_owned();
        unread.drain(..end + 4);
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap_or_default().to_owned();
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.trim().to_lowercase(), value.trim().to_owned()));
        Ok(Some(Self {
            first,
            headers: headers.collect(),
        }))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }

    /// Reads the body: by its length, in chunks, or (only for an answer) until the connection ends.
    fn body(
        &self,
        stream: &mut impl Read,
        unread: &mut Vec<u8>,
        request: bool,
    ) -> io::Result<Vec<u8>> {
        if self
            .header("transfer-encoding")
            .is_some_and(|coding| coding.contains("chunked"))
        {
            return chunks(stream, unread);
        }
        match self
            .header("content-length")
            .and_then(|length| length.parse().ok())
        {
            Some(length) => exactly(stream, unread, length),
            None if request => Ok(Vec::new()),
            None => {
                while more(stream, unread)? > 0 {}
                Ok(std::mem::take(unread))
            }
        }
    }
}

fn more(stream: &mut impl Read, unread: &mut Vec<u8>) -> io::Result<usize> {
    let mut buffer = [0; 16_384];
    let length = stream.read(&mut buffer)?;
    unread.extend_from_slice(&buffer[..length]);
    Ok(length)
}

fn exactly(stream: &mut impl Read, unread: &mut Vec<u8>, length: usize) -> io::Result<Vec<u8>> {
    while unread.len() < length {
        if more(stream, unread)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(unread.drain(..length).collect())
}

fn chunks(stream: &mut impl Read, unread: &mut Vec<u8>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = unread.windows(2).position(|window| window == b"\r\n") {
                break end;
            }
            if more(stream, unread)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        let line = String::from_utf8_lossy(&unread[..end]).into_owned();
        unread.drain(..end + 2);
        let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16)
            .map_err(io::Error::other)?;
        body.extend_from_slice(&exactly(stream, unread, size)?);
        exactly(stream, unread, 2)?;
        if size == 0 {
            return Ok(body);
        }
    }
}
