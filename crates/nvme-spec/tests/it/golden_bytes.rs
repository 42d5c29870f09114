//! Bytes typed by hand from the specification's tables, against what the constructors produce and
//! the readers read.

use meantime_nvme_spec::cqe::{Cqe, phase_of_high_word};
use meantime_nvme_spec::dsm::DsmRange;
use meantime_nvme_spec::features::{
    ApstEntry, Arbitration, AsyncEventConfig, InterruptCoalescing, InterruptVectorConfig,
    NumberOfQueues, TemperatureThreshold, Timestamp, fid,
};
use meantime_nvme_spec::identify::cns;
use meantime_nvme_spec::log::{AsyncEvent, AsyncEventCode, AsyncEventKind, lid};
use meantime_nvme_spec::regs::{self, Aqa, Cap, Cc, Csts, Vs};
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::{Status, StatusCode};
use zerocopy::{FromBytes, IntoBytes};

/// 64 bytes from a hexadecimal dump, and that the entry survives both of its other forms.
#[track_caller]
fn assert_sqe(sqe: Sqe, dump: &str) {
    let bytes: Vec<u8> = dump
        .split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).expect("two hex digits"))
        .collect();
    assert_eq!(bytes.len(), 64);
    assert_eq!(sqe.as_bytes(), bytes);
    assert_eq!(Sqe::read_from_bytes(&bytes).expect("64 bytes"), sqe);
    assert_eq!(Sqe::from_words(sqe.to_words()), sqe);
    for (word, bytes) in sqe.to_words().iter().zip(bytes.chunks(8)) {
        assert_eq!(word.to_le_bytes(), bytes);
    }
}

#[test]
fn create_io_cq() {
    // CID 1234h; PRP1 12_3456_7000h; QSIZE 3FFh (1024 entries), QID 2; IV 5, IEN, PC.
    assert_sqe(
        Sqe::create_io_cq(0x1234, 2, 1024, 0x12_3456_7000, Some(5)),
        "05 00 34 12  00 00 00 00  00 00 00 00  00 00 00 00
         00 00 00 00  00 00 00 00  00 70 56 34  12 00 00 00
         00 00 00 00  00 00 00 00  02 00 ff 03  03 00 05 00
         00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00",
    );
    let polled = Sqe::create_io_cq(0, 1, 65536, 0x1000, None);
    assert_eq!((polled.cdw10.get(), polled.cdw11.get()), (0xffff_0001, 0x1));
    assert_eq!((polled.queue_entries(), polled.pc(), polled.ien()), (65536, true, false));
}

#[test]
fn create_io_sq() {
    // CID 7; QSIZE 3Fh (64 entries), QID 3; CQID 2, QPRIO 1 (high), PC.
    let sqe = Sqe::create_io_sq(7, 3, 64, 0xabc_d000, 2, 1);
    assert_sqe(
        sqe,
        "01 00 07 00  00 00 00 00  00 00 00 00  00 00 00 00
         00 00 00 00  00 00 00 00  00 d0 bc 0a  00 00 00 00
         00 00 00 00  00 00 00 00  03 00 3f 00  03 00 02 00
         00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00",
    );
    assert_eq!((sqe.qid(), sqe.queue_entries(), sqe.cqid(), sqe.qprio()), (3, 64, 2, 1));
}

#[test]
fn read() {
    // 8 blocks at LBA 1_2345_6789h of namespace 1: NLB 7.
    let sqe = Sqe::read(0xbeef, 1, 0x1_2345_6789, 8, 0x8000_1000, 0x8000_2000);
    assert_sqe(
        sqe,
        "02 00 ef be  01 00 00 00  00 00 00 00  00 00 00 00
         00 00 00 00  00 00 00 00  00 10 00 80  00 00 00 00
         00 20 00 80  00 00 00 00  89 67 45 23  01 00 00 00
         07 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00",
    );
    assert_eq!((sqe.opcode(), sqe.cid(), sqe.nsid.get()), (0x02, 0xbeef, 1));
    assert_eq!((sqe.slba(), sqe.nlb(), sqe.fua()), (0x1_2345_6789, 8, false));
    assert_eq!((sqe.fuse(), sqe.psdt()), (0, 0));
    assert!(Sqe::transfer(0x02, 0, 1, 0, 0, 0, 0, true).fua());
}

