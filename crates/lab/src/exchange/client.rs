//! The client's side.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Read, Write};
use std::net::TcpStream;

use meantime_hw::clock::thread_cpu_ns;

use super::server::Asked;
use super::{Burst, Exchange, Length, Load, Looks, RECEIVE_BYTES, received, unless_blocked};

/// A socket of the client.
pub(super) struct Line {
    stream: TcpStream,
    /// When the requests in flight were sent.
    begun: VecDeque<u64>,
    /// Bytes of an answer that has not been received as a whole.
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
    length: Length,
    /// When the warm-up began; then, when it ended.
    start_ns: u64,
    warms_up: bool,
    cpu_ns: u64,
    question: u64,
    /// Exchanges since `start_ns`.
    finished: u64,
    times: Vec<u64>,
}

impl Course {
    fn new(length: Length, start_ns: u64) -> Self {
        let times = Vec::new();
        Self { length, start_ns, warms_up: true, cpu_ns: 0, question: 0, finished: 0, times }
    }

    fn finish(&mut self, latency_ns: u64) {
        self.finished += 1;
        if !self.warms_up {
            self.times.push(latency_ns);
        }
    }

    /// Whether warm-up or burst is over.
    fn is_over(&self, now_ns: u64) -> bool {
        let tenth = if self.warms_up { 10 } else { 1 };
        self.finished > 0
            && match self.length {
                Length::Exchanges(count) => self.finished >= count.div_ceil(tenth),
                Length::Time(time) => {
                    u128::from(now_ns - self.start_ns) * u128::from(tenth) >= time.as_nanos()
                }
            }
    }
}

impl Exchange {
    pub(super) fn exchange(&mut self, load: &Load, length: Length) -> io::Result<Burst> {
        match (&self.lines[..], load.outstanding) {
            ([], _) => Err(io::ErrorKind::NotConnected.into()),
            ([_], 1) => self.one_by_one(load, length),
            _ => self.in_turns(load, length),
        }
    }

    fn one_by_one(&mut self, load: &Load, length: Length) -> io::Result<Burst> {
        let (mut request, mut payload) = (Vec::new(), vec![0; load.payload_bytes]);
        let mut header = vec![0; self.options.header_bytes];
        let bytes = header.len() + payload.len();
        let mut course = Course::new(length, self.clock.now_ns());
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
            course.finish(now_ns - start_ns);
            if let Some(burst) = self.go_on(&mut course, now_ns)? {
                return Ok(burst);
            }
        }
    }

    fn in_turns(&mut self, load: &Load, length: Length) -> io::Result<Burst> {
        let bytes = self.options.header_bytes + load.payload_bytes;
        let (mut requests, mut buf) = (Vec::new(), vec![0; RECEIVE_BYTES]);
        let mut course = Course::new(length, self.clock.now_ns());
        for at in 0..self.lines.len() {
            self.send_turn(at, load.outstanding, load, &mut requests)?;
        }
        let (mut looks, mut burst) = (Looks::default(), None);
        // At the end what is in flight is waited for.
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
                for start_ns in line.begun.drain(..answers) {
                    course.finish(now_ns - start_ns);
                }
                if burst.is_none() {
                    self.send_turn(at, answers, load, &mut requests)?;
                    burst = self.go_on(&mut course, now_ns)?;
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
        requests.resize(count * self.options.request_bytes, 0);
        for request in requests.chunks_exact_mut(self.options.request_bytes) {
            let offset = self.random.below(places) * load.payload_bytes as u64;
            let bytes = load.payload_bytes as u64;
            let asked = Asked { number: self.number, offset, bytes };
            request[..24].copy_from_slice(&asked.to_bytes());
            self.number += 1;
        }
    }

    /// Begins the burst after the warm-up. Returns its figures when it is over.
    fn go_on(&self, course: &mut Course, now_ns: u64) -> io::Result<Option<Burst>> {
        if !course.is_over(now_ns) {
            return Ok(None);
        }
        let cpu_ns = thread_cpu_ns();
        if course.warms_up {
            course.question = self.ask();
            course.warms_up = false;
            (course.start_ns, course.cpu_ns, course.finished) = (now_ns, cpu_ns, 0);
            return Ok(None);
        }
        let server_before_ns = self.answer(course.question)?;
        let server_after_ns = self.answer(self.ask())?;
        let times = &mut course.times;
        let middle = times.len() / 2;
        Ok(Some(Burst {
            exchanges: course.finished,
            wall_ns: now_ns - course.start_ns,
            median_ns: *times.select_nth_unstable(middle).1,
            client_cpu_ns: cpu_ns - course.cpu_ns,
            server_cpu_ns: server_after_ns.saturating_sub(server_before_ns),
        }))
    }
}
