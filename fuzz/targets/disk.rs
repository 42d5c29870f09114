//! Runs [`meantime_fuzz::disk`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meantime_fuzz::disk::check(bytes));
