//! Changes the SSD's answers to admin commands where they differ from those for a host over PCI
//! Express.

use meantime_nvme_spec::fabrics::set_zero_ended;
use meantime_nvme_spec::identify::{IdentifyController, IndependentNamespace, cns, oacs};
use meantime_nvme_spec::sgl::sgls;
use meantime_nvme_spec::tcp::ADMIN_CAPSULE_BYTES;
use zerocopy::FromBytes as _;

use super::connection::IN_CAPSULE_BYTES;
use super::machine::BUFFER_BYTES;

/// The bit of SGLS for Transport SGL Data Block descriptors (NVMe-oF 1.1 §4.1).
pub(super) const TRANSPORT_SGLS: u32 = 1 << 21;

/// The bit of CMIC that says that the subsystem has several controllers, one for each host.
const SEVERAL_CONTROLLERS: u8 = 1 << 1;
/// The bit of NMIC that says that the controllers share the namespaces.
const SHARED: u8 = 1;
/// The offset of NMIC in Identify Namespace.
const NMIC_AT: usize = 30;

const _: () = assert!(ADMIN_CAPSULE_BYTES <= IN_CAPSULE_BYTES);

/// The identity of a controller for a host.
pub(super) struct Identity<'a> {
    pub(super) cntlid: u16,
    pub(super) nqn: &'a str,
    pub(super) entries: u32,
}

/// Returns MDTS, as a power of two of pages, given the SSD's.
fn mdts(of_ssd: u8) -> u8 {
    let own = (BUFFER_BYTES / 4096).trailing_zeros() as u8;
    if of_ssd == 0 { own } else { of_ssd.min(own) }
}

/// Changes the data of Identify with structure `structure` which the SSD has answered.
pub(super) fn patch(structure: u8, data: &mut [u8], identity: &Identity<'_>) {
    match structure {
        cns::CONTROLLER => controller(data, identity),
        cns::NAMESPACE => data[NMIC_AT] |= SHARED,
        cns::NAMESPACE_INDEPENDENT => {
            if let Ok((namespace, _)) = IndependentNamespace::mut_from_prefix(data) {
                namespace.nmic |= SHARED;
            }
        }
        _ => {}
    }
}

fn controller(data: &mut [u8], identity: &Identity<'_>) {
    let Ok((c, _)) = IdentifyController::mut_from_prefix(data) else { return };
    (c.vid, c.ssvid) = (0.into(), 0.into());
    c.cmic |= SEVERAL_CONTROLLERS;
    c.mdts = mdts(c.mdts);
    c.cntlid.set(identity.cntlid);
    c.oacs.set(c.oacs.get() & !oacs::DOORBELL_BUFFER_CONFIG);
    // The two commands of a pair would have to come one right after the other, over a stream on
    // which each command may wait for its data.
    c.fuses.set(0);
    c.acwu.set(0);
    c.sgls.set(sgls::SUPPORTED | sgls::OFFSETS | TRANSPORT_SGLS);
    c.maxcmd.set(identity.entries as u16);
    set_zero_ended(&mut c.subnqn, identity.nqn);
    c.fabrics.ioccsz.set(((64 + IN_CAPSULE_BYTES) / 16) as u32);
    c.fabrics.iorcsz.set(1);
    c.fabrics.msdbd = 1;
}
