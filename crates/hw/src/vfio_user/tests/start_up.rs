//! The bytes on the wire, and their effects.

#![expect(unsafe_code)]

use std::os::unix::fs::FileExt;

use super::fake::{self, *};
use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

#[test]
fn the_messages_of_a_start() {
    let (seen, state) = good().end();
    let expected: &[(u16, &str)] = &[
        (GET_INFO, "10000000 00000000 00000000 00000000"),
        (RESET, ""),
        (GET_REGION_INFO, "20000000 00000000 07000000 00000000 0000000000000000 0000000000000000"),
        // 256 bytes of configuration space.
        (REGION_READ, "0000000000000000 07000000 00010000"),
        // Command: INTx off, bus master, memory. Then MSI-X off.
        (REGION_WRITE, "0400000000000000 07000000 02000000 0604"),
        (REGION_WRITE, "4200000000000000 07000000 02000000 0800"),
        // Once to learn the size, once for all of it.
        (GET_REGION_INFO, "20000000 00000000 00000000 00000000 0000000000000000 0000000000000000"),
        (GET_REGION_INFO, "40000000 00000000 00000000 00000000 0000000000000000 0000000000000000"),
        (GET_IRQ_INFO, "10000000 00000000 02000000 00000000"),
    ];
    let version = &seen[0];
    assert_eq!((version.id, version.command, version.flags), (1, VERSION, 0));
    // 0.1, and JSON that ends with a NUL.
    assert_eq!(version.body[..4], [0, 0, 1, 0]);
    assert_eq!(version.body.last(), Some(&0));
    let said: serde_json::Value =
        serde_json::from_slice(&version.body[4..version.body.len() - 1]).unwrap();
    let said = &said["capabilities"];
    assert_eq!((&said["max_msg_fds"], &said["max_data_xfer_size"]), (&16.into(), &1048576.into()));
    assert_eq!(said["meantime_parking"], true);

    for ((index, message), (command, body)) in seen.iter().enumerate().skip(1).zip(expected) {
        assert_eq!((message.id as usize, message.command, message.flags), (index + 1, *command, 0));
        assert_eq!(message.body, hex(body), "message {index}, command {command}");
        assert!(message.fds.is_empty());
    }
    assert_eq!(seen.len(), 1 + expected.len());
    assert_eq!(state.config[4..6], [0x06, 0x04]);
}

#[test]
fn registers_go_by_message() {
    let served = good();
    let transport = &served.transport;
    assert_eq!(transport.read64(0), 0x1122_3344_5566_7788);
    assert_eq!(transport.read32(4), 0x1122_3344);
    transport.put32(0x14, 0x0046_0001);
    transport.put64(0x28, 0x1_0000_2000);
    let (seen, state) = served.end();
    assert_eq!(state.bar[0x14..0x18], [1, 0, 0x46, 0]);
    assert_eq!(state.bar[0x28..0x30], [0, 0x20, 0, 0, 1, 0, 0, 0]);
    let writes: Vec<_> = seen[10..].iter().map(|message| message.body.clone()).collect();
    assert_eq!(writes[2], hex("1400000000000000 00000000 04000000 01004600"));
    assert_eq!(writes[3], hex("2800000000000000 00000000 08000000 0020000001000000"));
}

#[test]
fn a_server_of_small_messages_gets_small_ones() {
    let script = |message: &Message| {
        let version = b"\0\0\0\0{\"capabilities\":{\"max_data_xfer_size\":4}}\0";
        (message.command == VERSION).then(|| message.reply(version))
    };
    let served = attach(State::new(), Box::new(script), &PATIENT).unwrap();
    assert_eq!(served.transport.read64(0), 0x1122_3344_5566_7788);
    served.transport.put64(0x28, 0x1_0000_2000);
    let (seen, state) = served.end();
    assert_eq!(state.bar[0x28..0x30], [0, 0x20, 0, 0, 1, 0, 0, 0]);
    let accesses =
        seen.iter().filter(|message| matches!(message.command, REGION_READ | REGION_WRITE));
    assert!(accesses.map(|message| message.u32(12)).all(|count| count <= 4));
}

