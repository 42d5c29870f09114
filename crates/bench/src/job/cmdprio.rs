//! `cmdprio_percentage` and related keys: some I/Os of a job have a priority of their own.

use meantime_hw::IoPriority;

use super::Job;
use super::lists::of_both;
use super::value::{self, Why};

/// A share of the I/Os of one size, and the priority they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityShare {
    /// The size; `None`: any size.
    pub bytes: Option<u64>,
    /// Their share, in percent.
    pub percent: u8,
    /// The priority in the kernel's encoding; `None`: that of the job's `cmdprio` and
    /// `cmdprio_class`.
    pub bits: Option<u16>,
}

/// The keys, for reads and for writes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CmdPrio {
    /// `cmdprio_percentage`.
    pub percent: [u8; 2],
    /// `cmdprio_class`; 0: real time.
    pub class: [u8; 2],
    /// `cmdprio`.
    pub level: [u8; 2],
    /// `cmdprio_hint`.
    pub hint: [u16; 2],
    /// `cmdprio_bssplit`.
    pub split: [Vec<PriorityShare>; 2],
}

/// Returns a priority in the kernel's encoding: class, hint, level.
fn bits(class: u8, level: u8, hint: u16) -> u16 {
    u16::from(class) << 13 | hint << 3 | u16::from(level)
}

/// Parses one number for both directions, or two.
pub(super) fn numbers<T: TryFrom<u64>>(text: &str, max: u64) -> Result<[T; 2], Why> {
    let (read, write) = text.split_once(',').unwrap_or((text, text));
    let number = |part: &str| {
        let number = value::int(part.trim(), 0, max)?;
        T::try_from(number).map_err(|_| "too large".to_owned())
    };
    Ok([number(read)?, number(write)?])
}

/// Parses `cmdprio_bssplit`: `64k/40:1m/60`, or with class, level and hint:
/// `64k/25/1/1:64k/75/3/2`.
pub(super) fn split(text: &str) -> Result<[Vec<PriorityShare>; 2], Why> {
    let both = of_both(text, |part| part.split(':').map(share).collect::<Result<Vec<_>, _>>())?;
    for shares in &both {
        for share in shares {
            let of_size = shares.iter().filter(|other| other.bytes == share.bytes);
            if of_size.map(|share| u32::from(share.percent)).sum::<u32>() > 100 {
                let bytes = share.bytes.unwrap_or(0);
                return Err(format!("the shares of blocks of {bytes} bytes are more than 100 %"));
            }
        }
    }
    Ok(both)
}

fn share(text: &str) -> Result<PriorityShare, Why> {
    let parts: Vec<&str> = text.split('/').map(str::trim).collect();
    let number = |at: usize, max| value::int(parts[at], 0, max);
    let bits = match parts.len() {
        2 => None,
        4 | 5 => {
            let hint = if parts.len() == 5 { number(4, 1023)? as u16 } else { 0 };
            Some(bits(number(2, 3)? as u8, number(3, 7)? as u8, hint))
        }
        _ => {
            return Err(
                "expected size/percent or size/percent/class/level, such as 64k/25/1/0".to_owned()
            );
        }
    };
    let bytes = value::size(parts[0])?.bytes;
    let percent = parts[1].strip_suffix('%').unwrap_or(parts[1]);
    let percent = value::int(percent, 0, 100)? as u8;
    Ok(PriorityShare { bytes: Some(bytes), percent, bits })
}

impl CmdPrio {
    /// Returns whether some I/Os of that direction have a priority of their own.
    fn asks(&self, direction: usize) -> bool {
        self.percent[direction] > 0 || self.split[direction].iter().any(|share| share.percent > 0)
    }
}

impl Job {
    /// Returns the shares of reads and of writes that have a priority of their own; `None` if there
    /// are none.
    pub(crate) fn own_priorities(&self) -> Option<[Vec<PriorityShare>; 2]> {
        let keys = &self.cmdprio;
        let asks = [self.reads() && keys.asks(0), self.writes() && keys.asks(1)];
        asks.contains(&true).then(|| {
            [0, 1].map(|direction| {
                let class = if keys.class[direction] == 0 { 1 } else { keys.class[direction] };
                let usual = bits(class, keys.level[direction], keys.hint[direction]);
                let all =
                    PriorityShare { bytes: None, percent: keys.percent[direction], bits: None };
                let shares = std::iter::once(&all).chain(&keys.split[direction]);
                let some = shares.filter(|share| share.percent > 0 && asks[direction]);
                some.map(|share| PriorityShare { bits: share.bits.or(Some(usual)), ..*share })
                    .collect()
            })
        })
    }

    /// Returns the priority of the other I/Os in the kernel's encoding.
    pub fn usual_priority_bits(&self) -> u16 {
        self.io_priority().map_or(0, IoPriority::bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Origin;
    use crate::job::testing::job;

    #[test]
    fn shares_are_fios() {
        let of = |keys: &[(&str, &str)]| job(keys).own_priorities();
        let any = |percent, bits| PriorityShare { bytes: None, percent, bits: Some(bits) };
        let sized =
            |bytes, percent, bits| PriorityShare { bytes: Some(bytes), percent, bits: Some(bits) };
        // Real time is the default class.
        assert_eq!(of(&[("cmdprio_percentage", "20")]), Some([vec![any(20, 1 << 13)], vec![]]));
        let keys = [
            ("rw", "randrw"),
            ("cmdprio_percentage", "20,5"),
            ("cmdprio_class", "2,3"),
            ("cmdprio", "4"),
        ];
        assert_eq!(of(&keys), Some([vec![any(20, 2 << 13 | 4)], vec![any(5, 3 << 13 | 4)]]));
        let keys = [
            ("rw", "randrw"),
            ("cmdprio_bssplit", "64k/100:1024k/0,1024k/0"),
            ("cmdprio_class", "1"),
        ];
        assert_eq!(of(&keys), Some([vec![sized(65_536, 100, 1 << 13)], vec![]]));
        let keys = [("cmdprio_bssplit", "64k/25/1/1:64k/75/3/2:1m/10/2/0/3")];
        let want = [
            sized(65_536, 25, 1 << 13 | 1),
            sized(65_536, 75, 3 << 13 | 2),
            sized(1 << 20, 10, 2 << 13 | 3 << 3),
        ];
        assert_eq!(of(&keys), Some([want.to_vec(), vec![]]));
        assert_eq!(of(&[("rw", "write"), ("cmdprio_percentage", "20,0")]), None);
        assert_eq!(of(&[("cmdprio_class", "1")]), None);
    }

    #[test]
    fn what_is_no_share() {
        for (key, value, why) in [
            ("cmdprio_percentage", "101", "out of range"),
            ("cmdprio_class", "4", "out of range"),
            ("cmdprio", "8", "out of range"),
            ("cmdprio_bssplit", "64k", "expected size/percent"),
            ("cmdprio_bssplit", "64k/10/1", "expected size/percent"),
            ("cmdprio_bssplit", "64k/60:64k/41", "more than 100 %"),
            ("cmdprio_bssplit", "64k/10/4/0", "out of range"),
        ] {
            let error = Job::new("a").set(key, Some(value), &Origin::CommandLine).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
