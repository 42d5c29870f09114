//! Creates and changes files in an ext4 file system without the kernel: `cargo run --release -p
//! meantime --example fs_write [DEVICE]`.
//!
//! Without a device it makes a file system in memory. A device's content is kept; `/notes` is
//! created on it.

use std::error::Error;
use std::io::{Read, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use meantime::block::{self, BlockDevice};
use meantime::ext4::mkfs::{self, MakeOptions};
use meantime::ext4::{FileSystem, MountOptions, OpenOptions, Timestamp};

fn main() -> Result<(), Box<dyn Error>> {
    let named = std::env::args().nth(1);
    let uri = named.as_deref().unwrap_or("mem:64M");
    let device = block::open(uri, &block::OpenOptions::default())?;
    if named.is_none() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let now = Timestamp { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() };
        // 32 random bytes, for its UUID.
        let mut random = [0; 32];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
        mkfs::make(&device, &MakeOptions::new(random, now))?;
    }

    let fs = FileSystem::mount(device, &MountOptions { write: true, ..MountOptions::default() })?;
    fs.create_dir_all("/notes/today")?;
    let make = OpenOptions {
        read: true,
        write: true,
        create: true,
        truncate: true,
        mode: 0o644,
        ..OpenOptions::default()
    };
    let mut file = fs.open_with("/notes/today/draft", &make)?;
    file.write_all(b"Every I/O opens a gap.\n")?;
    // Durable when it returns, with all metadata needed to find it.
    file.sync_all()?;
    fs.rename("/notes/today/draft", "/notes/today/first")?;

    let mut text = String::new();
    fs.open("/notes/today/first")?.read_to_string(&mut text)?;
    print!("{}: {text}", fs.device().info().uri);
    // Without it the journal is replayed at the next mount.
    fs.unmount()?;
    Ok(())
}
