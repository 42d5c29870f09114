//! The parameters of device URIs, for all code that names them: the parser's errors, `--help`,
//! completion. Only the parser knows what a value means.

/// A parameter of device URIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct UriParameter {
    /// The text before the `=`.
    pub name: &'static str,
    /// The description, in one line.
    pub help: &'static str,
    /// All values to choose from, or examples. The software SSD knows the names of its models.
    pub values: &'static [&'static str],
    /// The schemes that have the parameter, without colon.
    pub schemes: &'static [&'static str],
}

const FLAG: &[&str] = &["0", "1"];
const PARTITION: &str = "one partition of it, by its number, label:NAME or uuid:UUID";
const OVERWRITE: &str = "1: write it although a table or a file system lies on it";
const COALESCE: &str = "an interrupt after so many completions or this time";
const SOFT: &[&str] = &["mem", "file"];
const NVME: &[&str] = &["vfio", "vfio-user"];
const TCP: &[&str] = &["nvme+tcp"];
const KERNEL: &[&str] = &["kernel"];
const ANY: &[&str] = &["mem", "file", "vfio", "vfio-user", "nvme+tcp", "kernel"];

const fn row(
    name: &'static str,
    help: &'static str,
    values: &'static [&'static str],
    schemes: &'static [&'static str],
) -> UriParameter {
    UriParameter { name, help, values, schemes }
}

impl UriParameter {
    /// All parameters, in the order in which they are offered.
    pub const ALL: &'static [Self] = &[
        row("model", "how long I/Os take: a TOML file, or a name (default: null)", &[], SOFT),
        row("partition", PARTITION, &["1", "2", "label:data"], ANY),
        row("overwrite", OVERWRITE, FLAG, ANY),
        row("engine", "the interface for I/O", &["io_uring", "preadv2"], KERNEL),
        row("direct", "0: through the page cache", FLAG, KERNEL),
        row("fixed", "0: memory and file are not registered with io_uring", FLAG, KERNEL),
        row("nsid", "the namespace to open", &[], &["mem", "vfio", "vfio-user", "nvme+tcp"]),
        row("namespaces", "how many namespaces share the medium", &[], &["mem"]),
        row("lba", "bytes per logical block", &["512", "4096"], &["mem", "file", "kernel"]),
        row("create", "make the file with this size", &["64M", "1G"], &["file", "kernel"]),
        row("ro", "1: only read, and share the file with other readers", FLAG, &["file"]),
        row("vwc", "volatile write cache", FLAG, SOFT),
        row("mdts", "the most data of one command, in bytes", &["128k", "1m"], SOFT),
        row("boundary", "the optimal I/O boundary, in logical blocks", &[], SOFT),
        row("queues", "how many I/O queues; over TCP, of hosts", &[], SOFT),
        row("vectors", "how many interrupt vectors", &[], SOFT),
        row("cpu", "the CPU of the SSD's thread (default: the last)", &[], SOFT),
        row("inline", "1: no thread; who waits for the SSD runs it", FLAG, SOFT),
        row("sgl", "1: describe data by SGLs", FLAG, NVME),
        row("shadow", "shadow doorbells", FLAG, NVME),
        row("coalesce", COALESCE, &["4/100us"], &["mem", "file", "vfio", "vfio-user"]),
        row("strict", "1: refuse also what is harmless (docs/faults.md)", FLAG, SOFT),
        row("lock", "1: lock the driver's memory, as a PCIe SSD needs it", FLAG, SOFT),
        row("faults", "a plan of faults: a TOML file (docs/faults.md)", &[], SOFT),
        row("digest", "CRC32C of each PDU", &["header", "data", "header+data"], TCP),
        row("kato_ms", "Keep Alive Timeout, in ms", &[], TCP),
        row("loss_ms", "how long a lost connection is tried again, in ms", &[], TCP),
        row("dhchap_keys", "a file of keys, to authenticate host and target", &[], TCP),
        row("hostnqn", "the NQN of this host, if not the machine's", &[], TCP),
        row("hostid", "the UUID of this host, if not the machine's", &[], TCP),
        row("no-iommu", "1: also without an IOMMU, where I/O is refused", FLAG, &["vfio"]),
    ];

    /// The parameters of a scheme, which is given without colon.
    pub fn of(scheme: &str) -> impl Iterator<Item = &'static Self> {
        Self::ALL.iter().filter(move |one| one.schemes.contains(&scheme))
    }
}

/// The names of a scheme's parameters, for errors.
pub(super) fn names(scheme: &str) -> String {
    UriParameter::of(scheme).map(|one| one.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Uri;

    /// The table lists what the parser understands, and no more.
    #[test]
    fn the_table_is_what_the_parser_understands() {
        // The parser understands these to say what else to do; a file has one namespace.
        let refused = [("mem", "create"), ("mem", "ro"), ("file", "namespaces"), ("file", "nsid")];
        for (scheme, target) in [
            ("mem", "64M"),
            ("file", "x"),
            ("vfio", "0000:01:00.0"),
            ("vfio-user", "/x"),
            ("nvme+tcp", "//192.0.2.7/nqn.2026-01.io.x:y"),
            ("kernel", "x"),
        ] {
            assert!(UriParameter::of(scheme).count() > 3, "{scheme}");
            for one in UriParameter::ALL {
                let parse =
                    |value: &str| format!("{scheme}:{target}?{}={value}", one.name).parse::<Uri>();
                let is_listed = one.schemes.contains(&scheme);
                // No parameter's value is empty.
                let error = parse("").unwrap_err().what;
                let is_known = !error.contains("unknown parameter");
                let is_refused = refused.contains(&(scheme, one.name));
                assert_eq!(is_known, is_listed || is_refused, "{scheme} {}: {error}", one.name);
                for value in one.values.iter().filter(|_| is_listed) {
                    assert!(parse(value).is_ok(), "{scheme} {}={value}", one.name);
                }
            }
            let error = format!("{scheme}:{target}?wrong=1").parse::<Uri>().unwrap_err().what;
            let listed = error.rsplit_once("parameters are ").unwrap().1;
            let names: Vec<&str> = UriParameter::of(scheme).map(|one| one.name).collect();
            assert_eq!(listed.split(", ").collect::<Vec<_>>(), names, "{scheme}");
        }
    }

    #[test]
    fn a_name_stands_once_and_has_a_line_of_help() {
        for (at, one) in UriParameter::ALL.iter().enumerate() {
            let others = &UriParameter::ALL[at + 1..];
            assert!(others.iter().all(|other| other.name != one.name), "{}", one.name);
            assert!((4..=60).contains(&one.help.len()), "{}: {}", one.name, one.help);
            assert!(!one.help.contains('\n'), "{}", one.name);
        }
    }
}