#[test]
fn write_with_fua() {
    // 65536 blocks: NLB FFFFh; FUA is bit 30 of CDW12.
    let sqe = Sqe::write(1, 2, 3, 65536, 0x1000, 0x2008, true);
    assert_sqe(
        sqe,
        "01 00 01 00  02 00 00 00  00 00 00 00  00 00 00 00
         00 00 00 00  00 00 00 00  00 10 00 00  00 00 00 00
         08 20 00 00  00 00 00 00  03 00 00 00  00 00 00 00
         ff ff 00 40  00 00 00 00  00 00 00 00  00 00 00 00",
    );
    assert_eq!((sqe.nlb(), sqe.fua()), (65536, true));
    assert!(!Sqe::write(1, 2, 3, 1, 0, 0, false).fua());
}

#[test]
fn dataset_management() {
    // 256 ranges: NR FFh; AD is bit 2 of CDW11.
    assert_sqe(
        Sqe::dsm_deallocate(9, 1, 256, 0x5000, 0),
        "09 00 09 00  01 00 00 00  00 00 00 00  00 00 00 00
         00 00 00 00  00 00 00 00  00 50 00 00  00 00 00 00
         00 00 00 00  00 00 00 00  ff 00 00 00  04 00 00 00
         00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00",
    );
    let range = DsmRange::new(0x0102_0304_0506_0708, 0x1122_3344);
    assert_eq!(
        range.as_bytes(),
        [0, 0, 0, 0, 0x44, 0x33, 0x22, 0x11, 8, 7, 6, 5, 4, 3, 2, 1],
        "attributes, length, starting LBA"
    );
}

#[test]
fn get_log_page() {
    // 1_0001h dwords: NUMDL 0, NUMDU 1; offset 2_0000_0004h; RAE bit 15; LSP 3.
    let sqe =
        Sqe::get_log_page(4, 0xffff_ffff, lid::SMART, 3, true, 0x1_0001, 0x2_0000_0004, 0x1000, 0);
    assert_sqe(
        sqe,
        "02 00 04 00  ff ff ff ff  00 00 00 00  00 00 00 00
         00 00 00 00  00 00 00 00  00 10 00 00  00 00 00 00
         00 00 00 00  00 00 00 00  02 83 00 00  01 00 00 00
         04 00 00 00  02 00 00 00  00 00 00 00  00 00 00 00",
    );
    assert_eq!((sqe.lid(), sqe.lsp(), sqe.rae()), (2, 3, true));
    assert_eq!((sqe.numd_dwords(), sqe.log_page_offset()), (0x1_0001, 0x2_0000_0004));
    // A SMART page of 512 bytes is 128 dwords.
    assert_eq!(Sqe::get_log_page(0, 0, 2, 0, false, 128, 0, 0, 0).cdw10.get(), 0x007f_0002);
}

