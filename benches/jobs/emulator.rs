//! Azurite as the contests use it, and the processor time it takes.

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
        Self { rest: Azurite::in_memory(), queues }
    }

    pub(crate) fn ports(&self) -> Ports {
        Ports { queue: self.queues.as_ref().map_or(self.rest.ports.queue, |queues| queues.ports.queue), ..self.rest.ports }
    }

    /// Processor time so far, as the kernel counts it: in hundredths of a second.
    pub(crate) fn processor_ms(&self) -> f64 {
        std::iter::once(&self.rest).chain(&self.queues).filter_map(Azurite::process_id).map(processor_ms).sum()
    }
}

fn processor_ms(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name in parentheses may hold anything; user and system time are the 12th and 13th after it.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    fields.get(11..13).unwrap_or_default().iter().filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() * 10.0
}
