//! The SSD served over vfio-user, to a client written by hand.

use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use meantime_ssd::served::Event;
use meantime_ssd::{Model, SsdConfig};
use meantime_testkit::by_hand::*;
use meantime_testkit::served::Rig;
use meantime_testkit::wire;

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn it_says_what_it_is() {
    let rig = Rig::plain();
    let mut client = Client::connect(&rig.path());
    // SPDK's host does the same: it sends no JSON at all.
    let answer = client.introduce("");
    assert_eq!(answer.body[..4], [0, 0, 1, 0]);
    let json = std::str::from_utf8(&answer.body[4..]).unwrap().strip_suffix('\0').unwrap();
    for limit in [
        r#""max_msg_fds":16"#,
        r#""max_data_xfer_size":1048576"#,
        r#""max_dma_maps":1024"#,
        r#""pgsizes":4096"#,
        r#""write_multiple":false"#,
    ] {
        assert!(json.starts_with(r#"{"capabilities":{"#) && json.contains(limit), "{json}");
    }
    // QEMU warns of what it does not know.
    assert!(!json.contains("meantime_parking"), "{json}");
    assert_eq!(
        client.ok(GET_INFO, &wire![16u32, 0u32, 0u32, 0u32], &[]),
        wire![16u32, 3u32, 9u32, 5u32]
    );

    // BAR0: 4 KiB of registers, 5 pages of doorbells, one file in which they begin where they do in
    // BAR0.
    let asked = wire![32u32, 0u32, 0u32, 0u32, 0u64, 0u64];
    let answer = client.ask(GET_REGION_INFO, &asked, &[]);
    assert_eq!(answer.body, wire![64u32, 0xfu32, 0u32, 32u32, 0x8000u64, 0u64]);
    assert!(answer.fds.is_empty(), "no descriptor where there is no room to describe it");
    // SPDK's host does the same: it sends all the room that it has.
    let mut asked = wire![4064u32, 0u32, 0u32, 0u32, 0u64, 0u64];
    asked.resize(4064, 0);
    let answer = client.ask(GET_REGION_INFO, &asked, &[]);
    let mut expected = wire![64u32, 0xfu32, 0u32, 32u32, 0x8000u64, 0u64];
    expected.extend(wire![1u16, 1u16, 0u32, 1u32, 0u32, 0x1000u64, 0x5000u64]);
    assert_eq!(answer.body, expected);
    assert_eq!(rustix::fs::fstat(&answer.fds[0]).unwrap().st_size, 0x6000);
    for (index, flags, size) in
        [(1u32, 0u32, 0u64), (4, 3, 0x2000), (6, 0, 0), (7, 3, 0x1000), (8, 0, 0)]
    {
        let body = client.ok(GET_REGION_INFO, &wire![4064u32, 0u32, index, 0u32, 0u64, 0u64], &[]);
        assert_eq!(body, wire![32u32, flags, index, 0u32, size, 0u64]);
    }
    for (index, flags, count) in [(0u32, 0u32, 0u32), (1, 0, 0), (2, 1, 65), (3, 0, 0), (4, 0, 0)] {
        let body = client.ok(GET_IRQ_INFO, &wire![16u32, 0u32, index, 0u32], &[]);
        assert_eq!(body, wire![16u32, flags, index, count]);
    }
    // Configuration space: as a whole, as QEMU reads it, and bytewise.
    let config = client.read(7, 0, 4096);
    assert_eq!((config[0x0b], config[0x0a], config[0x09]), (1, 8, 2));
    assert_eq!(client.read(7, 0x0b, 1), [1]);
    // Bus mastering on and INTx off, as SPDK's host does.
    client.write(7, 4, &[0x04, 0x04]);
    assert_eq!(client.read(7, 4, 2), [0x04, 0x04]);
    // CAP: 1,024 entries, contiguous queues, doorbells 128 bytes apart, the NVM command set. VS:
    // 1.4.
    let cap = u64_at(&client.read(0, 0, 8), 0);
    assert_eq!((cap & 0x1_ffff, cap >> 32 & 0xf, cap >> 37 & 1), (0x1_03ff, 5, 1), "{cap:#x}");
    assert_eq!(client.read(0, 8, 4), [0, 4, 1, 0]);
    // The MSI-X table: every vector masked; written and read back.
    assert_eq!(client.read(4, 64 * 16 + 12, 4), [1, 0, 0, 0]);
    client.write(4, 0, &[9, 8, 7, 6, 5, 4, 3, 2]);
    assert_eq!(client.read(4, 4, 4), [5, 4, 3, 2]);
    assert_eq!(client.read(4, 0x1000, 8), [0; 8]);
    client.ok(RESET, &[], &[]);
    assert_eq!((client.read(4, 0, 4), client.read(7, 4, 2)), (vec![0; 4], vec![0; 2]));
}

#[test]
fn it_is_a_controller() {
    let rig = Rig::plain();
    let mut host = Host::new(rig.client());
    host.enable();
    assert!(host.identify()[24..64].starts_with(b"Meantime software SSD "));
    let events: Vec<_> = (0..3)
        .map(|_| rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap())
        .collect();
    let fds: Vec<_> = events.iter().map(|event| event.as_fd()).collect();
    // Vectors 1 to 3 of MSI-X.
    host.client.ok(SET_IRQS, &wire![20u32, 0x24u32, 2u32, 1u32, 3u32], &fds);
    host.create_queues(Some(2));
    for lba in 0..64u64 {
        host.memory.put(DATA, &[lba as u8 + 1; 512]);
        let write = host.transfer(1, lba, IOVA + DATA as u64);
        assert_eq!(host.run(1, write), 0);
    }
    let mut count = [0; 8];
    rustix::io::read(&events[1], &mut count).unwrap();
    assert!((1..=64).contains(&u64::from_le_bytes(count)));
    for lba in 0..64u64 {
        let read = host.transfer(2, lba, IOVA + DATA as u64 + 4096);
        assert_eq!(host.run(1, read), 0);
        assert_eq!(host.memory.get(DATA + 4096, 512), [lba as u8 + 1; 512]);
    }
    // One read is beyond the namespace, one is to memory that is not mapped.
    let beyond = host.transfer(2, 2048, IOVA + DATA as u64);
    assert_eq!(host.run(1, beyond), 0x80);
    let nowhere = host.transfer(2, 0, IOVA + (1 << 20));
    assert_eq!(host.run(1, nowhere), 0x04);
    // A reset leaves mappings and eventfds as they are.
    host.client.ok(RESET, &[], &[]);
    assert_eq!((host.csts(), host.client.read(0, 0x28, 8)), (0, vec![0; 8]));
    let counters = rig.ssd.counters();
    assert_eq!((counters.reads, counters.writes, counters.fatal), (64, 64, 0));
    assert!(rig.ssd.refusals().iter().any(|refusal| refusal.status.is_some()));
}

#[test]
fn a_client_that_wakes_nobody_is_seen_nevertheless() {
    let rig = Rig::plain();
    let mut host = Host::new(rig.client());
    host.enable();
    host.create_queues(None);
    for _ in 0..3 {
        let (naps, parks) = (rig.ssd.counters().naps, rig.ssd.counters().parks);
        wait_until("the SSD does not nap", || rig.ssd.counters().naps > naps + 10);
        // Only the doorbell in shared memory is written.
        let read = host.transfer(2, 0, IOVA + DATA as u64);
        assert_eq!(host.run(1, read), 0);
        assert_eq!(rig.ssd.counters().parks, parks, "it parked, and nobody would have woken it");
    }
    // Without queues it parks, perhaps before the write returns.
    let parks = rig.ssd.counters().parks;
    host.client.write(0, 0x14, &wire![0u32]);
    wait_until("the SSD does not park", || rig.ssd.counters().parks > parks);
}

#[test]
fn a_client_that_wakes_finds_it_parked() {
    let rig = Rig::plain();
    let client = Client::new(&rig.path(), r#"{"capabilities":{"meantime_parking":true}}"#);
    let mut host = Host::new(client);
    // The vendor specific capability: identifier 09h, 12 bytes, version 1, its magic, the offset in
    // BAR0.
    let config = host.client.read(7, 0, 256);
    let at = config.windows(8).position(|window| window[2..] == *b"\x0c\x01MTpk").unwrap();
    assert_eq!(config[at], 0x09);
    let parked = u32_at(&config, at + 8) as usize;
    host.parked_offset = Some(parked);
    host.enable();
    host.create_queues(None);
    for _ in 0..20 {
        let word = parked - host.bells.area as usize;
        wait_until("the SSD does not park", || {
            host.bells.memory.word(word).load(Ordering::Relaxed) == 1
        });
        let read = host.transfer(2, 0, IOVA + DATA as u64);
        assert_eq!(host.run(1, read), 0);
    }
    assert_eq!(rig.ssd.counters().naps, 0);
    // A client that writes the word hurts itself only: messages are answered, and the next client
    // finds all well.
    for value in [0, 0xffff_ffff] {
        let word = parked - host.bells.area as usize;
        std::thread::sleep(Duration::from_millis(5));
        host.bells.memory.word(word).store(value, Ordering::SeqCst);
        host.csts();
        host.client.write(0, 0x14, &wire![0x0046_0001u32]);
    }
    let word = parked - host.bells.area as usize;
    host.bells.memory.word(word).store(0, Ordering::SeqCst);
    drop(host);
    let mut host = Host::new(rig.client());
    host.enable();
    assert_eq!(host.identify().len(), 4096);
}

#[test]
fn clients_come_in_turn_and_share_nothing() {
    let rig = Rig::plain();
    let mut first = Host::new(rig.client());
    first.enable();
    first.create_queues(None);
    first.memory.put(DATA, &[0x5a; 512]);
    let write = first.transfer(1, 7, IOVA + DATA as u64);
    assert_eq!(first.run(1, write), 0);
    // The second says its VERSION, and waits.
    let mut second = Client::connect(&rig.path());
    let id = second.send(VERSION, &version("{}"), &[]);
    second.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut byte = [0];
    let error = std::io::Read::read(&mut second.stream, &mut byte).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    second.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let Host { client, memory, bells, .. } = first;
    drop(client);
    rig.wait_for_end();
    assert_eq!(second.try_receive().unwrap().id, id);
    let mut second = Host::new(second);
    // The state is that after power-on, but with the data.
    assert_eq!((second.csts(), second.client.read(0, 0x14, 4)), (0, vec![0; 4]));
    assert_eq!(second.client.read(0, 0x24, 4), [0; 4]);
    second.enable();
    second.create_queues(None);
    // Doorbells that the first client still has mapped lead nowhere.
    let counters = rig.ssd.counters();
    for word in (0..bells.memory.len).step_by(4) {
        bells.memory.word(word).store(0xffff_ffff, Ordering::SeqCst);
    }
    memory.put(0, &[0xee; 0x4000]);
    for _ in 0..10 {
        let read = second.transfer(2, 7, IOVA + DATA as u64);
        assert_eq!(second.run(1, read), 0);
        assert_eq!(second.memory.get(DATA, 512), [0x5a; 512]);
    }
    let after = rig.ssd.counters();
    assert_eq!(
        after.bad_doorbells + after.stray_doorbells,
        counters.bad_doorbells + counters.stray_doorbells
    );
    assert_eq!(memory.get(0, 0x4000), [0xee; 0x4000]);
}

#[test]
fn who_says_nothing_keeps_nobody_waiting() {
    let rig = Rig::plain();
    let mut silent: Vec<_> = (0..40).map(|_| Client::connect(&rig.path())).collect();
    // Half a message is nothing yet.
    for client in &mut silent[30..] {
        client.send_raw(&header(1, VERSION, 20, 0)[..7], &[]);
    }
    let mut host = Host::new(rig.client());
    host.enable();
    drop(host);
    rig.wait_for_end();
    // One of those that were silent speaks up.
    let last = silent.last_mut().unwrap();
    last.send_raw(&header(1, VERSION, 20, 0)[7..], &[]);
    last.send_raw(&[0, 0, 1, 0], &[]);
    assert_eq!(last.try_receive().unwrap().error, 0);
}

#[test]
fn a_client_that_vanishes_leaves_nothing_behind() {
    let mut config = SsdConfig::with_namespace(1 << 20, 512);
    config.model = Model::named("nand").unwrap();
    let rig = Rig::new(config);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mappings =
        || std::fs::read_to_string("/proc/self/maps").unwrap().matches("by-hand").count();
    let mut before = None;
    for _ in 0..5 {
        let mut host = Host::new(rig.client());
        host.enable();
        host.create_queues(None);
        for nth in 0..10 {
            let read = host.transfer(2, nth, IOVA + DATA as u64 + nth * 4096);
            host.put(1, &read);
        }
        host.ring(1);
        // The connection ends in the middle of its I/O and of a message.
        host.client.send_raw(&header(1, DMA_MAP, 48, 0), &[host.memory.file.as_fd()]);
        drop(host);
        assert!(rig.wait_for_end().is_some_and(|why| why.contains("closed")));
        assert_eq!(rig.ssd.counters().fatal, 0);
        // Other tests of this process have descriptors and mappings, too. So the numbers only must
        // not grow without end.
        before.get_or_insert((descriptors(), mappings()));
    }
    let (fds, maps) = before.unwrap();
    wait_until("descriptors leak", || descriptors() < fds + 60);
    wait_until("mappings leak", || mappings() < maps + 20);
}

#[test]
fn memory_that_was_unmapped_is_never_touched_again() {
    let mut config = SsdConfig::with_namespace(1 << 20, 512);
    config.model = Model::named("nand").unwrap();
    let rig = Rig::new(config);
    let mut host = Host::new(rig.client());
    host.enable();
    host.create_queues(None);
    let (data, at) = (Memory::new(1 << 16), IOVA + (1 << 30));
    for round in 0..20 {
        host.client.map(&data, at);
        for nth in 0..10 {
            let read = host.transfer(2, nth, at + nth * 4096);
            host.put(1, &read);
        }
        host.ring(1);
        std::thread::sleep(Duration::from_micros(round * 10));
        let answer = host.client.unmap(at, 1 << 16);
        assert_eq!((answer.error, answer.body), (0, wire![24u32, 0u32, at, 1u64 << 16]));
        data.put(0, &[0xa5; 1 << 16]);
        for _ in 0..10 {
            // Each read is done, or fails with a data transfer error.
            let status = u16_at(&host.wait(1), 14) >> 1 & 0x7ff;
            assert!(matches!(status, 0 | 0x04), "{status:#x}");
        }
        assert_eq!(data.get(0, 1 << 16), vec![0xa5; 1 << 16]);
    }
    // Unmapping the memory of the queues themselves is fatal, and a reset repairs it.
    assert_eq!(host.client.unmap(IOVA, 1 << 20).error, 0);
    assert_eq!(host.csts() & 2, 2);
    host.client.map(&host.memory, IOVA);
    host.client.ok(RESET, &[], &[]);
    let Host { client, .. } = host;
    let mut client = client;
    assert_eq!(client.ok(DMA_UNMAP, &wire![24u32, 2u32, 0u64, 0u64], &[])[16..], wire![1u64 << 20]);
    let mut host = Host::new(client);
    host.enable();
}

#[test]
fn mappings_are_checked() {
    let rig = Rig::plain();
    let mut client = rig.client();
    let memory = Memory::new(0x4000);
    let fd = memory.file.as_fd();
    let map = |argsz: u32, flags: u32, offset: u64, iova: u64, len: u64| {
        wire![argsz, flags, offset, iova, len]
    };
    for (body, why) in [
        (map(31, 3, 0, 0, 0x1000), "argsz"),
        (map(32, 7, 0, 0, 0x1000), "flags"),
        (map(32, 3, 0x800, 0, 0x1000), "offset"),
        (map(32, 3, 0, 0x10, 0x1000), "address"),
        (map(32, 3, 0, 0, 0x1010), "length"),
        (map(32, 3, 0, 0, 0), "no length"),
        (map(32, 3, 0, 0, 0x5000), "beyond the file"),
        (map(32, 3, 0x4000, 0, 0x1000), "at the file's end"),
        (map(32, 3, u64::MAX - 0xfff, 0, 0x1000), "the offset wraps"),
        (map(32, 3, 0, u64::MAX - 0xfff, 0x2000), "the address wraps"),
    ] {
        assert_eq!(client.errno(DMA_MAP, &body, &[fd]), EINVAL, "{why}");
    }
    assert_eq!(client.errno(DMA_MAP, &map(32, 3, 0, 0, 0x1000), &[fd, fd]), EINVAL);
    let null = std::fs::File::options().read(true).write(true).open("/dev/zero").unwrap();
    assert_eq!(client.errno(DMA_MAP, &map(32, 3, 0, 0, 0x1000), &[null.as_fd()]), EINVAL);
    let reader = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    assert_eq!(client.errno(DMA_MAP, &map(32, 3, 0, 0, 0x1000), &[reader.as_fd()]), 13);
    client.ok(DMA_MAP, &map(32, 3, 0x1000, 0x10000, 0x2000), &[fd]);
    assert_eq!(client.errno(DMA_MAP, &map(32, 3, 0x1000, 0x10000, 0x2000), &[fd]), 17, "EEXIST");
    for iova in [0xf000u64, 0x11000] {
        assert_eq!(client.errno(DMA_MAP, &map(32, 3, 0, iova, 0x2000), &[fd]), EINVAL);
    }
    // Mappings without a descriptor, or not for both directions, are accepted, but out of reach.
    client.ok(DMA_MAP, &map(32, 3, 0, 0x12000, 0x1000), &[]);
    client.ok(DMA_MAP, &map(32, 1, 0, 0x13000, 0x1000), &[fd]);
    rig.wait_for(|event| matches!(event, Event::Note(text) if text.contains("0x13000")));
    let unmap = |flags: u32, iova: u64, len: u64| wire![24u32, flags, iova, len];
    assert_eq!(client.errno(DMA_UNMAP, &unmap(1, 0x10000, 0x2000), &[]), 95, "ENOTSUP");
    assert_eq!(client.errno(DMA_UNMAP, &unmap(2, 0x10000, 0x2000), &[]), EINVAL);
    assert_eq!(client.errno(DMA_UNMAP, &unmap(4, 0x10000, 0x2000), &[]), EINVAL);
    assert_eq!(client.errno(DMA_UNMAP, &unmap(0, 0x10000, 0x1000), &[]), EINVAL, "a part");
    assert_eq!(client.errno(DMA_UNMAP, &unmap(0, 0x20000, 0x1000), &[]), 2, "ENOENT");
    assert_eq!(client.errno(DMA_UNMAP, &unmap(0, 0x10000, 0), &[]), EINVAL);
    assert_eq!(client.errno(DMA_UNMAP, &unmap(0, 0x10000, u64::MAX), &[]), EINVAL);
    // SPDK's host does the same: it sends the descriptor once more.
    client.ok(DMA_UNMAP, &unmap(0, 0x10000, 0x2000), &[fd]);
    assert_eq!(client.ok(DMA_UNMAP, &unmap(0, 0x12000, 0x2000), &[])[16..], wire![0x2000u64]);
    // It accepts as many mappings as it announced, and no more.
    for nth in 0..1024u64 {
        client.ok(DMA_MAP, &map(32, 3, 0, nth << 12, 0x1000), &[fd]);
    }
    assert_eq!(client.errno(DMA_MAP, &map(32, 3, 0, 1024 << 12, 0x1000), &[fd]), 28, "ENOSPC");
    assert_eq!(client.ok(DMA_UNMAP, &unmap(2, 0, 0), &[])[16..], wire![0x400_000u64]);
}

#[test]
fn interrupts_are_set_up_masked_and_triggered() {
    let rig = Rig::plain();
    let mut host = Host::new(rig.client());
    let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
    let events: Vec<_> = (0..20).map(|_| rustix::event::eventfd(0, flags).unwrap()).collect();
    let fds: Vec<_> = events.iter().map(|event| event.as_fd()).collect();
    let count = |nth: usize| {
        let mut count = [0; 8];
        match rustix::io::read(&events[nth], &mut count) {
            Ok(_) => u64::from_le_bytes(count),
            Err(_) => 0,
        }
    };
    // The CQE is there before the SSD signals its vector.
    let signalled = |nth: usize| {
        let mut fds = [rustix::event::PollFd::new(&events[nth], rustix::event::PollFlags::IN)];
        let limit = rustix::time::Timespec { tv_sec: 10, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut fds, Some(&limit)), Ok(1), "no interrupt");
        count(nth)
    };
    let set =
        |flags: u32, index: u32, start: u32, count: u32| wire![20u32, flags, index, start, count];
    let client = &mut host.client;
    client.ok(SET_IRQS, &set(0x24, 2, 0, 16), &fds[..16]);
    client.ok(SET_IRQS, &set(0x24, 2, 61, 4), &fds[16..]);
    client.ok(SET_IRQS, &set(0x21, 2, 3, 2), &[]);
    assert_eq!((count(2), count(3), count(4), count(5)), (0, 1, 1, 0));
    let mut body = set(0x22, 2, 3, 3);
    body.extend([1, 0, 255]);
    client.ok(SET_IRQS, &body, &[]);
    assert_eq!((count(3), count(4), count(5)), (1, 0, 1));
    for (body, fds) in [
        (set(0x24, 2, 0, 2), &fds[..1]),
        (set(0x24, 2, 0, 1), &fds[..2]),
        (set(0x24, 2, 64, 2), &fds[..2]),
        (set(0x24, 2, 0xffff_ffff, 1), &fds[..1]),
        (set(0x24, 2, 1, 0xffff_ffff), &[][..]),
        (set(0x24, 0, 0, 1), &fds[..1]),
        (set(0x24, 5, 0, 1), &fds[..1]),
        (set(0x21, 2, 0, 1), &fds[..1]),
        (set(0x22, 2, 0, 1), &[]),
        (set(0x23, 2, 0, 1), &[]),
        (set(0x31, 2, 0, 1), &[]),
        (set(0x01, 2, 0, 1), &[]),
        (set(0x61, 2, 0, 1), &[]),
        (set(0x24, 2, 0, 0), &[]),
        (set(0x0c, 2, 0, 1), &fds[..1]),
    ] {
        assert_eq!(client.errno(SET_IRQS, &body, fds), EINVAL, "{body:?}");
    }
    assert_eq!(
        client.errno(SET_IRQS, &set(0x24, 2, 0, 1), &[host.memory.file.as_fd()]),
        EINVAL,
        "no eventfd"
    );
    // Vector 0 is the admin queue's.
    host.enable();
    host.identify();
    assert_eq!(signalled(0), 1);
    host.client.ok(SET_IRQS, &set(0x09, 2, 0, 1), &[]);
    host.identify();
    assert_eq!(count(0), 0, "masked");
    host.client.ok(SET_IRQS, &set(0x11, 2, 0, 1), &[]);
    assert_eq!(signalled(0), 1, "what came meanwhile");
    host.identify();
    assert_eq!(signalled(0), 1);
    // A message without descriptors removes them. A count of 0 removes all.
    host.client.ok(SET_IRQS, &set(0x24, 2, 0, 1), &[]);
    host.identify();
    assert_eq!(count(0), 0);
    host.client.ok(SET_IRQS, &set(0x21, 2, 0, 0), &[]);
    host.client.ok(SET_IRQS, &set(0x21, 2, 0, 65), &[]);
    assert_eq!((0..20).map(count).sum::<u64>(), 0);
}

#[test]
fn an_eventfd_that_is_full_holds_nobody_up_for_long() {
    let rig = Rig::plain();
    let mut host = Host::new(rig.client());
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    host.client.ok(SET_IRQS, &wire![20u32, 0x24u32, 2u32, 0u32, 1u32], &[event.as_fd()]);
    host.enable();
    rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let mut sqe = host.command(0x06, 0, IOVA + DATA as u64);
    sqe[40] = 1;
    host.put(0, &sqe);
    host.ring(0);
    host.wait(0);
    // The SSD's thread does not wait in a write to the eventfd: it goes on with the next command,
    // and with registers.
    assert_eq!(host.identify().len(), 4096);
    host.client.write(0, 0x14, &0u32.to_le_bytes());
    assert_eq!(host.csts(), 0);
    drop(host);
    rig.wait_for_end();
    let mut host = Host::new(rig.client());
    host.enable();
}

#[test]
fn descriptors_beyond_the_limit_are_refused_and_closed() {
    let rig = Rig::plain();
    let mut client = rig.client();
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let set = wire![20u32, 0x24u32, 2u32, 0u32, 16u32];
    client.ok(SET_IRQS, &set, &[event.as_fd(); 16]);
    assert_eq!(client.errno(SET_IRQS, &set, &[event.as_fd(); 17]), EINVAL);
    // The descriptors come in two halves of a message.
    let mut bytes = header(9, SET_IRQS, 36, 0);
    bytes.extend(wire![20u32, 0x24u32, 2u32, 0u32, 20u32]);
    client.send_raw(&bytes[..20], &[event.as_fd(); 10]);
    client.send_raw(&bytes[20..], &[event.as_fd(); 10]);
    assert_eq!(client.try_receive().unwrap().error, EINVAL);
    // A descriptor comes with a message that must have none.
    assert_eq!(client.errno(GET_INFO, &wire![16u32, 0u32, 0u32, 0u32], &[event.as_fd()]), EINVAL);
    client.ok(SET_IRQS, &wire![20u32, 0x21u32, 2u32, 0u32, 0u32], &[]);
    // Descriptors of refused messages are closed: a pipe ends when no descriptor of its other
    // end is left.
    for count in [1, 16, 17] {
        let (reader, writer) = std::io::pipe().unwrap();
        let body = wire![20u32, 0x24u32, 2u32, 0u32, count as u32];
        assert_eq!(client.errno(SET_IRQS, &body, &vec![writer.as_fd(); count]), EINVAL);
        drop(writer);
        client.ok(GET_INFO, &wire![16u32, 0u32, 0u32, 0u32], &[]);
        let mut fds = [rustix::event::PollFd::new(&reader, rustix::event::PollFlags::IN)];
        let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&at_once)).unwrap();
        assert!(fds[0].revents().contains(rustix::event::PollFlags::HUP), "{count}");
    }
}

