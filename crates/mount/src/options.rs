//! Mount options: the words after `-o`.

use std::time::Duration;

use meantime_completion::Policy;
use meantime_ext4::{AccessTimes, CommitOverlap, MountOptions, Overlap};
use rustix::mount::MountFlags;

/// How the kernel mounts the file system, and how it is served.
#[derive(Debug, Clone)]
pub struct Options {
    /// The source that /proc/mounts shows, which usually is the device.
    pub source: String,
    /// Whether the file system is mounted read-only (`ro`).
    pub read_only: bool,
    /// Whether users other than the mounting one have access (`allow_other`). The kernel checks
    /// permissions.
    pub allow_other: bool,
    /// Whether each change is durable before it returns (`sync`).
    pub sync: bool,
    /// Whether devices on it cannot be opened (`nodev`).
    pub nodev: bool,
    /// Whether programs on it run with their caller's rights only (`nosuid`).
    pub nosuid: bool,
    /// Whether programs on it cannot be executed (`noexec`).
    pub noexec: bool,
    /// What statvfs(3) and /proc/mounts report of access times (`relatime`, `noatime`,
    /// `strictatime`). The file system keeps them by an option of its own.
    pub access_times: AccessTimes,
    /// Whether the directory need not be empty. The mount hides its content (`nonempty`).
    pub nonempty: bool,
    /// How long the kernel may cache names and attributes (`timeout=SECONDS`). The default is a
    /// day, because the kernel knows of all changes made through the mount. Changes that this
    /// process makes through the library are seen after this time, or after a notice
    /// (`Mount::attributes_changed`).
    pub timeout: Duration,
    /// Number of serving threads (`threads=N`); 0 stands for one for each CPU. More are started
    /// while these are blocked by long requests.
    pub threads: usize,
    /// The name of a socket, unique on this machine, at which programs ask for the shared-memory
    /// path. Only programs of this user get it.
    pub shared_memory: Option<String>,
    /// The limit in bytes of memory that programs on the shared-memory path share with this
    /// process, and of its copies. Calls beyond it go through the kernel. `None` stands for a
    /// quarter of the page cache's size, and at least 16 MiB.
    pub shared_memory_limit: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            source: "meantime".to_owned(),
            read_only: false,
            allow_other: false,
            sync: false,
            nodev: false,
            nosuid: false,
            noexec: false,
            access_times: AccessTimes::default(),
            nonempty: false,
            timeout: Duration::from_secs(86_400),
            threads: 0,
            shared_memory: None,
            shared_memory_limit: None,
        }
    }
}

impl Options {
    /// Returns the flags of mount(2) for a mount or a remount. The kernel notes no reads of FUSE's
    /// files, whatever the flags say.
    pub fn flags(&self) -> MountFlags {
        let choices = [
            (self.read_only, MountFlags::RDONLY),
            (self.nodev, MountFlags::NODEV),
            (self.nosuid, MountFlags::NOSUID),
            (self.noexec, MountFlags::NOEXEC),
            (self.sync, MountFlags::SYNCHRONOUS),
            (self.access_times == AccessTimes::Never, MountFlags::NOATIME),
            (self.access_times == AccessTimes::Strict, MountFlags::STRICTATIME),
        ];
        choices.iter().filter(|(is, _)| *is).map(|(_, flag)| *flag).collect()
    }
}

/// A word after `-o` that cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("-o {word}: {why}")]
pub struct OptionsError {
    /// The word.
    pub word: String,
    /// The reason why it is refused.
    pub why: String,
    /// Whether there is no such option. Otherwise its value is wrong.
    pub is_unknown: bool,
}

/// The reason why a word is refused.
enum Wrong {
    Unknown,
    Value(String),
}

impl From<&str> for Wrong {
    fn from(why: &str) -> Self {
        Self::Value(why.to_owned())
    }
}

impl From<String> for Wrong {
    fn from(why: String) -> Self {
        Self::Value(why)
    }
}

