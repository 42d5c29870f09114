//! User-defined rules for how long to sleep before polling.
//!
//! A [`Rule`] is registered once per process, by name. From then on the name is a policy like any
//! other: it parses, and works in job files, on the command line and for a running channel. Each
//! channel that uses the rule makes an instance. A rule chooses once per wait and records each I/O
//! that has ended, by dynamic dispatch; I/O of the policy `poll` never calls it.
//!
//! ```
//! use meantime::block::{BlockChannel, BlockDevice, ChannelOptions, OpenOptions, Request};
//! use meantime::completion::rule::{Choice, Rule, RuleSpec, Sample, register};
//! use meantime::completion::{Class, Policy};
//!
//! /// Sleeps for half of what the last I/O took.
//! #[derive(Debug, Default)]
//! struct HalfTheLast(u64);
//!
//! impl Rule for HalfTheLast {
//!     fn choose(&mut self, _: Class) -> Choice {
//!         Choice::Sleep(self.0 / 2)
//!     }
//!
//!     fn record(&mut self, sample: &Sample) {
//!         self.0 = sample.device_ns;
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rule = register(RuleSpec {
//!     name: "half-the-last",
//!     may_interrupt: false,
//!     make: || Box::new(HalfTheLast::default()),
//! })?;
//! let policy: Policy = "half-the-last".parse()?;
//! assert_eq!(policy, Policy::Rule(rule));
//!
//! let device = meantime::block::open("mem:64M", &OpenOptions::default())?;
//! let mut channel = device.channel(&ChannelOptions { policy: Some(policy), ..ChannelOptions::default() })?;
//! let ticket = channel.submit(Request::read(0, channel.alloc(4096)?))?;
//! channel.wait(ticket).result?;
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::class::Class;

/// The most rules in a process.
pub const RULES_MAX: usize = 16;

/// The longest name of a rule, in bytes.
const NAME_BYTES_MAX: usize = 32;

/// A rule's choice for an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The interrupt.
    Interrupt,
    /// Sleep for this many ns, then poll; 0: poll at once.
    Sleep(u64),
}

/// An ended I/O, as a rule sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Its class.
    pub class: Class,
    /// From its submission until it was found complete, in ns, including any oversleep.
    pub device_ns: u64,
    /// Planned sleep for it, in ns; 0 if there was none.
    pub slept_ns: u64,
    /// Whether it was complete when the sleep ended.
    pub overslept: bool,
    /// Whether it was waited for by interrupt.
    pub interrupted: bool,
    /// I/Os in flight on the queue when it was found complete, including itself.
    pub in_flight: u16,
    /// The time when it was found complete, in ns.
    pub now_ns: u64,
}

/// The device time that a policy expects, in ns; 0 if it expects none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expected {
    /// The median, or the mean if the policy uses that.
    pub median_ns: u64,
    /// A low quantile.
    pub low_ns: u64,
}

/// A rule for how long to sleep before polling, on one channel.
pub trait Rule: fmt::Debug + Send {
    /// Chooses how to wait for an I/O of `class`. Called at its submission, if the rule [may
    /// interrupt](RuleSpec::may_interrupt) and the channel has an interrupt, and again at its wait:
    /// both calls must give the same choice.
    fn choose(&mut self, class: Class) -> Choice;

    /// Records an ended I/O.
    fn record(&mut self, sample: &Sample);

    /// The expected device time, for the telemetry.
    fn expected(&self) -> Expected {
        Expected::default()
    }
}

/// A rule to register.
#[derive(Debug, Clone, Copy)]
pub struct RuleSpec {
    /// The policy's name: lower-case letters, digits and hyphens.
    pub name: &'static str,
    /// Whether it ever chooses the interrupt.
    pub may_interrupt: bool,
    /// Makes an instance for a channel, when the channel first needs it.
    pub make: fn() -> Box<dyn Rule>,
}

/// A registered rule.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RuleId(u8);

