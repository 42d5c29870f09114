//! A request as the kernel sends it: a header, a structure that depends on the kind, names, and
//! bytes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::wire::InHeader;

/// The error for bytes that are not a valid request (the caller gets EIO).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A request whose header was read. The rest is read in the order that its kind defines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) header: InHeader,
    /// The bytes that were not read yet.
    rest: &'a [u8],
}

impl<'a> Request<'a> {
    /// Parses the request in `bytes`, the result of one read of the device.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (header, rest) = InHeader::read_from_prefix(bytes).map_err(|_| Malformed)?;
        let is_whole = usize::try_from(header.len).is_ok_and(|len| len == bytes.len());
        // Extensions after the arguments are only for servers that negotiated them.
        let extension = usize::from(header.total_extlen) * 8;
        let end = rest.len().checked_sub(extension).ok_or(Malformed)?;
        if is_whole { Ok(Self { header, rest: &rest[..end] }) } else { Err(Malformed) }
    }

    /// Reads the next structure.
    pub(crate) fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, Malformed> {
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| Malformed)?;
        self.rest = rest;
        Ok(value)
    }

    /// Reads the next string, which ends with a NUL.
    pub(crate) fn name(&mut self) -> Result<&'a OsStr, Malformed> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or(Malformed)?;
        let name = OsStr::from_bytes(&self.rest[..end]);
        self.rest = &self.rest[end + 1..];
        Ok(name)
    }

    /// Reads `bytes` bytes.
    pub(crate) fn bytes(&mut self, bytes: u32) -> Result<&'a [u8], Malformed> {
        let bytes = usize::try_from(bytes).map_err(|_| Malformed)?;
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Returns the number of bytes not read yet.
    #[cfg(test)]
    fn left(&self) -> usize {
        self.rest.len()
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes as _;

    use super::super::Opcode;
    use super::super::wire::{CreateIn, WriteIn};
    use super::*;

    fn bytes(opcode: Opcode, body: &[u8]) -> Vec<u8> {
        let header = InHeader {
            len: (size_of::<InHeader>() + body.len()) as u32,
            opcode: opcode as u32,
            unique: 7,
            nodeid: 1,
            uid: 1000,
            ..InHeader::default()
        };
        [header.as_bytes(), body].concat()
    }

    #[test]
    fn structures_and_names_come_in_order() {
        let create = CreateIn { flags: 0o102, mode: 0o100_644, umask: 0o22, open_flags: 0 };
        let request = bytes(Opcode::Create, &[create.as_bytes(), b"a name\0"].concat());
        let mut request = Request::new(&request).unwrap();
        assert_eq!(Opcode::of(request.header.opcode), Some(Opcode::Create));
        assert_eq!((request.header.unique, request.header.uid), (7, 1000));
        assert_eq!(request.take::<CreateIn>(), Ok(create));
        assert_eq!(request.name(), Ok(OsStr::new("a name")));
        assert_eq!(request.left(), 0);
        assert_eq!(request.name(), Err(Malformed));
    }

    #[test]
    fn what_is_cut_off_is_malformed() {
        let write = WriteIn { size: 5, ..WriteIn::default() };
        let whole = bytes(Opcode::Write, &[write.as_bytes(), b"12345"].concat());
        for len in 0..whole.len() {
            assert!(Request::new(&whole[..len]).is_err(), "{len}: not what the header says");
            let mut cut = whole[..len].to_vec();
            if let Some(field) = cut.get_mut(..4) {
                field.copy_from_slice(&(len as u32).to_ne_bytes());
            }
            let Ok(mut request) = Request::new(&cut) else { continue };
            let taken = request.take::<WriteIn>().and_then(|write| request.bytes(write.size));
            assert_eq!(taken, Err(Malformed), "{len}");
        }
        let mut request = Request::new(&whole).unwrap();
        let size = request.take::<WriteIn>().unwrap().size;
        assert_eq!(request.bytes(size), Ok(&b"12345"[..]));
        assert_eq!(request.bytes(u32::MAX), Err(Malformed));
        assert_eq!(request.take::<InHeader>(), Err(Malformed));
    }

    #[test]
    fn a_name_without_an_end_and_extensions_beyond_the_request_are_malformed() {
        let request = bytes(Opcode::Lookup, b"no end");
        assert_eq!(Request::new(&request).unwrap().name(), Err(Malformed));
        let mut extended = bytes(Opcode::Lookup, b"a\0......extended");
        extended[36..38].copy_from_slice(&1_u16.to_ne_bytes());
        let mut request = Request::new(&extended).unwrap();
        assert_eq!(request.name(), Ok(OsStr::new("a")));
        assert_eq!(request.left(), 6, "the extension is not part of the arguments");
        extended[36..38].copy_from_slice(&100_u16.to_ne_bytes());
        assert!(Request::new(&extended).is_err());
    }

    #[test]
    fn opcodes_have_the_numbers_of_the_header() {
        assert_eq!(Opcode::of(26), Some(Opcode::Init));
        assert_eq!(Opcode::of(52), Some(Opcode::Statx));
        assert_eq!([Opcode::of(0), Opcode::of(7), Opcode::of(4096)], [None; 3]);
        assert!(!Opcode::BatchForget.is_answered() && Opcode::Destroy.is_answered());
    }
}