#[test]
fn doorbells_are_stored_to_where_they_are_shared() {
    let served = good();
    let bell = served.transport.bell(0x1008).unwrap();
    bell.write_tail(7);
    served.transport.bell(0x100c).unwrap().write_head(9);
    // Beyond the shared part by message; none beyond the BAR, or unaligned.
    let beyond = served.transport.bell(0x2000).unwrap();
    beyond.write_tail(11);
    // The doorbell keeps the connection open.
    drop(beyond);
    for offset in [0x0ffc, 0x1001, 0x3ffd, 0x4000, u32::MAX] {
        assert!(served.transport.bell(offset).is_err(), "{offset:#x}");
    }
    let (seen, state) = served.end();
    assert_eq!((word_of(&state.file, 0x1008), word_of(&state.file, 0x100c)), (7, 9));
    assert_eq!(state.bar[0x2000..0x2004], [11, 0, 0, 0]);
    assert_eq!(seen.len(), 11, "one message more than the start");
    // The mapping outlives the transport while there are doorbells.
    bell.write_tail(8);
    assert_eq!(word_of(&state.file, 0x1008), 8);
}

#[test]
fn a_server_that_takes_its_doorbells_away() {
    let state = State::new();
    let file = state.file.try_clone().unwrap();
    let served = attach(state, Box::new(|_| None), &PATIENT).unwrap();
    let bell = served.transport.bell(0x1008).unwrap();
    file.set_len(0).unwrap();
    // Without the guard this would raise SIGBUS.
    bell.write_tail(7);
    bell.write_tail(8);
    assert_eq!(served.transport.read32(4), 0x1122_3344);
}

#[test]
fn a_server_that_sleeps_is_woken_by_message() {
    let mut state = State::new();
    state.config[0x41] = 0x60;
    state.config[0x60..0x6c]
        .copy_from_slice(&[0x09, 0, 12, 1, b'M', b'T', b'p', b'k', 0x00, 0x18, 0, 0]);
    let file = state.file.try_clone().unwrap();
    let served = attach(state, Box::new(|_| None), &PATIENT).unwrap();
    let bell = served.transport.bell(0x1000).unwrap();
    bell.write_tail(3);
    file.write_at(&1u32.to_le_bytes(), 0x1800).unwrap();
    bell.write_tail(4);
    drop(bell);
    let (seen, state) = served.end();
    let last = seen.last().unwrap();
    assert_eq!((last.command, last.flags), (REGION_WRITE, 0));
    assert_eq!(last.body, hex("0010000000000000 00000000 04000000 04000000"));
    assert_eq!(seen.len(), 11);
    assert_eq!(word_of(&state.file, 0x1000), 4);
}

#[test]
fn a_server_without_a_parking_word_gets_messages() {
    let mut state = State::new();
    state.config[0x41] = 0x60;
    // An offset that is not mapped.
    state.config[0x60..0x6c]
        .copy_from_slice(&[0x09, 0, 12, 1, b'M', b'T', b'p', b'k', 0x00, 0x30, 0, 0]);
    let served = attach(state, Box::new(|_| None), &PATIENT).unwrap();
    served.transport.bell(0x1000).unwrap().write_tail(3);
    let (_, state) = served.end();
    assert_eq!((word_of(&state.file, 0x1000), state.bar[0x1000]), (0, 3));
}

#[test]
fn memory_is_shared_by_its_file() {
    let served = good();
    let limits = served.transport.limits();
    assert_eq!((limits.shared, limits.lock, limits.max_regions), (true, false, 5));
    let pages = shared_pages();
    served.transport.map_dma(0x1_0000_0000, &pages).unwrap();
    // Overlaps are refused without asking the server. (There are two messages below.)
    for iova in [0x1_0000_0000, 0x1_001f_f000, 0xffe0_1000] {
        let error = served.transport.map_dma(iova, &pages).unwrap_err().to_string();
        assert!(error.contains("overlaps"), "{iova:#x}: {error}");
    }
    served.transport.unmap(0x1_0000_0000).unwrap();
    assert!(matches!(served.transport.unmap(0x1_0000_0000), Err(HwError::Missing { .. })));
    let private = Arc::new(Pages::map(2 << 20, &DmaLimits::default()).unwrap());
    assert!(served.transport.map_dma(0x2_0000_0000, &private).is_err());
    let (seen, _) = served.end();
    let [map, unmap] = &seen[10..] else { panic!("{} messages", seen.len()) };
    // READ | WRITE, from 0 of the file.
    assert_eq!(
        map.body,
        hex("20000000 03000000 0000000000000000 0000000001000000 0000200000000000")
    );
    assert_eq!(unmap.body, hex("18000000 00000000 0000000001000000 0000200000000000"));
    let file = std::fs::File::from(map.fds[0].try_clone().unwrap());
    file.write_at(&[42], 77).unwrap();
    // SAFETY: inside the mapping, which only this test knows.
    assert_eq!(unsafe { pages.as_ptr().add(77).read_volatile() }, 42);
}

