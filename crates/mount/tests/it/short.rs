//! The rules of the shared-memory path from the outside, with a client written by hand
//! (docs/shared-memory-path.md).

#![expect(unsafe_code, reason = "an ioctl, and a client's buffers, which are a C program's")]

use std::fs::{self, File, OpenOptions};
use std::io::{Seek as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use meantime_mount::Options;
use meantime_shm_rpc::client::Caller;
use meantime_shm_rpc::closings::ClosingsView;
use meantime_shm_rpc::message::{APPEND, DIRECT, Nonce, Op, Reply, Request, Status, TAKE, Taken};
use meantime_shm_rpc::{Ended, socket};
use rustix::fs::{AtFlags, StatxFlags};

use crate::served::Served;

/// Returns options with a shared-memory path, and the name of its socket.
fn options() -> (Options, String) {
    static NUMBERS: AtomicU32 = AtomicU32::new(0);
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let name = format!("meantime-test-{}-{number}", std::process::id());
    (Options { shared_memory: Some(name.clone()), ..Options::default() }, name)
}

/// A program's connection, with one line.
struct Client {
    nonce: Nonce,
    closings: ClosingsView,
    caller: Caller,
    _socket: OwnedFd,
}

impl Client {
    fn new(name: &str) -> Self {
        let socket = socket::connect(name).unwrap();
        let (nonce, closings) = socket::receive_hello(&socket).unwrap();
        let caller = Caller::new(&socket::ask_line(&socket).unwrap()).unwrap();
        Self { nonce, closings: ClosingsView::new(&closings).unwrap(), caller, _socket: socket }
    }

    fn take(&self, file: &File) -> Result<Taken, i32> {
        let mut bytes = [0_u8; 32];
        bytes[..16].copy_from_slice(&self.nonce);
        // SAFETY: the ioctl's number says that it reads and writes 32 bytes.
        let taken = unsafe { libc::ioctl(file.as_raw_fd(), u64::from(TAKE), bytes.as_mut_ptr()) };
        if taken < 0 {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap());
        }
        Ok(Taken::from_bytes(&bytes))
    }

    fn call(&mut self, op: Op, flags: u32, of: Taken, offset: u64, len: usize) -> Reply {
        let request = Request {
            op,
            flags,
            handle: of.handle,
            closings: of.closings,
            offset,
            len: len as u32,
        };
        self.caller.call(&request, || true).unwrap()
    }

    fn write(&mut self, of: Taken, offset: u64, data: &[u8], flags: u32) -> Reply {
        // SAFETY: a slice can be read.
        unsafe { self.caller.put(0, data.as_ptr(), data.len()) };
        self.call(Op::Write, flags, of, offset, data.len())
    }

    fn read(&mut self, of: Taken, offset: u64, len: usize) -> Result<Vec<u8>, Reply> {
        let reply = self.call(Op::Read, 0, of, offset, len);
        if reply.status != Status::Done || reply.result < 0 {
            return Err(reply);
        }
        let mut data = vec![0; reply.result as usize];
        // SAFETY: a slice can be written.
        unsafe { self.caller.get(0, data.as_mut_ptr(), data.len()) };
        Ok(data)
    }
}

fn open(dir: &Path, name: &str) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).open(dir.join(name)).unwrap()
}

/// Runs `test` with a mount's directory and the name of its shared-memory path's socket.
fn on_a_mount(test: impl FnOnce(&Path, &str) + Send + 'static) {
    let (options, name) = options();
    let Some(served) = Served::new("32M", &options) else { return };
    served.used(move |dir| test(dir, &name));
    served.end();
}

