//! What a vfio-user server may send: the input is all of it, bytes and a descriptor somewhere among
//! them. The client takes it or gives the server up; it neither hangs nor panics, and what it has
//! given up stays so.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};

use meantime_hw::pages::Pages;
use meantime_hw::{DmaLimits, DmaMap, EventFd, Transport, UserOptions, UserTransport};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

static PAGES: LazyLock<Arc<Pages>> = LazyLock::new(|| {
    let limits = DmaLimits { shared: true, ..DmaLimits::default() };
    Arc::new(Pages::map(2 << 20, &limits).expect("memory"))
});

/// The file of a good server's doorbells, a short one, and something else. They are never made
/// shorter: that is SIGBUS.
static FILES: LazyLock<[OwnedFd; 3]> = LazyLock::new(|| {
    let memory = |bytes| {
        let fd = rustix::fs::memfd_create("doorbells", rustix::fs::MemfdFlags::CLOEXEC)
            .expect("a memfd");
        rustix::fs::ftruncate(&fd, bytes).expect("a size");
        fd
    };
    [memory(0x2000), memory(0x1000), File::open("/dev/null").expect("/dev/null").into()]
});

fn send(stream: &UnixStream, mut bytes: &[u8], mut file: Option<&OwnedFd>) {
    while !bytes.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = file.take().map(AsFd::as_fd);
        if fds.is_some() {
            control.push(SendAncillaryMessage::ScmRights(fds.as_slice()));
        }
        let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
        bytes = &bytes[sent.expect("there is room")..];
    }
}

// Two bytes say where the descriptor is, one which; what follows is sent.
/// Checks what comes of one input.
pub fn check(input: &[u8]) {
    let [low, high, which, bytes @ ..] = input else { return };
    let (before, after) =
        bytes.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(bytes.len()));
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    send(&theirs, before, None);
    send(&theirs, after, FILES.get(usize::from(*which)));
    theirs.shutdown(std::net::Shutdown::Write).expect("it is connected");

    // The end of what is sent is seen at once: whoever takes this long hangs.
    let options = UserOptions { timeout_ns: 60_000_000_000 };
    let Ok(transport) = UserTransport::over(ours, "fuzzer".into(), &options) else { return };
    let _ = (transport.read64(0), transport.read32(0x1c));
    for offset in [0x1000, 0x1004, 0x2ffc] {
        // SAFETY: the server is the input, and reaches no memory but `PAGES`, which nobody looks
        // at.
        if let Ok(bell) = unsafe { transport.doorbell(offset) } {
            bell.write_tail(1);
            bell.write_head(1);
        }
    }
    let mapped = transport.map_dma(1 << 32, &PAGES).is_ok();
    if transport.vectors() > 1 {
        let event = EventFd::new().expect("an eventfd");
        let _ = transport.set_vector(1, Some(&event));
        let _ = transport.set_vector(1, None);
    }
    // SAFETY: as above.
    let unmap = || unsafe { transport.unmap_dma(1 << 32) };
    let unmapped = unmap().is_ok();
    assert!(mapped || !unmapped);
    if transport.is_gone() {
        assert_eq!((transport.read32(0), transport.read64(0)), (u32::MAX, u64::MAX));
        assert!(transport.map_dma(1 << 33, &PAGES).is_err());
        // This process lives, and so may the server.
        assert!(!mapped || unmapped || unmap().is_err());
        assert!(transport.is_gone());
    }
}
