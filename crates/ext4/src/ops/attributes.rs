//! Sets, replaces and removes extended attributes (kernel: `fs/ext4/xattr.c`).
//!
//! Attributes are stored in the inode's body while they fit there, otherwise in a block. Several
//! inodes can share such a block: a shared block is copied instead of changed.

use super::acl;
use crate::alloc::{AllocHandle, Want};
use crate::journal::Handle;
use crate::{Corruption, Defect, Error, FileType, Result, SetAttribute, Unsupported};
use meantime_ext4_format::edit::{AttributeList, Full, InodeEdit, set_references};
use meantime_ext4_format::features::compat;
use meantime_ext4_format::inode::flags;
use meantime_ext4_format::xattr::Value;

/// The longest name, in bytes (`XATTR_NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;
/// The longest value that Linux lets programs set, in bytes (`XATTR_SIZE_MAX`).
const VALUE_BYTES_MAX: usize = 64 << 10;

/// A name as stored: its prefix as a number (`EXT4_XATTR_INDEX_*`), and the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name<'a> {
    pub(super) index: u8,
    pub(super) rest: &'a [u8],
}

const USER: u8 = 1;
const TRUSTED: u8 = 4;
const SECURITY: u8 = 6;

impl<'a> Name<'a> {
    fn of(full: &'a [u8]) -> Result<Self> {
        if full.is_empty() || full.len() > NAME_BYTES_MAX {
            return Err(Error::Range);
        }
        if full.contains(&0) {
            return Err(Error::Invalid("the attribute's name contains a NUL"));
        }
        for (prefix, index) in
            [(&b"user."[..], USER), (b"trusted.", TRUSTED), (b"security.", SECURITY)]
        {
            match full.strip_prefix(prefix) {
                Some([]) => {
                    return Err(Error::Invalid("the attribute's name ends with its prefix"));
                }
                Some(rest) => return Ok(Self { index, rest }),
                None => {}
            }
        }
        match acl::Kind::of_attribute(full) {
            Some(kind) => Ok(kind.name()),
            None => Err(Error::Unsupported(Unsupported {
                what: format!("attribute {}", full.escape_ascii()),
                advice: "names of ext4's attributes begin with user., trusted. or security.",
            })),
        }
    }
}

/// Checks that Linux would let a fully privileged caller change attribute `name` of `inode`.
fn check_permitted(inode: &InodeEdit, name: Name<'_>) -> Result<()> {
    let plain = matches!(inode.file_type(), Some(FileType::Regular | FileType::Directory));
    if inode.flags() & (flags::IMMUTABLE | flags::APPEND) != 0 || (name.index == USER && !plain) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// Sets attribute `name` (the full name, such as `user.x`) of `inode` to `value`, as `setxattr`
/// does. The caller [stores](Handle::store_inode) the inode.
///
/// An access ACL that says no more than a mode becomes that mode.
///
/// # Errors
/// [`Error::Exists`] and [`Error::NoAttribute`] according to `how`; [`Error::NoSpace`] if the
/// attributes do not fit into the inode and one block, or no block is free; [`Error::Range`] if the
/// name is too long; [`Error::TooBig`] if the value is; [`Error::NotPermitted`] for `user.` on
/// anything but files and directories, and for inodes that must not be changed;
/// [`Error::Unsupported`] for other names, and if the old value is stored in an inode of its own;
/// damage, or a device error.
pub fn set(
    handle: &mut AllocHandle<'_, '_>,
    inode: &mut InodeEdit,
    name: &[u8],
    value: &[u8],
    how: SetAttribute,
) -> Result<()> {
    let stored_name = Name::of(name)?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::TooBig);
    }
    check_permitted(inode, stored_name)?;
    match acl::Kind::of_attribute(name) {
        Some(kind) => acl::set_attribute(handle, inode, kind, value)?,
        None => store(handle, inode, stored_name, Some(value), how)?,
    }
    inode.set_changed(handle.now());
    Ok(())
}

