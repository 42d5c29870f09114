//! Scheduling classes: how the kernel shares a CPU between an I/O thread and competing threads.
//!
//! A polling thread looks like a CPU hog to the scheduler, which then prefers its competitors: one
//! in 5,000 of Le Moal's I/Os (Vault 2017) was very late. A real-time class avoids that, and a
//! shorter slice does so in part.

#![expect(unsafe_code)]

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::str::FromStr;

use super::clock::{Nanos, parse_time_ns};

/// Real-time priorities, the same for both classes (sched(7)).
const PRIORITY_MAX: u32 = 99;

/// The range to which the kernel clamps slices (`__setparam_fair`, Linux 6.12).
const SLICE_MIN_NS: u64 = 100_000;
const SLICE_MAX_NS: u64 = 100_000_000;

/// A scheduling class with its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SchedClass {
    /// `SCHED_OTHER`, with the kernel's default slice: a fair share of the CPU.
    Other,
    /// `SCHED_RR` at a priority from 1 to 99: before all fair threads; threads of one priority take
    /// turns.
    RoundRobin(u32),
    /// `SCHED_FIFO` at a priority from 1 to 99: before all fair threads, until it sleeps.
    Fifo(u32),
    /// `SCHED_OTHER` with this slice in ns, from 0.1 to 100 ms: the same share of the CPU, but
    /// sooner (or later) after a wake-up. EEVDF with custom slices: Linux 6.12 or later.
    Slice(u64),
}

impl fmt::Display for SchedClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other => f.write_str("other"),
            Self::RoundRobin(priority) => write!(f, "rr:{priority}"),
            Self::Fifo(priority) => write!(f, "fifo:{priority}"),
            Self::Slice(ns) => write!(f, "slice:{}", Nanos(*ns)),
        }
    }
}

/// The text names no class.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no scheduling class{reason}: use other, rr:N, fifo:N (N from 1 to 99) or slice:T \
     (T from 100us to 100ms)"
)]
pub struct ParseSchedClassError {
    text: String,
    reason: &'static str,
}

impl FromStr for SchedClass {
    type Err = ParseSchedClassError;

    fn from_str(text: &str) -> Result<Self, ParseSchedClassError> {
        // Long texts are truncated in messages.
        let error = |reason| ParseSchedClassError { text: text.chars().take(40).collect(), reason };
        let priority = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let priority = digits
                .parse()
                .ok()
                .filter(|priority| plain && (1..=PRIORITY_MAX).contains(priority));
            priority.ok_or_else(|| error(" (a priority is a number from 1 to 99)"))
        };
        match text.split_once(':') {
            None if text == "other" => Ok(Self::Other),
            Some(("rr", digits)) => priority(digits).map(Self::RoundRobin),
            Some(("fifo", digits)) => priority(digits).map(Self::Fifo),
            Some(("slice", time)) => {
                let ns = parse_slice_ns(time)
                    .ok_or_else(|| error(" (a slice is a time such as 100us or 3ms)"))?;
                let ns = Some(ns).filter(|ns| (SLICE_MIN_NS..=SLICE_MAX_NS).contains(ns));
                ns.map(Self::Slice)
                    .ok_or_else(|| error(" (the kernel's slices are from 0.1 to 100 ms)"))
            }
            _ => Err(error("")),
        }
    }
}

/// Parses a slice like other times, but requires a unit.
fn parse_slice_ns(text: &str) -> Option<u64> {
    if text.ends_with(|c: char| c.is_ascii_digit() || c == '.') {
        None
    } else {
        parse_time_ns(text)
    }
}

/// Why a class could not be set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchedError {
    /// A priority or slice out of range.
    #[error(
        "there is no scheduling class {0}: priorities are from 1 to 99, slices from 0.1 to 100 ms"
    )]
    Range(SchedClass),
    /// The kernel refused.
    #[error(
        "the kernel refuses the scheduling class {class}: {source}; {}",
        what_to_do(*class, source)
    )]
    Refused {
        /// The class requested.
        class: SchedClass,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel accepted the request but did not follow it.
    #[error(
        "the kernel accepted the scheduling class {class}, but {in_force} is in force{}",
        match class {
            SchedClass::Slice(_) => "; slices of one's own need Linux 6.12 or later (EEVDF)",
            _ => "",
        }
    )]
    Ignored {
        /// The class requested.
        class: SchedClass,
        /// The class in force.
        in_force: InForce,
    },
    /// The class in force cannot be read.
    #[error(
        "cannot read the scheduling class of this thread: {0}; is sched_getattr forbidden by a \
         seccomp filter?"
    )]
    Unreadable(io::Error),
}

