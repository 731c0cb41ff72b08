use std::io::Read as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A running worker, which is killed when this value is dropped.
pub(crate) struct Worker {
    process: Child,
    log: Option<JoinHandle<String>>,
}

impl Worker {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = process.stderr.take().unwrap();
        // The log is read continuously, because a full pipe would stop the worker.
        let log = thread::spawn(move || {
            let mut log = String::new();
            let _ = errors.read_to_string(&mut log);
            log
        });
        Self {
            process,
            log: Some(log),
        }
    }

    pub(crate) fn kill(mut self) {
        assert!(
            self.process.try_wait().unwrap().is_none(),
            "the worker ended unexpectedly: {}",
            self.log()
        );
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(crate) fn terminate(&self) {
        let asked = Command::new("sh")
            .args(["-c", &format!("kill -TERM {}", self.process.id())])
            .status()
            .unwrap();
        assert!(asked.success());
    }

    pub(crate) fn reload(&self) {
        let asked = Command::new("sh")
            .args(["-c", &format!("kill -HUP {}", self.process.id())])
            .status()
            .unwrap();
        assert!(asked.success());
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let mut ended = None;
        wait_until("the worker ends", || {
            ended = self.process.try_wait().unwrap();
            ended.is_some()
        });
        (ended.unwrap(), self.log())
    }

    pub(crate) fn stop(self) {
        self.terminate();
        let (status, log) = self.end();
        assert_eq!(status.code(), Some(0), "{log}");
    }

    fn log(&mut self) -> String {
        self.log
            .take()
            .map(|log| log.join().unwrap())
            .unwrap_or_default()
    }
}

impl Drop for Worker {
    /// If the test fails, prints the last lines of the worker's log.
    #[expect(clippy::print_stderr, reason = "part of the report of a failed test")]
    fn drop(&mut self) {
        const LINES: usize = 100;
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(LINES)..];
            eprintln!("last lines of the worker's log:\n{}", last.join("\n"));
        }
    }
}

/// Waits for a state outside this process. Fails after two minutes.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    const STEP: Duration = Duration::from_millis(20);
    for _ in 0..6_000 {
        if holds() {
            return;
        }
        thread::sleep(STEP);
    }
    panic!("timed out waiting until {what}");
}
