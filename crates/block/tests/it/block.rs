//! The block layer as its callers see it: splitting, limits, errors, tickets, durability. On the
//! stepped SSD, which counts commands.

use meantime_block::{
    BlockChannel, BlockDevice, ChannelError, ChannelOptions, NvmeDevice, Request, SubmitError,
    Ticket,
};
use meantime_completion::Policy;
use meantime_nvme::{CommandError, Error, Op};
use meantime_ssd::{NamespaceConfig, SsdConfig};
use meantime_testkit::rig::{LOST, Rig, fill, kind, put, read_of, ssd, verify, write_of};
use meantime_testkit::{Rng, rig};

/// What splitting `blocks` blocks at `lba` must come to, counted the slow way: a new command
/// whenever the last is full or a boundary is crossed.
fn commands(lba: u64, blocks: u64, max_blocks: u64, boundary: u64) -> u64 {
    let (mut count, mut in_this) = (0, max_blocks);
    for at in lba..lba + blocks {
        if in_this == max_blocks || (boundary > 0 && at % boundary == 0) {
            count += 1;
            in_this = 0;
        }
        in_this += 1;
    }
    count
}

#[test]
fn every_small_range_is_split_and_stored_right() {
    for (lba_bytes, boundary) in [(512, 0), (512, 7), (512, 8), (512, 20), (4096, 0), (4096, 3)] {
        let config = SsdConfig {
            mdts_bytes: 8192,
            optimal_io_boundary_lbas: boundary,
            ..SsdConfig::with_namespace(1 << 20, lba_bytes)
        };
        let rig = Rig::new(config);
        let mut channel = rig.channel(4);
        let (max_blocks, block) = (u64::from(8192 / lba_bytes), lba_bytes as usize);
        let mut versions = [0; 64];
        let mut version = 0;
        for lba in 0..24 {
            for blocks in 1..=40 {
                version += 1;
                let before = rig.ssd.counters();
                put(&mut channel, lba..lba + blocks, version);
                verify(&mut channel, lba..lba + blocks, version);
                let after = rig.ssd.counters();
                let expected = commands(lba, blocks, max_blocks, u64::from(boundary));
                let what = format!("{blocks} blocks of {block} at {lba}, boundary {boundary}");
                assert_eq!(after.writes - before.writes, expected, "{what}");
                assert_eq!(after.reads - before.reads, expected, "{what}");
                assert_eq!(
                    after.written_bytes - before.written_bytes,
                    blocks * block as u64,
                    "{what}"
                );
                versions[lba as usize..(lba + blocks) as usize].fill(version);
            }
            // And nothing else was written to.
            let mut buf = vec![0; 64 * block];
            for (lba, (&version, bytes)) in
                versions.iter().zip(buf.chunks_exact_mut(block)).enumerate()
            {
                if version > 0 {
                    fill(bytes, block, lba as u64, version);
                }
            }
            let ticket = channel.submit(read_of(&channel, 0..64)).expect("room");
            assert!(
                channel.wait(ticket).buf.expect("read")[..] == buf[..],
                "boundary {boundary}, up to {lba}"
            );
        }
        assert_eq!(rig.ssd.counters().refused, 0);
    }
}

#[test]
fn requests_larger_than_the_queue_and_without_mdts() {
    for (mdts_bytes, depth) in [(8192, 1), (8192, 3), (0, 1), (1 << 20, 2)] {
        let config = SsdConfig { mdts_bytes, ..SsdConfig::with_namespace(16 << 20, 512) };
        let rig = Rig::new(SsdConfig { model: ssd("optane").model, ..config });
        let mut channel = rig.channel(depth);
        // One PRP list names 2 MiB: 5 MiB are at least three commands, and with MDTS 8 KiB more
        // than the queue has slots.
        let requests = (0..u64::from(depth)).map(|n| n * 10_240..(n + 1) * 10_240);
        let tickets: Vec<Ticket> = requests
            .clone()
            .map(|lbas| channel.submit(write_of(&channel, lbas, 5)).expect("room"))
            .collect();
        tickets.into_iter().for_each(|ticket| channel.wait(ticket).result.expect("written"));
        requests.for_each(|lbas| verify(&mut channel, lbas, 5));
        let most = if mdts_bytes == 0 { 2 << 20 } else { u64::from(mdts_bytes) };
        let each = (5u64 << 20).div_ceil(most);
        assert_eq!(rig.ssd.counters().writes, each * u64::from(depth), "MDTS {mdts_bytes}");
    }
}

