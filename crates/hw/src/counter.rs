//! The processor's counter of time: the time stamp counter of x86-64, the generic timer of AArch64.

#![expect(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod arch {
    /// The kernel's name for the counter as a clock source.
    const CLOCKSOURCE: &str = "tsc";

    #[inline(always)]
    pub(crate) fn ticks() -> u64 {
        // SAFETY: RDTSC has no memory effect; Linux leaves CR4.TSD clear unless a process asks for
        // the opposite of itself.
        unsafe { core::arch::x86_64::_rdtsc() }
    }

    /// LFENCE: no later instruction begins before every earlier one has completed (Intel SDM vol.
    /// 2; AMD since Linux sets DE_CFG bit 1, which it does on every CPU that has it).
    #[inline(always)]
    pub(crate) fn fence_instructions() {
        #[allow(unused_unsafe)]
        // SAFETY: LFENCE is part of SSE2, which every x86-64 CPU has, and changes nothing.
        unsafe {
            core::arch::x86_64::_mm_lfence();
        }
    }

    /// Whether the counter runs at one rate in every power state (AMD64 APM vol. 3, CPUID
    /// Fn8000_0007_EDX bit 8) and the kernel still trusts it.
    pub(crate) fn is_invariant() -> bool {
        use core::arch::x86_64::__cpuid;
        // `__cpuid` is unsafe in older toolchains; every x86-64 CPU has it.
        #[allow(unused_unsafe)]
        // SAFETY: CPUID exists on every x86-64 CPU, and leaf 0x8000_0007 is read only if leaf
        // 0x8000_0000 says it exists.
        let invariant = unsafe {
            __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
        };
        let path = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
        // The kernel removes `tsc` from this list once its watchdog has found it unstable. Without
        // sysfs, trust the CPU.
        let trusted = std::fs::read_to_string(path)
            .map_or(true, |list| list.split_whitespace().any(|s| s == CLOCKSOURCE));
        invariant && trusted
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    use core::arch::asm;

    #[inline(always)]
    pub(crate) fn ticks() -> u64 {
        let ticks;
        // SAFETY: it reads CNTVCT_EL0, which Linux lets user space read (CNTKCTL_EL1.EL0VCTEN;
        // where a CPU's erratum forbids it, the kernel emulates the instruction). It touches no
        // memory.
        unsafe {
            asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags))
        };
        ticks
    }

    /// DSB waits for earlier memory accesses, ISB for earlier instructions; without it the counter
    /// may be read early (Arm ARM, "Reads of the counter").
    #[inline(always)]
    pub(crate) fn fence_instructions() {
        // SAFETY: barriers change nothing; the compiler takes the block for one that touches
        // memory, so that it moves no access over it.
        unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
    }

    /// The architecture fixes the counter's rate.
    pub(crate) fn is_invariant() -> bool {
        true
    }
}

pub(crate) use arch::{fence_instructions, is_invariant, ticks};
