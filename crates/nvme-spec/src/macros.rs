//! Macros that read like tables: registers of bit fields, structures on the wire, named codes.

/// A code that the specification reserves, or that this crate does not define.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{value:#x} is no known {what}")]
pub struct UnknownCode {
    /// What kind of code it should be, in the specification's words.
    pub what: &'static str,
    /// The value found.
    pub value: u32,
}

/// Defines a newtype over an integer, its fields written as in the specification's tables:
/// `[high:low] get with_set: type`, `[bit] get with_set: bool`. Setters panic on a value wider than
/// the field.
macro_rules! bitfields {
    (@field $raw:ident [$bit:literal] $get:ident $set:ident bool $($doc:literal)*) => {
        $(#[doc = $doc])*
        #[inline]
        #[must_use]
        pub const fn $get(self) -> bool {
            self.0 >> $bit & 1 != 0
        }

        #[doc = concat!("The same with [`Self::", stringify!($get), "`] set to `value`.")]
        #[inline]
        #[must_use]
        pub const fn $set(self, value: bool) -> Self {
            Self(self.0 & !(1 << $bit) | (value as $raw) << $bit)
        }
    };
    (
        @field $raw:ident [$high:literal : $low:literal]
        $get:ident $set:ident $t:ident $($doc:literal)*
    ) => {
        $(#[doc = $doc])*
        #[inline]
        #[must_use]
        pub const fn $get(self) -> $t {
            (self.0 >> $low & ($raw::MAX >> ($raw::BITS - 1 - $high + $low))) as $t
        }

        #[doc = concat!("The same with [`Self::", stringify!($get), "`] set to `value`.")]
        ///
        /// # Panics
        /// Panics if `value` is wider than the field.
        #[inline]
        #[must_use]
        pub const fn $set(self, value: $t) -> Self {
            const MASK: $raw = $raw::MAX >> ($raw::BITS - 1 - $high + $low);
            assert!(value as $raw <= MASK, concat!(stringify!($get), " is wider than its field"));
            Self(self.0 & !(MASK << $low) | (value as $raw) << $low)
        }
    };
    ($(
        $(#[$meta:meta])*
        $name:ident($raw:ident) {
            $( $(#[doc = $doc:literal])* [$($bits:tt)*] $get:ident $set:ident: $t:ident, )*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(
            /// The value as on the wire, in host byte order.
            pub $raw,
        );

        impl $name {
            $( bitfields!(@field $raw [$($bits)*] $get $set $t $($doc)*); )*
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("raw", &format_args!("{:#x}", self.0))
                    $( .field(stringify!($get), &self.$get()) )*
                    .finish()
            }
        }
    )*};
}

/// What the dwords of a command hold, each field as in the specification's tables: `dword
/// [high:low] name: type`, `dword [bit] name: bool`.
macro_rules! command_fields {
    (@value $word:expr, $bit:literal) => {
        $word >> $bit & 1 != 0
    };
    (@value $word:expr, $high:literal $low:literal) => {
        ($word >> $low & (u32::MAX >> (31 - $high + $low))) as _
    };
    ($(
        $(#[doc = $doc:literal])*
        $dword:ident [$high:literal $(: $low:literal)?] $name:ident: $t:ident,
    )*) => {
        impl Sqe {$(
            $(#[doc = $doc])*
            #[inline]
            #[must_use]
            pub const fn $name(&self) -> $t {
                command_fields!(@value self.$dword.get(), $high $($low)?)
            }
        )*}
    };
}

/// Structures on the wire: `pub struct Name, size {` or `size, Copy {`, each field after its
/// offset. Sizes and offsets are asserted. [`Default`] is all zeroes.
macro_rules! wire {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident, $bytes:literal $(, $copy:ident)? {
            $( $(#[$field_meta:meta])* $at:literal $vis:vis $field:ident: $type:ty, )*
        }
    )*) => {$(
        $(#[$meta])*
        $(#[derive($copy)])?
        #[derive(Clone, Debug, PartialEq, Eq, zerocopy::FromBytes, zerocopy::IntoBytes)]
        #[derive(zerocopy::KnownLayout, zerocopy::Immutable)]
        #[repr(C)]
        pub struct $name {
            $( $(#[$field_meta])* $vis $field: $type, )*
        }

        const _: () = {
            assert!(core::mem::size_of::<$name>() == $bytes);
            $( assert!(core::mem::offset_of!($name, $field) == $at); )*
        };

        impl Default for $name {
            #[inline]
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }
    )*};
}

/// A fieldless enum of codes, each with its name in the specification, and its fallible decoding.
macro_rules! codes {
    ($(
        $(#[$meta:meta])*
        $name:ident($raw:ident), $what:literal {
            $( $(#[doc = $doc:literal])* $value:literal $variant:ident $words:literal, )*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr($raw)]
        pub enum $name {
            $(
                #[doc = concat!($words, " (", stringify!($value), ").")]
                $(#[doc = $doc])*
                $variant = $value,
            )*
        }

        impl $name {
            /// Every code, in ascending order.
            pub const ALL: &'static [Self] = &[$( Self::$variant ),*];

            /// The name in the specification's words.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$variant => $words, )*
                }
            }
        }

        impl TryFrom<$raw> for $name {
            type Error = $crate::UnknownCode;

            fn try_from(value: $raw) -> Result<Self, $crate::UnknownCode> {
                match value {
                    $( $value => Ok(Self::$variant), )*
                    _ => Err($crate::UnknownCode { what: $what, value: value as u32 }),
                }
            }
        }

        impl From<$name> for $raw {
            fn from(code: $name) -> Self {
                code as $raw
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }
    )*};
}
