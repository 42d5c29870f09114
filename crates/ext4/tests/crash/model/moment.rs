//! The tree at one moment.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Fail;
use super::data::Data;

#[derive(Debug, Clone)]
pub(super) enum Content {
    Directory,
    Symlink(String),
    File(Data),
}

#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) content: Content,
    pub(super) mode: u16,
    pub(super) attribute: Option<usize>,
    /// The last operation that changed it, from 1 on; and the last that changed what a data sync
    /// must write.
    pub(super) touched: usize,
    pub(super) data_touched: usize,
}

/// The tree after an operation.
#[derive(Debug, Clone, Default)]
pub(super) struct Moment {
    /// All paths; the root is "".
    pub(super) names: BTreeMap<String, u32>,
    pub(super) objects: BTreeMap<u32, Object>,
}

fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(parent, _)| parent)
}

impl Moment {
    pub(super) fn look_up(&self, name: &str) -> Result<u32, Fail> {
        let mut at = String::new();
        for part in name.split('/') {
            let above = self.names.get(&at).ok_or(Fail::NotFound)?;
            self.has_names(*above)?;
            if !at.is_empty() {
                at.push('/');
            }
            at.push_str(part);
        }
        self.names.get(&at).copied().ok_or(Fail::NotFound)
    }

    /// The directory in which `name` is to be created.
    pub(super) fn parent_of(&self, name: &str) -> Result<u32, Fail> {
        let above = parent(name);
        let dir = if above.is_empty() { self.names[""] } else { self.look_up(above)? };
        self.has_names(dir).map(|()| dir)
    }

    /// Checks that a path can continue after `object`.
    fn has_names(&self, object: u32) -> Result<(), Fail> {
        match self.objects[&object].content {
            Content::Directory => Ok(()),
            Content::File(_) => Err(Fail::NotDirectory),
            // The targets of these links never exist.
            Content::Symlink(_) => Err(Fail::NotFound),
        }
    }

    pub(super) fn file(&mut self, name: &str) -> Result<(u32, &mut Data), Fail> {
        let object = self.look_up(name)?;
        match &mut self.objects.get_mut(&object).expect("an object").content {
            Content::File(data) => Ok((object, data)),
            Content::Directory => Err(Fail::IsDirectory),
            Content::Symlink(_) => Err(Fail::Other),
        }
    }

    pub(super) fn sync(&mut self, objects: &[(u32, Range<u64>)]) {
        for (object, range) in objects {
            if let Content::File(data) =
                &mut self.objects.get_mut(object).expect("an object").content
            {
                let then = data.clone();
                data.sync(&then, range);
            }
        }
    }

    pub(super) fn is_directory(&self, object: u32) -> bool {
        matches!(self.objects[&object].content, Content::Directory)
    }

    pub(super) fn children(&self, name: &str) -> Vec<String> {
        let prefix = format!("{name}/");
        self.names.keys().filter(|key| key.starts_with(&prefix)).cloned().collect()
    }

    pub(super) fn touch(&mut self, objects: &[u32], op: usize, data: bool) {
        for object in objects {
            let object = self.objects.get_mut(object).expect("an object");
            object.touched = op;
            if data {
                object.data_touched = op;
            }
        }
    }

    /// Removes a name and all names below it, and returns them with their new names.
    pub(super) fn moved(&mut self, from: &str, to: &str) -> Vec<(String, u32)> {
        let mut all = self.children(from);
        all.push(from.to_owned());
        all.into_iter()
            .map(|name| {
                let object = self.names.remove(&name).expect("a name");
                (format!("{to}{}", &name[from.len()..]), object)
            })
            .collect()
    }

    pub(super) fn links(&self, object: u32) -> u32 {
        let names = self.names.iter().filter(|(_, other)| **other == object).map(|(name, _)| name);
        if !self.is_directory(object) {
            return names.count() as u32;
        }
        let name = names.clone().next().expect("a directory has a name");
        let depth = |name: &str| if name.is_empty() { 0 } else { name.split('/').count() };
        let is_sub = |(other, child): &(&String, &u32)| {
            self.is_directory(**child)
                && depth(other) == depth(name) + 1
                && (name.is_empty() || other.starts_with(&format!("{name}/")))
        };
        2 + self.names.iter().filter(is_sub).count() as u32
    }
}
