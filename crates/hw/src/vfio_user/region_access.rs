//! Reading and writing regions by messages.

use meantime_nvme_spec::vfio_user::{Command, RegionAccess};
use zerocopy::IntoBytes;

use super::connection::Connection;
use super::error::Result;

const ACCESS_BYTES: usize = size_of::<RegionAccess>();

fn access(region: u32, offset: u64, bytes: usize) -> RegionAccess {
    RegionAccess { offset: offset.into(), region: region.into(), count: (bytes as u32).into() }
}

/// Reads `bytes` from `offset` of region `region`.
pub(super) fn read(
    connection: &Connection,
    region: u32,
    offset: u64,
    bytes: &mut [u8],
) -> Result<()> {
    let asked = access(region, offset, bytes.len());
    let most = ACCESS_BYTES + bytes.len();
    let reply = connection.request(Command::RegionRead, &[asked.as_bytes()], None, most)?;
    match reply.split::<RegionAccess>() {
        Some((answered, data)) if answered == asked && data.len() == bytes.len() => {
            bytes.copy_from_slice(data);
            Ok(())
        }
        _ => Err(connection.protocol(format!(
            "{} bytes in reply to a REGION_READ of {} bytes at {offset:#x} of region {region}, \
             which are not those",
            reply.body.len(),
            bytes.len()
        ))),
    }
}

/// Writes `bytes` to `offset` of region `region`. Returns when the server has stored them.
pub(super) fn write(connection: &Connection, region: u32, offset: u64, bytes: &[u8]) -> Result<()> {
    let asked = access(region, offset, bytes.len());
    let reply =
        connection.request(Command::RegionWrite, &[asked.as_bytes(), bytes], None, ACCESS_BYTES)?;
    match reply.split::<RegionAccess>() {
        Some((answered, _)) if answered == asked => Ok(()),
        _ => Err(connection.protocol(format!(
            "a reply to a REGION_WRITE of {} bytes at {offset:#x} of region {region} that is not \
             one",
            bytes.len()
        ))),
    }
}
