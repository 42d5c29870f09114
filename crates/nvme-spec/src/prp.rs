//! Physical Region Pages (1.4 §4.3, 2.0 §4.1.1), for the memory page size this project selects
//! (CC.MPS = 0).

/// Bytes per memory page.
pub const PAGE_SIZE: usize = 4096;

/// Bytes per PRP entry, a 64-bit address.
pub const ENTRY_SIZE: usize = 8;

/// Entries in a PRP list of one page. If more are needed, the last points to the next list instead
/// of to data.
pub const ENTRIES_PER_LIST: usize = 512;

const _: () = assert!(PAGE_SIZE / ENTRY_SIZE == ENTRIES_PER_LIST);