fn what_to_do(class: SchedClass, error: &io::Error) -> String {
    let code = error.raw_os_error();
    match class {
        _ if code == Some(libc::ENOSYS) => "sched_setattr needs Linux 3.14 or later".to_owned(),
        SchedClass::RoundRobin(_) | SchedClass::Fifo(_) if code == Some(libc::EPERM) => format!(
            "it needs CAP_SYS_NICE, or an RLIMIT_RTPRIO of its priority or more (here it is {}): \
             run as root, or raise it with `ulimit -r`, rtprio in limits.conf or LimitRTPRIO= in \
             the unit; in a cgroup of version 1, cpu.rt_runtime_us must not be 0",
            rtprio_limit()
        ),
        _ if code == Some(libc::EPERM) => {
            "leaving another class, or a nice value below 0, needs CAP_SYS_NICE; or a seccomp \
             filter (of a container?) forbids it"
                .to_owned()
        }
        _ => "is the kernel older than 3.14?".to_owned(),
    }
}

/// The soft limit, for display.
fn rtprio_limit() -> String {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Rtprio).current;
    limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
}

/// `struct sched_attr` in its first version (sched_setattr(2)), which every kernel with the call
/// accepts.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SchedAttr {
    size: u32,
    sched_policy: u32,
    sched_flags: u64,
    sched_nice: i32,
    sched_priority: u32,
    sched_runtime: u64,
    sched_deadline: u64,
    sched_period: u64,
}

const _: () = assert!(size_of::<SchedAttr>() == 48);

impl SchedAttr {
    fn of_this_thread() -> io::Result<Self> {
        let mut attr = Self::default();
        // SAFETY: sched_getattr writes at most the size it is told to what it is pointed to, which
        // is `attr` and as long; pid 0 is the calling thread; every bit pattern is a valid
        // `SchedAttr`.
        let answer = unsafe {
            libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size_of::<Self>() as u32, 0u32)
        };
        if answer == 0 { Ok(attr) } else { Err(io::Error::last_os_error()) }
    }

    fn apply_to_this_thread(mut self) -> io::Result<()> {
        self.size = size_of::<Self>() as u32;
        // SAFETY: sched_setattr reads as many bytes as `size` says from what it is pointed to,
        // which is `self` and as long; pid 0 is the calling thread.
        let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const self, 0u32) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn is_fair(&self) -> bool {
        matches!(self.sched_policy as i32, libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE)
    }
}

/// The class in force for a thread, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InForce(SchedAttr);

impl InForce {
    /// The real-time priority, from 1 to 99; 0 for other classes.
    pub fn priority(&self) -> u32 {
        self.0.sched_priority
    }

    /// The slice in ns, custom or default; `None` for a real-time class and for kernels before
    /// 6.12, which do not report it.
    pub fn slice_ns(&self) -> Option<u64> {
        Some(self.0.sched_runtime).filter(|ns| self.0.is_fair() && *ns > 0)
    }

    /// Whether this is what `class` requests. For [`SchedClass::Other`] any slice matches.
    pub fn is(&self, class: SchedClass) -> bool {
        let SchedAttr { sched_policy, sched_priority, .. } = self.0;
        match class {
            SchedClass::Other => sched_policy as i32 == libc::SCHED_OTHER,
            SchedClass::RoundRobin(priority) => {
                (sched_policy as i32, sched_priority) == (libc::SCHED_RR, priority)
            }
            SchedClass::Fifo(priority) => {
                (sched_policy as i32, sched_priority) == (libc::SCHED_FIFO, priority)
            }
            SchedClass::Slice(ns) => {
                sched_policy as i32 == libc::SCHED_OTHER && self.slice_ns() == Some(ns)
            }
        }
    }
}

impl fmt::Display for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.sched_policy as i32 {
            libc::SCHED_OTHER => f.write_str("SCHED_OTHER")?,
            libc::SCHED_FIFO => f.write_str("SCHED_FIFO")?,
            libc::SCHED_RR => f.write_str("SCHED_RR")?,
            libc::SCHED_BATCH => f.write_str("SCHED_BATCH")?,
            libc::SCHED_IDLE => f.write_str("SCHED_IDLE")?,
            libc::SCHED_DEADLINE => f.write_str("SCHED_DEADLINE")?,
            other => write!(f, "scheduling policy {other}")?,
        }
        if self.priority() > 0 {
            write!(f, ", priority {}", self.priority())?;
        }
        match self.slice_ns() {
            Some(ns) => write!(f, ", slice {}", Nanos(ns)),
            None => Ok(()),
        }
    }
}

