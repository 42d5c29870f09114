//! What a competing program does.

use std::fmt;
use std::str::FromStr;

use meantime_block::parse_bytes;

/// The largest working set.
const WALK_MAX_BYTES: u64 = 1 << 32;

/// What a competitor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Reads the time stamp counter, and nothing else: a unit of work is a reading.
    Tsc,
    /// Walks and writes a working set in random order, which empties caches and TLB for its
    /// neighbour, and suffers from them being emptied: a unit of work is a cache line.
    Walk {
        /// Size of the working set.
        bytes: u64,
    },
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tsc => f.write_str("tsc"),
            Self::Walk { bytes } if bytes.is_multiple_of(1 << 20) => {
                write!(f, "walk={}m", bytes >> 20)
            }
            Self::Walk { bytes } if bytes.is_multiple_of(1 << 10) => {
                write!(f, "walk={}k", bytes >> 10)
            }
            Self::Walk { bytes } => write!(f, "walk={bytes}"),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "tsc" {
            return Ok(Self::Tsc);
        }
        let wrong = || {
            format!("{text:?} is no competitor: use tsc, or walk=BYTES (4k to 4g, e.g. walk=4m)")
        };
        let bytes = text.strip_prefix("walk=").and_then(parse_bytes).ok_or_else(wrong)?;
        if (4096..=WALK_MAX_BYTES).contains(&bytes) {
            Ok(Self::Walk { bytes })
        } else {
            Err(wrong())
        }
    }
}
