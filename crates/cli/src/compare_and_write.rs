//! `meantime compare-and-write`: writes blocks if they have the expected content.

use std::path::Path;
use std::process::ExitCode;

use meantime_block::{
    Access, BlockChannel as _, BlockDevice as _, BlockInfo, Channel, ChannelOptions, IoErrorKind,
    OpenOptions, Request,
};

use crate::cli::CompareAndWriteArgs;
use crate::failure::{Failure, named};
use crate::output;
use crate::signal;

/// The blocks have other content.
const DIFFERS: u8 = 3;

/// Runs the command.
pub(crate) fn run(args: &CompareAndWriteArgs) -> Result<ExitCode, Failure> {
    let uri = args.device.trim();
    let pipe = Path::new("-");
    if args.expect == pipe && args.write == pipe {
        return Err(Failure::usage(
            "--expect and --write cannot both be standard input: put one of them into a file",
        ));
    }
    if let Some(found) = &args.found {
        output::can_replace(found).map_err(|error| {
            Failure::usage(format_args!("--found {}: {error}", found.display()))
        })?;
    }
    // A device that was taken from the kernel's driver is given back before the end.
    signal::catch();
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::default() };
    let device = meantime_block::open(uri, &options).map_err(|error| named(uri, &error))?;
    let info = device.info();
    if info.compare_write_blocks == 0 {
        return Err(Failure::new(format_args!(
            "{uri} has no compare-and-write: `meantime info` shows whether a controller has, and \
             the kernel's stack passes none on"
        )));
    }
    let (expected, new) =
        (data("--expect", &args.expect, info)?, data("--write", &args.write, info)?);
    if expected.len() != new.len() {
        return Err(Failure::usage(format_args!(
            "{} has {} bytes, {} has {}: as many have to be compared as are written",
            args.expect.display(),
            expected.len(),
            args.write.display(),
            new.len()
        )));
    }
    signal::check(None)?;
    let failed = |error: &(dyn std::error::Error + 'static)| named(uri, error);
    let mut channel = device.channel(&ChannelOptions::default()).map_err(|e| failed(&e))?;
    let mut pair = channel.alloc(2 * new.len()).map_err(|error| failed(&error))?;
    pair[..new.len()].copy_from_slice(&expected);
    pair[new.len()..].copy_from_slice(&new);
    let request = Request { fua: true, ..Request::compare_and_write(args.lba, pair) };
    let ticket = channel.submit(request).map_err(|rejected| failed(&rejected.error))?;
    match channel.wait(ticket).result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.kind == IoErrorKind::Miscompare => {
            if let Some(found) = &args.found {
                keep(&mut channel, args.lba, new.len(), found, uri)?;
            }
            eprintln!(
                "meantime: {uri}: something else is at block {} than was expected: nothing was \
                 written",
                args.lba
            );
            Ok(ExitCode::from(DIFFERS))
        }
        Err(error) => Err(failed(&error)),
    }
}

/// Reads the file of `option`: whole blocks, at most as many as the device compares and writes.
fn data(option: &str, path: &Path, info: &BlockInfo) -> Result<Vec<u8>, Failure> {
    let block_bytes = info.block_bytes as usize;
    let most = info.compare_write_blocks as usize * block_bytes;
    let wrong = |what: String| Failure::usage(format_args!("{option} {}: {what}", path.display()));
    let source = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
    let bytes = output::read_up_to(source, most as u64).map_err(|error| match error.kind() {
        std::io::ErrorKind::FileTooLarge => {
            wrong(format!("{error}, which is all that {} compares and writes", info.uri))
        }
        _ => Failure::new(format_args!("{option} {}: {error}", path.display())),
    })?;
    if bytes.is_empty() || !bytes.len().is_multiple_of(block_bytes) {
        let what = format!(
            "{} bytes are no whole number of {}'s blocks, of {block_bytes} bytes",
            bytes.len(),
            info.uri
        );
        return Err(wrong(what));
    }
    Ok(bytes)
}

/// Writes the present content into a file.
fn keep(
    channel: &mut Channel,
    lba: u64,
    bytes: usize,
    path: &Path,
    uri: &str,
) -> Result<(), Failure> {
    let buf = channel.alloc(bytes).map_err(|error| named(uri, &error))?;
    let buf = channel.read(lba, buf).map_err(|error| named(uri, &error))?;
    output::replace(path, |out| out.write_all(&buf))
        .map_err(|error| Failure::new(format_args!("cannot write {}: {error}", path.display())))
}
