//! Tests that need no program around them. The rest is tested with programs under `meantime run`
//! (`crates/cli/tests/it/shared_memory_path.rs`).
//!
//! The library is not linked: its functions would stand before the test's own calls.

#[expect(dead_code, reason = "the library uses the rest")]
#[path = "../../src/table.rs"]
mod table;

mod entries;
