//! What the program takes from itself before it reads a file: memory, time, files, network, other programs.

use landlock::{ABI, Access, AccessFs, Ruleset, RulesetAttr};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

/// Confines this process and all threads that it starts later. Files that are open stay open.
///
/// System calls that are not needed to compute fail with EPERM, so that a library which asks for one does
/// without it. Where the kernel has landlock, no file can be opened or changed either.
pub fn enter(memory: u64) -> Result<(), Box<dyn Error>> {
    limit(Resource::As, memory)?;
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, 0)?;
    // Without rules, a ruleset denies all that it handles. It does nothing where the kernel has no landlock.
    let files = Ruleset::default().handle_access(AccessFs::from_all(ABI::V5))?.create()?;
    files.restrict_self()?;
    let filter = SeccompFilter::new(
        ALLOWED.iter().map(|call| (*call, Vec::new())).collect::<BTreeMap<_, _>>(),
        SeccompAction::Errno(libc::EPERM as u32),
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?;
    seccompiler::apply_filter(&BpfProgram::try_from(filter)?)?;
    Ok(())
}

/// Lets this process compute for so many seconds from now. Then the kernel ends it by SIGXCPU.
pub fn allow_seconds(seconds: u64) -> Result<(), Box<dyn Error>> {
    let used = Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime))?;
    let hard = getrlimit(Resource::Cpu).maximum;
    setrlimit(Resource::Cpu, Rlimit { current: Some(used.as_secs() + seconds), maximum: hard })?;
    Ok(())
}

fn limit(resource: Resource, to: u64) -> rustix::io::Result<()> {
    let to = getrlimit(resource).maximum.map_or(to, |most| most.min(to));
    setrlimit(resource, Rlimit { current: Some(to), maximum: Some(to) })
}

/// Memory, threads, time, random numbers, and the files that are open.
const ALLOWED: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_getrlimit,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_prlimit64,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_setrlimit,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_write,
    libc::SYS_writev,
];
