//! Crashes: the process that serves a mount, programs that make things durable on it, or both are
//! killed (SIGKILL). Then the file system is recovered by us, by the kernel or by `e2fsck -p`, in
//! turns. Everything that a program was told is durable has to be there. Each program takes the
//! shared-memory path or the FUSE path, by chance.
//!
//! `MEANTIME_CRASH_ROUNDS=n` sets the number of rounds of the long form, `MEANTIME_CRASH_SEED=n`
//! the first seed.

mod files;
mod round;
mod server;
#[path = "../way/mod.rs"]
mod way;

use meantime_testkit::setting;

/// The variable that tells a child process its role in the test.
const ROLE: &str = "MEANTIME_CRASH_ROLE";

fn main_of_role(role: &str) {
    match role {
        "server" => server::serve(),
        "files" => {
            let at = |name: &str| std::env::var_os(name).unwrap().into();
            let (dir, notes): (std::path::PathBuf, std::path::PathBuf) = (at("DIR"), at("NOTES"));
            // An error means that the mount is gone.
            let _ = files::work(&dir, &notes, setting("SEED").unwrap());
        }
        _ => panic!("{ROLE}={role}"),
    }
}

/// Runs the short form. It is also the entry point of the child processes.
#[test]
fn what_is_durable_survives_some_crashes() {
    match std::env::var(ROLE) {
        Ok(role) => main_of_role(&role),
        Err(_) => round::run(10, setting("MEANTIME_CRASH_SEED").unwrap_or(1)),
    }
}

#[test]
#[ignore = "takes about a second for each round (make test-long)"]
fn what_is_durable_survives_many_crashes() {
    let rounds = setting("MEANTIME_CRASH_ROUNDS").unwrap_or(1000);
    round::run(rounds, setting("MEANTIME_CRASH_SEED").unwrap_or(1));
}
