//! The order in which the controller serves queues: weighted round robin with urgent priority class
//! (NVMe Base 1.4 §4.13).

use meantime_nvme_spec::features::Arbitration;
use meantime_nvme_spec::sqe::qprio;

use meantime_hw::ioprio::IoPriority;

/// The class of a submission queue (1.4 §5.4, QPRIO). Only a controller with weighted round robin
/// uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum QueueClass {
    /// Comes before every other class while it has commands: the others may starve.
    Urgent = qprio::URGENT,
    /// Is served by the weight of the class.
    High = qprio::HIGH,
    /// Is served by the weight of the class.
    Medium = qprio::MEDIUM,
    /// Is served by the weight of the class.
    Low = qprio::LOW,
}

impl QueueClass {
    /// The class for a thread with this I/O priority.
    pub fn of(priority: IoPriority) -> Self {
        match priority {
            IoPriority::RealTime(_) => Self::Urgent,
            IoPriority::BestEffort(0..=3) => Self::High,
            // The kernel treats no priority as level 4.
            IoPriority::BestEffort(_) | IoPriority::None => Self::Medium,
            IoPriority::Idle => Self::Low,
        }
    }
}

impl std::fmt::Display for QueueClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Urgent => "urgent",
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        })
    }
}

/// The default weights: 16 commands of high class per round, four of medium and one of low, a few
/// at a time from each queue.
pub(crate) fn default_weights() -> Arbitration {
    // Weights are 0's based; AB is a power of two.
    Arbitration(0).with_hpw(15).with_mpw(3).with_lpw(0).with_ab(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_the_thread_s_priority() {
        use IoPriority::*;
        for (priority, class) in [
            (RealTime(7), QueueClass::Urgent),
            (BestEffort(0), QueueClass::High),
            (BestEffort(3), QueueClass::High),
            (BestEffort(4), QueueClass::Medium),
            (None, QueueClass::Medium),
            (Idle, QueueClass::Low),
        ] {
            assert_eq!(QueueClass::of(priority), class, "{priority:?}");
        }
    }

    /// 1.4 §5.21.1.1: 31:24 HPW, 23:16 MPW, 15:8 LPW, 2:0 AB.
    #[test]
    fn weights_by_their_bits() {
        assert_eq!(default_weights().0, 15 << 24 | 3 << 16 | 1);
        assert_eq!(default_weights().weights(), [16, 4, 1]);
    }
}