#[test]
fn what_is_written_one_way_is_read_the_other_way() {
    on_a_mount(|dir, name| {
        let mut client = Client::new(name);
        let file = open(dir, "file");
        let taken = client.take(&file).unwrap();
        assert_eq!(client.take(&file).unwrap().handle, taken.handle, "the same open file");
        assert_eq!(client.write(taken, 0, b"short", 0), Reply::done(5, 5));
        assert_eq!(client.write(taken, 0, b" end", APPEND), Reply::done(4, 9));
        assert_eq!(client.read(taken, 0, 100).unwrap(), b"short end");
        assert_eq!(client.call(Op::SyncAll, 0, taken, 0, 0), Reply::done(0, 0));
        // The kernel asks for attributes each time.
        for size in 10..20 {
            client.write(taken, size - 1, b"x", 0);
            assert_eq!(fs::metadata(dir.join("file")).unwrap().len(), size);
        }
        client.call(Op::Truncate, 0, taken, 5, 0);
        assert_eq!(file.metadata().unwrap().size(), 5);
        // The first read through the kernel's cache ends it.
        assert_eq!(fs::read(dir.join("file")).unwrap(), b"short");
        assert_eq!(client.read(taken, 0, 5).unwrap_err(), Reply::without(Status::Long));
        assert_eq!(client.write(taken, 0, b"none", 0), Reply::without(Status::Long));
        assert_eq!(client.take(&file), Err(libc::EBUSY));
        file.write_all_at(b"long!", 0).unwrap();
        assert_eq!(fs::read(dir.join("file")).unwrap(), b"long!");
        let left = open(dir, "left");
        let left = client.take(&left).unwrap();
        assert_eq!(client.call(Op::Leave, 0, left, 0, 0), Reply::done(0, 0));
        assert_eq!(client.write(left, 0, b"none", 0), Reply::without(Status::Long));
        // There is a new gate when all have closed the old one. The kernel drops what it kept.
        drop(file);
        let file = (0..100).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let file = open(dir, "file");
            client.take(&file).ok().map(|taken| (file, taken))
        });
        let (_file, taken) = file.expect("the close arrives within a second");
        client.write(taken, 0, b"again", 0);
        assert_eq!(fs::read(dir.join("file")).unwrap(), b"again");
    });
}

#[test]
fn direct_access_by_the_kernel_leaves_the_shared_memory_path_open() {
    on_a_mount(|dir, name| {
        let mut client = Client::new(name);
        let file = open(dir, "file");
        let taken = client.take(&file).unwrap();
        client.write(taken, 0, &[1; 8192], 0);
        let mut direct = OpenOptions::new();
        let direct = direct.read(true).write(true).custom_flags(libc::O_DIRECT);
        let direct = direct.open(dir.join("file")).unwrap();
        let mut room = vec![0_u8; 3 * 4096];
        let begin = room.as_ptr().align_offset(4096);
        let page = &mut room[begin..begin + 4096];
        direct.read_exact_at(page, 4096).unwrap();
        assert!(page.iter().all(|byte| *byte == 1));
        page.fill(2);
        direct.write_all_at(page, 0).unwrap();
        assert_eq!(
            client.read(taken, 4000, 200).unwrap(),
            [[2; 96].as_slice(), &[1; 104]].concat()
        );
        assert_eq!(client.write(taken, 4096, &[3; 4096], DIRECT).result, 4096);
        direct.read_exact_at(page, 4096).unwrap();
        assert!(page.iter().all(|byte| *byte == 3));
    });
}

#[test]
fn closes_are_counted_before_they_return_and_handles_end() {
    on_a_mount(|dir, name| {
        let mut client = Client::new(name);
        let file = open(dir, "file");
        let taken = client.take(&file).unwrap();
        let count = |client: &Client| client.closings.count(taken.word).unwrap();
        assert_eq!(count(&client), taken.closings);
        let copy = file.try_clone().unwrap();
        drop(copy);
        assert_eq!(count(&client), taken.closings + 1);
        assert_eq!(client.call(Op::Read, 0, taken, 0, 1).status, Status::Stale, "asked before it");
        let again = client.take(&file).unwrap();
        assert_eq!(client.call(Op::Read, 0, again, 0, 1), Reply::done(0, 0));
        assert_eq!((again.handle, again.closings), (taken.handle, taken.closings + 1));
        drop(file);
        assert!(count(&client) > taken.closings + 1);
        let is_stale = (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            client.call(Op::Read, 0, taken, 0, 1).status == Status::Stale
        });
        assert!(is_stale, "the handle ends with the open file");
        let other = open(dir, "other");
        let other = client.take(&other).unwrap();
        assert_ne!(other.handle, taken.handle);
        assert_eq!(client.call(Op::Read, 0, taken, 0, 1).status, Status::Stale);
        for handle in [u64::MAX, other.handle + 1, other.handle + (1 << 32)] {
            let unknown = Taken { handle, ..other };
            assert_eq!(client.call(Op::Read, 0, unknown, 0, 1).status, Status::Stale);
        }
    });
}

