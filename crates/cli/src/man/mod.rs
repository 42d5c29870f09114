//! Manual pages, one for each command, from the definitions and texts that `--help` has.

mod roff;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Args, Command};

use crate::failure::Failure;
use roff::Roff;
use text::Section;

/// Options of `man`, which `make install` calls.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The directory to write the pages into.
    pub dir: PathBuf,
}

/// What only the pages have: FILES, SEE ALSO and further EXAMPLES, below `## COMMAND`.
const EXTRA: &str = include_str!("../../help/man.txt");

/// As many options as a synopsis lists one by one.
const LISTED_MAX: usize = 12;

/// Runs the command.
pub(crate) fn run(args: &ManArgs) -> Result<ExitCode, Failure> {
    std::fs::create_dir_all(&args.dir)
        .map_err(|error| Failure::new(format_args!("{}: {error}", args.dir.display())))?;
    for (name, page) in pages() {
        let path = args.dir.join(format!("{name}.1"));
        std::fs::write(&path, page)
            .map_err(|error| Failure::new(format_args!("{}: {error}", path.display())))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// All pages, by name.
fn pages() -> Vec<(String, String)> {
    let mut root = crate::cli::definition().disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    add(&root, None, &mut pages);
    pages
}

fn add(command: &Command, above: Option<&str>, pages: &mut Vec<(String, String)>) {
    let name = page_name(command);
    pages.push((name.clone(), page(command, above)));
    for sub in visible(command) {
        add(sub, Some(&name), pages);
    }
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set())
}

/// `meantime-fs-ls`.
fn page_name(command: &Command) -> String {
    command.get_bin_name().unwrap_or(command.get_name()).replace(' ', "-")
}

fn page(command: &Command, above: Option<&str>) -> String {
    let name = page_name(command);
    let mut page = Roff::new(&name, &format!("Meantime {}", env!("CARGO_PKG_VERSION")));
    let about = plain(command.get_about());
    page.section("NAME");
    page.name(&name, &about);
    page.section("SYNOPSIS");
    synopsis(&mut page, command);

    page.section("DESCRIPTION");
    let long = plain(command.get_long_about());
    let description = if long.is_empty() { format!("{about}.") } else { long };
    let after = plain(command.get_after_long_help());
    let heading = format!("\n## {name}\n");
    let extra = if EXTRA.contains(&heading) { crate::cli::part(EXTRA, &heading) } else { "" };
    // What comes before the first heading belongs to the description.
    let mut sections = text::sections(&format!("{description}\n\n{after}\n\n{extra}"));
    page.blocks(&sections.remove(0).blocks);

    let arguments: Vec<&Arg> = command.get_positionals().filter(|arg| !arg.is_hide_set()).collect();
    if !arguments.is_empty() {
        page.section("ARGUMENTS");
        arguments.into_iter().for_each(|arg| option(&mut page, arg));
    }
    let mut last = None;
    for arg in options(command) {
        let heading = arg.get_help_heading().unwrap_or("Options");
        if last.replace(heading) != Some(heading) {
            // What it says in parentheses is a sentence of the section.
            let (title, note) = heading.split_once(" (").unwrap_or((heading, ""));
            page.section(&title.to_uppercase());
            if let Some(note) = note.strip_suffix(')') {
                page.paragraph(&format!("{}.", note.replace("; they", ". They")));
            }
        }
        option(&mut page, arg);
    }
    let commands: Vec<&Command> = visible(command).collect();
    if !commands.is_empty() {
        page.section("COMMANDS");
        for sub in &commands {
            page.item(&format!("`{}`(1)", page_name(sub)), &plain(sub.get_about()));
        }
    }
    // The order of man-pages(7); what is not in it comes before.
    let order = ["EXIT STATUS", "FILES", "EXAMPLES", "SEE ALSO"];
    sections.sort_by_key(|section| {
        order.iter().position(|name| *name == section.title).map_or(0, |at| at + 1)
    });
    let mut see: Vec<String> = above.map(str::to_owned).into_iter().collect();
    see.extend(commands.iter().map(|sub| page_name(sub)));
    let mut see: Vec<String> = see.iter().map(|name| format!("`{name}`(1)")).collect();
    for Section { title, blocks } in sections {
        if title == "SEE ALSO" {
            see.extend(blocks.iter().filter_map(text::Block::paragraph).map(str::to_owned));
            continue;
        }
        page.section(&title);
        page.blocks(&blocks);
    }
    page.section("SEE ALSO");
    page.paragraph(&see.join(", "));
    page.finish()
}

/// All options but those of help and version, which every command has and no page need explain.
fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    let usual = |arg: &Arg| {
        matches!(
            arg.get_action(),
            ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
        )
    };
    command
        .get_arguments()
        .filter(move |arg| !arg.is_positional() && !arg.is_hide_set() && !usual(arg))
}

