//! The controller of a namespace that the kernel's NVMe driver has, as far as it describes itself:
//! by passthrough of admin commands that only read.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use meantime_hw::HwError;
use meantime_hw::uring::{admin_read, namespace_id};
use meantime_nvme::{AdminQueries, Error, Identified, Result};
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::Status;

use super::file::KernelFile;

/// Passes an admin command on. Returns CQE.DW0 and the data, or the controller's status; the error
/// is the kernel's.
type Pass = dyn Fn(&Sqe) -> io::Result<std::result::Result<(u32, Vec<u8>), Status>> + Send + Sync;

/// A controller of the kernel's driver.
pub(super) struct KernelController {
    pass: Box<Pass>,
    identified: Identified,
}

impl KernelController {
    /// The controller of `file`, and the identifier of the file's namespace. `None` if it is no
    /// device of the kernel's NVMe driver.
    pub(super) fn of(file: &KernelFile) -> Result<Option<(Self, u32)>> {
        if !file.is_nvme() {
            return Ok(None);
        }
        let fd = Arc::clone(&file.fd);
        let nsid = namespace_id(fd.as_fd()).map_err(not_passed)?;
        let pass = Box::new(move |sqe: &Sqe| admin_read(fd.as_fd(), sqe));
        Ok(Some((Self::identify(pass, file.max_command_bytes())?, nsid)))
    }

    fn identify(pass: Box<Pass>, max_bytes: u64) -> Result<Self> {
        let mut page =
            |command, nsid, cns| Ok(ask(&pass, command, &Sqe::identify(0, nsid, cns, 0, 0, 0))?.1);
        let identified = Identified::read(&mut page, max_bytes)?;
        Ok(Self { pass, identified })
    }
}

fn ask(pass: &Pass, command: &'static str, sqe: &Sqe) -> Result<(u32, Vec<u8>)> {
    pass(sqe).map_err(not_passed)?.map_err(|status| Error::Admin { command, status })
}

fn not_passed(source: io::Error) -> Error {
    let what = match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "the kernel passes admin commands on for root only (CAP_SYS_ADMIN)"
        }
        _ => "the kernel's NVMe driver has not passed the command on",
    };
    HwError::Os { what, source }.into()
}

impl AdminQueries for KernelController {
    fn identified(&self) -> &Identified {
        &self.identified
    }

    fn query(&self, command: &'static str, sqe: Sqe, bytes: usize) -> Result<(u32, Vec<u8>)> {
        let (dw0, mut data) = ask(&self.pass, command, &sqe)?;
        data.truncate(bytes);
        Ok((dw0, data))
    }

    /// The kernel's driver waits for events.
    fn retains_events(&self) -> bool {
        true
    }
}

#[cfg(all(test, feature = "ssd"))]
mod tests {
    use meantime_nvme_spec::features::fid;
    use meantime_nvme_spec::opcode::admin;

    use super::*;
    use crate::{NvmeDevice, OpenOptions, open_nvme};

    const RAE: u32 = 1 << 15;

    fn software_ssd() -> NvmeDevice {
        let uri = "mem:8M?namespaces=2&lba=4096&vwc=1&inline=1";
        open_nvme(uri, &OpenOptions::default()).unwrap()
    }

    /// A controller whose commands the software SSD executes.
    fn passed_to(device: &NvmeDevice) -> KernelController {
        let controller = Arc::clone(device.controller());
        let pass = move |sqe: &Sqe| {
            let [opcode, ..] = sqe.cdw0.get().to_le_bytes();
            let bytes = match opcode {
                admin::GET_LOG_PAGE => {
                    assert_ne!(sqe.cdw10.get() & RAE, 0, "an event is the kernel's");
                    (sqe.cdw10.get() as usize >> 16) * 4 + 4
                }
                admin::GET_FEATURES | admin::IDENTIFY => 4096,
                opcode => panic!("{opcode:#x} does not only read"),
            };
            Ok(match controller.query("", *sqe, bytes) {
                Ok(answer) => Ok(answer),
                Err(Error::Admin { status, .. }) => Err(status),
                Err(error) => panic!("{error}"),
            })
        };
        KernelController::identify(Box::new(pass), 128 << 10).unwrap()
    }

    #[test]
    fn it_answers_as_by_our_driver() {
        let device = software_ssd();
        let (ours, kernels) = (device.controller(), passed_to(&device));
        let Identified { info, namespaces, unusable } = kernels.identified();
        assert_eq!((info.cap, info.max_transfer_bytes), (None, 128 << 10));
        assert_eq!(info.model, ours.info().model);
        assert_eq!(info.version, ours.info().version);
        assert_eq!(info.power_states, ours.info().power_states);
        assert!(unusable.is_empty());
        assert_eq!(namespaces.len(), 2);
        for (one, other) in namespaces.iter().zip(ours.namespaces()) {
            assert_eq!((one.nsid, one.blocks, one.block_shift), (other.nsid, other.blocks, 12));
            assert_eq!(one.max_blocks, 32);
            assert_eq!(kernels.namespace_ids(1).unwrap(), ours.namespace_ids(1).unwrap());
        }
        let cache = fid::VOLATILE_WRITE_CACHE;
        assert_eq!(kernels.get_feature(cache, 0).unwrap(), ours.get_feature(cache, 0).unwrap());
        let [one, other] = [kernels.smart(), ours.smart()].map(Result::unwrap);
        assert_eq!(one.composite_temperature, other.composite_temperature);
        assert_eq!(kernels.firmware_slots().unwrap(), ours.firmware_slots().unwrap());
        assert_eq!(kernels.commands_supported().unwrap(), ours.commands_supported().unwrap());
    }

    #[test]
    fn what_is_refused_is_said() {
        let device = software_ssd();
        let kernels = passed_to(&device);
        let refused = kernels.get_feature(0x7f, 0).unwrap_err();
        assert!(matches!(refused, Error::Admin { command: "Get Features", .. }), "{refused}");
        assert_eq!(kernels.error_log(4).unwrap().len(), 1);

        let fails = |errno| {
            let pass = move |_: &Sqe| Err(io::Error::from_raw_os_error(errno));
            KernelController::identify(Box::new(pass), 4096).map(drop).unwrap_err().to_string()
        };
        assert!(fails(libc::EACCES).contains("CAP_SYS_ADMIN"));
        assert!(fails(libc::ENOTTY).contains("not passed the command on"));
    }
}
