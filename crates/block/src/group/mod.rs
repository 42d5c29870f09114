//! One thread, many channels: waiting for whichever has something first.

mod places;
mod sleep;
mod watch;

use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use super::device::BlockChannel;
use super::request::Done;
use meantime_completion::waiter::Rest;
use meantime_completion::{OffQueue, SPINS_PER_CLOCK};
use meantime_hw::{Clock, HwError};
use places::{Key, Places};
pub(super) use sleep::GroupSleep;
pub use watch::{GroupWaker, NoWatch, Watch};

/// After this many results in a row, the group also looks at everything else.
const RESULTS_IN_A_ROW: u32 = 32;
/// Between two checks of the descriptors while the thread is awake, in ns: each is a system call.
const DESCRIPTORS_NS: u64 = 20_000;

/// What a [`PollGroup`] asks its channels. A channel of your own that wraps another forwards these
/// functions; the defaults poll it all the time while it has requests.
pub trait GroupChannel: BlockChannel {
    /// Reaps completions as [`poll`](BlockChannel::poll) does. It need not check deadlines.
    /// `off_queue` is what the thread did just before, if not looking.
    fn poll_in_group(&mut self, off_queue: Option<OffQueue>) -> usize {
        let _ = off_queue;
        self.poll()
    }

    /// Called after empty polls, by the same thread: checks deadlines, and returns until when no
    /// look is needed.
    fn rest(&mut self) -> Rest {
        if self.in_flight() > 0 { Rest::NONE } else { Rest::FOREVER }
    }

    /// What becomes readable when a request may have ended while the thread rests.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Waits on any number of channels, of several devices, each with its own policy; and on memory
/// that others change, on descriptors, and on other threads.
///
/// [`wait`](Self::wait) looks at every channel that has requests. It spins while one of their
/// policies does, and sleeps when all may: until the first of them plans to look again, or until
/// something wakes it. Channels without requests cost nothing.
///
/// Send requests by [`enqueue`](BlockChannel::enqueue): a request with a ticket is never reported.
/// `PollGroup::new` makes a group without watches; a group with watches of the type `MyWatch` is
/// made by `PollGroup::<C, MyWatch>::default()`.
///
/// It is fair: results of several channels are given out in turns, and so is what else is ready.
/// After at most 32 results, descriptors, watches and deadlines are checked, too.
///
/// ```
/// use meantime::block::{BlockChannel, BlockDevice, ChannelOptions, OpenOptions, PollGroup};
/// use meantime::block::{Ready, Request};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut group = PollGroup::new();
/// let mut keys = Vec::new();
/// for uri in ["mem:64M", "mem:64M?model=optane"] {
///     let device = meantime::block::open(uri, &OpenOptions::default())?;
///     keys.push(group.add(device.channel(&ChannelOptions::default())?));
/// }
/// for key in &keys {
///     let channel = group.channel(*key);
///     let buf = channel.alloc(4096)?;
///     channel.enqueue(Request::read(0, buf))?;
/// }
/// let mut ended = Vec::new();
/// while let Some(Ready::Done(key, done)) = group.wait(None) {
///     done.result?;
///     ended.push(key);
/// }
/// assert_eq!(ended.len(), 2);
/// # Ok(())
/// # }
/// ```
pub struct PollGroup<C: GroupChannel, W: Watch = NoWatch> {
    channels: Places<Member<C>>,
    watches: Places<W>,
    descriptors: Places<OwnedFd>,
    /// The channels with requests or work; the next one to give out a result is the first.
    busy: VecDeque<usize>,
    /// Descriptors that were readable and have not been given out.
    readable: VecDeque<usize>,
    results_in_a_row: u32,
    /// Which of several ready things is given out first.
    rotation: usize,
    /// When the descriptors were last checked, in ns.
    checked_ns: u64,
    sleep: GroupSleep,
}

struct Member<C> {
    channel: C,
    is_busy: bool,
}

/// A channel of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChannelKey(Key);

/// A watch of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WatchKey(Key);

/// A descriptor of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DescriptorKey(Key);

/// What ended a wait.
#[derive(Debug)]
pub enum Ready {
    /// A queued request has ended.
    Done(ChannelKey, Done),
    /// A watch has something; reported until it has nothing.
    Changed(WatchKey),
    /// A descriptor was readable, or had failed; reported until it is not. Use non-blocking ones:
    /// it may have been read since.
    Readable(DescriptorKey),
    /// [`GroupWaker::wake`] was called.
    Woken,
}

impl<C: GroupChannel, W: Watch> Default for PollGroup<C, W> {
    fn default() -> Self {
        Self {
            channels: Places::default(),
            watches: Places::default(),
            descriptors: Places::default(),
            busy: VecDeque::new(),
            readable: VecDeque::new(),
            results_in_a_row: 0,
            rotation: 0,
            checked_ns: 0,
            sleep: GroupSleep::default(),
        }
    }
}

impl<C: GroupChannel> PollGroup<C> {
    /// A group without members.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<C: GroupChannel, W: Watch> PollGroup<C, W> {
    /// Adds a channel.
    pub fn add(&mut self, channel: C) -> ChannelKey {
        let key = self.channels.add(Member { channel, is_busy: false });
        self.mark_busy(key);
        ChannelKey(key)
    }