#[test]
fn vectors_are_installed_before_msix_is_on() {
    let served = good();
    let (first, second) = (EventFd::new().unwrap(), EventFd::new().unwrap());
    assert_eq!(served.transport.vectors(), 9);
    served.transport.set_vector(3, None).unwrap();
    served.transport.set_vector(3, Some(&first)).unwrap();
    served.transport.set_vector(8, Some(&second)).unwrap();
    served.transport.set_vector(3, None).unwrap();
    assert!(matches!(served.transport.set_vector(9, Some(&first)), Err(HwError::Missing { .. })));
    let (seen, state) = served.end();
    // Eventfds to trigger: the admin queue's vector, which has no waiter, 3, MSI-X on; 8; 3 again.
    // Then off.
    let set = |vector: &str| format!("14000000 24000000 02000000 {vector} 01000000");
    let expected = [
        set("00000000"),
        set("03000000"),
        "4200000000000000 07000000 02000000 0880".into(),
        set("08000000"),
        set("03000000"),
        "4200000000000000 07000000 02000000 0800".into(),
        "14000000 21000000 02000000 00000000 00000000".into(),
    ];
    assert_eq!(
        seen[10..].iter().map(|m| m.body.clone()).collect::<Vec<_>>(),
        expected.map(|text| hex(&text))
    );
    assert_eq!(seen[10..].iter().map(|m| m.fds.len()).collect::<Vec<_>>(), [1, 1, 0, 1, 1, 0, 0]);
    assert_eq!(state.config[0x42..0x44], [0x08, 0]);
    rustix::io::write(&seen[11].fds[0], &1u64.to_ne_bytes()).unwrap();
    assert!(first.take() && !second.take());
    rustix::io::write(&seen[14].fds[0], &1u64.to_ne_bytes()).unwrap();
    assert!(!first.take());
}

#[test]
fn configuration_space_is_read_by_dwords_if_need_be() {
    let script = |message: &Message| {
        (message.command == REGION_READ && message.u32(12) > 4).then(|| message.error(22))
    };
    let served = attach(State::new(), Box::new(script), &PATIENT).unwrap();
    assert_eq!(served.transport.vectors(), 9);
    served.end();
}

#[test]
fn a_server_without_reset_interrupts_or_shared_doorbells() {
    let script = |message: &Message| match message.command {
        RESET => Some(message.error(95)),
        GET_IRQ_INFO => Some(message.reply(&[16u32, 0, 2, 9].map(u32::to_le_bytes).concat())),
        // As libvfio-user without sparse areas: MMAP, but no file.
        GET_REGION_INFO if message.u32(8) == 0 => {
            Some(message.reply(&[32u32, 7, 0, 0, 0x4000, 0, 0, 0].map(u32::to_le_bytes).concat()))
        }
        _ => None,
    };
    let served = attach(State::new(), Box::new(script), &PATIENT).unwrap();
    assert_eq!(served.transport.vectors(), 0);
    served.transport.bell(0x1000).unwrap().write_tail(5);
    assert_eq!(served.end().1.bar[0x1000], 5);
}