impl SchedClass {
    /// The class in force for the calling thread.
    ///
    /// # Errors
    /// Fails if the kernel does not report it.
    pub fn of_this_thread() -> Result<InForce, SchedError> {
        SchedAttr::of_this_thread().map(InForce).map_err(SchedError::Unreadable)
    }

    /// Whether threads of this class run before all fair ones, so that a spinning one keeps them
    /// from the CPU, except for 5 % (`sched_rt_runtime_us`; since Linux 6.12 the fair server).
    pub fn is_real_time(self) -> bool {
        matches!(self, Self::RoundRobin(_) | Self::Fifo(_))
    }

    /// Puts the calling thread into this class, and verifies it. Dropping the guard restores the
    /// former class; [`SchedGuard::keep`] leaves the new one. Threads started meanwhile inherit the
    /// class.
    ///
    /// # Errors
    /// Fails if permission or kernel support is missing; the error says which, with a remedy. It
    /// also fails if the kernel accepts the request and ignores it. The former class is then
    /// restored.
    pub fn apply_to_this_thread(self) -> Result<SchedGuard, SchedError> {
        let before = SchedAttr::of_this_thread().map_err(SchedError::Unreadable)?;
        let attr = self.attr(&before).ok_or(SchedError::Range(self))?;
        attr.apply_to_this_thread()
            .map_err(|source| SchedError::Refused { class: self, source })?;
        let guard = SchedGuard { before, of_this_thread: PhantomData };
        let in_force = Self::of_this_thread()?;
        if in_force.is(self) {
            Ok(guard)
        } else {
            Err(SchedError::Ignored { class: self, in_force })
        }
    }

    /// The attributes for a thread with `before` in force; `None` if they are out of the kernel's
    /// range.
    fn attr(self, before: &SchedAttr) -> Option<SchedAttr> {
        // Keeps the flag that children do not inherit the class, since not every process may clear
        // it. The other flags request other things.
        let sched_flags = before.sched_flags & libc::SCHED_FLAG_RESET_ON_FORK as u64;
        let fair = |sched_runtime| SchedAttr {
            sched_policy: libc::SCHED_OTHER as u32,
            sched_nice: if before.is_fair() { before.sched_nice } else { 0 },
            sched_flags,
            sched_runtime,
            ..SchedAttr::default()
        };
        let real_time = |sched_policy: i32, sched_priority| SchedAttr {
            sched_policy: sched_policy as u32,
            sched_priority,
            sched_flags,
            ..SchedAttr::default()
        };
        match self {
            // 0 selects the kernel's default slice.
            Self::Other => Some(fair(0)),
            Self::Slice(ns) => (SLICE_MIN_NS..=SLICE_MAX_NS).contains(&ns).then(|| fair(ns)),
            Self::RoundRobin(priority) | Self::Fifo(priority)
                if !(1..=PRIORITY_MAX).contains(&priority) =>
            {
                None
            }
            Self::RoundRobin(priority) => Some(real_time(libc::SCHED_RR, priority)),
            Self::Fifo(priority) => Some(real_time(libc::SCHED_FIFO, priority)),
        }
    }
}

/// A class in force for this thread; dropping it restores the former one.
#[derive(Debug)]
#[must_use = "when it is dropped, the class is what it was"]
pub struct SchedGuard {
    before: SchedAttr,
    /// Not `Send`: on another thread, the drop would set a class that that thread never had.
    of_this_thread: PhantomData<*const ()>,
}

impl SchedGuard {
    /// Leaves the class in force.
    pub fn keep(self) {
        std::mem::forget(self);
    }

    fn restore(&self) -> io::Result<()> {
        if !self.before.is_fair() {
            return self.before.apply_to_this_thread();
        }
        // The kernel does not report whether a slice is its default. A custom one differs from what
        // 0 selects.
        SchedAttr { sched_runtime: 0, ..self.before }.apply_to_this_thread()?;
        match SchedAttr::of_this_thread()?.sched_runtime == self.before.sched_runtime {
            true => Ok(()),
            false => self.before.apply_to_this_thread(),
        }
    }
}

