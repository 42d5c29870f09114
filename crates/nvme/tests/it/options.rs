//! What controllers may have beside the least: queue classes, SGLs, shadow doorbells, power states,
//! logs, features. On the stepped SSD, which refuses what is not right and says why.

use meantime_block::{
    BlockChannel, BlockDevice, ChannelOptions, IoErrorKind, NvmeChannel, Request,
};
use meantime_nvme::{AdminQueries as _, CommandError, ControllerOptions, Error, QueueClass};
use meantime_nvme_spec::features::{Arbitration, PowerManagement, fid};
use meantime_nvme_spec::identify::oncs;
use meantime_nvme_spec::opcode::{admin, io};
use meantime_nvme_spec::status::StatusCode;
use meantime_ssd::{PowerState, SsdConfig};
use meantime_testkit::quick;
use meantime_testkit::rig::{MS, Rig, put, read_of, ssd, verify, write_of};

fn channel_of(rig: &Rig, class: QueueClass, depth: u16) -> NvmeChannel {
    let options = ChannelOptions { depth, class: Some(class), ..ChannelOptions::default() };
    rig.device.channel(&options).expect("a channel")
}

#[test]
fn weights_are_set_and_set_again_after_a_reset() {
    let weights = Arbitration(0).with_hpw(9).with_mpw(2).with_lpw(1).with_ab(3);
    let options = ControllerOptions { arbitration: Some(weights), ..quick() };
    let rig = Rig::with(ssd("null"), options);
    assert!(rig.controller.has_queue_classes());
    rig.controller.set_interrupt_coalescing(8, 2).expect("it can");
    for _ in 0..2 {
        assert_eq!(
            rig.controller.get_feature(fid::ARBITRATION, 0).expect("it has that"),
            weights.0
        );
        // §5.21.1.8: 15:8 TIME, 7:0 THR, 0's based.
        let coalescing =
            rig.controller.get_feature(fid::INTERRUPT_COALESCING, 0).expect("it has that");
        assert_eq!(coalescing, 2 << 8 | 7);
        rig.controller.reset_now();
    }
    let error = rig.controller.set_interrupt_coalescing(0, 1).expect_err("none is no number");
    assert!(error.to_string().contains("1 to 256"), "{error}");
    let plain =
        Rig::with(ssd("null"), ControllerOptions { weighted_round_robin: false, ..quick() });
    assert!(!plain.controller.has_queue_classes());
    put(&mut channel_of(&plain, QueueClass::Urgent, 2), 0..8, 1);
    assert_eq!((rig.ssd.refusals().len(), plain.ssd.refusals().len()), (0, 0));
}

#[test]
fn the_write_cache_is_turned_off_for_as_long_as_the_device_is_open() {
    let rig = Rig::new(SsdConfig { volatile_write_cache: true, ..ssd("null") });
    let controller = &rig.controller;
    let cache = fid::VOLATILE_WRITE_CACHE;
    assert_eq!(controller.get_feature(cache, 0).expect("there is one"), 1);
    controller.set_feature(cache, 0, 0).expect("it can be off");
    controller.reset_now();
    assert_eq!(controller.get_feature(cache, 0).expect("there is one"), 0);
    let mut channel = rig.channel(1);
    put(&mut channel, 0..8, 1);
    assert_eq!(rig.ssd.unflushed_bytes(), 0);
    controller.set_feature(cache, 0, 1).expect("and on");
    put(&mut channel, 0..8, 2);
    assert!(rig.ssd.unflushed_bytes() > 0);
    let without = Rig::new(ssd("null"));
    assert!(matches!(without.controller.set_feature(cache, 0, 1), Err(Error::Admin { .. })));
}

/// A device that falls asleep after a millisecond, and takes one to wake up.
fn drowsy() -> SsdConfig {
    let state = |max_power_10mw, exlat_us, non_operational| PowerState {
        max_power_10mw,
        enlat_us: 100,
        exlat_us,
        non_operational,
    };
    let power_states = vec![state(800, 0, false), state(300, 10, false), state(5, 1_000, true)];
    SsdConfig { power_states, apst_idle_ms: Some(1), ..ssd("null") }
}

