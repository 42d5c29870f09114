//! A group for C. C names a member by what it added; the library names it by a key.

use std::collections::HashMap;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use meantime_block::{ChannelKey, DescriptorKey, GroupWaker, PollGroup, Ready, WatchKey};
use meantime_hw::EventFd;

use crate::abi::{Entry, MT_CHANGED, MT_DONE, MT_READABLE, MT_WOKEN, Outcome, Word};
use crate::channel_handle::{ChannelHandle, MtChannel};
use crate::error::{Failed, fail, hw_failed, misuse};
use crate::guard::not_open;
use crate::handle::{Handle, Held, Kind, Registry, State};
use crate::member::Member;
use crate::word::Watched;

/// The value of an `mt_group`. A thread holds the group while it uses this.
#[derive(Default)]
pub struct GroupHandle {
    members: PollGroup<Member, Watched>,
    descriptors: HashMap<DescriptorKey, Descriptor>,
    /// The words by their address.
    words: HashMap<usize, WatchKey>,
    /// Empty between calls; kept for its memory.
    ready: Vec<Ready>,
}

/// `mt_group`.
pub type MtGroup = Handle<GroupHandle>;

/// `mt_waker`.
pub type MtWaker = Handle<GroupWaker>;

/// A descriptor of the program's, of which the library's group has a duplicate.
struct Descriptor {
    fd: RawFd,
    key: u64,
}

impl Kind for GroupHandle {
    const TAG: u32 = 0x6d74_6700;
    const NAME: &'static str = "group";
    type Beside = ();

    fn registry() -> &'static Registry<Self> {
        static GROUPS: Registry<GroupHandle> = Registry::new();
        &GROUPS
    }
}

impl Kind for GroupWaker {
    const TAG: u32 = 0x6d74_7700;
    const NAME: &'static str = "waker";
    type Beside = ();

    fn registry() -> &'static Registry<Self> {
        static WAKERS: Registry<GroupWaker> = Registry::new();
        &WAKERS
    }
}

/// A channel of a group, which is held for one call on the channel.
pub(crate) struct Entered {
    channel: &'static MtChannel,
    group: Held<GroupHandle>,
}

impl Entered {
    /// Holds the group of `channel`, which is not open.
    #[inline(never)]
    pub(crate) fn new(call: &str, channel: &'static MtChannel) -> Result<Self, Failed> {
        if channel.state() != State::Grouped {
            return Err(not_open(call, channel));
        }
        let ptr = channel.beside.load(Ordering::Acquire);
        // SAFETY: NULL, or what `Member::join` has stored.
        let Some(group) = (unsafe { MtGroup::at(ptr) }) else { return Err(moving(call)) };
        let Some(group) = group.hold() else { return Err(not_open(call, ptr)) };
        // The channel may have left the group meanwhile; from now on it cannot.
        if channel.state() != State::Grouped || channel.beside.load(Ordering::Acquire) != ptr {
            return Err(moving(call));
        }
        let mut entered = Self { channel, group };
        if let Some(key) = entered.channel().member {
            // If the channel had no requests, the group looks at it from now on.
            entered.group.members.channel(key);
        }
        Ok(entered)
    }

    #[inline(always)]
    pub(crate) fn channel(&mut self) -> &mut ChannelHandle {
        // SAFETY: it is in this group, which is held as long as this exists, and no member is used
        // while the value is.
        unsafe { self.channel.grouped_mut() }
    }

    /// Takes the channel, which met a bug, out of its group.
    #[cold]
    pub(crate) fn expel(mut self) {
        self.channel.mark_broken();
        if let Some(key) = self.group.key_of(self.channel) {
            // This does not touch the channel.
            self.group.members.remove(key);
        }
    }
}

#[cold]
fn moving(call: &str) -> Failed {
    let what = "another thread is adding the channel to a group, or removing it";
    fail(libc::EBUSY, format_args!("{call}: {what}"))
}

impl GroupHandle {
    pub fn add_channel(
        &mut self,
        call: &str,
        group: &'static MtGroup,
        handle: &'static MtChannel,
        key: u64,
    ) -> Result<(), Failed> {
        let member = Member::join(call, handle, group, key)?;
        let key = self.members.add(member);
        self.members.channel(key).set_member(key);
        Ok(())
    }

