//! Hashes of names in an indexed directory (kernel: `fs/ext4/hash.c`; e2fsprogs: `dirhash.c`).

/// The hash function of an index (`DX_HASH_*`), with the signedness of `char` where the file system
/// was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashKind {
    /// The hash of ext2's first patches (version 0, or 3 with unsigned characters).
    Legacy {
        /// Whether bytes above 127 count as negative.
        signed: bool,
    },
    /// Half of MD4 (version 1 or 4); the default of `mkfs`.
    HalfMd4 {
        /// Whether bytes above 127 count as negative.
        signed: bool,
    },
    /// The Tiny Encryption Algorithm (version 2 or 5).
    Tea {
        /// Whether bytes above 127 count as negative.
        signed: bool,
    },
}

/// The hash at which readers of directories stop; no name has it.
const END_OF_DIRECTORY: u32 = 0x7fff_ffff << 1;

impl HashKind {
    /// Returns the hash function for an index root's `hash_version`, in a file system whose
    /// superblock marks `char` as `signed`. Returns `None` for other versions (version 6, SipHash,
    /// is for encrypted directories with case folding).
    pub fn from_version(version: u8, signed: bool) -> Option<Self> {
        match version {
            0 => Some(Self::Legacy { signed }),
            1 => Some(Self::HalfMd4 { signed }),
            2 => Some(Self::Tea { signed }),
            _ => None,
        }
    }

    /// Returns the hash of `name`, with the lowest bit clear. `seed` is the superblock's
    /// `s_hash_seed`.
    pub fn hash(self, name: &[u8], seed: &[u32; 4]) -> u32 {
        self.full_hash(name, seed).0
    }

    /// Returns the hash of `name` with the minor hash, which distinguishes names of the same hash.
    pub fn full_hash(self, name: &[u8], seed: &[u32; 4]) -> (u32, u32) {
        let (hash, minor) = match self {
            Self::Legacy { signed } => (legacy(name, signed), 0),
            Self::HalfMd4 { signed } => {
                let mut state = initial(seed);
                for chunk in chunks(name, 32) {
                    half_md4(&mut state, &words(chunk, signed));
                }
                (state[1], state[2])
            }
            Self::Tea { signed } => {
                let mut state = initial(seed);
                for chunk in chunks(name, 16) {
                    tea(&mut state, &words(chunk, signed));
                }
                (state[0], state[1])
            }
        };
        let hash = hash & !1;
        (if hash == END_OF_DIRECTORY { hash - 2 } else { hash }, minor)
    }
}

/// Returns the initial state. A seed of zeroes selects MD4's own constants.
fn initial(seed: &[u32; 4]) -> [u32; 4] {
    if *seed == [0; 4] { [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476] } else { *seed }
}

/// Returns the rest of `name` at each multiple of `step`, because the padding of each round depends
/// on the whole rest.
fn chunks(name: &[u8], step: usize) -> impl Iterator<Item = &[u8]> {
    (0..name.len()).step_by(step).map(move |at| &name[at..])
}

/// Returns a byte converted to a 32-bit `char`.
fn widened(byte: u8, signed: bool) -> u32 {
    if signed { i32::from(byte.cast_signed()).cast_unsigned() } else { u32::from(byte) }
}

/// Returns the first `4 N` bytes of `rest` as words, padded with its length (`str2hashbuf`).
fn words<const N: usize>(rest: &[u8], signed: bool) -> [u32; N] {
    // A name is at most 255 bytes.
    let length = rest.len() as u32;
    let padding = (length | length << 8) | (length | length << 8) << 16;
    let mut words = [padding; N];
    for (word, bytes) in words.iter_mut().zip(rest.chunks(4)) {
        for byte in bytes {
            *word = widened(*byte, signed).wrapping_add(*word << 8);
        }
    }
    words
}

