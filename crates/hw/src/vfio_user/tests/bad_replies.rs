//! Invalid replies: the connection ends, later bytes are not taken for an answer, and memory stays
//! lost.

use super::fake::{self, *};
use super::*;

/// The register whose read fails, so that the start is unaffected.
const CSTS: u32 = 0x1c;

type Bad = fn(&Message) -> Answer;

/// The client's state after `bad` as the answer to a register read.
fn after(bad: Bad) -> Served {
    let script = move |message: &Message| {
        let hit = message.command == REGION_READ
            && message.u64(0) == u64::from(CSTS)
            && message.u32(8) == 0;
        hit.then(|| bad(message))
    };
    let served = attach(State::new(), Box::new(script), &PATIENT).unwrap();
    served.transport.map_dma(1 << 32, &shared_pages()).unwrap();
    served
}

fn right(message: &Message) -> Vec<u8> {
    fake::message(
        message.id,
        message.command,
        REPLY,
        0,
        &[&message.body[..], &[1, 0, 0, 0]].concat(),
    )
}

/// The same with the byte at `at` changed.
fn changed(message: &Message, at: usize, value: u8) -> Answer {
    let mut bytes = right(message);
    assert_ne!(bytes[at], value);
    bytes[at] = value;
    Answer::bytes(bytes)
}

#[test]
fn a_valid_reply_is_accepted() {
    let served = after(|m| Answer::bytes(right(m)));
    assert_eq!(served.transport.read32(CSTS), 1);
    assert!(!served.transport.is_gone());
    served.transport.unmap(1 << 32).unwrap();
}

#[test]
fn an_error_is_an_answer() {
    // A bare header; and one with the structure after it.
    for bad in [(|m| m.error(22)) as Bad, |m| {
        Answer::bytes(fake::message(m.id, m.command, REPLY | ERROR, 5, &m.body))
    }] {
        let served = after(bad);
        assert_eq!(served.transport.read32(CSTS), u32::MAX);
        assert!(!served.transport.is_gone());
        assert_eq!(served.transport.read32(4), 0x1122_3344);
    }
}

