//! Opening a controller that another process serves over vfio-user.

use std::path::Path;
use std::sync::Arc;

use super::super::error::OpenError;
use super::super::nvme_device::NvmeDevice;
use super::super::options::OpenOptions;
use super::super::uri::NvmeUri;
use super::shared;
use meantime_hw::{UserOptions, UserTransport};
use meantime_nvme::Controller;

/// Opens the device, or shares an open connection: a server takes one client at a time.
pub(super) fn open(
    uri: &str,
    path: &Path,
    nvme: NvmeUri,
    options: &OpenOptions,
) -> Result<NvmeDevice, OpenError> {
    let controller = shared::controller(&format!("vfio-user:{}", path.display()), || {
        // A slow server delays answers as a slow controller delays admin commands.
        let user = UserOptions { timeout_ns: options.controller.admin_timeout_ns };
        let transport = UserTransport::connect(path, &user)?;
        Ok(Controller::enable(Arc::new(transport), nvme.options(options.controller))?)
    })?;
    shared::coalesce(&controller, nvme.coalesce)?;
    Ok(NvmeDevice::new(controller, nvme.nsid, uri.to_owned())?)
}