#[test]
fn a_drowsy_device_is_kept_awake_and_left_as_it_was() {
    for low_latency in [true, false] {
        let rig = Rig::with(drowsy(), ControllerOptions { low_latency, ..quick() });
        assert_eq!(rig.controller.info().power_states.len(), 3);
        assert!(!rig.controller.info().power_states[2].operational);
        assert_eq!(rig.controller.info().power_states[0].max_power_100uw, 80_000);
        let apst = || rig.controller.autonomous_power_states().expect("it has them");
        let mut channel = rig.channel(1);
        for _ in 0..2 {
            assert_eq!(apst(), !low_latency);
            put(&mut channel, 0..1, 1);
            channel.clock().sleep_ns(20 * MS);
            let request = read_of(&channel, 0..1);
            let (done, took_ns) = rig.timed(|| {
                let ticket = channel.submit(request).expect("room");
                channel.wait(ticket)
            });
            done.result.expect("read");
            assert_eq!(took_ns < MS / 2, low_latency, "{took_ns}");
            rig.controller.reset_now();
        }
        let state = rig.controller.get_feature(fid::POWER_MANAGEMENT, 0).expect("it has it");
        assert_eq!(PowerManagement(state).ps(), 0);
        assert_eq!(rig.ssd.refusals(), []);
    }
}

#[test]
fn long_transfers_by_sgl() {
    for sgl in [false, true] {
        let rig = Rig::with(ssd("null"), ControllerOptions { sgl, ..quick() });
        assert_eq!(rig.controller.uses_sgls(), sgl);
        let mut channel = rig.channel(4);
        for (version, blocks) in (1..).zip([1, 8, 9, 16, 17, 100, 2048]) {
            put(&mut channel, 3..3 + blocks, version);
            verify(&mut channel, 3..3 + blocks, version);
        }
        assert_eq!(rig.ssd.refusals(), []);
    }
}

#[test]
fn shadow_doorbells_over_resets() {
    let config = SsdConfig { shadow_doorbells: true, ..ssd("optane") };
    let rig = Rig::with(config, ControllerOptions { shadow_doorbells: Some(true), ..quick() });
    assert!(rig.controller.has_shadow_doorbells());
    // A ring of a few entries, so that it goes round often.
    let mut channels: Vec<NvmeChannel> = (0..3).map(|_| rig.channel(2)).collect();
    for version in 1..40 {
        for (n, channel) in (0..).zip(&mut channels) {
            for lba in 0..10 {
                put(channel, n * 16 + lba..n * 16 + lba + 1, version);
            }
            verify(channel, n * 16..n * 16 + 10, version);
        }
        if version % 10 == 0 {
            rig.controller.reset_now();
        }
    }
    // One that the controller has never seen, after all that.
    put(&mut rig.channel(4), 100..200, 1);
    assert_eq!(rig.ssd.refusals(), []);
    // Asked for of a controller that has none, the registers do.
    let without =
        Rig::with(ssd("null"), ControllerOptions { shadow_doorbells: Some(true), ..quick() });
    assert!(!without.controller.has_shadow_doorbells());
    put(&mut without.channel(1), 0..8, 1);
}

#[test]
fn a_queue_behind_shadows_is_recreated() {
    let config = SsdConfig { shadow_doorbells: true, ..ssd("optane") };
    let rig = Rig::with(config, ControllerOptions { shadow_doorbells: Some(true), ..quick() });
    let mut channel = rig.channel(4);
    for version in 1..6 {
        put(&mut channel, 0..64, version);
        let lost = meantime_testkit::rig::in_flight_lost(&rig, &mut channel, 0);
        channel.wait(lost).result.expect("put back into a new queue");
        verify(&mut channel, 0..64, version);
    }
    assert_eq!(channel.counters().polled.recreations, 5);
}

