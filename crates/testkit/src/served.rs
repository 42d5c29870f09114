//! An SSD served to a client.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};

use crate::by_hand::{Client, PATIENCE};
use meantime_ssd::served::{Event, Server, Socket, SocketOptions};
use meantime_ssd::{Medium, MonotonicClock, Ssd, SsdConfig};

/// A served SSD. Fields are dropped in this order.
pub struct Rig {
    pub server: Server,
    pub ssd: Ssd,
    pub events: Receiver<Event>,
    _dir: tempfile::TempDir,
}

impl Rig {
    pub fn new(config: SsdConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let medium = Medium::dram(config.total_bytes()).unwrap();
        let ssd = Ssd::start(config, medium, MonotonicClock::new()).unwrap();
        let socket = Socket::bind(&dir.path().join("ssd.sock"), &SocketOptions::default()).unwrap();
        let (report, events) = channel();
        let server = Server::start(socket, ssd.function_port(), move |event| {
            let _ = report.send(event);
        });
        Self { server: server.unwrap(), ssd, events, _dir: dir }
    }

    pub fn path(&self) -> PathBuf {
        self.server.path().to_owned()
    }

    pub fn plain() -> Self {
        Self::new(SsdConfig::with_namespace(1 << 20, 512))
    }

    pub fn client(&self) -> Client {
        Client::new(&self.path(), "{}")
    }

    /// Waits for an event, ignoring those before it.
    pub fn wait_for(&self, is: impl Fn(&Event) -> bool) -> Event {
        loop {
            let event = self.events.recv_timeout(PATIENCE).expect("the event does not come");
            if is(&event) {
                return event;
            }
        }
    }

    pub fn wait_for_end(&self) -> Option<String> {
        match self.wait_for(|event| matches!(event, Event::Ended { .. })) {
            Event::Ended { why } => why,
            _ => unreachable!(),
        }
    }
}
