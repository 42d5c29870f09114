//! fio closes an engine when a job ends. The library stays: it may have threads, and values of
//! threads that end later.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
