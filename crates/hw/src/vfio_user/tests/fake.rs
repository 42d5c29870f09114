//! A server scripted by a test, its bytes typed from the protocol.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

pub(super) const VERSION: u16 = 1;
pub(super) const DMA_MAP: u16 = 2;
pub(super) const DMA_UNMAP: u16 = 3;
pub(super) const GET_INFO: u16 = 4;
pub(super) const GET_REGION_INFO: u16 = 5;
pub(super) const GET_IRQ_INFO: u16 = 7;
pub(super) const REGION_READ: u16 = 9;
pub(super) const REGION_WRITE: u16 = 10;
pub(super) const DMA_READ: u16 = 11;
pub(super) const RESET: u16 = 13;

pub(super) const REPLY: u32 = 1;
pub(super) const NO_REPLY: u32 = 1 << 4;
pub(super) const ERROR: u32 = 1 << 5;

/// A message as received.
#[derive(Debug)]
pub(super) struct Message {
    pub id: u16,
    pub command: u16,
    pub flags: u32,
    pub body: Vec<u8>,
    pub fds: Vec<OwnedFd>,
}

impl Message {
    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.body[at..at + 4].try_into().unwrap())
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.body[at..at + 8].try_into().unwrap())
    }

    /// The reply with `body`.
    pub(super) fn reply(&self, body: &[u8]) -> Answer {
        Answer::bytes(message(self.id, self.command, REPLY, 0, body))
    }

    /// An error reply.
    pub(super) fn error(&self, errno: u32) -> Answer {
        Answer::bytes(message(self.id, self.command, REPLY | ERROR, errno, &[]))
    }
}

/// The bytes of a message.
pub(super) fn message(id: u16, command: u16, flags: u32, error: u32, body: &[u8]) -> Vec<u8> {
    let size = 16 + body.len() as u32;
    [
        &id.to_le_bytes()[..],
        &command.to_le_bytes(),
        &size.to_le_bytes(),
        &flags.to_le_bytes(),
        &error.to_le_bytes(),
        body,
    ]
    .concat()
}

/// The server's reaction.
#[derive(Default)]
pub(super) struct Answer {
    pub bytes: Vec<u8>,
    pub fds: Vec<OwnedFd>,
    /// Whether to close the connection afterwards.
    pub close: bool,
}

impl Answer {
    pub(super) fn bytes(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Self::default() }
    }

    pub(super) fn with(mut self, fd: impl Into<OwnedFd>) -> Self {
        self.fds.push(fd.into());
        self
    }

    pub(super) fn and_close(mut self) -> Self {
        self.close = true;
        self
    }
}

/// A test's reaction to a message: `None` is the default of a good server.
pub(super) type Script = Box<dyn FnMut(&Message) -> Option<Answer> + Send>;

pub(super) struct Fake {
    pub stream: UnixStream,
    pub state: State,
    script: Script,
    seen: Arc<Mutex<Vec<Message>>>,
}

/// A dummy device: registers and a configuration space that keep written values.
pub(super) struct State {
    pub config: [u8; 256],
    pub bar: Vec<u8>,
    /// The file of the doorbells, whose page at 1000h is shared.
    pub file: std::fs::File,
}

impl State {
    pub(super) fn new() -> Self {
        let mut config = [0; 256];
        config[0x06] = 0x10;
        config[0x09..0x0c].copy_from_slice(&[0x02, 0x08, 0x01]);
        config[0x34] = 0x40;
        // MSI-X, 9 vectors, left enabled by an earlier client.
        config[0x40..0x4c].copy_from_slice(&[0x11, 0, 0x08, 0x80, 0, 0x20, 0, 0, 0, 0x30, 0, 0]);
        let mut bar = vec![0; 0x4000];
        bar[..8].copy_from_slice(&0x1122_3344_5566_7788u64.to_le_bytes());
        Self { config, bar, file: memfd(0x2000) }
    }
}

pub(super) fn memfd(bytes: u64) -> std::fs::File {
    let fd = rustix::fs::memfd_create("fake", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let file = std::fs::File::from(fd);
    file.set_len(bytes).unwrap();
    file
}

/// The first 32-bit number at `at` of `file`.
pub(super) fn word_of(file: &std::fs::File, at: u64) -> u32 {
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, at).unwrap();
    u32::from_le_bytes(bytes)
}

