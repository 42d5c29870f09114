//! Gives the shared library its soname: the part of the version that stands for the ABI (of 0.x,
//! every minor version is one).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let abi = match env!("CARGO_PKG_VERSION_MAJOR") {
        "0" => concat!("0.", env!("CARGO_PKG_VERSION_MINOR")),
        major => major,
    };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmeantime.so.{abi}");
}
