//! Opening a controller behind NVMe/TCP.

use std::sync::Arc;

use super::super::error::OpenError;
use super::super::nvme_device::NvmeDevice;
use super::super::options::OpenOptions;
use super::super::uri::{TcpUri, UriError};
use super::{keys, shared};
use meantime_fabrics::{FabricsError, Host, Subsystem, TcpAddress, TcpOptions, TcpTransport};
use meantime_nvme::Controller;
use meantime_nvme_spec::fabrics::DISCOVERY_NQN;

/// The settings of a connection, from the URI and the driver's options.
fn settings(tcp: &TcpUri, options: &OpenOptions) -> Result<TcpOptions, FabricsError> {
    let host = Host::find(tcp.hostnqn.as_deref(), tcp.hostid)?;
    Ok(TcpOptions {
        credentials: keys::credentials(tcp.dhchap_keys.as_deref(), &host.nqn)?,
        host,
        kato_ms: tcp.kato_ms,
        digests: tcp.digests,
        loss_ms: tcp.loss_ms,
        timeout_ns: options.controller.admin_timeout_ns,
        queues: options.controller.io_queues,
    })
}

/// Opens the device, or shares an open connection to the same subsystem with the same parameters.
pub(super) fn open(
    uri: &str,
    address: &TcpAddress,
    tcp: &TcpUri,
    options: &OpenOptions,
) -> Result<NvmeDevice, OpenError> {
    if address.nqn == DISCOVERY_NQN {
        let target = address.authority();
        let what = format!(
            "it names a target but none of its subsystems: `meantime discover nvme+tcp://{target}` \
             lists them, and nvme+tcp://{target}/NQN opens one"
        );
        return Err(UriError { uri: uri.to_owned(), what }.into());
    }
    let failed = |source| OpenError::Fabrics { uri: uri.to_owned(), source };
    let name = format!("{address}?{:?}", TcpUri { nsid: 0, ..tcp.clone() });
    let controller = shared::controller(&name, || {
        let settings = settings(tcp, options).map_err(failed)?;
        let transport = TcpTransport::connect(address.clone(), &settings).map_err(failed)?;
        Ok(Controller::enable(Arc::new(transport), options.controller)?)
    })?;
    Ok(NvmeDevice::new(controller, tcp.nsid, uri.to_owned())?)
}

/// Asks the discovery service at `address` for its subsystems, with the settings that [`open`]
/// uses.
pub(super) fn discover(
    uri: &str,
    address: &TcpAddress,
    tcp: &TcpUri,
    options: &OpenOptions,
) -> Result<(Host, Vec<Subsystem>), OpenError> {
    settings(tcp, options)
        .and_then(|settings| {
            let found = meantime_fabrics::discover(address, &settings)?;
            Ok((settings.host, found))
        })
        .map_err(|source| OpenError::Fabrics { uri: uri.to_owned(), source })
}
