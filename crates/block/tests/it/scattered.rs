//! Requests over scattered pages: what is written from pages anywhere is read into pages anywhere,
//! on every kind of device, by one command or by several; and the pages come back, whatever happens
//! on the way.

use meantime_block::{
    BlockChannel, BlockDevice, ChannelOptions, OpenOptions, Request, RequestError, SubmitError,
    open,
};
use meantime_completion::Policy;
use meantime_hw::{DmaBuf, DmaHeap, DmaPages};
use meantime_nvme::CommandError;
use meantime_ssd::{Fault, SsdConfig};
use meantime_testkit::Rng;
use meantime_testkit::faults::{ALWAYS, ppm};
use meantime_testkit::rig::{LOST, Rig, fill, kind, late, nothing_leaks, put, ssd, verify};

const PAGE: usize = 4096;

/// `count` pages in any order, with something else in them.
fn pages(heap: &DmaHeap, count: usize, rng: &mut Rng) -> DmaPages {
    let mut all: Vec<DmaBuf> = heap.alloc_pages(count + 3).expect("memory");
    let mut pages = DmaPages::with_capacity(heap, count).expect("memory");
    for _ in 0..count {
        let mut page = all.swap_remove(rng.below(all.len() as u64) as usize);
        page.fill(0xa5);
        pages.push(page).expect("it fits");
    }
    pages
}

/// All of the pages, one after the other.
fn bytes_of(pages: &DmaPages) -> Vec<u8> {
    pages.pages().iter().flat_map(|page| page.iter().copied()).collect()
}

fn set_bytes(pages: &mut DmaPages, bytes: &[u8]) {
    pages.pages_mut().zip(bytes.chunks(PAGE)).for_each(|(page, bytes)| page.copy_from_slice(bytes));
}

fn done_pages(result: Result<DmaBuf, RequestError>) -> DmaPages {
    DmaPages::from_buf(result.expect("done")).expect("scattered as before")
}

/// Writes and reads at random, against a model in memory: 1 to 64 pages, of which a part may be
/// transferred.
fn agrees_with_a_model(channel: &mut impl BlockChannel, heap: &DmaHeap, rounds: u64, seed: u64) {
    let block_bytes = channel.info().block_bytes as usize;
    let bytes = channel.info().bytes() as usize;
    let mut rng = Rng::new(seed);
    let mut model = vec![0u8; bytes];
    for (at, piece) in (0..).zip(model.chunks_mut(PAGE * 16)) {
        let mut buf = channel.alloc(piece.len()).expect("memory");
        fill(&mut buf, 512, at * 128, seed);
        piece.copy_from_slice(&buf);
        channel.write(at * (PAGE * 16 / block_bytes) as u64, buf).expect("written");
    }
    for round in 0..rounds {
        let count = if round < 64 { round + 1 } else { 1 + rng.below(64) } as usize;
        let mut there = pages(heap, count, &mut rng);
        let offset = rng.below((PAGE / block_bytes.min(PAGE)) as u64) as usize * block_bytes % PAGE;
        let blocks = (count * PAGE - offset) / block_bytes;
        if blocks == 0 {
            continue;
        }
        // Often all there is.
        let blocks = if rng.one_in(3) { 1 + rng.below(blocks as u64) as usize } else { blocks };
        let len = blocks * block_bytes;
        if len > bytes {
            continue;
        }
        let lba = rng.below(((bytes - len) / block_bytes + 1) as u64);
        let at = lba as usize * block_bytes;
        let mut expected = bytes_of(&there);
        if rng.one_in(2) {
            fill(&mut expected, 512, round << 20, seed);
            set_bytes(&mut there, &expected);
            there.set_range(offset, len);
            let there = done_pages(channel.write(lba, there.into_buf()));
            model[at..at + len].copy_from_slice(&expected[offset..offset + len]);
            assert!(bytes_of(&there) == expected, "round {round}: what was written is as it was");
        } else {
            there.set_range(offset, len);
            assert_eq!(there.data_bytes(), len);
            let there = done_pages(channel.read(lba, there.into_buf()));
            expected[offset..offset + len].copy_from_slice(&model[at..at + len]);
            assert!(
                bytes_of(&there) == expected,
                "round {round}: {count} pages, {len} bytes at {at}"
            );
        }
    }
    let mut whole = channel.alloc(bytes.min(1 << 20)).expect("memory");
    whole = channel.read(0, whole).expect("read");
    assert!(model[..whole.len()] == *whole);
}

#[test]
fn on_a_software_ssd_at_any_block_size() {
    for (lba, policy) in [(512, Policy::Poll), (4096, Policy::Poll), (512, Policy::Interrupt)] {
        let device = open(&format!("mem:4M?lba={lba}"), &OpenOptions::default()).expect("a device");
        let options = ChannelOptions {
            policy: Some(policy),
            interrupt: Some(true),
            ..ChannelOptions::default()
        };
        let mut channel = device.channel(&options).expect("a channel");
        agrees_with_a_model(&mut channel, device.heap(), 150, lba);
    }
}

/// Small transfers, so that a request becomes several commands, which begin anywhere on a page.
#[test]
fn on_a_stepped_ssd_by_several_commands() {
    for mdts_bytes in [8192, 32768, 1 << 20] {
        let rig = Rig::new(SsdConfig { mdts_bytes, ..ssd("optane") });
        let before = rig.device.heap().allocated_bytes();
        let mut channel = rig.channel(8);
        agrees_with_a_model(&mut channel, rig.device.heap(), 100, mdts_bytes.into());
        nothing_leaks(rig, vec![channel], before);
    }
}

