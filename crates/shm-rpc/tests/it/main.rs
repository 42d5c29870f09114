//! Calls between processes: good ones, and what a side that dies or lies does to the other.
#![cfg(not(loom))]
#![expect(unsafe_code, reason = "a client's buffers are a C program's, and its memory is shared")]

mod calls;
mod deaths;
mod hostile;
mod raw;
mod stress;
