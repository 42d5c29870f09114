//! Block devices as their callers see them: requests, waits, futures.

mod adaptive;
mod async_channel;
mod async_runtimes;
mod async_torture;
mod block;
mod bytes;
mod gap_left;
mod group;
mod idle;
mod inline;
mod kernel;
mod partition;
mod published;
mod scattered;
mod stamps;
mod steer;
mod threaded;
mod torture;
mod vfio_user;
mod vfio_user_foreign;
mod waits;
