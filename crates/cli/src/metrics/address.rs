//! Where metrics are served: a loopback address with a port, or a Unix socket.

use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// A place for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// An address of this machine's loopback interface.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(format!("{text}: no path; e.g. unix:/run/meantime.sock")),
                path => Ok(Self::Unix(path.into())),
            };
        }
        let address: SocketAddr = text.parse().map_err(|_| {
            format!(
                "{text}: neither an IP address with a port nor a Unix socket; e.g. \
                 127.0.0.1:9100, [::1]:9100 or unix:/run/meantime.sock"
            )
        })?;
        if !address.ip().is_loopback() {
            return Err(format!(
                "{text}: others than this machine could read what it does, without a password and \
                 in the clear; use 127.0.0.1:{port}, and a reverse proxy with TLS and passwords if \
                 others are to have it",
                port = address.port()
            ));
        }
        Ok(Self::Tcp(address))
    }
}

impl Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}/metrics"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_served() {
        let tcp = |text: &str| Ok(Address::Tcp(text.parse().unwrap()));
        for text in ["127.0.0.1:9100", "[::1]:9100", "127.1.2.3:0"] {
            assert_eq!(text.parse(), tcp(text));
        }
        assert_eq!("unix:/run/x.sock".parse(), Ok(Address::Unix("/run/x.sock".into())));
        for (text, word) in [
            ("0.0.0.0:9100", "without a password"),
            ("192.0.2.1:9100", "use 127.0.0.1:9100"),
            ("[::]:9100", "without a password"),
            ("9100", "127.0.0.1:9100"),
            (":9100", "127.0.0.1:9100"),
            ("127.0.0.1", "127.0.0.1:9100"),
            ("localhost:9100", "127.0.0.1:9100"),
            ("unix:", "no path"),
            ("", "Unix socket"),
        ] {
            let why = text.parse::<Address>().unwrap_err();
            assert!(why.contains(word), "{text}: {why}");
        }
    }
}
