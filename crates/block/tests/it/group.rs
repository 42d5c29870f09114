//! Poll groups: one thread that waits on many channels, watches, descriptors and other threads.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use meantime_block::{
    BlockChannel, BlockDevice, Channel, ChannelKey, ChannelOptions, OpenOptions, PollGroup, Ready,
    Request, Watch, open,
};
use meantime_completion::Policy;
use meantime_hw::EventFd;
use meantime_hw::clock::thread_cpu_ns;
use meantime_testkit::rig::{LOST, Rig, read_of, ssd};

const POLICIES: [&str; 7] =
    ["poll", "interrupt", "adaptive", "hybrid=5us", "hybrid", "adaptive:cpu=30", "pas"];

fn channel(uri: &str, policy: &str, depth: u16) -> Channel {
    meantime_baselines::register().expect("no other rules");
    let policy: Policy = policy.parse().expect("a policy");
    let device = open(uri, &OpenOptions::default()).expect("it opens");
    let options = ChannelOptions { depth, policy: Some(policy), ..ChannelOptions::default() };
    device.channel(&options).expect("a channel")
}

/// Sends a read of the block `lba`, whose number is in its data.
fn send(group: &mut PollGroup<Channel, impl Watch>, key: ChannelKey, lba: u64) {
    let channel = group.channel(key);
    let buf = channel.alloc(512).expect("memory");
    channel.enqueue(Request::read(lba, buf).user_data(lba)).expect("room");
}

fn number(channel: &mut Channel, blocks: u64) {
    let mut buf = channel.alloc(512).expect("memory");
    for lba in 0..blocks {
        buf[..8].copy_from_slice(&lba.to_le_bytes());
        buf = channel.write(lba, buf).expect("written");
    }
}

#[test]
#[should_panic(expected = "the key is of another group")]
fn a_key_of_another_group_is_noticed() {
    let [mut one, mut other] = [(); 2].map(|()| PollGroup::new());
    let [_, key] = [&mut one, &mut other].map(|group| group.add(channel("mem:16M", "poll", 1)));
    one.channel(key);
}

#[test]
fn each_channel_is_waited_for_by_its_own_policy() {
    const READS: u64 = 600;
    let mut group = PollGroup::new();
    let keys: Vec<_> = POLICIES
        .iter()
        .zip(["mem:16M?model=optane", "mem:16M?model=nand", "mem:16M"].iter().cycle())
        .map(|(policy, uri)| {
            let mut channel = channel(uri, policy, 4);
            number(&mut channel, 64);
            group.add(channel)
        })
        .collect();
    for key in &keys {
        (0..4).for_each(|lba| send(&mut group, *key, lba));
    }
    let mut ended = vec![0; keys.len()];
    while let Some(ready) = group.wait(None) {
        let Ready::Done(key, done) = ready else { panic!("{ready:?}") };
        done.result.expect("read");
        let buf = done.buf.expect("the buffer");
        assert_eq!(buf[..8], done.user_data.to_le_bytes());
        let at = keys.iter().position(|other| *other == key).expect("a channel of ours");
        ended[at] += 1;
        if ended[at] <= READS - 4 {
            send(&mut group, key, (done.user_data + 7) % 64);
        }
    }
    assert_eq!(ended, vec![READS; keys.len()]);
    for (key, policy) in keys.into_iter().zip(POLICIES) {
        let channel = group.remove(key);
        assert_eq!((channel.policy().to_string().as_str(), channel.in_flight()), (policy, 0));
        let waits = channel.counters().polled_waits;
        if policy == "hybrid=5us" {
            assert!(waits.sleeps > 0, "{waits:?}");
        }
    }
}