#[test]
fn rights_are_those_of_the_descriptor() {
    on_a_mount(|dir, name| {
        let mut client = Client::new(name);
        drop(open(dir, "file"));
        let read_only = File::open(dir.join("file")).unwrap();
        let taken = client.take(&read_only).unwrap();
        assert_eq!(client.write(taken, 0, b"no", 0).result, -i64::from(libc::EBADF));
        assert_eq!(client.call(Op::Truncate, 0, taken, 0, 0).result, -i64::from(libc::EINVAL));
        let write_only = File::options().write(true).open(dir.join("file")).unwrap();
        let taken = client.take(&write_only).unwrap();
        assert_eq!(client.read(taken, 0, 1).unwrap_err().result, -i64::from(libc::EBADF));
        // A write may have to drop the set-user bit, which is the kernel's to decide.
        fs::set_permissions(dir.join("file"), fs::Permissions::from_mode(0o4755)).unwrap();
        assert_eq!(client.write(taken, 0, b"no", 0).status, Status::Long);
        // Another connection's secret, and another one's handle.
        let mut other = Client::new(name);
        assert_eq!(other.call(Op::Read, 0, taken, 0, 1).status, Status::Stale);
        other.nonce[0] ^= 1;
        assert_eq!(other.take(&write_only), Err(libc::EACCES));
        let dir = File::open(dir).unwrap();
        assert!(client.take(&dir).is_err(), "a directory");
    });
}

#[test]
fn a_program_without_the_library_maps_what_has_grown() {
    let (options, name) = options();
    let Some(served) = Served::new("32M", &options) else { return };
    let dir = served.dir();
    let (client, file) = served.used(move |dir| {
        let mut client = Client::new(&name);
        let file = open(dir, "file");
        let taken = client.take(&file).unwrap();
        client.write(taken, 0, &[7; 100], 0);
        (client, file)
    });
    // It opens the file, waits until that has grown, and maps it without asking for the size.
    let script = "import mmap, os, sys\n\
                  fd = os.open('file', os.O_RDONLY)\n\
                  print('open', flush=True)\n\
                  sys.stdin.readline()\n\
                  import ctypes\n\
                  c = ctypes.CDLL(None)\n\
                  c.mmap.restype = ctypes.c_void_p\n\
                  at = c.mmap(None, ctypes.c_size_t(1 << 16), 1, 1, fd, ctypes.c_long(0))\n\
                  print(ctypes.string_at(at + 40000, 1)[0])";
    let mut program = std::process::Command::new("timeout")
        .args(["-s", "KILL", "60", "python3", "-c", script])
        .current_dir(&dir)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(program.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line, "open\n");
    served.used(move |_| {
        let mut client = client;
        // The program closed the copies that it inherited.
        let taken = client.take(&file).unwrap();
        assert_eq!(client.write(taken, 0, b"within", 0), Reply::done(6, 6));
        let longer = client.write(taken, 0, &[9; 50_000], 0);
        let resized = Reply { status: Status::Resized, ..Reply::done(50_000, 50_000) };
        assert_eq!(longer, resized, "the kernel has to know of it");
        // The library does the same before its call returns.
        rustix::fs::statx(
            &file,
            c"",
            AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC,
            StatxFlags::SIZE,
        )
        .unwrap();
    });
    drop(program.stdin.take());
    line.clear();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line, "9\n", "{:?}", program.wait());
    program.wait().unwrap();
    served.end();
}

#[test]
fn a_program_without_the_library_appends_to_what_was_cut() {
    on_a_mount(|dir, name| {
        let mut client = Client::new(name);
        for (number, flags) in [0, libc::O_DIRECT].into_iter().enumerate() {
            let name = format!("file{number}");
            let file = open(dir, &name);
            let taken = client.take(&file).unwrap();
            client.write(taken, 0, &[1; 9000], 0);
            let mut append = OpenOptions::new();
            let mut append = append.append(true).custom_flags(flags).open(dir.join(&name)).unwrap();
            // The kernel has to know where it ends.
            let cut = client.call(Op::Truncate, 0, taken, 512, 0);
            assert_eq!(cut, Reply::without(Status::Long));
            let same = client.call(Op::Truncate, 0, taken, 9000, 0);
            assert_eq!(same, Reply { status: Status::Resized, ..Reply::done(0, 0) });
            file.set_len(512).unwrap();
            append.write_all(&[2; 512]).unwrap();
            assert_eq!(append.stream_position().unwrap(), 1024);
            assert_eq!(fs::read(dir.join(&name)).unwrap(), [[1; 512], [2; 512]].concat());
        }
    });
}

