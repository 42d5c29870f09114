//! On-disk structures.

use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

/// Defines on-disk structures: `struct Name, size {` (or `size, Copy {`), and each field after its
/// offset, both in bytes. Sizes and offsets are asserted. Fields have the structure's visibility.
/// [`Default`] is all zeroes.
macro_rules! on_disk {
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident, $bytes:literal $(, $copy:ident)? {
            $( $(#[$field_meta:meta])* $at:literal $field:ident: $type:ty, )*
        }
    )*) => {$(
        $(#[$meta])*
        $(#[derive($copy)])?
        #[derive(Debug, Clone, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout)]
        #[derive(zerocopy::Immutable, zerocopy::Unaligned)]
        #[repr(C)]
        $vis struct $name {
            $( $(#[$field_meta])* $vis $field: $type, )*
        }

        const _: () = {
            assert!(size_of::<$name>() == $bytes);
            $( assert!(std::mem::offset_of!($name, $field) == $at); )*
        };

        impl Default for $name {
            #[inline]
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }
    )*};
}

/// The magic number at the end of each block of an orphan file (`EXT4_ORPHAN_BLOCK_MAGIC`).
pub(crate) const ORPHAN_MAGIC: u32 = 0x0B10_CA04;

/// Returns the complete words of `bytes`.
pub(crate) fn words(bytes: &[u8]) -> &[U32] {
    <[U32]>::ref_from_bytes(&bytes[..bytes.len() & !3]).unwrap_or_default()
}
