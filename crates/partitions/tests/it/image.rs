//! Images of disks, and what other tools say of them.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use meantime_partitions::{Partition, Signature, Size, Table, TableError, TableKind, signature};
use meantime_testkit::e2fs::{command, has, run_for};
use serde_json::Value;

/// A disk in a file.
pub(crate) struct Image {
    pub(crate) path: PathBuf,
    pub(crate) block_bytes: u32,
    _dir: tempfile::TempDir,
}

/// A loop device, which gives an image blocks of another size.
pub(crate) struct LoopDevice(PathBuf);

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = command("losetup").arg("-d").arg(&self.0).status();
    }
}

impl Image {
    pub(crate) fn new(mib: u64, block_bytes: u32) -> Self {
        let dir = meantime_testkit::image::scratch();
        let path = dir.path().join("disk");
        File::create_new(&path).unwrap().set_len(mib << 20).unwrap();
        Self { path, block_bytes, _dir: dir }
    }

    /// An image that contains `bytes`.
    pub(crate) fn of(bytes: &[u8], block_bytes: u32) -> Self {
        let image = Self::new(0, block_bytes);
        std::fs::write(&image.path, bytes).unwrap();
        image
    }

    pub(crate) fn text(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Runs `sfdisk` with a script.
    pub(crate) fn sfdisk(&self, script: &str) {
        let device = self.loop_device();
        let path = device.as_ref().map_or(&self.path, |device| &device.0);
        feed("sfdisk", &["--no-reread", "--no-tell-kernel", "-q", path.to_str().unwrap()], script);
    }

    /// A loop device with blocks of the size of the image's, unless programs take these for
    /// granted.
    fn loop_device(&self) -> Option<LoopDevice> {
        (self.block_bytes != 512).then(|| loop_device(&self.path, self.block_bytes).unwrap())
    }

    pub(crate) fn size(&self) -> Size {
        let bytes = std::fs::metadata(&self.path).unwrap().len();
        Size { block_bytes: self.block_bytes, blocks: bytes / u64::from(self.block_bytes) }
    }

    pub(crate) fn read(&self) -> Result<Option<Table>, TableError<std::io::Error>> {
        let file = File::open(&self.path).unwrap();
        Table::read(
            &mut |data: &mut [u8], offset: u64| file.read_exact_at(data, offset),
            self.size(),
        )
    }

    pub(crate) fn table(&self) -> Table {
        self.read().unwrap().expect("a table")
    }

    pub(crate) fn damaged(&self) -> String {
        match self.read() {
            Err(TableError::Damaged(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn signature(&self) -> Option<Signature> {
        let file = File::open(&self.path).unwrap();
        let mut read = |data: &mut [u8], offset: u64| file.read_exact_at(data, offset);
        signature(&mut read, self.size()).unwrap()
    }

    /// Changes the bytes from `offset` on.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(&self.path).unwrap();
        file.write_all_at(bytes, offset).unwrap();
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    /// Changes all bytes.
    pub(crate) fn change(&self, change: impl FnOnce(&mut [u8])) {
        let mut bytes = self.bytes();
        change(&mut bytes);
        std::fs::write(&self.path, bytes).unwrap();
    }

    /// The offset of the last block.
    pub(crate) fn last_block(&self) -> u64 {
        (self.size().blocks - 1) * u64::from(self.block_bytes)
    }

    /// What `sfdisk` lists, or nothing if it finds no table.
    pub(crate) fn sfdisk_list(&self) -> Option<Value> {
        let device = self.loop_device();
        let path = device.as_ref().map_or(&self.path, |device| &device.0);
        let text = run_for("sfdisk", &["--json", path.to_str().unwrap()], &[0, 1]);
        // Remarks are in front of it.
        let json = text.get(text.find("{\n")?..)?;
        let mut list: Value =
            serde_json::from_str(json).unwrap_or_else(|why| panic!("{why}: {text}"));
        Some(list["partitiontable"].take())
    }

    /// Asserts that the list is that of `sfdisk`, and returns it.
    pub(crate) fn assert_as_sfdisk(&self) -> Table {
        let table = self.table();
        let list = self.sfdisk_list().expect("sfdisk finds a table");
        let kind = if table.kind == TableKind::Gpt { "gpt" } else { "dos" };
        assert_eq!(list["label"], kind);
        assert_eq!(list["id"], table.id.as_str());
        let device = list["device"].as_str().unwrap();
        let theirs = list["partitions"].as_array().map_or(&[][..], |list| &list[..]);
        let theirs: Vec<Listed> =
            theirs.iter().map(|entry| Listed::of_sfdisk(device, entry)).collect();
        let ours: Vec<Listed> = table.partitions.iter().map(Listed::of).collect();
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs, "{:?}", table.remarks);
        }
        assert_eq!(ours.len(), theirs.len(), "{:?}", table.remarks);
        table
    }
}

/// What both lists say of a partition.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    number: u32,
    first_lba: u64,
    blocks: u64,
    type_code: String,
    label: String,
    /// `sfdisk` does not list those of an MBR: `blkid` does.
    uuid: Option<String>,
}

impl Listed {
    fn of(partition: &Partition) -> Self {
        Self {
            number: partition.number,
            first_lba: partition.first_lba,
            blocks: partition.blocks,
            type_code: partition.type_code.clone(),
            label: partition.label.clone(),
            uuid: Some(partition.uuid.clone()).filter(|uuid| uuid.len() == 36),
        }
    }

    fn of_sfdisk(device: &str, entry: &Value) -> Self {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let node = text("node");
        let number = node.strip_prefix(device).unwrap().trim_start_matches('p');
        Self {
            number: number.parse().unwrap(),
            // It leaves out this one number.
            first_lba: entry["start"].as_u64().unwrap_or(u64::MAX),
            blocks: entry["size"].as_u64().unwrap(),
            // It has some types in lower case.
            type_code: if entry["uuid"].is_null() {
                text("type")
            } else {
                text("type").to_uppercase()
            },
            label: text("name"),
            uuid: entry["uuid"].as_str().map(str::to_owned),
        }
    }
}

/// Runs `program` with `input`, and returns whether it succeeded.
pub(crate) fn feed(program: &str, args: &[&str], input: &str) -> bool {
    let mut child = command(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program} {args:?} {input:?}: {output:?}");
    output.status.success()
}

/// A loop device with blocks of `block_bytes` bytes, or nothing where there are none.
fn loop_device(image: &Path, block_bytes: u32) -> Option<LoopDevice> {
    let output = command("losetup")
        .args(["--show", "-f", "-b", &block_bytes.to_string()])
        .arg(image)
        .output()
        .ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| LoopDevice(path.trim().into()))
}

/// The sizes of blocks that can be tried here.
pub(crate) fn block_sizes() -> Vec<u32> {
    let image = Image::new(1, 4096);
    if loop_device(&image.path, 4096).is_some() {
        vec![512, 4096]
    } else {
        println!("skipped: no loop device with blocks of 4096 bytes");
        vec![512]
    }
}

/// Whether the programs that make partition tables exist; prints a message if not.
pub(crate) fn tools() -> bool {
    ["sfdisk", "sgdisk", "parted", "blkid"].into_iter().all(has)
}

impl Image {
    pub(crate) fn table_or_none(&self) -> Option<Table> {
        self.read().unwrap()
    }
}
