//! What can be done to a file system, as changes of its metadata in a [`Handle`](super::journal::Handle).

pub mod acl;
pub mod attributes;
pub mod metadata;

#[cfg(test)]
mod attribute_tests;