/// The parsed words after `-o`: options of the kernel's mount, and of the file system.
#[derive(Debug, Clone)]
pub struct Words {
    /// The options for [`Mount::new`](crate::Mount::new).
    pub options: Options,
    /// The options for [`FileSystem::mount`](meantime_ext4::FileSystem::mount).
    pub file_system: MountOptions,
}

impl Default for Words {
    fn default() -> Self {
        let file_system = MountOptions { write: true, ..MountOptions::default() };
        Self { options: Options::default(), file_system }
    }
}

impl Words {
    /// The known words, with commas between them.
    pub const KNOWN: &str = "ro, rw, allow_other, default_permissions, sync, async, noatime, \
                             relatime, strictatime, nodev, dev, nosuid, suid, noexec, exec, \
                             nonempty, timeout=, threads=, policy=, cache=, commit=, order=, \
                             overlap=, fast_commit";

    /// Applies `words`, the comma-separated text of one `-o`. Later words override earlier ones.
    ///
    /// # Errors
    /// Fails if a word is unknown, or its value is wrong.
    pub fn obey(&mut self, words: &str) -> Result<(), OptionsError> {
        for word in words.split(',').filter(|word| !word.is_empty()) {
            self.obey_word(word).map_err(|wrong| {
                let (why, is_unknown) = match wrong {
                    Wrong::Unknown => {
                        (format!("there is no such option; there are {}", Self::KNOWN), true)
                    }
                    Wrong::Value(why) => (why, false),
                };
                OptionsError { word: word.to_owned(), why, is_unknown }
            })?;
        }
        Ok(())
    }

    fn obey_word(&mut self, word: &str) -> Result<(), Wrong> {
        let Self { options, file_system } = self;
        // Comments for systemd, mount(8) and administrators are ignored.
        if ["x-", "X-", "comment="].iter().any(|prefix| word.starts_with(prefix)) {
            return Ok(());
        }
        if let Some((key, value)) = word.split_once('=') {
            return self.obey_value(key, value);
        }
        match word {
            "ro" | "rw" => {
                options.read_only = word == "ro";
                file_system.write = word == "rw";
            }
            "allow_other" => options.allow_other = true,
            "sync" | "async" => options.sync = word == "sync",
            "dev" | "nodev" => options.nodev = word == "nodev",
            "suid" | "nosuid" => options.nosuid = word == "nosuid",
            "exec" | "noexec" => options.noexec = word == "noexec",
            "nonempty" => options.nonempty = true,
            "noatime" => self.note_reads(AccessTimes::Never),
            "relatime" | "atime" => self.note_reads(AccessTimes::Relative),
            "strictatime" => self.note_reads(AccessTimes::Strict),
            "fast_commit" => file_system.fast_commit = true,
            "defaults" => {
                (options.read_only, options.sync) = (false, false);
                (options.nodev, options.nosuid, options.noexec) = (false, false, false);
                file_system.write = true;
            }
            // mount(8) does this: a mount that users may make grants no rights.
            "user" | "users" => {
                (options.nodev, options.nosuid, options.noexec) = (true, true, true);
            }
            "owner" | "group" => (options.nodev, options.nosuid) = (true, true),
            // These words say what always holds, are for other readers of /etc/fstab, or only
            // negate others.
            "default_permissions"
            | "auto"
            | "noauto"
            | "nofail"
            | "_netdev"
            | "nouser"
            | "nousers"
            | "noowner"
            | "nogroup"
            | "norelatime"
            | "nostrictatime"
            | "diratime"
            | "nodiratime"
            | "nolazytime"
            | "lazytime"
            | "noiversion"
            | "nomand"
            | "loud"
            | "silent" => {}
            _ => return Err(Wrong::Unknown),
        }
        Ok(())
    }

    fn note_reads(&mut self, times: AccessTimes) {
        (self.options.access_times, self.file_system.access_times) = (times, times);
    }

