//! Checks whether a recovered tree is allowed.

use std::collections::{BTreeMap, BTreeSet};

use super::Model;
use super::data::value;
use super::moment::{Content, Moment};
use crate::tree::{Inode, Kind, Tree};

impl Model {
    /// Checks that `tree` may be found after a crash when `begun` operations had begun and
    /// `returned` of them had returned. Returns the prefix that it corresponds to, or why there is
    /// none.
    pub(crate) fn check(
        &self,
        tree: &Tree,
        begun: usize,
        returned: usize,
    ) -> Result<usize, String> {
        let floor = self.synced[..=returned].iter().map(|synced| synced.floor).max().unwrap_or(0);
        let mut why = Vec::new();
        // The newest first, because it is the most frequent.
        for prefix in (floor..=begun).rev() {
            match self.check_prefix(tree, prefix, begun, returned) {
                Ok(()) => return Ok(prefix),
                Err(reason) => why.push(format!("not the state after {prefix}: {reason}")),
            }
        }
        let most = why.len().min(12);
        Err(format!(
            "{begun} begun, {returned} returned, {floor} synced: {}",
            why[..most].join("; ")
        ))
    }

    fn check_prefix(
        &self,
        tree: &Tree,
        prefix: usize,
        begun: usize,
        returned: usize,
    ) -> Result<(), String> {
        let moment = &self.moments[prefix];
        let expected: Vec<&str> = moment.names.keys().map(String::as_str).collect();
        let found: Vec<&str> = tree.names.keys().map(String::as_str).collect();
        if expected != found {
            return Err(format!("names {found:?}, not {expected:?}"));
        }
        let mut inodes: BTreeMap<u32, u64> = BTreeMap::new();
        for (name, object) in &moment.names {
            let ino = tree.names[name];
            if *inodes.entry(*object).or_insert(ino) != ino {
                return Err(format!("{name}: another inode than its other names"));
            }
        }
        let distinct: BTreeSet<u64> = inodes.values().copied().collect();
        if distinct.len() != inodes.len() {
            return Err("one inode for two files".into());
        }
        for (name, object) in &moment.names {
            let inode = &tree.inodes[&tree.names[name]];
            self.check_object(moment, *object, inode, prefix, begun, returned)
                .map_err(|why| format!("{name:?}: {why}"))?;
        }
        Ok(())
    }

    fn check_object(
        &self,
        moment: &Moment,
        number: u32,
        inode: &Inode,
        prefix: usize,
        begun: usize,
        returned: usize,
    ) -> Result<(), String> {
        let object = &moment.objects[&number];
        let links = moment.links(number);
        if inode.links != links {
            return Err(format!("{} links, not {links}", inode.links));
        }
        if inode.mode != object.mode {
            return Err(format!("mode {:o}, not {:o}", inode.mode, object.mode));
        }
        let attribute = object.attribute.map(value);
        if inode.attribute != attribute {
            let bytes = |value: &Option<Vec<u8>>| value.as_ref().map(Vec::len);
            return Err(format!(
                "attribute of {:?} bytes, not {:?}",
                bytes(&inode.attribute),
                bytes(&attribute)
            ));
        }
        match (&object.content, &inode.kind) {
            (Content::Directory, Kind::Directory) => Ok(()),
            (Content::Symlink(target), Kind::Symlink(found)) if target.as_bytes() == found => {
                Ok(())
            }
            (Content::File(data), Kind::File(found)) => {
                let mut data = data.clone();
                // Later writes may be there. Synced ones must be, even if the state is an older
                // one: a data sync does not make earlier changes of other metadata durable.
                for later in prefix..=begun {
                    if later > prefix {
                        for effect in
                            self.effects[later].iter().filter(|effect| effect.object == number)
                        {
                            data.may_be(effect.range.clone(), effect.id);
                        }
                    }
                    let Content::File(then) = &self.moments[later].objects[&number].content else {
                        continue;
                    };
                    let synced = self.synced[..=returned]
                        .get(later)
                        .map_or(&[][..], |synced| &synced.objects);
                    synced
                        .iter()
                        .filter(|(of, _)| *of == number)
                        .for_each(|(_, range)| data.sync(then, range));
                }
                data.check(found)
            }
            _ => Err("of another kind".into()),
        }
    }
}
