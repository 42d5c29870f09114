//! The rings of a channel to the kernel.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use super::super::error::{ChannelError, IoErrorKind};
use super::namespace::Namespace;
use super::shared::Shared;
use super::state::KernelRequests;
use meantime_completion::Policy;
use meantime_hw::HwError;
use meantime_hw::uring::{Register, RingPoll, Uring, UringIo, UringOp};

/// The rings of a channel.
pub(super) struct Rings {
    plain: Uring,
    /// The ring for a polling policy, and that policy.
    polled: Option<(Policy, Uring)>,
    /// The namespace to which the rings take commands, if they take commands.
    namespace: Option<Namespace>,
}

impl Rings {
    pub(super) fn new(shared: &Shared, depth: u16) -> Result<Self, ChannelError> {
        let plain = ring(shared, depth, RingPoll::Interrupt)?;
        Ok(Self { plain, polled: None, namespace: shared.file.namespace })
    }

    /// Adds a ring for `policy`, replacing one for another policy.
    pub(super) fn add_polled(
        &mut self,
        shared: &Shared,
        depth: u16,
        policy: Policy,
    ) -> Result<(), ChannelError> {
        self.polled = Some((policy, ring(shared, depth, poll_kind(policy))?));
        Ok(())
    }

    /// Reads a block by polling, which is the only reliable test. The error is the reason.
    pub(super) fn try_polling(shared: &Shared, policy: Policy) -> Result<(), String> {
        shared.file.can_poll(shared.options.direct)?;
        let mut ring = ring(shared, 1, poll_kind(policy)).map_err(|error| error.to_string())?;
        let bytes = shared.file.block_bytes;
        let buf = shared.heap.alloc(bytes as usize).map_err(|error| error.to_string())?;
        let (op, data) = (UringOp::Read, buf.iova());
        let io = UringIo { op, bytes: bytes.into(), data, ..UringIo::default() };
        let namespace = shared.file.namespace;
        stage(&mut ring, namespace, &io).map_err(|error| error.to_string())?;
        let (mut answer, mut tries) = (None, 100);
        while answer.is_none() {
            if let Err(error) = ring.wait(Duration::from_secs(1)) {
                // The kernel may still have the buffer.
                buf.quarantine();
                return Err(error.to_string());
            }
            ring.reap(|_, result| answer = Some(result));
            // The kernel temporarily lacks resources.
            if matches!(answer.map(|result| -result), Some(libc::EAGAIN | libc::EINTR)) && tries > 0
            {
                (answer, tries) = (None, tries - 1);
                stage(&mut ring, namespace, &io).map_err(|error| error.to_string())?;
            }
        }
        match answer.map_or(0, |result| -result) {
            errno if errno <= 0 => Ok(()),
            libc::EOPNOTSUPP if namespace.is_some() => {
                Err("this kernel polls for no passthrough, which came with Linux 6.1; use \
                     interrupt, or the block device (EOPNOTSUPP)"
                    .to_owned())
            }
            libc::EOPNOTSUPP => {
                Err("its driver or file system does not poll (EOPNOTSUPP)".to_owned())
            }
            errno => Err(std::io::Error::from_raw_os_error(errno).to_string()),
        }
    }

    pub(super) fn of(&mut self, polled: bool) -> &mut Uring {
        match &mut self.polled {
            Some((_, ring)) if polled => ring,
            _ => &mut self.plain,
        }
    }

    /// Stages an I/O.
    ///
    /// # Errors
    /// Fails if the buffer is not of this ring's heap or cannot be registered, if the ring is full,
    /// or if it does not take this kind of entry. The kernel has then not seen the I/O.
    pub(super) fn stage(&mut self, polled: bool, io: &UringIo) -> Result<(), HwError> {
        let namespace = self.namespace;
        stage(self.of(polled), namespace, io)
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Uring> {
        [&mut self.plain].into_iter().chain(self.polled.as_mut().map(|(_, ring)| ring))
    }

    /// The policy of the second ring.
    pub(super) fn polls_by(&self) -> Option<Policy> {
        self.polled.as_ref().map(|(policy, _)| *policy)
    }

    pub(super) fn polled_in_flight(&self) -> usize {
        self.polled.as_ref().map_or(0, |(_, ring)| ring.in_flight())
    }

    pub(super) fn in_flight(&self) -> usize {
        self.plain.in_flight() + self.polled_in_flight()
    }

    /// The descriptor of the plain ring, if everything in flight is on it.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (self.polled_in_flight() == 0).then(|| self.plain.as_fd())
    }

    pub(super) fn submit(&mut self) -> std::io::Result<()> {
        self.all().try_for_each(Uring::submit)
    }

    pub(super) fn get_events(&mut self) -> std::io::Result<()> {
        self.all().try_for_each(Uring::get_events)
    }

