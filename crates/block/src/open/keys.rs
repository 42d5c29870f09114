//! Where the keys for DH-HMAC-CHAP come from. None comes from a command line, which others can see.

use std::path::Path;

use meantime_fabrics::{Credentials, FabricsError};

/// The environment's keys: the host's, and the controllers'.
#[cfg(feature = "auth")]
const VARIABLES: [&str; 2] = ["MEANTIME_DHCHAP_KEY", "MEANTIME_DHCHAP_CONTROLLER_KEY"];

/// Where nvme-cli keeps the host's key.
#[cfg(feature = "auth")]
const HOST_KEY: &str = "/etc/nvme/hostkey";

/// Returns the keys of the host `nqn`: those of `file`, or of the environment, or of nvme-cli's
/// file; `None` if there are none.
#[cfg(feature = "auth")]
pub(super) fn credentials(
    file: Option<&Path>,
    nqn: &str,
) -> Result<Option<Credentials>, FabricsError> {
    use meantime_nvme_auth::{Key, KeyError, Keys};

    let failed = |error: KeyError| FabricsError::Keys { why: error.to_string() };
    if let Some(file) = file {
        let all = Keys::read(file).map_err(failed)?;
        let found = all.into_iter().find(|(of, _)| of == nqn);
        return match found {
            Some((_, keys)) => Ok(Some(keys.into())),
            None => Err(FabricsError::Keys {
                why: format!(
                    "{}: there is no line for {nqn}, which is this host (hostnqn=)",
                    file.display()
                ),
            }),
        };
    }
    let of = |name: &str| {
        let text = std::env::var(name).ok().filter(|text| !text.is_empty());
        let key = text.map(|text| Key::parse(&text)).transpose();
        key.map_err(|error| FabricsError::Keys { why: format!("{name}: {error}") })
    };
    let [host, controller] = VARIABLES.map(of);
    if let Some(host) = host? {
        return Ok(Some(Keys { host, controller: controller? }.into()));
    }
    match std::fs::read_to_string(HOST_KEY) {
        Ok(text) => {
            let host = Key::parse(&text)
                .map_err(|error| FabricsError::Keys { why: format!("{HOST_KEY}: {error}") })?;
            Ok(Some(Keys { host, controller: controller? }.into()))
        }
        // Who may not read it has none.
        Err(_) => Ok(None),
    }
}

/// The same without the feature `auth`: there are none.
#[cfg(not(feature = "auth"))]
pub(super) fn credentials(
    file: Option<&Path>,
    _: &str,
) -> Result<Option<Credentials>, FabricsError> {
    match file {
        None => Ok(None),
        Some(_) => Err(FabricsError::Keys {
            why: "this build leaves out authentication (cargo feature auth)".to_owned(),
        }),
    }
}
