//! On-disk structures.

/// Defines on-disk structures: `struct Name, size {`, and each field after its offset, both in
/// bytes. Sizes and offsets are asserted.
macro_rules! on_disk {
    ($(
        $(#[$meta:meta])*
        struct $name:ident, $bytes:literal {
            $( $(#[$field_meta:meta])* $at:literal $field:ident: $type:ty, )*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes)]
        #[derive(zerocopy::KnownLayout, zerocopy::Immutable, zerocopy::Unaligned)]
        #[repr(C)]
        pub(crate) struct $name {
            $( $(#[$field_meta])* pub(crate) $field: $type, )*
        }

        const _: () = {
            assert!(size_of::<$name>() == $bytes);
            $( assert!(std::mem::offset_of!($name, $field) == $at); )*
        };
    )*};
}
