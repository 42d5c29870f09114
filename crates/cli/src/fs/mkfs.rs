//! `meantime fs mkfs`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use meantime_block::{Access, Uri};
use meantime_ext4::Timestamp;
use meantime_ext4::format::mkfs::MakeOptions;
use meantime_ext4::mkfs::{MakeError, found_on, make};
use rustix::rand::{GetRandomFlags, getrandom};

use super::mounted::open;
use super::volume::uuid;
use crate::cli::MkfsArgs;
use crate::facts::{facts, text};
use crate::failure::{Context as _, Failure};
use crate::figures;
use crate::output;

/// Runs the command.
pub(super) fn run(args: &MkfsArgs) -> Result<ExitCode, Failure> {
    let options = options(args)?;
    let new_file = new_file(&args.device);
    let device = open(&args.device, Access::ReadWrite)?;
    if !args.force
        && let Some(what) = found_on(&device).map_err(Failure::new)?
    {
        return Err(Failure::new(format_args!(
            "{}: there is {what} on it: --force makes a new file system, and loses that",
            args.device
        )));
    }
    let made = make(&device, &options).map_err(|error| {
        if matches!(error, MakeError::Refused { .. })
            && let Some(path) = &new_file
        {
            // Nothing was written to it.
            let _ = std::fs::remove_file(path);
        }
        Failure::new(error)
    })?;
    let bytes = made.blocks * u64::from(made.block_bytes);
    let facts = facts! {
        "Device", "device": args.device;
        "Block size", "block_bytes": made.block_bytes;
        "Blocks", "blocks": made.blocks => format!("{} ({})", made.blocks, figures::bytes(bytes));
        "Inodes", "inodes": made.inodes;
        "Groups", "groups": made.groups;
        "Journal", "journal_bytes": made.journal_bytes => figures::bytes(made.journal_bytes);
        "UUID", "uuid": uuid(&options.uuid);
    };
    output::print(&text(&facts, args.json))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the file that opening `uri` will create.
fn new_file(uri: &str) -> Option<PathBuf> {
    match uri.parse() {
        Ok(Uri::File { path, .. }) => Some(path).filter(|path| !path.exists()),
        _ => None,
    }
}

fn options(args: &MkfsArgs) -> Result<MakeOptions, Failure> {
    let mut random = [0; 32];
    getrandom(&mut random, GetRandomFlags::empty()).context("random numbers")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() };
    let mut options = MakeOptions::new(random, now);
    // A number that does not fit is no block size, and is refused with the others.
    let short = |bytes: u64| u32::try_from(bytes).unwrap_or(0);
    options.block_bytes = args.block_size.map(short);
    options.inode_bytes = short(args.inode_size);
    options.bytes_per_inode = args.bytes_per_inode;
    options.journal_bytes = args.journal_size;
    options.reserved_percent = args.reserved;
    options.label = args.label.clone().into_bytes();
    options.zero_inode_tables = args.zero;
    if let Some(uuid) = args.uuid {
        options.uuid = uuid;
    }
    for ((_, switch), wanted) in &args.features {
        switch(&mut options, *wanted);
    }
    Ok(options)
}
