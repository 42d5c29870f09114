//! What a check writes down.

use meantime_block::{ChannelError, OpenError, RequestError, SubmitError};
use meantime_hw::HwError;
use meantime_nvme::{Error, QueueCounters};

use crate::report::Deviation;

/// Why a check ends early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The device does not have what is checked.
    NotSupported(String),
    /// It could not be tried.
    NotTested(String),
    /// The device failed.
    Failed(String),
}

/// What failed on this side, and says nothing of the device.
impl From<HwError> for Stop {
    fn from(error: HwError) -> Self {
        Self::NotTested(error.to_string())
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error {
            Error::Hw(error) => error.into(),
            Error::Driven(_) | Error::NoQueue { .. } | Error::NoVector { .. } => {
                Self::NotTested(error.to_string())
            }
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<OpenError> for Stop {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Nvme(error) => error.into(),
            error => Self::Failed(format!("it cannot be opened again: {error}")),
        }
    }
}

impl From<ChannelError> for Stop {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Nvme(error) => error.into(),
            error => Self::NotTested(error.to_string()),
        }
    }
}

impl From<SubmitError> for Stop {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Unsupported(_) => Self::NotSupported(error.to_string()),
            SubmitError::Lost(_) => Self::Failed(error.to_string()),
            error => Self::NotTested(error.to_string()),
        }
    }
}

impl From<RequestError> for Stop {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused(error) => error.into(),
            RequestError::Memory(_) => Self::NotTested(error.to_string()),
            error => Self::Failed(error.to_string()),
        }
    }
}

/// How a check ends.
pub(crate) type Outcome<T = ()> = Result<T, Stop>;

/// The deviations and facts of one check.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) deviations: Vec<Deviation>,
    pub(crate) facts: Vec<(String, String)>,
}

impl Notes {
    /// Writes a deviation from `section` down unless `holds`.
    pub(crate) fn require(
        &mut self,
        holds: bool,
        section: &'static str,
        what: impl FnOnce() -> String,
    ) {
        if !holds {
            self.deviates(section, what());
        }
    }

    /// Writes a deviation from `section` down.
    pub(crate) fn deviates(&mut self, section: &'static str, what: String) {
        self.deviations.push(Deviation { section, what });
    }

    /// Writes a fact down.
    pub(crate) fn fact(&mut self, name: impl Into<String>, words: impl Into<String>) {
        self.facts.push((name.into(), words.into()));
    }

    /// Requires that a queue needed no recovery; `waits` says how its owner waited.
    pub(crate) fn undisturbed(&mut self, waits: &str, counters: &QueueCounters) {
        let QueueCounters {
            strays, bad_sqhd, late, aborts, recreations, retries, requeued, ..
        } = *counters;
        for (count, section, what) in [
            (strays, "1.4 §4.6", "entries had a Command Identifier that was not outstanding"),
            (bad_sqhd, "1.4 §4.6", "entries had an SQ Head Pointer beyond what was submitted"),
            (
                late,
                "1.4 §7.5",
                "commands were found complete only after their deadline: late, or without the \
                 interrupt",
            ),
            (
                aborts,
                "1.4 §4.6",
                "commands were not completed before their deadline, or with a wrong phase tag",
            ),
            (recreations, "1.4 §5.1", "times an Abort did not end a command"),
            (retries, "1.4 §4.6.1", "commands ended with an error that allows a repetition"),
            (requeued, "1.4 §9.1", "commands were lost with their queue or by a reset"),
        ] {
            self.require(count == 0, section, || format!("{count} {what} ({waits})"));
        }
    }
}
