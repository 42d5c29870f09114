//! Invalid messages: every length, random bytes, and lies about sizes. The server answers or hangs
//! up. It never ends, and the next client finds all well.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use meantime_nvme_spec::vfio_user::Header;
use meantime_ssd::served::{Function, Message, Server, Socket, SocketOptions};
use meantime_ssd::{Medium, MonotonicClock, Ssd, SsdConfig, SteppedSsd};
use meantime_testkit::by_hand::*;
use meantime_testkit::wire;
use proptest::prelude::*;
use zerocopy::FromBytes as _;

struct Rig {
    server: Server,
    _ssd: Ssd,
    _dir: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = SsdConfig::with_namespace(1 << 16, 512);
        let medium = Medium::dram(config.total_bytes()).unwrap();
        let ssd = Ssd::start(config, medium, MonotonicClock::new()).unwrap();
        let socket = Socket::bind(&dir.path().join("ssd.sock"), &SocketOptions::default()).unwrap();
        let server = Server::start(socket, ssd.function_port(), |_| {}).unwrap();
        Self { server, _ssd: ssd, _dir: dir }
    }

    fn path(&self) -> PathBuf {
        self.server.path().to_owned()
    }
}

/// Each command with a body that is right.
fn messages() -> Vec<(u16, Vec<u8>)> {
    vec![
        (DMA_MAP, wire![32u32, 3u32, 0u64, 0x10000u64, 0x1000u64]),
        (DMA_UNMAP, wire![24u32, 2u32, 0u64, 0u64]),
        (GET_INFO, wire![16u32, 0u32, 0u32, 0u32]),
        (GET_REGION_INFO, wire![64u32, 0u32, 0u32, 0u32, 0u64, 0u64]),
        (6, wire![16u32, 0u32, 0u32, 0u32]),
        (GET_IRQ_INFO, wire![16u32, 0u32, 2u32, 0u32]),
        (SET_IRQS, wire![20u32, 0x22u32, 2u32, 0u32, 4u32, 0u32]),
        (REGION_READ, wire![0u64, 0u32, 8u32]),
        (REGION_WRITE, wire![0x24u64, 0u32, 4u32, 0x001f_001fu32]),
        (11, wire![0u64, 4u64]),
        (12, wire![0u64, 4u64, 0u32]),
        (RESET, vec![]),
        (15, wire![1u64, 0u64, 0u32, 4u32, 0u64]),
        (16, wire![8u32, 0u32]),
    ]
}

#[test]
fn every_length_of_every_message() {
    let rig = Rig::new();
    let mut client = Client::new(&rig.path(), "{}");
    for (command, body) in messages() {
        let whole = client.ask(command, &body, &[]).error;
        let served = !matches!(command, 6 | 11 | 12 | 15 | 16);
        assert_eq!(whole, if served { 0 } else { 95 }, "command {command}");
        for len in 0..body.len() {
            let errno = client.errno(command, &body[..len], &[]);
            assert_eq!(errno, if served { EINVAL } else { 95 }, "command {command}, {len} bytes");
        }
        // The message has one byte too many. This is allowed where the room for the answer is sent
        // along.
        let longer = [&body[..], &[0]].concat();
        let error = client.ask(command, &longer, &[]).error;
        let lenient = matches!(command, GET_INFO | GET_REGION_INFO);
        assert_eq!(error != 0, !lenient, "command {command}");
    }
    // Unknown ones.
    for command in [0u16, 14, 19, 0x7fff, 0xffff] {
        assert_eq!(client.errno(command, &[], &[]), 95);
    }
    client.ok(GET_INFO, &wire![16u32, 0u32, 0u32, 0u32], &[]);
}

