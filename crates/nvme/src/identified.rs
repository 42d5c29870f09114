//! What Identify reports of a controller of this driver or of the kernel's (NVMe Base 1.4 §5.15).

use meantime_nvme_spec::identify::{
    ActiveNamespaceList, IdentifyController, IdentifyNamespace, cns,
};
use meantime_nvme_spec::status::StatusCode;
use zerocopy::FromBytes;

use super::admin::is_code;
use super::error::{Error, Result};
use super::identify::{ControllerInfo, NamespaceInfo};

/// The name of the command that asks for the controller's own data.
pub(super) const CONTROLLER: &str = "Identify (controller)";

/// Reads a structure of Identify: by the command's name, a namespace and CNS.
pub type ReadPage<'a> = dyn FnMut(&'static str, u32, u8) -> Result<Vec<u8>> + 'a;

/// What Identify reports of a controller and its namespaces.
#[derive(Debug, Clone)]
pub struct Identified {
    /// The controller.
    pub info: ControllerInfo,
    /// The usable namespaces.
    pub namespaces: Vec<NamespaceInfo>,
    /// The unusable namespaces, with the reason.
    pub unusable: Vec<(u32, String)>,
}

impl Identified {
    /// Identifies a controller that another driver has, by `page`. That driver's commands have at
    /// most `max_bytes` of data.
    ///
    /// # Errors
    /// Returns the error of `page`, and [`Error::Invalid`] or [`Error::Unsupported`] for data of
    /// the controller that contradict themselves or that are not those of an NVMe SSD.
    pub fn read(page: &mut ReadPage<'_>, max_bytes: u64) -> Result<Self> {
        let raw = controller_data(&page(CONTROLLER, 0, cns::CONTROLLER)?)?;
        Self::of(ControllerInfo::validate(&raw, None, raw.version(), max_bytes)?, page)
    }

    /// Identifies the namespaces of the controller `info`.
    pub(super) fn of(info: ControllerInfo, page: &mut ReadPage<'_>) -> Result<Self> {
        // Controllers before 1.1 have no active list: every identifier is tried (1.4 §5.15.2.2).
        let ids: Vec<u32> =
            match page("Identify (active namespaces)", 0, cns::ACTIVE_NAMESPACE_LIST) {
                Ok(bytes) => {
                    let list: ActiveNamespaceList = structure(&bytes, "active namespace list")?;
                    list.iter().collect()
                }
                Err(error) if is_code(&error, StatusCode::InvalidFieldInCommand) => {
                    (1..=info.namespace_count.min(1024)).collect()
                }
                Err(error) => return Err(error),
            };
        let (mut namespaces, mut unusable) = (Vec::new(), Vec::new());
        for nsid in ids {
            let bytes = match page("Identify (namespace)", nsid, cns::NAMESPACE) {
                Ok(bytes) => bytes,
                Err(error @ Error::Admin { .. }) => {
                    unusable.push((nsid, error.to_string()));
                    continue;
                }
                Err(error) => return Err(error),
            };
            let raw: IdentifyNamespace = structure(&bytes, "Identify Namespace data")?;
            if raw.nsze.get() == 0 {
                continue; // Inactive: all zeroes (1.4 §5.15.2.1).
            }
            match NamespaceInfo::validate(nsid, &raw, &info) {
                Ok(ns) => namespaces.push(ns),
                Err(error) => unusable.push((nsid, error.to_string())),
            }
        }
        Ok(Self { info, namespaces, unusable })
    }
}

/// The controller's own data.
pub(super) fn controller_data(bytes: &[u8]) -> Result<IdentifyController> {
    structure(bytes, "Identify Controller data")
}

fn structure<T: FromBytes>(bytes: &[u8], structure: &'static str) -> Result<T> {
    T::read_from_bytes(bytes).map_err(|_| Error::Invalid { structure, what: "too short".into() })
}
