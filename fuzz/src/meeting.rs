//! What may come over the socket by which a client and the owner meet: the input is messages, with
//! descriptors. Either side takes what is right and nothing else, and keeps no descriptor that it
//! does not want.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::LazyLock;

use crate::Input;
use meantime_shm_rpc::client::Caller;
use meantime_shm_rpc::closings::{Closings, ClosingsView};
use meantime_shm_rpc::message::{Attributes, Taken};
use meantime_shm_rpc::owner::Answerer;
use meantime_shm_rpc::socket;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};

/// The closings, a line, memory of their sizes that could shrink, and something else.
static FILES: LazyLock<[OwnedFd; 5]> = LazyLock::new(|| {
    let memory = |bytes| {
        let memory =
            rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
        rustix::fs::ftruncate(&memory, bytes).expect("a size");
        memory
    };
    let closings = Closings::new().expect("closings");
    let closings = closings.for_clients().try_clone().expect("a descriptor");
    let (line, memory_of_line) = Answerer::new().expect("a line");
    // Or it would have ended.
    std::mem::forget(line);
    let null = File::open("/dev/null").expect("/dev/null").into();
    [closings, memory_of_line, memory(131_072), memory(1_052_672), null]
});

struct Message {
    bytes: Vec<u8>,
    descriptors: usize,
    file: usize,
}

impl Message {
    fn of(input: &mut Input<'_>) -> Self {
        let mut bytes = input.pick(&[&b""[..], b"l", b"y", b"n", b"mtshmq\x00\x01"]).to_vec();
        let more = usize::from(input.u8()) % 32;
        bytes.extend(std::iter::repeat_with(|| input.u8()).take(more));
        Self {
            bytes,
            descriptors: usize::from(input.u8()) % 4,
            file: usize::from(input.u8()) % FILES.len(),
        }
    }

    fn send(&self, socket: &OwnedFd) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let all = [FILES[self.file].as_fd(); 3];
        if self.descriptors > 0 {
            ancillary.push(SendAncillaryMessage::ScmRights(&all[..self.descriptors]));
        }
        let bytes = [IoSlice::new(&self.bytes)];
        sendmsg(socket, &bytes, &mut ancillary, SendFlags::NOSIGNAL).expect("there is room");
    }
}

/// The lowest descriptor that is free: a higher one than before shows that one stayed open.
fn lowest_free() -> i32 {
    FILES[4].try_clone().expect("a descriptor").as_raw_fd()
}

fn meet(input: &mut Input<'_>) {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("a pair of sockets");
    match input.u8() % 3 {
        0 => {
            let messages: Vec<_> = (0..8).map(|_| Message::of(input)).collect();
            messages.iter().for_each(|message| message.send(&theirs));
            rustix::net::shutdown(&theirs, rustix::net::Shutdown::Write).expect("it is connected");
            for message in &messages {
                let is_ask = message.bytes == b"l" && message.descriptors == 0;
                let is_end = message.bytes.is_empty() && message.descriptors == 0;
                let asked = socket::wait_for_ask(&ours);
                assert_eq!(asked.ok(), (is_ask || is_end).then_some(is_ask));
                let _ = socket::answer_ask(&ours, Some(&FILES[1]));
            }
            assert!(matches!(socket::wait_for_ask(&ours), Ok(false)));
        }
        1 => {
            let message = Message::of(input);
            message.send(&theirs);
            let is_hello = message.bytes.len() == 24
                && message.bytes.starts_with(b"mtshmq\x00\x01")
                && message.descriptors == 1;
            let hello = socket::receive_hello(&ours);
            assert_eq!(hello.is_ok(), is_hello);
            if let Ok((nonce, memory)) = hello {
                assert_eq!(nonce, message.bytes[8..]);
                assert_eq!(ClosingsView::new(&memory).is_ok(), message.file == 0);
            }
        }
        _ => {
            let message = Message::of(input);
            message.send(&theirs);
            let line = socket::ask_line(&ours);
            assert_eq!(line.is_ok(), message.bytes == b"y" && message.descriptors == 1);
            if let Ok(memory) = line {
                assert_eq!(Caller::new(&memory).is_ok(), message.file == 1);
            }
        }
    }
}

/// Checks what comes of one input.
pub fn check(bytes: &[u8]) {
    LazyLock::force(&FILES);
    let before = lowest_free();
    meet(&mut Input::new(bytes));
    assert_eq!(lowest_free(), before, "a descriptor stays open");
    if let Some(bytes) = bytes.first_chunk() {
        let taken = Taken::from_bytes(bytes);
        assert_eq!(Taken::from_bytes(&taken.to_bytes()), taken);
    }
    if let Some(bytes) = bytes.first_chunk() {
        assert_eq!(Attributes::from_bytes(bytes).to_bytes(), *bytes);
    }
}
