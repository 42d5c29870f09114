//! The versions that the engine knows, from source: `MEANTIME_FIO_VERSIONS="3.33 3.41"`, all of them.
//! Without it only what is installed is used.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{output, run};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().parent().unwrap()
}

/// What scripts/fio-offsets.sh prints.
fn script(arguments: &[&str]) -> String {
    let ran = output(Command::new(root().join("scripts/fio-offsets.sh")).args(arguments));
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

/// The table is what the headers give, and the engine works in that fio.
#[test]
fn each_version_works() {
    let mut programs = vec![PathBuf::from("fio")];
    let versions = std::env::var("MEANTIME_FIO_VERSIONS").unwrap_or_default();
    let versions: Vec<_> = versions.split_whitespace().collect();
    if !versions.is_empty() {
        let table = root().join("crates/fio-engine/src/abi/table.rs");
        let committed = std::fs::read_to_string(&table).unwrap();
        script(&versions);
        assert_eq!(std::fs::read_to_string(&table).unwrap(), committed, "fio {versions:?}");
    }
    for version in versions {
        programs.push(script(&["--build", version]).into());
    }
    for program in programs {
        let shape = "--thread=1\n--device=mem:16M\n--rw=randwrite\n--size=2M\n--verify=crc32c";
        for options in ["--bs=4k", "--bs=512\n--iodepth=8", "--bs=16k\n--iodepth=8\n--numjobs=2"] {
            // (Jobs side by side on their own halves.)
            let ran = run(&program, &format!("{shape}\n{options}\n--offset_increment=8M"));
            assert_eq!(ran.job(0)["read"]["io_bytes"], 2 << 20, "{}", program.display());
        }
        let bad = run(&program, "--thread=1\n--device=mem:1M\n--rw=read\n--bs=100");
        bad.refused("have 512 bytes");
    }
}
