//! Runs [`meantime_fuzz::ssd`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meantime_fuzz::ssd::check(bytes));
