//! The counters of this process, or of the whole machine, for Prometheus: `--metrics` of commands
//! that serve or measure, and `meantime top --prometheus`.

mod address;
mod exporter;
mod http;
mod text;

use meantime_block::control::metrics::{Kind, Metrics};

use crate::failure::Failure;
use address::Address;
pub(crate) use exporter::run as export;
pub(crate) use http::Server;

/// Serves this process's metrics at `address`, if there is one.
pub(crate) fn serve(address: Option<&str>) -> Result<Option<Server>, Failure> {
    let Some(address) = address else { return Ok(None) };
    let address: Address = address.parse().map_err(Failure::usage)?;
    let server = Server::start(&address, || {
        let mut metrics = Metrics::take();
        of_process(&mut metrics);
        text::text(&metrics)
    });
    server.map(Some).map_err(Failure::new)
}

/// Adds what is known of this process.
fn of_process(metrics: &mut Metrics) {
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    metrics.add("meantime_build", Kind::Info, "The version of Meantime", &version, 1);
}
