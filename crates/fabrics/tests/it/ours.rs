//! The host on the software SSD's own target.

use std::net::SocketAddr;
use std::time::Instant;

use meantime_block::{
    BlockChannel, BlockDevice, ChannelOptions, NvmeChannel, NvmeDevice, PollGroup, Ready, Request,
    open_nvme,
};
use meantime_completion::Policy;
use meantime_random::Rng;
use meantime_ssd::tcp::{DEFAULT_NQN, NetFaults, Target, TargetOptions};
use meantime_ssd::{Medium, NamespaceConfig, SsdConfig};

use super::{channel, options, pattern, verify};

const BYTES: u64 = 64 << 20;

pub(crate) fn started(adjust: impl FnOnce(&mut SsdConfig)) -> Target {
    let namespaces = vec![NamespaceConfig { bytes: BYTES, lba_bytes: 512 }];
    let mut config = SsdConfig { namespaces, ..SsdConfig::default() };
    adjust(&mut config);
    let medium = Medium::dram(BYTES).unwrap();
    Target::start(config, medium, TargetOptions::default()).unwrap()
}

fn opened(target: &Target, parameters: &str) -> NvmeDevice {
    opened_at(target.addr(), parameters)
}

pub(crate) fn opened_at(addr: SocketAddr, parameters: &str) -> NvmeDevice {
    opened_as(addr, 0, parameters)
}