/// Starts a server. Returns our end of its connection, its received messages, and the thread, which
/// returns the device at the end.
pub(super) fn start(
    state: State,
    script: Script,
) -> (UnixStream, Arc<Mutex<Vec<Message>>>, JoinHandle<State>) {
    let (ours, stream) = UnixStream::pair().unwrap();
    let seen = Arc::<Mutex<Vec<Message>>>::default();
    let fake = Fake { stream, state, script, seen: Arc::clone(&seen) };
    (ours, seen, std::thread::spawn(move || fake.run()))
}

impl Fake {
    pub(super) fn over(stream: UnixStream, script: Script) -> Self {
        Self { stream, state: State::new(), script, seen: Arc::default() }
    }

    pub(super) fn run(mut self) -> State {
        while let Some(message) = self.receive() {
            let quiet = message.flags & (NO_REPLY | REPLY) != 0;
            let answer = (self.script)(&message).or_else(|| self.answer(&message));
            self.seen.lock().unwrap().push(message);
            let Some(answer) = answer.filter(|_| !quiet) else { continue };
            self.send(&answer);
            if answer.close {
                break;
            }
        }
        self.state
    }

    fn receive(&mut self) -> Option<Message> {
        let mut header = [0; 16];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [std::io::IoSliceMut::new(&mut header)];
        let got = recvmsg(&self.stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
        if got.bytes == 0 {
            return None;
        }
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                fds.extend(more);
            }
        }
        assert_eq!(got.bytes, 16, "a header comes in one piece");
        let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let mut body = vec![0; word(4) as usize - 16];
        self.stream.read_exact(&mut body).ok()?;
        Some(Message { id: half(0), command: half(2), flags: word(8), body, fds })
    }

    fn send(&mut self, answer: &Answer) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<_> = answer.fds.iter().map(AsFd::as_fd).collect();
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        }
        // The test may have stopped listening.
        let _ = sendmsg(
            &self.stream,
            &[IoSlice::new(&answer.bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        );
    }

    /// The answer of a good server.
    fn answer(&mut self, message: &Message) -> Option<Answer> {
        let words =
            |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        Some(match message.command {
            VERSION => message
                .reply(b"\0\0\x01\0{\"capabilities\":{\"max_msg_fds\":1,\"max_dma_maps\":5}}\0"),
            // RESET | PCI, 9 regions, 5 kinds of interrupts.
            GET_INFO => message.reply(&words(&[16, 3, 9, 5])),
            GET_REGION_INFO => match (message.u32(8), message.u32(0)) {
                // READ | WRITE, 256 bytes.
                (7, _) => message.reply(&words(&[32, 3, 7, 0, 256, 0, 0, 0])),
                // READ | WRITE | MMAP, 4000h bytes, and more to say.
                (0, ..64) => message.reply(&words(&[64, 7, 0, 0, 0x4000, 0, 0, 0])),
                (0, _) => message
                    .reply(&words(&[
                        64,
                        15,
                        0,
                        32,
                        0x4000,
                        0,
                        0,
                        0, // The region, its capabilities from 32 on.
                        0x0001_0001,
                        0,
                        1,
                        0, // Sparse areas, version 1, the last; one.
                        0x1000,
                        0,
                        0x1000,
                        0,
                    ]))
                    .with(self.state.file.try_clone().unwrap()),
                _ => message.error(22),
            },
            // Eventfds, 9 vectors.
            GET_IRQ_INFO => message.reply(&words(&[16, 1, 2, 9])),
            REGION_READ => {
                let (at, count) = (message.u64(0) as usize, message.u32(12) as usize);
                let from =
                    if message.u32(8) == 7 { &self.state.config[..] } else { &self.state.bar };
                let data = &from[at..at + count];
                message.reply(&[&message.body, data].concat())
            }
            REGION_WRITE => {
                let (at, data) = (message.u64(0) as usize, &message.body[16..]);
                let to = if message.u32(8) == 7 {
                    &mut self.state.config[..]
                } else {
                    &mut self.state.bar
                };
                to[at..at + data.len()].copy_from_slice(data);
                message.reply(&message.body[..16])
            }
            DMA_UNMAP => message.reply(&message.body),
            _ => message.reply(&[]),
        })
    }
}