#[test]
fn other_commands() {
    let words = |sqe: Sqe| {
        (sqe.opcode(), sqe.nsid.get(), sqe.cdw10.get(), sqe.cdw11.get(), sqe.cdw12.get())
    };
    assert_eq!(words(Sqe::flush(1, 1)), (0x00, 1, 0, 0, 0));
    assert_eq!(words(Sqe::write_uncorrectable(1, 1, 5, 2)), (0x04, 1, 5, 0, 1));
    assert_eq!(words(Sqe::compare(1, 1, 5, 2, 0x1000, 0)), (0x05, 1, 5, 0, 1));
    assert_eq!(words(Sqe::write_zeroes(1, 1, 5, 2, true, false)), (0x08, 1, 5, 0, 0x0200_0001));
    assert_eq!(words(Sqe::write_zeroes(1, 1, 5, 2, false, true)), (0x08, 1, 5, 0, 0x4000_0001));
    assert_eq!(words(Sqe::verify(1, 1, 5, 2)), (0x0c, 1, 5, 0, 1));
    assert_eq!(words(Sqe::delete_io_sq(1, 0x1ff)), (0x00, 0, 0x1ff, 0, 0));
    assert_eq!(words(Sqe::delete_io_cq(1, 0x1ff)), (0x04, 0, 0x1ff, 0, 0));
    assert_eq!(words(Sqe::identify(1, 0, cns::CONTROLLER, 0, 0x1000, 0)), (0x06, 0, 1, 0, 0));
    assert_eq!(words(Sqe::identify(1, 9, 0x13, 0xabcd, 0, 0)), (0x06, 9, 0xabcd_0013, 0, 0));
    assert_eq!(words(Sqe::abort(1, 2, 0xabcd)), (0x08, 0, 0xabcd_0002, 0, 0));
    assert_eq!(words(Sqe::set_features(1, 0, 7, true, 5)), (0x09, 0, 0x8000_0007, 5, 0));
    assert_eq!(words(Sqe::get_features(1, 0, 7, 3, 0)), (0x0a, 0, 0x307, 0, 0));
    assert_eq!(words(Sqe::async_event_request(1)), (0x0c, 0, 0, 0, 0));
    assert_eq!(words(Sqe::keep_alive(1)), (0x18, 0, 0, 0, 0));
    let shadow = Sqe::doorbell_buffer_config(1, 0x1000, 0x2000);
    assert_eq!((shadow.opcode(), shadow.prp1.get(), shadow.prp2.get()), (0x7c, 0x1000, 0x2000));
}

#[test]
fn set_cid_leaves_the_rest() {
    let mut sqe = Sqe::read(1, 1, 0, 1, 0, 0);
    sqe.cdw0.set(sqe.cdw0.get() | 0x4200);
    sqe.set_cid(0xfedc);
    assert_eq!(sqe.cdw0.get(), 0xfedc_4202);
    assert_eq!((sqe.cid(), sqe.fuse(), sqe.psdt(), sqe.opcode()), (0xfedc, 2, 1, 2));
}

#[test]
fn completion() {
    // DW0 11223344h; SQHD 5, SQID 1, CID BEEFh; LBA Out of Range (sct 0, sc 80h), DNR, phase 1.
    let bytes =
        [0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0, 0x05, 0x00, 0x01, 0x00, 0xef, 0xbe, 0x01, 0x81];
    let status = Status::from(StatusCode::LbaOutOfRange).with_dnr();
    let cqe = Cqe::new(0x1122_3344, 5, 1, 0xbeef, status, true);
    assert_eq!(cqe.as_bytes(), bytes);
    assert_eq!(cqe.to_words(), [0x1122_3344, 0x8101_beef_0001_0005]);
    assert_eq!(Cqe::from_words(cqe.to_words()), cqe);
    assert_eq!(Cqe::read_from_bytes(&bytes).expect("16 bytes"), cqe);
    assert_eq!((cqe.phase(), cqe.status()), (true, status));
    assert_eq!(cqe.status().to_string(), "LBA Out of Range (sct 0h sc 80h, do not retry)");
    assert!(phase_of_high_word(cqe.to_words()[1]));
    assert!(!phase_of_high_word(Cqe::new(!0, !0, !0, !0, Status(0x7fff), false).to_words()[1]));
}

