//! The client's side.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::server::Asked;
use super::{
    Burst, Exchange, HEADER_BYTES, Load, Looks, RECEIVE_BYTES, REQUEST_BYTES, received,
    unless_blocked,
};

/// A socket of the client.
pub(super) struct Line {
    stream: TcpStream,
    /// The times at which the requests in flight were sent.
    begun: VecDeque<u64>,
    /// The number of bytes of an answer that has not been received as a whole.
    part: usize,
    /// All that was received.
    #[cfg(test)]
    pub(super) seen: Vec<u8>,
}

impl Line {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            begun: VecDeque::new(),
            part: 0,
            #[cfg(test)]
            seen: Vec::new(),
        }
    }

    fn send(&mut self, mut requests: &[u8]) -> io::Result<()> {
        let mut looks = Looks::default();
        while !requests.is_empty() {
            let sent = unless_blocked(self.stream.write(requests))?;
            looks.count(sent.is_some());
            requests = &requests[sent.unwrap_or(0)..];
        }
        Ok(())
    }
}

/// The state of a burst.
struct Course {
    time: Duration,
    /// When the warm-up began, and later, when it ended.
    start_ns: u64,
    warms_up: bool,
    times: Vec<u64>,
}

impl Course {
    fn new(time: Duration, start_ns: u64) -> Self {
        Self { time, start_ns, warms_up: true, times: Vec::new() }
    }

    /// Begins the burst after the warm-up. Returns its figures when it is over.
    fn go_on(&mut self, now_ns: u64) -> Option<Burst> {
        let wall_ns = now_ns - self.start_ns;
        let tenth = if self.warms_up { 10 } else { 1 };
        if self.times.is_empty() || u128::from(wall_ns) * tenth < self.time.as_nanos() {
            return None;
        }
        if self.warms_up {
            (self.warms_up, self.start_ns) = (false, now_ns);
            self.times.clear();
            return None;
        }
        let (exchanges, middle) = (self.times.len() as u64, self.times.len() / 2);
        let median_ns = *self.times.select_nth_unstable(middle).1;
        Some(Burst { exchanges, wall_ns, median_ns })
    }
}

impl Exchange {
    pub(super) fn exchange(&mut self, load: &Load, time: Duration) -> io::Result<Burst> {
        match (&self.lines[..], load.outstanding) {
            ([], _) => Err(io::ErrorKind::NotConnected.into()),
            ([_], 1) => self.one_by_one(load, time),
            _ => self.in_turns(load, time),
        }
    }

    fn one_by_one(&mut self, load: &Load, time: Duration) -> io::Result<Burst> {
        let (mut request, mut payload) = (Vec::new(), vec![0; load.payload_bytes]);
        let mut header = [0; HEADER_BYTES];
        let bytes = header.len() + payload.len();
        let mut course = Course::new(time, self.clock.now_ns());
        loop {
            self.ask_for(1, load, &mut request);
            let line = &mut self.lines[0];
            let start_ns = self.clock.now_ns();
            line.send(&request)?;
            let (mut count, mut looks) = (0, Looks::default());
            while count < bytes {
                let (in_header, in_payload) =
                    (count.min(header.len()), count.saturating_sub(header.len()));
                let mut into = [
                    IoSliceMut::new(&mut header[in_header..]),
                    IoSliceMut::new(&mut payload[in_payload..]),
                ];
                let some = received(line.stream.read_vectored(&mut into))?;
                looks.count(some.is_some());
                count += some.unwrap_or(0);
            }
            let now_ns = self.clock.now_ns();
            #[cfg(test)]
            line.seen.extend(header.iter().chain(&payload));
            course.times.push(now_ns - start_ns);
            if let Some(burst) = course.go_on(now_ns) {
                return Ok(burst);
            }
        }
    }

    fn in_turns(&mut self, load: &Load, time: Duration) -> io::Result<Burst> {
        let bytes = HEADER_BYTES + load.payload_bytes;
        let (mut requests, mut buf) = (Vec::new(), vec![0; RECEIVE_BYTES]);
        let mut course = Course::new(time, self.clock.now_ns());
        for at in 0..self.lines.len() {
            self.send_turn(at, load.outstanding, load, &mut requests)?;
        }
        let (mut looks, mut burst) = (Looks::default(), None);
        // At the end the client waits for what is in flight.
        while burst.is_none() || self.lines.iter().any(|line| !line.begun.is_empty()) {
            let mut found = false;
            for at in 0..self.lines.len() {
                let line = &mut self.lines[at];
                let Some(count) = received(line.stream.read(&mut buf))? else { continue };
                found = true;
                #[cfg(test)]
                line.seen.extend_from_slice(&buf[..count]);
                let answers = (line.part + count) / bytes;
                line.part = (line.part + count) % bytes;
                let now_ns = self.clock.now_ns();
                course.times.extend(line.begun.drain(..answers).map(|start_ns| now_ns - start_ns));
                if burst.is_none() {
                    self.send_turn(at, answers, load, &mut requests)?;
                    burst = course.go_on(now_ns);
                }
            }
            looks.count(found);
        }
        burst.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Sends `count` requests.
    fn send_turn(
        &mut self,
        at: usize,
        count: usize,
        load: &Load,
        requests: &mut Vec<u8>,
    ) -> io::Result<()> {
        self.ask_for(count, load, requests);
        let now_ns = self.clock.now_ns();
        let line = &mut self.lines[at];
        line.begun.extend(std::iter::repeat_n(now_ns, count));
        line.send(requests)
    }

    /// Makes `count` requests.
    fn ask_for(&mut self, count: usize, load: &Load, requests: &mut Vec<u8>) {
        let places = self.options.medium_bytes / load.payload_bytes as u64;
        requests.resize(count * REQUEST_BYTES, 0);
        for request in requests.chunks_exact_mut(REQUEST_BYTES) {
            let offset = self.random.below(places) * load.payload_bytes as u64;
            let bytes = load.payload_bytes as u64;
            let asked = Asked { number: self.number, offset, bytes };
            request[..24].copy_from_slice(&asked.to_bytes());
            self.number += 1;
        }
    }
}
