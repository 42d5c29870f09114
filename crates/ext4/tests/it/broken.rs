//! e2fsprogs' own broken test images: this crate's check and e2fsck agree about each of them.

use std::io::Read as _;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use meantime_block as block;
use meantime_ext4::check::Event;
use meantime_ext4::{Error, FileSystem, MountError, MountOptions};

use meantime_testkit::image::{self, run_for, tools};

/// The most bytes read of e2fsck's output.
const MOST_SAID: u64 = 64 << 10;

/// Images whose verdict knowingly differs from that of e2fsck 1.47.0, with the reasons.
const DIFFERENT: [(&str, &str); 8] = [
    (
        "d_corrupt_journal_nr_users",
        "zeroes are wanted where a journal of version 1 has no fields; nobody reads them",
    ),
    ("f_bad_local_jnl", "the same"),
    (
        "f_ea_inode_spurious_flag_dir",
        "the root directory is marked as an attribute's value: 1.47.2 finds it",
    ),
    ("f_ext_journal", "the journal is on another device: refused by name"),
    (
        "f_jnl_errno",
        "-n wants to take the errno out of the journal, and may not write; nothing else is wrong",
    ),
    ("f_zero_inode_size", "the superblock is damaged: -n takes a backup and is content"),
    (
        "j_corrupt_revoke_rcount",
        "a block of the journal cannot be: -p, asked for the journal only, does not say so",
    ),
    ("j_ext_dumpe2fs", "the journal of another file system: refused by name"),
];

/// A verdict on an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The image has no defect.
    Clean,
    /// At least one defect.
    Damaged,
    /// A feature that is not supported here.
    Refused,
}

/// This crate's verdict with its findings.
fn ours(path: &Path) -> (Verdict, String) {
    let uri = format!("file:{}?model=null&ro=1", path.display());
    let device = match block::open(&uri, &block::OpenOptions::default()) {
        Ok(device) => device,
        Err(error) => return (Verdict::Refused, error.to_string()),
    };
    let fs = match FileSystem::mount(device, &MountOptions::default()) {
        Ok(fs) => fs,
        Err(error) => {
            let is_damage = matches!(
                &error,
                MountError::NotExt4 { .. }
                    | MountError::TooSmall { .. }
                    | MountError::Backup { .. }
                    | MountError::Failed { error: Error::Corrupt(_), .. }
            );
            let verdict = if is_damage { Verdict::Damaged } else { Verdict::Refused };
            return (verdict, error.to_string());
        }
    };
    let mut found = Vec::new();
    let summary = fs.check(&mut |event| {
        if let Event::Found(finding) = event {
            found.push(finding.to_string());
        }
        ControlFlow::Continue(())
    });
    let summary = summary.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(
        summary.complete && summary.findings == found.len() as u64,
        "{}: {summary:?}",
        path.display()
    );
    if summary.unsupported > 0 {
        found.push(format!("{} unsupported", summary.unsupported));
    }
    let verdict = if summary.findings == 0 { Verdict::Clean } else { Verdict::Damaged };
    (verdict, found.join("; "))
}

/// Whether the superblock says that the journal needs recovery (`s_feature_incompat`, RECOVER).
fn needs_recovery(path: &Path) -> bool {
    let mut word = [0; 4];
    let file = std::fs::File::open(path).unwrap();
    file.read_exact_at(&mut word, 1024 + 0x60).is_ok_and(|()| u32::from_le_bytes(word) & 4 != 0)
}

/// e2fsck's verdict on a copy whose journal it has replayed. Without the replay it would examine
/// stale metadata.
fn theirs(path: &Path, scratch: &Path) -> (Verdict, String) {
    let copy = scratch.join("copy.img");
    run_for("cp", &["--sparse=always", path.to_str().unwrap(), copy.to_str().unwrap()], &[0]);
    let e2fsck = |args: &[&str]| {
        let mut child = Command::new("sh")
            .args(["-c", "exec e2fsck \"$@\" 2>&1", "e2fsck"])
            .args(args)
            .arg(&copy)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // With -n it may restart without end: it stops when its output is no longer read.
        let mut said = Vec::new();
        child.stdout.take().unwrap().take(MOST_SAID).read_to_end(&mut said).unwrap();
        (child.wait().unwrap().code(), String::from_utf8_lossy(&said).into_owned())
    };
    let recovers = needs_recovery(path);
    if recovers {
        let (_, said) = e2fsck(&["-p", "-E", "journal_only"]);
        let usual = ["recovering journal", "Clearing orphaned inode", " files ("];
        let told = said
            .lines()
            .find(|line| !line.is_empty() && !usual.iter().any(|usual| line.contains(usual)));
        if told.is_some() {
            return (Verdict::Damaged, said);
        }
    }
    let (code, said) = e2fsck(&["-fn"]);
    // After a recovery, e2fsck recomputes the superblock's totals and empties the orphan file. -n
    // does neither.
    let is_left = |problem: &str| {
        [
            "Free blocks count wrong (",
            "Free inodes count wrong (",
            "Orphan file",
            "Failed to initialize orphan file",
        ]
        .iter()
        .any(|usual| recovers && problem.starts_with(usual))
    };
    // e2fsck does not exit with 4 for every problem that it would fix.
    let is_damaged = match code {
        Some(0 | 4) => {
            code == Some(4) && !recovers || problems(&said).iter().any(|problem| !is_left(problem))
        }
        _ => true,
    };
    (if is_damaged { Verdict::Damaged } else { Verdict::Clean }, said)
}

/// The problems that e2fsck leaves unfixed: the line of each question, or the line before it if it
/// contains only the question.
fn problems(said: &str) -> Vec<&str> {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut problems = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if line.ends_with("? no") && !line.contains("Optimize") {
            let alone = line.split_whitespace().count() <= 2;
            problems.push(if alone && at > 0 { lines[at - 1] } else { line });
        }
    }
    problems
}

/// The images, if scripts/e2fsprogs-images.sh has fetched them.
fn images() -> Option<Vec<PathBuf>> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("e2fsprogs-images");
    if !dir.join("complete").exists() {
        assert!(
            std::env::var_os("CI").is_none(),
            "no images: scripts/e2fsprogs-images.sh fetches them"
        );
        println!(
            "skipped: no images in {}: scripts/e2fsprogs-images.sh fetches them",
            dir.display()
        );
        return None;
    }
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut images: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "img")).collect();
    images.sort();
    Some(images)
}

#[test]
fn we_and_e2fsck_agree_about_its_own_images() {
    let Some(images) = images().filter(|_| tools()) else { return };
    assert!(images.len() > 200, "{} images", images.len());
    let scratch = image::scratch();
    let mut wrong = Vec::new();
    for path in &images {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let (we, found) = ours(path);
        let (they, said) = theirs(path, scratch.path());
        let known = DIFFERENT.iter().find(|(different, _)| *different == name);
        if we != they && known.is_none() {
            wrong.push(format!("{name}: {we:?}: {found}\n  e2fsck: {they:?}: {said}"));
        } else if we == they && known.is_some() {
            // Another version of e2fsck may have another verdict.
            println!("{name}: {we:?} by both: it need not be among those that differ");
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), images.len(), wrong.join("\n"));
}