#[test]
fn it_says_when_nothing_can_come_and_keeps_to_its_timeout() {
    let mut group: PollGroup<Channel> = PollGroup::new();
    assert!(group.wait(None).is_none());
    let key = group.add(channel("mem:16M", "poll", 4));
    assert!(group.wait(None).is_none());
    // A request with a ticket is not the group's.
    let channel = group.channel(key);
    let buf = channel.alloc(512).expect("memory");
    let ticket = channel.submit(Request::read(0, buf)).expect("room");
    assert!(group.wait(None).is_none());
    group.channel(key).wait(ticket).result.expect("read");
    let waker = group.waker().expect("a descriptor");
    let start = Instant::now();
    assert!(group.wait(Some(Duration::from_millis(30))).is_none());
    assert!(start.elapsed() >= Duration::from_millis(30));
    waker.wake();
    waker.wake();
    assert!(matches!(group.wait(None), Some(Ready::Woken)));
    assert!(group.wait(Some(Duration::ZERO)).is_none());
}

/// Many idle channels, and a sleeping one: the thread is not charged for waiting.
#[test]
fn nothing_in_flight_costs_nothing() {
    let mut group = PollGroup::new();
    for policy in POLICIES.iter().cycle().take(16) {
        let mut channel = channel("mem:4M", policy, 4);
        number(&mut channel, 8);
        group.add(channel);
    }
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(1 << 20).expect("a sparse file");
    group.add(channel(&format!("kernel:{}", file.path().display()), "interrupt", 4));
    let _waker = group.waker().expect("a descriptor");
    let before_ns = thread_cpu_ns();
    assert!(group.wait(Some(Duration::from_millis(300))).is_none());
    let used_ns = thread_cpu_ns() - before_ns;
    assert!(used_ns < 15_000_000, "{used_ns} of 300 ms");
}