#[test]
fn a_buffer_can_have_a_gibibyte_and_no_more() {
    let rig = Rig::new(ssd("null"));
    let channel = rig.channel(1);
    for bytes in [0, (1 << 30) + 1, usize::MAX] {
        let error = channel.alloc(bytes).expect_err("too large, or nothing").to_string();
        assert!(error.contains("1073741824") && error.contains(&bytes.to_string()), "{error}");
    }
}

#[test]
fn namespaces_are_apart() {
    let namespaces = [(1 << 20, 512), (2 << 20, 4096), (1 << 20, 512)]
        .map(|(bytes, lba_bytes)| NamespaceConfig { bytes, lba_bytes });
    let rig = Rig::new(SsdConfig { namespaces: namespaces.to_vec(), ..SsdConfig::default() });
    let devices = [1, 2, 3].map(|nsid| {
        NvmeDevice::new(rig.controller.clone(), nsid, format!("ns {nsid}")).expect("it is there")
    });
    let mut channels = devices
        .iter()
        .map(|device| device.channel(&ChannelOptions::default()))
        .collect::<Result<Vec<_>, _>>();
    let channels = channels.as_mut().expect("three channels");
    for (version, channel) in (1..).zip(channels.iter_mut()) {
        let blocks = channel.info().blocks;
        put(channel, 0..blocks, version);
    }
    for (version, channel) in (1..).zip(channels.iter_mut()) {
        let blocks = channel.info().blocks;
        verify(channel, 0..blocks, version);
        let error = channel
            .submit(read_of(channel, blocks - 1..blocks + 1))
            .expect_err("past the end")
            .error;
        assert!(matches!(error, SubmitError::OutOfRange { .. }));
    }
    let error = NvmeDevice::new(rig.controller.clone(), 4, String::new())
        .err()
        .expect("there are 3")
        .to_string();
    assert!(error.contains("namespace 4") && error.contains("1, 2, 3"), "{error}");
}

#[test]
fn what_cannot_be_is_refused_with_its_buffer() {
    let rig = Rig::new(ssd("null"));
    let other_rig = Rig::new(ssd("null"));
    let (mut channel, blocks) = (rig.channel(2), rig.device.info().blocks);
    let buf = |bytes: usize| channel.alloc(bytes).expect("memory");
    let mut empty = buf(512);
    empty.set_len(0);
    type Check = fn(&SubmitError) -> bool;
    let beyond: Check = |error| matches!(error, SubmitError::OutOfRange { size: 8192, .. });
    let partial: Check =
        |error| matches!(error, SubmitError::PartialBlock { block_bytes: 512, .. });
    let nothing: Check = |error| matches!(error, SubmitError::Empty);
    let buffer: Check = |error| matches!(error, SubmitError::Buffer);
    let bare = |op| Request { op, buf: None, ..Request::read(0, buf(512)) };
    let with = |request: Request| Request { buf: Some(buf(512)), ..request };
    let cases: Vec<(Request, Check)> = vec![
        (Request::read(blocks, buf(512)), beyond),
        (Request::read(blocks - 1, buf(1024)), beyond),
        (Request::write(u64::MAX, buf(512)), beyond),
        (Request::write(u64::MAX - 1, buf(4096)), beyond),
        (Request::write(0, buf((4 << 20) + 512)), beyond),
        (Request::write_zeroes(blocks, 1), beyond),
        (Request::write_zeroes(1, u64::MAX), beyond),
        (Request::write_zeroes(u64::MAX, u64::MAX), beyond),
        (Request::deallocate(u64::MAX, 1), beyond),
        (Request::deallocate(1, blocks), beyond),
        (Request::write_zeroes(0, 0), nothing),
        (Request::deallocate(blocks, 0), nothing),
        (Request::read(0, buf(511)), partial),
        (Request::write(0, buf(513)), partial),
        (Request::read(0, empty), partial),
        (bare(Op::Read), buffer),
        (bare(Op::Write), buffer),
        (with(Request::flush()), buffer),
        (with(Request::write_zeroes(0, 1)), buffer),
        (with(Request::deallocate(0, 1)), buffer),
        (Request::read(0, other_rig.channel(1).alloc(512).expect("memory")), |error| {
            matches!(error, SubmitError::ForeignBuffer)
        }),
    ];
    for policy in [None, Some(Policy::Interrupt)] {
        for (request, check) in &cases {
            let bytes = request.buf.as_ref().map(|buf| buf.len());
            let mine = |bytes: usize| {
                let mut buf = channel.alloc(bytes.max(1)).expect("memory");
                buf.set_len(bytes);
                buf
            };
            let foreign = request.buf.as_ref().is_some_and(|buf| !buf.is_of(rig.device.heap()));
            let copy =
                if foreign { other_rig.controller.heap().alloc(512).ok() } else { bytes.map(mine) };
            let what = format!("{request:?}");
            let request = Request { buf: copy, policy, ..*request };
            let rejected = channel.submit(request).expect_err(&what);
            assert!(check(&rejected.error), "{what}: {}", rejected.error);
            assert_eq!(rejected.request.buf.map(|buf| buf.len()), bytes, "{what}");
            assert_eq!(channel.in_flight(), 0);
        }
    }
    assert_eq!(rig.ssd.counters().refused, 0, "none of it reached the device");
}