    /// Adds memory that others change.
    ///
    /// # Errors
    /// If its event cannot have a descriptor.
    pub fn watch(&mut self, watch: W) -> Result<WatchKey, HwError> {
        watch.event().with_descriptor()?;
        Ok(WatchKey(self.watches.add(watch)))
    }

    /// Adds a descriptor, e.g. of a socket. It is waited for until it is readable.
    pub fn add_descriptor(&mut self, fd: OwnedFd) -> DescriptorKey {
        DescriptorKey(self.descriptors.add(fd))
    }

    /// The channel of `key`, to send requests, or to change its policy.
    ///
    /// # Panics
    /// If it was removed, or the key is of another group.
    #[inline]
    pub fn channel(&mut self, key: ChannelKey) -> &mut C {
        self.mark_busy(key.0);
        &mut self.channels.get_mut(key.0).channel
    }

    /// The watch of `key`, to take what it has.
    ///
    /// # Panics
    /// If it was removed, or the key is of another group.
    pub fn watched(&mut self, key: WatchKey) -> &mut W {
        self.watches.get_mut(key.0)
    }

    /// Removes a channel. Its requests stay in flight.
    ///
    /// # Panics
    /// If it was removed before, or the key is of another group.
    pub fn remove(&mut self, key: ChannelKey) -> C {
        let member = self.channels.remove(key.0);
        self.busy.retain(|at| *at != key.0.0);
        member.channel
    }

    /// Removes a watch.
    ///
    /// # Panics
    /// If it was removed before, or the key is of another group.
    pub fn remove_watch(&mut self, key: WatchKey) -> W {
        self.watches.remove(key.0)
    }

    /// Removes a descriptor.
    ///
    /// # Panics
    /// If it was removed before, or the key is of another group.
    pub fn remove_descriptor(&mut self, key: DescriptorKey) -> OwnedFd {
        let fd = self.descriptors.remove(key.0);
        self.readable.retain(|at| *at != key.0.0);
        fd
    }

    /// The channels, in no particular order.
    pub fn channels(&self) -> impl Iterator<Item = (ChannelKey, &C)> {
        let key = |at| ChannelKey(self.channels.key(at));
        self.channels.iter().map(move |(at, member)| (key(at), &member.channel))
    }

    /// Something that ends waits of this group from any thread.
    ///
    /// # Errors
    /// If no eventfd can be created.
    pub fn waker(&mut self) -> Result<GroupWaker, HwError> {
        self.sleep.waker()
    }

