//! Timed waits in user mode. The core is in a lighter state than spinning: the wait makes no system
//! call and no context switch, and the other hardware thread of the core gets the execution units.
//! Only some CPUs support it.
//!
//! - Intel: TPAUSE (WAITPKG; SDM vol. 2B, "TPAUSE", and vol. 3, IA32_UMWAIT_CONTROL).
//! - AMD: MONITORX and MWAITX with its timer (APM vol. 3, "MONITORX", "MWAITX").
//!
//! Either may end early: by an interrupt, by the operating system's limit
//! (`IA32_UMWAIT_CONTROL[31:2]`; Linux sets 100,000 ticks), or because a hypervisor ignores it. So
//! each is repeated until the counter has reached the deadline, and in the worst case this spins.

#![expect(unsafe_code)]

use super::clock::Clock;
use super::counter::ticks as rdtsc;

/// This CPU's instruction for waiting in user mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UserWait {
    instruction: Instruction,
    /// Ticks of the counter in a nanosecond, times 2³².
    ticks_per_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instruction {
    Tpause,
    Mwaitx,
}

/// The longest single wait by MWAITX, whose timer has 32 bits.
const MWAITX_TICKS_MAX: u64 = u32::MAX as u64;

impl UserWait {
    /// Detects this CPU's support; `None` if there is none, or no time stamp counter to wait by.
    pub(crate) fn detect() -> Option<Self> {
        let instruction = x86::instruction()?;
        Some(Self { instruction, ticks_per_ns: Clock::real().ticks_per_ns()? })
    }

    /// Waits until the time stamp counter has reached `deadline_tsc`. Never returns earlier, unless
    /// the counter restarts (suspend to memory).
    #[inline]
    pub(crate) fn pause_until(&self, deadline_tsc: u64) {
        let start_tsc = rdtsc();
        loop {
            let now_tsc = rdtsc();
            if now_tsc >= deadline_tsc || now_tsc < start_tsc {
                return;
            }
            match self.instruction {
                Instruction::Tpause => x86::tpause(deadline_tsc),
                Instruction::Mwaitx => {
                    x86::mwaitx((deadline_tsc - now_tsc).min(MWAITX_TICKS_MAX) as u32)
                }
            }
        }
    }

    /// Waits for `duration_ns`.
    #[inline]
    pub(crate) fn pause_ns(&self, duration_ns: u64) {
        self.pause_until(rdtsc().saturating_add(self.ticks(duration_ns)));
    }

    /// Converts to ticks of the time stamp counter.
    fn ticks(&self, duration_ns: u64) -> u64 {
        let ticks = (u128::from(duration_ns) * u128::from(self.ticks_per_ns)) >> 32;
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

mod x86 {
    use super::Instruction;

    /// By CPUID: Fn0000_0007_ECX\[5\] (SDM vol. 2A, CPUID, leaf 07H), Fn8000_0001_ECX\[29\] (APM
    /// vol. 3, appendix E).
    pub(super) fn instruction() -> Option<Instruction> {
        use core::arch::x86_64::{__cpuid, __cpuid_count};
        // These are unsafe in older toolchains; every x86-64 CPU has CPUID.
        #[allow(unused_unsafe)]
        // SAFETY: CPUID exists on every x86-64 CPU, and a leaf is read only if leaf 0, or
        // 8000_0000h, says that it exists.
        let (waitpkg, monitorx) = unsafe {
            (
                __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & (1 << 5) != 0,
                __cpuid(0x8000_0000).eax >= 0x8000_0001
                    && __cpuid(0x8000_0001).ecx & (1 << 29) != 0,
            )
        };
        match (waitpkg, monitorx) {
            (true, _) => Some(Instruction::Tpause),
            (false, true) => Some(Instruction::Mwaitx),
            (false, false) => None,
        }
    }

    /// Waits until the counter reaches `deadline_tsc`, or for less.
    #[inline(always)]
    pub(super) fn tpause(deadline_tsc: u64) {
        // SAFETY: called only if CPUID has WAITPKG, at any privilege level (SDM: no fault then,
        // since the register's bits 31:1 are 0; bit 0 = 0 asks for C0.2, which helps the other
        // hardware thread most). It reads EDX:EAX, changes the flags, and touches no memory (what
        // the compiler need not know: a look at a queue stays where it is).
        unsafe {
            core::arch::asm!(
                "tpause {state:e}",
                state = in(reg) 0u32,
                in("eax") deadline_tsc as u32,
                in("edx") (deadline_tsc >> 32) as u32,
                options(nostack),
            );
        }
    }

    /// Waits for `ticks` of the counter, or for less.
    #[inline(always)]
    pub(super) fn mwaitx(ticks: u32) {
        // On its own cache line, so that only a store to that line can wake us early.
        #[repr(align(64))]
        struct Line(#[allow(dead_code)] [u8; 64]);
        let line = Line([0; 64]);
        // SAFETY: called only if CPUID has MONITORX, which any privilege level may use then (APM:
        // #UD otherwise). MONITORX reads, as a load does, a line that is ours; ECX = EDX = 0: no
        // extensions, no hints. MWAITX without an armed monitor is a NOP; ECX[1] = 1 enables the
        // timer, whose ticks, those of the time stamp counter, are in EBX; EAX[7:4] = Fh asks for
        // C0, from which it returns soonest. RBX, which the compiler keeps for itself, is put back.
        // The flags stay as they are.
        unsafe {
            core::arch::asm!(
                "monitorx",
                in("rax") &raw const line,
                in("ecx") 0,
                in("edx") 0,
                options(nostack, preserves_flags),
            );
            core::arch::asm!(
                "xchg rbx, {ticks}",
                "mwaitx",
                "xchg rbx, {ticks}",
                ticks = inout(reg) u64::from(ticks) => _,
                in("eax") 0xf0,
                in("ecx") 2,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_kernel_about_the_cpu() {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = text.lines().find(|line| line.starts_with("flags")).unwrap();
        let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
        // Linux clears `waitpkg` and `mwaitx` only in its own list, if told to; a CPU without the
        // instructions has none.
        match x86::instruction() {
            Some(Instruction::Tpause) => assert!(has("waitpkg") || !has("mwaitx")),
            Some(Instruction::Mwaitx) => assert!(!has("waitpkg")),
            None => assert!(!has("waitpkg") && !has("mwaitx")),
        }
    }

    #[test]
    fn waits_to_the_deadline_and_not_less() {
        let Some(wait) = UserWait::detect() else { return };
        for duration_ns in [0, 1, 1_000, 200_000] {
            let from = rdtsc();
            wait.pause_ns(duration_ns);
            assert!(rdtsc() - from >= wait.ticks(duration_ns), "{duration_ns}");
        }
        // A deadline in the past.
        wait.pause_until(0);
    }

    /// By hand: at 2.5 GHz a microsecond is 2,500 ticks.
    #[test]
    fn a_time_is_converted_to_ticks() {
        let wait = UserWait { instruction: Instruction::Tpause, ticks_per_ns: (5 << 32) / 2 };
        assert_eq!((wait.ticks(0), wait.ticks(1_000), wait.ticks(u64::MAX)), (0, 2_500, u64::MAX));
    }
}
