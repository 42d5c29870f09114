//! `meantime fs check`.

use std::ops::ControlFlow;
use std::process::ExitCode;

use indicatif::ProgressBar;
use meantime_block::Access;
use meantime_ext4::check::{Event, Finding, Summary};
use meantime_ext4::{Corruption, Error, FileSystem, MountError, MountOptions, VolumeInfo};
use serde_json::{Value, json};

use super::mounted::open;
use super::names;
use crate::cli::CheckArgs;
use crate::facts::{facts, text};
use crate::failure::{Context as _, Failure};
use crate::location::Location;
use crate::output;
use crate::signal;

/// Exit codes of e2fsck.
const ERRORS_LEFT: u8 = 4;
const OPERATIONAL: u8 = 8;
const INTERRUPTED: u8 = 32;

/// The output of a check.
struct Report {
    json: bool,
    bar: ProgressBar,
    findings: Vec<Value>,
    count: u64,
    /// Whether the reader has closed the pipe.
    closed: bool,
}

/// Runs the command.
pub(super) fn run(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let location = Location::parse(&args.location)?;
    if location.path.as_deref().is_some_and(|path| path != "/") {
        return Err(Failure::usage(format_args!(
            "{location}: a file system is checked as a whole: leave the path out"
        )));
    }
    let mut report = Report::new(args.json);
    check(&location.device, args, &mut report).map_err(|failure| failure.with_code(OPERATIONAL))
}

