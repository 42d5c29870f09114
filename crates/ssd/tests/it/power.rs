//! The volatile write cache and power cuts; interrupts and their coalescing.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use meantime_nvme_spec::features::{InterruptCoalescing, InterruptVectorConfig, fid};
use meantime_nvme_spec::sqe::Sqe;
use meantime_ssd::{Medium, Model, Rng, SsdConfig, SteppedSsd};
use meantime_testkit::host::*;

fn cached() -> SsdConfig {
    SsdConfig { volatile_write_cache: true, ..config(1 << 20, 512) }
}

fn again(ssd: &SteppedSsd) -> Host {
    // The old host's memory stays mapped: power was cut, the host was not.
    ssd.port().unmap_dma(BASE).unwrap();
    let mut host = Host::new(ssd.port());
    host.enable();
    host.create_queues(1, 64, None);
    host
}

fn put(host: &mut Host, area: u64, lba: u64, byte: u8, fua: bool) {
    host.write(area, &[byte; 512]);
    ok(host.io(1, Sqe::write(0, 1, lba, 1, area, 0, fua)));
}

fn get(host: &mut Host, area: u64, lba: u64) -> u8 {
    ok(host.io(1, Sqe::read(0, 1, lba, 1, area, 0)));
    let block = host.read(area, 512);
    assert!(block.iter().all(|&b| b == block[0]), "a block is never torn");
    block[0]
}

#[test]
fn unflushed_data_vanish_and_the_rest_stays() {
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..8 {
        let (ssd, mut host) = stepped(cached());
        host.create_queues(1, 64, None);
        let area = host.alloc(4096);
        for lba in 0..20 {
            put(&mut host, area, lba, 1, false);
        }
        ok(host.io(1, Sqe::flush(0, 1)));
        assert_eq!(ssd.unflushed_bytes(), 0);
        for lba in 0..20 {
            put(&mut host, area, lba, 2, lba >= 15);
        }
        put(&mut host, area, 30, 3, false);
        ok(host.io(1, Sqe::write_zeroes(0, 1, 0, 1, false, true)));
        assert_eq!(get(&mut host, area, 1), 2, "reads see what was written");
        assert!(ssd.unflushed_bytes() > 0);
        let dropped = ssd.power_cut(&mut Rng::new(seed));
        assert_eq!(host.csts().0, 0, "the controller is reset");

        let mut host = again(&ssd);
        let area = host.alloc(4096);
        assert_eq!(get(&mut host, area, 0), 0, "zeroes with FUA survive");
        let mut gone = 0;
        for lba in 1..15 {
            match get(&mut host, area, lba) {
                1 => gone += 1,
                2 => kept += 1,
                other => panic!("{other} was flushed over"),
            }
        }
        for lba in 15..20 {
            assert_eq!(get(&mut host, area, lba), 2, "FUA survives");
        }
        gone += u64::from(get(&mut host, area, 30) == 0);
        // The write of block 0 may have been among the dropped ones.
        assert!(dropped == gone || dropped == gone + 1);
        lost += gone;
    }
    assert!(lost > 20 && kept > 20, "{lost} lost, {kept} kept");
}

#[test]
fn switching_the_cache_off_writes_back() {
    let (ssd, mut host) = stepped(cached());
    host.create_queues(1, 64, None);
    let area = host.alloc(4096);
    put(&mut host, area, 5, 7, false);
    assert_eq!(ssd.unflushed_bytes(), 512);
    ok(host.admin(Sqe::set_features(0, 0, fid::VOLATILE_WRITE_CACHE, false, 0)));
    assert_eq!(ssd.unflushed_bytes(), 0);
    put(&mut host, area, 6, 8, false);
    assert_eq!(ssd.unflushed_bytes(), 0);
    for seed in 0..4 {
        assert_eq!(ssd.power_cut(&mut Rng::new(seed)), 0);
    }
    let mut host = again(&ssd);
    let area = host.alloc(4096);
    assert_eq!((get(&mut host, area, 5), get(&mut host, area, 6)), (7, 8));
    put(&mut host, area, 6, 9, false);
    assert_eq!(ssd.unflushed_bytes(), 512, "on again after a reset");
}

