//! Submission queues in the controller's own memory.

use std::sync::atomic::{AtomicU64, Ordering};

use meantime_spec::regs::{self, Cap, Cmbloc, Cmbmsc, Cmbsz};
use meantime_spec::seam::ControllerMemory;
use meantime_spec::sgl::SglDescriptor;
use meantime_spec::sqe::Sqe;
use meantime_spec::status::StatusCode as S;
use meantime_ssd::{Medium, SsdConfig, SteppedSsd};
use meantime_testkit::host::*;

const CBA: u64 = 0x55_0000_0000;

fn with_memory(bytes: u32) -> (SteppedSsd, Host, ControllerMemory) {
    let (ssd, host) = stepped(SsdConfig { cmb_bytes: bytes, ..config(1 << 20, 512) });
    let memory = host.port.controller_memory().expect("it has some");
    assert_eq!(memory.len, bytes as usize);
    (ssd, host, memory)
}

fn put(memory: &ControllerMemory, offset: usize, sqe: &Sqe) {
    assert!(offset + 64 <= memory.len);
    for (i, word) in sqe.to_words().into_iter().enumerate() {
        let at = std::ptr::with_exposed_provenance_mut::<u64>(memory.host_addr + offset + i * 8);
        // SAFETY: an aligned word within memory that `memory` keeps mapped; host and controller
        // access it only as atomics.
        unsafe { AtomicU64::from_ptr(at) }.store(word, Ordering::Relaxed);
    }
}

#[test]
fn registers_appear_when_they_are_enabled() {
    let (_ssd, host, _memory) = with_memory(65536);
    assert!(Cap(host.port.read64(regs::CAP)).cmbs());
    assert_eq!([regs::CMBLOC, regs::CMBSZ, regs::CMBSTS].map(|r| host.port.read32(r)), [0; 3]);
    host.port.write32(regs::CMBMSC, 1);
    let size = Cmbsz(host.port.read32(regs::CMBSZ));
    assert!(size.sqs() && !size.cqs() && !size.lists() && !size.rds() && !size.wds());
    assert_eq!(size.bytes(), Some(65536));
    let at = Cmbloc(host.port.read32(regs::CMBLOC));
    assert_eq!((at.bir(), at.offset_bytes(size)), (2, Some(0)));
    // By halves, as 32-bit writes.
    host.port.write32(regs::CMBMSC + 4, 0x55);
    host.port.write32(regs::CMBMSC, 3);
    assert_eq!(host.port.read64(regs::CMBMSC), Cmbmsc::enabled(CBA).0);
    host.port.write64(regs::CMBMSC, Cmbmsc::enabled(u64::MAX).0);
    assert_eq!(host.port.read32(regs::CMBSTS), 1, "an address that wraps around");
    // A controller reset leaves it, a reset of the subsystem does not.
    host.port.write32(regs::CC, 0);
    assert_ne!(host.port.read64(regs::CMBMSC), 0);
    host.port.write32(regs::NSSR, regs::NSSR_RESET);
    assert_eq!((host.port.read64(regs::CMBMSC), host.port.read32(regs::CMBSZ)), (0, 0));
}

#[test]
fn a_queue_in_it_works() {
    let (ssd, mut host, memory) = with_memory(65536);
    let (cq, area) = (host.alloc(4096), host.alloc(4096));
    ok(host.admin(Sqe::create_io_cq(0, 1, 16, cq, None)));
    refused(host.admin(Sqe::create_io_sq(0, 1, 16, CBA + 4096, 1, 0)), S::DataTransferError);
    host.port.write64(regs::CMBMSC, Cmbmsc::enabled(CBA).0);
    refused(host.admin(Sqe::create_io_sq(0, 1, 1024, CBA + 4096, 1, 0)), S::DataTransferError);
    refused(
        host.admin(Sqe::create_io_cq(0, 2, 16, CBA, None)),
        S::InvalidUseOfControllerMemoryBuffer,
    );
    ok(host.admin(Sqe::create_io_sq(0, 1, 16, CBA + 4096, 1, 0)));
    host.queues.push(Queue {
        qid: 1,
        sq_iova: 0,
        cq_iova: cq,
        sq_entries: 16,
        cq_entries: 16,
        tail: 0,
        head: 0,
        phase: true,
    });
    host.write(area, &[0xab; 4096]);
    let cases = [
        (Sqe::write(0, 1, 0, 8, area, 0, false), None),
        (Sqe::read(0, 1, 0, 8, CBA, 0), Some(S::InvalidUseOfControllerMemoryBuffer)),
        (
            Sqe::read(0, 1, 0, 8, 0, 0).with_sgl(SglDescriptor::data_block(CBA, 4096)),
            Some(S::InvalidUseOfControllerMemoryBuffer),
        ),
    ];
    // Around the queue, so that its last entry is used.
    for (n, (mut sqe, expected)) in cases.into_iter().cycle().take(40).enumerate() {
        sqe.set_cid(n as u16);
        put(&memory, 4096 + n % 16 * 64, &sqe);
        let tail = (n as u32 + 1) % 16;
        host.bells.sq_tail(1).unwrap().store(tail, Ordering::Release);
        let cqe = host.wait(1);
        assert_eq!(cqe.cid.get(), n as u16);
        match expected {
            None => drop(ok(cqe)),
            Some(code) => refused(cqe, code),
        }
    }
    assert_eq!(ssd.counters().dma_errors, 2, "only the two queues that were refused");
    // Taken away while a queue is in it.
    host.port.write64(regs::CMBMSC, 0);
    assert!(host.csts().cfs());
    host.port.write32(regs::CC, 0);
    host.enable();
}

#[test]
fn without_it_there_is_nothing() {
    let (ssd, host) = stepped(config(1 << 20, 512));
    assert!(host.port.controller_memory().is_none());
    assert!(!Cap(host.port.read64(regs::CAP)).cmbs());
    host.port.write64(regs::CMBMSC, Cmbmsc::enabled(CBA).0);
    assert_eq!((host.port.read64(regs::CMBMSC), ssd.counters().bad_registers), (0, 1));
    let c = SsdConfig { cmb_bytes: 5000, ..config(1 << 20, 512) };
    let error = SteppedSsd::new(c, Medium::dram(1 << 20).unwrap(), 1).unwrap_err();
    assert!(error.to_string().contains("cmb_bytes"), "{error}");
}