#[test]
fn on_the_kernel() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
    for (name, parameters) in [
        ("fixed", "lba=512&direct=0"),
        ("direct", "lba=4096"),
        ("calls", "engine=preadv2&lba=512&direct=0"),
        ("direct-calls", "engine=preadv2&lba=4096"),
    ] {
        let path = dir.path().join(name);
        let uri = format!("kernel:{}?{parameters}&create=2M", path.display());
        let device = open(&uri, &OpenOptions::default()).expect("a device");
        let options =
            ChannelOptions { policy: Some(Policy::Interrupt), ..ChannelOptions::default() };
        let mut channel = device.channel(&options).expect("a channel");
        agrees_with_a_model(&mut channel, device.heap(), 100, 7);
    }
}

/// Many at a time, ended in any order, none with another's pages.
#[test]
fn many_at_a_time() {
    let device = open("mem:8M?lba=512", &OpenOptions::default()).expect("a device");
    let mut channel = device.channel(&ChannelOptions::default()).expect("a channel");
    let mut rng = Rng::new(3);
    put(&mut channel, 0..8192, 1);
    for _ in 0..20 {
        let mut lbas = Vec::new();
        for mark in 0..16 {
            let count = 1 + rng.below(16) as usize;
            let lba = rng.below(8192 - 128);
            lbas.push(lba);
            let buf = pages(device.heap(), count, &mut rng).into_buf();
            channel.enqueue(Request::read(lba, buf).user_data(mark)).expect("room");
        }
        while let Some(done) = channel.wait_done() {
            done.result.expect("read");
            let pages = DmaPages::from_buf(done.buf.expect("its pages")).expect("scattered");
            meantime_testkit::rig::holds(&bytes_of(&pages), 512, lbas[done.user_data as usize], 1);
        }
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_pages() {
    let device = open("mem:1M?lba=512", &OpenOptions::default()).expect("a device");
    let other = open("mem:1M?lba=512", &OpenOptions::default()).expect("a device");
    let mut channel = device.channel(&ChannelOptions::default()).expect("a channel");
    let mut rng = Rng::new(1);
    let none = DmaPages::with_capacity(device.heap(), 1).expect("memory").into_buf();
    let refused = channel.submit(Request::read(0, none)).expect_err("nothing to be read");
    assert!(matches!(refused.error, SubmitError::PartialBlock { bytes: 0, .. }));
    let mut part = pages(device.heap(), 2, &mut rng);
    part.set_range(0, 4100);
    let refused = channel.submit(Request::read(0, part.into_buf())).expect_err("no whole blocks");
    assert!(matches!(refused.error, SubmitError::PartialBlock { bytes: 4100, .. }));
    let foreign = pages(other.heap(), 2, &mut rng).into_buf();
    let refused = channel.submit(Request::read(0, foreign)).expect_err("not its own");
    assert!(matches!(refused.error, SubmitError::ForeignBuffer));
    let beyond = pages(device.heap(), 2, &mut rng).into_buf();
    let refused = channel.submit(Request::read(2040, beyond)).expect_err("beyond the end");
    assert!(matches!(refused.error, SubmitError::OutOfRange { .. }));
    assert_eq!(
        DmaPages::from_buf(refused.request.buf.expect("given back")).expect("scattered").len(),
        2
    );
}

/// The queue is recreated, or the controller reset, and the command is sent again with the same
/// pages.
#[test]
fn what_is_sent_again_finds_its_pages() {
    let plans = [LOST, LOST.with(ppm(Fault::StuckAdmin, ALWAYS)), late(1_000_000_000)];
    for (mdts_bytes, plan) in
        [1 << 20, 8192].into_iter().flat_map(|mdts| plans.clone().map(|plan| (mdts, plan)))
    {
        let rig = Rig::new(SsdConfig { mdts_bytes, ..ssd("optane") });
        let before = rig.device.heap().allocated_bytes();
        let mut channel = rig.channel(4);
        put(&mut channel, 0..256, 1);
        let there = pages(rig.device.heap(), 17, &mut Rng::new(5));
        let ticket = rig.submit_with_faults(plan, &mut channel, Request::read(3, there.into_buf()));
        let done = channel.wait(ticket);
        done.result.expect("read at last");
        let there = DmaPages::from_buf(done.buf.expect("its pages")).expect("scattered");
        meantime_testkit::rig::holds(&bytes_of(&there), 512, 3, 1);
        drop(there);
        verify(&mut channel, 0..256, 1);
        nothing_leaks(rig, vec![channel], before);
    }
}

/// An I/O that fails gives its pages back; those of a device that may still write to them are never
/// used again.
#[test]
fn pages_of_what_failed_come_back_or_are_given_up() {
    let rig = Rig::once(ssd("optane"));
    let before = rig.device.heap().allocated_bytes();
    let mut channel = rig.channel(4);
    put(&mut channel, 0..64, 1);
    let there = pages(rig.device.heap(), 4, &mut Rng::new(5));
    let ticket = rig.submit_with_faults(
        meantime_testkit::rig::LOST,
        &mut channel,
        Request::read(0, there.into_buf()),
    );
    let done = channel.wait(ticket);
    assert_eq!(kind(&done), CommandError::TimedOut);
    assert_eq!(
        DmaPages::from_buf(done.buf.expect("its pages")).expect("scattered").drain().len(),
        4
    );
    nothing_leaks(rig, vec![channel], before);
}
