//! Sets the soname of the shared library: the part of the version that identifies the ABI (in 0.x,
//! every minor version).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let abi = match env!("CARGO_PKG_VERSION_MAJOR") {
        "0" => concat!("0.", env!("CARGO_PKG_VERSION_MINOR")),
        major => major,
    };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmeantime.so.{abi}");
}