fn check(device: &str, args: &CheckArgs, report: &mut Report) -> Result<ExitCode, Failure> {
    let fs = match mount(device, args, report)? {
        Ok(fs) => fs,
        // The damage is too severe for a check.
        Err(corruption) => {
            report.finding(&Finding { corruption, path: None })?;
            return report.end(device, Summary::default(), None);
        }
    };
    let mut printed = Ok(());
    let summary = fs.check(&mut |event| {
        match event {
            Event::Found(finding) => printed = report.finding(finding),
            Event::Progress { inodes, of } => report.progress(inodes, of),
        }
        if printed.is_err() || report.closed || signal::stopped() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    report.bar.finish_and_clear();
    printed?;
    report.end(device, summary.context(device)?, Some(&fs.info()))
}

/// Mounts the file system on `device`, by a backup of the superblock if the primary one is damaged.
/// Returns the damage if it cannot be mounted.
fn mount(
    device: &str,
    args: &CheckArgs,
    report: &mut Report,
) -> Result<Result<FileSystem, Corruption>, Failure> {
    let attempt = |superblock| -> Result<_, Failure> {
        let policy = args.completion;
        let options = MountOptions { superblock, policy, ..MountOptions::default() };
        Ok(FileSystem::mount(open(device, Access::Read)?, &options))
    };
    let mounted = match attempt(args.superblock)? {
        Err(MountError::Backup { corruption, block, .. }) if args.superblock.is_none() => {
            report.finding(&Finding { corruption, path: None })?;
            attempt(Some(block))?
        }
        mounted => mounted,
    };
    match mounted {
        Ok(fs) => Ok(Ok(fs)),
        Err(
            MountError::Failed { error: Error::Corrupt(corruption), .. }
            | MountError::Backup { corruption, .. },
        ) => Ok(Err(corruption)),
        Err(error) => Err(Failure::new(error)),
    }
}

impl Report {
    fn new(json: bool) -> Self {
        let template = "{bar:25} {percent:>3} %  {pos} of {len} inodes  {elapsed}";
        let bar = output::progress_bar(Some(0), template);
        Self { json, bar, findings: Vec::new(), count: 0, closed: false }
    }

    fn progress(&mut self, inodes: u64, of: u64) {
        self.bar.set_length(of.max(inodes));
        self.bar.set_position(inodes);
    }

    /// Counts `finding`. Keeps it for JSON, or else prints a line at once.
    fn finding(&mut self, finding: &Finding) -> Result<(), Failure> {
        self.count += 1;
        if self.json {
            self.findings.push(finding_json(finding));
            return Ok(());
        }
        let line = line(finding);
        self.closed |= !self.bar.suspend(|| output::print_while_read(line.as_bytes()))?;
        Ok(())
    }

    /// Prints the result, and returns the exit code.
    fn end(
        &mut self,
        device: &str,
        summary: Summary,
        info: Option<&VolumeInfo>,
    ) -> Result<ExitCode, Failure> {
        let replayed = info.and_then(|info| info.recovered);
        let journal = replayed.as_ref().map_or_else(
            || "nothing to replay".to_owned(),
            |found| format!("{} transaction(s), replayed into memory", found.transactions),
        );
        let state = match (self.count, summary.complete) {
            (0, true) => "clean".to_owned(),
            (0, false) => "no defect found so far".to_owned(),
            (count, _) => format!("{count} defect(s)"),
        };
        let facts = facts! {
            "Device", "device": device;
            "Result", "clean": self.count == 0 && summary.complete => state;
            "", "complete": summary.complete;
            "Journal", "recovered": replayed.as_ref().map(names::recovered) => journal;
            "Inodes", "inodes": summary.inodes;
            "Directories", "directories": summary.directories;
            "Files", "files": summary.files;
            "Symbolic links", "symlinks": summary.symlinks;
            "Others", "others": summary.others;
            "Blocks in use", "blocks": summary.blocks;
            "Totals", "stale_totals": summary.stale_totals => match summary.stale_totals {
                false => "those of the groups",
                true => "not those of the groups (e2fsck -p sums them anew)",
            };
            "Unsupported", "unsupported": summary.unsupported
                => format!("{} inodes, not looked at whole", summary.unsupported);
            "", "findings": std::mem::take(&mut self.findings);
        };
        output::print(&text(&facts, self.json))?;
        let code = match (signal::stopped(), self.count) {
            (true, _) => INTERRUPTED,
            (false, 0) => 0,
            (false, _) => ERRORS_LEFT,
        };
        Ok(ExitCode::from(code))
    }
}

/// Formats a finding, for example
/// `extent-checksum: inode 12 (/a/b), block 345: an extent node's checksum is wrong`.
fn line(finding: &Finding) -> String {
    let Corruption { defect, ino, block } = finding.corruption;
    let path = finding.path.as_ref().map(|path| format!(" ({})", names::harmless(path)));
    let ino = ino.map(|ino| format!("inode {ino}{}", path.unwrap_or_default()));
    let place: Vec<String> =
        ino.into_iter().chain(block.map(|block| format!("block {block}"))).collect();
    let place = if place.is_empty() { String::new() } else { place.join(", ") + ": " };
    format!("{}: {place}{defect}\n", defect.kind())
}

fn finding_json(finding: &Finding) -> Value {
    let Corruption { defect, ino, block } = finding.corruption;
    let mut object = json!({
        "kind": defect.kind(),
        "what": defect.to_string(),
        "ino": ino,
        "block": block,
        "path": null,
    });
    if let Some(path) = &finding.path {
        names::insert(&mut object, "path", path.as_os_str());
    }
    object
}

#[cfg(test)]
mod tests {
    use meantime_ext4::Defect;

    use super::*;

    #[test]
    fn a_defect_is_a_line() {
        let corruption = Corruption::new(Defect::ExtentChecksum).in_inode(12).in_block(345);
        let finding = Finding { corruption, path: Some("/a/\nb".into()) };
        let want =
            "extent-checksum: inode 12 (/a/?b), block 345: an extent node's checksum is wrong\n";
        assert_eq!(line(&finding), want);
        let finding =
            Finding { corruption: Corruption::new(Defect::SuperblockChecksum), path: None };
        assert_eq!(line(&finding), "superblock-checksum: the superblock's checksum is wrong\n");
        assert_eq!(finding_json(&finding)["ino"], Value::Null);
    }
}