    fn obey_value(&mut self, key: &str, value: &str) -> Result<(), Wrong> {
        let Self { options, file_system } = self;
        match key {
            "timeout" | "attr_timeout" | "entry_timeout" => {
                let seconds: f64 = value.parse().map_err(|_| "not a number of seconds")?;
                let time = Duration::try_from_secs_f64(seconds)
                    .map_err(|_| "not a time that can be waited for")?;
                options.timeout = time;
            }
            "threads" => {
                let threads = value.parse().ok().filter(|threads| (1..=256).contains(threads));
                options.threads = threads.ok_or("a number from 1 to 256")?;
            }
            "policy" => {
                let policy: Policy = value.parse().map_err(|error| format!("{error}"))?;
                file_system.policy = Some(policy);
            }
            "cache" => file_system.cache_bytes = bytes(value)?,
            "commit" => {
                let seconds = value.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
                let seconds: u64 = seconds.ok_or("a number of seconds, from 1 to a day's")?;
                file_system.commit_interval_ms = seconds * 1000;
            }
            "order" => {
                file_system.commit_overlap = match value {
                    "classic-thread" => CommitOverlap::NONE,
                    "classic" => CommitOverlap { caller_commits: true, ..CommitOverlap::NONE },
                    "overlapped" => CommitOverlap::ALL,
                    _ => return Err("classic, classic-thread or overlapped".into()),
                }
            }
            "overlap" => {
                file_system.overlap = match value {
                    "none" => Overlap::NONE,
                    "all" => Overlap::ALL,
                    _ => return Err("none or all".into()),
                }
            }
            "fsname" => options.source = value.to_owned(),
            // This is for tests, whose programs are not started by `meantime run`.
            "shared_memory" => options.shared_memory = Some(value.to_owned()),
            "subtype" => {}
            _ => return Err(Wrong::Unknown),
        }
        Ok(())
    }
}

/// Parses a size as the command's other options do: 64M, 1G.
fn bytes(text: &str) -> Result<usize, String> {
    let wrong = || "a size such as 64M or 1G".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "k" | "K" | "KiB" => 10,
        "m" | "M" | "MiB" => 20,
        "g" | "G" | "GiB" => 30,
        _ => return Err(wrong()),
    };
    let number: usize = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts() {
        let mut words = Words::default();
        words.obey("ro,noatime,nosuid,cache=16M,timeout=0.5,order=classic").unwrap();
        words.obey("rw,,allow_other,relatime,suid,policy=adaptive,commit=30,threads=3").unwrap();
        let Words { options, file_system } = words;
        assert!(!options.read_only && file_system.write && options.allow_other);
        assert!(!options.nosuid && file_system.access_times == AccessTimes::Relative);
        assert_eq!((options.timeout, options.threads), (Duration::from_millis(500), 3));
        assert_eq!((file_system.cache_bytes, file_system.commit_interval_ms), (16 << 20, 30_000));
        assert!(file_system.commit_overlap.caller_commits && !file_system.commit_overlap.data);
        assert!(file_system.policy.is_some());
    }

    /// The words that mount(8) passes on from a line of /etc/fstab.
    #[test]
    fn words_of_fstab_are_obeyed_or_for_others() {
        let mut words = Words::default();
        let line = "rw,noauto,nofail,_netdev,x-systemd.requires=a.service,comment=b,X-mount.mkdir";
        words.obey(line).unwrap();
        assert!(!words.options.nosuid && words.file_system.write);
        words.obey("users,exec").unwrap();
        assert!(words.options.nosuid && words.options.nodev && !words.options.noexec);
    }

    #[test]
    fn what_cannot_be_obeyed_is_named() {
        for (word, part) in [
            ("frobnicate", "no such option"),
            ("timeout=soon", "seconds"),
            ("timeout=-1", "waited"),
            ("threads=0", "1 to 256"),
            ("order=random", "overlapped"),
            ("overlap=some", "none or all"),
            ("cache=many", "64M"),
            ("cache=99999999999G", "64M"),
            ("policy=guess", "guess"),
            ("colour=red", "no such option"),
        ] {
            let error = Words::default().obey(&format!("rw,{word}")).unwrap_err();
            assert_eq!(error.word, word);
            assert_eq!(error.is_unknown, part == "no such option");
            assert!(error.why.contains(part), "{error}");
        }
    }
}
