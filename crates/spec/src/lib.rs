//! What the NVMe specification defines.
