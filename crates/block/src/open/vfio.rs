//! Opening a PCIe SSD through VFIO.

use std::sync::Arc;

use super::super::error::OpenError;
use super::super::nvme_device::NvmeDevice;
use super::super::options::OpenOptions;
use super::super::uri::NvmeUri;
use super::shared;
use meantime_hw::pci::{self, PciAddress, Sysfs, TakeOptions};
use meantime_hw::vfio::{VfioOptions, VfioTransport};
use meantime_nvme::Controller;

/// Opens the device. If the kernel's driver has it and it is not in use, this takes it from the
/// driver. It returns to that driver when the last namespace is closed.
pub(super) fn open(
    uri: &str,
    address: PciAddress,
    nvme: NvmeUri,
    options: &OpenOptions,
) -> Result<NvmeDevice, OpenError> {
    let controller = shared::controller(&format!("vfio:{address}"), || {
        let sysfs = Sysfs::default();
        let options_of_take =
            TakeOptions { unsafe_no_iommu: nvme.no_iommu, ..TakeOptions::default() };
        let taken = pci::take(&sysfs, address, &options_of_take)
            .map_err(|source| OpenError::Pci { uri: uri.to_owned(), source })?;
        let wanted = VfioOptions {
            // There is one vector for the admin queue, and one for each I/O queue.
            max_vectors: options.controller.io_queues.saturating_add(1),
            allow_no_iommu: nvme.no_iommu,
        };
        let transport = VfioTransport::open(address, &wanted)?.keeping(Box::new(taken));
        Ok(Controller::enable(Arc::new(transport), nvme.options(options.controller))?)
    })?;
    shared::coalesce(&controller, nvme.coalesce)?;
    Ok(NvmeDevice::new(controller, nvme.nsid, uri.to_owned())?)
}
