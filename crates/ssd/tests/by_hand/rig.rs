//! An SSD that is served to a client.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};

use meantime_ssd::served::{Event, Server, Socket, SocketOptions};
use meantime_ssd::{Medium, MonotonicClock, Ssd, SsdConfig};

/// A served SSD. Fields are dropped in this order.
pub(crate) struct Rig {
    pub server: Server,
    pub ssd: Ssd,
    pub events: Receiver<Event>,
    _dir: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new(config: SsdConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let medium = Medium::dram(config.total_bytes()).unwrap();
        let ssd = Ssd::start(config, medium, MonotonicClock::new()).unwrap();
        let socket = Socket::bind(&dir.path().join("ssd.sock"), &SocketOptions::default()).unwrap();
        let (tell, events) = channel();
        let server = Server::start(socket, ssd.function_port(), move |event| {
            let _ = tell.send(event);
        });
        Self { server: server.unwrap(), ssd, events, _dir: dir }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.server.path().to_owned()
    }
}
