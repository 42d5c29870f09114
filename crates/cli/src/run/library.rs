//! The library that is loaded into programs (LD_PRELOAD). It sends their data calls by shared
//! memory to the process that has the mount.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::failure::{Context as _, Failure};

/// Its file's name.
const FILE: &str = "libmeantime_intercept.so";
/// The variable that names another file.
const VARIABLE: &str = "MEANTIME_INTERCEPT";

/// A prefix of the library's path. For the loader of glibc it leads from an existing directory to
/// the root. For that of musl, which knows no `$LIB`, it leads nowhere: musl ignores a library that
/// does not exist, but fails with one that needs glibc.
const ONLY_GLIBC: &str = "/usr/$LIB/../../../../..";

/// Returns the value of LD_PRELOAD. Our library comes first, since other ones may want to see the
/// calls that ours passes on.
pub(super) fn preloaded(library: &Path) -> OsString {
    let is_there = Path::new("/usr/lib").is_dir();
    let mut all = OsString::from(if is_there { ONLY_GLIBC } else { "" });
    all.push(library);
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

/// The error for a library that is nowhere.
fn missing(command: &Path) -> String {
    let place = command.display();
    if cfg!(target_feature = "crt-static") {
        // The program's C library loads libraries, and a static build makes none.
        format!(
            "{place} is built statically and comes without {FILE}: use the command that `make \
             install` or the package `meantime` installs, or name its library by {VARIABLE}"
        )
    } else {
        format!(
            "{FILE} is not beside {place} nor in ../lib/meantime: build it (`make build`), or \
             name it by {VARIABLE}"
        )
    }
}

/// Returns the library's path: the one that the variable names, or else the one beside this command
/// or where it is installed.
pub(super) fn find() -> Result<PathBuf, Failure> {
    let found = match std::env::var_os(VARIABLE) {
        Some(path) => {
            let path = PathBuf::from(path);
            if !path.is_file() {
                let path = path.display();
                return Err(Failure::new(format_args!("{VARIABLE}={path}: no such file")));
            }
            path
        }
        None => {
            let command = std::env::current_exe().context("finding this command's own file")?;
            let beside = command.parent().unwrap_or(Path::new("/"));
            let places = ["", "deps", "../lib/meantime"];
            let places = places.map(|place| beside.join(place).join(FILE));
            let found = places.into_iter().find(|path| path.is_file());
            found.ok_or_else(|| Failure::new(missing(&command)))?
        }
    };
    let path = found.canonicalize().context(found.display())?;
    if path.as_os_str().as_bytes().iter().any(|byte| byte.is_ascii_whitespace() || *byte == b':') {
        let place = path.display();
        return Err(Failure::new(format_args!(
            "{place}: LD_PRELOAD cannot hold a path with a space or a colon; put the library \
             elsewhere and name it by {VARIABLE}"
        )));
    }
    Ok(path)
}
