//! The `meantime` command.

mod bench;
mod calibrate;
mod cli;
mod failure;
mod figures;
mod info;
mod job;
mod machine;
mod output;
mod report;
mod signal;

use std::process::ExitCode;

use cli::Command;

fn main() -> ExitCode {
    let command = match cli::parse() {
        Ok(command) => command,
        Err(code) => return code,
    };
    let done = match &command {
        Command::Bench(args) => bench::run(args),
        Command::Info(args) => info::run(args),
        Command::Calibrate(args) => calibrate::run(args),
    };
    done.unwrap_or_else(|failure| {
        failure.show();
        failure.exit_code()
    })
}