fn opened_as(addr: SocketAddr, host: u8, parameters: &str) -> NvmeDevice {
    let uri = format!(
        "nvme+tcp://{addr}/{DEFAULT_NQN}?hostnqn=nqn.2014-08.org.example:host{host}\
         &hostid=0123456789abcdef0123456789abcd{host:02x}{parameters}"
    );
    let mut options = options();
    options.controller.io_queues = 63;
    open_nvme(&uri, &options).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_size_every_way() {
    for digest in ["", "&digest=header+data"] {
        let target = started(|_| {});
        let device = opened(&target, digest);
        for policy in ["poll", "interrupt", "adaptive"] {
            verify(&mut channel(&device, policy.parse().unwrap()));
        }
    }
}

/// 256 connections of four hosts, which together ask for four times as much at once as the target
/// has room for: none waits much longer than the others.
#[test]
fn many_connections_are_served_alike() {
    const HOSTS: usize = 4;
    const QUEUES: usize = 63;
    const DEPTH: u16 = 8;
    const READS: u32 = 200;
    let target = started(|config| config.max_io_queues = 64);
    let devices: Vec<_> = (0..HOSTS).map(|host| opened_as(target.addr(), host as u8, "")).collect();
    let options = ChannelOptions { depth: DEPTH, policy: Some(Policy::Poll), ..Default::default() };
    let mut group = PollGroup::new();
    for device in &devices {
        for _ in 0..QUEUES {
            let mut channel = device.channel(&options).unwrap();
            for _ in 0..DEPTH {
                let request = Request::read(0, channel.alloc(4096).unwrap());
                channel.enqueue(request).map_err(|rejected| rejected.error).unwrap();
            }
            group.add(channel);
        }
    }
    let mut counts = std::collections::HashMap::new();
    let (mut ready, mut ended) = (Vec::new(), 0);
    while ended < READS * (HOSTS * QUEUES) as u32 {
        group.wait_many(None, 64, &mut ready);
        for ready in ready.drain(..) {
            let Ready::Done(key, done) = ready else { continue };
            done.result.unwrap();
            *counts.entry(key).or_insert(0_u32) += 1;
            ended += 1;
            let request = Request::read(0, done.buf.unwrap());
            group.channel(key).enqueue(request).map_err(|rejected| rejected.error).unwrap();
        }
    }
    let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
    assert_eq!(counts.len(), HOSTS * QUEUES);
    assert!(*least > READS / 2 && *most < READS * 2, "{least} to {most} of {READS}");
}

#[test]
fn other_commands() {
    let target = started(|_| {});
    let device = opened(&target, "");
    let mut channel = channel(&device, Policy::Poll);
    let mut buf = channel.alloc(65_536).unwrap();
    buf.fill(7);
    let buf = channel.write(0, buf).unwrap();
    let mut run = |request| {
        let ticket = channel.submit(request).map_err(|rejected| rejected.error).unwrap();
        channel.wait(ticket)
    };
    let done = run(Request::compare(0, buf));
    done.result.unwrap();
    run(Request::write_zeroes(0, 8)).result.unwrap();
    run(Request::deallocate(8, 8)).result.unwrap();
    run(Request::verify(16, 8)).result.unwrap();
    run(Request::flush()).result.unwrap();
    let done = run(Request::compare(0, done.buf.unwrap()));
    assert!(done.result.is_err(), "the zeroes are not 7");
    let buf = run(Request::read(0, done.buf.unwrap())).buf.unwrap();
    assert!(buf[..4096].iter().all(|byte| *byte == 0) && buf[8192] == 7);
}

#[test]
fn a_power_cut_at_the_target_is_told() {
    let target = started(|config| config.volatile_write_cache = true);
    let device = opened(&target, "&kato_ms=1000");
    assert!(device.info().volatile_write_cache);
    let mut channel = channel(&device, Policy::Poll);
    verify(&mut channel);
    channel.flush().unwrap();
    target.power_cut(1);
    let error = channel.flush().unwrap_err();
    assert!(error.to_string().contains("lost power"), "{error}");
    verify(&mut channel);
    channel.flush().unwrap();
}

/// Writes and reads at random, many at once, while connections are lost, and checks every block
/// against what was written last.
pub(crate) fn verified(channel: &mut NvmeChannel, commands: u64, seed: u64) {
    const SLOTS: u64 = 1024;
    let mut random = Rng::new(seed);
    // The seed of what each slot of 8 KiB holds; a slot has one request at a time.
    let mut holds = vec![None::<u64>; SLOTS as usize];
    let mut is_busy = vec![false; SLOTS as usize];
    let (mut sent, mut ended) = (0, 0);
    while ended < commands {
        while sent < commands && sent - ended < 16 {
            let slot = random.next_u64() % SLOTS;
            if std::mem::replace(&mut is_busy[slot as usize], true) {
                continue;
            }
            let mut buf = channel.alloc(8192).unwrap();
            let writes = holds[slot as usize].is_none() || random.next_u64().is_multiple_of(2);
            let request = if writes {
                let seed = random.next_u64();
                buf.copy_from_slice(&pattern(seed, 8192));
                holds[slot as usize] = Some(seed);
                Request::write(slot * 16, buf)
            } else {
                Request::read(slot * 16, buf)
            };
            let request = request.user_data(slot << 1 | u64::from(writes));
            channel.enqueue(request).map_err(|rejected| rejected.error).unwrap();
            sent += 1;
        }
        let done = channel.wait_done().unwrap();
        let slot = (done.user_data >> 1) as usize;
        done.result.unwrap_or_else(|error| panic!("slot {slot}: {error}"));
        is_busy[slot] = false;
        if done.user_data & 1 == 0 {
            let want = pattern(holds[slot].unwrap(), 8192);
            assert!(done.buf.unwrap()[..] == want[..], "slot {slot}");
        }
        ended += 1;
    }
}

#[test]
fn verified_commands_under_random_loss() {
    let commands = std::env::var("MEANTIME_TCP_COMMANDS").ok().and_then(|n| n.parse().ok());
    for (seed, policy) in [(1, Policy::Poll), (2, Policy::Interrupt)] {
        let target = started(|config| config.volatile_write_cache = false);
        // Of an association whose Keep Alive Timeout is short, so that a loss costs little.
        let device = opened(&target, "&kato_ms=1000&digest=data");
        let options =
            ChannelOptions { policy: Some(policy), depth: 32, ..ChannelOptions::default() };
        let mut channel = device.channel(&options).unwrap();
        let faults = NetFaults {
            drop_one_in: 2_000,
            cut_one_in: 2_000,
            ddgst_one_in: 1_000,
            seed,
            ..NetFaults::NONE
        };
        target.set_net_faults(faults);
        let started = Instant::now();
        verified(&mut channel, commands.unwrap_or(10_000), seed);
        let lost = target.tcp_counters();
        println!("{policy}: {:?}, {lost:?}", started.elapsed());
        target.set_net_faults(NetFaults::NONE);
    }
}
