//! The floor against which `--floor` measures a device.

use std::time::Duration;

use meantime_baselines::exchange::{Exchange, ExchangeOptions, Load, OUTSTANDING_MAX};
use meantime_baselines::floor::Floor;
use meantime_hw::{DmaBuf, HwError};

/// The scheme of devices behind TCP.
const TCP_SCHEME: &str = "nvme+tcp:";

/// The largest medium of an exchange over TCP. The device may be larger than our memory, and a
/// larger medium does not make the caches miss more.
const TCP_MEDIUM_MAX: u64 = 1 << 30;

/// Length of a measurement over TCP, which has a few thousand exchanges.
const TCP_TIME: Duration = Duration::from_millis(30);

/// Time until a target that polls on the server's CPU is asleep.
const PARKED: Duration = Duration::from_millis(4);

/// The way in which a device's floor is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FloorKind {
    /// Between two cores.
    Cores,
    /// Over TCP, with as many sockets and as many exchanges in flight as the job has.
    Tcp { sockets: usize, outstanding: usize },
}

impl FloorKind {
    /// The kind for the device with this URI.
    pub(crate) fn of(uri: &str, sockets: usize, outstanding: usize) -> Self {
        match uri.starts_with(TCP_SCHEME) {
            true => Self::Tcp { sockets, outstanding: outstanding.min(OUTSTANDING_MAX) },
            false => Self::Cores,
        }
    }

    /// Size of its medium for a device of `bytes`.
    pub(crate) fn medium_bytes(self, bytes: u64) -> u64 {
        match self {
            Self::Cores => bytes,
            Self::Tcp { .. } => bytes.min(TCP_MEDIUM_MAX),
        }
    }

    /// Returns the other side's CPU. `ssd_cpu` is that of the device's software SSD, and `cpus` are
    /// those of the job's threads. Returns `None` if they would share the only one.
    pub(crate) fn cpu(
        self,
        ssd_cpu: Option<usize>,
        cpus: &[usize],
        allowed: &[usize],
    ) -> Option<usize> {
        match self {
            Self::Cores => ssd_cpu.filter(|cpu| cpus != [*cpu]),
            Self::Tcp { .. } => {
                let free = allowed.iter().rev().find(|cpu| !cpus.contains(cpu));
                free.or_else(|| allowed.last().filter(|_| cpus.len() > 1)).copied()
            }
        }
    }
}

/// The floor of a device.
pub(crate) enum DeviceFloor {
    /// Between two cores.
    Cores(Floor),
    /// Over TCP.
    Tcp { exchange: Box<Exchange>, outstanding: usize },
}

impl DeviceFloor {
    /// Starts the other side on `cpu`.
    pub(crate) fn start(
        kind: FloorKind,
        medium_bytes: u64,
        cpu: Option<usize>,
    ) -> Result<Self, HwError> {
        let FloorKind::Tcp { sockets, outstanding } = kind else {
            return Floor::start(medium_bytes, cpu).map(Self::Cores);
        };
        let options = ExchangeOptions { sockets, medium_bytes, server_cpu: cpu };
        let exchange = Box::new(Exchange::start(&options)?);
        Ok(Self::Tcp { exchange, outstanding })
    }

    /// Returns the median time in ns of an exchange of as many bytes as `buf` has. Between two
    /// cores it is the median of `count` exchanges.
    pub(crate) fn measure(&mut self, buf: &mut DmaBuf, count: usize) -> Result<f64, HwError> {
        let payload_bytes = buf.len();
        match self {
            Self::Cores(floor) => Ok(floor.measure(buf, payload_bytes, count)),
            Self::Tcp { exchange, outstanding } => {
                std::thread::sleep(PARKED);
                let load = Load { payload_bytes, outstanding: *outstanding };
                Ok(exchange.burst(&load, TCP_TIME)?.median_ns as f64)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meantime_block::{BlockChannel, BlockDevice, ChannelOptions, OpenOptions, open_nvme};

    #[test]
    fn a_device_behind_tcp_is_measured_against_tcp() {
        let tcp = FloorKind::Tcp { sockets: 2, outstanding: 4 };
        assert_eq!(FloorKind::of("nvme+tcp://[::1]:4420/nqn.2014-08.org.example:a", 2, 4), tcp);
        assert_eq!(FloorKind::of("mem:1G", 2, 4), FloorKind::Cores);
        assert_eq!(tcp.medium_bytes(1 << 40), 1 << 30);
        assert_eq!(FloorKind::Cores.medium_bytes(1 << 40), 1 << 40);
    }

    #[test]
    fn the_other_side_has_a_cpu() {
        let tcp = FloorKind::Tcp { sockets: 1, outstanding: 1 };
        assert_eq!(tcp.cpu(None, &[0], &[0, 1, 2]), Some(2));
        assert_eq!(tcp.cpu(None, &[2], &[0, 1, 2]), Some(1));
        assert_eq!(tcp.cpu(None, &[0, 1], &[0, 1]), Some(1));
        assert_eq!(tcp.cpu(None, &[1], &[1]), None);
        assert_eq!(FloorKind::Cores.cpu(Some(1), &[0], &[0, 1]), Some(1));
        assert_eq!(FloorKind::Cores.cpu(Some(1), &[0, 1], &[0, 1]), Some(1));
        assert_eq!(FloorKind::Cores.cpu(Some(1), &[1], &[1]), None);
        assert_eq!(FloorKind::Cores.cpu(None, &[0], &[0, 1]), None);
    }

    #[test]
    fn both_kinds_measure() {
        let device = open_nvme("mem:1M", &OpenOptions::default()).unwrap();
        let channel = device.channel(&ChannelOptions::default()).unwrap();
        let mut buf = channel.alloc(4096).unwrap();
        for kind in [FloorKind::Cores, FloorKind::Tcp { sockets: 2, outstanding: 4 }] {
            let mut floor = DeviceFloor::start(kind, 1 << 20, None).unwrap();
            assert!(floor.measure(&mut buf, 50).unwrap() > 0.0);
        }
    }
}
