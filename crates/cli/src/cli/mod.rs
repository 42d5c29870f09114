//! The command line.

mod anatomy;
mod bench;
mod compare;
mod copy;
mod fs;
mod fs_write;
mod help;
mod job_keys;
mod mount;
mod pci;
mod qualify;
mod reproduce;
mod run;
mod ssd;
mod top;
mod waits;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

pub(crate) use anatomy::{AnatomyArgs, CompetitorArgs};
pub(crate) use bench::{BenchArgs, TableArgs};
pub(crate) use compare::CompareArgs;
pub(crate) use copy::CopyArgs;
pub(crate) use fs::{CatArgs, CheckArgs, FsArgs, FsCommand, GetArgs, LsArgs, MountArgs, PlaceArgs};
pub(crate) use fs_write::{
    FEATURES, LnArgs, MkdirArgs, MkfsArgs, MvArgs, PutArgs, RmArgs, TruncateArgs, WriteArgs,
};
pub(crate) use mount::{KernelMountArgs, MountHelperArgs, UmountArgs, UmountHelperArgs};
pub(crate) use pci::{BindArgs, DevicesArgs, UnbindArgs};
pub(crate) use qualify::QualifyArgs;
pub(crate) use reproduce::ReproduceArgs;
pub(crate) use run::RunArgs;
pub(crate) use ssd::{CtlArgs, SsdArgs, SsdCommand, SsdLog};
pub(crate) use top::TopArgs;
pub(crate) use waits::WaitsArgs;

use crate::failure::Failure;
use help::help;
pub(crate) use help::part;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "meantime",
    version = env!("MEANTIME_VERSION"),
    about = "A user-space I/O stack for SSDs that answer in microseconds",
    long_about = help!("meantime", "about"),
    after_long_help = help!("meantime", "after"),
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure a device: run fio jobs on it and compare ways to wait
    #[command(long_about = help!("bench", "about"), after_long_help = help!("bench", "after"))]
    Bench(Box<BenchArgs>),
    /// Make one HTML page from the JSON of earlier runs: tables, plots, findings
    #[command(long_about = help!("report", "about"), after_long_help = help!("report", "after"))]
    Report(ReportArgs),
    /// Judge a change by the JSON of runs before and after it: faster, slower, or not clear
    #[command(long_about = help!("compare", "about"), after_long_help = help!("compare", "after"))]
    Compare(CompareArgs),
    /// Show what a device says of itself: identify, namespaces, features, SMART
    #[command(long_about = help!("info", "about"), after_long_help = help!("info", "after"))]
    Info(InfoArgs),
    /// Try on a controller what has to work before it is trusted: one command, one page
    #[command(long_about = help!("qualify", "about"), after_long_help = help!("qualify", "after"))]
    Qualify(QualifyArgs),
    /// Ask an NVMe/TCP target which subsystems it has
    #[command(long_about = help!("discover", "about"))]
    #[command(after_long_help = help!("discover", "after"))]
    Discover(DiscoverArgs),
    /// Copy all of a device's data: to another device, or from or to a pipe
    #[command(long_about = help!("copy", "about"), after_long_help = help!("copy", "after"))]
    Copy(CopyArgs),
    /// Read an ext4 file system on a device: ls, cat, stat, get, tree, df, info, extents, check
    #[command(long_about = help!("fs", "about"), after_long_help = help!("fs", "after"))]
    Fs(FsArgs),
    /// Run a program that sees a device's ext4 file system mounted, which nobody else does
    #[command(long_about = help!("run", "about"), after_long_help = help!("run", "after"))]
    Run(RunArgs),
    /// Mount a device's ext4 file system in the kernel: every program can read and write it
    #[command(long_about = help!("mount", "about"), after_long_help = help!("mount", "after"))]
    Mount(KernelMountArgs),
    /// Unmount what `mount` has mounted, and wait until everything is written
    #[command(long_about = help!("umount", "about"), after_long_help = help!("umount", "after"))]
    Umount(UmountArgs),
    /// Measure what waiting costs on this machine
    #[command(long_about = help!("calibrate", "about"))]
    #[command(after_long_help = help!("calibrate", "after"))]
    Calibrate(CalibrateArgs),
    /// Take single I/Os apart: submission, device, wake-up, completion
    #[command(long_about = help!("anatomy", "about"), after_long_help = help!("anatomy", "after"))]
    Anatomy(AnatomyArgs),
    /// Compare ways to wait over a grid of device times and shapes
    #[command(long_about = help!("waits", "about"), after_long_help = help!("waits", "after"))]
    Waits(WaitsArgs),
    /// Measure the tables and figures of five documents again, and judge their claims
    #[command(long_about = help!("reproduce", "about"))]
    #[command(after_long_help = help!("reproduce", "after"))]
    Reproduce(ReproduceArgs),
    /// Look at the queues of a running process, and change how they wait
    #[command(long_about = help!("top", "about"), after_long_help = help!("top", "after"))]
    Top(TopArgs),
    /// Show the NVMe controllers of this machine: driver, IOMMU group, what uses them
    #[command(long_about = help!("devices", "about"), after_long_help = help!("devices", "after"))]
    Devices(DevicesArgs),
    /// Hand an NVMe controller to user space (vfio-pci)
    #[command(long_about = help!("bind", "about"), after_long_help = help!("bind", "after"))]
    Bind(BindArgs),
    /// Give an NVMe controller back to the kernel's driver
    #[command(long_about = help!("unbind", "about"), after_long_help = help!("unbind", "after"))]
    Unbind(UnbindArgs),
    /// Serve a software SSD to other people's drivers, over vfio-user; inject faults into a running
    /// one
    #[command(long_about = help!("ssd", "about"), after_long_help = help!("ssd", "after"))]
    Ssd(SsdArgs),
    /// The competing program of `anatomy`: not for the command line
    #[command(hide = true)]
    Competitor(CompetitorArgs),
    /// Print a shell's script for completions: bash, zsh, fish
    #[command(long_about = help!("completions", "about"))]
    #[command(after_long_help = help!("completions", "after"))]
    Completions(CompletionsArgs),
    /// Write the manual pages: for `make install`
    #[command(hide = true)]
    Man(ManArgs),
    /// Say how a command line can go on: for shells
    #[command(hide = true)]
    Complete(CompleteArgs),
}

