//! Manual pages, one for each command, from the definitions and texts that `--help` has.

use std::io;
use std::process::ExitCode;

use clap::{Arg, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use crate::cli::ManArgs;
use crate::failure::{Context as _, Failure};

/// Texts that only the pages have, below `## COMMAND`: FILES, SEE ALSO and further EXAMPLES.
const EXTRA: &str = include_str!("../help/man.txt");

/// The order of man-pages(7). Other sections come before.
const ORDER: [&str; 4] = ["EXIT STATUS", "FILES", "EXAMPLES", "SEE ALSO"];

/// Runs the command.
pub(crate) fn run(args: &ManArgs) -> Result<ExitCode, Failure> {
    let write = || -> io::Result<()> {
        std::fs::create_dir_all(&args.dir)?;
        for (name, page) in pages()? {
            std::fs::write(args.dir.join(format!("{name}.1")), page)?;
        }
        Ok(())
    };
    write().context(args.dir.display())?;
    Ok(ExitCode::SUCCESS)
}

/// All pages, by name.
fn pages() -> io::Result<Vec<(String, String)>> {
    let mut root = crate::cli::definition().disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    add(&root, None, &mut pages)?;
    Ok(pages)
}

fn add(
    command: &Command,
    above: Option<&str>,
    pages: &mut Vec<(String, String)>,
) -> io::Result<()> {
    let name = name_of(command);
    pages.push((name.clone(), page(command, above)?));
    visible(command).try_for_each(|sub| add(sub, Some(&name), pages))
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set())
}

/// `meantime-fs-ls`.
fn name_of(command: &Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).to_owned()
}

fn page(command: &Command, above: Option<&str>) -> io::Result<String> {
    let name = name_of(command);
    let long = command.get_long_about().or(command.get_about()).cloned().unwrap_or_default();
    let command = command.clone().about(uncapitalised(command)).long_about(long);
    // The page has no date, so that two builds of one source are the same.
    let man = Man::new(command.clone().mut_args(in_page))
        .date("")
        .source(concat!("Meantime ", env!("CARGO_PKG_VERSION")))
        .manual("User Commands");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    // Names of options and keys are not hyphenated.
    page.extend(b".nh\n.ad l\n");
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if visible(&command).next().is_some() {
        man.render_subcommands_section(&mut page)?;
    }
    let after = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let heading = format!("\n## {name}\n");
    let extra = if EXTRA.contains(&heading) { crate::cli::part(EXTRA, &heading) } else { "" };
    let around = above.map(str::to_owned).into_iter().chain(visible(&command).map(name_of));
    let around: Vec<String> = around.map(|name| format!("`{name}`(1)")).collect();
    let text = format!("{after}\n\n{extra}\n\nSEE ALSO\n{}\n", around.join(", "));
    sections(&text).to_writer(&mut page)?;
    String::from_utf8(page).map_err(io::Error::other)
}

/// Returns an option as pages show it. The options for help and version are hidden, since every
/// command has them. The part of a heading in parentheses is left out, since it is for `--help`.
fn in_page(arg: Arg) -> Arg {
    let is_usual = ["help", "version"].contains(&arg.get_id().as_str());
    let arg = if is_usual { arg.hide(true) } else { arg };
    let heading = arg.get_help_heading().and_then(|heading| heading.split_once(" ("));
    match heading.map(|(title, _)| title.to_owned()) {
        Some(title) => arg.help_heading(title),
        None => arg,
    }
}

/// Returns what a command is for, as whatis(1) shows it. Abbreviations keep their capitals.
fn uncapitalised(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let is_word = about.chars().nth(1).is_some_and(|second| !second.is_uppercase());
    let mut chars = about.chars();
    match chars.next().filter(|_| is_word) {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => about,
    }
}

/// Sets what stands below the headings of a text.
fn sections(text: &str) -> Roff {
    let is_heading =
        |line: &&str| line.len() > 1 && line.chars().all(|c| c.is_ascii_uppercase() || c == ' ');
    let mut sections: Vec<(&str, Vec<&str>)> = vec![("NOTES", Vec::new())];
    for line in text.lines() {
        match Some(line).filter(is_heading) {
            Some(title) => sections.push((title, Vec::new())),
            None => sections.iter_mut().last().into_iter().for_each(|(_, lines)| lines.push(line)),
        }
    }
    sections.retain(|(_, lines)| lines.iter().any(|line| !line.is_empty()));
    sections.sort_by_key(|(title, _)| ORDER.iter().position(|one| one == title));
    let mut roff = Roff::new();
    let mut before = "";
    for (title, lines) in sections {
        if std::mem::replace(&mut before, title) != title {
            roff.control("SH", [title]);
        }
        lines.iter().for_each(|line| set(line, title, &mut roff));
    }
    roff
}

/// Writes a line of a help text. There each paragraph is one line, lists have two blanks after
/// terms, and files have a line of their own.
fn set(line: &str, title: &str, roff: &mut Roff) {
    let words = line.trim_start();
    let indent = line.len() - words.len();
    let item = words.split_once("  ").filter(|_| (2..8).contains(&indent));
    if words.is_empty() {
        roff.control("PP", []);
    } else if title == "EXAMPLES" && indent >= 4 {
        roff.control("br", []).text([bold(line)]);
    } else if let Some((term, what)) = item {
        roff.control("TP", []).text([bold(term)]).text(inline(what.trim_start()));
    } else if title == "FILES" && indent == 2 && !words.ends_with('.') {
        roff.control("TP", []).text([bold(words)]);
    } else {
        if (2..8).contains(&indent) {
            roff.control("br", []);
        }
        roff.text(inline(words));
    }
}

/// Text whose parts in backticks are bold.
fn inline(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate();
    parts.map(|(at, part)| if at % 2 == 0 { roman(part) } else { bold(part) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_sections() {
        let pages = pages().unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in ["meantime", "meantime-bench", "meantime-fs-ls", "meantime-ssd-ctl"] {
            assert!(names.contains(&name), "{names:?}");
        }
        for hidden in ["meantime-competitor", "meantime-man", "meantime-complete", "meantime-help"]
        {
            assert!(!names.contains(&hidden), "{hidden}");
        }
        for (name, page) in &pages {
            let mut from = 0;
            for title in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "EXAMPLES", "SEE ALSO"]
            {
                let quote = if title.contains(' ') { "\"" } else { "" };
                let heading = format!("\n.SH {quote}{title}{quote}\n");
                let at = page[from..].find(&heading);
                from += at.unwrap_or_else(|| panic!("{name} has no {title} where it belongs"));
            }
        }
    }

    /// A text for a command that is not there would be on no page.
    #[test]
    fn what_is_added_belongs_to_a_command() {
        let names: Vec<String> = pages().unwrap().into_iter().map(|(name, _)| name).collect();
        for line in EXTRA.lines().filter_map(|line| line.strip_prefix("## ")) {
            assert!(names.iter().any(|name| name == line), "{line}");
        }
    }

    #[test]
    fn an_option_has_its_value_default_and_kinds() {
        let pages = pages().unwrap();
        let page = |name: &str| &pages.iter().find(|(own, _)| own == name).unwrap().1;
        assert!(page("meantime-fs-ls").contains("\\fB\\-l\\fR, \\fB\\-\\-long\\fR\n"));
        assert!(page("meantime-run").contains("\\fI"));
        assert!(page("meantime-ssd").contains("[default: refused]"));
        assert!(page("meantime-bench").contains(".SH \"JOB OPTIONS\"\n"));
    }
}
