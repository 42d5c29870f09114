//! Unusual names, and unique bytes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use crate::Rng;

/// A valid file name: mostly plain ones, some long, some not text.
pub fn name(rng: &mut Rng) -> OsString {
    let length = match rng.below(8) {
        0 => 1 + rng.below(3),
        1 => 200 + rng.below(56),
        2 => 255,
        _ => 4 + rng.below(24),
    } as usize;
    let kind = rng.below(6);
    let byte = |rng: &mut Rng| match kind {
        // Hashes differ in their treatment of bytes above 127.
        0 => 1 + rng.below(255) as u8,
        1 => 128 + rng.below(128) as u8,
        2 => b" .-~\n\t\\'\"*?"[rng.below(11) as usize],
        _ => {
            b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
                [rng.below(63) as usize]
        }
    };
    let mut bytes: Vec<u8> =
        (0..length).map(|_| byte(rng)).map(|b| if b == b'/' { b'_' } else { b }).collect();
    if bytes == b"." || bytes == b".." {
        bytes = b"...".to_vec();
    }
    OsString::from_vec(bytes)
}

/// `bytes` bytes that occur nowhere else.
pub fn bytes(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    let mut made = vec![0; bytes];
    for chunk in made.chunks_mut(8) {
        let word = rng.next().to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
    made
}