fn legacy(name: &[u8], signed: bool) -> u32 {
    let (mut last, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
    for byte in name {
        let mut hash = before.wrapping_add(last ^ widened(*byte, signed).wrapping_mul(7_152_373));
        if hash & 0x8000_0000 != 0 {
            hash = hash.wrapping_sub(0x7fff_ffff);
        }
        (before, last) = (last, hash);
    }
    last << 1
}

/// MD4 reduced to eight words and 24 steps (full version: RFC 1320).
fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    type Function = fn(u32, u32, u32) -> u32;
    let rounds: [(Function, u32, [usize; 8], [u32; 4]); 3] = [
        (|x, y, z| z ^ (x & (y ^ z)), 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (
            |x, y, z| (x & y).wrapping_add((x ^ y) & z),
            0x5a82_7999,
            [1, 3, 5, 7, 0, 2, 4, 6],
            [3, 5, 9, 13],
        ),
        (|x, y, z| x ^ y ^ z, 0x6ed9_eba1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (function, constant, order, shifts) in rounds {
        for (step, from) in order.into_iter().enumerate() {
            let sum =
                a.wrapping_add(function(b, c, d)).wrapping_add(input[from]).wrapping_add(constant);
            // The four words rotate: the former d is changed next.
            (a, b, c, d) = (d, sum.rotate_left(shifts[step % 4]), b, c);
        }
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(add);
    }
}

fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let [mut left, mut right] = [state[0], state[1]];
    let mut sum = 0_u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        let mix = |half: u32, first: u32, second: u32| {
            (half << 4).wrapping_add(first)
                ^ half.wrapping_add(sum)
                ^ (half >> 5).wrapping_add(second)
        };
        left = left.wrapping_add(mix(right, key[0], key[1]));
        right = right.wrapping_add(mix(left, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(left);
    state[1] = state[1].wrapping_add(right);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: [u32; 4] = [
        u32::from_le_bytes([1, 2, 3, 4]),
        u32::from_le_bytes([5, 6, 7, 8]),
        u32::from_le_bytes([9, 10, 11, 12]),
        u32::from_le_bytes([13, 14, 15, 16]),
    ];

    /// The values are those of `debugfs -R "dx_hash -h KIND [-s SEED] NAME"`.
    #[test]
    fn hashes_are_those_of_debugfs() {
        let long = [b'x'; 255];
        let names: [&[u8]; 5] =
            [b"a", b"hello.txt", b"a\xe9\xff-\x80", b"abcdefghijklmnopqrstuvwxyz0123456789", &long];
        let legacy = HashKind::Legacy { signed: true };
        let half_md4 = HashKind::HalfMd4 { signed: true };
        let tea = HashKind::Tea { signed: true };
        let expected = [
            (legacy, SEED, [0xe74b_53e2, 0x65a0_5776, 0x0a53_7e1e, 0x9015_281a, 0x3055_7da6]),
            (legacy, [0; 4], [0xe74b_53e2, 0x65a0_5776, 0x0a53_7e1e, 0x9015_281a, 0x3055_7da6]),
            (half_md4, SEED, [0x8d08_ec4c, 0xac15_d19c, 0x370f_da00, 0xcd31_34d6, 0xac45_f49a]),
            (half_md4, [0; 4], [0xd5fa_7d7a, 0xa26e_1d86, 0x95f6_3e88, 0x97c6_9942, 0x2aa7_169e]),
            (tea, SEED, [0xf535_28f0, 0x8912_606c, 0xbf50_d14a, 0x532a_7fba, 0x7ba0_0f18]),
            (tea, [0; 4], [0x6d0e_a4c0, 0x5107_c3f2, 0x7087_b758, 0xe073_581c, 0x6c4c_00ee]),
        ];
        for (kind, seed, hashes) in expected {
            for (name, hash) in names.iter().zip(hashes) {
                assert_eq!(kind.hash(name, &seed), hash, "{kind:?} {}", name.escape_ascii());
            }
        }
    }

    #[test]
    fn signs_matter_only_above_127() {
        for version in 0..3 {
            let signed = HashKind::from_version(version, true).unwrap();
            let unsigned = HashKind::from_version(version, false).unwrap();
            assert_eq!(signed.hash(b"plain", &SEED), unsigned.hash(b"plain", &SEED));
            assert_ne!(signed.hash(b"\xe4\xf6", &SEED), unsigned.hash(b"\xe4\xf6", &SEED));
        }
        assert_eq!(HashKind::from_version(6, true), None);
    }
}