#[test]
fn others_wake_it_whatever_it_is_doing() {
    for policy in ["poll", "adaptive", "interrupt"] {
        let mut group = PollGroup::new();
        let key = group.add(channel("mem:16M?model=nand", policy, 4));
        let waker = group.waker().expect("a descriptor");
        let (asked, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let other = {
            let (asked, ended) = (Arc::clone(&asked), Arc::clone(&ended));
            std::thread::spawn(move || {
                for n in 1..=300 {
                    asked.store(n, Ordering::Relaxed);
                    waker.wake();
                    while asked.load(Ordering::Relaxed) == n {
                        std::thread::yield_now();
                    }
                }
                ended.store(true, Ordering::Relaxed);
                waker.wake();
            })
        };
        // With something in flight all the time, and without.
        let mut reads = 100;
        send(&mut group, key, 0);
        while !ended.load(Ordering::Relaxed) {
            match group.wait(Some(Duration::from_secs(60))).expect("no wake-up was lost") {
                Ready::Woken => asked.store(0, Ordering::Relaxed),
                Ready::Done(key, done) => {
                    done.result.expect("read");
                    if reads > 0 {
                        reads -= 1;
                        send(&mut group, key, reads);
                    }
                }
                ready => panic!("{ready:?}"),
            }
        }
        other.join().expect("it ends");
    }
}

/// A counter in memory, and whether its reader is parked.
struct Counter {
    word: AtomicU64,
    parked: AtomicBool,
    event: EventFd,
}

struct Reader {
    counter: Arc<Counter>,
    taken: u64,
}

impl Watch for Reader {
    fn is_ready(&mut self) -> bool {
        self.counter.word.load(Ordering::SeqCst) != self.taken
    }

    fn park(&mut self) {
        self.counter.parked.store(true, Ordering::SeqCst);
    }

    fn unpark(&mut self) {
        self.counter.parked.store(false, Ordering::SeqCst);
    }

    fn event(&self) -> &EventFd {
        &self.counter.event
    }
}

#[test]
fn no_change_of_watched_memory_is_missed() {
    const CHANGES: u64 = 2_000;
    let counter = Arc::new(Counter {
        word: AtomicU64::new(0),
        parked: AtomicBool::new(false),
        event: EventFd::new().expect("a descriptor"),
    });
    let mut group: PollGroup<Channel, Reader> = PollGroup::default();
    let reader = Reader { counter: Arc::clone(&counter), taken: 0 };
    let key = group.watch(reader).expect("it has a descriptor");
    let seen = Arc::new(AtomicU64::new(0));
    let writer = {
        let seen = Arc::clone(&seen);
        std::thread::spawn(move || {
            for n in 1..=CHANGES {
                counter.word.store(n, Ordering::SeqCst);
                if counter.parked.load(Ordering::SeqCst) {
                    counter.event.signal();
                }
                while seen.load(Ordering::Relaxed) != n {
                    std::thread::yield_now();
                }
            }
        })
    };
    for n in 1..=CHANGES {
        let ready = group.wait(Some(Duration::from_secs(60))).expect("no change was missed");
        assert!(matches!(ready, Ready::Changed(changed) if changed == key));
        let reader = group.watched(key);
        reader.taken = reader.counter.word.load(Ordering::SeqCst);
        assert_eq!(reader.taken, n);
        seen.store(n, Ordering::Relaxed);
    }
    writer.join().expect("it ends");
    group.remove_watch(key);
    assert!(group.wait(None).is_none());
}

#[test]
fn a_busy_channel_starves_neither_another_nor_a_descriptor() {
    let mut group = PollGroup::new();
    let keys = [(); 2].map(|()| group.add(channel("mem:16M", "poll", 64)));
    for key in keys {
        (0..64).for_each(|lba| send(&mut group, key, lba));
    }
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let pipe = group.add_descriptor(OwnedFd::from(reader));
    // It is never read, so it stays readable.
    writer.write_all(b"x").expect("written");
    let (mut ended, mut readable) = ([0u32; 2], 0);
    // How many of each depends on how much of a CPU the SSDs' threads get.
    let until = Instant::now() + Duration::from_secs(60);
    while ended.iter().any(|count| *count < 2_000) || readable < 10 {
        assert!(Instant::now() < until, "{ended:?}, {readable}");
        match group.wait(None).expect("requests are in flight") {
            Ready::Done(key, done) => {
                ended[usize::from(key == keys[1])] += 1;
                send(&mut group, key, done.user_data);
            }
            Ready::Readable(key) => {
                assert_eq!(key, pipe);
                readable += 1;
            }
            ready => panic!("{ready:?}"),
        }
    }
    group.remove_descriptor(pipe);
}

#[test]
fn a_descriptor_ends_a_sleep() {
    let mut group: PollGroup<Channel> = PollGroup::new();
    let key = group.add(channel("mem:16M?model=nand", "interrupt", 4));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let pipe = group.add_descriptor(OwnedFd::from(reader));
    let closer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        drop(writer);
    });
    send(&mut group, key, 0);
    assert!(matches!(group.wait(None), Some(Ready::Done(..))));
    let ready = group.wait(Some(Duration::from_secs(60))).expect("the other end was closed");
    assert!(matches!(ready, Ready::Readable(readable) if readable == pipe));
    closer.join().expect("it ends");
}

#[test]
fn deadlines_hold_in_a_group() {
    let rig = Rig::once(ssd("optane"));
    let mut group = PollGroup::new();
    let key = group.add(rig.channel(4));
    rig.ssd.set_faults(LOST);
    let channel = group.channel(key);
    channel.enqueue(read_of(channel, 0..1)).expect("room");
    let Some(Ready::Done(_, done)) = group.wait(None) else { panic!("it ends") };
    done.result.expect_err("the command is lost");
    assert!(group.wait(None).is_none());
}