    /// Waits until there is something, at most for `timeout`: `None` after that. Without a
    /// time-out, `None` if nothing can come: no queued request is in flight, and there is no watch,
    /// descriptor or waker.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Option<Ready> {
        self.sleep.take_off_queue();
        if self.results_in_a_row >= RESULTS_IN_A_ROW {
            self.poll_all();
            if let Some(ready) = self.next_other() {
                return Some(ready);
            }
        }
        let mut until_ns = None;
        loop {
            if let Some(ready) = self.next_done() {
                return Some(ready);
            }
            let rounds = SPINS_PER_CLOCK / (self.busy.len() as u32).max(1);
            if (0..rounds.max(1)).any(|_| self.poll_once()) {
                if let Some(ready) = self.next_done().or_else(|| self.next_other()) {
                    return Some(ready);
                }
                continue;
            }
            let until_ns = *until_ns.get_or_insert_with(|| deadline_ns(timeout));
            if !self.rest(until_ns) {
                return self.next_done().or_else(|| self.next_other());
            }
            if !self.readable.is_empty() {
                // Also looks at the channels, so that descriptors do not keep it from that.
                self.poll_once();
                return self.next_done().or_else(|| self.next_other());
            }
        }
    }

    /// As [`wait`](Self::wait), and also takes what else is there when that ends, without another
    /// look at a channel: appends at most `max` to `ready`, each watch once. Returns how many; 0
    /// where `wait` has `None`, and if `max` is 0.
    pub fn wait_many(
        &mut self,
        timeout: Option<Duration>,
        max: usize,
        ready: &mut Vec<Ready>,
    ) -> usize {
        let before = ready.len();
        let limit = before.saturating_add(max);
        let Some(first) = (max > 0).then(|| self.wait(timeout)).flatten() else { return 0 };
        let given = if let Ready::Changed(key) = first { Some(key) } else { None };
        ready.push(first);
        while ready.len() < limit {
            let Some(done) = self.next_done() else { break };
            ready.push(done);
        }
        if ready.len() < limit && self.sleep.take_woken() {
            ready.push(Ready::Woken);
        }
        while ready.len() < limit {
            let Some(at) = self.readable.pop_front() else { break };
            ready.push(Ready::Readable(DescriptorKey(self.descriptors.key(at))));
        }
        for (key, watch) in self.watches.keyed_mut() {
            let key = WatchKey(key);
            if ready.len() < limit && given != Some(key) && watch.is_ready() {
                ready.push(Ready::Changed(key));
            }
        }
        ready.len() - before
    }

    /// The next result. Looks at no channel.
    #[inline(always)]
    fn next_done(&mut self) -> Option<Ready> {
        let mut left = self.busy.len();
        while left > 0 {
            left -= 1;
            let at = self.busy.pop_front()?;
            let member = self.channels.at(at);
            if let Some(done) = member.channel.next_done() {
                self.busy.push_back(at);
                self.results_in_a_row += 1;
                return Some(Ready::Done(ChannelKey(self.channels.key(at)), done));
            }
            member.is_busy = member.channel.in_flight() > 0;
            if member.is_busy {
                self.busy.push_back(at);
            }
        }
        None
    }

    /// What else is ready.
    fn next_other(&mut self) -> Option<Ready> {
        self.rotation = self.rotation.wrapping_add(1);
        self.results_in_a_row += 1;
        for kind in 0..3 {
            let ready = match (self.rotation + kind) % 3 {
                0 => self.sleep.take_woken().then_some(Ready::Woken),
                1 => {
                    let at = self.readable.pop_front();
                    at.map(|at| Ready::Readable(DescriptorKey(self.descriptors.key(at))))
                }
                _ => self.next_changed(),
            };
            if ready.is_some() {
                return ready;
            }
        }
        None
    }

