//! The metrics of a mount.

use meantime_block::control::metrics::{self, Kind, Metrics, Published};
use meantime_ext4::FileSystem;
use meantime_mount::{Calls, Mount};

/// Publishes what `mount` counts, until the result is dropped, which has to be before the end of the
/// file system.
pub(crate) fn publish(mount: &Mount) -> Published {
    let (fs, requests) = (mount.file_system().clone(), mount.requests());
    let calls = mount.calls();
    let dir = mount.dir().display().to_string();
    metrics::publish(move |metrics| {
        let mount = [("mount", dir.as_str())];
        add_cache(metrics, &mount, &fs);
        add_journal(metrics, &mount, &fs);
        // Without a short way there are none.
        let calls = calls.as_ref().map_or_else(Calls::default, |calls| calls.get());
        add_calls(metrics, &mount, &calls);
        for (kind, counts) in requests.iter().filter(|(_, counts)| counts.served > 0) {
            let labels = [mount[0], ("kind", kind.as_str())];
            let mut add = |name: &str, help: &str, value: metrics::Value| {
                metrics.add(name, Kind::Counter, help, &labels, value);
            };
            add(
                "meantime_mount_requests",
                "Requests of the kernel (FUSE) served",
                counts.served.into(),
            );
            add(
                "meantime_mount_request_errors",
                "Of these, those answered with an error",
                counts.failed.into(),
            );
            add(
                "meantime_mount_request_time_seconds",
                "Time that serving them took",
                (counts.time_ns as f64 / 1e9).into(),
            );
        }
    })
}

fn add_calls(metrics: &mut Metrics, mount: &[(&str, &str)], calls: &Calls) {
    for (kind, count) in [
        ("read", calls.reads),
        ("write", calls.writes),
        ("sync", calls.syncs),
        ("other", calls.others),
    ] {
        let labels = [mount[0], ("kind", kind)];
        let help = "Calls that programs sent past the kernel, executed";
        metrics.add("meantime_mount_short_calls", Kind::Counter, help, &labels, count);
    }
    for (name, help, count) in [
        ("bytes", "Bytes that they read and wrote", calls.bytes),
        ("refused", "Such calls sent to the kernel, which caches the file", calls.long),
        ("stale", "Such calls for a file that was closed", calls.stale),
    ] {
        metrics.add(&format!("meantime_mount_short_{name}"), Kind::Counter, help, mount, count);
    }
}

fn add_cache(metrics: &mut Metrics, mount: &[(&str, &str)], fs: &FileSystem) {
    let (reads, cache) = (fs.counters(), fs.cache_counters());
    for (name, help, count) in [
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
    ] {
        metrics.add(&format!("meantime_mount_{name}"), Kind::Counter, help, mount, count);
    }
    for (name, help, pages) in [
        ("cache_capacity_pages", "The most pages of the page cache", cache.capacity_pages),
        ("cache_pages", "Pages of the page cache that exist", cache.pages),
        ("cache_free_pages", "Pages of the page cache that are free", cache.free_pages),
        ("cache_dirty_pages", "Pages that are to be written", cache.dirty_pages),
    ] {
        metrics.add(&format!("meantime_mount_{name}"), Kind::Gauge, help, mount, pages);
    }
}

fn add_journal(metrics: &mut Metrics, mount: &[(&str, &str)], fs: &FileSystem) {
    // There is none where it is mounted for reading.
    let Some(journal) = fs.journal_counters() else { return };
    for (name, help, count) in [
        ("commits", "Transactions committed with a commit block", journal.commits),
        ("blocks", "Log blocks of these transactions", journal.log_blocks),
        ("fast_commits", "Fast commits", journal.fast_commits),
        ("fast_blocks", "Blocks of fast commits", journal.fast_blocks),
        ("checkpoints", "Checkpoints: the log's blocks were written home", journal.checkpoints),
    ] {
        metrics.add(&format!("meantime_mount_journal_{name}"), Kind::Counter, help, mount, count);
    }
}
