//! Names with equal hashes, for the legacy hash: collisions are easy to compute for it, and it has
//! no minor hash.

/// The factor of each byte.
const FACTOR: u32 = 7_152_373;

/// The last two values of the hash (kernel: `dx_hack_hash_signed`), for ASCII.
fn go_on((last, before): (u32, u32), name: &[u8]) -> (u32, u32) {
    name.iter().fold((last, before), |(last, before), byte| {
        let hash = before.wrapping_add(last ^ u32::from(*byte).wrapping_mul(FACTOR));
        (if hash >> 31 == 1 { hash.wrapping_sub(0x7fff_ffff) } else { hash }, last)
    })
}

/// The inverse of `FACTOR` by Newton's method; `FACTOR` is odd.
fn inverse() -> u32 {
    (0..5).fold(FACTOR, |inverse, _| {
        inverse.wrapping_mul(2u32.wrapping_sub(FACTOR.wrapping_mul(inverse)))
    })
}

/// Makes `count` names of about 190 bytes with one hash: more than fit into one leaf of 1 KiB.
pub(crate) fn names(count: usize) -> Vec<Vec<u8>> {
    let prefix = [b'c'; 184];
    let begun = go_on((0x12a3_fe2d, 0x37ab_e8f9), &prefix);
    let (goal, inverse) = (go_on(begun, b"000000").0, inverse());
    let mut names = Vec::new();
    'all: for number in 0_u32.. {
        let middle = format!("{number:05x}");
        let middle = middle.as_bytes();
        let state = go_on(begun, middle);
        for byte in b'!'..=b'~' {
            let (last, before) = go_on(state, &[byte]);
            // The last byte, if there is one that gives the goal, with or without the subtraction.
            for hash in [goal, goal.wrapping_add(0x7fff_ffff)] {
                let end = (hash.wrapping_sub(before) ^ last).wrapping_mul(inverse);
                let fits = (1..128).contains(&end) && go_on((last, before), &[end as u8]).0 == goal;
                if fits && byte != b'/' && end != u32::from(b'/') {
                    names.push([&prefix[..], middle, &[byte, end as u8]].concat());
                    if names.len() == count {
                        break 'all;
                    }
                }
            }
        }
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
    names
}