    /// Waits for a completion, for at most `timeout` unless the kernel polls.
    pub(super) fn wait(&mut self, timeout: Duration) -> std::io::Result<()> {
        match (self.plain.in_flight(), self.polled_in_flight()) {
            (0, 0) => Ok(()),
            (_, 0) => self.plain.wait(timeout),
            (0, _) => self.of(true).wait(timeout),
            // A wait on one ring would sleep through completions of the other.
            _ => self.get_events(),
        }
    }

    /// Reaps completions, and resends incomplete transfers. Returns the number of completions.
    pub(super) fn reap(&mut self, state: &mut KernelRequests) -> usize {
        let count = self.all().map(|ring| ring.reap(|tag, result| state.ended(tag, result))).sum();
        while let Some(slot) = state.again.pop() {
            let (rest, polled) = (state.rest(slot), state.submission(slot).polled);
            if self.stage(polled, &rest).is_err() {
                state.finish(slot, Err(IoErrorKind::os(libc::EFAULT)));
            }
        }
        count
    }
}

/// Stages an I/O on one of the channel's rings.
///
/// # Errors
/// Fails if the buffer is not of this ring's heap or cannot be registered, if the ring is full, or
/// if it does not take this kind of entry. The kernel has then not seen the I/O.
#[expect(unsafe_code)]
fn stage(ring: &mut Uring, namespace: Option<Namespace>, io: &UringIo) -> Result<(), HwError> {
    // SAFETY: `io` is of one of two kinds. That of a request ([`KernelRequests::begin`],
    // [`KernelRequests::rest`]) names the buffer that the request brought, which `KernelRequests`
    // keeps, and lends to no caller, until the ring has given the completion: in the request's
    // slot; if the request is given up, among the orphans; if no completion will come, in
    // quarantine. Its vectors are in a box of that buffer, and are changed only between a
    // completion and the next `stage`. The other kind is that of `Rings::try_polling`, which keeps
    // its buffer until the completion, or quarantines it.
    let Some(namespace) = namespace else { return unsafe { ring.stage(io) } };
    let command = namespace.command(io);
    // SAFETY: as above. The command reads or writes as `io` does, as many bytes: these are whole
    // blocks of the namespace, and no more than a command can have ([`KernelRequests`] cuts them,
    // and the vectors with them).
    unsafe { ring.stage_command(&command, io) }
}

/// Whether `policy` is the rule of this name, which here means io_uring's `HYBRID_IOPOLL`.
pub(super) fn is_hybrid_min(policy: Policy) -> bool {
    policy.rule().is_some_and(|rule| rule.name() == "hybrid-min")
}

fn poll_kind(policy: Policy) -> RingPoll {
    if is_hybrid_min(policy) { RingPoll::HybridMin } else { RingPoll::Poll }
}

fn ring(shared: &Shared, depth: u16, poll: RingPoll) -> Result<Uring, ChannelError> {
    // There is also room for as many given-up requests that the kernel has yet to take.
    let entries = 2 * u32::from(depth);
    let is_namespace = shared.file.namespace.is_some();
    let new = |fixed| match is_namespace {
        false => Uring::new(&shared.file.fd, &shared.memory, entries, poll, fixed),
        true => Uring::for_commands(&shared.file.fd, &shared.memory, entries, poll, fixed),
    };
    let made = match shared.options.fixed {
        Some(true) => new(Register::Must),
        Some(false) => new(Register::No),
        // Without permission to register memory it also works, more slowly.
        None => new(Register::Try).or_else(|_| new(Register::No)),
    };
    made.map_err(|source| {
        let what = no_ring(&source, poll, is_namespace);
        ChannelError::Kernel { what, source }
    })
}

fn no_ring(error: &std::io::Error, poll: RingPoll, is_namespace: bool) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EINVAL) if is_namespace => {
            "this kernel has no NVMe passthrough by io_uring, which came with Linux 5.19; use the \
             block device, e.g. kernel:/dev/nvme0n1"
        }
        Some(libc::EOPNOTSUPP) if is_namespace => {
            "registered memory for NVMe passthrough needs Linux 6.12; leave fixed=1 out"
        }
        Some(libc::ENOSYS | libc::EPERM) if is_namespace => {
            "this kernel has no io_uring, or forbids it here (sysctl kernel.io_uring_disabled, or \
             a container's filter); use the block device with engine=preadv2, e.g. \
             kernel:/dev/nvme0n1?engine=preadv2"
        }
        Some(libc::EINVAL) if poll == RingPoll::HybridMin => {
            "this kernel has no HYBRID_IOPOLL, which came with Linux 6.13"
        }
        Some(libc::ENOSYS) => {
            "this kernel has no io_uring, or one from before Linux 5.11; use engine=preadv2"
        }
        Some(libc::EPERM) => {
            "io_uring is forbidden here (sysctl kernel.io_uring_disabled, or a container's \
             filter); use engine=preadv2"
        }
        Some(libc::ENOMEM) => {
            "io_uring has no memory left to pin (RLIMIT_MEMLOCK, `ulimit -l`); raise it, or say \
             fixed=0"
        }
        _ => "cannot set up io_uring",
    }
}
