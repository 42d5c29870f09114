//! Options of `meantime compare`.

use std::path::PathBuf;

use clap::Args;
use meantime_report::compare::Condition;

use super::help::help;

/// Options of `compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// JSON of runs before the change, separated by commas
    #[arg(value_name = "BEFORE.json", long_help = help!("compare", "BEFORE.json"))]
    #[arg(required_unless_present = "all_before")]
    pub before: Option<String>,
    /// JSON of runs after it
    #[arg(value_name = "AFTER.json", required_unless_present = "all_after")]
    pub after: Option<String>,
    /// JSON of runs before the change, instead of BEFORE.json
    #[arg(long = "before", value_name = "FILE.json", value_delimiter = ',', num_args = 1..)]
    #[arg(requires = "all_after", conflicts_with_all = ["before", "after"])]
    pub all_before: Vec<PathBuf>,
    /// JSON of runs after it, instead of AFTER.json
    #[arg(long = "after", value_name = "FILE.json", value_delimiter = ',', num_args = 1..)]
    #[arg(requires = "all_before", conflicts_with_all = ["before", "after"])]
    pub all_after: Vec<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Print Markdown instead of a table
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// End with status 3 if a figure has changed by more than this, such as 'p99>+5%'
    #[arg(long, value_name = "CONDITION", long_help = help!("compare", "--fail-if"))]
    pub fail_if: Vec<Condition>,
}
