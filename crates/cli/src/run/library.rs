//! The libraries that are loaded into programs (LD_PRELOAD).

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A library that is loaded into programs.
pub(super) struct Library {
    /// Its file's name.
    file: &'static str,
    /// The variable that names another one.
    variable: &'static str,
}

/// Returns the value of LD_PRELOAD: our library first, since other ones may want to see the calls
/// that ours passes on.
pub(super) fn preloaded(library: &Path) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

impl Library {
    /// Reads the files in the program's process (`--private`).
    pub(super) const PRIVATE: Self =
        Self { file: "libmeantime_preload.so", variable: "MEANTIME_PRELOAD" };
    /// Sends the program's data calls to this process by shared memory.
    pub(super) const SHORT: Self =
        Self { file: "libmeantime_intercept.so", variable: "MEANTIME_INTERCEPT" };

    /// The error for a library that is nowhere.
    fn missing(&self, command: &Path) -> String {
        let (Self { file, variable }, place) = (self, command.display());
        if cfg!(target_feature = "crt-static") {
            // What loads libraries is the program's C library: a static build makes none.
            format!(
                "{place} is built statically and comes without {file}: use the command that `make \
                 install` or the package `meantime` installs, or name its library by {variable}"
            )
        } else {
            format!(
                "{file} is not beside {place} nor in ../lib/meantime: build it (`make build`), or \
                 name it by {variable}"
            )
        }
    }

    /// Returns the library's path: the variable's, else beside this command, or where it is installed.
    pub(super) fn find(&self) -> Result<PathBuf, Failure> {
        let Self { file, variable } = self;
        let found = match std::env::var_os(variable) {
            Some(path) => {
                let path = PathBuf::from(path);
                if !path.is_file() {
                    return Err(Failure::new(format_args!(
                        "{variable}={}: no such file",
                        path.display()
                    )));
                }
                path
            }
            None => {
                let command = std::env::current_exe().map_err(|error| {
                    Failure::new(format_args!("finding this command's own file: {error}"))
                })?;
                let beside = command.parent().unwrap_or(Path::new("/"));
                let places = ["", "deps", "../lib/meantime"];
                let places = places.map(|place| beside.join(place).join(file));
                let found = places.into_iter().find(|path| path.is_file());
                found.ok_or_else(|| Failure::new(self.missing(&command)))?
            }
        };
        let path = found
            .canonicalize()
            .map_err(|error| Failure::new(format_args!("{}: {error}", found.display())))?;
        if path
            .as_os_str()
            .as_bytes()
            .iter()
            .any(|byte| byte.is_ascii_whitespace() || *byte == b':')
        {
            let place = path.display();
            return Err(Failure::new(format_args!(
                "{place}: LD_PRELOAD cannot hold a path with a space or a colon; put the library \
             elsewhere and name it by {variable}"
            )));
        }
        Ok(path)
    }
}
