//! What each block may hold, whatever has failed, been repeated or lost.

use meantime_block::{Done, Request};
use meantime_hw::DmaBuf;
use meantime_nvme::Op;

use meantime_testkit::Rng;

/// A block. Versions are numbers of writes; version 0 is zeroes.
#[derive(Clone, Debug)]
struct Block {
    /// What a read may find: one version, and those of writes of which it is unknown whether they
    /// happened.
    now: Vec<u64>,
    /// What a loss of power may bring back as well.
    older: Vec<u64>,
    /// When it was last changed, in requests ended.
    changed: u64,
    /// A write is in flight: neither read nor write it.
    busy: bool,
    /// Reads in flight: do not write it.
    readers: u32,
    /// It was found corrupted, as ordered: anything may be there until it is written.
    corrupted: bool,
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Asked {
    pub op: Op,
    lba: u64,
    blocks: u64,
    version: u64,
    fua: bool,
    /// Requests ended when it was submitted.
    since: u64,
    /// Power was lost meanwhile.
    cut: bool,
    /// What a read may have found then, by block.
    before_cut: Vec<Vec<u64>>,
}

pub(crate) struct Model {
    blocks: Vec<Block>,
    block_bytes: usize,
    cached: bool,
    /// Whether data may be corrupted by order.
    pub may_corrupt: bool,
    pub found_corrupt: u64,
    asked: Vec<(u64, Asked)>,
    ended: u64,
    next_version: u64,
    pub verified: u64,
    /// Requests that have succeeded.
    pub succeeded: u64,
}

fn word(lba: u64, version: u64) -> u64 {
    if version == 0 { 0 } else { Rng::new(lba ^ version.rotate_left(32)).next() }
}

fn fill(block: &mut [u8], lba: u64, version: u64) {
    let base = word(lba, version);
    for (index, chunk) in block.chunks_exact_mut(8).enumerate() {
        let value = if version == 0 { 0 } else { base ^ index as u64 };
        chunk.copy_from_slice(&value.to_le_bytes());
    }
}

fn holds(block: &[u8], lba: u64, version: u64) -> bool {
    let base = word(lba, version);
    block.chunks_exact(8).enumerate().all(|(index, chunk)| {
        let value = if version == 0 { 0 } else { base ^ index as u64 };
        u64::from_le_bytes(chunk.try_into().expect("8 bytes")) == value
    })
}

impl Model {
    pub(crate) fn new(blocks: u64, block_bytes: usize, cached: bool) -> Self {
        let block = Block {
            now: vec![0],
            older: Vec::new(),
            changed: 0,
            busy: false,
            readers: 0,
            corrupted: false,
        };
        Self {
            blocks: vec![block; blocks as usize],
            block_bytes,
            cached,
            may_corrupt: false,
            found_corrupt: 0,
            asked: Vec::new(),
            ended: 0,
            next_version: 1,
            verified: 0,
            succeeded: 0,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.blocks.len() as u64
    }

    pub(crate) fn under_way(&self) -> usize {
        self.asked.len()
    }

    /// Whether `op` may be asked for these blocks now.
    pub(crate) fn is_free(&self, op: Op, lba: u64, blocks: u64) -> bool {
        let changes = !matches!(op, Op::Read | Op::Flush);
        op == Op::Flush
            || !self.blocks[lba as usize..(lba + blocks) as usize]
                .iter()
                .any(|block| block.busy || changes && block.readers > 0)
    }

    /// The request for it, as `id`; `alloc` gives a buffer.
    pub(crate) fn request(
        &mut self,
        id: u64,
        op: Op,
        lba: u64,
        blocks: u64,
        fua: bool,
        alloc: impl FnOnce(usize) -> DmaBuf,
    ) -> Request {
        let version = if op == Op::Write { self.next_version } else { 0 };
        let bytes = blocks as usize * self.block_bytes;
        let request = match op {
            Op::Read => {
                let mut buf = alloc(bytes);
                buf.fill(0xa5);
                Request::read(lba, buf)
            }
            Op::Write => {
                self.next_version += 1;
                let mut buf = alloc(bytes);
                for (n, block) in buf.chunks_exact_mut(self.block_bytes).enumerate() {
                    fill(block, lba + n as u64, version);
                }
                Request::write(lba, buf)
            }
            Op::WriteZeroes => Request::write_zeroes(lba, blocks),
            Op::Deallocate => Request::deallocate(lba, blocks),
            Op::Flush => Request::flush(),
            Op::Compare | Op::Verify | Op::WriteUncorrectable | Op::CompareAndWrite => {
                unreachable!("not in these plans")
            }
        };
        let fua = fua && matches!(op, Op::Write | Op::WriteZeroes);
        for block in self.range(op, lba, blocks) {
            block.busy |= op != Op::Read;
            block.readers += u32::from(op == Op::Read);
        }
        let asked = Asked {
            op,
            lba,
            blocks,
            version,
            fua,
            since: self.ended,
            cut: false,
            before_cut: Vec::new(),
        };
        self.asked.push((id, asked));
        let request = request.user_data(id);
        if fua { request.fua() } else { request }
    }

    fn range(&mut self, op: Op, lba: u64, blocks: u64) -> &mut [Block] {
        let range = if op == Op::Flush { 0..0 } else { lba as usize..(lba + blocks) as usize };
        &mut self.blocks[range]
    }

    fn take(&mut self, id: u64) -> Asked {
        let at =
            self.asked.iter().position(|(other, _)| *other == id).expect("each request ends once");
        let (_, asked) = self.asked.swap_remove(at);
        self.ended += 1;
        let Asked { op, lba, blocks, .. } = asked;
        for block in self.range(op, lba, blocks) {
            if op == Op::Read {
                block.readers -= 1;
            } else {
                block.busy = false;
            }
        }
        asked
    }

    /// It was never sent.
    pub(crate) fn withdraw(&mut self, id: u64) {
        self.take(id);
    }

    /// This read or flush is not waited for any more.
    pub(crate) fn forget(&mut self, id: u64) {
        let asked = self.take(id);
        assert!(matches!(asked.op, Op::Read | Op::Flush));
    }

    pub(crate) fn op(&self, id: u64) -> Op {
        self.asked.iter().find(|(other, _)| *other == id).expect("under way").1.op
    }

    /// How it ended.
    pub(crate) fn end(&mut self, done: &Done) {
        let asked = self.take(done.user_data);
        let succeeded = done.result.is_ok();
        self.succeeded += u64::from(succeeded);
        match asked.op {
            Op::Read if succeeded => {
                self.check(&asked, done.buf.as_deref().expect("a read's buffer"))
            }
            Op::Read => {}
            Op::Flush => {
                if succeeded {
                    // What was changed before it was asked for is safe.
                    let safe = |block: &&mut Block| block.changed <= asked.since && !block.busy;
                    self.blocks.iter_mut().filter(safe).for_each(|block| block.older.clear());
                }
            }
            Op::Write | Op::WriteZeroes | Op::Deallocate => self.changed(&asked, succeeded),
            Op::Compare | Op::Verify | Op::WriteUncorrectable | Op::CompareAndWrite => {
                unreachable!("not in these plans")
            }
        }
    }

    fn changed(&mut self, asked: &Asked, succeeded: bool) {
        let (cached, ended) = (self.cached, self.ended);
        let durable = asked.fua || !cached;
        for block in self.range(asked.op, asked.lba, asked.blocks) {
            block.changed = ended;
            if succeeded && durable {
                (block.now, block.older, block.corrupted) =
                    (vec![asked.version], Vec::new(), false);
            } else if succeeded && !asked.cut {
                let Block { now, older, .. } = block;
                older.append(now);
                now.push(asked.version);
                block.corrupted = false;
            } else if !block.now.contains(&asked.version) {
                // It happened or not; or it did, and power was lost after.
                block.now.push(asked.version);
            }
        }
    }

    fn check(&mut self, asked: &Asked, buf: &[u8]) {
        for (n, bytes) in buf.chunks_exact(self.block_bytes).enumerate() {
            let lba = asked.lba + n as u64;
            let block = &mut self.blocks[lba as usize];
            if block.corrupted {
                continue;
            }
            let candidates = asked.before_cut.get(n).unwrap_or(&block.now);
            let Some(at) = candidates.iter().position(|&version| holds(bytes, lba, version)) else {
                assert!(
                    self.may_corrupt,
                    "block {lba} holds {:02x?}…, none of {block:?} (word 0 of each: {:x?})",
                    &bytes[..16],
                    block.now.iter().map(|&version| word(lba, version)).collect::<Vec<_>>()
                );
                self.found_corrupt += 1;
                block.corrupted = true;
                continue;
            };
            self.verified += 1;
            if asked.cut {
                // It may have been read before power was lost.
                continue;
            }
            // Whatever it holds it goes on holding, but for a loss of power.
            let version = block.now.swap_remove(at);
            if self.cached {
                block.older.append(&mut block.now);
            }
            block.now = vec![version];
        }
    }

    /// Power was lost, and is back.
    pub(crate) fn power_cut(&mut self) {
        if self.cached {
            for block in &mut self.blocks {
                let Block { now, older, .. } = block;
                older.retain(|version| !now.contains(version));
                now.append(older);
            }
            for (_, asked) in &mut self.asked {
                asked.cut = true;
                if asked.op == Op::Read && asked.before_cut.is_empty() {
                    let range = asked.lba as usize..(asked.lba + asked.blocks) as usize;
                    asked.before_cut =
                        self.blocks[range].iter().map(|block| block.now.clone()).collect();
                }
            }
        }
    }
}