#[test]
fn shutdown_writes_back() {
    let (ssd, mut host) = stepped(cached());
    host.create_queues(1, 64, None);
    let area = host.alloc(4096);
    put(&mut host, area, 5, 7, false);
    host.port.write32(meantime_nvme_spec::regs::CC, Host::cc().with_shn(1).0);
    assert_eq!(ssd.unflushed_bytes(), 0);
}

#[test]
fn without_a_cache_nothing_is_lost() {
    let (ssd, mut host) = stepped(config(1 << 20, 512));
    host.create_queues(1, 64, None);
    let area = host.alloc(4096);
    for lba in 0..20 {
        put(&mut host, area, lba, 4, false);
    }
    assert_eq!(ssd.power_cut(&mut Rng::new(1)), 0);
    let mut host = again(&ssd);
    let area = host.alloc(4096);
    assert!((0..20).all(|lba| get(&mut host, area, lba) == 4));
}

#[test]
fn a_file_medium_keeps_what_was_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let medium = Medium::file(&path, Some(1 << 20)).unwrap();
    let ssd = SteppedSsd::new(cached(), medium, 3).unwrap();
    let mut host = Host::new(ssd.port());
    host.enable();
    host.create_queues(1, 64, None);
    let area = host.alloc(4096);
    put(&mut host, area, 1, 1, false);
    ok(host.io(1, Sqe::flush(0, 1)));
    put(&mut host, area, 1, 2, false);
    put(&mut host, area, 2, 2, true);
    ssd.power_cut(&mut Rng::new(0));
    let content = std::fs::read(&path).unwrap();
    assert!(content[512] == 1 || content[512] == 2);
    assert_eq!(content[1024], 2);
}

/// An eventfd, and a look at how often it was signalled.
fn eventfd() -> Arc<OwnedFd> {
    use rustix::event::EventfdFlags;
    Arc::new(rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap())
}

fn signals(event: &OwnedFd) -> u64 {
    let mut value = [0; 8];
    match rustix::io::read(event, &mut value) {
        Ok(_) => u64::from_ne_bytes(value),
        Err(_) => 0,
    }
}

#[test]
fn interrupts_come_per_batch_and_per_vector() {
    let (ssd, mut host) = stepped(config(1 << 20, 512));
    let (admin, event) = (eventfd(), eventfd());
    host.port.set_vector(0, Some(Arc::clone(&admin).into())).unwrap();
    host.port.set_vector(2, Some(Arc::clone(&event).into())).unwrap();
    host.create_queues(1, 64, Some(2));
    assert_eq!(signals(&admin), 2);
    host.create_queues(2, 64, None);
    signals(&admin);
    let area = host.alloc(4096);
    for cid in 0..10 {
        host.put(1, &Sqe::read(cid, 1, 0, 1, area, 0));
        host.put(2, &Sqe::read(cid, 1, 0, 1, area, 0));
    }
    host.ring(2);
    ssd.run_until_idle();
    assert_eq!((signals(&event), signals(&admin)), (0, 0), "a queue without a vector is quiet");
    host.ring(1);
    ssd.run_until_idle();
    assert_eq!((signals(&event), signals(&admin)), (1, 0), "one for a batch");
    host.port.set_vector(2, None).unwrap();
    ok(host.admin(Sqe::abort(0, 0, 0)));
    host.submit(1, &Sqe::read(50, 1, 0, 1, area, 0));
    ssd.run_until_idle();
    assert_eq!((signals(&event), signals(&admin)), (0, 1));
    assert_eq!(ssd.counters().interrupts, 6);
}