/// Removes attribute `name` (the full name) from `inode`. The caller [stores](Handle::store_inode)
/// the inode.
///
/// # Errors
/// [`Error::NoAttribute`] if there is no such attribute, and the errors of [`set`].
pub fn remove(handle: &mut AllocHandle<'_, '_>, inode: &mut InodeEdit, name: &[u8]) -> Result<()> {
    let stored_name = Name::of(name)?;
    check_permitted(inode, stored_name)?;
    let removed = store(handle, inode, stored_name, None, SetAttribute::Replace);
    match (removed, acl::Kind::of_attribute(name)) {
        // Linux treats removing an absent ACL as success.
        (Err(Error::NoAttribute), Some(_)) => {}
        (result, _) => result?,
    }
    inode.set_changed(handle.now());
    Ok(())
}

/// The attribute block of an inode.
struct AttributeBlock {
    number: u64,
    list: AttributeList,
    /// The number of inodes that share the block, including this one.
    references: u32,
}

fn wrong(inode: &InodeEdit, block: Option<u64>) -> Error {
    let corruption = Corruption::new(Defect::Attribute).in_inode(inode.ino());
    block.map_or(corruption, |block| corruption.in_block(block)).into()
}

/// Returns the attributes in `inode`'s body, or `None` if the body has no room for any.
fn body_list(inode: &mut InodeEdit) -> Result<Option<AttributeList>> {
    if inode.extra_bytes() == 0 {
        return Ok(None);
    }
    let list = AttributeList::in_inode(inode.body());
    list.map(Some).map_err(|_| wrong(inode, None))
}

fn block_of(handle: &Handle<'_>, inode: &InodeEdit) -> Result<Option<AttributeBlock>> {
    let number = inode.attribute_block(handle.superblock());
    if number == 0 {
        return Ok(None);
    }
    let content = handle.volume().attribute_block(inode.ino(), number)?;
    let (list, references) =
        AttributeList::in_block(&content).map_err(|_| wrong(inode, Some(number)))?;
    if references == 0 {
        return Err(wrong(inode, Some(number)));
    }
    Ok(Some(AttributeBlock { number, list, references }))
}

/// Returns the stored value of attribute `name` of `inode`, or `None` if there is none.
pub(super) fn stored(
    handle: &Handle<'_>,
    inode: &mut InodeEdit,
    name: Name<'_>,
) -> Result<Option<Vec<u8>>> {
    let body = body_list(inode)?.unwrap_or_default();
    let block = block_of(handle, inode)?.map(|block| block.list).unwrap_or_default();
    match body.find(name.index, name.rest).or_else(|| block.find(name.index, name.rest)) {
        Some(Value::Here(value)) => Ok(Some(value.clone())),
        Some(Value::Inode { .. }) => Err(value_inode()),
        None => Ok(None),
    }
}

fn value_inode() -> Error {
    Error::Unsupported(Unsupported {
        what: "changing an attribute whose value has an inode of its own (ea_inode)".to_owned(),
        advice: "change it with Linux",
    })
}

/// Sets attribute `name` to `value`, or removes it if `value` is `None`. A value goes into the
/// inode's body if it fits, otherwise into the attribute block.
pub(super) fn store(
    handle: &mut AllocHandle<'_, '_>,
    inode: &mut InodeEdit,
    name: Name<'_>,
    value: Option<&[u8]>,
    how: SetAttribute,
) -> Result<()> {
    let Name { index, rest } = name;
    if !handle.superblock().features().has_compat(compat::EXT_ATTR) {
        return Err(Error::Unsupported(Unsupported {
            what: "attributes on a file system without feature ext_attr".to_owned(),
            advice: "add it with tune2fs -O ext_attr",
        }));
    }
    let mut body = body_list(inode)?;
    let mut block = block_of(handle, inode)?;
    let in_body = body.as_ref().and_then(|list| list.find(index, rest));
    let in_block = block.as_ref().and_then(|block| block.list.find(index, rest));
    match (in_body.or(in_block), how) {
        (Some(Value::Inode { .. }), _) => return Err(value_inode()),
        (Some(_), SetAttribute::Create) => return Err(Error::Exists),
        (None, SetAttribute::Replace) => return Err(Error::NoAttribute),
        _ => {}
    }
    let (in_body, in_block) = (in_body.is_some(), in_block.is_some());

    if let (Some(list), Some(value)) = (&mut body, value) {
        let mut with = list.clone();
        with.put(index, rest, value);
        if with.write_to_inode(inode.body()) == Ok(()) {
            if let Some(block) = block.as_mut().filter(|_| in_block) {
                block.list.take(index, rest);
                write_block(handle, inode, block)?;
            }
            return Ok(());
        }
    }
    if let Some(value) = value {
        let goes_on = block.get_or_insert(AttributeBlock {
            number: 0,
            list: AttributeList::default(),
            references: 1,
        });
        goes_on.list.put(index, rest, value);
        write_block(handle, inode, goes_on)?;
    } else if let Some(block) = block.as_mut().filter(|_| in_block) {
        block.list.take(index, rest);
        write_block(handle, inode, block)?;
    }
    if let Some(list) = body.as_mut().filter(|_| in_body) {
        list.take(index, rest);
        list.write_to_inode(inode.body()).map_err(|Full| wrong(inode, None))?;
    }
    Ok(())
}

