//! Identify data structures and log pages, read from bytes placed by hand at the specification's
//! offsets.

use meantime_nvme_spec::identify::{
    ActiveNamespaceList, IdentifyController, IdentifyNamespace, LbaFormat, NamespaceIdDescriptor,
    NamespaceIdDescriptors, nidt, oncs, vwc,
};
use meantime_nvme_spec::log::{CommandsSupportedLog, ErrorLogEntry, FirmwareSlotLog, SmartLog};
use meantime_nvme_spec::regs::Vs;
use meantime_nvme_spec::status::StatusCode;
use zerocopy::{FromBytes, IntoBytes};

/// A structure of `size` bytes, zero but for the parts given with their offsets.
fn bytes(size: usize, parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; size];
    for (at, part) in parts {
        bytes[*at..at + part.len()].copy_from_slice(part);
    }
    bytes
}

#[test]
fn controller() {
    let bytes = bytes(
        4096,
        &[
            (0, &[0x36, 0x1b]),
            (4, b"S/N 42              "),
            (24, b"Meantime SSD                            "),
            (64, b"1.0     "),
            (77, &[5]),
            (78, &[0x34, 0x12]),
            (80, &[0x00, 0x04, 0x01, 0x00]),
            (256, &[0x02, 0x01]),
            (258, &[3, 7]),
            (263, &[1]),
            (280, &[0, 0, 0, 0x40]),
            (512, &[0x66, 0x44]),
            (516, &[2]),
            (520, &[0x0c, 0x00]),
            (525, &[0x07]),
            (768, b"nqn.2014-08.org.example:ssd\0"),
            (2048, &[0xf4, 0x01, 0, 0]),
            (2080, &[0x32, 0x00, 0, 0x03, 0x10, 0x27]),
        ],
    );
    let id = IdentifyController::read_from_bytes(&bytes).expect("4096 bytes");
    assert_eq!((id.vid.get(), id.cntlid.get(), id.version()), (0x1b36, 0x1234, Vs::new(1, 4, 0)));
    assert_eq!((id.serial(), id.model(), id.firmware()), ("S/N 42", "Meantime SSD", "1.0"));
    assert_eq!(id.subsystem_nqn(), "nqn.2014-08.org.example:ssd");
    assert_eq!((id.mdts_bytes(0), id.mdts_bytes(1)), (Some(128 << 10), Some(256 << 10)));
    assert_eq!((id.acl, id.aerl, id.npss), (3, 7, 1));
    assert_eq!((id.sqes, id.cqes, id.nn.get(), id.tnvmcap.get()), (0x66, 0x44, 2, 1 << 30));
    assert_eq!(id.oncs.get(), oncs::DATASET_MANAGEMENT | oncs::WRITE_ZEROES);
    assert_eq!(id.vwc & vwc::PRESENT, vwc::PRESENT);
    assert_eq!(id.vwc & vwc::FLUSH_ALL_MASK, vwc::FLUSH_ALL_SUPPORTED);
    assert_eq!((id.psd[0].max_power_100uw(), id.psd[0].non_operational()), (50_000, false));
    assert_eq!((id.psd[1].max_power_100uw(), id.psd[1].non_operational()), (50, true));
    assert_eq!(id.psd[1].enlat.get(), 10_000);
    assert_eq!(id.as_bytes(), bytes);
}

#[test]
fn controller_from_noise() {
    let id = IdentifyController::read_from_bytes(&[0xff; 4096]).expect("4096 bytes");
    assert_eq!((id.model(), id.serial(), id.subsystem_nqn()), ("", "", ""));
    assert_eq!(id.mdts_bytes(15), None, "beyond 64 bits");
    assert_eq!(IdentifyController::default().mdts_bytes(0), None, "no limit");
}

#[test]
fn controller_text() {
    let mut id = IdentifyController::default();
    id.set_model("Meantime\u{e9}\n");
    assert_eq!(&id.mn[..13], b"Meantime???  ");
    id.set_serial("0123456789012345678901234");
    assert_eq!(id.serial(), "01234567890123456789");
    id.set_subsystem_nqn(&"n".repeat(300));
    assert_eq!((id.subsystem_nqn().len(), id.subnqn[255]), (255, 0));
}

