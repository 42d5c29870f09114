//! The `meantime` command.
//!
//! # What it is for
//! Every public operation of the library can be reached from here, and compared. Each command is a
//! module; its options and texts are in the file of the same name in `cli/`.
//!
//! # What it promises
//! - An error is one line on stderr, with a remedy (`failure`). Exit status: 0 done, 1 an error, 2
//!   an invalid command line, 3 a change that `--fail-if` forbids
//!   or a device that deviates, 130 Ctrl-C.
//! - A file of results appears whole or not at all (`output`).
//! - Output that programs read (fio's JSON, exit codes) is stable.
//!
//! # Parts, in reading order
//! ```text
//!   cli/            clap's definitions; texts of --help
//!   bench/          the arguments, the progress and the files of a run; jobs and the run itself
//!                     are in the crate meantime-bench
//!   report          reads JSON of runs, and writes what the crate meantime-report makes of it
//!   compare         reads JSON of runs before and after a change, and judges the change
//!   waits/          the grid of policies, live or simulated
//!   anatomy/        single I/Os taken apart
//!   reproduce/      the five documents' experiments; they are in the crate meantime-reproduce
//!   competitor/     the program that competes for the CPU
//!   fs/ run/        files
//!   mount/          a file system in the kernel; also as mount(8)'s helper
//!   man complete/   manual pages; what shells offer at Tab (their scripts: completions/)
//!   qualify/        what is tried on a controller; the checks are in the crate meantime-qualify
//!   ssd/ top/ devices/ bind/ calibrate/ copy/ info discover
//! ```
//!
//! `bench --html` goes through the JSON, so that a page from a file cannot differ from one from a
//! run. Percentiles come from the histogram's bins; without bins, curves join the known percentiles
//! and say so. Runs are compared only within one job, one device and one machine.

#![deny(unsafe_code)]

mod anatomy;
mod bench;
mod bind;
mod calibrate;
mod cli;
mod compare;
mod competitor;
mod complete;
mod copy;
mod devices;
mod discover;
mod facts;
mod failure;
mod fs;
mod idle;
mod info;
mod location;
mod machine;
mod man;
mod metrics;
mod mount;
mod output;
mod partitions;
mod qualify;
mod report;
mod reproduce;
mod run;
mod signal;
mod ssd;
mod top;
mod waits;

use std::process::ExitCode;

use cli::Command;
use meantime_bench::job;
use meantime_report::figures;

fn main() -> ExitCode {
    // A process started as /proc/self/exe would have the name `exe`.
    let _ = rustix::thread::set_name(c"meantime");
    // Other processes may use their names while a command runs.
    let _ = meantime_baselines::register();
    // The driver's warnings about a misbehaving device go to stderr, a line each.
    // `qualify` provokes them, and has verdicts of its own.
    let provokes = std::env::args_os().nth(1).is_some_and(|command| command == "qualify");
    let level = if provokes { tracing::Level::ERROR } else { tracing::Level::WARN };
    let warnings = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    let _ = warnings.without_time().with_target(false).try_init();
    if let Some(code) = mount::as_helper() {
        return code;
    }
    let command = match cli::parse() {
        Ok(Command::Bench(args)) => Command::Bench(Box::new(args.with_fios())),
        Ok(command) => command,
        Err(code) => return code,
    };
    let done = match &command {
        Command::Bench(args) => bench::run(args),
        Command::Report(args) => report::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Info(args) => info::run(args),
        Command::Qualify(args) => qualify::run(args),
        Command::Discover(args) => discover::run(args),
        Command::Copy(args) => copy::run(args),
        Command::Calibrate(args) => calibrate::run(args),
        Command::Anatomy(args) => anatomy::run(args),
        Command::Top(args) => top::run(args),
        Command::Waits(args) => waits::run(args),
        Command::Reproduce(args) => reproduce::run(args),
        Command::Devices(args) => devices::run(args),
        Command::Fs(args) => fs::run(args),
        Command::Bind(args) => bind::bind(args),
        Command::Unbind(args) => bind::unbind(args),
        Command::Run(args) => run::run(args),
        Command::Mount(args) => mount::mount(args),
        Command::Umount(args) => mount::umount(args),
        Command::Ssd(args) => ssd::run(args),
        Command::Competitor(args) => competitor::run(args),
        Command::Man(args) => man::run(args),
        Command::Complete(args) => complete::run(args),
        Command::Completions(args) => complete::print_script(args),
    };
    done.unwrap_or_else(|failure| {
        failure.show();
        failure.exit_code()
    })
}
