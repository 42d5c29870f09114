//! The command as its users run it.

mod anatomy;
mod bad_input;
mod bench;
mod bench_files;
mod browser;
mod common;
mod compare_and_write;
mod copy;
mod devices;
mod fio;
mod fio_examples;
mod fio_keys;
mod fs;
mod fs_write;
mod image;
mod in_use;
mod info_and_calibrate;
mod inside;
mod kernel;
mod mount;
mod report;
mod run;
mod run_mounted;
mod ssd;
mod top;
mod waits;
