//! Free blocks and inodes: who gets which.
