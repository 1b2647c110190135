//! Starts programs that are not PostgreSQL's.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The number of files that are closed one by one where the kernel cannot close them all at once.
const FILES: i32 = 65_536;

/// Starts a program with pipes to its standard input and output. It has no environment, and none of this
/// process's other files: PostgreSQL opens some that programs would inherit.
pub fn start(program: &Path, arguments: &[String]) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: after the fork, the closure makes system calls only.
    unsafe { command.pre_exec(close_files_on_exec) };
    command.spawn()
}

fn close_files_on_exec() -> io::Result<()> {
    // SAFETY: system calls on descriptors, which may or may not be open.
    unsafe {
        if libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) != 0 {
            for file in 3..FILES {
                libc::fcntl(file, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
    }
    Ok(())
}