impl Drop for SchedGuard {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            let before = InForce(self.before);
            tracing::error!(%error, %before, "cannot give a thread back its scheduling class");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `body` on a separate thread, so that other tests do not run under its class.
    fn apart<T: Send>(body: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(body).join().unwrap())
    }

    #[test]
    fn names_round_trip() {
        for text in [
            "other",
            "rr:1",
            "rr:99",
            "fifo:50",
            "slice:100us",
            "slice:3ms",
            "slice:100ms",
            "slice:123456ns",
        ] {
            assert_eq!(text.parse::<SchedClass>().unwrap().to_string(), text);
        }
        assert_eq!("slice:0.1ms".parse(), Ok(SchedClass::Slice(100_000)));
        assert_eq!("slice:2.8ms".parse(), Ok(SchedClass::Slice(2_800_000)));
    }

    #[test]
    fn invalid_text_says_what_is_valid() {
        let why = |text: &str| text.parse::<SchedClass>().unwrap_err().to_string();
        for text in ["", "rr", "rt:1", "other:1", "OTHER", "nice:3"] {
            assert!(why(text).contains("use other, rr:N"), "{text}");
        }
        for text in ["rr:", "rr:0", "rr:100", "fifo:-1", "fifo:+1", "rr:1.5", "rr:99999999999"] {
            assert!(why(text).contains("from 1 to 99)"), "{text}");
        }
        for text in ["slice:", "slice:5", "slice:ms", "slice:1e3us", "slice:1m", "slice:-1ms"] {
            assert!(why(text).contains("such as 100us"), "{text}");
        }
        for text in ["slice:99us", "slice:99999ns", "slice:101ms", "slice:0us", "slice:1s"] {
            assert!(why(text).contains("from 0.1 to 100 ms"), "{text}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for class in [
            SchedClass::RoundRobin(0),
            SchedClass::Fifo(100),
            SchedClass::Slice(99_999),
            SchedClass::Slice(u64::MAX),
        ] {
            assert!(
                matches!(
                    apart(|| class.apply_to_this_thread().map(|_| ())),
                    Err(SchedError::Range(_))
                ),
                "{class}"
            );
        }
    }

    /// The kernel may clamp, ignore or refuse: in each case the reported class is the one in force.
    #[test]
    fn a_class_is_in_force_until_its_guard_is_dropped() {
        for class in [
            SchedClass::Other,
            SchedClass::Slice(1_000_000),
            SchedClass::RoundRobin(2),
            SchedClass::Fifo(1),
        ] {
            apart(|| {
                let before = SchedClass::of_this_thread().unwrap();
                match class.apply_to_this_thread() {
                    Ok(guard) => {
                        let in_force = SchedClass::of_this_thread().unwrap();
                        assert!(in_force.is(class), "{class}: {in_force}");
                        assert_eq!(in_force.priority() > 0, class.is_real_time());
                        assert_eq!(
                            in_force.to_string().contains("SCHED_RR"),
                            matches!(class, SchedClass::RoundRobin(_))
                        );
                        drop(guard);
                    }
                    // Not every process has permission.
                    Err(SchedError::Refused { source, .. })
                        if source.raw_os_error() == Some(libc::EPERM) => {}
                    // A kernel that reports slices supports them.
                    Err(SchedError::Ignored { class: SchedClass::Slice(_), .. })
                        if before.slice_ns().is_none() => {}
                    Err(error) => panic!("{error}"),
                }
                assert_eq!(SchedClass::of_this_thread().unwrap(), before, "{class}");
            });
        }
    }

    #[test]
    fn a_slice_under_a_slice_comes_back() {
        apart(|| {
            let Ok(outer) = SchedClass::Slice(5_000_000).apply_to_this_thread() else { return };
            if let Ok(inner) = SchedClass::Other.apply_to_this_thread() {
                assert!(!SchedClass::of_this_thread().unwrap().is(SchedClass::Slice(5_000_000)));
                drop(inner);
            }
            assert!(SchedClass::of_this_thread().unwrap().is(SchedClass::Slice(5_000_000)));
            outer.keep();
            assert!(SchedClass::of_this_thread().unwrap().is(SchedClass::Slice(5_000_000)));
        });
    }

    #[test]
    fn errors_say_what_is_missing() {
        let refused = |class, code| {
            SchedError::Refused { class, source: io::Error::from_raw_os_error(code) }.to_string()
        };
        let text = refused(SchedClass::RoundRobin(1), libc::EPERM);
        assert!(text.contains("CAP_SYS_NICE") && text.contains("RLIMIT_RTPRIO"), "{text}");
        assert!(refused(SchedClass::Slice(1_000_000), libc::EPERM).contains("seccomp"));
        assert!(refused(SchedClass::Other, libc::ENOSYS).contains("3.14"));
        let in_force = InForce(SchedAttr { sched_runtime: 2_800_000, ..SchedAttr::default() });
        let text =
            SchedError::Ignored { class: SchedClass::Slice(1_000_000), in_force }.to_string();
        assert!(
            text.contains("SCHED_OTHER, slice 2800us is in force") && text.contains("6.12"),
            "{text}"
        );
    }
}