#[test]
fn logs_and_names() {
    let rig = Rig::new(ssd("null"));
    let controller = &rig.controller;
    assert_eq!(controller.error_log(8).expect("an error log"), []);
    controller.get_feature(0x7f, 0).expect_err("no such feature");
    let errors = controller.error_log(8).expect("an error log");
    assert_eq!(errors.len(), 1);
    assert_eq!((errors[0].sqid.get(), errors[0].error_count.get()), (0, 1));
    let slots = controller.firmware_slots().expect("firmware slots");
    assert_eq!(slots.revision(1).map(str::trim_end), Some(controller.info().firmware.as_str()));
    let commands = controller.commands_supported().expect("a log").expect("it keeps one");
    assert!(commands.io_effects(io::WRITE).csupp() && commands.io_effects(io::WRITE).lbcc());
    assert!(commands.admin_effects(admin::IDENTIFY).csupp());
    assert_eq!(commands.io_effects(io::VERIFY).csupp(), controller.supports(oncs::VERIFY));
    let ids = controller.namespace_ids(1).expect("identifiers");
    assert!(ids.eui64.is_some() || ids.nguid.is_some() || ids.uuid.is_some(), "{ids:?}");
}

/// Fewer queues of one kind than of the other, and fewer than were asked for.
#[test]
fn as_many_pairs_as_there_are_of_either() {
    let config = SsdConfig { max_io_queues: 5, max_io_completion_queues: Some(3), ..ssd("null") };
    let rig = Rig::new(config);
    assert_eq!(rig.controller.info().io_queues, 3);
    let options = ChannelOptions { interrupt: Some(false), ..ChannelOptions::default() };
    let channels: Vec<_> =
        (0..3).map(|_| rig.device.channel(&options).expect("one of three")).collect();
    let error = rig.device.channel(&options).err().expect("there are no more").to_string();
    assert!(error.contains("all 3 I/O queue pairs") && error.contains("fewer threads"), "{error}");
    drop(channels);
    let mut channel = rig.device.channel(&options).expect("free again");
    let ticket = channel.submit(write_of(&rig.device.channel(&options).expect("another"), 0..1, 1));
    channel.wait(ticket.expect("room")).result.expect("written");
}

#[test]
fn compare_verify_and_write_uncorrectable() {
    let mut config = ssd("null");
    config.mdts_bytes = 8192;
    let rig = Rig::new(config);
    let mut channel = rig.channel(4);
    put(&mut channel, 0..100, 1);
    let run = |channel: &mut NvmeChannel, request: Request| {
        let ticket = channel.submit(request).expect("the SSD has it");
        channel.wait(ticket).result.map_err(|error| match error.kind {
            IoErrorKind::Command(CommandError::Status(status)) => {
                status.code().expect("a known one")
            }
            IoErrorKind::Miscompare => StatusCode::CompareFailure,
            other => panic!("{other}"),
        })
    };
    let with = |channel: &NvmeChannel, version| {
        let write = write_of(channel, 0..100, version);
        Request::compare(0, write.buf.expect("the data"))
    };
    let (same, other) = (with(&channel, 1), with(&channel, 2));
    assert_eq!(run(&mut channel, same), Ok(()));
    assert_eq!(run(&mut channel, other), Err(StatusCode::CompareFailure));
    assert_eq!(run(&mut channel, Request::verify(0, 100)), Ok(()));
    assert_eq!(run(&mut channel, Request::write_uncorrectable(40, 2)), Ok(()));
    assert_eq!(run(&mut channel, Request::verify(0, 40)), Ok(()));
    assert_eq!(run(&mut channel, Request::verify(0, 100)), Err(StatusCode::UnrecoveredReadError));
    let request = read_of(&channel, 41..42);
    assert_eq!(run(&mut channel, request), Err(StatusCode::UnrecoveredReadError));
    put(&mut channel, 40..42, 3);
    verify(&mut channel, 40..42, 3);
    assert_eq!(channel.counters().polled.retries, 0, "media errors are the device's to retry");
}
