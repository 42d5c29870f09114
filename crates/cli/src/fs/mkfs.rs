//! `meantime fs mkfs`.

use std::io::Read as _;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use meantime_block::Access;
use meantime_ext4::Timestamp;
use meantime_ext4::format::mkfs::MakeOptions;
use meantime_ext4::mkfs::{found_on, make};
use serde_json::json;

use super::open;
use super::volume::uuid;
use crate::cli::MkfsArgs;
use crate::failure::Failure;
use crate::figures;
use crate::output;

/// Runs the command.
pub(super) fn run(args: &MkfsArgs) -> Result<ExitCode, Failure> {
    let options = options(args)?;
    let device = open(&args.device, Access::ReadWrite)?;
    if !args.force
        && let Some(what) = found_on(&device).map_err(Failure::new)?
    {
        return Err(Failure::new(format_args!(
            "{}: there is {what} on it: --force makes a new file system, and loses that",
            args.device
        )));
    }
    let made = make(&device, &options).map_err(Failure::new)?;
    if args.json {
        let report = json!({
            "device": args.device,
            "block_bytes": made.block_bytes,
            "blocks": made.blocks,
            "inodes": made.inodes,
            "groups": made.groups,
            "journal_bytes": made.journal_bytes,
            "uuid": uuid(&options.uuid),
        });
        output::print(&output::json_text(&report))?;
        return Ok(ExitCode::SUCCESS);
    }
    let bytes = made.blocks * u64::from(made.block_bytes);
    output::print(&format!(
        "{}: ext4 of {}: {} blocks of {} bytes, {} inodes, a journal of {}; UUID {}\n",
        args.device,
        figures::bytes(bytes),
        made.blocks,
        made.block_bytes,
        made.inodes,
        figures::bytes(made.journal_bytes),
        uuid(&options.uuid)
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn options(args: &MkfsArgs) -> Result<MakeOptions, Failure> {
    let mut random = [0; 32];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .map_err(|error| Failure::new(format_args!("cannot read /dev/urandom: {error}")))?;
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
