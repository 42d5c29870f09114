//! Contradictions between keys.

use super::error::{JobError, Origin, Problem, shown};
use super::{Extent, Job, Verify};

impl Job {
    /// Looks for keys that contradict each other, once the file and the command line have been read. Returns
    /// warnings: keys that will have no effect in this combination.
    pub fn validate(&self) -> Result<Vec<String>, JobError> {
        let fail = |key: &str, what: String| {
            let origin = self.origin_of(key).unwrap_or(&Origin::CommandLine);
            Err(JobError::new(origin, Problem::Contradiction { job: shown(&self.name), what }))
        };
        if self.time_based && self.runtime.is_none() {
            return fail("time_based", "time_based needs runtime=; it says how long to go on".to_owned());
        }
        if self.verify == Verify::Crc32c && !self.writes() {
            let rw = self.rw.as_str();
            let what = format!(
                "verify with rw={rw} would check what a former write left, and this job writes nothing; \
                 use rw=write, randwrite, rw or randrw, or leave verify out"
            );
            return fail("verify", what);
        }
        if self.verify == Verify::Crc32c && self.reads() && self.bs_read_bytes != self.bs_write_bytes {
            let what = format!(
                "verify checks blocks as they were written: reads of {} and writes of {} bytes do not match; use one bs",
                self.bs_read_bytes, self.bs_write_bytes
            );
            return fail("bs", what);
        }
        let mut warnings = Vec::new();
        let block_bytes = self.bs_max_bytes();
        if let Some(Extent::Bytes(size_bytes)) = self.size {
            if size_bytes < block_bytes {
                return fail(
                    "size",
                    format!("size={size_bytes} is smaller than one block of {block_bytes} bytes"),
                );
            }
            if size_bytes % block_bytes != 0 {
                let left_bytes = size_bytes % block_bytes;
                let what = format!("size is not a multiple of bs; the last {left_bytes} bytes are left out");
                warnings.push(self.warning("size", &what));
            }
            if let Extent::Bytes(offset_bytes) = self.offset
                && offset_bytes.checked_add(size_bytes).is_none()
            {
                return fail("offset", "offset + size does not fit in 64 bits".to_owned());
            }
        }
        if let (Extent::Percent(offset), Some(Extent::Percent(size))) = (self.offset, self.size)
            && u16::from(offset) + u16::from(size) > 100
        {
            return fail(
                "offset",
                format!("offset={offset}% and size={size}% reach past the end of the device"),
            );
        }
        for key in ["rwmixread", "rwmixwrite"] {
            if self.is_set(key) && !self.rw.is_mixed() {
                let what =
                    format!("{key} has no effect with rw={}; only rw and randrw mix", self.rw.as_str());
                warnings.push(self.warning(key, &what));
            }
        }
        Ok(warnings)
    }

    fn warning(&self, key: &str, what: &str) -> String {
        let origin = self.origin_of(key).unwrap_or(&Origin::CommandLine);
        format!("{origin}: job {}: {what}", shown(&self.name))
    }
}