#[test]
fn an_invalid_reply_ends_the_connection() {
    let cases: &[(&str, Bad)] = &[
        ("a reply to message 79", |m| changed(m, 1, 0x1f)),
        ("command 10, where", |m| changed(m, 2, 10)),
        ("less than its header", |m| changed(m, 4, 15)),
        ("bytes in reply to REGION_READ", |m| changed(m, 5, 1)),
        ("bytes in reply to REGION_READ", |m| changed(m, 7, 0xff)),
        ("neither command nor reply", |m| changed(m, 8, 2)),
        ("which are not those", |m| changed(m, 16, 0)),
        ("which are not those", |m| changed(m, 24, 1)),
        ("which are not those", |m| changed(m, 28, 8)),
        ("which are not those", |m| {
            Answer::bytes(fake::message(m.id, m.command, REPLY, 0, &m.body))
        }),
        ("which are not those", |m| m.reply(&[])),
        ("an error of 4112 bytes", |m| {
            Answer::bytes(fake::message(m.id, m.command, REPLY | ERROR, 5, &[0; 4096]))
        }),
        ("a command of", |_| {
            let mut bytes = fake::message(1, DMA_READ, 0, 0, &[]);
            bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
            Answer::bytes(bytes)
        }),
        ("in the middle of a message", |m| Answer::bytes(right(m)[..7].to_vec()).and_close()),
        ("in the middle of a message", |m| Answer::bytes(right(m)[..16].to_vec()).and_close()),
        ("in the middle of a message", |m| Answer::bytes(right(m)[..35].to_vec()).and_close()),
        ("closed the connection", |_| Answer::default().and_close()),
        ("more than 16 descriptors", |m| {
            (0..17).fold(Answer::bytes(right(m)), |answer, _| {
                answer.with(EventFd::new().unwrap().fd().unwrap().try_clone().unwrap())
            })
        }),
    ];
    for (expected, bad) in cases {
        let served = after(*bad);
        assert_eq!(served.transport.read32(CSTS), u32::MAX, "{expected}");
        assert!(served.transport.is_gone(), "{expected}");
        // A live connection would answer this.
        assert_eq!(served.transport.read32(4), u32::MAX);
        served.transport.bell(0x2000).unwrap().write_tail(1);
        // The server lives, and has the memory mapped.
        let error = served.transport.unmap(1 << 32).unwrap_err().to_string();
        assert!(error.contains("was given up") && error.contains(expected), "{expected}: {error}");
        let error = served.transport.map_dma(1 << 33, &shared_pages()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_missing_reply_ends_at_the_timeout() {
    let script = |message: &Message| {
        (message.command == REGION_READ && message.u64(0) == u64::from(CSTS)).then(Answer::default)
    };
    // Long enough for all the others, however threads are scheduled.
    let options = UserOptions { timeout_ns: 3_000_000_000 };
    let served = attach(State::new(), Box::new(script), &options).unwrap();
    let begun = std::time::Instant::now();
    assert_eq!(served.transport.read32(CSTS), u32::MAX);
    assert!(begun.elapsed().as_nanos() >= options.timeout_ns.into());
    assert!(served.transport.is_gone());
}

#[test]
fn a_reply_that_trickles_in_times_out() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let dripping = std::thread::spawn(move || {
        while std::io::Write::write_all(&mut theirs, &[1]).is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let error = UserTransport::over(ours, "slow".into(), &UserOptions { timeout_ns: 200_000_000 })
        .err()
        .unwrap();
    // Sixteen of them form an invalid header.
    let expected = ["no answer to VERSION", "neither command nor reply", "a command of"];
    assert!(expected.iter().any(|text| error.to_string().contains(text)), "{error}");
    dripping.join().unwrap();
}

#[test]
fn a_server_that_does_not_read_is_given_up() {
    let Served { transport, server, .. } =
        attach(State::new(), Box::new(|_| None), &PATIENT).unwrap();
    drop(transport);
    server.join().unwrap();
    // An unread socket fills up.
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let socket = Socket::connected(ours.into()).unwrap();
    let connection = Connection::new(socket, "deaf".into(), Duration::from_millis(100));
    let big = vec![0; 1 << 20];
    let error = (0..10)
        .find_map(|_| connection.request(Command::RegionWrite, &[&big], None, 0).err())
        .expect("it fills up");
    assert!(matches!(error, UserError::Late { .. }), "{error}");
    assert!(connection.is_gone());
}

#[test]
fn commands_of_the_server_are_declined() {
    // 64 bytes at an address, before the expected reply. One of them wants no answer.
    let script = |message: &Message| {
        let hit = message.command == REGION_READ && message.u64(0) == u64::from(CSTS);
        hit.then(|| {
            let read = [&0x1_0000_0000u64.to_le_bytes()[..], &64u64.to_le_bytes()].concat();
            let mut bytes = fake::message(0x77, DMA_READ, 0, 0, &read);
            bytes.extend(fake::message(0x78, 12, NO_REPLY, 0, &[&read[..], &[9; 64]].concat()));
            bytes.extend(right(message));
            Answer::bytes(bytes)
        })
    };
    let served = attach(State::new(), Box::new(script), &PATIENT).unwrap();
    assert_eq!(served.transport.read32(CSTS), 1);
    assert_eq!(served.transport.read32(4), 0x1122_3344);
    let (seen, _) = served.end();
    let answer = seen.iter().find(|message| message.id == 0x77).expect("it was answered");
    assert_eq!((answer.command, answer.flags, answer.body.len()), (DMA_READ, REPLY | ERROR, 0));
    assert!(!seen.iter().any(|message| message.id == 0x78));
}