    /// The next watch that has something, beginning with another one each time.
    fn next_changed(&mut self) -> Option<Ready> {
        let count = self.watches.iter().count();
        let first = (self.rotation / 3).checked_rem(count)?;
        [first..count, 0..first].into_iter().find_map(|part| {
            let mut part = self.watches.keyed_mut().skip(part.start).take(part.len());
            part.find_map(|(key, watch)| watch.is_ready().then_some(Ready::Changed(WatchKey(key))))
        })
    }

    /// Looks once at everything but the descriptors. True if there is something.
    #[inline(always)]
    fn poll_once(&mut self) -> bool {
        let off_queue = self.sleep.take_off_queue();
        let mut ended = 0;
        for at in &self.busy {
            ended += self.channels.at(*at).channel.poll_in_group(off_queue);
        }
        ended > 0 || self.sleep.is_woken() || self.watches.iter_mut().any(Watch::is_ready)
    }

    /// Looks at everything, also at deadlines and descriptors, which many results may have kept it
    /// from.
    #[cold]
    fn poll_all(&mut self) {
        self.results_in_a_row = 0;
        for at in &self.busy {
            self.channels.at(*at).channel.poll();
        }
        self.check_descriptors();
    }

    /// After empty polls: sleeps if every channel may. False at
    /// `until_ns`, or if nothing can come.
    #[inline(never)]
    fn rest(&mut self, until_ns: u64) -> bool {
        let now_ns = self.sleep.begin(until_ns);
        self.results_in_a_row = 0;
        for at in &self.busy {
            self.sleep.add(*at, self.channels.at(*at).channel.rest());
        }
        if now_ns.saturating_sub(self.checked_ns) >= DESCRIPTORS_NS || now_ns >= until_ns {
            self.checked_ns = now_ns;
            self.check_descriptors();
        }
        if now_ns >= until_ns {
            return false;
        }
        if !self.readable.is_empty() {
            return true;
        }
        let can_come = until_ns != u64::MAX
            || self.sleep.waits()
            || self.sleep.has_waker()
            || self.watches.iter().next().is_some()
            || self.descriptors.iter().next().is_some();
        if can_come && self.sleep.may_sleep() {
            self.sleep();
        }
        can_come
    }

    #[inline(never)]
    fn sleep(&mut self) {
        let Self { channels, watches, descriptors, readable, sleep, .. } = self;
        let channels: Vec<_> = channels.iter().collect();
        let descriptors: Vec<_> = descriptors.iter().collect();
        let mut watches: Vec<&mut W> = watches.iter_mut().collect();
        watches.iter_mut().for_each(|watch| watch.park());
        // The other side looks for the parked state after its change, this one for the change after
        // it has parked: one of them sees the other.
        if !watches.iter_mut().any(|watch| watch.is_ready()) {
            let events = watches.iter().map(|watch| watch.event());
            let channel = |at: usize| {
                let place = channels.binary_search_by_key(&at, |(at, _)| *at).ok()?;
                channels[place].1.channel.descriptor()
            };
            sleep.sleep(events, channel, &descriptors, readable);
        }
        watches.iter_mut().for_each(|watch| watch.unpark());
    }

    fn check_descriptors(&mut self) {
        if self.readable.is_empty() {
            let descriptors: Vec<_> = self.descriptors.iter().collect();
            sleep::poll_now(&descriptors, &mut self.readable);
        }
    }

    /// Notes that the channel may have got requests.
    #[inline(always)]
    fn mark_busy(&mut self, key: Key) {
        let member = self.channels.get_mut(key);
        if !std::mem::replace(&mut member.is_busy, true) {
            self.busy.push_back(key.0);
        }
    }
}

fn deadline_ns(timeout: Option<Duration>) -> u64 {
    let in_ns = |timeout: Duration| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    timeout.map_or(u64::MAX, |timeout| Clock::real().now_ns().saturating_add(in_ns(timeout)))
}
