use super::*;

fn given(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut given = GIVEN_VERSION.to_vec();
    for (tag, permissions, id) in entries {
        given.extend(tag.to_le_bytes());
        given.extend(permissions.to_le_bytes());
        given.extend(id.to_le_bytes());
    }
    given
}

const NOBODY: u32 = u32::MAX;

#[test]
fn lists_are_stored_shorter_than_they_are_given() {
    let plain = given(&[(1, 7, NOBODY), (4, 5, NOBODY), (0x20, 4, NOBODY)]);
    let mut acl = Acl::from_given(&plain).unwrap().unwrap();
    assert_eq!((acl.mode(), acl.is_extended()), (0o754, false));
    let named = [
        (1, 6, NOBODY),
        (2, 7, 1000),
        (4, 5, NOBODY),
        (8, 3, 5),
        (0x10, 6, NOBODY),
        (0x20, 4, NOBODY),
    ];
    let named = given(&named);
    let mut acl = Acl::from_given(&named).unwrap().unwrap();
    assert_eq!((acl.mode(), acl.is_extended()), (0o664, true));
    let stored = acl.to_stored();
    assert_eq!(stored.len(), 4 + 4 * 4 + 2 * 8);
    assert_eq!(Acl::from_stored(&stored), Some(acl.clone()));
    assert_eq!(meantime_ext4_format::acl_from_disk(&stored).unwrap().unwrap(), named);
    acl.set_mode(0o170);
    assert_eq!(acl.mode(), 0o170);
    acl.restrict(0o430);
    assert_eq!(acl.mode(), 0o030);
}

#[test]
fn lists_that_cannot_be_are_refused() {
    for entries in [
        &[(1, 7, NOBODY), (4, 5, NOBODY)][..],
        &[(4, 5, NOBODY), (1, 7, NOBODY), (0x20, 4, NOBODY)],
        &[(1, 8, NOBODY), (4, 5, NOBODY), (0x20, 4, NOBODY)],
        &[(1, 7, NOBODY), (2, 5, 3), (4, 5, NOBODY), (0x20, 4, NOBODY)],
        &[(1, 7, NOBODY), (2, 5, NOBODY), (4, 5, NOBODY), (0x10, 1, NOBODY), (0x20, 4, NOBODY)],
        &[(1, 7, NOBODY), (4, 5, NOBODY), (0x20, 4, NOBODY), (0x40, 4, NOBODY)],
    ] {
        assert!(matches!(Acl::from_given(&given(entries)), Err(Error::Invalid(_))), "{entries:?}");
    }
    assert!(matches!(Acl::from_given(&[2, 0, 0]), Err(Error::Invalid(_))));
    assert!(matches!(Acl::from_given(&[1, 0, 0, 0]), Err(Error::Unsupported(_))));
    assert_eq!(Acl::from_given(&[2, 0, 0, 0]), Ok(None));
}
