//! Checks before a run that the files it writes are not those it reads, nor each other.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use meantime_bench::run::{Group, Wanted};
use meantime_block::Uri;

use super::log_files;
use crate::cli::BenchArgs;
use crate::failure::Failure;

/// A file's identity: device and inode number, or its future path.
#[derive(PartialEq, Eq)]
enum Identity {
    There(u64, u64),
    ToBe(PathBuf),
}

/// Returns the identity; `None` for a terminal, a pipe or `/dev/null`, which writing cannot
/// destroy.
fn identity(path: &Path) -> Option<Identity> {
    match path.metadata() {
        Ok(meta) if meta.is_file() => Some(Identity::There(meta.dev(), meta.ino())),
        Ok(_) => None,
        Err(_) => {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let directory = std::fs::canonicalize(directory.unwrap_or(Path::new("."))).ok()?;
            Some(Identity::ToBe(directory.join(path.file_name()?)))
        }
    }
}

/// Returns the files that a device consists of.
pub(crate) fn files_of(uri: &str) -> Vec<PathBuf> {
    let model =
        |name: &str| (name.ends_with(".toml") || name.contains('/')).then(|| PathBuf::from(name));
    match uri.parse() {
        Ok(Uri::File { path, soft }) => std::iter::once(path).chain(model(&soft.model)).collect(),
        Ok(Uri::Mem { soft, .. }) => model(&soft.model).into_iter().collect(),
        Ok(Uri::Kernel { path, .. }) => vec![path],
        _ => Vec::new(),
    }
}

/// Fails if one of `outputs`, each with the name of its option, is one of `inputs` or another
/// output.
pub(crate) fn check(inputs: &[PathBuf], outputs: &[(String, PathBuf)]) -> Result<(), Failure> {
    let inputs: Vec<_> = inputs.iter().filter_map(|path| identity(path)).collect();
    let mut seen: Vec<(&str, Identity)> = Vec::new();
    for (what, path) in outputs {
        let Some(identity) = identity(path) else { continue };
        let shown = path.display();
        if inputs.contains(&identity) {
            return Err(Failure::usage(format_args!(
                "{what} would replace {shown}, which this run reads; give it another file"
            )));
        }
        if let Some((other, _)) = seen.iter().find(|(_, known)| *known == identity) {
            return Err(Failure::usage(format_args!(
                "{other} and {what} would both write {shown}; give one of them another file"
            )));
        }
        seen.push((what, identity));
    }
    Ok(())
}

/// Returns the files that options name for outputs, with the options.
pub(crate) fn named<const N: usize>(
    options: [(&str, &Option<PathBuf>); N],
) -> Vec<(String, PathBuf)> {
    let files = options.iter().filter_map(|(option, path)| Some((*option, path.as_ref()?)));
    let files = files.filter(|(_, path)| *path != Path::new("-"));
    files.map(|(option, path)| (option.to_owned(), path.clone())).collect()
}

/// Checks a run of `groups` on `wanted` targets.
pub(crate) fn check_run(
    args: &BenchArgs,
    wanted: &[Wanted],
    groups: &[Group],
) -> Result<(), Failure> {
    let devices = wanted.iter().flat_map(|wanted| files_of(&wanted.device));
    let inputs: Vec<PathBuf> = args.job_file.iter().cloned().chain(devices).collect();
    let mut outputs = named([
        ("--json", &args.json),
        ("--html", &args.html),
        ("--csv", &args.tables.csv),
        ("--markdown", &args.tables.markdown),
        ("--output", &args.output),
    ]);
    outputs.extend(log_files::paths(groups).into_iter().map(|path| ("a log".to_owned(), path)));
    check(&inputs, &outputs)
}
