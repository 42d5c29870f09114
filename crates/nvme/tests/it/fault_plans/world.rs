//! A device, stepped or with a thread of its own, and the ways to it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use meantime_block::{AsyncChannel, BlockChannel, Done, Driver, NvmeChannel, Rejected, Request};
use meantime_hw::Clock;
use meantime_hw::soft::SoftTransport;
use meantime_nvme::{Controller, ControllerOptions};
use meantime_nvme_spec::soft_port::SoftPort;
use meantime_ssd::{FaultControl, Medium, MonotonicClock, Ssd, SsdConfig, SteppedSsd};

use meantime_testkit::Rng;

/// An SSD.
pub(crate) enum Device {
    Stepped(SteppedSsd),
    Threaded(Ssd),
}

impl Device {
    pub(crate) fn new(config: SsdConfig, seed: u64, threaded: bool) -> Self {
        let medium = Medium::dram(config.total_bytes()).expect("memory for the medium");
        if threaded {
            Self::Threaded(
                Ssd::start(config, medium, MonotonicClock::new()).expect("a valid configuration"),
            )
        } else {
            Self::Stepped(SteppedSsd::new(config, medium, seed).expect("a valid configuration"))
        }
    }

    pub(crate) fn is_threaded(&self) -> bool {
        matches!(self, Self::Threaded(_))
    }

    fn port(&self) -> Arc<dyn SoftPort> {
        match self {
            Self::Stepped(ssd) => ssd.port(),
            Self::Threaded(ssd) => ssd.port(),
        }
    }

    pub(crate) fn control(&self) -> Box<dyn FaultControl> {
        match self {
            Self::Stepped(ssd) => Box::new(ssd.clone()),
            Self::Threaded(ssd) => Box::new(ssd.handle()),
        }
    }

    /// A driver on it; no faults are in force.
    pub(crate) fn driver(&self, options: ControllerOptions) -> Arc<Controller> {
        let mut tries = if self.is_threaded() { 20 } else { 1 };
        loop {
            // SAFETY: the drivers of a world come one after the other.
            let transport = unsafe { SoftTransport::new(self.port(), "plan".into(), None) };
            tries -= 1;
            match Controller::enable(Arc::new(transport), options) {
                Ok(controller) => return controller,
                Err(error) => assert!(tries > 0, "the controller does not come up: {error}"),
            }
        }
    }
}

type Ended = Result<Done, Rejected>;
type Future = Pin<Box<dyn std::future::Future<Output = Ended>>>;

/// The ways to a device.
pub(crate) enum Lanes {
    Tickets(Vec<NvmeChannel>),
    Futures {
        channel: AsyncChannel<NvmeChannel>,
        driver: Option<Driver<NvmeChannel>>,
        running: Vec<(u64, Future)>,
    },
}

impl Lanes {
    pub(crate) fn alloc(&self, bytes: usize) -> meantime_hw::DmaBuf {
        let buf = match self {
            Self::Tickets(channels) => channels[0].alloc(bytes),
            Self::Futures { channel, .. } => channel.alloc(bytes),
        };
        buf.expect("memory")
    }

    pub(crate) fn submit(
        &mut self,
        rng: &mut Rng,
        id: u64,
        request: Request,
    ) -> Result<(), Rejected> {
        match self {
            Self::Tickets(channels) => {
                let at = rng.below(channels.len() as u64) as usize;
                channels[at].enqueue(request)
            }
            Self::Futures { channel, running, .. } => {
                let channel = channel.clone();
                running.push((id, Box::pin(async move { channel.submit(request).await })));
                Ok(())
            }
        }
    }

    /// Takes what has ended.
    pub(crate) fn reap(&mut self, ended: &mut Vec<Result<Done, (u64, Rejected)>>) {
        match self {
            Self::Tickets(channels) => {
                for channel in channels {
                    channel.poll();
                    while let Some(done) = channel.next_done() {
                        ended.push(Ok(done));
                    }
                }
            }
            Self::Futures { driver, running, .. } => {
                if let Some(driver) = driver {
                    driver.process();
                }
                poll_all(running, ended);
            }
        }
    }

    /// Waits until something has ended, if anything is under way.
    pub(crate) fn wait(
        &mut self,
        clock: &Clock,
        rng: &mut Rng,
        ended: &mut Vec<Result<Done, (u64, Rejected)>>,
    ) {
        match self {
            Self::Tickets(channels) => {
                let first = rng.below(channels.len() as u64) as usize;
                let order = (first..channels.len()).chain(0..first);
                for at in order {
                    if let Some(done) = channels[at].wait_done() {
                        ended.push(Ok(done));
                        return;
                    }
                }
            }
            Self::Futures { driver, running, .. } => {
                while !running.is_empty() {
                    let before = ended.len();
                    poll_all(running, ended);
                    if ended.len() > before {
                        return;
                    }
                    match driver {
                        Some(driver) => {
                            driver.wait();
                        }
                        None => clock.sleep_ns(1_000 + rng.below(100_000)),
                    }
                }
            }
        }
    }

    /// Drops a future for which `may` holds; which.
    pub(crate) fn drop_one(&mut self, rng: &mut Rng, may: impl Fn(u64) -> bool) -> Option<u64> {
        let Self::Futures { running, .. } = self else { return None };
        if running.is_empty() {
            return None;
        }
        let at = rng.below(running.len() as u64) as usize;
        if !may(running[at].0) {
            return None;
        }
        Some(running.swap_remove(at).0)
    }

    /// Entries that were refused, time-outs noticed late, aborts, and queues made anew.
    pub(crate) fn counts(&self) -> [u64; 4] {
        let of = |channel: &NvmeChannel| {
            let counters = channel.counters();
            [Some(counters.polled), counters.interrupt].into_iter().flatten().fold(
                [0; 4],
                |sum, queue| {
                    let add = [queue.strays, queue.late, queue.aborts, queue.recreations];
                    std::array::from_fn(|n| sum[n] + add[n])
                },
            )
        };
        match self {
            Self::Tickets(channels) => channels
                .iter()
                .map(of)
                .fold([0; 4], |sum, add| std::array::from_fn(|n| sum[n] + add[n])),
            Self::Futures { channel, .. } => channel.inspect(of),
        }
    }
}

fn poll_all(running: &mut Vec<(u64, Future)>, ended: &mut Vec<Result<Done, (u64, Rejected)>>) {
    let mut cx = Context::from_waker(Waker::noop());
    running.retain_mut(|(id, future)| match future.as_mut().poll(&mut cx) {
        Poll::Ready(result) => {
            ended.push(result.map_err(|rejected| (*id, rejected)));
            false
        }
        Poll::Pending => true,
    });
}