#[test]
fn full_gives_the_request_back() {
    let rig = Rig::new(ssd("optane"));
    let mut channel = rig.channel(2);
    let tickets = [0, 1].map(|lba| channel.submit(read_of(&channel, lba..lba + 1)).expect("room"));
    let rejected = channel.submit(write_of(&channel, 7..9, 1).user_data(9)).expect_err("full");
    assert_eq!(rejected.error, SubmitError::Full { depth: 2 });
    let request = rejected.request;
    assert_eq!((request.lba, request.user_data), (7, 9));
    tickets.into_iter().for_each(|ticket| channel.wait(ticket).result.expect("read"));
    let ticket = channel.submit(request).expect("room now");
    channel.wait(ticket).result.expect("written");
    verify(&mut channel, 7..9, 1);
}

#[test]
fn every_depth_there_can_be() {
    depths_for(&[9, 100, 1024, 65_536]);
}

/// CAP.MQES limits I/O queues (NVMe Base 1.4 §3.1.1); what the admin queue needs is another matter.
#[test]
fn every_depth_of_tiny_queues() {
    depths_for(&[2, 3, 4, 5]);
}

fn depths_for(sizes: &[u32]) {
    for &max_queue_entries in sizes {
        let rig = Rig::new(SsdConfig { max_queue_entries, mdts_bytes: 8192, ..ssd("optane") });
        let most = (max_queue_entries - 2).clamp(1, 1_023) as u16;
        let open =
            |depth| rig.device.channel(&ChannelOptions { depth, ..ChannelOptions::default() });
        for depth in [0, most + 1, u16::MAX] {
            let error = open(depth).err().expect("not possible").to_string();
            assert!(error.contains(&format!("1 to {most}")), "{error}");
        }
        for depth in [1, most.div_ceil(2), most] {
            let mut channel = open(depth).expect("possible");
            for round in 1..4 {
                for n in 0..u64::from(depth) {
                    // Every third one is two commands.
                    let lbas = if n % 3 == 0 { n * 8..n * 8 + 17 } else { n * 8..n * 8 + 1 };
                    let lbas = lbas.start..lbas.end.min(8192);
                    channel.enqueue(read_of(&channel, lbas).user_data(n)).expect("room");
                }
                assert!(channel.submit(Request::flush()).is_err(), "depth {depth} is full");
                let mut ended: Vec<u64> = std::iter::from_fn(|| channel.wait_done())
                    .map(|done| done.result.map(|()| done.user_data).expect("read"))
                    .collect();
                ended.sort_unstable();
                assert!(ended.into_iter().eq(0..u64::from(depth)), "depth {depth}, round {round}");
            }
        }
    }
}

