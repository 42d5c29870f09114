//! Executes requests. Each kind has a function.

mod answer;
mod attributes;
pub(crate) mod counts;
mod data;
mod directories;
mod extended;
mod handles;
mod ioctl;
mod kept;
mod lock;
mod names;
pub(crate) mod notice;
pub(crate) mod shared_memory;
mod state;
#[cfg(test)]
mod tests;
mod throttled;
pub(crate) mod worker;

use meantime_ext4::Errno;

use crate::fuse::wire::{BatchForgetIn, ForgetIn, ForgetOne, StatFsOut};
use crate::fuse::{Opcode, Request};
use answer::{Answer, Served};
use state::ino;

pub(crate) use state::{Server, Serving, nodeid};

impl Server {
    /// Executes `request`. The result goes into `answer`.
    fn serve(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let opcode = Opcode::of(request.header.opcode).ok_or(Errno(libc::ENOSYS))?;
        match opcode {
            Opcode::Lookup => self.lookup(request, answer),
            Opcode::Forget => self.forget(request),
            Opcode::BatchForget => self.forget_batch(request),
            Opcode::Symlink => self.symlink(request, answer),
            Opcode::MkNod => self.mknod(request, answer),
            Opcode::MkDir => self.mkdir(request, answer),
            Opcode::Unlink => self.unlink(request),
            Opcode::RmDir => self.rmdir(request),
            Opcode::Rename => self.rename(request),
            Opcode::Rename2 => self.rename2(request),
            Opcode::Link => self.link(request, answer),
            Opcode::Create => self.create(request, answer),
            Opcode::TmpFile => self.tmpfile(request, answer),

            Opcode::GetAttr => self.getattr(request, answer),
            Opcode::SetAttr => self.setattr(request, answer),
            Opcode::Statx => self.statx(request, answer),
            Opcode::ReadLink => self.readlink(request, answer),
            Opcode::StatFs => self.statfs(answer),

            Opcode::Open => self.open(request, answer),
            Opcode::Read => self.read(request, answer),
            Opcode::Write => self.write(request, answer),
            Opcode::Flush => self.flush(request),
            Opcode::Release | Opcode::ReleaseDir => self.release(request),
            Opcode::Fsync => self.fsync(request),
            Opcode::Fallocate => self.fallocate(request, answer),
            Opcode::Lseek => self.lseek(request, answer),
            Opcode::CopyFileRange => self.copy_file_range(request, answer),
            Opcode::SyncFs => Ok(self.fs.sync()?),

            Opcode::OpenDir => self.opendir(request, answer),
            Opcode::ReadDir => self.readdir(request, answer, false),
            Opcode::ReadDirPlus => self.readdir(request, answer, true),
            Opcode::FsyncDir => Ok(self.fs.sync_node(&self.node(request)?)?),

            Opcode::SetXattr => self.setxattr(request),
            Opcode::GetXattr => self.getxattr(request, answer),
            Opcode::ListXattr => self.listxattr(request, answer),
            Opcode::RemoveXattr => self.removexattr(request),
            Opcode::Ioctl => self.ioctl(request, answer),

            // Every request ends by itself.
            Opcode::Interrupt | Opcode::NotifyReply | Opcode::Destroy => Ok(()),
            // The kernel checks permissions, keeps the locks, and does not poll. We have no DAX
            // window, and there is no second INIT.
            Opcode::Access
            | Opcode::GetLk
            | Opcode::SetLk
            | Opcode::SetLkW
            | Opcode::Bmap
            | Opcode::Poll
            | Opcode::SetupMapping
            | Opcode::RemoveMapping
            | Opcode::Init => Err(Errno(libc::ENOSYS)),
        }
    }

    fn forget(&self, request: &mut Request<'_>) -> Served {
        let forget: ForgetIn = request.take()?;
        self.forget_node(request.header.nodeid, forget.nlookup);
        Ok(())
    }

    fn forget_batch(&self, request: &mut Request<'_>) -> Served {
        let batch: BatchForgetIn = request.take()?;
        for _ in 0..batch.count {
            let forget: ForgetOne = request.take()?;
            self.forget_node(forget.nodeid, forget.nlookup);
        }
        Ok(())
    }

    fn forget_node(&self, nodeid: u64, count: u64) {
        // The kernel has dropped the inode. What it caches of it after another look-up is noted
        // then.
        self.lookups.forget_with(ino(nodeid), count, || self.kept.forget(nodeid));
    }

    fn statfs(&self, answer: &mut Answer) -> Result<(), Errno> {
        let usage = self.fs.usage()?;
        answer.put_as(&StatFsOut {
            blocks: usage.blocks,
            bfree: usage.free_blocks,
            bavail: usage.available_blocks,
            files: usage.inodes,
            ffree: usage.free_inodes,
            bsize: usage.block_bytes,
            namelen: 255,
            frsize: usage.block_bytes,
            ..StatFsOut::default()
        })
    }
}