/// Options of `report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// JSON files of `meantime bench --json` or `fio --output-format=json` (or json+)
    #[arg(value_name = "FILE.json", required = true, long_help = help!("report", "FILE.json"))]
    pub files: Vec<PathBuf>,
    /// Write the page to FILE, or to standard output (-)
    #[arg(long, value_name = "FILE", default_value = "meantime-report.html")]
    #[arg(long_help = help!("report", "--html"))]
    pub html: PathBuf,
    /// The table for other programs.
    #[command(flatten)]
    pub tables: TableArgs,
    /// Print the table only, write no page
    #[arg(long, conflicts_with = "html")]
    pub text: bool,
}

/// Options of `info`.
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// The device to ask, e.g. mem:1G?model=optane or file:disk.img
    #[arg(long, value_name = "URI", default_value = "mem:64M")]
    #[arg(long_help = help!("info", "--device"))]
    pub device: String,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

/// Options of `discover`.
#[derive(Debug, Args)]
pub(crate) struct DiscoverArgs {
    /// The target, e.g. nvme+tcp://192.0.2.7
    #[arg(value_name = "URI", long_help = help!("discover", "URI"))]
    pub target: String,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Options of `calibrate`.
#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// A tenth of the samples: a second or two instead of several
    #[arg(long)]
    pub quick: bool,
}

/// Options of `man`, which `make install` calls.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The directory to write the pages into.
    pub dir: PathBuf,
}

/// Options of `completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

/// Options of `complete`, which shells call.
#[derive(Debug, Args)]
pub(crate) struct CompleteArgs {
    /// Who asks.
    pub shell: Shell,
    /// Characters at which bash's readline begins a new word.
    #[arg(long, default_value = "")]
    pub breaks: String,
    /// The command line up to the cursor. The last word is the one to complete.
    #[arg(last = true, required = true)]
    pub words: Vec<OsString>,
}

/// A shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    // Gives words as they were typed, and inserts candidates as they are. (What shells do is not
    // for `--help`.)
    Bash,
    // Gives the last word as it was typed.
    Fish,
    // Gives words without their quotes.
    Zsh,
}

/// The definition of the whole command line.
pub(crate) fn definition() -> clap::Command {
    Cli::command()
}

/// Reads the command line. Help and version were printed when it gives an exit code of success.
pub(crate) fn parse() -> Result<Command, ExitCode> {
    let words = job_keys::as_options(std::env::args_os().collect());
    Cli::try_parse_from(words).map(|cli| cli.command).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // The reader that closed the pipe has read enough.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if std::io::stderr().is_terminal() => {
            let _ = error.print();
            ExitCode::from(crate::failure::USAGE)
        }
        _ => {
            let failure = Failure::usage(one_line(&error));
            failure.show();
            failure.exit_code()
        }
    })
}