/// Both channels are new, and their first tickets look alike.
#[test]
#[should_panic(expected = "another channel")]
fn a_ticket_of_another_channel_panics() {
    let rig = Rig::new(ssd("optane"));
    let (mut channel, mut other) = (rig.channel(1), rig.channel(1));
    let mine = channel.submit(read_of(&channel, 0..1)).expect("room");
    let other_one = other.submit(read_of(&other, 1..2)).expect("room");
    let done = channel.wait(other_one);
    // Not reached: it would be the result of the wrong request.
    drop((done, mine));
}

#[test]
#[should_panic(expected = "another channel")]
fn a_ticket_of_another_channel_panics_after_some_use() {
    let rig = Rig::new(ssd("null"));
    let (mut channel, mut other) = (rig.channel(1), rig.channel(1));
    put(&mut channel, 0..1, 1);
    let ticket = other.submit(read_of(&other, 0..1)).expect("room");
    let _ = channel.wait(ticket);
}

#[test]
fn detached_requests_are_done_and_forgotten() {
    let rig = Rig::new(ssd("optane"));
    let before = rig.device.heap().allocated_bytes();
    let mut channel = rig.channel(2);
    let lent = rig.device.heap().allocated_bytes();
    for n in 1..10 {
        let early = channel.submit(write_of(&channel, 0..1, n)).expect("room");
        channel.detach(early);
        let ended = channel.submit(write_of(&channel, 1..2, n)).expect("room");
        let mut polls = 0;
        while channel.in_flight() > 0 {
            polls += channel.poll();
        }
        assert_eq!(polls, 2);
        channel.detach(ended);
        assert_eq!(rig.device.heap().allocated_bytes(), lent, "the buffers went back");
        assert!(channel.next_done().is_none());
        verify(&mut channel, 0..1, n);
        verify(&mut channel, 1..2, n);
    }
    drop(channel);
    assert_eq!(rig.device.heap().allocated_bytes(), before);
}

#[test]
fn dropping_a_channel_in_mid_flight_leaks_nothing() {
    let rig = Rig::new(SsdConfig { mdts_bytes: 8192, ..ssd("optane") });
    let before = rig.device.heap().allocated_bytes();
    let mut rng = Rng::new(7);
    for round in 0..50 {
        let mut channel = rig.channel(8);
        if round % 3 == 0 {
            channel.plug();
        }
        for n in 0..8 {
            let blocks = 1 + rng.below(1_000);
            let policy = if rng.one_in(3) { Policy::Interrupt } else { Policy::Poll };
            let request = write_of(&channel, n..n + blocks, n).policy(policy);
            if rng.one_in(2) {
                let ticket = channel.submit(request).expect("room");
                channel.detach(ticket);
            } else {
                channel.enqueue(request).expect("room");
            }
        }
        if round % 2 == 0 {
            channel.poll();
        }
        drop(channel);
        assert_eq!(rig.device.heap().allocated_bytes(), before, "round {round}");
    }
    assert_eq!(rig.device.heap().quarantined_bytes(), 0);
    assert_eq!(rig.ssd.counters().refused + rig.ssd.counters().bad_doorbells, 0);
}

#[test]
fn queues_and_vectors_run_out_and_come_back() {
    let rig = Rig::new(SsdConfig { max_io_queues: 4, vectors: 2, ..ssd("null") });
    let open = |interrupt| {
        let options =
            ChannelOptions { depth: 1, interrupt: Some(interrupt), ..ChannelOptions::default() };
        rig.device.channel(&options)
    };
    for _ in 0..3 {
        let with_vector = open(true).expect("one vector beside the admin queue's");
        let error = open(true).err().expect("no second");
        assert!(matches!(error, ChannelError::Nvme(Error::NoVector { vectors: 2 })), "{error}");
        let others = [open(false).expect("a third queue"), open(false).expect("a fourth")];
        let error = open(false).err().expect("no fifth");
        assert!(matches!(error, ChannelError::Nvme(Error::NoQueue { limit: 4 })), "{error}");
        assert!(error.to_string().contains("fewer threads"));
        drop((with_vector, others));
    }
    let options = ChannelOptions {
        policy: Some(Policy::Interrupt),
        interrupt: Some(false),
        ..Default::default()
    };
    assert!(rig.device.channel(&options).is_err(), "asked for contradictory things");
    open(true).expect("what failed has left nothing behind");
}

