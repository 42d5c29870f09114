//! The target without sockets and without a thread.

use std::io::IoSlice;

use super::engine::Engine;
use super::options::TargetOptions;
use super::output::PIECES;
use crate::config::SsdConfig;
use crate::controller::Turn;
use crate::error::SsdError;
use crate::medium::Medium;

/// The target as a function of bytes, for fuzzers and tests. Nothing in it ever times out.
pub struct Wire(Engine);

impl Wire {
    /// Creates a target of an SSD on `medium`.
    ///
    /// # Errors
    /// Fails if the configuration is invalid or the medium is too small.
    pub fn new(config: SsdConfig, medium: Medium) -> Result<Self, SsdError> {
        crate::threaded::check_medium(&config, &medium)?;
        Ok(Self(Engine::new(config, medium, TargetOptions::default())?))
    }

    /// Opens a new connection. Returns `None` if there are too many.
    pub fn open(&mut self) -> Option<usize> {
        self.0.open()
    }

    /// Closes the connection on the side of the host.
    pub fn close(&mut self, connection: usize) {
        self.0.close(connection);
    }

    /// Sends `bytes` from the host. What the host gets is added to `answer`. Returns false if the
    /// connection has ended.
    pub fn exchange(&mut self, connection: usize, bytes: &[u8], answer: &mut Vec<u8>) -> bool {
        let mut used = 0;
        loop {
            if self.0.is_over(connection) {
                self.close_all_that_are_over();
                return false;
            }
            let taken = self.0.receive(connection, &bytes[used..]);
            used += taken;
            while self.0.turn() == Turn::Worked {}
            self.send(connection, answer);
            if taken == 0 || used == bytes.len() {
                self.close_all_that_are_over();
                return !self.0.is_over(connection);
            }
        }
    }

    fn send(&mut self, connection: usize, answer: &mut Vec<u8>) {
        while !self.0.is_over(connection) {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let count = self.0.gather(connection, &mut pieces);
            if count == 0 {
                return;
            }
            let before = answer.len();
            pieces[..count].iter().for_each(|piece| answer.extend_from_slice(piece));
            let sent = answer.len() - before;
            self.0.sent(connection, sent);
        }
    }

    fn close_all_that_are_over(&mut self) {
        self.0.dirty.clear();
        for connection in 0..self.0.conns.len() {
            if self.0.conns[connection].is_some() && self.0.is_over(connection) {
                self.0.close(connection);
            }
        }
    }

    /// Returns whether nothing is left: no connection, association or slot is in use.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.0.conns.iter().all(Option::is_none)
            && self.0.associations.iter().all(Option::is_none)
            && self.0.backend.is_idle()
    }
}
