//! The host's side of an NVMe/TCP connection: the fuzzer is a target that sends what it likes, while
//! commands are submitted. A model says which command may end, and which bytes may change.

use crate::Input;
use meantime_fabrics::fuzzing::{Arena, DATA, DATA_BYTES, Rig};
use meantime_nvme_spec::sqe::Sqe;

/// Operations of one input.
const OPERATIONS: usize = 256;

/// Entries of the queue; a command's buffer is as long for each.
const ENTRIES: u16 = 16;
const BUFFER: usize = DATA_BYTES / ENTRIES as usize;

thread_local! {
    static ARENA: Arena = Arena::new().expect("memory");
}

/// A command in flight.
#[derive(Clone, Copy)]
struct Live {
    cid: u16,
    bytes: usize,
    reads: bool,
}

/// A well-formed PDU with a header digest if there shall be one, and wrong as the input wants.
fn pdu(input: &mut Input<'_>, dgst: u8, live: &[Option<Live>]) -> Vec<u8> {
    let kind = input.pick(&[5u8, 7, 9, 7, 3]);
    let target = live[usize::from(input.u8()) % live.len()];
    let (mut cid, bytes) = target.map_or((input.u16(), 512), |live| (live.cid, live.bytes));
    if input.u8() == 7 {
        cid = input.u16();
    }
    let whole = input.u8() & 1 == 0;
    let offset = if whole { 0 } else { u32::from(input.u16()) };
    let len = if whole { bytes as u32 } else { u32::from(input.u16()) };
    let mut pdu = vec![kind, 0, 24, 0, 0, 0, 0, 0];
    let mut data = Vec::new();
    match kind {
        5 => {
            pdu.extend(input.u32().to_le_bytes());
            pdu.extend([0; 8]);
            pdu.extend(cid.to_le_bytes());
            pdu.extend(if input.u8() < 200 { 0 } else { input.u16() }.to_le_bytes());
        }
        _ => {
            pdu.extend(cid.to_le_bytes());
            pdu.extend(input.u16().to_le_bytes());
            pdu.extend(offset.to_le_bytes());
            pdu.extend(len.to_le_bytes());
            pdu.extend([0; 4]);
            if kind == 7 {
                data = vec![input.u8() | 1; (len as usize).min(BUFFER + 16)];
                pdu[1] |= input.pick(&[12, 12, 4, 0, 8]);
            }
        }
    }
    let mut pdo = 24;
    if dgst & 1 != 0 {
        (pdu[1], pdo) = (pdu[1] | 1, 28);
    }
    let has_digest = dgst & 2 != 0 && !data.is_empty();
    if has_digest {
        pdu[1] |= 2;
    }
    if !data.is_empty() {
        pdu[3] = pdo;
    }
    let plen = u32::from(pdo) + data.len() as u32 + if has_digest { 4 } else { 0 };
    pdu[4..8].copy_from_slice(&plen.to_le_bytes());
    if input.u8() < 8 {
        let at = usize::from(input.u8()) % pdu.len();
        pdu[at] ^= input.u8();
    }
    if dgst & 1 != 0 {
        pdu.extend(crc32c::crc32c(&pdu.clone()).to_le_bytes());
    }
    let digest = crc32c::crc32c(&data);
    pdu.extend(data);
    if has_digest {
        pdu.extend(digest.to_le_bytes());
    }
    pdu
}

fn run(arena: &Arena, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (dgst, in_capsule) = (input.u8() & 3, input.pick(&[0u32, 4096, 16_384]));
    let mut rig = Rig::new(arena, 1, dgst, in_capsule, ENTRIES);
    let mut live = [None::<Live>; ENTRIES as usize - 1];
    let mut generation = 0u16;
    let mut fed = 0;
    // Zero until a read may write it.
    let clean = vec![0; BUFFER];
    (0..ENTRIES).for_each(|slot| rig.store(usize::from(slot) * BUFFER, &clean));
    for _ in 0..OPERATIONS {
        if input.is_empty() {
            break;
        }
        match input.u8() % 4 {
            0 => {
                let slot = usize::from(input.u8()) % live.len();
                if live[slot].is_none() {
                    let blocks = u32::from(input.u8() % 64) + 1;
                    let reads = input.u8() & 1 == 0;
                    generation = generation.wrapping_add(1 << 10);
                    let cid = generation | slot as u16;
                    let at = DATA + (slot * BUFFER) as u64;
                    // Up to 32 KiB: contiguous pages of a list in the last buffer.
                    let list = DATA + (live.len() * BUFFER + slot * 512) as u64;
                    for page in 1..8u64 {
                        let entry = (live.len() * BUFFER + slot * 512) + (page as usize - 1) * 8;
                        rig.store(entry, &(at + page * 4096).to_le_bytes());
                    }
                    let second = if blocks <= 16 { at + 4096 } else { list };
                    let sqe = if reads {
                        Sqe::read(cid, 1, 0, blocks, at, second)
                    } else {
                        Sqe::write(cid, 1, 0, blocks, at, second, false)
                    };
                    rig.submit(&sqe);
                    if rig.ended().is_none() {
                        let bytes = blocks as usize * 512;
                        live[slot] = Some(Live { cid, bytes, reads });
                    }
                }
            }
            1 => {
                let raw: Vec<u8> = (0..input.u8() % 64).map(|_| input.u8()).collect();
                fed += raw.len();
                rig.feed(&raw);
            }
            _ => {
                let pdu = pdu(&mut input, dgst, &live);
                fed += pdu.len();
                // In parts, too.
                let at = usize::from(input.u16()) % (pdu.len() + 1);
                rig.feed(&pdu[..at]);
                rig.feed(&pdu[at..]);
            }
        }
        rig.drain();
        while let Some(cqe) = rig.reap() {
            let slot = usize::from(cqe.cid.get() & 0x3ff);
            let ended = live.get_mut(slot).and_then(Option::take).expect("it was in flight");
            assert_eq!(ended.cid, cqe.cid.get());
            let mut data = vec![0; BUFFER];
            rig.load(slot * BUFFER, &mut data);
            if cqe.status().is_success() && ended.reads {
                assert!(fed >= ended.bytes, "more data than has come");
            }
            if ended.reads {
                assert!(data[ended.bytes..].iter().all(|byte| *byte == 0), "beyond its buffer");
            } else {
                assert!(data.iter().all(|byte| *byte == 0), "a write's buffer has changed");
            }
            rig.store(slot * BUFFER, &clean);
        }
        let alive = live.iter().flatten().count();
        assert_eq!(usize::from(rig.in_flight()), alive);
    }
}

/// Checks what comes of one input.
pub fn check(bytes: &[u8]) {
    ARENA.with(|arena| run(arena, bytes))
}
