//! Starts programs that are not PostgreSQL's.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The number of files that are closed one by one where the kernel cannot close them all at once.
const FILES: i32 = 65_536;

/// Starts a program with pipes to its standard input and output. It has no environment, and none of this
/// process's other files: PostgreSQL opens some that programs would inherit. Its current directory is this
/// one, or else the root.
pub fn start(program: &Path, arguments: &[String], directory: Option<BorrowedFd>) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let directory = directory.map(|directory| directory.as_raw_fd());
    let prepare = move || {
        // SAFETY: a system call on a descriptor that is open until the program has been started.
        if directory.is_some_and(|directory| unsafe { libc::fchdir(directory) } != 0) {
            return Err(io::Error::last_os_error());
        }
        close_files_on_exec()
    };
    // SAFETY: after the fork, the closure makes system calls only.
    unsafe { command.pre_exec(prepare) };
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
