//! The metrics of a mount.

use meantime_block::control::metrics::{self, Kind, Metrics, Published, Value};
use meantime_ext4::FileSystem;
use meantime_mount::{Calls, Mount};

/// Publishes what `mount` counts, until the result is dropped, which has to be before the end of
/// the file system.
pub(crate) fn publish(mount: &Mount) -> Published {
    let (fs, requests) = (mount.file_system().clone(), mount.requests());
    let calls = mount.calls();
    let dir = mount.dir().display().to_string();
    metrics::publish(move |metrics| {
        let mount = [("mount", dir.as_str())];
        add_cache(metrics, &mount, &fs);
        add_journal(metrics, &mount, &fs);
        // Without a shared-memory path there are no calls.
        let calls = calls.as_ref().map_or_else(Calls::default, |calls| calls.get());
        add_calls(metrics, &mount, &calls);
        for (kind, counts) in requests.iter().filter(|(_, counts)| counts.served > 0) {
            let labels = [mount[0], ("kind", kind.as_str())];
            let time_s = counts.time_ns as f64 / 1e9;
            let counters: [(&str, &str, Value); 3] = [
                ("requests", "Requests of the kernel (FUSE) served", counts.served.into()),
                ("request_errors", "Of these, those answered with an error", counts.failed.into()),
                ("request_time_seconds", "Time that serving them took", time_s.into()),
            ];
            add(metrics, Kind::Counter, &labels, counters);
        }
    })
}

/// Adds figures, each with its name after `meantime_mount_` and what it is.
fn add<V: Into<Value>>(
    metrics: &mut Metrics,
    kind: Kind,
    labels: &[(&str, &str)],
    figures: impl IntoIterator<Item = (&'static str, &'static str, V)>,
) {
    for (name, help, value) in figures {
        metrics.add(&format!("meantime_mount_{name}"), kind, help, labels, value);
    }
}

fn add_calls(metrics: &mut Metrics, mount: &[(&str, &str)], calls: &Calls) {
    for (kind, count) in [
        ("read", calls.reads),
        ("write", calls.writes),
        ("sync", calls.syncs),
        ("other", calls.others),
    ] {
        let help = "Calls that programs sent past the kernel, executed";
        let labels = [mount[0], ("kind", kind)];
        add(metrics, Kind::Counter, &labels, [("short_calls", help, count)]);
    }
    let counters = [
        ("short_bytes", "Bytes that they read and wrote", calls.bytes),
        ("short_refused", "Such calls sent to the kernel, which caches the file", calls.long),
        ("short_stale", "Such calls for a file that was closed", calls.stale),
    ];
    add(metrics, Kind::Counter, mount, counters);
}

fn add_cache(metrics: &mut Metrics, mount: &[(&str, &str)], fs: &FileSystem) {
    let (reads, cache) = (fs.counters(), fs.cache_counters());
    let counters = [
        ("cache_hits", "Pages (4 KiB) found in the page cache", reads.hits),
        ("cache_misses", "Pages read from the device into the page cache", reads.misses),
        ("cache_readahead_pages", "Pages read ahead into the page cache", reads.ahead),
        ("cache_waits", "Waits for a page that another read had requested", reads.waits),
        ("cache_bypassed_pages", "Pages read past a cache without a free page", reads.private),
        ("cache_evictions", "Pages evicted from the page cache", cache.evicted),
        ("direct_read_pages", "Pages of direct reads, partial ones included", reads.direct),
        ("read_requests", "Requests sent to the device for file data", reads.requests),
        ("read_failures", "Requests for file data that failed", reads.failed),
        ("read_bytes", "Bytes asked of the device for file data", reads.requested_bytes),
    ];
    add(metrics, Kind::Counter, mount, counters);
    let pages = [
        ("cache_capacity_pages", "The most pages of the page cache", cache.capacity_pages),
        ("cache_pages", "Pages of the page cache that exist", cache.pages),
        ("cache_free_pages", "Pages of the page cache that are free", cache.free_pages),
        ("cache_dirty_pages", "Pages that are to be written", cache.dirty_pages),
    ];
    add(metrics, Kind::Gauge, mount, pages);
}

fn add_journal(metrics: &mut Metrics, mount: &[(&str, &str)], fs: &FileSystem) {
    let Some(journal) = fs.journal_counters() else { return };
    let checkpoints = "Checkpoints: the log's blocks were written in place";
    let counters = [
        ("journal_commits", "Transactions committed with a commit block", journal.commits),
        ("journal_blocks", "Log blocks of these transactions", journal.log_blocks),
        ("journal_fast_commits", "Fast commits", journal.fast_commits),
        ("journal_fast_blocks", "Blocks of fast commits", journal.fast_blocks),
        ("journal_checkpoints", checkpoints, journal.checkpoints),
    ];
    add(metrics, Kind::Counter, mount, counters);
}
