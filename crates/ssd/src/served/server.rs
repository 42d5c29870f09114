//! The thread that serves the socket.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use meantime_nvme_spec::vfio_user::Command;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::SocketFlags;
use rustix::net::sockopt::socket_peercred;

use super::connection::{Connection, Received};
use super::function::Function;
use super::message::Message;
use super::socket::Socket;
use crate::port::FunctionPort;
use crate::sys::StoppedThread;

/// The maximum number of clients that are connected and have sent nothing yet. Beyond that, the
/// oldest one is disconnected.
const SILENT_MAX: usize = 16;

/// Messages of a client between two checks of whether to stop.
const MESSAGES_AT_ONCE: usize = 64;

/// The pause before another try, when there are no free descriptors, or while the SSD does not
/// answer.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// An event, reported from the server's thread.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A client has connected and has the function.
    Connected {
        /// Its process, if the kernel knows it.
        pid: Option<i32>,
    },
    /// The client is gone, and the function is free for the next one.
    Ended {
        /// The reason, or `None` if it closed its connection properly.
        why: Option<String>,
    },
    /// A message was answered with an error.
    Refused {
        /// The command.
        command: Command,
        /// The errno.
        errno: i32,
        /// The rule that was broken.
        why: &'static str,
    },
    /// A remark.
    Note(String),
}

/// Serves an SSD. Dropping it disconnects the client, ends the thread and removes the socket. The
/// SSD stays.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    #[expect(dead_code, reason = "held so that the thread runs")]
    thread: StoppedThread,
}

impl Server {
    /// Serves the SSD behind `port` on `socket`, and calls `report` for each event.
    ///
    /// # Errors
    /// Fails if an eventfd or the thread cannot be made.
    pub fn start(
        socket: Socket,
        port: Arc<dyn FunctionPort>,
        report: impl FnMut(Event) + Send + 'static,
    ) -> io::Result<Self> {
        let alarm = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (path, report) = (socket.path().to_owned(), Box::new(report));
        let (silent, client) = (Vec::new(), None);
        let thread = StoppedThread::spawn("meantime-served", |stop| {
            move || Service { socket, port, stop, alarm, silent, client, report }.run()
        })?;
        Ok(Self { path, thread })
    }

    /// Returns the socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

struct Client {
    connection: Connection,
    function: Function,
}

struct Service {
    socket: Socket,
    port: Arc<dyn FunctionPort>,
    stop: Arc<OwnedFd>,
    /// The eventfd that is signalled when memory which the client has mapped is gone.
    alarm: Arc<OwnedFd>,
    /// Connected clients that have sent nothing yet, oldest first.
    silent: Vec<Connection>,
    client: Option<Client>,
    report: Box<dyn FnMut(Event) + Send>,
}

impl Service {
    fn run(&mut self) {
        loop {
            let Some(ready) = self.wait() else {
                // Poll failed, and this pause avoids a busy loop.
                std::thread::sleep(AGAIN_AFTER);
                continue;
            };
            if ready[0] {
                break;
            }
            if ready[1] {
                let _ = rustix::io::read(&*self.alarm, &mut [0; 8]);
                if self.client.is_some() {
                    let why = "memory that it had mapped was taken away (its file has shrunk)";
                    self.end(Some(why.into()));
                }
                continue;
            }
            match self.client {
                Some(_) if ready[2] => self.serve(),
                Some(_) => {}
                None => {
                    if ready[2] {
                        self.accept();
                    }
                    self.poll_silent();
                }
            }
        }
        if self.client.is_some() {
            self.end(Some("the server ends".into()));
        }
    }

