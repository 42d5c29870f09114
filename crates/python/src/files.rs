//! Files of an ext4 file system.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use meantime_block::Access;
use meantime_ext4::{
    Advice, Error, File as ExtFile, FileSystem as ExtFileSystem, Metadata, MountOptions, NewNode,
    Node, OpenOptions, Timestamp,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::device::open;
use crate::error::{failed, failed_at, policy};
use crate::memory::Memory;
use crate::owned::{Owned, Slot};

/// The numbers of `stat`: mode, inode, links, uid, gid, size, blocks of 512 bytes, block size, and
/// the times of access, modification and change in ns.
type Stat = (u32, u32, u32, u32, u32, u64, u64, u32, i128, i128, i128);

fn stat_of(metadata: &Metadata) -> Stat {
    let ns =
        |time: Timestamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    (
        metadata.mode.into(),
        metadata.ino,
        metadata.links,
        metadata.uid,
        metadata.gid,
        metadata.size,
        metadata.blocks_512,
        metadata.block_bytes,
        ns(metadata.accessed),
        ns(metadata.modified),
        ns(metadata.changed),
    )
}

/// A mounted file system.
#[pyclass(frozen, weakref, module = "meantime._meantime")]
pub(crate) struct FileSystem {
    fs: Slot<Arc<Owned<ExtFileSystem>>>,
    uri: String,
}

impl FileSystem {
    /// Runs `body` with the interpreter released; its error concerns `path`.
    fn at<T: Send>(
        &self,
        py: Python<'_>,
        path: &Path,
        body: impl FnOnce(&ExtFileSystem) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let fs = self.fs.get()?;
        py.detach(|| body(&fs).map_err(|error| failed_at(&error, path)))
    }
}

/// The directory of the last component of `path`, and its name.
fn place<'p>(fs: &ExtFileSystem, path: &'p Path) -> Result<(Node, &'p OsStr), Error> {
    let name = path.file_name().ok_or(Error::Exists)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = fs.resolve(&fs.root()?, parent.unwrap_or(Path::new("/")), true)?;
    Ok((parent, name))
}

/// A new inode of the user that runs this.
fn new_node(mode: u16) -> NewNode {
    // SAFETY: these calls cannot fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    NewNode { mode, uid, gid, umask: 0 }
}

#[pymethods]
impl FileSystem {
    #[new]
    #[pyo3(signature = (uri, read_only, policy, cache_bytes))]
    fn new(
        py: Python<'_>,
        uri: &str,
        read_only: bool,
        policy: Option<&str>,
        cache_bytes: Option<usize>,
    ) -> PyResult<Self> {
        let policy = policy.map(self::policy).transpose()?;
        let mut options = MountOptions { write: !read_only, policy, ..MountOptions::default() };
        options.cache_bytes = cache_bytes.unwrap_or(options.cache_bytes);
        let access = if read_only { Access::Read } else { Access::ReadWrite };
        let fs = py.detach(|| {
            let device = open(uri, access, false)?;
            ExtFileSystem::mount(device, &options).map_err(failed)
        })?;
        let fs = Slot::new("file system", Arc::new(Owned::new(fs)));
        Ok(Self { fs, uri: uri.to_owned() })
    }

    #[getter]
    fn uri(&self) -> &str {
        &self.uri
    }

    #[getter]
    fn closed(&self) -> bool {
        self.fs.is_closed()
    }

    #[getter]
    fn writable(&self) -> PyResult<bool> {
        Ok(self.fs.get()?.is_writable())
    }

    /// Opens a file; `mode` has the letters of Python's `open`.
    fn open(&self, py: Python<'_>, path: PathBuf, mode: &str) -> PyResult<File> {
        let has = |letters: &[char]| mode.contains(letters);
        let options = OpenOptions {
            read: has(&['r', '+']),
            write: has(&['w', 'a', 'x', '+']),
            append: has(&['a']),
            truncate: has(&['w']),
            ..OpenOptions::default()
        };
        let (create, must_be_new) = (has(&['w', 'a', 'x']), has(&['x']));
        let file = self.at(py, &path, |fs| {
            if !must_be_new {
                match fs.open_with(&path, &options) {
                    Err(Error::NotFound) if create => {}
                    opened => return opened,
                }
            }
            let (parent, name) = place(fs, &path)?;
            match fs.create(&parent, name, &new_node(0o644)) {
                // Another thread was quicker, or the name is a link to nothing.
                Err(Error::Exists) if !must_be_new => fs.open_with(&path, &options),
                node => fs.open_node_with(&node?, &options),
            }
        })?;
        Ok(File { file: Slot::new("file", Arc::new(Owned::new(file))), path })
    }

