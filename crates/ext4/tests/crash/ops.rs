//! Operations of a program on a small tree.

use std::fmt;

use meantime_testkit::Rng;

/// A path below the workload's own root.
pub(crate) type Name = &'static str;

/// One operation. Offsets and lengths are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Create(Name),
    Mkdir(Name),
    Symlink(Name),
    Link(Name, Name),
    Unlink(Name),
    Rmdir(Name),
    Rename(Name, Name),
    Exchange(Name, Name),
    Mode(Name, u16),
    /// Sets permissions and size together.
    Set(Name, u16, u64),
    /// Sets `user.x` to a value of this many bytes.
    Attribute(Name, usize),
    RemoveAttribute(Name),
    Write(Name, u64, u64),
    Append(Name, u64),
    /// Past the cache.
    Direct(Name, u64, u64),
    /// With O_SYNC.
    WriteSync(Name, u64, u64),
    Truncate(Name, u64),
    Punch(Name, u64, u64),
    Zero(Name, u64, u64),
    /// Preallocates without changing the size.
    Keep(Name, u64, u64),
    /// Preallocates and extends the size.
    Extend(Name, u64, u64),
    /// Reads the file and compares its content.
    Read(Name),
    Fsync(Name),
    Fdatasync(Name),
    Sync,
    /// One round of background work.
    Step,
    /// Trims free blocks.
    Trim,
    Remount,
}

impl Op {
    /// Whether it only makes earlier operations durable.
    pub(crate) fn is_sync(&self) -> bool {
        matches!(self, Op::Fsync(_) | Op::Fdatasync(_) | Op::Sync | Op::Step)
    }

    /// Whether it changes no names and no attributes.
    pub(crate) fn is_on_data(&self) -> bool {
        use Op::*;
        let is_write =
            matches!(self, Write(..) | Append(..) | Direct(..) | WriteSync(..) | Truncate(..));
        let is_room = matches!(self, Punch(..) | Zero(..) | Keep(..) | Extend(..));
        is_write
            || is_room
            || matches!(self, Read(_) | Fsync(_) | Fdatasync(_) | Sync | Step | Trim | Remount)
    }
}

/// A sequence, for messages.
pub(crate) struct Shown<'a>(pub &'a [Op]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, op) in self.0.iter().enumerate() {
            write!(f, "{}{number}: {op:?}", if number == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// The initial tree: files with their sizes, directories with `None`.
pub(crate) const BEGINNING: [(Name, Option<u64>); 4] =
    [("a", Some(6000)), ("d", None), ("d/a", Some(12_288)), ("d/s", Some(10))];

/// The operations of the exhaustive sequences.
pub(crate) fn alphabet() -> Vec<Op> {
    use Op::*;
    vec![
        Create("b"),
        Create("d/b"),
        Mkdir("e"),
        Symlink("l"),
        Link("a", "d/c"),
        Link("d/a", "b"),
        Unlink("a"),
        Unlink("d/a"),
        Rmdir("e"),
        Rename("a", "b"),
        Rename("a", "d/a"),
        Rename("d/a", "a"),
        Rename("d", "e"),
        Exchange("a", "d/a"),
        Mode("a", 0o600),
        Set("a", 0o600, 2500),
        Set("d/a", 0o640, 20_000),
        Attribute("a", 40),
        Attribute("d", 600),
        Write("a", 1000, 500),
        Write("a", 5000, 9000),
        Write("d/a", 4096, 4096),
        Append("a", 3000),
        Append("d/a", 8192),
        Direct("d/a", 4096, 4096),
        Direct("d/a", 12_288, 4096),
        WriteSync("a", 20_000, 100),
        Truncate("a", 1500),
        Truncate("a", 9000),
        Truncate("d/a", 0),
        Punch("d/a", 2000, 7000),
        Zero("d/a", 4096, 10_000),
        Keep("a", 8192, 8192),
        Extend("a", 4096, 12_288),
        Fsync("a"),
        Fsync("d"),
        Fdatasync("d/a"),
        Sync,
        Trim,
    ]
}

const FILES: [Name; 9] = ["a", "b", "c", "d/a", "d/b", "d/s", "e/a", "e/b", "d/f/a"];
const DIRECTORIES: [Name; 4] = ["d", "e", "d/f", "e/f"];

/// Returns a random operation. If `heavy`, it sometimes has many bytes.
pub(crate) fn random(rng: &mut Rng, heavy: bool) -> Op {
    use Op::*;
    let file = |rng: &mut Rng| FILES[rng.below(FILES.len() as u64) as usize];
    let directory = |rng: &mut Rng| DIRECTORIES[rng.below(DIRECTORIES.len() as u64) as usize];
    let any = |rng: &mut Rng| if rng.one_in(4) { directory(rng) } else { file(rng) };
    let offset = |rng: &mut Rng| match rng.below(4) {
        0 => 0,
        1 => rng.below(8) * 1024,
        2 => rng.below(8) * 4096,
        _ => rng.below(if heavy { 200_000 } else { 30_000 }),
    };
    let length = |rng: &mut Rng| match rng.below(4) {
        0 => 1 + rng.below(100),
        1 => (1 + rng.below(4)) * 1024,
        2 => (1 + rng.below(4)) * 4096,
        _ => 1 + rng.below(if heavy { 60_000 } else { 10_000 }),
    };
    match rng.below(40) {
        0..=3 => Create(file(rng)),
        4 | 5 => Mkdir(directory(rng)),
        6 => Symlink(file(rng)),
        7 | 8 => Link(file(rng), file(rng)),
        9 | 10 => Unlink(file(rng)),
        11 => Rmdir(directory(rng)),
        12..=14 => Rename(file(rng), file(rng)),
        15 => Rename(directory(rng), directory(rng)),
        16 => Exchange(any(rng), any(rng)),
        17 => Mode(any(rng), 0o400 + rng.below(0o377) as u16),
        18 => Attribute(any(rng), [0, 10, 100, 700][rng.below(4) as usize]),
        19 => RemoveAttribute(any(rng)),
        20..=22 => Write(file(rng), offset(rng), length(rng)),
        23 | 24 => Append(file(rng), length(rng)),
        25 => Direct(file(rng), offset(rng) / 4096 * 4096, (1 + rng.below(4)) * 4096),
        26 => WriteSync(file(rng), offset(rng), length(rng)),
        27 => Truncate(file(rng), offset(rng)),
        28 => Set(file(rng), 0o400 + rng.below(0o377) as u16, offset(rng)),
        29 => Punch(file(rng), offset(rng), length(rng)),
        30 => Zero(file(rng), offset(rng), length(rng)),
        31 => Keep(file(rng), offset(rng), length(rng)),
        32 => Extend(file(rng), offset(rng), length(rng)),
        33 => Read(file(rng)),
        34 | 35 => Fsync(any(rng)),
        36 => Fdatasync(file(rng)),
        37 => Sync,
        38 if rng.one_in(3) => Trim,
        38 => Step,
        _ if rng.one_in(6) => Remount,
        _ => Fsync(file(rng)),
    }
}
