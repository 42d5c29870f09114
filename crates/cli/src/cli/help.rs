//! The longer texts of `--help`: `help/COMMAND.txt` has a command's, each below a line `## NAME`. A
//! paragraph is one line there, which clap wraps.

use meantime_block::UriParameter;

/// The text `$name` of the command `$command`.
macro_rules! help {
    ($command:literal, $name:literal) => {
        $crate::cli::help::part(
            include_str!(concat!("../../help/", $command, ".txt")),
            concat!("## ", $name, "\n"),
        )
    };
}
pub(super) use help;

/// Returns the text below the line `heading` in `file`, up to the next heading.
pub(crate) fn part(file: &'static str, heading: &str) -> &'static str {
    let found = file.split_once(heading);
    debug_assert!(found.is_some(), "no text {heading}");
    let text = found.map_or("", |(_, text)| text);
    text.split_once("\n## ").map_or(text, |(text, _)| text).trim_end()
}

/// The text on devices, with the parameters of their URIs.
pub(super) fn devices() -> String {
    let mut rows = String::new();
    for UriParameter { name, help, values, schemes, .. } in UriParameter::ALL {
        let values = if *name == "model" { meantime_ssd::Model::names() } else { values };
        // That a flag is 0 or 1 need not be said again.
        let values = match values {
            [] | ["0", ..] => String::new(),
            values => format!(": {}", values.join(", ")),
        };
        let schemes = schemes.join(":, ");
        rows += &format!("  {name:<10}  {help}{values} ({schemes}:)\n");
    }
    help!("bench", "--device").replace("PARAMETERS\n", &rows)
}