    pub fn remove_channel(&mut self, call: &str, handle: &MtChannel) -> Result<(), Failed> {
        let found = self.key_of(handle);
        let key = found.ok_or_else(|| misuse(call, "the channel is not in this group"))?;
        self.members.remove(key).leave();
        Ok(())
    }

    /// Returns the channel's key without touching the channel.
    fn key_of(&self, handle: &MtChannel) -> Option<ChannelKey> {
        let mut members = self.members.channels();
        members.find(|(_, member)| std::ptr::eq(member.handle(), handle)).map(|(key, _)| key)
    }

    pub fn add_descriptor(&mut self, call: &str, fd: RawFd, key: u64) -> Result<(), Failed> {
        if fd < 0 {
            return Err(misuse(call, format_args!("there is no descriptor {fd}")));
        }
        if self.descriptors.values().any(|of| of.fd == fd) {
            return Err(misuse(call, format_args!("descriptor {fd} is in the group already")));
        }
        // SAFETY: it is not -1; the number is only handed to the kernel, which says if it is none.
        let duplicate = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
        let duplicate = duplicate.map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            fail(errno, format_args!("{call}: cannot duplicate descriptor {fd}: {error}"))
        })?;
        let at = self.members.add_descriptor(duplicate);
        self.descriptors.insert(at, Descriptor { fd, key });
        Ok(())
    }

    pub fn remove_descriptor(&mut self, call: &str, fd: RawFd) -> Result<(), Failed> {
        let found = self.descriptors.iter().find(|(_, of)| of.fd == fd).map(|(at, _)| *at);
        let what = format_args!("descriptor {fd} is not in this group");
        let at = found.ok_or_else(|| misuse(call, what))?;
        self.descriptors.remove(&at);
        drop(self.members.remove_descriptor(at));
        Ok(())
    }

    /// Returns the descriptor of the word's event.
    pub fn add_word(&mut self, call: &str, word: &Word, key: u64) -> Result<RawFd, Failed> {
        Watched::check(call, word)?;
        let address = word.value.addr();
        if self.words.contains_key(&address) {
            return Err(misuse(call, "the word is in the group already"));
        }
        let event = EventFd::new().map_err(|error| hw_failed(&error))?;
        let fd = event.as_raw_fd();
        let watched = Watched::new(word, event, key);
        let at = self.members.watch(watched).map_err(|error| hw_failed(&error))?;
        self.words.insert(address, at);
        Ok(fd)
    }

    pub fn remove_word(&mut self, call: &str, value: *const u64) -> Result<(), Failed> {
        let found = self.words.remove(&value.addr());
        let at = found.ok_or_else(|| misuse(call, "the word is not in this group"))?;
        drop(self.members.remove_watch(at));
        Ok(())
    }

    pub fn waker(&mut self) -> Result<GroupWaker, Failed> {
        self.members.waker().map_err(|error| hw_failed(&error))
    }

    /// Waits, and calls `give` for each of at most `max` ready members, with its number. Returns
    /// how many there are.
    #[inline]
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
        max: usize,
        mut give: impl FnMut(usize, Entry),
    ) -> usize {
        let mut ready = std::mem::take(&mut self.ready);
        let count = self.members.wait_many(timeout, max, &mut ready);
        for (number, ready) in ready.drain(..).enumerate() {
            give(number, self.entry(ready));
        }
        self.ready = ready;
        count
    }

    #[inline]
    fn entry(&mut self, ready: Ready) -> Entry {
        let (key, what, result) = match ready {
            Ready::Done(at, done) => {
                let member = self.members.channel(at);
                (member.key, MT_DONE, member.outcome(done))
            }
            Ready::Changed(at) => (self.members.watched(at).key, MT_CHANGED, Outcome::NONE),
            Ready::Readable(at) => (self.descriptors[&at].key, MT_READABLE, Outcome::NONE),
            Ready::Woken => (0, MT_WOKEN, Outcome::NONE),
        };
        Entry { key, what, reserved: 0, result }
    }

    /// Removes every channel.
    pub fn release_channels(&mut self) {
        let keys: Vec<_> = self.members.channels().map(|(key, _)| key).collect();
        for key in keys {
            self.members.remove(key).leave();
        }
    }
}
