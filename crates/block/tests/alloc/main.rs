//! What allocates: the allocator of this process counts.

mod async_alloc;
mod hot_path;

use meantime_testkit::alloc::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