#[test]
fn regions_are_accessed_within_and_as_they_are() {
    let rig = Rig::new();
    let mut client = Client::new(&rig.path(), r#"{"capabilities":{"max_data_xfer_size":64}}"#);
    for (region, offset, count, why) in [
        (0u32, 0x8000u64, 4u32, "at the end"),
        (0, 0x7ffc, 8, "beyond the end"),
        (0, u64::MAX - 3, 8, "wraps"),
        (0, 1, 4, "not aligned"),
        (0, 4, 8, "not aligned"),
        (0, 0, 1, "a byte of a register"),
        (0, 0, 2, "half of one"),
        (0, 0, 16, "four"),
        (1, 0, 4, "no such BAR"),
        (6, 0, 4, "no ROM"),
        (9, 0, 4, "no such region"),
        (u32::MAX, 0, 4, "no such region"),
        (7, 0xfff, 2, "beyond configuration space"),
        (7, 0, 0, "nothing"),
        (7, 0, 65, "more than was agreed on"),
        (7, 0, u32::MAX, "far more"),
    ] {
        assert_eq!(client.errno(REGION_READ, &wire![offset, region, count], &[]), EINVAL, "{why}");
        let mut write = wire![offset, region, count];
        write.resize(16 + count.min(100) as usize, 0);
        assert_eq!(client.errno(REGION_WRITE, &write, &[]), EINVAL, "{why}");
    }
    assert_eq!(
        client.errno(REGION_WRITE, &wire![0x14u64, 0u32, 8u32, 0u32], &[]),
        EINVAL,
        "less than it says"
    );
    assert_eq!(client.read(7, 0xff, 3), [0; 3]);
    // A reserved register, and a doorbell that there is not: written, and counted as a driver's
    // fault.
    client.write(0, 0x100, &[1; 4]);
    client.write(0, 0x7ff8, &[1; 8]);
}

#[test]
fn what_is_no_message_ends_the_client_only() {
    let rig = Rig::new();
    let right = version("{}");
    for (what, bytes) in [
        ("shorter than a header", header(1, VERSION, 15, 0)),
        ("of no length", header(1, VERSION, 0, 0)),
        ("longer than any", header(1, VERSION, 0xffff_ffff, 0)),
        ("a little longer than any", header(1, VERSION, (1 << 20) + 4097, 0)),
        ("not VERSION first", header(1, GET_INFO, 16, 0)),
        ("unknown first", header(1, 99, 16, 0)),
        ("a reply", [header(1, VERSION, 16 + right.len() as u32, 1), right.clone()].concat()),
        ("another version", [header(1, VERSION, 20, 0), vec![1, 0, 0, 0]].concat()),
        ("no version", header(1, VERSION, 18, 0).into_iter().chain([0, 0]).collect()),
        ("no JSON", [header(1, VERSION, 22, 0), vec![0, 0, 1, 0, b'x', 0]].concat()),
    ] {
        let mut client = Client::connect(&rig.path());
        client.send_raw(&bytes, &[]);
        let mut answers = 0;
        while let Some(answer) = client.try_receive() {
            assert!(answer.error != 0, "{what}");
            answers += 1;
            // A client whose first command is unknown gets an answer and may go on to VERSION.
            if what == "unknown first" {
                client.introduce("{}");
                break;
            }
        }
        assert!(answers <= 1, "{what}");
        drop(client);
        Client::new(&rig.path(), "{}").ok(GET_INFO, &wire![16u32, 0u32, 0u32, 0u32], &[]);
    }
    // A second VERSION is refused, no more.
    let mut client = Client::new(&rig.path(), "{}");
    assert_eq!(client.errno(VERSION, &right, &[]), EINVAL);
    client.ok(GET_INFO, &wire![16u32, 0u32, 0u32, 0u32], &[]);
}

/// A function without a socket, on an SSD without a thread.
fn function() -> (SteppedSsd, Function) {
    let config = SsdConfig::with_namespace(1 << 16, 512);
    let medium = Medium::dram(config.total_bytes()).unwrap();
    let ssd = SteppedSsd::new(config, medium, 1).unwrap();
    let alarm = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let function = Function::plug(ssd.function_port(), Arc::new(alarm)).unwrap();
    (ssd, function)
}

fn message(command: u16, flags: u32, body: Vec<u8>, fds: Vec<OwnedFd>) -> Message {
    let bytes = header(7, command, 16 + body.len() as u32, flags);
    let header = Header::read_from_bytes(&bytes).unwrap();
    Message { header, body, fds, fds_lost: false }
}

/// Bodies that are right but for a few bytes, and bodies of anything.
fn bodies() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let changed =
        (0..messages().len(), proptest::collection::vec((any::<u8>(), any::<u8>()), 0..4))
            .prop_map(|(which, changes)| {
                let (command, mut body) = messages().swap_remove(which);
                for (at, value) in changes {
                    let len = body.len().max(1);
                    if let Some(byte) = body.get_mut(usize::from(at) % len) {
                        *byte = value;
                    }
                }
                (command, body)
            });
    let anything = (0..20u16, proptest::collection::vec(any::<u8>(), 0..80));
    prop_oneof![3 => changed, 1 => anything]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_message_breaks_it(
        messages in proptest::collection::vec((bodies(), 0..4usize, any::<bool>(), any::<bool>()), 1..40)
    ) {
        let (ssd, mut function) = function();
        function.answer(message(VERSION, 0, version("{}"), vec![]));
        let memory = Memory::new(0x10000);
        for ((command, body), fds, eventfds, no_reply) in messages {
            let fd = || {
                if eventfds {
                    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap()
                } else {
                    rustix::io::fcntl_dupfd_cloexec(memory.file.as_fd(), 0).unwrap()
                }
            };
            let flags = if no_reply { 0x10 } else { 0 };
            let reply = function.answer(message(command, flags, body, (0..fds).map(|_| fd()).collect()));
            prop_assert_eq!(reply.is_none(), no_reply);
            if let Some(reply) = reply {
                prop_assert_eq!(u32_at(&reply.bytes, 4) as usize, reply.bytes.len());
                prop_assert_eq!((u16_at(&reply.bytes, 0), u16_at(&reply.bytes, 2)), (7, command));
                let (flags, error) = (u32_at(&reply.bytes, 8), u32_at(&reply.bytes, 12));
                prop_assert_eq!(flags, if error == 0 { 1 } else { 0x21 });
            }
            ssd.run_until_idle();
        }
        prop_assert!(!function.is_over());
        function.unplug().unwrap();
    }

    #[test]
    fn no_stream_of_bytes_breaks_it(bytes in proptest::collection::vec(any::<u8>(), 0..200), plausible in any::<bool>()) {
        use std::sync::OnceLock;
        static RIG: OnceLock<Rig> = OnceLock::new();
        let rig = RIG.get_or_init(Rig::new);
        let mut client = Client::connect(&rig.path());
        if plausible {
            client.introduce("{}");
        }
        // The server may hang up in the middle.
        let _ = std::io::Write::write_all(&mut client.stream, &bytes);
        drop(client);
        Client::new(&rig.path(), "{}").ok(GET_INFO, &wire![16u32, 0u32, 0u32, 0u32], &[]);
    }
}