/// Why a rule was not registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name is invalid.
    #[error("{0:?} is no name for a rule: use at most 32 lower-case letters, digits and hyphens")]
    Name(&'static str),
    /// The name is a policy already.
    #[error("there is a policy called {0} already")]
    Taken(&'static str),
    /// There are too many rules.
    #[error("{RULES_MAX} rules are registered already, which is the most")]
    Full,
}

/// Names of policies that need no registration.
const BUILT_IN: [&str; 5] = ["interrupt", "poll", "hybrid", "adaptive", "auto"];

/// The rules of this process, by number. Entries are never removed.
static RULES: [OnceLock<RuleSpec>; RULES_MAX] = [const { OnceLock::new() }; RULES_MAX];

/// Registers a rule for this process.
///
/// # Errors
/// Fails if the name is invalid or taken, or there are too many rules.
pub fn register(spec: RuleSpec) -> Result<RuleId, RegisterError> {
    static REGISTERING: Mutex<()> = Mutex::new(());
    let name = spec.name;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(plain) {
        return Err(RegisterError::Name(name));
    }
    // Serialises registrations, so that no two take the same name.
    let _one = REGISTERING.lock().unwrap_or_else(PoisonError::into_inner);
    if BUILT_IN.contains(&name) || RuleId::named(name).is_some() {
        return Err(RegisterError::Taken(name));
    }
    let free = RULES.iter().position(|rule| rule.set(spec).is_ok());
    free.map(|index| RuleId(index as u8)).ok_or(RegisterError::Full)
}

/// The names of the registered rules.
pub fn names() -> impl Iterator<Item = &'static str> {
    RULES.iter().filter_map(OnceLock::get).map(|spec| spec.name)
}

impl RuleId {
    /// The rule of this name.
    pub fn named(name: &str) -> Option<Self> {
        names().position(|registered| registered == name).map(|index| Self(index as u8))
    }

    fn spec(self) -> Option<&'static RuleSpec> {
        RULES[self.index()].get()
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.spec().map_or("", |spec| spec.name)
    }

    pub(super) fn may_interrupt(self) -> bool {
        self.spec().is_some_and(|spec| spec.may_interrupt)
    }

    /// Makes an instance.
    pub(super) fn make(self) -> Option<Box<dyn Rule>> {
        self.spec().map(|spec| (spec.make)())
    }

    #[inline]
    pub(super) fn index(self) -> usize {
        usize::from(self.0) % RULES_MAX
    }
}

impl fmt::Debug for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::Policy;
    use super::*;

    #[derive(Debug)]
    struct Never;

    impl Rule for Never {
        fn choose(&mut self, _: Class) -> Choice {
            Choice::Sleep(0)
        }

        fn record(&mut self, _: &Sample) {}
    }

    fn spec(name: &'static str) -> RuleSpec {
        RuleSpec { name, may_interrupt: true, make: || Box::new(Never) }
    }

    /// One test, since the rules belong to the process.
    #[test]
    fn a_name_is_a_policy_and_is_taken_once() {
        let error = "never".parse::<Policy>().unwrap_err().to_string();
        assert!(error.contains("no other rule is registered"), "{error}");
        let id = register(spec("never")).unwrap();
        assert_eq!((id.name(), RuleId::named("never")), ("never", Some(id)));
        assert_eq!("never".parse(), Ok(Policy::Rule(id)));
        assert_eq!(Policy::Rule(id).to_string(), "never");
        assert!(Policy::Rule(id).may_interrupt() && Policy::Rule(id).learns());
        assert_eq!(id.make().unwrap().choose(Class::default()), Choice::Sleep(0));
        let error = "nevr".parse::<Policy>().unwrap_err().to_string();
        assert!(error.contains("never"), "{error}");
        for taken in ["never", "interrupt", "poll", "hybrid", "adaptive", "auto"] {
            assert_eq!(register(spec(taken)), Err(RegisterError::Taken(taken)));
        }
        for name in
            ["", "Never", "a,b", "a=1", "a:b", "a b", "a-name-of-more-than-thirty-two-bytes"]
        {
            assert_eq!(register(spec(name)), Err(RegisterError::Name(name)));
        }
        let more = ["r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "r12"];
        for name in more.into_iter().chain(["r13", "r14", "r15"]) {
            register(spec(name)).unwrap();
        }
        assert_eq!(register(spec("r16")), Err(RegisterError::Full));
        assert_eq!(names().count(), RULES_MAX);
    }
}