#[test]
fn namespace() {
    let bytes = bytes(
        4096,
        &[
            (0, &[0, 0, 0x20]),
            (8, &[0, 0, 0x10]),
            (24, &[0x10, 1, 1]),
            (46, &[0x00, 0x01]),
            (104, &[0xaa; 16]),
            (120, &[0xbb; 8]),
            (128, &[0, 0, 9, 2, 8, 0, 12, 0]),
        ],
    );
    let mut id = IdentifyNamespace::read_from_bytes(&bytes).expect("4096 bytes");
    assert_eq!((id.nsze.get(), id.ncap.get(), id.noiob.get()), (0x20_0000, 0x10_0000, 256));
    assert_eq!((id.nguid, id.eui64), ([0xaa; 16], [0xbb; 8]));
    let format = id.lba_format_in_use().expect("format 1 of 0 and 1");
    assert_eq!(
        (format.ms.get(), format.lbads, format.rp, format.block_bytes()),
        (8, 12, 0, Some(4096))
    );
    id.flbas = 0x10;
    assert_eq!(id.lba_format_in_use().and_then(LbaFormat::block_bytes), Some(512));
    id.flbas = 2;
    assert_eq!(id.lba_format_in_use(), None);
    // FLBAS 6:5 are reserved unless there are more than 16 formats.
    id.flbas = 0x21;
    assert_eq!(id.lba_format_index(), 1);
    id.nlbaf = 63;
    assert_eq!(id.lba_format_index(), 17);
    assert_eq!(LbaFormat::new(9).block_bytes(), Some(512));
    for lbads in (0..9).chain(32..=255) {
        assert_eq!(LbaFormat::new(lbads).block_bytes(), None);
    }
}

#[test]
fn namespace_never_panics() {
    let mut id = IdentifyNamespace::default();
    for (nlbaf, flbas) in (0..=255).flat_map(|nlbaf| (0..=255).map(move |flbas| (nlbaf, flbas))) {
        (id.nlbaf, id.flbas) = (nlbaf, flbas);
        assert_eq!(id.lba_format_in_use().is_some(), id.lba_format_index() <= nlbaf);
    }
}

#[test]
fn lists() {
    let mut namespaces = ActiveNamespaceList::default();
    assert_eq!(namespaces.iter().count(), 0);
    namespaces.nsid[0].set(1);
    namespaces.nsid[1].set(7);
    namespaces.nsid[3].set(9);
    assert_eq!(namespaces.iter().collect::<Vec<_>>(), [1, 7]);
}

#[test]
fn namespace_id_descriptors() {
    assert_eq!(NamespaceIdDescriptor::new(nidt::UUID, 16).as_bytes(), [3, 16, 0, 0]);
    let data = bytes(
        4096,
        &[
            (0, &[1, 8, 0, 0]),
            (4, &[0xee; 8]),
            (12, &[3, 16, 0, 0]),
            (16, &[0xdd; 16]),
            (32, &[4, 1, 0, 0, 0]),
        ],
    );
    let found: Vec<_> = NamespaceIdDescriptors::new(&data).collect();
    assert_eq!(found, [(nidt::EUI64, &[0xee; 8][..]), (nidt::UUID, &[0xdd; 16]), (4, &[0])]);
    // Neither a length beyond the end nor half a head ends in a panic.
    assert_eq!(NamespaceIdDescriptors::new(&[3, 16, 0, 0, 1, 2]).next(), None);
    assert_eq!(NamespaceIdDescriptors::new(&[3, 16]).next(), None);
}

#[test]
fn logs() {
    let smart = bytes(
        512,
        &[
            (0, &[4, 0x2c, 0x01, 100, 10, 3]),
            (48, &[1; 16]),
            (144, &[5]),
            (200, &[0x2d, 0x01]),
            (228, &[6]),
        ],
    );
    let smart = SmartLog::read_from_bytes(&smart).expect("512 bytes");
    assert_eq!((smart.critical_warning, smart.composite_temperature.get()), (4, 300));
    assert_eq!(
        (smart.available_spare, smart.available_spare_threshold, smart.percentage_used),
        (100, 10, 3)
    );
    assert_eq!(smart.data_units_written.get(), u128::from_le_bytes([1; 16]));
    assert_eq!((smart.unsafe_shutdowns.get(), smart.temperature_sensors[0].get()), (5, 301));
    assert_eq!(smart.tmt2_total_time.get(), 6);

    let error = bytes(64, &[(0, &[1]), (8, &[2, 0, 3, 0, 0x01, 0x01, 0xff, 0xff, 9]), (24, &[1])]);
    let error = ErrorLogEntry::read_from_bytes(&error).expect("64 bytes");
    assert_eq!(
        (error.sqid.get(), error.cid.get(), error.lba.get(), error.nsid.get()),
        (2, 3, 9, 1)
    );
    assert_eq!(error.status().code(), Ok(StatusCode::LbaOutOfRange));

    let slots = bytes(512, &[(0, &[0x11]), (8, b"1.0     "), (56, b"rev 7   ")]);
    let slots = FirmwareSlotLog::read_from_bytes(&slots).expect("512 bytes");
    assert_eq!(slots.revision(1), Some("1.0"));
    assert_eq!((slots.revision(0), slots.revision(2), slots.revision(8)), (None, None, None));
    assert_eq!(slots.revision(7), Some("rev 7"));

    let effects = bytes(4096, &[(4 * 0x80, &[0x03, 0, 0x02]), (1024 + 4, &[0x03])]);
    let effects = CommandsSupportedLog::read_from_bytes(&effects).expect("4096 bytes");
    let format = effects.admin_effects(0x80);
    assert_eq!((format.csupp(), format.lbcc(), format.ncc(), format.cse()), (true, true, false, 2));
    assert!(effects.io_effects(0x01).lbcc() && !effects.io_effects(0x02).csupp());
}
