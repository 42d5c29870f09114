//! Runs [`meantime_fuzz::user`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meantime_fuzz::user::check(bytes));