    /// The names in a directory except `.` and `..`, with inode, and type as in `st_mode`.
    fn names(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<(OsString, u32, u32)>> {
        self.at(py, &path, |fs| {
            let mut names = Vec::new();
            for entry in fs.read_dir(&path)? {
                let entry = entry?;
                if entry.name == "." || entry.name == ".." {
                    continue;
                }
                let file_type = match entry.file_type {
                    Some(file_type) => file_type,
                    None => fs.symlink_metadata(path.join(&entry.name))?.file_type,
                };
                names.push((entry.name, entry.ino, (file_type as u32) << 12));
            }
            Ok(names)
        })
    }

    fn stat(&self, py: Python<'_>, path: PathBuf, follow: bool) -> PyResult<Stat> {
        let get = |fs: &ExtFileSystem| match follow {
            true => fs.metadata(&path),
            false => fs.symlink_metadata(&path),
        };
        Ok(stat_of(&self.at(py, &path, get)?))
    }

    fn mkdir(&self, py: Python<'_>, path: PathBuf, mode: u16) -> PyResult<()> {
        self.at(py, &path, |fs| {
            let (parent, name) = place(fs, &path)?;
            fs.mkdir(&parent, name, &new_node(mode)).map(drop)
        })
    }

    fn unlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.at(py, &path, |fs| fs.remove_file(&path))
    }

    fn rmdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.at(py, &path, |fs| fs.remove_dir(&path))
    }

    fn rename(&self, py: Python<'_>, source: PathBuf, target: PathBuf) -> PyResult<()> {
        self.at(py, &source, |fs| fs.rename(&source, &target))
    }

    fn symlink(&self, py: Python<'_>, target: PathBuf, path: PathBuf) -> PyResult<()> {
        self.at(py, &path, |fs| {
            let (parent, name) = place(fs, &path)?;
            let content = target.as_os_str().as_bytes();
            fs.symlink_at(&parent, name, OsStr::from_bytes(content), &new_node(0o777)).map(drop)
        })
    }

    fn readlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<OsString> {
        Ok(self.at(py, &path, |fs| fs.read_link(&path))?.into_os_string())
    }

    /// Block size, blocks, free blocks, free blocks for users, inodes, free inodes.
    fn usage(&self, py: Python<'_>) -> PyResult<(u32, u64, u64, u64, u64, u64)> {
        let usage = self.at(py, Path::new("/"), ExtFileSystem::usage)?;
        Ok((
            usage.block_bytes,
            usage.blocks,
            usage.free_blocks,
            usage.available_blocks,
            usage.inodes,
            usage.free_inodes,
        ))
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.at(py, Path::new("/"), ExtFileSystem::sync)
    }

    /// Ends the mount; everything is then written.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(fs) = self.fs.close() else { return Ok(()) };
        py.detach(|| {
            let ended = ExtFileSystem::clone(&fs).unmount();
            drop(fs);
            ended.map_err(failed)
        })
    }
}

/// An open file, without a position.
#[pyclass(frozen, weakref, module = "meantime._meantime")]
pub(crate) struct File {
    file: Slot<Arc<Owned<ExtFile>>>,
    path: PathBuf,
}

impl File {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&ExtFile) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let file = self.file.get()?;
        py.detach(|| body(&file).map_err(|error| failed_at(&error, &self.path)))
    }
}

#[pymethods]
impl File {
    #[getter]
    fn size(&self) -> PyResult<u64> {
        Ok(self.file.get()?.size())
    }

    fn stat(&self) -> PyResult<Stat> {
        Ok(stat_of(&self.file.get()?.metadata()))
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let left = self.size()?.saturating_sub(offset);
        let length = length.min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut read = 0;
        let bytes = PyBytes::new_with(py, length, |target| {
            read = self.with(py, |file| file.read_at(target, offset))?;
            Ok(())
        })?;
        // The result is only shorter if the file was truncated meanwhile.
        Ok(if read == length { bytes } else { PyBytes::new(py, &bytes.as_bytes()[..read]) })
    }

    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let mut memory = Memory::writable(buffer)?;
        self.with(py, |file| file.read_at(memory.as_mut_slice(), offset))
    }

    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let memory = Memory::readable(data)?;
        self.with(py, |file| file.write_at(memory.as_slice(), offset))
    }

    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        self.with(py, |file| file.set_len(size))
    }

    /// Starts reading a range into the cache.
    fn will_need(&self, py: Python<'_>, offset: u64, length: u64) -> PyResult<()> {
        self.with(py, |file| file.advise(offset, length.max(1), Advice::WillNeed))
    }

    fn sync(&self, py: Python<'_>, data_only: bool) -> PyResult<()> {
        let sync = |file: &ExtFile| if data_only { file.sync_data() } else { file.sync_all() };
        self.with(py, sync)
    }

    fn close(&self, py: Python<'_>) {
        let file = self.file.close();
        py.detach(|| drop(file));
    }
}