fn plain(text: Option<&StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

fn synopsis(page: &mut Roff, command: &Command) {
    let bin = command.get_bin_name().unwrap_or(command.get_name());
    let mut words = Vec::new();
    let required = |arg: &Arg, text: String| {
        if arg.is_required_set() { text } else { format!("[{text}]") }
    };
    let listed = options(command).filter(|arg| arg.get_help_heading().is_none());
    let is_long = options(command).count() > LISTED_MAX;
    if is_long {
        words.push("[*OPTION*]…".to_owned());
    }
    for arg in listed.filter(|arg| !is_long || arg.is_required_set()) {
        words.push(required(arg, spelled(arg, "|")));
    }
    for arg in command.get_positionals().filter(|arg| !arg.is_hide_set()) {
        let dots =
            if arg.get_num_args().is_some_and(|count| count.max_values() > 1) { "…" } else { "" };
        words.push(required(arg, format!("*{}*{dots}", value(arg))));
    }
    if visible(command).next().is_some() {
        // Commands that can do without a subcommand have a second form.
        if !command.is_subcommand_required_set() {
            page.synopsis(bin, &words);
            words.clear();
        }
        words.push("*COMMAND*".to_owned());
        words.push("[*ARGUMENT*]…".to_owned());
    }
    page.synopsis(bin, &words);
}

/// `-f, --force`, `--runtime TIME`.
fn spelled(arg: &Arg, between: &str) -> String {
    let short = arg.get_short().map(|short| format!("`-{short}`"));
    let long = arg.get_long().map(|long| format!("`--{long}`"));
    let mut text = [short, long].into_iter().flatten().collect::<Vec<_>>().join(between);
    let count = arg.get_num_args().unwrap_or_default();
    if count.takes_values() {
        text += &match (count.min_values(), arg.is_require_equals_set()) {
            (0, true) => format!("[=*{}*]", value(arg)),
            (0, false) => format!(" [*{}*]", value(arg)),
            _ => format!(" *{}*", value(arg)),
        };
    }
    text
}

fn value(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    if names.is_empty() { arg.get_id().to_string() } else { names.join(" ") }
}

fn option(page: &mut Roff, arg: &Arg) {
    let header = if arg.is_positional() { format!("*{}*", value(arg)) } else { spelled(arg, ", ") };
    let long = plain(arg.get_long_help());
    let mut help = if long.is_empty() { plain(arg.get_help()) } else { long };
    // As --help has it.
    let defaults: Vec<_> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let defaults = defaults.join(",");
    if !defaults.is_empty() && arg.get_action().takes_values() && !arg.is_hide_default_value_set() {
        help = match help.split_once('\n') {
            Some((first, rest)) => format!("{first} [default: {defaults}]\n{rest}"),
            None => format!("{help} [default: {defaults}]"),
        };
    }
    page.option(&header, &text::sections(&help).remove(0).blocks);
    for possible in arg
        .get_possible_values()
        .iter()
        .filter(|one| arg.get_action().takes_values() && !one.is_hide_set())
    {
        page.nested(possible.get_name(), &plain(possible.get_help()));
    }
}

#[cfg(test)]
mod tests;
