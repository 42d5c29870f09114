//! The `meantime` command.

#![deny(unsafe_code)]

mod anatomy;
mod bench;
mod bind;
mod calibrate;
mod cli;
mod compare_and_write;
mod competitor;
mod copy;
mod devices;
mod failure;
mod fs;
mod idle;
mod info;
mod job;
mod location;
mod machine;
mod output;
mod report;
mod run;
mod signal;
mod ssd;
mod top;
mod waits;

use std::process::ExitCode;

use cli::Command;
use meantime_report::figures;

fn main() -> ExitCode {
    // What the driver has to say of a device that misbehaves goes to stderr, a line each.
    let warnings =
        tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr);
    let _ = warnings.without_time().with_target(false).try_init();
    let command = match cli::parse() {
        Ok(command) => command,
        Err(code) => return code,
    };
    let done = match &command {
        Command::Bench(args) => bench::run(args),
        Command::Report(args) => report::run(args),
        Command::Info(args) => info::run(args),
        Command::Copy(args) => copy::run(args),
        Command::CompareAndWrite(args) => compare_and_write::run(args),
        Command::Calibrate(args) => calibrate::run(args),
        Command::Anatomy(args) => anatomy::run(args),
        Command::Top(args) => top::run(args),
        Command::Waits(args) => waits::run(args),
        Command::Devices(args) => devices::run(args),
        Command::Fs(args) => fs::run(args),
        Command::Bind(args) => bind::bind(args),
        Command::Unbind(args) => bind::unbind(args),
        Command::Run(args) => run::run(args),
        Command::Ssd(args) => ssd::run(args),
        Command::Competitor(args) => competitor::run(args),
    };
    done.unwrap_or_else(|failure| {
        failure.show();
        failure.exit_code()
    })
}