#[test]
fn coalescing_by_number_and_by_time() {
    let (ssd, mut host) = stepped(config(1 << 20, 512));
    let clock = ssd.clock();
    let event = eventfd();
    host.port.set_vector(1, Some(Arc::clone(&event).into())).unwrap();
    host.create_queues(1, 64, Some(1));
    let area = host.alloc(4096);
    // Four completions, or 300 µs.
    let coalescing = InterruptCoalescing(0).with_thr(3).with_time(3);
    ok(host.admin(Sqe::set_features(0, 0, fid::INTERRUPT_COALESCING, false, coalescing.0)));
    let one = |host: &mut Host| {
        let cid = host.cid();
        host.submit(1, &Sqe::read(cid, 1, 0, 1, area, 0));
        host.run_until_idle();
    };
    for _ in 0..3 {
        one(&mut host);
    }
    assert_eq!(signals(&event), 0);
    one(&mut host);
    assert_eq!(signals(&event), 1, "the fourth");
    one(&mut host);
    clock.advance(290_000);
    assert_eq!(signals(&event), 0);
    clock.advance(20_000);
    assert_eq!(signals(&event), 1, "after 300 µs");
    clock.advance(10_000_000);
    assert_eq!(signals(&event), 0, "once");

    // A vector may be exempt.
    let exempt = InterruptVectorConfig(0).with_iv(1).with_cd(true);
    ok(host.admin(Sqe::set_features(0, 0, fid::INTERRUPT_VECTOR_CONFIG, false, exempt.0)));
    one(&mut host);
    assert_eq!(signals(&event), 1);
}

#[test]
fn coalescing_with_a_slow_model() {
    let (ssd, mut host) =
        stepped(SsdConfig { model: Model::named("zssd").unwrap(), ..config(1 << 20, 512) });
    let event = eventfd();
    host.port.set_vector(1, Some(Arc::clone(&event).into())).unwrap();
    host.create_queues(1, 64, Some(1));
    let area = host.alloc(4096);
    let coalescing = InterruptCoalescing(0).with_thr(7).with_time(1);
    ok(host.admin(Sqe::set_features(0, 0, fid::INTERRUPT_COALESCING, false, coalescing.0)));
    for cid in 0..20 {
        host.put(1, &Sqe::read(cid, 1, u64::from(cid) * 8, 1, area, 0));
    }
    host.ring(1);
    ssd.clock().advance(1_000_000);
    let n = signals(&event);
    assert!((2..=4).contains(&n), "{n} interrupts for 20 completions in eights");
    assert_eq!((0..20).filter(|_| host.poll(1).is_some()).count(), 20);
}

/// A cached SSD on a file, with its host and a buffer.
fn on_file(path: &std::path::Path, bytes: u64) -> (SteppedSsd, Host, u64) {
    let config = SsdConfig { volatile_write_cache: true, ..config(bytes, 512) };
    let ssd = SteppedSsd::new(config, Medium::file(path, Some(bytes)).unwrap(), 3).unwrap();
    let mut host = Host::new(ssd.port());
    host.enable();
    host.create_queues(1, 64, None);
    let area = host.alloc(4096);
    (ssd, host, area)
}

/// The descriptor of the file at `path`, which an SSD of this process has open.
struct Descriptor(std::mem::ManuallyDrop<OwnedFd>, OwnedFd);

impl Descriptor {
    fn of(path: &std::path::Path) -> Self {
        use std::os::fd::FromRawFd;
        let fd = std::fs::read_dir("/proc/self/fd").unwrap().find_map(|entry| {
            let entry = entry.unwrap();
            let is_it = std::fs::read_link(entry.path()).is_ok_and(|to| to == path);
            is_it.then(|| entry.file_name().to_str().unwrap().parse().unwrap())
        });
        // SAFETY: open, as it was just found; the SSD closes it, not we.
        let fd = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd.unwrap()) });
        let kept = fd.try_clone().unwrap();
        Self(fd, kept)
    }

    /// Makes fdatasync fail from now on: an eventfd has no data to write back.
    fn break_it(&mut self) {
        rustix::io::dup2(&*eventfd(), &mut self.0).unwrap();
    }

    fn mend(&mut self) {
        rustix::io::dup2(&self.1, &mut self.0).unwrap();
    }
}

fn fua(mut sqe: Sqe) -> Sqe {
    sqe.cdw12.set(sqe.cdw12.get() | 1 << 30);
    sqe
}

#[track_caller]
fn write_fault(cqe: meantime_nvme_spec::cqe::Cqe) {
    assert!(
        cqe.status().is(meantime_nvme_spec::status::StatusCode::WriteFault),
        "{}",
        cqe.status()
    );
}

