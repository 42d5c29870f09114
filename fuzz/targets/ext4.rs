//! Runs [`meantime_fuzz::ext4`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meantime_fuzz::ext4::check(bytes));
