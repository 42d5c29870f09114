//! Tests requests that no kernel sends.

use std::time::Duration;

use meantime_ext4::{FileSystem, MountOptions};
use meantime_testkit::{Rng, e2fs, image};
use zerocopy::IntoBytes as _;

use super::*;
use crate::fuse::flags::WRITE_CACHE;
use crate::fuse::wire::{CreateIn, EntryOut, InHeader, OpenIn, OpenOut, WriteIn};
use crate::session::PIECE_BYTES;

fn request(opcode: u32, nodeid: u64, body: &[u8]) -> Vec<u8> {
    let header = InHeader {
        len: (size_of::<InHeader>() + body.len()) as u32,
        opcode,
        unique: 1,
        nodeid,
        ..InHeader::default()
    };
    [header.as_bytes(), body].concat()
}

struct Asked {
    server: Server,
    answer: Answer,
}

impl Asked {
    fn ask(&mut self, opcode: u32, nodeid: u64, body: &[u8]) -> Result<Vec<u8>, Errno> {
        let bytes = request(opcode, nodeid, body);
        self.answer.clear();
        let mut request = Request::new(&bytes).unwrap();
        let done = self.server.serve(&mut request, &mut self.answer);
        done.map(|()| self.answer.finish(1, Ok(()))[16..].to_vec())
    }
}

/// Returns a server of a new file system, and the file system.
fn server() -> Option<(tempfile::TempDir, FileSystem, Asked)> {
    if !e2fs::tools() {
        return None;
    }
    let scratch = image::scratch();
    let path = image::mkfs(scratch.path(), "image", "16M", &[]);
    let fs = image::mount(&path, &MountOptions { write: true, ..image::writable() });
    let serving = Serving { timeout: Duration::from_secs(1), sync: false };
    let server = Server::new(&fs, serving, None).unwrap();
    Some((scratch, fs, Asked { server, answer: Answer::new(PIECE_BYTES) }))
}

#[test]
fn what_makes_no_sense_is_refused_and_harms_nothing() {
    let Some((_scratch, fs, mut asked)) = server() else { return };
    let mut rng = Rng::new(7);
    let create = CreateIn { flags: 0o102, mode: 0o100_644, ..CreateIn::default() };
    // A file is open, so that random handle numbers are sometimes valid.
    asked.ask(35, 1, &[create.as_bytes(), b"open\0"].concat()).unwrap();
    asked.ask(27, 1, OpenIn::default().as_bytes()).unwrap();
    let (mut done, mut refused) = (0, 0);
    for round in 0..40_u64 {
        for opcode in 0..60 {
            let len = (rng.next() % 120) as usize;
            let kind = rng.next() % 4;
            let body: Vec<u8> = (0..len)
                .map(|_| match kind {
                    0 => 0,
                    1 => 0xff,
                    2 => (rng.next() % 3) as u8,
                    _ => rng.next() as u8,
                })
                .collect();
            let nodeid = [1, 12, 0, 2, 11, u64::MAX, 1 << 32, round][(rng.next() % 8) as usize];
            match asked.ask(opcode, nodeid, &body) {
                Ok(_) => done += 1,
                Err(errno) => {
                    assert!(errno.0 > 0 && errno.0 < 200, "{opcode} {errno:?}");
                    refused += 1;
                }
            }
        }
    }
    assert!(done > 100 && refused > 1000, "{done} {refused}");
    // Valid requests still work.
    let made = asked.ask(9, 1, &[&[0xed, 1, 0, 0, 0, 0, 0, 0][..], b"dir\0"].concat()).unwrap();
    assert_eq!(made.len(), size_of::<EntryOut>());
    drop(asked);
    image::clean(&fs, "after all that");
    fs.unmount().unwrap();
}

#[test]
fn look_ups_are_counted_and_forgotten() {
    let Some((_scratch, fs, mut asked)) = server() else { return };
    let create = CreateIn { flags: 0o102, mode: 0o100_644, ..CreateIn::default() };
    let made = asked.ask(35, 1, &[create.as_bytes(), b"file\0"].concat()).unwrap();
    let nodeid = u64::from_ne_bytes(made[..8].try_into().unwrap());
    let found = asked.ask(1, 1, b"file\0").unwrap();
    assert_eq!(found, made[..found.len()]);
    let fh = &made[size_of::<EntryOut>()..];
    assert_eq!(fh.len(), size_of::<OpenOut>());
    // After unlink the inode stays as long as the kernel knows it, or has it open.
    asked.ask(10, 1, b"file\0").unwrap();
    assert!(asked.ask(3, nodeid, &[0; 16]).is_ok());
    asked.ask(2, nodeid, &1_u64.to_ne_bytes()).unwrap();
    assert!(asked.ask(3, nodeid, &[0; 16]).is_ok(), "it was told of twice");
    asked
        .ask(
            42,
            0,
            &[&[1, 0, 0, 0, 0, 0, 0, 0][..], &nodeid.to_ne_bytes(), &1_u64.to_ne_bytes()].concat(),
        )
        .unwrap();
    assert_eq!(asked.ask(3, nodeid, &[0; 16]), Err(Errno(libc::ESTALE)));
    let free = fs.usage().unwrap().free_inodes;
    asked.ask(18, nodeid, &[&fh[..8], &[0; 16]].concat()).unwrap();
    assert_eq!(fs.usage().unwrap().free_inodes, free + 1, "nobody has it any more");
    // A negative answer can be cached, too.
    let missing = asked.ask(1, 1, b"file\0").unwrap();
    assert_eq!((&missing[..8], missing[16]), (&[0; 8][..], 1));
}

#[test]
fn pieces_of_a_direct_append_may_come_in_any_order() {
    let Some((_scratch, fs, mut asked)) = server() else { return };
    let create = CreateIn { flags: 0o2102, mode: 0o100_644, ..CreateIn::default() };
    let made = asked.ask(35, 1, &[create.as_bytes(), b"log\0"].concat()).unwrap();
    let nodeid = u64::from_ne_bytes(made[..8].try_into().unwrap());
    let at = size_of::<EntryOut>();
    let fh = u64::from_ne_bytes(made[at..at + 8].try_into().unwrap());
    let mut write = |offset, byte, flags: i32, write_flags| {
        let data = [byte; 4096];
        let write = WriteIn {
            fh,
            offset,
            size: 4096,
            flags: flags as u32,
            write_flags,
            ..WriteIn::default()
        };
        asked.ask(16, nodeid, &[write.as_bytes(), &data[..]].concat()).unwrap();
    };
    let append = libc::O_APPEND | libc::O_WRONLY;
    write(4096, b'b', append | libc::O_DIRECT, 0);
    write(0, b'a', append | libc::O_DIRECT, 0);
    // Other writes do not depend on the kernel's end of file. Cached pages do not depend on the
    // flags of the file by which they are written.
    write(0, b'c', append, 0);
    write(0, b'A', append, WRITE_CACHE);
    drop(asked);
    let expected = [[b'A'; 4096], [b'b'; 4096], [b'c'; 4096]].concat();
    assert!(fs.read("/log").unwrap() == expected);
    fs.unmount().unwrap();
}
