//! The server of vfio-user, without its socket: messages of any kind, one after the other, in the
//! hands of one client. Nothing may panic, every reply is well-formed, and when the client has gone
//! nothing of it is left.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::Input;
use meantime_nvme_spec::vfio_user::{Command, Flags, Header, KIND_COMMAND, KIND_REPLY};
use meantime_ssd::served::{Function, Message, Reply};
use meantime_ssd::{Medium, SsdConfig, SteppedSsd};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::MemfdFlags;

const FILE_BYTES: u64 = 1 << 16;

/// Numbers that lie at some limit, or mean something.
const NUMBERS: [u64; 24] = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    16,
    20,
    24,
    32,
    64,
    0x14,
    0x24,
    0x1000,
    0x2000,
    0x8000,
    FILE_BYTES,
    0x0046_0001,
    0x001f_001f,
    0xffff_ffff,
    1 << 32,
    u64::MAX - 0xfff,
    u64::MAX,
];

struct Client<'a> {
    input: Input<'a>,
    file: OwnedFd,
}

impl Client<'_> {
    fn number(&mut self) -> u64 {
        match self.input.u8() {
            0..=127 => self.input.pick(&NUMBERS),
            128..=191 => u64::from(self.input.u8()),
            _ => self.input.u64(),
        }
    }

    /// Fields of the widths of some message, and perhaps a few bytes more or less.
    fn body(&mut self, command: u16) -> Vec<u8> {
        let widths: &[usize] = match Command::try_from(command) {
            Ok(Command::Version) => &[2, 2],
            Ok(Command::DmaMap) => &[4, 4, 8, 8, 8],
            Ok(Command::DmaUnmap) => &[4, 4, 8, 8],
            Ok(Command::DeviceGetRegionInfo) => &[4, 4, 4, 4, 8, 8],
            Ok(Command::DeviceSetIrqs) => &[4, 4, 4, 4, 4],
            Ok(Command::RegionRead) => &[8, 4, 4],
            Ok(Command::RegionWrite) => &[8, 4, 4, 4],
            _ => &[4, 4, 4, 4],
        };
        let mut body = Vec::new();
        for &width in widths {
            body.extend_from_slice(&self.number().to_le_bytes()[..width]);
        }
        match self.input.u8() {
            0..=15 => body.truncate(usize::from(self.input.u8())),
            16..=63 => (0..self.input.u8() % 64).for_each(|_| body.push(self.input.u8())),
            64..=79 if command == Command::Version as u16 => {
                body.extend_from_slice(b"{\"capabilities\":{}}\0")
            }
            _ => {}
        }
        body
    }

    fn fds(&mut self) -> Vec<OwnedFd> {
        let count = match self.input.u8() {
            0..=127 => 0,
            128..=223 => 1,
            more => more % 17,
        };
        let eventfds = self.input.u8().is_multiple_of(2);
        let fd = |_| {
            if eventfds {
                eventfd(0, EventfdFlags::CLOEXEC).ok()
            } else {
                self.file.try_clone().ok()
            }
        };
        (0..count).filter_map(fd).collect()
    }

    fn message(&mut self) -> Message {
        let command = match self.input.u8() {
            least @ 0..=239 => u16::from(least % 20),
            _ => self.input.u16(),
        };
        let kind = if self.input.u8() == 0 { KIND_REPLY } else { KIND_COMMAND };
        let flags = Flags(0).with_kind(kind).with_no_reply(self.input.u8().is_multiple_of(8));
        let body = self.body(command);
        let header = Header {
            id: self.input.u16().into(),
            command: command.into(),
            bytes: (16 + body.len() as u32).into(),
            flags: flags.0.into(),
            error: 0.into(),
        };
        Message { header, body, fds: self.fds(), fds_lost: self.input.u8() == 255 }
    }
}

fn compare(header: &Header, reply: Option<&Reply>) {
    let no_reply = Flags(header.flags.get()).no_reply();
    assert_eq!(reply.is_none(), no_reply);
    let Some(reply) = reply else { return };
    let word = |at: usize| u32::from_le_bytes(reply.bytes[at..at + 4].try_into().unwrap());
    assert_eq!(word(4) as usize, reply.bytes.len());
    assert_eq!(word(0), u32::from(header.id.get()) | u32::from(header.command.get()) << 16);
    assert_eq!(word(8), if word(12) == 0 { 1 } else { 0x21 });
    assert!(word(12) == 0 || (reply.bytes.len() == 16 && reply.fd.is_none()));
}

/// Checks what comes of one input.
pub fn check(bytes: &[u8]) {
    let config =
        SsdConfig { max_io_queues: 4, vectors: 5, ..SsdConfig::with_namespace(1 << 16, 512) };
    let medium = Medium::dram(config.total_bytes()).unwrap();
    let ssd = SteppedSsd::new(config, medium, 1).unwrap();
    let alarm = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let mut function = Function::plug(ssd.function_port(), Arc::clone(&alarm)).unwrap();
    let file = rustix::fs::memfd_create("served", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, FILE_BYTES).unwrap();
    let mut client = Client { input: Input::new(bytes), file };
    while !client.input.is_empty() && !function.is_over() {
        let message = client.message();
        let header = message.header;
        compare(&header, function.answer(message).as_ref());
        ssd.run_until_idle();
    }
    function.unplug().unwrap();
    drop(function);
    assert_eq!(Arc::strong_count(&alarm), 1, "a mapping is left");
}