/// Reads the command line of another program that this one stands for.
pub(crate) fn parse_as<T: Parser>(words: &[OsString]) -> Result<T, Failure> {
    T::try_parse_from(words).map_err(|error| Failure::usage(one_line(&error)))
}

/// Formats clap's paragraphs as one line: the error, its tips, and where to read on.
fn one_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let all = Cli::command();
        let shown = all.get_subcommands().filter(|command| !command.is_hide_set());
        let names: Vec<&str> = shown.map(clap::Command::get_name).collect();
        return format!("no command given: one of {}; see `meantime --help`", names.join(", "));
    }
    if let (ErrorKind::UnknownArgument, Some(ContextValue::String(argument))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
        && argument.trim_start_matches('-').starts_with(|first: char| first.is_ascii_digit())
    {
        return format!(
            "unexpected argument {argument}: no size, time or number begins with a minus sign; \
             see `meantime --help`, or `meantime COMMAND --help`"
        );
    }
    let text = error.render().to_string();
    let mut parts = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("Usage:") || line.starts_with("For more information") {
            break;
        }
        let line = line.strip_prefix("error: ").unwrap_or(line);
        match line.strip_prefix("tip: ") {
            Some(tip) => parts.push(format!("({tip})")),
            None if !line.is_empty() => parts.push(line.to_owned()),
            None => {}
        }
    }
    format!("{}; see `meantime --help`, or `meantime COMMAND --help`", parts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn errors_are_one_line() {
        for (args, word) in [
            (&["meantime", "bench", "--flor"][..], "--floor"),
            (&["meantime", "bench", "--rounds", "x"], "--rounds"),
            (&["meantime", "frobnicate"], "frobnicate"),
            (&["meantime", "info", "--device"], "--device"),
            (&["meantime"], "no command"),
        ] {
            let error = one_line(&Cli::try_parse_from(args).unwrap_err());
            assert!(error.contains(word) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn help_of_ssd_ctl_keeps_within_100_columns() {
        let mut command = Cli::command();
        command.build();
        let ssd = command.find_subcommand_mut("ssd").unwrap();
        let help = ssd.find_subcommand_mut("ctl").unwrap().render_long_help().to_string();
        assert!(help.lines().map(|line| line.chars().count()).max().unwrap() <= 100, "{help}");
        for section in ["EXAMPLES", "EXIT STATUS", "OUTPUT"] {
            assert!(help.contains(section), "no {section}");
        }
    }

    #[test]
    fn help_keeps_within_100_columns() {
        let mut command = Cli::command();
        command.build();
        for name in [
            "bench",
            "report",
            "compare",
            "info",
            "qualify",
            "calibrate",
            "anatomy",
            "waits",
            "reproduce",
            "top",
            "devices",
            "bind",
            "unbind",
            "ssd",
            "run",
            "mount",
            "umount",
            "fs",
        ] {
            let help = command.find_subcommand_mut(name).unwrap().render_long_help().to_string();
            let widest = help.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= 100, "{name}: {widest}");
            for section in ["EXAMPLES", "EXIT STATUS", "OUTPUT"] {
                assert!(help.contains(section), "{name} has no {section}");
            }
        }
    }

    /// Splits a line as a shell does, up to the first operator.
    fn words(line: &str) -> Vec<String> {
        let (mut all, mut word, mut quoted) = (Vec::new(), String::new(), false);
        for character in line.chars() {
            match character {
                '\'' => quoted = !quoted,
                '|' | '>' | '&' | '#' if !quoted => break,
                ' ' if !quoted => all.extend((!word.is_empty()).then(|| std::mem::take(&mut word))),
                _ => word.push(character),
            }
        }
        all.extend((!word.is_empty()).then_some(word));
        all
    }

    /// Each example of the help texts, as typed.
    #[test]
    fn examples_can_be_typed() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("help");
        let mut count = 0;
        for entry in std::fs::read_dir(directory).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let text = text.replace("\\\n", " ");
            for line in text.lines().filter(|line| line.starts_with("  meantime ")) {
                // The text after several spaces explains the command. A line of a table has only
                // its first word before them.
                let line = line.trim();
                let line = line.split_once("   ").map_or(line, |(typed, _)| typed);
                if line == "meantime" {
                    continue;
                }
                if let Err(error) = Cli::try_parse_from(words(line)) {
                    panic!("{line}: {error}");
                }
                count += 1;
            }
        }
        assert!(count > 60, "{count}");
    }
}