#[test]
fn what_cannot_be_used_is_refused() {
    type Change = fn(&Message) -> Option<fake::Answer>;
    let cases: &[(&str, Change)] = &[
        ("version 1.0", |m| (m.command == VERSION).then(|| m.reply(&[1, 0, 0, 0]))),
        ("version 0.2", |m| (m.command == VERSION).then(|| m.reply(&[0, 0, 2, 0]))),
        ("without a version", |m| (m.command == VERSION).then(|| m.reply(&[0, 0, 0]))),
        ("do not end with a NUL", |m| (m.command == VERSION).then(|| m.reply(b"\0\0\0\0{}"))),
        ("refused VERSION: Invalid", |m| (m.command == VERSION).then(|| m.error(22))),
        ("no PCI function", |m| {
            (m.command == GET_INFO)
                .then(|| m.reply(&[16u32, 1, 9, 5].map(u32::to_le_bytes).concat()))
        }),
        ("has 7 regions", |m| {
            (m.command == GET_INFO)
                .then(|| m.reply(&[16u32, 2, 7, 5].map(u32::to_le_bytes).concat()))
        }),
        ("region 3 where 7", |m| {
            (m.command == GET_REGION_INFO)
                .then(|| m.reply(&[32u32, 3, 3, 0, 256, 0, 0, 0].map(u32::to_le_bytes).concat()))
        }),
        ("255 bytes of configuration", |m| {
            (m.command == GET_REGION_INFO)
                .then(|| m.reply(&[32u32, 3, 7, 0, 255, 0, 0, 0].map(u32::to_le_bytes).concat()))
        }),
        ("cannot be read and written", |m| {
            (m.command == GET_REGION_INFO)
                .then(|| m.reply(&[32u32, 1, 7, 0, 256, 0, 0, 0].map(u32::to_le_bytes).concat()))
        }),
        ("BAR0 has 4103 bytes", |m| {
            let bar = m.command == GET_REGION_INFO && m.u32(8) == 0;
            bar.then(|| m.reply(&[32u32, 3, 0, 0, 0x1007, 0, 0, 0].map(u32::to_le_bytes).concat()))
        }),
        ("4294967295 bytes to describe", |m| {
            let bar = m.command == GET_REGION_INFO && m.u32(8) == 0;
            bar.then(|| {
                m.reply(&[u32::MAX, 7, 0, 0, 0x4000, 0, 0, 0].map(u32::to_le_bytes).concat())
            })
        }),
        // A file of one page; a device; nothing.
        ("the file ends at 0x1000", |m| {
            let whole = m.command == GET_REGION_INFO && m.u32(8) == 0;
            whole.then(|| {
                m.reply(&[32u32, 7, 0, 0, 0x4000, 0, 0, 0].map(u32::to_le_bytes).concat())
                    .with(memfd(0x1000))
            })
        }),
        ("not a file in memory", |m| {
            let whole = m.command == GET_REGION_INFO && m.u32(8) == 0;
            let null = std::fs::File::open("/dev/null").unwrap();
            whole.then(|| {
                m.reply(&[32u32, 7, 0, 0, 0x4000, 0, 0, 0].map(u32::to_le_bytes).concat())
                    .with(null)
            })
        }),
        ("no file to map them from", |m| {
            let whole = m.command == GET_REGION_INFO && m.u32(8) == 0;
            let info =
                [64u32, 15, 0, 32, 0x4000, 0, 0, 0, 0x0001_0001, 0, 1, 0, 0x1000, 0, 0x1000, 0];
            whole.then(|| {
                m.reply(&info.map(u32::to_le_bytes).concat()[..if m.u32(0) < 64 { 32 } else { 64 }])
            })
        }),
        ("class code is 0x010601", |m| {
            (m.command == REGION_READ).then(|| {
                let mut config = [0; 256];
                config[9..12].copy_from_slice(&[1, 6, 1]);
                m.reply(&[&m.body, &config[..]].concat())
            })
        }),
    ];
    for (expected, change) in cases {
        let error = refused(*change, &PATIENT);
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn memory_that_the_server_refuses() {
    let script = |message: &Message| {
        (message.command == DMA_MAP || message.command == DMA_UNMAP && message.u64(8) == 1 << 33)
            .then(|| {
                message.error(if message.command == DMA_MAP && message.u64(16) == 1 << 32 {
                    12
                } else {
                    0
                })
            })
    };
    let served = attach(State::new(), Box::new(script), &PATIENT).unwrap();
    let error = served.transport.map_dma(1 << 32, &shared_pages()).unwrap_err();
    assert!(matches!(error, HwError::DmaMap { .. }), "{error}");
    assert!(error.to_string().contains("refused DMA_MAP: Cannot allocate memory"), "{error}");
    // An error reply counts, with or without an errno; the connection stays open.
    assert!(served.transport.map_dma(1 << 33, &shared_pages()).is_err());
    assert!(!served.transport.is_gone());
    assert_eq!(served.transport.read32(4), 0x1122_3344);
}

#[test]
fn a_socket_that_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let error = |name: &str| {
        UserTransport::connect(&dir.path().join(name), &QUICK)
            .err()
            .expect("nothing to connect to")
            .to_string()
    };
    assert!(error("none").contains("start the server first"));
    drop(std::os::unix::net::UnixListener::bind(dir.path().join("stale")).unwrap());
    assert!(error("stale").contains("no process listens there any more"), "{}", error("stale"));
    std::fs::write(dir.path().join("file"), "").unwrap();
    assert!(error("file").contains("cannot connect"), "{}", error("file"));
    assert!(error(&"x".repeat(120)).contains("at most 107 bytes"));
    let _datagram = std::os::unix::net::UnixDatagram::bind(dir.path().join("datagram")).unwrap();
    assert!(error("datagram").contains("another kind"), "{}", error("datagram"));
    // In a directory it is `cntrl`.
    assert!(error("").contains("cntrl"));
}

#[test]
fn a_server_that_is_busy_with_another_client() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    // No server accepts: the kernel completes the connection, but there is no answer.
    let error = UserTransport::connect(&path, &QUICK).err().unwrap().to_string();
    assert!(error.contains("no answer to VERSION within 100 ms"), "{error}");
}
