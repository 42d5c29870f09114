//! The discovery service: a controller whose only purpose is one log page.

use std::net::SocketAddr;

use meantime_nvme_spec::bytes::set_text;
use meantime_nvme_spec::fabrics::{
    CNTLID_DYNAMIC, DISCOVERY_NQN, DiscoveryEntry, DiscoveryHeader, SubsystemType, adrfam,
    set_zero_ended, trtype,
};
use meantime_nvme_spec::identify::{IdentifyController, controller_type};
use meantime_nvme_spec::sgl::sgls;
use zerocopy::{FromZeros as _, IntoBytes as _};

use super::admin::TRANSPORT_SGLS;
use crate::controller::identify::FIRMWARE;
use crate::event_requests::MAX_REQUESTS;

/// The Admin Max SQ Size that is offered.
const ADMIN_ENTRIES: u16 = 32;
/// The bit of EFLAGS of the discovery service's own entry that says that it returns the same at
/// every address (2.0).
const DUPLICATE_RETURNED: u16 = 1;
/// The bit of TREQ that says that SQ flow control may be disabled.
const FLOW_CONTROL_OPTIONAL: u8 = 1 << 2;

/// Returns the whole log page for a host that has connected to `addr`.
pub(super) fn log_page(nqn: &str, addr: SocketAddr) -> Vec<u8> {
    let mut header = DiscoveryHeader::new_zeroed();
    header.genctr.set(1);
    header.numrec.set(2);
    let mut page = header.as_bytes().to_vec();
    for (kind, nqn) in [(SubsystemType::Nvm, nqn), (SubsystemType::CurrentDiscovery, DISCOVERY_NQN)]
    {
        let mut entry = DiscoveryEntry::new_zeroed();
        entry.trtype = trtype::TCP;
        entry.adrfam = if addr.is_ipv4() { adrfam::IPV4 } else { adrfam::IPV6 };
        entry.subtype = kind as u8;
        entry.treq = FLOW_CONTROL_OPTIONAL;
        entry.portid.set(1);
        entry.cntlid.set(CNTLID_DYNAMIC);
        entry.asqsz.set(ADMIN_ENTRIES);
        if kind == SubsystemType::CurrentDiscovery {
            entry.eflags.set(DUPLICATE_RETURNED);
        }
        set_text(&mut entry.trsvcid, &addr.port().to_string());
        set_text(&mut entry.traddr, &addr.ip().to_string());
        set_zero_ended(&mut entry.subnqn, nqn);
        page.extend_from_slice(entry.as_bytes());
    }
    page
}

/// Returns Identify Controller of the discovery controller.
pub(super) fn identify(cntlid: u16, version: u32, entries: u32) -> Vec<u8> {
    let mut c = IdentifyController::new_zeroed();
    c.set_serial("DISCOVERY");
    c.set_model("Meantime discovery");
    c.set_firmware(FIRMWARE);
    set_zero_ended(&mut c.subnqn, DISCOVERY_NQN);
    c.mdts = 5;
    c.cntlid.set(cntlid);
    c.ver.set(version);
    c.cntrltype = controller_type::DISCOVERY;
    c.aerl = (MAX_REQUESTS - 1) as u8;
    c.kas.set(1);
    // Get Log Page supports an offset.
    c.lpa = 1 << 2;
    c.maxcmd.set(entries as u16);
    c.sgls.set(sgls::SUPPORTED | sgls::OFFSETS | TRANSPORT_SGLS);
    c.as_bytes().to_vec()
}
