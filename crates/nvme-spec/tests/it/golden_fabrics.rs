//! NVMe over Fabrics and NVMe/TCP: bytes typed by hand from the specifications' tables.

use std::mem::offset_of;

use meantime_nvme_spec::cqe::Cqe;
use meantime_nvme_spec::fabrics::{
    CNTLID_DYNAMIC, ConnectData, DISCOVERY_NQN, DiscoveryEntry, DiscoveryHeader, FabricsAttributes,
    FabricsStatus, FabricsType, NQN_MAX_BYTES, SQHD_NONE, SubsystemType, adrfam, cattr, is_nqn,
    nqn, set_zero_ended, trtype,
};
use meantime_nvme_spec::identify::IdentifyController;
use meantime_nvme_spec::opcode::admin;
use meantime_nvme_spec::regs;
use meantime_nvme_spec::sgl::{SglDescriptor, SglKind, psdt};
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::Status;
use meantime_nvme_spec::tcp::{
    CapsuleCmd, CapsuleResp, CommonHeader, DataHeader, FatalError, InitializeConnection,
    MAXH2CDATA_MIN, PFV_1_0, PORT, PduType, R2t, TermReq, dgst, flags, header_bytes,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The bytes of a hexadecimal dump.
fn bytes_of(dump: &str) -> Vec<u8> {
    let byte = |word| u8::from_str_radix(word, 16).expect("two hex digits");
    dump.split_whitespace().map(byte).collect()
}

/// That `made` is what `dump` begins with, the rest of it zeroes; and that it is read from there.
#[track_caller]
fn assert_bytes<T>(made: &T, dump: &str)
where
    T: FromBytes + IntoBytes + Immutable + KnownLayout + PartialEq + std::fmt::Debug,
{
    let mut bytes = bytes_of(dump);
    assert!(bytes.len() <= size_of::<T>());
    bytes.resize(size_of::<T>(), 0);
    assert_eq!(made.as_bytes(), bytes);
    assert_eq!(&T::read_from_bytes(&bytes).expect("as many bytes"), made);
}

#[test]
fn connect_in_its_capsule() {
    // An I/O queue: QID 2, 128 entries (SQSIZE 7Fh), SQ flow control disabled, priority 1. RECFMT
    // 0. SGL1: a data block at offset 0 of the capsule, 1,024 bytes.
    let sqe = Sqe::connect(0x1234, 2, 128, cattr::DISABLE_SQ_FLOW | 1, 0);
    let capsule = CapsuleCmd::new(&sqe, 1024);
    assert_bytes(
        &capsule,
        "04 00 48 48  48 04 00 00
         7f 40 34 12  01 00 00 00  00 00 00 00  00 00 00 00
         00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
         00 04 00 00  00 00 00 01  00 00 02 00  7f 00 05 00
         00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00",
    );
    assert_eq!(capsule.sqe(), sqe);
    assert_eq!((sqe.opcode(), sqe.fctype()), (admin::FABRICS, FabricsType::Connect as u8));
    assert_eq!((sqe.recfmt(), sqe.connect_qid(), sqe.connect_sqsize()), (0, 2, 127));
    assert_eq!((sqe.cattr(), sqe.connect_kato_ms()), (0x05, 0));
    assert_eq!((sqe.cattr() & cattr::PRIORITY_MASK, sqe.psdt()), (1, psdt::SGL));
    // The admin queue: 32 entries, KATO 120,000 ms.
    let sqe = Sqe::connect(0, 0, 32, 0, 120_000);
    assert_bytes(
        &sqe,
        "7f 40 00 00  01 00 00 00  00 00 00 00  00 00 00 00
         00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
         00 04 00 00  00 00 00 01  00 00 00 00  1f 00 00 00
         c0 d4 01 00",
    );
    assert_eq!((sqe.connect_sqsize(), sqe.connect_kato_ms()), (31, 120_000));
    // QID and SQSIZE have 16 bits.
    let sqe = Sqe::connect(0, 0xfffe, 0xffff, 0xff, u32::MAX);
    assert_eq!((sqe.cdw10.get(), sqe.cdw11.get(), sqe.cdw12.get()), (!0x1_ffff, 0xff_fffe, !0));
    assert_eq!((sqe.connect_qid(), sqe.connect_sqsize(), sqe.cattr()), (0xfffe, 0xfffe, 0xff));
}

#[test]
fn connect_data() {
    assert_eq!(size_of::<ConnectData>(), 1024);
    let mut data = ConnectData::default();
    data.hostid = std::array::from_fn(|at| at as u8 + 1);
    data.cntlid.set(CNTLID_DYNAMIC);
    set_zero_ended(&mut data.subnqn, "nqn.s");
    set_zero_ended(&mut data.hostnqn, "nqn.host");
    let mut bytes = [0; 1024];
    bytes[..16].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
    bytes[16..18].copy_from_slice(&[0xff, 0xff]);
    bytes[256..261].copy_from_slice(b"nqn.s");
    bytes[512..520].copy_from_slice(b"nqn.host");
    assert_eq!(data.as_bytes(), bytes);
    assert_eq!((nqn(&data.subnqn), nqn(&data.hostnqn)), (Some("nqn.s"), Some("nqn.host")));
}

#[test]
fn names() {
    let longest = "n".repeat(NQN_MAX_BYTES);
    let mut field = [1; 256];
    set_zero_ended(&mut field, &longest);
    assert_eq!((field[222], field[223], field[255]), (b'n', 0, 0));
    assert_eq!(nqn(&field), Some(&longest[..]));
    set_zero_ended(&mut field, &"n".repeat(224));
    assert_eq!(nqn(&field), None);
    // Without an end, and cut to have one.
    assert_eq!(nqn(&[b'n'; 256]), None);
    set_zero_ended(&mut field, &"n".repeat(300));
    assert_eq!((field[254], field[255]), (b'n', 0));
    assert_eq!(nqn(&[0; 256]), None);
    for wrong in ["", "nqn one", "nqn.\n", "nqn.\u{e9}"] {
        assert!(!is_nqn(wrong), "{wrong:?}");
    }
    assert_eq!(DISCOVERY_NQN.len(), 36);
    assert!(is_nqn(DISCOVERY_NQN));
}

#[test]
fn properties() {
    // ATTRIB 1: eight bytes; OFST 0: CAP. SGL1 has no data.
    let sqe = Sqe::property_get(0x0203, regs::CAP, 8);
    assert_bytes(
        &sqe,
        "7f 40 03 02  04 00 00 00  00 00 00 00  00 00 00 00
         00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
         00 00 00 00  00 00 00 5a  01 00 00 00  00 00 00 00",
    );
    assert_eq!((sqe.fctype(), sqe.property_is_long(), sqe.property_offset()), (4, true, 0));
    // Four bytes: CSTS, 1Ch.
    let sqe = Sqe::property_get(1, regs::CSTS, 4);
    assert_bytes(
        &sqe,
        "7f 40 01 00  04 00 00 00  00 00 00 00  00 00 00 00
         00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
         00 00 00 00  00 00 00 5a  00 00 00 00  1c 00 00 00",
    );
    assert_eq!((sqe.property_is_long(), sqe.property_offset()), (false, 0x1c));
    // CC, 14h: EN, IOSQES 6, IOCQES 4. FCTYPE of Property Set is 0.
    let sqe = Sqe::property_set(2, regs::CC, 4, 0x0046_0001);
    assert_bytes(
        &sqe,
        "7f 40 02 00  00 00 00 00  00 00 00 00  00 00 00 00
         00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
         00 00 00 00  00 00 00 5a  00 00 00 00  14 00 00 00
         01 00 46 00  00 00 00 00  00 00 00 00  00 00 00 00",
    );
    assert_eq!(sqe.fctype(), FabricsType::PropertySet as u8);
    // The value has bytes 48 to 55.
    let sqe = Sqe::property_set(2, 0x28, 8, 0x0102_0304_0506_0708);
    assert_eq!(
        sqe.as_bytes()[40..],
        bytes_of(
            "01 00 00 00  28 00 00 00
         08 07 06 05  04 03 02 01  00 00 00 00  00 00 00 00"
        )
    );
}

#[test]
fn where_data_is() {
    assert_bytes(
        &SglDescriptor::in_capsule(4096),
        "00 00 00 00  00 00 00 00  00 10 00 00  00 00 00 01",
    );
    assert_bytes(
        &SglDescriptor::transport(0x0002_0000),
        "00 00 00 00  00 00 00 00  00 00 02 00  00 00 00 5a",
    );
    assert_eq!(SglDescriptor::in_capsule(1).kind(), Ok(SglKind::DataBlock));
    assert_eq!(SglDescriptor::transport(1).kind(), Ok(SglKind::TransportDataBlock));
    // A read of 8 blocks: length 1000h; CDW10 and 11 the LBA, NLB 7.
    let read = Sqe::read(9, 1, 0x1_0000_0002, 8, 0, 0).with_sgl(SglDescriptor::transport(4096));
    assert_bytes(
        &CapsuleCmd::new(&read, 0),
        "04 00 48 00  48 00 00 00
         02 40 09 00  01 00 00 00  00 00 00 00  00 00 00 00
         00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
         00 10 00 00  00 00 00 5a  02 00 00 00  01 00 00 00
         07 00 00 00",
    );
}

#[test]
fn initializing_a_connection() {
    // ICReq: PFV 0, HPDA 0, both digests, MAXR2T 0 (one).
    let mut request = InitializeConnection::default();
    request.common = CommonHeader::new(PduType::IcReq, 128, 0);
    request.dgst = dgst::HEADER | dgst::DATA;
    assert_bytes(&request, "00 00 80 00  80 00 00 00  00 00 00 03  00 00 00 00");
    // HPDA 31: data at multiples of 128 bytes; MAXR2T Fh: sixteen.
    (request.pda, request.dgst) = (31, dgst::DATA);
    request.limit.set(0xf);
    assert_bytes(&request, "00 00 80 00  80 00 00 00  00 00 1f 02  0f 00 00 00");
    // ICResp: header digests, MAXH2CDATA 20000h.
    let mut response = InitializeConnection::default();
    response.common = CommonHeader::new(PduType::IcResp, 128, 0);
    (response.pfv, response.dgst) = (PFV_1_0.into(), dgst::HEADER);
    response.limit.set(0x2_0000);
    assert_bytes(&response, "01 00 80 00  80 00 00 00  00 00 00 01  00 00 02 00");
    assert_eq!((PORT, MAXH2CDATA_MIN), (4420, 4096));
}

#[test]
fn responses() {
    // Of Connect: DW0 has the CNTLID. SQHD FFFFh without flow control.
    let cqe = Cqe::new(0x0001_0007, SQHD_NONE, 0, 0x1234, Status::from_bits(0), false);
    let response = CapsuleResp::new(&cqe);
    assert_bytes(
        &response,
        "05 00 18 00  18 00 00 00
         07 00 01 00  00 00 00 00  ff ff 00 00  34 12 00 00",
    );
    assert_eq!(response.cqe(), cqe);
    // Connect Invalid Parameters, DNR: status code type 1, code 82h, above the phase's bit.
    let status = Status::from_bits(FabricsStatus::ConnectInvalidParameters as u16).with_dnr();
    let cqe = Cqe::new(0x0001_0010, 0, 0, 3, status, false);
    assert_eq!(
        CapsuleResp::new(&cqe).cqe,
        bytes_of("10 00 01 00  00 00 00 00  00 00 00 00  03 00 04 83")[..]
    );
}

#[test]
fn statuses_and_types() {
    for (code, number) in [
        (FabricsStatus::ConnectIncompatibleFormat, 0x80),
        (FabricsStatus::ConnectControllerBusy, 0x81),
        (FabricsStatus::ConnectInvalidParameters, 0x82),
        (FabricsStatus::ConnectRestartDiscovery, 0x83),
        (FabricsStatus::ConnectInvalidHost, 0x84),
        (FabricsStatus::InvalidQueueType, 0x85),
        (FabricsStatus::DiscoverRestart, 0x90),
        (FabricsStatus::AuthenticationRequired, 0x91),
    ] {
        assert_eq!(code as u16, 0x100 | number, "command specific, type 1");
    }
    let types = [0x00, 0x01, 0x04, 0x05, 0x06, 0x08];
    assert!((0..=0xff).all(|raw| FabricsType::try_from(raw).is_ok() == types.contains(&raw)));
    assert_eq!(FabricsType::AuthenticationSend as u8, 0x05);
    assert_eq!(FabricsType::AuthenticationReceive as u8, 0x06);
    assert_eq!(FabricsType::Disconnect as u8, 0x08);
}

#[test]
fn moving_data() {
    // C2HData: the last of the command, which succeeded; bytes 1000h to 1FFFh of CID 1234h's.
    let mut data = DataHeader::default();
    data.common = CommonHeader::new(PduType::C2hData, 24, 4096);
    data.common.flags |= flags::LAST | flags::SUCCESS;
    data.cccid.set(0x1234);
    data.datao.set(0x1000);
    data.datal.set(0x1000);
    assert_bytes(
        &data,
        "07 0c 18 18  18 10 00 00  34 12 00 00  00 10 00 00  00 10 00 00  00 00 00 00",
    );
    assert!(data.common.has(flags::LAST) && data.common.has(flags::SUCCESS));
    assert!(!data.common.has(flags::HDGST) && !data.common.has(flags::DDGST));
    // H2CData: it has the R2T's TTAG.
    let mut data = DataHeader::default();
    data.common = CommonHeader::new(PduType::H2cData, 24, 512);
    data.common.flags |= flags::LAST;
    (data.cccid, data.ttag) = (0xbeef.into(), 0x0102.into());
    (data.datao, data.datal) = (0x0003_0000.into(), 0x200.into());
    assert_bytes(
        &data,
        "06 04 18 18  18 02 00 00  ef be 02 01  00 00 03 00  00 02 00 00  00 00 00 00",
    );
    // R2T.
    let mut r2t = R2t::default();
    r2t.common = CommonHeader::new(PduType::R2t, 24, 0);
    (r2t.cccid, r2t.ttag) = (0xbeef.into(), 0x0102.into());
    (r2t.r2to, r2t.r2tl) = (0x0003_0000.into(), 0x0002_0000.into());
    assert_bytes(
        &r2t,
        "09 00 18 00  18 00 00 00  ef be 02 01  00 00 03 00  00 00 02 00  00 00 00 00",
    );
}

#[test]
fn requests_to_terminate() {
    // The wrong field is at byte 2 of a header of 24 bytes, which follows. PDO and flags are
    // reserved.
    let mut request = TermReq::default();
    request.common = CommonHeader::new(PduType::HostTermReq, 24, 24);
    request.fes.set(FatalError::InvalidHeader as u16);
    request.fei = [2, 0, 0, 0];
    assert_bytes(
        &request,
        "02 00 18 00  30 00 00 00  01 00 02 00  00 00 00 00  00 00 00 00  00 00 00 00",
    );
    let mut request = TermReq::default();
    request.common = CommonHeader::new(PduType::TargetTermReq, 24, 128);
    request.fes.set(FatalError::HeaderDigest as u16);
    request.fei = [0x11, 0x22, 0x33, 0x44];
    assert_bytes(
        &request,
        "03 00 18 00  98 00 00 00  03 00 11 22  33 44 00 00  00 00 00 00  00 00 00 00",
    );
    let codes = [
        (FatalError::InvalidHeader, 1),
        (FatalError::Sequence, 2),
        (FatalError::HeaderDigest, 3),
        (FatalError::DataRange, 4),
        (FatalError::TransferLimit, 5),
        (FatalError::Unsupported, 6),
    ];
    assert!(codes.iter().all(|(code, number)| *code as u16 == *number));
    assert!(FatalError::try_from(0).is_err() && FatalError::try_from(7).is_err());
}

#[test]
fn digests_move_the_data() {
    let both = dgst::HEADER | dgst::DATA;
    let bytes = |kind, hlen, data, dgst| {
        let header = CommonHeader::new(kind, hlen, data).with_digests(dgst);
        header.as_bytes().to_vec()
    };
    // A capsule with 1,000h bytes: type, flags, HLEN, PDO, PLEN.
    let capsule = |dgst| bytes(PduType::CapsuleCmd, 72, 0x1000, dgst);
    assert_eq!(capsule(0), bytes_of("04 00 48 48  48 10 00 00"));
    assert_eq!(capsule(dgst::HEADER), bytes_of("04 01 48 4c  4c 10 00 00"));
    assert_eq!(capsule(dgst::DATA), bytes_of("04 02 48 48  4c 10 00 00"));
    assert_eq!(capsule(both), bytes_of("04 03 48 4c  50 10 00 00"));
    // Without data there is no data digest, and no PDO.
    for (kind, hlen, with) in [
        (PduType::CapsuleCmd, 72, "04 01 48 00  4c 00 00 00"),
        (PduType::CapsuleResp, 24, "05 01 18 00  1c 00 00 00"),
        (PduType::R2t, 24, "09 01 18 00  1c 00 00 00"),
    ] {
        assert_eq!(bytes(kind, hlen, 0, both), bytes_of(with));
        assert_eq!(bytes(kind, hlen, 0, dgst::DATA)[1], 0);
    }
    assert_eq!(bytes(PduType::C2hData, 24, 512, both), bytes_of("07 03 18 1c  20 02 00 00"));
    assert_eq!(bytes(PduType::H2cData, 24, 512, both), bytes_of("06 03 18 1c  20 02 00 00"));
    // These never have any.
    for kind in [PduType::IcReq, PduType::IcResp] {
        assert_eq!(bytes(kind, 128, 0, both)[1..], bytes_of("00 80 00  80 00 00 00"));
    }
    for kind in [PduType::HostTermReq, PduType::TargetTermReq] {
        assert_eq!(bytes(kind, 24, 8, both)[1..], bytes_of("00 18 00  20 00 00 00"));
    }
}

#[test]
fn types_and_lengths_of_headers() {
    for (kind, number, bytes) in [
        (PduType::IcReq, 0x00, 128),
        (PduType::IcResp, 0x01, 128),
        (PduType::HostTermReq, 0x02, 24),
        (PduType::TargetTermReq, 0x03, 24),
        (PduType::CapsuleCmd, 0x04, 72),
        (PduType::CapsuleResp, 0x05, 24),
        (PduType::H2cData, 0x06, 24),
        (PduType::C2hData, 0x07, 24),
        (PduType::R2t, 0x09, 24),
    ] {
        assert_eq!((kind as u8, header_bytes(kind)), (number, bytes));
        assert_eq!(PduType::try_from(number), Ok(kind));
    }
    assert!(PduType::try_from(0x08).is_err() && PduType::try_from(0x0a).is_err());
    assert_eq!([flags::HDGST, flags::DDGST, flags::LAST, flags::SUCCESS], [1, 2, 4, 8]);
    let sizes = [
        size_of::<CommonHeader>(),
        size_of::<InitializeConnection>(),
        size_of::<TermReq>(),
        size_of::<CapsuleCmd>(),
        size_of::<CapsuleResp>(),
        size_of::<DataHeader>(),
        size_of::<R2t>(),
    ];
    assert_eq!(sizes, [8, 128, 24, 72, 24, 24, 24]);
    assert_eq!([offset_of!(CapsuleCmd, sqe), offset_of!(CapsuleResp, cqe)], [8, 8]);
    assert_eq!([offset_of!(DataHeader, datao), offset_of!(DataHeader, datal)], [12, 16]);
    assert_eq!([offset_of!(R2t, r2to), offset_of!(R2t, r2tl)], [12, 16]);
    assert_eq!([offset_of!(TermReq, fes), offset_of!(TermReq, fei)], [8, 10]);
}

#[test]
fn discovery_log() {
    assert_eq!((size_of::<DiscoveryHeader>(), size_of::<DiscoveryEntry>()), (1024, 1024));
    let mut header = DiscoveryHeader::default();
    header.genctr.set(0x0102_0304_0506_0708);
    header.numrec.set(3);
    assert_bytes(&header, "08 07 06 05  04 03 02 01  03 00 00 00  00 00 00 00  00 00");

    let mut entry = DiscoveryEntry::default();
    (entry.trtype, entry.adrfam) = (trtype::TCP, adrfam::IPV4);
    (entry.subtype, entry.treq) = (SubsystemType::Nvm as u8, 0x04);
    (entry.portid, entry.cntlid) = (1.into(), CNTLID_DYNAMIC.into());
    (entry.asqsz, entry.eflags) = (32.into(), 0x0201.into());
    set_zero_ended(&mut entry.trsvcid, "4420");
    set_zero_ended(&mut entry.subnqn, "nqn.s");
    set_zero_ended(&mut entry.traddr, "127.0.0.1");
    entry.tsas[0] = 2;
    let mut bytes = [0; 1024];
    bytes[..12].copy_from_slice(&bytes_of("03 01 02 04  01 00 ff ff  20 00 01 02"));
    bytes[32..36].copy_from_slice(b"4420");
    bytes[256..261].copy_from_slice(b"nqn.s");
    bytes[512..521].copy_from_slice(b"127.0.0.1");
    bytes[768] = 2;
    assert_eq!(entry.as_bytes(), bytes);
    assert_eq!(DiscoveryEntry::read_from_bytes(&bytes), Ok(entry));
    assert_eq!(adrfam::IPV6, 2);
    assert_eq!(SubsystemType::try_from(1), Ok(SubsystemType::Referral));
    assert_eq!(SubsystemType::try_from(3), Ok(SubsystemType::CurrentDiscovery));
    // Log page 70h: a header and two entries are 300h dwords.
    let sqe = Sqe::get_log_page(5, 0, 0x70, 0, false, 0x300, 0, 0, 0)
        .with_sgl(SglDescriptor::transport(3072));
    assert_bytes(
        &sqe,
        "02 40 05 00  00 00 00 00  00 00 00 00  00 00 00 00
         00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00
         00 0c 00 00  00 00 00 5a  70 00 ff 02",
    );
}

#[test]
fn what_identify_controller_has_for_fabrics() {
    assert_eq!(offset_of!(IdentifyController, fabrics), 1792);
    // IOCCSZ 104h: an entry and 4,096 bytes; IORCSZ 1; ICDOFF 0; FCATT 1; MSDBD 10h; OFCS 1.
    let mut bytes = [0; 256];
    bytes[..14].copy_from_slice(&bytes_of("04 01 00 00  01 00 00 00  00 00 01 10  01 00"));
    let mut attributes = FabricsAttributes::read_from_bytes(&bytes).expect("256 bytes");
    assert_eq!((attributes.ioccsz.get(), attributes.iorcsz.get()), (0x104, 1));
    assert_eq!((attributes.icdoff.get(), attributes.fcatt), (0, 1));
    assert_eq!((attributes.msdbd, attributes.ofcs.get()), (16, 1));
    assert_eq!(attributes.in_capsule_bytes(), 4096);
    attributes.ioccsz.set(4);
    assert_eq!(attributes.in_capsule_bytes(), 0, "the entry alone");
    attributes.ioccsz.set(0);
    assert_eq!(attributes.in_capsule_bytes(), 0, "nonsense");
    attributes.ioccsz.set(u32::MAX);
    assert!(attributes.in_capsule_bytes() > 0x0fff_ffff);
    attributes.ioccsz.set(0x104);
    attributes.icdoff.set(1);
    assert_eq!(attributes.in_capsule_bytes(), 0, "data not right after the entry");
}
