//! The library as used by C programs: installed, found by pkg-config, linked both ways, used
//! correctly and incorrectly.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::mem::offset_of;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use meantime_c::abi;
use tempfile::TempDir;

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The directory of the libraries of this test run: beside the test itself.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().to_owned()
}

fn output(command: &mut Command) -> Output {
    match command.output() {
        Ok(output) => output,
        Err(error) => {
            panic!("cannot run {command:?} ({error}): install it, e.g. by `make setup-test`")
        }
    }
}

/// Runs `command`, which must succeed. Returns its stdout.
fn run(command: &mut Command) -> String {
    let output = output(command);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The header's code, without comments.
fn header() -> String {
    let mut text = std::fs::read_to_string(package().join("include/meantime.h")).unwrap();
    while let Some(start) = text.find("/*") {
        let end = start + text[start..].find("*/").expect("comments end") + 2;
        text.replace_range(start..end, "");
    }
    text
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = header();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let before = header.match_indices('(').map(|(at, _)| &header[..at]);
    let names =
        before.map(|text| text[text.rfind(|c| !is_name(c)).map_or(0, |at| at + 1)..].to_owned());
    names.filter(|name| name.starts_with("mt_")).collect()
}

/// The linkable code symbols of `library`.
fn symbols(library: &str, options: &[&str]) -> BTreeSet<String> {
    let listing = run(Command::new("nm").args(options).arg(built().join(library)));
    let code = listing.lines().filter_map(|line| line.split_once(" T "));
    code.map(|(_, name)| name.to_owned()).collect()
}

#[test]
fn what_is_declared_is_exported_and_nothing_else() {
    let declared = declared();
    assert!(declared.len() > 25 && declared.contains("mt_submit"), "{declared:?}");
    assert_eq!(symbols("libmeantime_c.so", &["-D", "--defined-only"]), declared);
    let in_archive = symbols("libmeantime_c.a", &["--defined-only"]);
    let ours: BTreeSet<String> =
        in_archive.into_iter().filter(|name| name.starts_with("mt_")).collect();
    assert_eq!(ours, declared);
}

/// A C file that compiles only if the header's structures and constants match Rust's.
fn layout_checks() -> String {
    let mut checks = String::from(
        "#include <meantime.h>\n#include <assert.h>\n#ifndef __cplusplus\n#include \
         <stdalign.h>\n#endif\n",
    );
    macro_rules! same_layout {
        ($name:literal = $type:ident { $($field:ident),* }) => {
            let size = size_of::<$type>();
            writeln!(checks, "static_assert(sizeof({}) == {size}, \"{}\");", $name, $name).unwrap();
            let align = align_of::<$type>();
            writeln!(checks, "static_assert(alignof({}) == \
                              {align}, \"{}\");", $name, $name).unwrap();
            // A structure literal that lists every field: a new one has to be listed here as well.
            let _ = |whole: $type| { let $type { $($field: _),* } = whole; };
            $({
                let (field, at) = (stringify!($field), offset_of!($type, $field));
                let text = concat!($name, ".", stringify!($field));
                writeln!(checks, "static_assert(offsetof({}, {field}) == \
                                  {at}, \"{text}\");", $name).unwrap();
            })*
        };
    }
    use abi::{Entry, Info, Options, Outcome, Request, Ticket, Word};
    same_layout!(
        "mt_info" = Info {
            blocks,
            block_bytes,
            max_transfer_bytes,
            volatile_write_cache,
            compare_write_blocks,
            uri,
            medium
        }
    );
    same_layout!("mt_channel_options" = Options { policy, depth, interrupt });
    same_layout!("mt_request" = Request { op, flags, lba, blocks, buf, policy, user_data });
    same_layout!("mt_ticket" = Ticket { id });
    same_layout!("mt_result" = Outcome { buf, user_data, error, reserved });
    same_layout!("mt_word" = Word { value, seen, parked });
    same_layout!("mt_ready" = Entry { key, what, reserved, result });
    let numbers: [(&str, u32); 14] = [
        ("MT_READ", abi::MT_READ),
        ("MT_WRITE", abi::MT_WRITE),
        ("MT_FLUSH", abi::MT_FLUSH),
        ("MT_WRITE_ZEROES", abi::MT_WRITE_ZEROES),
        ("MT_DEALLOCATE", abi::MT_DEALLOCATE),
        ("MT_COMPARE_AND_WRITE", abi::MT_COMPARE_AND_WRITE),
        ("MT_FUA", abi::MT_FUA),
        ("MT_DONE", abi::MT_DONE),
        ("MT_CHANGED", abi::MT_CHANGED),
        ("MT_READABLE", abi::MT_READABLE),
        ("MT_WOKEN", abi::MT_WOKEN),
        ("MT_VERSION_MAJOR", env!("CARGO_PKG_VERSION_MAJOR").parse().unwrap()),
        ("MT_VERSION_MINOR", env!("CARGO_PKG_VERSION_MINOR").parse().unwrap()),
        ("MT_VERSION_PATCH", env!("CARGO_PKG_VERSION_PATCH").parse().unwrap()),
    ];
    let numbers = numbers.map(|(name, value)| (name, i64::from(value)));
    for (name, value) in numbers.into_iter().chain([("MT_FOREVER", abi::MT_FOREVER)]) {
        writeln!(checks, "static_assert({name} == {value}, \"{name}\");").unwrap();
    }
    checks
}

const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-pedantic-errors", "-Werror"];

#[test]
fn the_header_is_c_and_cpp_and_has_rusts_layouts() {
    let dir = TempDir::new().unwrap();
    let checks = layout_checks();
    for (compiler, standard, name) in
        [("cc", "-std=c11", "layout.c"), ("c++", "-std=c++17", "layout.cpp")]
    {
        let file = dir.path().join(name);
        std::fs::write(&file, &checks).unwrap();
        let compile = |file: &Path| {
            let mut command = Command::new(compiler);
            command
                .arg(standard)
                .args(STRICT)
                .arg("-fsyntax-only")
                .arg("-I")
                .arg(package().join("include"));
            output(command.arg(file)).status.success()
        };
        assert!(compile(&file), "{name} against the header");
        // Verifies the checks themselves.
        let wrong = checks.replacen("mt_request) == 48", "mt_request) == 40", 1);
        std::fs::write(&file, wrong).unwrap();
        assert!(!compile(&file), "{name} with a wrong size");
    }
    assert!(header().contains(concat!("#define MT_VERSION \"", env!("CARGO_PKG_VERSION"), "\"")));
}

/// An installation in a separate directory.
struct Installed {
    dir: TempDir,
}

impl Installed {
    fn new() -> Self {
        let installed = Self { dir: TempDir::new().unwrap() };
        let from = installed.dir.path().join("built");
        std::fs::create_dir(&from).unwrap();
        for library in ["libmeantime_c.so", "libmeantime_c.a"] {
            std::os::unix::fs::symlink(built().join(library), from.join(library)).unwrap();
        }
        // The command, its library and the engine are of other packages; others do here.
        for library in ["libmeantime_intercept.so", "libmeantime_fio.so"] {
            std::fs::copy(built().join("libmeantime_c.so"), from.join(library)).unwrap();
        }
        // It is asked for the manual pages.
        let command = from.join("meantime");
        std::fs::write(&command, "#!/bin/sh\ntouch \"$2/meantime.1\" \"$2/meantime-x.1\"\n")
            .unwrap();
        std::fs::set_permissions(&command, PermissionsExt::from_mode(0o755)).unwrap();
        run(installed.script("install").arg("--from").arg(&from));
        installed
    }

    fn prefix(&self) -> PathBuf {
        self.dir.path().join("prefix")
    }

    fn script(&self, action: &str) -> Command {
        let mut command = Command::new(package().join("../../scripts/install.sh"));
        command.arg(action).arg("--prefix").arg(self.prefix());
        command
    }

    fn pkg_config(&self, options: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command
            .env("PKG_CONFIG_PATH", self.prefix().join("lib/pkgconfig"))
            .args(options)
            .arg("meantime");
        run(&mut command).split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles `source` against the installed library.
    fn compile(&self, source: &str, link: Link) -> PathBuf {
        let program = self.dir.path().join(format!("{}-{link:?}", source.replace(['/', '.'], "-")));
        let mut command = Command::new("cc");
        command.args(["-std=c11", "-O1", "-g"]).args(STRICT).arg("-o").arg(&program);
        command.arg(package().join(source)).args(self.pkg_config(&["--cflags"]));
        match link {
            Link::Shared => command.args(self.pkg_config(&["--libs"])),
            Link::Archive => {
                // With a shared library of the same name beside it, the linker needs an option.
                command.arg("-Wl,-Bstatic").args(self.pkg_config(&["--libs"]));
                command.args(["-Wl,-Bdynamic", "-lpthread", "-ldl", "-lm"]).args(OPENSSL)
            }
            Link::Static => {
                command.arg("-static").args(self.pkg_config(&["--static", "--libs"])).args(OPENSSL)
            }
        };
        run(&mut command);
        program
    }

    /// A command that finds the shared library.
    fn program(&self, name: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(name);
        command.env("LD_LIBRARY_PATH", self.prefix().join("lib"));
        command
    }

    /// A file for `kernel:`.
    fn file(&self) -> PathBuf {
        let path = self.dir.path().join("kernel.img");
        std::fs::write(&path, vec![0u8; 1 << 20]).unwrap();
        path
    }
}

/// The library that is built beside the command has what that needs; the installed one has not.
const OPENSSL: [&str; 3] = ["-Wl,--as-needed", "-lssl", "-lcrypto"];

#[derive(Debug, Clone, Copy)]
enum Link {
    Shared,
    /// Only this library is an archive.
    Archive,
    /// Nothing is shared.
    Static,
}

#[test]
fn the_example_runs_however_it_is_linked() {
    let installed = Installed::new();
    let file = format!("kernel:{}", installed.file().display());
    for link in [Link::Shared, Link::Archive, Link::Static] {
        let program = installed.compile("examples/qd1.c", link);
        let said = run(installed.program(&program).arg("mem:16M"));
        assert!(
            said.contains("one at a time") && said.contains("eight at once"),
            "{link:?}: {said}"
        );
        let needed = run(Command::new("readelf").arg("-d").arg(&program));
        assert_eq!(
            needed.contains("[libmeantime.so.0"),
            matches!(link, Link::Shared),
            "{link:?}: {needed}"
        );
        let wrong = output(installed.program(&program).args(["mem:16M", "polling"]));
        let errors = String::from_utf8_lossy(&wrong.stderr);
        assert!(wrong.status.code() == Some(1) && errors.contains("hybrid=<time>"), "{errors}");
    }
    let program = installed.compile("examples/qd1.c", Link::Shared);
    let said = run(installed.program(&program).args([&file, "interrupt"]));
    assert!(said.contains("eight at once"), "{said}");
}

/// Threads that share a counter in one block lose no increment; conflicts are distinguished from
/// failures.
#[test]
fn a_counter_is_shared_by_compare_and_write() {
    let installed = Installed::new();
    let program = installed.compile("tests/contend.c", Link::Shared);
    let said = run(installed.program(&program).arg(installed.file()));
    assert!(said.starts_with("2000 counted, "), "{said}");
}

/// Runs a test program; then again under valgrind: no bad access, and no leak.
fn run_twice(source: &str) {
    let installed = Installed::new();
    let program = installed.compile(source, Link::Shared);
    run(installed.program(&program).arg(installed.file()));
    let mut command = installed.program("valgrind");
    // Not "possibly" lost memory: Rust's library refers to its threads by interior pointers.
    command.args(["--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
    command.args(["--fair-sched=yes", "--quiet"]);
    run(command.arg(program).arg(installed.file()));
}

/// Every incorrect use that can be detected.
#[test]
fn misuse_is_refused() {
    run_twice("tests/misuse.c");
}

/// Groups: channels, descriptors, words, other threads; and every incorrect use of them.
#[test]
fn a_group_waits_for_whichever_is_first() {
    run_twice("tests/group.c");
}

#[test]
fn the_example_of_a_group_runs() {
    let installed = Installed::new();
    let program = installed.compile("examples/group.c", Link::Shared);
    let uris = ["mem:16M", "mem:16M?model=nand"];
    let said = run(installed.program(&program).args(uris));
    for (line, uri) in said.lines().zip(uris) {
        let reads = line.strip_prefix(&format!("{uri}: ")).and_then(|rest| rest.split_once(' '));
        let reads: u64 = reads.and_then(|(reads, _)| reads.parse().ok()).unwrap_or(0);
        assert!(reads > 100, "{said}");
    }
    assert_eq!(said.lines().count(), 2, "{said}");
    let wrong = output(installed.program(&program).args(["mem:16M", "men:16M"]));
    let errors = String::from_utf8_lossy(&wrong.stderr);
    assert!(wrong.status.code() == Some(1) && errors.contains("use mem:SIZE"), "{errors}");
}

#[test]
fn install_and_uninstall_are_inverse() {
    let installed = Installed::new();
    let prefix = installed.prefix();
    let version = env!("CARGO_PKG_VERSION");
    for name in [
        "bin/meantime",
        "include/meantime.h",
        "lib/libmeantime.a",
        "lib/meantime/libmeantime-fio.so",
        "lib/pkgconfig/meantime.pc",
        "share/man/man1/meantime.1",
        "share/bash-completion/completions/meantime",
        "share/zsh/site-functions/_meantime",
        "share/fish/vendor_completions.d/meantime.fish",
    ] {
        assert!(prefix.join(name).is_file(), "{name}");
    }
    let link = std::fs::read_link(prefix.join("lib/libmeantime.so")).unwrap();
    let link = std::fs::read_link(prefix.join("lib").join(link)).unwrap();
    assert_eq!(link.to_str(), Some(format!("libmeantime.so.{version}").as_str()));
    assert_eq!(installed.pkg_config(&["--modversion"]), [version]);
    std::fs::write(prefix.join("lib/somebody-elses"), "").unwrap();
    run(&mut installed.script("uninstall"));
    let left: Vec<PathBuf> = files(&prefix);
    assert_eq!(left, [prefix.join("lib/somebody-elses")]);
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn install_says_what_is_wrong() {
    let dir = TempDir::new().unwrap();
    let install = |prefix: &str| {
        let mut command = Command::new(package().join("../../scripts/install.sh"));
        let output =
            output(command.args(["install", "--prefix", prefix, "--from"]).arg(dir.path()));
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(install("relative").contains("absolute path"));
    assert!(install("/with a space").contains("pkg-config"));
    let target = dir.path().join("prefix");
    assert!(install(target.to_str().unwrap()).contains("make install"));
    assert!(!target.exists(), "something was written");
}