#[test]
fn kernel_files_and_our_own_devices_in_one_group() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(1 << 20).expect("a sparse file");
    let uri = format!("kernel:{}", file.path().display());
    let mut group = PollGroup::new();
    let mut keys = Vec::new();
    for (uri, policy) in [(uri.as_str(), "interrupt"), ("mem:16M?model=optane", "interrupt")] {
        keys.push(group.add(channel(uri, policy, 4)));
    }
    let mut ended = [0; 2];
    keys.iter().for_each(|key| send(&mut group, *key, 0));
    while let Some(Ready::Done(key, done)) = group.wait(None) {
        done.result.expect("read");
        let at = usize::from(key == keys[1]);
        ended[at] += 1;
        if ended[at] < 300 {
            send(&mut group, key, ended[at] % 8);
        }
    }
    assert_eq!(ended, [300, 300]);
}

/// A command that is lost beside a channel that is never idle.
#[test]
fn a_busy_channel_does_not_keep_another_from_its_deadlines() {
    let rig = Rig::once(ssd("optane"));
    let mut group = PollGroup::new();
    let [lost, busy] = [(); 2].map(|()| group.add(rig.channel(4)));
    rig.ssd.set_faults(LOST);
    let channel = group.channel(lost);
    channel.enqueue(read_of(channel, 0..1)).expect("room");
    rig.ssd.run_until_idle();
    rig.ssd.set_faults(meantime_ssd::FaultPlan::NONE);
    for lba in 0..4 {
        let channel = group.channel(busy);
        channel.enqueue(read_of(channel, lba..lba + 1)).expect("room");
    }
    let mut reads = 0;
    loop {
        let Some(Ready::Done(key, done)) = group.wait(None) else {
            panic!("requests are in flight")
        };
        if key == lost {
            done.result.expect_err("the command is lost");
            break;
        }
        reads += 1;
        assert!(reads < 1_000_000, "the deadline was not noticed");
        let channel = group.channel(busy);
        channel.enqueue(read_of(channel, 0..1)).expect("room");
    }
}

/// The group reaps completions although a watch stays changed.
#[test]
fn a_watch_that_stays_changed_starves_no_channel() {
    let counter = Arc::new(Counter {
        word: AtomicU64::new(1),
        parked: AtomicBool::new(false),
        event: EventFd::new().expect("a descriptor"),
    });
    let mut group: PollGroup<Channel, Reader> = PollGroup::default();
    for _ in 0..2 {
        group.watch(Reader { counter: Arc::clone(&counter), taken: 0 }).expect("a descriptor");
    }
    let key = group.add(channel("mem:16M?model=optane", "poll", 4));
    send(&mut group, key, 0);
    let (mut ended, mut changed) = (0, std::collections::HashSet::new());
    while ended < 100 {
        match group.wait(None).expect("there is something") {
            Ready::Done(key, done) => {
                done.result.expect("read");
                ended += 1;
                send(&mut group, key, ended);
            }
            Ready::Changed(key) => drop(changed.insert(key)),
            ready => panic!("{ready:?}"),
        }
    }
    assert_eq!(changed.len(), 2);
}

