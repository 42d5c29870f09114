//! What can be done to a file system, as changes of its metadata in a [`Handle`](super::journal::Handle).
