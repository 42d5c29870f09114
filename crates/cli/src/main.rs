//! The `meantime` command.
fn main() {}
