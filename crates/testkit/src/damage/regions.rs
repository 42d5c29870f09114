//! The places of an intact image's structures.

use std::collections::{BTreeSet, HashMap, VecDeque};

use meantime_ext4::FileType;
use meantime_ext4::format::{ROOT_INO, Volume, VolumeOptions};

use super::memory::Memory;
use super::sums::crc;

/// The kind of a structure, which determines its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Superblock,
    Group(u32),
    Inode(u32),
    /// A node of inode *n*'s extent tree.
    Extents(u32),
    /// A block of pointers.
    Pointers,
    /// A block of directory *n*.
    Directory(u32),
    /// The attributes in block *n*.
    Attributes(u64),
    Journal,
    /// Anything else.
    Data,
}

/// A structure.
#[derive(Debug, Clone, Copy)]
pub struct Region {
    pub kind: Kind,
    /// Byte offset.
    pub offset: usize,
    pub bytes: usize,
    /// The inode it belongs to, if any.
    pub ino: Option<u32>,
}

/// The initial states of checksums.
#[derive(Debug, Clone, Default)]
pub struct Seeds {
    pub metadata_csum: bool,
    pub volume: u32,
    pub journal: u32,
    pub journal_csum: bool,
    generations: HashMap<u32, u32>,
}

impl Seeds {
    pub fn inode(&self, ino: u32) -> u32 {
        let generation = self.generations.get(&ino).copied().unwrap_or(0);
        crc(crc(self.volume, &ino.to_le_bytes()), &generation.to_le_bytes())
    }
}

/// An intact image, and the places of its structures.
pub struct Base {
    pub name: String,
    pub image: Vec<u8>,
    pub device_bytes: u64,
    pub regions: Vec<Region>,
    pub seeds: Seeds,
    pub inodes: Vec<u32>,
}

impl Base {
    /// Finds the structures of `image`, which must be intact.
    pub fn new(name: String, mut image: Vec<u8>) -> Self {
        let device_bytes = image.len() as u64;
        image.truncate(
            image
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |last| last + 1)
                .next_multiple_of(65536),
        );
        let memory = Memory::new(&image, device_bytes);
        let opened = Volume::open(&memory, device_bytes, VolumeOptions::default());
        let volume = opened.unwrap_or_else(|failure| panic!("{name}: {failure:?}"));
        let mut found = Finder {
            volume: &volume,
            image: &image,
            regions: Vec::new(),
            seeds: Seeds::default(),
            block: volume.block_bytes(),
        };
        let inodes = found.all().unwrap_or_else(|error| panic!("{name}: {error}"));
        let Finder { mut regions, seeds, .. } = found;
        regions.retain(|region| region.offset + region.bytes <= image.len());
        Self { name, device_bytes, regions, seeds, inodes, image }
    }
}

struct Finder<'a> {
    volume: &'a Volume<&'a Memory<'a>>,
    image: &'a [u8],
    regions: Vec<Region>,
    seeds: Seeds,
    block: usize,
}

type Result<T> = std::result::Result<T, meantime_ext4::Error>;

impl<'a> Finder<'a> {
    fn at(&self, offset: usize, bytes: usize) -> &'a [u8] {
        self.image.get(offset..offset + bytes).unwrap_or(&[])
    }

    fn block(&mut self, kind: Kind, block: u64, ino: Option<u32>) {
        self.regions.push(Region {
            kind,
            offset: block as usize * self.block,
            bytes: self.block,
            ino,
        });
    }

    fn all(&mut self) -> Result<Vec<u32>> {
        let superblock = self.at(1024, 1024);
        let word = |at: usize| {
            superblock
                .get(at..at + 4)
                .map_or(0, |word| u32::from_le_bytes(word.try_into().expect("4")))
        };
        // s_feature_ro_compat METADATA_CSUM, s_feature_incompat CSUM_SEED, s_checksum_seed, s_uuid.
        self.seeds.metadata_csum = word(0x64) & 0x400 != 0;
        self.seeds.volume =
            if word(0x60) & 0x2000 != 0 { word(0x270) } else { crc(!0, &superblock[0x68..0x78]) };
        let descriptor = if word(0x60) & 0x80 != 0 { (word(0xfc) >> 16) as usize } else { 32 };
        let first = (word(0x14) as usize + 1) * self.block;
        self.regions.push(Region { kind: Kind::Superblock, offset: 1024, bytes: 1024, ino: None });
        for group in 0..self.volume.superblock().groups().min((self.block / descriptor) as u32) {
            let offset = first + group as usize * descriptor;
            self.regions.push(Region {
                kind: Kind::Group(group),
                offset,
                bytes: descriptor,
                ino: None,
            });
        }
        let mut queue: VecDeque<u32> = [8, ROOT_INO].into();
        let mut seen = BTreeSet::new();
        while let Some(ino) = queue.pop_front() {
            if seen.insert(ino) {
                self.inode(ino, &mut queue)?;
            }
        }
        Ok(seen.into_iter().collect())
    }

    fn inode(&mut self, ino: u32, queue: &mut VecDeque<u32>) -> Result<()> {
        let inode = self.volume.inode(ino)?;
        if ino == 8 && inode.is_free() {
            return Ok(());
        }
        let (block, within) = self.volume.inode_place(ino)?;
        let bytes = self.volume.superblock().inode_bytes() as usize;
        let offset = block as usize * self.block + within;
        self.seeds.generations.insert(ino, inode.metadata().generation);
        // Twice, to choose them more often: they decide most.
        for _ in 0..2 {
            self.regions.push(Region { kind: Kind::Inode(ino), offset, bytes, ino: Some(ino) });
        }
        if inode.attribute_block() != 0 {
            self.block(
                Kind::Attributes(inode.attribute_block()),
                inode.attribute_block(),
                Some(ino),
            );
        }
        let directory = inode.file_type() == FileType::Directory;
        if inode.has_blocks() {
            let kind = if inode.has(0x8_0000) { Kind::Extents(ino) } else { Kind::Pointers };
            let mut nodes = Vec::new();
            self.volume.visit_mapping_blocks(&inode, &mut |block| {
                nodes.push(block);
                Ok(())
            })?;
            nodes.into_iter().take(8).for_each(|node| self.block(kind, node, Some(ino)));
            let kind = match (ino, directory) {
                (8, _) => Kind::Journal,
                (_, true) => Kind::Directory(ino),
                _ => Kind::Data,
            };
            let map = self.volume.extent_map(&inode)?;
            let blocks = map
                .extents()
                .iter()
                .flat_map(|extent| (0..u64::from(extent.blocks)).map(|at| extent.physical + at));
            let many = if kind == Kind::Data { 1 } else { 24 };
            for block in blocks.take(many) {
                self.block(kind, block, Some(ino));
            }
        }
        if ino == 8 {
            self.journal();
        }
        if directory {
            let mut cookie = 0;
            loop {
                let entries = self.volume.entries(&inode, cookie)?;
                let Some(last) = entries.last() else { break };
                cookie = last.cookie;
                queue.extend(entries.iter().map(|entry| entry.ino));
            }
        }
        Ok(())
    }

    /// Seed and features of the journal, whose first block was found last.
    fn journal(&mut self) {
        let Some(first) = self.regions.iter().find(|region| region.kind == Kind::Journal) else {
            return;
        };
        let superblock = self.at(first.offset, 1024);
        if superblock.len() == 1024 {
            self.seeds.journal = crc(!0, &superblock[0x30..0x40]);
            self.seeds.journal_csum = superblock[0x2b] & 0x18 != 0;
        }
    }
}
