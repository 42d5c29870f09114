//! Applies a service-time model, which determines until when each channel is busy.

use crate::Rng;
use crate::model::{Jitter, Model, Select, cost_ns};

/// The kind of work of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// The command sends data to the host.
    Read,
    /// The command takes data from the host.
    Write,
    /// The command deallocates or writes zeroes.
    Trim,
    /// The command is a flush, which waits for every channel.
    Flush,
    /// There is no work, because the command was refused, or had nothing to do.
    None,
}

/// The begin and the end of a command's service, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServiceTime {
    pub(crate) begun_ns: u64,
    pub(crate) done_ns: u64,
}

#[derive(Clone, Copy, Default)]
struct Channel {
    busy_until_ns: u64,
    /// The number of accepted bytes that do not fill a program operation yet.
    unprogrammed: u64,
    programs: u32,
}

pub(crate) struct Service {
    model: Model,
    channels: Vec<Channel>,
    rng: Rng,
}

impl Service {
    pub(crate) fn new(model: Model, seed: u64) -> Self {
        let channels = vec![Channel::default(); model.channels as usize];
        Self { model, channels, rng: Rng::new(seed) }
    }

    pub(crate) fn is_null(&self) -> bool {
        self.model.is_null()
    }

    /// Frees every channel, after a reset.
    pub(crate) fn clear(&mut self) {
        self.channels.fill(Channel::default());
    }

    /// Occupies a channel with `bytes` bytes at `offset` of the medium, for a command seen at
    /// `now_ns`.
    pub(crate) fn occupy(
        &mut self,
        work: Work,
        offset: u64,
        bytes: u64,
        now_ns: u64,
    ) -> ServiceTime {
        if self.model.is_null() || work == Work::None {
            return ServiceTime { begun_ns: now_ns, done_ns: now_ns };
        }
        let cost = self.vary(match work {
            Work::Read => cost_ns(&self.model.read, bytes),
            Work::Write => cost_ns(&self.model.write, bytes),
            Work::Trim => self.model.trim_ns,
            Work::Flush => self.model.flush_ns,
            Work::None => 0,
        });
        if work == Work::Flush {
            // A flush begins when all accepted work is done.
            let last = self.channels.iter().map(|c| c.busy_until_ns).max().unwrap_or(0);
            let begun_ns = last.max(now_ns);
            return ServiceTime { begun_ns, done_ns: begun_ns.saturating_add(cost) };
        }
        let channel = match self.model.select {
            Select::Stripe => (offset / self.model.stripe_bytes) as usize % self.channels.len(),
            Select::LeastBusy => {
                let freest = self.channels.iter().enumerate().min_by_key(|(_, c)| c.busy_until_ns);
                freest.map_or(0, |(i, _)| i)
            }
        };
        let channel = &mut self.channels[channel];
        let Some(nand) = self.model.nand.filter(|_| work == Work::Write) else {
            let begun_ns = channel.busy_until_ns.max(now_ns);
            channel.busy_until_ns = begun_ns.saturating_add(cost);
            return ServiceTime { begun_ns, done_ns: channel.busy_until_ns };
        };
        // A write goes into the buffer and is programmed in the background, unless the buffer is
        // full.
        let room_ns = nand.program_ns.saturating_mul(u64::from(nand.buffered_programs));
        let begun_ns = channel.busy_until_ns.saturating_sub(room_ns).max(now_ns);
        let done_ns = begun_ns.saturating_add(cost);
        channel.unprogrammed = channel.unprogrammed.saturating_add(bytes);
        while channel.unprogrammed >= nand.program_bytes {
            channel.unprogrammed -= nand.program_bytes;
            channel.programs += 1;
            let mut busy = nand.program_ns;
            if channel.programs >= nand.programs_per_erase {
                channel.programs = 0;
                busy = busy.saturating_add(nand.erase_ns);
            }
            channel.busy_until_ns = channel.busy_until_ns.max(done_ns).saturating_add(busy);
        }
        ServiceTime { begun_ns, done_ns }
    }

    fn vary(&mut self, cost: u64) -> u64 {
        let varied = match self.model.jitter {
            Jitter::None => cost,
            Jitter::Lognormal { sigma } => {
                let factor = (sigma * self.rng.normal() - sigma * sigma / 2.0).exp();
                (cost as f64 * factor) as u64
            }
            Jitter::Uniform { ns } => {
                let above = self.rng.below(ns.saturating_mul(2).saturating_add(1));
                cost.saturating_add(above).saturating_sub(ns)
            }
        };
        let slow = self.model.slow;
        if slow.probability > 0.0 && self.rng.unit() < slow.probability {
            varied.saturating_add(slow.extra_ns)
        } else {
            varied
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str) -> Service {
        Service::new(Model::named(name).unwrap(), 1)
    }

    #[test]
    fn commands_queue_behind_busy_channels() {
        let mut s = service("fast12");
        let done: Vec<u64> = (0..4).map(|_| s.occupy(Work::Read, 0, 4096, 100).done_ns).collect();
        assert_eq!(done, [3000, 3000, 3000, 5900]);
        assert_eq!(s.occupy(Work::Flush, 0, 0, 100).done_ns, 6900);
        s.clear();
        assert_eq!(s.occupy(Work::Read, 0, 512, 100).done_ns, 1600);
    }

    #[test]
    fn nvram_reads_take_8_us_on_average_and_never_11() {
        let mut s = service("nvram");
        let times: Vec<u64> = (0..10_000u64)
            .map(|i| s.occupy(Work::Read, 0, 512, i * 20_000).done_ns - i * 20_000)
            .collect();
        let mean = times.iter().sum::<u64>() / 10_000;
        assert!((7_900..8_100).contains(&mean), "{mean}");
        assert!(times.iter().all(|&t| t < 11_000));
    }

    #[test]
    fn nand_reads_stall_behind_programs_of_their_channel() {
        let mut s = service("nand");
        let write = s.occupy(Work::Write, 0, 65536, 0);
        assert!(write.done_ns < 100_000, "into the buffer: {write:?}");
        let stalled = s.occupy(Work::Read, 0, 4096, 1000);
        assert!(stalled.begun_ns >= 600_000, "{stalled:?}");
        let free = s.occupy(Work::Read, 16384, 4096, 1000);
        assert_eq!(free.begun_ns, 1000);
    }

    #[test]
    fn nand_writes_wait_when_the_buffer_is_full() {
        let mut s = service("nand");
        let last = (0..64).map(|_| s.occupy(Work::Write, 0, 65536, 0)).last().unwrap();
        assert!(last.begun_ns > 20_000_000, "{last:?}");
    }
}
