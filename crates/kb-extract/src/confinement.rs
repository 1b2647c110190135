//! What the program takes from itself before it reads a file: memory, time, files, network, other programs.

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

/// Confines this process and all threads that it starts later. Files that are open stay open.
///
/// System calls that are not needed to compute fail with EPERM, so that a library which asks for one does
/// without it. Where the kernel has landlock, no file can be opened or changed either.
pub fn enter(memory: u64) -> Result<(), Box<dyn Error>> {
    limit(Resource::As, memory)?;
    // Without rules, a ruleset denies all that it handles. It does nothing where the kernel has no landlock.
    Ruleset::default().handle_access(AccessFs::from_all(ABI::V5))?.create()?.restrict_self()?;
    enter_all(BTreeMap::new())
}

/// The same, but files in the current directory, and in those beneath it, can be opened to be read.
///
/// Files that are mapped are not counted as memory: the kernel can read them again. Returns an error where
/// the kernel has no landlock, because links could lead anywhere there.
pub fn enter_directory(memory: u64) -> Result<(), Box<dyn Error>> {
    limit(Resource::Data, memory)?;
    let here = PathBeneath::new(PathFd::new(".")?, AccessFs::ReadFile | AccessFs::ReadDir);
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let ruleset = ruleset.handle_access(AccessFs::from_all(ABI::V1)).map_err(|_| NO_LANDLOCK)?;
    let ruleset = ruleset.set_compatibility(CompatLevel::BestEffort);
    let ruleset = ruleset.handle_access(AccessFs::from_all(ABI::V5))?.create()?.add_rule(here)?;
    ruleset.restrict_self()?;
    let to_read = SeccompCondition::new(
        2,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq((libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64),
        libc::O_RDONLY as u64,
    )?;
    let mut calls: BTreeMap<i64, Vec<SeccompRule>> = READING.iter().map(|call| (*call, Vec::new())).collect();
    calls.insert(libc::SYS_openat, vec![SeccompRule::new(vec![to_read])?]);
    enter_all(calls)
}

const NO_LANDLOCK: &str = "repositories are read only where the kernel has landlock (Linux 5.13 or later)";

/// `calls`: system calls that are allowed in addition.
fn enter_all(mut calls: BTreeMap<i64, Vec<SeccompRule>>) -> Result<(), Box<dyn Error>> {
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, 0)?;
    calls.extend(ALLOWED.iter().map(|call| (*call, Vec::new())));
    let filter = SeccompFilter::new(
        calls,
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

/// To find files, and to read them.
const READING: &[i64] = &[
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_newfstatat,
    libc::SYS_pread64,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_statx,
];
