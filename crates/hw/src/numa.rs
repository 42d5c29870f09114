//! NUMA nodes: their CPUs, and memory policies.

#![expect(unsafe_code)]

use std::io;
use std::path::Path;

/// The kernel's directory of nodes.
const NODES: &str = "/sys/devices/system/node";

/// The most nodes in any kernel configuration.
const NODES_MAX: usize = 1024;
const WORD_BITS: usize = libc::c_ulong::BITS as usize;
type Mask = [libc::c_ulong; NODES_MAX / WORD_BITS];

/// The nodes that a thread's memory comes from (`set_mempolicy(2)`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemPolicy {
    /// The process's policy.
    Default,
    /// From the node whose CPU the thread runs on.
    Local,
    /// From this node, while it has free memory.
    Prefer(u32),
    /// From these nodes only.
    Bind(Vec<u32>),
    /// From these nodes in turn, page by page.
    Interleave(Vec<u32>),
}

impl MemPolicy {
    /// The nodes that it names.
    pub fn nodes(&self) -> &[u32] {
        match self {
            Self::Default | Self::Local => &[],
            Self::Prefer(node) => std::slice::from_ref(node),
            Self::Bind(nodes) | Self::Interleave(nodes) => nodes,
        }
    }

    /// Sets the policy of the calling thread for memory that it touches first.
    ///
    /// # Errors
    /// A node does not exist, has no memory, or is not in this process's cpuset.
    pub fn set_for_this_thread(&self) -> io::Result<()> {
        let mode = match self {
            Self::Default => libc::MPOL_DEFAULT,
            Self::Local => libc::MPOL_LOCAL,
            Self::Prefer(_) => libc::MPOL_PREFERRED,
            Self::Bind(_) => libc::MPOL_BIND,
            Self::Interleave(_) => libc::MPOL_INTERLEAVE,
        };
        let mut mask: Mask = [0; NODES_MAX / WORD_BITS];
        for node in self.nodes() {
            let node = *node as usize;
            let Some(word) = mask.get_mut(node / WORD_BITS) else {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            };
            *word |= 1 << (node % WORD_BITS);
        }
        set(mode, &mask)
    }

    /// Sets the policy of the calling thread until the result is dropped.
    ///
    /// # Errors
    /// As [`MemPolicy::set_for_this_thread`].
    pub fn hold(&self) -> io::Result<MemPolicyHeld> {
        let (mut mode, mut mask): (libc::c_int, Mask) = (0, [0; NODES_MAX / WORD_BITS]);
        // SAFETY: the kernel writes an int and a mask of NODES_MAX bits, both of which live here;
        // without flags the address is not looked at.
        let result = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut mode,
                mask.as_mut_ptr(),
                NODES_MAX,
                0usize,
                0usize,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        self.set_for_this_thread()?;
        Ok(MemPolicyHeld { mode, mask, _of_this_thread: std::marker::PhantomData })
    }
}

/// A policy in force; dropping it restores the former one.
#[derive(Debug)]
pub struct MemPolicyHeld {
    mode: libc::c_int,
    mask: Mask,
    /// It must be dropped on its own thread.
    _of_this_thread: std::marker::PhantomData<*const ()>,
}

impl Drop for MemPolicyHeld {
    fn drop(&mut self) {
        if let Err(error) = set(self.mode, &self.mask) {
            tracing::error!("the thread's memory policy cannot be given back: {error}");
        }
    }
}

fn set(mode: libc::c_int, mask: &Mask) -> io::Result<()> {
    // The kernel uses one bit less than this number.
    let bits = if mask.iter().all(|word| *word == 0) { 0 } else { NODES_MAX + 1 };
    let nodes = if bits == 0 { std::ptr::null() } else { mask.as_ptr() };
    // SAFETY: the kernel reads NODES_MAX bits of the mask, which has them, or none.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, nodes, bits) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The numbers of a list such as `0-1,4`.
fn list(text: &str) -> Vec<usize> {
    let parts = text.trim().split(',').filter_map(|part| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse::<usize>().ok()?..=to.parse().ok()?)
    });
    parts.flatten().collect()
}

/// The nodes that are online. A kernel without NUMA has only node 0.
pub fn nodes() -> Vec<usize> {
    std::fs::read_to_string(Path::new(NODES).join("online"))
        .map_or_else(|_| vec![0], |text| list(&text))
}

/// The CPUs of `node`; `None` if the node does not exist.
pub fn cpus_of(node: usize) -> Option<Vec<usize>> {
    match std::fs::read_to_string(Path::new(NODES).join(format!("node{node}/cpulist"))) {
        Ok(text) => Some(list(&text)),
        Err(_) if node == 0 && !Path::new(NODES).exists() => Some(super::cpu::allowed()),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_the_kernel_s() {
        assert_eq!(list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(list("\n"), [0usize; 0]);
        assert_eq!(list("7"), [7]);
    }

    #[test]
    fn a_node_has_cpus_and_a_missing_node_has_none() {
        let node = nodes()[0];
        let cpus = cpus_of(node).expect("it is online");
        assert!(
            super::super::cpu::allowed().iter().all(|cpu| nodes().len() > 1 || cpus.contains(cpu))
        );
        assert_eq!(cpus_of(NODES_MAX), None);
    }

    /// This thread's policy as reported by the kernel.
    fn told() -> String {
        let maps =
            std::fs::read_to_string("/proc/thread-self/numa_maps").expect("a kernel with NUMA");
        // A mapping without its own policy has the thread's.
        maps.lines().find_map(|line| line.split(' ').nth(1)).expect("a mapping").to_owned()
    }

    #[test]
    fn a_policy_is_the_thread_s_own_and_given_back() {
        let node = nodes()[0] as u32;
        std::thread::spawn(move || {
            assert_eq!(told(), "default");
            {
                let _held = MemPolicy::Bind(vec![node]).hold().expect("a node of this machine");
                assert_eq!(told(), format!("bind:{node}"));
                MemPolicy::Interleave(vec![node]).set_for_this_thread().expect("the same node");
                assert_eq!(told(), format!("interleave:{node}"));
            }
            assert_eq!(told(), "default");
            MemPolicy::Prefer(node).set_for_this_thread().expect("the same node");
            assert_eq!(told(), format!("prefer:{node}"));
            MemPolicy::Local.set_for_this_thread().expect("needs no node");
            assert_eq!(told(), "local");
            MemPolicy::Default.set_for_this_thread().expect("needs no node");
            for policy in [MemPolicy::Bind(vec![1023]), MemPolicy::Prefer(5000)] {
                assert!(policy.set_for_this_thread().is_err(), "{policy:?}");
                assert!(policy.hold().is_err(), "{policy:?}");
            }
            assert_eq!(told(), "default");
        })
        .join()
        .expect("no panic");
    }
}