#[test]
fn capabilities() {
    // 2048 entries, CQR, weighted round robin, TO 15 (7.5 s), CSS bits 0, 6 and 7, MPSMAX 4 (64
    // KiB).
    let cap = Cap(0)
        .with_mqes(2047)
        .with_cqr(true)
        .with_ams(1)
        .with_to(15)
        .with_css(regs::CAP_CSS_NVM | 1 << 6 | 1 << 7)
        .with_mpsmax(4);
    assert_eq!(cap.0, 0x0040_1820_0f03_07ff);
    assert_eq!((cap.mqes(), cap.max_queue_entries()), (2047, 2048));
    assert_eq!((cap.cqr(), cap.ams(), cap.css(), cap.dstrd()), (true, 1, 0xc1, 0));
    assert_eq!((cap.to(), cap.timeout_ms()), (15, 7500));
    assert_eq!((cap.min_page_size(), cap.max_page_size()), (4096, 65536));
    assert_eq!((cap.doorbell_stride(), cap.with_dstrd(4).doorbell_stride()), (4, 64));

    // Each field, alone, at the bits of the table.
    assert_eq!(Cap(0).with_mqes(0xffff).0, 0xffff);
    assert_eq!(Cap(0).with_cqr(true).0, 1 << 16);
    assert_eq!(Cap(0).with_ams(3).0, 3 << 17);
    assert_eq!(Cap(0).with_to(0xff).0, 0xff << 24);
    assert_eq!(Cap(0).with_dstrd(0xf).0, 0xf << 32);
    assert_eq!(Cap(0).with_nssrs(true).0, 1 << 36);
    assert_eq!(Cap(0).with_css(0xff).0, 0xff << 37);
    assert_eq!(Cap(0).with_bps(true).0, 1 << 45);
    assert_eq!(Cap(0).with_cps(3).0, 3 << 46);
    assert_eq!(Cap(0).with_mpsmin(0xf).0, 0xf << 48);
    assert_eq!(Cap(0).with_mpsmax(0xf).0, 0xf << 52);
    assert_eq!(Cap(0).with_pmrs(true).0, 1 << 56);
    assert_eq!(Cap(0).with_cmbs(true).0, 1 << 57);
    assert_eq!(Cap(0).with_nsss(true).0, 1 << 58);
    assert_eq!(Cap(0).with_crms(3).0, 3 << 59);
    assert_eq!(Cap(!0).with_to(0).with_cqr(false).0, !(0xff << 24 | 1 << 16));
    assert_eq!(Cap(!0).dstrd(), 15);
}

#[test]
fn configuration_and_status() {
    // What enables a controller for the NVM command set: EN, IOSQES 6, IOCQES 4.
    let cc = Cc(0).with_en(true).with_iosqes(6).with_iocqes(4);
    assert_eq!(cc.0, 0x0046_0001);
    assert_eq!((cc.en(), cc.iosqes(), cc.iocqes(), cc.page_size()), (true, 6, 4, 4096));
    assert_eq!(cc.with_shn(regs::shn::NORMAL).0, 0x0046_4001);
    assert_eq!(Cc(0).with_css(7).0, 0x70);
    assert_eq!(Cc(0).with_mps(0xf).0, 0x780);
    assert_eq!(Cc(0).with_ams(7).0, 0x3800);
    assert_eq!(Cc(0).with_crime(true).0, 0x0100_0000);

    assert_eq!(Csts(0).with_rdy(true).0, 0x1);
    assert_eq!(Csts(0).with_cfs(true).0, 0x2);
    assert_eq!(Csts(0).with_shst(regs::shst::COMPLETE).0, 0x8);
    assert_eq!(Csts(0).with_nssro(true).0, 0x10);
    assert_eq!(Csts(0).with_pp(true).0, 0x20);
    assert!(Csts(0xffff_ffff).is_gone());

    assert_eq!(Aqa::new(32, 4096).0, 0x0fff_001f);
    assert_eq!((Aqa(0x0fff_001f).asqs(), Aqa(0x0fff_001f).acqs()), (32, 4096));
    assert_eq!(Vs::new(1, 4, 0), Vs(0x0001_0400));
    assert_eq!(Vs::new(1, 4, 0).to_string(), "1.4");
    assert_eq!(Vs(0x0001_0201).to_string(), "1.2.1");
    assert!(Vs::new(2, 0, 0) > Vs::new(1, 4, 0));
}

