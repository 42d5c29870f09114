//! Completions that a shell offers at a press of Tab. The scripts in `completions/`, which
//! `meantime completions` prints, call `meantime complete` for them.
//!
//! This opens nothing but regular image files, for the names in them. It writes nothing to stderr.

mod image;
mod values;
mod word;

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

use clap::{Arg, Command, ValueHint};
use clap_complete::engine::PathCompleter;
use clap_complete::{ArgValueCompleter as Completer, CompletionCandidate};

use crate::cli::{CompleteArgs, CompletionsArgs, Shell};
use crate::failure::Failure;
use crate::output;
use word::Word;

/// Runs the command. It prints one candidate a line: for bash ready to be inserted, for other
/// shells with its help after a tab.
pub(crate) fn run(args: &CompleteArgs) -> Result<ExitCode, Failure> {
    let mut words = args.words.clone();
    let last = words.pop().unwrap_or_default();
    let last = match args.shell {
        Shell::Bash => {
            words.iter_mut().for_each(|word| *word = Word::read(word, "").plain());
            Word::read(&last, &args.breaks)
        }
        Shell::Fish => Word::read(&last, ""),
        Shell::Zsh => Word::as_it_is(&last),
    };
    words.push(last.plain());
    let (index, here) = (words.len() - 1, std::env::current_dir().ok());
    let mut command = with_completers(crate::cli::definition());
    let found = clap_complete::engine::complete(&mut command, words, index, here.as_deref());
    let mut found = found.unwrap_or_default();
    // A line is a candidate.
    let typed = last.plain();
    found.retain(|one| {
        let value = one.get_value().as_bytes();
        !value.iter().any(u8::is_ascii_control) && value.starts_with(typed.as_bytes())
    });
    if args.shell == Shell::Bash {
        found.retain(|one| last.can_hold(one.get_value()));
    }
    // Options are offered after a typed `-`, and where nothing else can stand.
    let is_plain = |one: &CompletionCandidate| !one.get_value().as_bytes().starts_with(b"-");
    if typed.is_empty() && found.iter().any(is_plain) {
        found.retain(|one| is_plain(one) && one.get_value() != ".");
    }
    let mut lines = Vec::new();
    for one in &found {
        if args.shell == Shell::Bash {
            lines.extend(last.insertion(one.get_value()));
        } else {
            lines.extend(one.get_value().as_bytes());
            let help = one.get_help().map(ToString::to_string).unwrap_or_default();
            if let Some(help) = help.lines().next() {
                lines.extend(b"\t");
                lines.extend(help.as_bytes());
            }
        }
        lines.push(b'\n');
    }
    if let (Shell::Bash, [one]) = (args.shell, &found[..])
        && last.is_open()
        && word::goes_on(one.get_value())
    {
        // Readline would close the quote. Between two candidates it stops where they part.
        lines.extend(last.insertion(one.get_value()));
        lines.extend("…\n".as_bytes());
    }
    // A shell that has gone away needs no candidates.
    let _ = std::io::stdout().write_all(&lines);
    Ok(ExitCode::SUCCESS)
}

/// Prints the script by which a shell asks for completions.
pub(crate) fn print_script(args: &CompletionsArgs) -> Result<ExitCode, Failure> {
    let script = match args.shell {
        Shell::Bash => include_str!("../../completions/meantime.bash"),
        Shell::Fish => include_str!("../../completions/meantime.fish"),
        Shell::Zsh => include_str!("../../completions/_meantime"),
    };
    output::end(script.as_bytes())
}

/// Gives every argument that clap cannot complete by itself its completer, by the name of its value.
fn with_completers(command: Command) -> Command {
    let name = command.get_name().to_owned();
    command.mut_args(|arg| completed(&name, arg)).mut_subcommands(with_completers)
}

fn completed(command: &str, arg: Arg) -> Arg {
    let names = arg.get_value_names().unwrap_or_default();
    let value = names.first().map_or("", |name| name.as_str()).to_owned();
    let id = arg.get_id().to_string();
    let completer = match (command, id.as_str(), value.as_str()) {
        ("discover", _, "URI") => values::one_of(&["nvme+tcp://"]),
        ("bench", "filename", _) | (_, _, "URI" | "URI[,URI…]" | "DEVICE") | ("copy", ..) => {
            Completer::new(values::devices)
        }
        (_, _, "DEVICE:/PATH") => Completer::new(values::locations),
        (_, "completion" | "policies", _) | (.., "POLICY") => Completer::new(values::policies),
        ("bind" | "unbind", _, "ADDRESS") => Completer::new(values::controllers),
        ("umount", _, "DIR") => Completer::new(values::mounts),
        ("mount", _, "DIR") => return arg.value_hint(ValueHint::DirPath),
        ("mount" | "run", "options", _) => Completer::new(values::mount_options),
        ("top", _, "PID") => Completer::new(values::processes),
        ("run", "program", _) => Completer::new(values::ByPlace(values::programs)),
        (_, "rw", _) => values::one_of(values::DIRECTIONS),
        (_, "competitor", _) => values::one_of(&["tsc", "walk="]),
        (_, "owner", _) => Completer::new(values::users),
        ("mkfs", "features", _) => Completer::new(values::features),
        ("ctl", "words", _) => Completer::new(values::ByPlace(values::requests)),
        (_, _, "JOB.fio") => Completer::new(files_named("fio")),
        (_, _, "FILE.json" | "BEFORE.json" | "AFTER.json") => Completer::new(files_named("json")),
        _ => return arg,
    };
    arg.add(completer)
}

/// Files whose names end so, and directories.
fn files_named(extension: &'static str) -> PathCompleter {
    PathCompleter::any()
        .filter(move |path| path.is_dir() || path.extension().is_some_and(|own| own == extension))
}