#[test]
fn the_end_of_the_mount_ends_lines() {
    let (options, name) = options();
    let Some(mut served) = Served::new("32M", &options) else { return };
    let mut client = served.used(move |dir| {
        let mut client = Client::new(&name);
        let file = open(dir, "file");
        let taken = client.take(&file).unwrap();
        client.write(taken, 0, b"text", 0);
        client
    });
    served.unmount();
    let request = Request { op: Op::Read, flags: 0, handle: 0, closings: 0, offset: 0, len: 1 };
    assert_eq!(client.caller.call(&request, || true), Err(Ended));
    assert_eq!(served.unmounted().read("/file").unwrap(), b"text");
}

#[test]
fn what_lines_have_of_memory_has_a_limit_in_all() {
    let (options, name) = options();
    let options = Options { shared_memory_limit: Some(5 << 20), ..options };
    let Some(mut served) = Served::new("32M", &options) else { return };
    let calls = served.mounted().calls().unwrap();
    served.used(move |dir| {
        let file = open(dir, "file");
        let large = vec![7; 1 << 20];
        let mut clients: Vec<_> = (0..3).map(|_| Client::new(&name)).collect();
        let (first, rest) = clients.split_at_mut(2);
        for client in first {
            let taken = client.take(&file).unwrap();
            assert_eq!(client.write(taken, 0, &large, 0), Reply::done(1 << 20, 1 << 20));
        }
        // There is no memory for a third call of this size, but there is for a smaller one.
        let other = open(dir, "other");
        let taken = rest[0].take(&other).unwrap();
        assert_eq!(rest[0].write(taken, 0, &large, 0), Reply::without(Status::Long));
        assert_eq!(rest[0].write(taken, 0, b"small", 0), Reply::without(Status::Long));
        let taken = rest[0].take(&file).unwrap();
        assert_eq!(rest[0].write(taken, 0, &large[..4096], 0), Reply::done(4096, 4096));
        let sockets: Vec<_> = (0..20).map(|_| socket::connect(&name).unwrap()).collect();
        let lines = sockets.iter().map(|socket| {
            socket::receive_hello(socket).unwrap();
            socket::ask_line(socket)
        });
        let refused = lines.filter(|line| line.is_err()).count();
        assert!((1..20).contains(&refused), "{refused}");
        let used = calls.get().line_bytes;
        assert!((4 << 20..=5 << 20).contains(&used), "{used}");
        drop((clients, sockets));
        // A client that ends gives its memory back. The threads of its lines end some moments
        // later.
        while calls.get().line_bytes > 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    served.unmount();
}

/// Counts the lines of the shared-memory path.
struct Lines;

static LINES: AtomicU32 = AtomicU32::new(0);

impl tracing::Subscriber for Lines {
    fn enabled(&self, of: &tracing::Metadata<'_>) -> bool {
        of.target().starts_with("meantime_mount::server::shared_memory")
            && *of.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        LINES.fetch_add(1, Ordering::SeqCst);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn programs_that_are_refused_in_a_loop_are_said_once_and_counted() {
    let (options, name) = options();
    let options = Options { shared_memory_limit: Some(1 << 20), ..options };
    let Some(mut served) = Served::new("32M", &options) else { return };
    tracing::subscriber::set_global_default(Lines).unwrap();
    served.used(move |_| {
        let connected = || {
            let socket = socket::connect(&name).unwrap();
            let hello = socket::receive_hello(&socket);
            hello.map(|_| socket)
        };
        let clients: Vec<_> = std::iter::from_fn(|| connected().ok()).collect();
        assert_eq!(clients.len(), 256);
        for _ in 0..200 {
            assert!(connected().is_err());
        }
        assert_eq!(LINES.load(Ordering::SeqCst), 1);
        let lines: Vec<_> = clients.iter().map(socket::ask_line).collect();
        assert!(lines.iter().filter(|line| line.is_err()).count() > 200);
        assert_eq!(LINES.load(Ordering::SeqCst), 2);
    });
    served.unmount();
    // At the end, one line for each of the two says how often it happened.
    assert_eq!(LINES.load(Ordering::SeqCst), 4);
}