#[test]
fn a_thousand_channels_one_after_the_other() {
    let rig = Rig::new(SsdConfig { max_io_queues: 4, vectors: 3, ..ssd("null") });
    let before = rig.device.heap().allocated_bytes();
    for n in 0..1_000 {
        let mut channel = rig.channel(1 + (n % 40) as u16);
        put(&mut channel, n..n + 1, n + 1);
    }
    assert_eq!(rig.device.heap().allocated_bytes(), before);
    verify(&mut rig.channel(1), 999..1_000, 1_000);
}

#[test]
fn interrupt_without_a_vector_is_an_error() {
    let rig = Rig::new(ssd("null"));
    let options = ChannelOptions { policy: Some(Policy::Poll), ..ChannelOptions::default() };
    let mut channel = rig.device.channel(&options).expect("a channel");
    let rejected =
        channel.submit(read_of(&channel, 0..1).policy(Policy::Interrupt)).expect_err("no vector");
    assert_eq!(rejected.error, SubmitError::NoInterrupt);
    assert!(rejected.error.to_string().contains("polled policy") && rejected.request.buf.is_some());
    assert_eq!(channel.set_policy(Policy::Interrupt), Err(SubmitError::NoInterrupt));
    assert_eq!(channel.policy(), Policy::Poll);
    verify(&mut channel, 0..1, 0);
}

#[test]
fn a_power_cut_takes_only_what_was_not_flushed() {
    let mut lost = 0;
    for seed in 0..20 {
        let rig = Rig::new(SsdConfig { volatile_write_cache: true, ..ssd("optane") });
        assert!(rig.device.info().volatile_write_cache);
        let mut channel = rig.channel(8);
        let mut done = |request: Request| {
            let ticket = channel.submit(request).expect("room");
            channel.wait(ticket).result.expect("done");
        };
        let of = |lbas, version| write_of(&rig.channel(1), lbas, version);
        done(of(0..64, 1));
        done(Request::write_zeroes(0, 8));
        done(Request::flush());
        // All of these may be lost, or not, but for what is forced.
        done(of(0..64, 2));
        done(of(8..16, 3).fua());
        done(Request::write_zeroes(16, 8).fua());
        done(Request::deallocate(24, 8));
        lost += rig.ssd.power_cut(&mut meantime_ssd::Rng::new(seed));
        rig.controller.reset_now();
        let mut channel = rig.channel(8);
        verify(&mut channel, 8..16, 3);
        verify(&mut channel, 16..24, 0);
        for lba in 0..64 {
            let ticket = channel.submit(read_of(&channel, lba..lba + 1)).expect("room");
            let found = channel.wait(ticket).buf.expect("read");
            let old = match lba {
                0..8 => &[0, 2][..],
                8..16 => &[3],
                16..24 => &[0],
                24..32 => &[0, 1, 2],
                _ => &[1, 2],
            };
            let is = |version: u64| {
                let mut block = [0; 512];
                if version > 0 {
                    fill(&mut block, 512, lba, version);
                }
                found[..] == block[..]
            };
            assert!(
                old.iter().any(|&version| is(version)),
                "seed {seed}: block {lba} is none of {old:?}"
            );
        }
    }
    assert!(lost > 100, "the cut did take something: {lost}");
}

#[test]
fn errors_of_requests_that_timed_out_name_them() {
    let rig = Rig::once(ssd("optane"));
    let mut channel = rig.channel(1);
    let request = write_of(&channel, 5..6, 1);
    let ticket = rig.submit_with_faults(LOST, &mut channel, request);
    let done = channel.wait(ticket);
    assert_eq!(kind(&done), CommandError::TimedOut);
    let text = done.result.expect_err("lost").to_string();
    assert!(text.contains("write at LBA 5") && text.contains("did not answer in time"), "{text}");
    rig::verify(&mut channel, 6..7, 0);
}