#[test]
fn messages_come_in_pieces_and_without_wish_for_a_reply() {
    let rig = Rig::plain();
    let mut client = rig.client();
    let mut bytes = header(0xbeef, REGION_READ, 32, 0);
    bytes.extend(wire![0u64, 7u32, 4u32]);
    for byte in &bytes {
        client.send_raw(&[*byte], &[]);
        std::thread::sleep(Duration::from_micros(200));
    }
    let answer = client.try_receive().unwrap();
    assert_eq!((answer.id, &answer.body[16..]), (0xbeef, &[0x36, 0x1b, 0x54, 0x4d][..]));
    // Two at once, the first of which wants no reply, and one that fails likewise.
    let mut bytes = header(1, REGION_WRITE, 34, 0x10);
    bytes.extend(wire![4u64, 7u32, 2u32, 0x0406u16]);
    bytes.extend(header(2, REGION_READ, 17, 0x10));
    bytes.push(0);
    bytes.extend(header(3, REGION_READ, 32, 0));
    bytes.extend(wire![4u64, 7u32, 2u32]);
    client.send_raw(&bytes, &[]);
    let answer = client.try_receive().unwrap();
    assert_eq!((answer.id, &answer.body[16..]), (3, &[0x06, 0x04][..]));
    rig.wait_for(|event| matches!(event, Event::Refused { errno: 22, .. }));
}

#[test]
fn replies_that_nobody_takes_stay_one() {
    let rig = Rig::plain();
    let mut client = rig.client();
    let mut reading = client.stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        for _ in 0..5_000 {
            client.send(REGION_READ, &wire![0u64, 7u32, 4096u32], &[]);
        }
        client
    });
    // Its replies fill the socket, then its commands do, and the writer waits; the server does not.
    std::thread::sleep(Duration::from_millis(50));
    let mut bytes = vec![0; 16 + 16 + 4096];
    for _ in 0..5_000 {
        std::io::Read::read_exact(&mut reading, &mut bytes).unwrap();
        assert_eq!((u32_at(&bytes, 4), u32_at(&bytes, 12)), (4128, 0));
    }
    writer.join().unwrap();
}