/// Writes a changed list to its block. Allocates a block if `block.number` is 0, copies a shared
/// block, and releases the block if the list is empty.
fn write_block(
    handle: &mut AllocHandle<'_, '_>,
    inode: &mut InodeEdit,
    block: &mut AttributeBlock,
) -> Result<()> {
    if block.list.is_empty() {
        return release_block(handle, inode, block);
    }
    let mut content = vec![0; handle.volume().block_bytes()];
    let shared = block.references > 1;
    if block.number != 0 && !shared {
        let written = block.list.write_to_block(handle.superblock(), block.number, 1, &mut content);
        written.map_err(|Full| Error::NoSpace)?;
        handle.edit(block.number)?.copy_from_slice(&content);
        return Ok(());
    }
    // Check that the list fits before a block is allocated.
    block
        .list
        .write_to_block(handle.superblock(), 0, 1, &mut content)
        .map_err(|Full| Error::NoSpace)?;
    let number = handle.allocator.blocks(handle, Want::metadata(inode.ino(), None))?.start;
    let written = block.list.write_to_block(handle.superblock(), number, 1, &mut content);
    written.map_err(|Full| Error::NoSpace)?;
    handle.create(number)?.copy_from_slice(&content);
    let superblock = handle.superblock().clone();
    if shared {
        set_references(&superblock, block.number, block.references - 1, handle.edit(block.number)?);
    } else {
        inode.set_blocks(&superblock, inode.blocks(&superblock) + 1);
    }
    inode.set_attribute_block(number);
    Ok(())
}

/// Detaches `inode` from its attribute block, and frees the block with the last reference.
fn release_block(
    handle: &mut AllocHandle<'_, '_>,
    inode: &mut InodeEdit,
    block: &AttributeBlock,
) -> Result<()> {
    let superblock = handle.superblock().clone();
    if block.references > 1 {
        set_references(&superblock, block.number, block.references - 1, handle.edit(block.number)?);
    } else {
        handle.forget(block.number);
        handle.allocator.free_blocks(handle, block.number..block.number + 1)?;
    }
    let blocks = inode.blocks(&superblock).checked_sub(1);
    let blocks = blocks.ok_or_else(|| Corruption::new(Defect::BlockCount).in_inode(inode.ino()))?;
    inode.set_blocks(&superblock, blocks);
    inode.set_attribute_block(0);
    Ok(())
}

/// Checks that the attributes of an inode can be [released](release). Callers ask before they
/// remove its last name.
///
/// # Errors
/// [`Error::Unsupported`] if a value is stored in an inode of its own; damage, or a device error.
pub fn check_releasable(handle: &Handle<'_>, inode: &mut InodeEdit) -> Result<()> {
    let body = body_list(inode)?.unwrap_or_default();
    let block = block_of(handle, inode)?;
    // A shared block keeps its values.
    let last = block.filter(|block| block.references == 1);
    if body.has_value_inodes() || last.is_some_and(|block| block.list.has_value_inodes()) {
        return Err(value_inode());
    }
    Ok(())
}

/// Removes all attributes of `inode`, which is being deleted. The caller
/// [stores](Handle::store_inode) the inode.
///
/// # Errors
/// The errors of [`check_releasable`].
pub fn release(handle: &mut AllocHandle<'_, '_>, inode: &mut InodeEdit) -> Result<()> {
    check_releasable(handle, inode)?;
    if let Some(block) = block_of(handle, inode)? {
        release_block(handle, inode, &block)?;
    }
    if inode.extra_bytes() != 0 {
        inode.body().fill(0);
    }
    Ok(())
}
