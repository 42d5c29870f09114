//! A software NVMe SSD.
