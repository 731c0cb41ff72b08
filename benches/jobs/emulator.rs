//! Azurite as the contests use it, and the processor time that processes take.

use crate::contest::Services;
use crate::support::azurite::{Azurite, Ports};

/// One Azurite, or one for queues and one for the rest.
pub(crate) struct Emulator {
    rest: Azurite,
    queues: Option<Azurite>,
}

impl Emulator {
    pub(crate) fn start(services: Services) -> Self {
        let queues = match services {
            Services::Apart => Some(Azurite::in_memory()),
            Services::Together => None,
        };
        Self {
            rest: Azurite::in_memory(),
            queues,
        }
    }

    pub(crate) fn ports(&self) -> Ports {
        Ports {
            queue: self
                .queues
                .as_ref()
                .map_or(self.rest.ports.queue, |queues| queues.ports.queue),
            ..self.rest.ports
        }
    }

    /// Processor time so far, as the kernel counts it: in hundredths of a second.
    pub(crate) fn processor_ms(&self) -> f64 {
        std::iter::once(&self.rest)
            .chain(&self.queues)
            .filter_map(Azurite::process_id)
            .map(processor_ms)
            .sum()
    }
}

/// Processor time so far of the processes that this one started, and that have ended.
pub(crate) fn children_ms() -> f64 {
    ticks(&stat("self"), 13..15) * 10.0
}

fn processor_ms(process: u32) -> f64 {
    ticks(&stat(&process.to_string()), 11..13) * 10.0
}

fn stat(process: &str) -> String {
    std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default()
}

/// The sum of some fields of a process: user and system time are the 12th and 13th after its name, those of its children the next two.
fn ticks(stat: &str, fields: std::ops::Range<usize>) -> f64 {
    // The name in parentheses may hold anything.
    let all: Vec<&str> = stat
        .rsplit(") ")
        .next()
        .unwrap_or_default()
        .split(' ')
        .collect();
    all.get(fields)
        .unwrap_or_default()
        .iter()
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum()
}