/// The result of a detached write is never reported, so it must be carried out: commands still to
/// be sent when the channel ends are sent.
#[test]
fn a_detached_write_of_many_commands_is_done_when_the_channel_ends() {
    const BYTES: usize = 8 << 20;
    let device =
        meantime_block::open_nvme("mem:16M?mdts=8k", &meantime_block::OpenOptions::default())
            .expect("an SSD");
    for (policy, mark) in [(Policy::Poll, 7), (Policy::Interrupt, 9)] {
        let options =
            ChannelOptions { depth: 4, policy: Some(policy), ..ChannelOptions::default() };
        let mut channel = device.channel(&options).expect("a channel");
        for half in 0..2 {
            let mut buf = channel.alloc(BYTES).expect("memory");
            buf.fill(mark + half as u8);
            let ticket =
                channel.submit(Request::write(half * (BYTES as u64 / 512), buf)).expect("room");
            channel.detach(ticket);
        }
        drop(channel);
        let mut channel = device.channel(&options).expect("a channel");
        for half in 0..2 {
            let buf = channel.alloc(BYTES).expect("memory");
            let buf = channel.read(half * (BYTES as u64 / 512), buf).expect("read");
            assert!(buf.iter().all(|byte| *byte == mark + half as u8), "{policy}, half {half}");
        }
    }
    assert_eq!(device.heap().quarantined_bytes(), 0);
}

/// A `?` between `submit` and `wait` drops tickets: their slots and buffers come back when they are
/// needed, and another channel's tickets are not taken for them.
#[test]
fn slots_of_dropped_tickets_come_back() {
    let rig = Rig::new(ssd("optane"));
    let mut channels = [rig.channel(2), rig.channel(2)];
    let before = rig.device.heap().allocated_bytes();
    for round in 0..50 {
        for channel in &mut channels {
            drop(channel.submit(read_of(channel, 0..1)).expect("room"));
        }
        let [kept, other] = &mut channels;
        let ticket = kept.submit(read_of(kept, 1..2)).expect("room");
        for _ in 0..3 {
            drop(other.submit(read_of(other, 0..1)).expect("the slot of a dropped ticket"));
        }
        // All slots of this one are in use by then, one of them by a ticket that is there.
        let more = kept.submit(read_of(kept, 2..3)).expect("the slot of a dropped ticket");
        let full = kept.submit(read_of(kept, 3..4)).expect_err("no ticket was dropped");
        assert!(matches!(full.error, SubmitError::Full { .. }), "{round}: {}", full.error);
        for ticket in [ticket, more] {
            kept.wait(ticket).result.expect("read");
        }
    }
    drop(channels);
    assert!(rig.device.heap().allocated_bytes() <= before);
}

/// Without a need for its slot, too: a dropped ticket's buffer goes back to the heap while other
/// I/O goes on.
#[test]
fn buffers_of_dropped_tickets_come_back_when_their_requests_have_ended() {
    let rig = Rig::new(ssd("optane"));
    let mut channel = rig.channel(8);
    let heap = rig.device.heap();
    let mut buf = channel.alloc(4096).expect("memory");
    let before = heap.allocated_bytes();
    for policy in [Policy::Poll, Policy::Interrupt] {
        channel.set_policy(policy).expect("a queue with an interrupt");
        for _ in 0..3 {
            drop(channel.submit(read_of(&channel, 0..1)).expect("room"));
        }
        assert!(heap.allocated_bytes() > before);
        for _ in 0..20_000 {
            buf = channel.read(8, buf).expect("read");
        }
        assert_eq!(heap.allocated_bytes(), before, "{policy}");
        assert_eq!(channel.in_flight(), 0, "{policy}");
    }
    drop(channel.submit(read_of(&channel, 0..1)).expect("room"));
    for _ in 0..20_000 {
        channel.poll();
    }
    assert_eq!(heap.allocated_bytes(), before, "by an event loop that only polls");
}