    /// Waits for the stop signal, for the alarm, and for the client, or for the listener if there
    /// is no client. Silent clients also end the wait.
    fn wait(&self) -> Option<[bool; 3]> {
        let mut fds =
            vec![PollFd::new(&*self.stop, PollFlags::IN), PollFd::new(&*self.alarm, PollFlags::IN)];
        match &self.client {
            // Other clients wait while there is one.
            Some(client) => {
                fds.push(PollFd::new(client.connection.stream(), client.connection.interest()));
            }
            None => {
                fds.push(PollFd::new(&self.socket, PollFlags::IN));
                fds.extend(
                    self.silent.iter().map(|other| PollFd::new(other.stream(), PollFlags::IN)),
                );
            }
        }
        match poll(&mut fds, None) {
            Ok(_) => Some(std::array::from_fn(|i| !fds[i].revents().is_empty())),
            Err(rustix::io::Errno::INTR) => Some([false; 3]),
            Err(_) => None,
        }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(&self.socket, flags) {
            Ok(stream) => {
                if self.silent.len() >= SILENT_MAX {
                    self.silent.remove(0);
                }
                self.silent.push(Connection::new(stream));
            }
            // Without free descriptors the listener stays ready, and the pause avoids a busy loop.
            Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE | rustix::io::Errno::NOMEM) => {
                std::thread::sleep(AGAIN_AFTER);
            }
            Err(_) => {}
        }
    }

    /// Gives the function to the first silent client that has sent a message.
    fn poll_silent(&mut self) {
        let mut at = 0;
        while at < self.silent.len() {
            match self.silent[at].receive() {
                Received::Message(first) => {
                    let connection = self.silent.remove(at);
                    return self.plug(connection, first);
                }
                Received::Later => at += 1,
                Received::Closed | Received::End(_) => {
                    self.silent.remove(at);
                }
            }
        }
    }

    fn plug(&mut self, connection: Connection, first: Message) {
        // An earlier client's alarm does not concern this one.
        let _ = rustix::io::read(&*self.alarm, &mut [0; 8]);
        match Function::plug(Arc::clone(&self.port), Arc::clone(&self.alarm)) {
            Ok(function) => {
                let peer = socket_peercred(connection.stream());
                let pid = peer.ok().map(|peer| peer.pid.as_raw_nonzero().get());
                self.client = Some(Client { connection, function });
                (self.report)(Event::Connected { pid });
                if let Err(why) = self.answer(first) {
                    self.end(Some(why));
                }
            }
            Err(error) => {
                (self.report)(Event::Note(format!(
                    "a client was sent away, since the SSD is not there: {error}"
                )));
            }
        }
    }

    /// Answers what the client has sent.
    fn serve(&mut self) {
        for _ in 0..MESSAGES_AT_ONCE {
            let Some(client) = &mut self.client else { return };
            let served = match client.connection.receive() {
                Received::Message(message) => self.answer(message).map_err(Some),
                Received::Later => return,
                Received::Closed => Err(None),
                Received::End(why) => Err(Some(why)),
            };
            if let Err(why) = served {
                return self.end(why);
            }
        }
    }

    /// Answers a message. The error says why the connection ends.
    fn answer(&mut self, message: Message) -> Result<(), String> {
        let Some(Client { connection, function }) = &mut self.client else { return Ok(()) };
        let reply = function.answer(message);
        if let Some((command, errno, why)) = function.take_refusal() {
            (self.report)(Event::Refused { command, errno: errno.raw_os_error(), why });
        }
        if let Some(note) = function.take_note() {
            (self.report)(Event::Note(note));
        }
        if let Some(reply) = reply {
            connection.send(reply).map_err(|error| format!("it cannot be written to: {error}"))?;
        }
        if function.is_over() { Err("it does not speak the protocol".into()) } else { Ok(()) }
    }

    /// Releases all resources of a client that has gone, or has to go. This has to succeed before
    /// the next client.
    fn end(&mut self, why: Option<String>) {
        let Some(mut client) = self.client.take() else { return };
        let mut reported = false;
        while let Err(error) = client.function.unplug() {
            if !reported {
                (self.report)(Event::Note(format!(
                    "the SSD does not release its client: {error}; trying again"
                )));
                reported = true;
            }
            // An SSD that has ended touches no memory.
            if self.port.read32(meantime_nvme_spec::regs::VS) == meantime_nvme_spec::regs::GONE {
                break;
            }
            std::thread::sleep(AGAIN_AFTER);
        }
        // The connection is closed last, so that a client which sees it closed finds everything
        // unmapped.
        drop(client);
        (self.report)(Event::Ended { why });
    }
}
