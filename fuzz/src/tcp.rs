//! The NVMe/TCP target, without its sockets: bytes of any kind on two connections, one of them
//! after a proper beginning. Nothing may panic, every answer is whole PDUs, and when the hosts have
//! gone nothing of them is left.

use crate::Input;
use meantime_ssd::tcp::{DEFAULT_NQN, Wire};
use meantime_ssd::{Medium, SsdConfig};

/// ICReq without digests.
fn icreq() -> Vec<u8> {
    let mut bytes = vec![0; 128];
    (bytes[2], bytes[4]) = (128, 128);
    bytes
}

/// A capsule of 72 bytes with a Fabrics command and in-capsule data.
fn capsule(sqe: &[(usize, u8)], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 72];
    (bytes[0], bytes[2]) = (4, 72);
    bytes[3] = if data.is_empty() { 0 } else { 72 };
    bytes[4..8].copy_from_slice(&(72 + data.len() as u32).to_le_bytes());
    for &(at, value) in sqe {
        bytes[8 + at] = value;
    }
    bytes.extend_from_slice(data);
    bytes
}

/// Connect of queue `qid`.
fn connect(qid: u8, cntlid: [u8; 2]) -> Vec<u8> {
    let mut data = vec![0; 1024];
    data[16..18].copy_from_slice(&cntlid);
    data[256..256 + DEFAULT_NQN.len()].copy_from_slice(DEFAULT_NQN.as_bytes());
    data[512..517].copy_from_slice(b"nqn.h");
    capsule(&[(0, 0x7f), (1, 0x40), (4, 1), (33, 4), (39, 1), (42, qid), (44, 31), (46, 4)], &data)
}

fn compare(mut answer: &[u8]) {
    while !answer.is_empty() {
        let length = u32::from_le_bytes(answer[4..8].try_into().unwrap()) as usize;
        assert!(matches!(answer[0], 1 | 3 | 5 | 7 | 9) && length >= 8, "no PDU");
        answer = &answer[length..];
    }
}

/// Checks what comes of one input.
pub fn check(bytes: &[u8]) {
    let config = SsdConfig { max_io_queues: 2, ..SsdConfig::with_namespace(1 << 16, 512) };
    let medium = Medium::dram(config.total_bytes()).unwrap();
    let mut wire = Wire::new(config, medium).unwrap();
    let (admin, io) = (wire.open().unwrap(), wire.open().unwrap());
    let mut answers = [Vec::new(), Vec::new()];
    let enable = capsule(&[(0, 0x7f), (1, 0x40), (40, 0), (44, 0x14), (48, 1), (50, 0x46)], &[]);
    let mut input = Input::new(bytes);
    if input.u8() > 15 {
        let begin = [icreq(), connect(0, [0xff, 0xff]), enable].concat();
        assert!(wire.exchange(admin, &begin, &mut answers[0]));
        assert!(wire.exchange(io, &[icreq(), connect(1, [1, 0])].concat(), &mut answers[1]));
    }
    let mut open = [true, true];
    while !input.is_empty() {
        let which = usize::from(input.u8() % 2);
        let mut piece: Vec<u8> = match input.u8() {
            // A capsule, with some of its entry set.
            0..=127 => {
                let set: Vec<_> = (0..input.u8() % 8)
                    .map(|_| (usize::from(input.u8() % 64), input.u8()))
                    .collect();
                let data = vec![input.u8(); usize::from(input.u16() % 1100)];
                capsule(&[&[(1, 0x40), (4, 1), (39, 0x5a)], &set[..]].concat(), &data)
            }
            // H2CData.
            128..=191 => {
                let mut bytes = vec![0; 24 + 512];
                (bytes[0], bytes[1], bytes[2], bytes[3]) = (6, input.u8() & 4, 24, 24);
                (bytes[4], bytes[5]) = (24, 2);
                bytes[8..20].copy_from_slice(&[
                    input.u8(),
                    0,
                    input.u8(),
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    2,
                    0,
                    0,
                ]);
                bytes
            }
            few => (0..few % 32).map(|_| input.u8()).collect(),
        };
        if input.u8() > 200 && !piece.is_empty() {
            let at = usize::from(input.u16()) % piece.len();
            piece[at] = input.u8();
        }
        let connection = [admin, io][which];
        if open[which] {
            open[which] = wire.exchange(connection, &piece, &mut answers[which]);
        }
    }
    answers.iter().for_each(|answer| compare(answer));
    wire.close(io);
    wire.close(admin);
    assert!(wire.is_clean(), "something is left");
}