/// Everything that is there is taken at once, each watch once, and no more than there is room for.
#[test]
fn many_things_are_taken_at_once() {
    let mut group: PollGroup<Channel, Reader> = PollGroup::default();
    let watches = [(); 3].map(|()| {
        let counter = Arc::new(Counter {
            word: AtomicU64::new(1),
            parked: AtomicBool::new(false),
            event: EventFd::new().expect("a descriptor"),
        });
        group.watch(Reader { counter, taken: 0 }).expect("a descriptor")
    });
    let waker = group.waker().expect("a descriptor");
    let key = group.add(channel("mem:16M", "poll", 8));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    group.add_descriptor(OwnedFd::from(reader));
    drop(writer);
    let mut ready = Vec::new();
    assert_eq!(group.wait_many(Some(Duration::ZERO), 0, &mut ready), 0);
    (0..8).for_each(|lba| send(&mut group, key, lba));
    while group.channel(key).in_flight() > 0 {
        group.channel(key).poll();
    }
    let count = |ready: &[Ready], of: fn(&Ready) -> bool| ready.iter().filter(|at| of(at)).count();
    let is_done: fn(&Ready) -> bool = |ready| matches!(ready, Ready::Done(..));
    // There is no room for more than results; then for some of the rest.
    assert_eq!(group.wait_many(None, 5, &mut ready), 5);
    assert_eq!(count(&ready, is_done), 5);
    assert_eq!(group.wait_many(None, 5, &mut ready), 5);
    assert_eq!((ready.len(), count(&ready, is_done)), (10, 8));
    // Nothing is left but what stays ready, and what is new.
    waker.wake();
    let (mut woken, mut readable) = (0, 0);
    for _ in 0..1_000 {
        ready.clear();
        let given = group.wait_many(None, 100, &mut ready);
        assert!(given == ready.len() && given <= 5 && count(&ready, is_done) == 0, "{ready:?}");
        for watch in watches {
            let is_it = |ready: &&Ready| matches!(ready, Ready::Changed(key) if *key == watch);
            assert_eq!(ready.iter().filter(is_it).count(), 1, "{ready:?}");
        }
        woken += count(&ready, |ready| matches!(ready, Ready::Woken));
        readable += count(&ready, |ready| matches!(ready, Ready::Readable(_)));
    }
    assert!(woken == 1 && readable > 10, "{woken} {readable}");
    for watch in watches {
        group.remove_watch(watch);
    }
    drop(waker);
    group.remove(key);
}

/// More results than may be given in a row do not keep the rest away, however much room there is.
#[test]
fn results_at_once_starve_nothing() {
    let mut group: PollGroup<Channel> = PollGroup::new();
    let key = group.add(channel("mem:16M", "poll", 64));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    group.add_descriptor(OwnedFd::from(reader));
    drop(writer);
    (0..64).for_each(|lba| send(&mut group, key, lba));
    let (mut results, mut readable, mut ready) = (0, 0, Vec::new());
    while readable < 10 {
        while group.channel(key).in_flight() > 0 {
            group.channel(key).poll();
        }
        assert!(group.wait_many(None, 1_000, &mut ready) <= 66, "{ready:?}");
        for ready in ready.drain(..) {
            match ready {
                Ready::Done(_, done) => {
                    done.result.expect("read");
                    results += 1;
                    send(&mut group, key, done.user_data);
                }
                Ready::Readable(_) => readable += 1,
                ready => panic!("{ready:?}"),
            }
        }
        assert!(results < 2_000, "{readable}");
    }
}

/// An I/O far beyond the spin budget is napped for, also in a group.
#[test]
fn a_late_completion_does_not_cost_a_cpu() {
    let rig_uri = "mem:16M?model=nand";
    let device = meantime_block::open_nvme(rig_uri, &OpenOptions::default()).expect("it opens");
    let options =
        ChannelOptions { depth: 4, policy: Some(Policy::Poll), ..ChannelOptions::default() };
    let mut channel = device.channel(&options).expect("a channel");
    channel.set_spin_budget_ns(10_000);
    let mut group: PollGroup<_> = PollGroup::new();
    let key = group.add(channel);
    for n in 0..300u64 {
        let channel = group.channel(key);
        let buf = channel.alloc(512).expect("memory");
        channel.enqueue(Request::read(n % 64, buf)).expect("room");
        let Some(Ready::Done(_, done)) = group.wait(None) else { panic!("it ends") };
        done.result.expect("read");
    }
    let waits = group.remove(key).counters().polled_waits;
    assert!(waits.fallbacks > 250 && waits.sleeps > 250, "{waits:?}");
}

/// A key of a member that was removed does not name the next one in its place.
#[test]
#[should_panic(expected = "it was removed")]
fn an_old_key_names_nothing() {
    let mut group = PollGroup::new();
    let key = group.add(channel("mem:16M", "poll", 4));
    let channel = group.remove(key);
    group.add(channel);
    group.channel(key);
}
