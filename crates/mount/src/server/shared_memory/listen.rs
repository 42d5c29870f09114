//! Accepts programs, and runs the threads of their connections and lines.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use meantime_shm_rpc::owner::Answerer;
use meantime_shm_rpc::socket;

use super::connection::Connection;
use super::memory::Memory;
use super::{SharedPath, calls};
use crate::server::Server;
use crate::server::lock::locked;
use crate::server::throttled::PAUSE;

/// The maximum number of connections.
const CONNECTIONS_MAX: usize = 256;

impl SharedPath {
    /// Starts to accept programs.
    pub(crate) fn start(self: &Arc<Self>, server: &Arc<Server>) -> io::Result<()> {
        let (shm, server) = (Arc::clone(self), Arc::clone(server));
        let thread =
            meantime_process::thread::spawn("meantime-shmem", move || shm.listen(&server))?;
        locked(&self.threads).push(thread);
        Ok(())
    }

    /// Accepts connections for `server` until the mount ends. This is a thread's main function.
    fn listen(self: &Arc<Self>, server: &Arc<Server>) {
        while !self.is_ended.load(Ordering::SeqCst) {
            match socket::accept(&self.socket) {
                Ok(Some(client)) => {
                    if let Err(error) = self.begin(client, server) {
                        self.messages.refused.log_if_due(|times| {
                            tracing::warn!(
                                %error,
                                times,
                                "a program cannot take the shared-memory path"
                            );
                        });
                    }
                }
                // The connection is another user's.
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The mount is ending.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                Err(error) => {
                    self.messages.not_accepted.log_if_due(|times| {
                        tracing::warn!(
                            %error,
                            times,
                            "no program can be accepted for the shared-memory path"
                        );
                    });
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    fn begin(self: &Arc<Self>, client: OwnedFd, server: &Arc<Server>) -> io::Result<()> {
        locked(&self.threads).retain(|thread| !thread.is_finished());
        if locked(&self.connections).len() >= CONNECTIONS_MAX {
            return Err(io::Error::other(format!(
                "{CONNECTIONS_MAX} processes have a connection, which is the limit; others go \
                 through the kernel"
            )));
        }
        let connection = Arc::new(Connection::new(client)?);
        let nonce = connection.nonce;
        locked(&self.connections).insert(nonce, Arc::clone(&connection));
        let (shm, server) = (Arc::clone(self), Arc::clone(server));
        let started = meantime_process::thread::spawn("meantime-shmem", move || {
            connection.serve(&shm, &server);
            locked(&shm.connections).remove(&connection.nonce);
        });
        match started {
            Ok(thread) => locked(&self.threads).push(thread),
            Err(error) => {
                locked(&self.connections).remove(&nonce);
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Connection {
    /// Serves the program until it ends the connection, or breaks the protocol.
    fn serve(self: &Arc<Self>, shm: &Arc<SharedPath>, server: &Arc<Server>) {
        let served = socket::say_hello(&self.socket, &self.nonce, shm.closings()).and_then(|()| {
            while socket::wait_for_ask(&self.socket)? {
                let line = self.add_line(shm, server);
                socket::answer_ask(&self.socket, line.as_ref())?;
            }
            Ok(())
        });
        if let Err(error) = served {
            tracing::debug!(%error, "a program's connection has ended");
        }
        let lines = std::mem::take(&mut *locked(&self.lines));
        lines.iter().for_each(|(end, _)| end.end());
        for (_, thread) in lines {
            let _ = thread.join();
        }
    }

    /// Makes a line and its thread. Returns the line's memory, if there can be one more line.
    fn add_line(self: &Arc<Self>, shm: &Arc<SharedPath>, server: &Arc<Server>) -> Option<OwnedFd> {
        locked(&self.lines).retain(|(_, thread)| !thread.is_finished());
        if !shm.add_line() {
            return None;
        }
        let Some(share) = Memory::share(&shm.memory) else {
            shm.say_no_memory();
            shm.remove_line();
            return None;
        };
        let started = Answerer::new().and_then(|(line, memory)| {
            let end = line.end();
            let (connection, shm) = (Arc::clone(self), Arc::clone(shm));
            let server = Arc::clone(server);
            let thread = meantime_process::thread::spawn("meantime-line", move || {
                calls::serve(&server, &shm, &connection, line, share);
                shm.remove_line();
            })?;
            locked(&self.lines).push((end, thread));
            Ok(memory)
        });
        if let Err(error) = &started {
            shm.messages.no_line.log_if_due(|times| {
                tracing::warn!(%error, times, "no line for a program");
            });
            shm.remove_line();
        }
        started.ok()
    }
}
