//! A device that loses its volatile cache while a file system is mounted: rules 3 and 18 of
//! `docs/ordering.md`. A FLUSH fails once on each channel that is open at the loss; that must be
//! enough for what other channels wrote, and for every later `fsync`.

use std::path::Path;
use std::sync::Arc;

use meantime_block::{Device, NvmeDevice};
use meantime_ext4::{Error, FileSystem, MountOptions};
use meantime_hw::soft::SoftTransport;
use meantime_nvme::{Controller, ControllerOptions};
use meantime_ssd::{Medium, Model, MonotonicClock, Ssd, SsdConfig};
use meantime_testkit::image::{READ_WRITE, mkfs, scratch, tools, writable};

const PAGE: usize = 4096;
/// The number of pages. It is more than may be dirty, so data are on their way before an fsync.
const PAGES: usize = 256;

/// Returns an SSD with a volatile cache on the image `path`, and the device.
fn volatile(path: &Path) -> (Ssd, Device) {
    let medium = Medium::file(path, None).unwrap();
    let config = SsdConfig {
        model: Model::named("null").unwrap(),
        volatile_write_cache: true,
        ..SsdConfig::with_namespace(medium.len(), 512)
    };
    let ssd = Ssd::start(config, medium, MonotonicClock::new()).unwrap();
    // SAFETY: the port has no other user.
    let transport = unsafe { SoftTransport::new(ssd.port(), "volatile".into(), None) };
    let controller = Controller::enable(Arc::new(transport), ControllerOptions::default()).unwrap();
    let device = NvmeDevice::new(controller, 1, "volatile".into()).unwrap();
    (ssd, Device::Nvme(device))
}

/// Loses the cache when the data of `a` are on the device and their transaction has not committed;
/// then runs `first`, which may meet the failed FLUSH, and checks that `a` is not said to be
/// durable.
fn nothing_is_durable_after(fast_commit: bool, first: impl Fn(&FileSystem) -> Result<(), Error>) {
    let dir = scratch();
    let image = mkfs(dir.path(), "image", "64M", &["-b", "4096", "-O", "fast_commit"]);
    let (ssd, device) = volatile(&image);
    let options = MountOptions {
        fast_commit,
        background: false,
        dirty_bytes: 32 * PAGE,
        channels: 4,
        ..writable()
    };
    let fs = FileSystem::mount(device, &options).unwrap();
    let create = meantime_ext4::OpenOptions { create: true, ..READ_WRITE };
    let b = fs.open_with("/b", &create).unwrap();
    b.write_at(&[1; PAGE], 0).unwrap();
    let a = fs.open_with("/a", &create).unwrap();
    fs.sync().unwrap();
    a.write_at(&vec![2; PAGES * PAGE], 0).unwrap();
    assert!(ssd.unflushed_bytes() > 0, "its data are in the cache");
    ssd.power_cut(7);
    let told = first(&fs);
    let result = a.sync_all();
    assert!(result.is_err(), "fast: {fast_commit}, before: {told:?}");
    // This runs in another thread, with another channel.
    let create_c = || fs.open_with("/c", &create).and_then(|file| file.sync_all());
    let later = std::thread::scope(|scope| scope.spawn(create_c).join().unwrap());
    assert!(later.is_err());
    drop((a, b));
    assert!(fs.unmount().is_err());
    drop(ssd);
}

#[test]
fn an_fsync_after_a_loss_fails() {
    if !tools() {
        return;
    }
    for fast_commit in [false, true] {
        nothing_is_durable_after(fast_commit, |_| Ok(()));
    }
}

/// The flush for a file that was overwritten in place fails, which concerns all others, too.
#[test]
fn another_files_fsync_that_met_the_loss_does_not_hide_it() {
    if !tools() {
        return;
    }
    for fast_commit in [false, true] {
        nothing_is_durable_after(fast_commit, |fs| {
            let b = fs.open_with("/b", &READ_WRITE)?;
            b.write_at(&[3; PAGE], 0)?;
            let synced = b.sync_data();
            assert!(synced.is_err(), "{synced:?}");
            synced
        });
    }
}