#[test]
fn register_offsets() {
    assert_eq!([regs::CAP, regs::VS, regs::INTMS, regs::INTMC], [0x00, 0x08, 0x0c, 0x10]);
    assert_eq!([regs::CC, regs::CSTS, regs::NSSR, regs::AQA], [0x14, 0x1c, 0x20, 0x24]);
    assert_eq!([regs::ASQ, regs::ACQ, regs::CMBLOC], [0x28, 0x30, 0x38]);
    assert_eq!([regs::CMBMSC, regs::CMBSTS], [0x50, 0x58]);
    assert_eq!([regs::PMRCAP, regs::DOORBELLS], [0xe00, 0x1000]);
    assert_eq!(regs::NSSR_RESET.to_be_bytes(), *b"NVMe");
}

#[test]
fn doorbells() {
    assert_eq!((regs::sq_tail_doorbell(0, 0), regs::cq_head_doorbell(0, 0)), (0x1000, 0x1004));
    assert_eq!((regs::sq_tail_doorbell(1, 0), regs::cq_head_doorbell(1, 0)), (0x1008, 0x100c));
    assert_eq!((regs::sq_tail_doorbell(3, 4), regs::cq_head_doorbell(3, 4)), (0x1180, 0x11c0));
    assert_eq!(regs::cq_head_doorbell(0xffff, 4), 0x80_0fc0);
    // 1000h + 1FFFFh × 128 KiB is beyond 32 bits, and so beyond any BAR a caller checks against.
    assert_eq!(regs::cq_head_doorbell(0xffff, 15), u32::MAX);
}

#[test]
fn features() {
    assert_eq!(fid::NUMBER_OF_QUEUES, 0x07);
    let queues = NumberOfQueues::new(4, 8);
    assert_eq!(queues.0, 0x0007_0003);
    assert_eq!((queues.sq(), queues.cq()), (4, 8));
    assert_eq!(Arbitration(0).with_ab(7).with_lpw(1).with_mpw(2).with_hpw(3).0, 0x0302_0107);
    assert_eq!(InterruptCoalescing(0).with_thr(9).with_time(2).0, 0x0209);
    assert_eq!(InterruptVectorConfig(0).with_iv(3).with_cd(true).0, 0x0001_0003);
    assert_eq!(TemperatureThreshold(0).with_tmpth(343).with_tmpsel(1).with_thsel(1).0, 0x0011_0157);
    assert_eq!(AsyncEventConfig(0).with_smart(0x1f).with_namespace_attribute(true).0, 0x11f);
    let apst = ApstEntry::new(3, 100);
    assert_eq!(apst.as_bytes(), [0x18, 0x64, 0, 0, 0, 0, 0, 0]);
    assert_eq!((apst.itps(), apst.itpt_ms()), (3, 100));
    let timestamp = Timestamp::new(0x0102_0304_0506, 2);
    assert_eq!(timestamp.as_bytes(), [6, 5, 4, 3, 2, 1, 2, 0]);
    assert_eq!(timestamp.ms(), 0x0102_0304_0506);
}

#[test]
fn async_events() {
    // A notice (2), Namespace Attribute Changed (0), log page 04h.
    let event = AsyncEvent::try_from(0x0004_0002).expect("a notice");
    assert_eq!(event, AsyncEvent { kind: AsyncEventKind::Notice, info: 0, log_page: 4 });
    assert_eq!(event.code(), Ok(AsyncEventCode::NamespaceAttributeChanged));
    // An error (0), Invalid Doorbell Write Value (1), log page 01h.
    let event = AsyncEvent::try_from(0x0001_0100).expect("an error");
    assert_eq!(event.code(), Ok(AsyncEventCode::InvalidDoorbellWriteValue));
    assert!(AsyncEvent::try_from(4).is_err());
}