#[test]
fn a_failed_write_back_is_never_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap().join("disk");
    let (ssd, mut host, area) = on_file(&path, 1 << 20);
    put(&mut host, area, 1, 1, false);
    let mut descriptor = Descriptor::of(&path);
    descriptor.break_it();
    write_fault(host.io(1, Sqe::flush(0, 1)));
    descriptor.mend();
    // The kernel would say now that all is well.
    write_fault(host.io(1, Sqe::flush(0, 1)));
    write_fault(host.io(1, Sqe::write(0, 1, 2, 1, area, 0, true)));
    write_fault(host.io(1, Sqe::write_zeroes(0, 1, 2, 1, false, true)));
    write_fault(host.io(1, fua(Sqe::read(0, 1, 1, 1, area, 0))));
    write_fault(host.admin(Sqe::set_features(0, 0, fid::VOLATILE_WRITE_CACHE, false, 0)));
    put(&mut host, area, 3, 1, false);
    assert_eq!(get(&mut host, area, 1), 1);
    host.port.write32(meantime_nvme_spec::regs::CC, Host::cc().with_shn(1).0);
    assert_eq!(host.csts().shst(), meantime_nvme_spec::regs::shst::OCCURRING);
    assert!(ssd.unflushed_bytes() > 0);
}

#[test]
fn with_the_cache_off_every_write_to_a_file_is_synced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap().join("disk");
    let (_ssd, mut host, area) = on_file(&path, 1 << 20);
    put(&mut host, area, 1, 1, false);
    ok(host.admin(Sqe::set_features(0, 0, fid::VOLATILE_WRITE_CACHE, false, 0)));
    put(&mut host, area, 1, 2, false);
    let mut descriptor = Descriptor::of(&path);
    descriptor.break_it();
    // A sync that fails shows that there is one.
    write_fault(host.io(1, Sqe::write(0, 1, 1, 1, area, 0, false)));
    descriptor.mend();
    write_fault(host.io(1, Sqe::write(0, 1, 1, 1, area, 0, true)));
}

#[test]
fn reads_with_fua_flush_what_they_read() {
    let reads: [fn(u64) -> Sqe; 3] = [
        |area| Sqe::read(0, 1, 5, 1, area, 0),
        |area| Sqe::compare(0, 1, 5, 1, area, 0),
        |_| Sqe::verify(0, 1, 5, 1),
    ];
    for read in reads {
        let (ssd, mut host) = stepped(cached());
        host.create_queues(1, 64, None);
        let area = host.alloc(4096);
        put(&mut host, area, 5, 7, false);
        ok(host.io(1, read(area)));
        assert_eq!(ssd.unflushed_bytes(), 512);
        ok(host.io(1, fua(read(area))));
        assert_eq!(ssd.unflushed_bytes(), 0);
        assert_eq!(ssd.power_cut(&mut Rng::new(1)), 0);
    }
}

#[test]
fn zeroing_a_file_keeps_its_blocks() {
    use std::os::unix::fs::MetadataExt;
    // tmpfs cannot zero a range of a file.
    for dir in
        [Some(tempfile::tempdir().unwrap()), tempfile::tempdir_in("/dev/shm").ok()].iter().flatten()
    {
        let path = dir.path().join("disk");
        let (_ssd, mut host, area) = on_file(&path, 16 << 20);
        for lba in (0..16 << 11).step_by(1 << 10) {
            put(&mut host, area, lba, 9, false);
        }
        ok(host.io(1, Sqe::flush(0, 1)));
        // 5 MiB from the third block on, then 4 MiB by deallocation.
        ok(host.io(1, Sqe::write_zeroes(0, 1, 3, 10 << 10, true, true)));
        let range = [[0, 0, 0, 0], (8u32 << 10).to_le_bytes(), (16u32 << 10).to_le_bytes(), [0; 4]];
        host.write(area, range.as_flattened());
        ok(host.io(1, Sqe::dsm_deallocate(0, 1, 1, area, 0)));
        ok(host.io(1, Sqe::flush(0, 1)));
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!(meta.len(), 16 << 20);
        assert!(meta.blocks() * 512 >= 16 << 20, "{} blocks", meta.blocks());
        for lba in (0..16 << 11).step_by(1 << 10) {
            let zeroed = (3..3 + (10 << 10)).contains(&lba) || (16 << 10..24 << 10).contains(&lba);
            assert_eq!(get(&mut host, area, lba), if zeroed { 0 } else { 9 }, "block {lba}");
        }
    }
}
