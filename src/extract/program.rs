//! Starts kb-extract, asks it for the text of one file after the other, and replaces it when it misbehaves.
//!
//! Pure, apart from [`Program::from_settings`]: it runs on a helper thread.

use crate::pg::child;
use crate::settings;
use kb_types::error::{Error, Result};
use kb_types::extraction::{Extraction, Fault, File, Outcome, Request, VERSION, read_frame, write_frame};
use kb_types::sync::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The program, and what a file may take.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    /// Address space, in bytes.
    memory: u64,
    time: Option<Duration>,
}

/// The time within which the program has to start.
const START: Duration = Duration::from_secs(20);
/// The time to read what it wrote to its standard error before it ended.
const SAID: Duration = Duration::from_millis(100);
/// The wall-clock limit where kb.extract_timeout is disabled.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// The size of a reply, besides the text and the files within the file that it contains.
const REPLY: usize = 16 * 1024 * 1024;
/// The exit status with which the program reports a panic of a parser.
const PANICKED: i32 = 101;

/// Programs that wait for the next file: as many as were used at the same time.
static WAITING: Mutex<Vec<Running>> = Mutex::new(Vec::new());

pub(super) struct Running {
    program: (PathBuf, u64),
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Program {
    /// Must be called on the main thread.
    pub fn from_settings() -> Program {
        Program {
            path: settings::extract_program(),
            memory: settings::extract_memory(),
            time: settings::limits(|| {}).time,
        }
    }

    /// Starts the program and stops it again. Returns an error if it is missing or has another version.
    pub fn check(&self) -> Result<()> {
        self.start(None).map(Running::stop).map(|_| ())
    }

    /// The text of a file, and what else is known of it. Waits until it is found, or the time is used up. If
    /// somebody kills the program, such as the kernel when memory is short, it is asked once more.
    pub fn extract(&self, file: File, external_id: &str) -> Result<Extraction> {
        self.read(file, external_id)?.map_err(|fault| error_of(fault, external_id))
    }

    /// The same, or why the file has no text.
    pub fn read(&self, file: File, external_id: &str) -> Result<Outcome> {
        let most = file.max_text.saturating_add(file.bytes.len()).saturating_add(REPLY);
        let request = Request { file, seconds: self.seconds() };
        let mut was_killed = false;
        loop {
            let same = |running: &Running| running.program == (self.path.clone(), self.memory);
            let waiting = lock(&WAITING).pop();
            let program = match waiting.filter(same) {
                Some(program) => program,
                None => self.start(None)?,
            };
            match program.ask::<_, Outcome>(&request, self.until(), most) {
                Ok((outcome, program)) => {
                    lock(&WAITING).push(program);
                    return Ok(outcome);
                }
                Err(end) if end.is_kill() && !was_killed => was_killed = true,
                Err(end) => {
                    return Err(match self.problem_of(&end) {
                        (problem, Some(setting)) => {
                            Error::Limit { object: "the file".into(), problem, setting }
                        }
                        (problem, None) => Error::Document { external_id: external_id.into(), problem },
                    });
                }
            }
        }
    }

    /// The processor time that a request may take. The kernel counts whole seconds; the wall clock decides.
    pub(super) fn seconds(&self) -> u64 {
        self.time.unwrap_or(LONGEST).as_secs() + 2
    }

    /// When a request that is made now has to be answered.
    pub(super) fn until(&self) -> Instant {
        Instant::now() + self.time.unwrap_or(LONGEST)
    }

    /// Starts the program, which reads files, or, if it is given the directory of one, a repository.
    ///
    /// The errors do not name the path: all users can see them, but only superusers the setting.
    pub(super) fn start(&self, repository: Option<BorrowedFd>) -> Result<Running> {
        let missing = |problem: String| Error::Extractor { problem };
        let mut arguments = vec![self.memory.to_string()];
        arguments.extend(repository.map(|_| "git".to_string()));
        let mut child = child::start(&self.path, &arguments, repository)
            .map_err(|e| missing(format!("cannot be started ({e})")))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Internal("a program was started without pipes".into()));
        };
        let mut running = Running { program: (self.path.clone(), self.memory), child, input, output };
        let until = Instant::now() + START;
        match read_frame::<String>(&mut Until { output: &mut running.output, until }, 1024) {
            Ok(version) if version == VERSION => Ok(running),
            Ok(version) => {
                running.stop();
                Err(missing(format!("has version \"{version}\"; \"{VERSION}\" is needed")))
            }
            Err(e) => {
                let said = running.stop().1;
                Err(missing(format!("does not answer ({}{e})", prefix(&said))))
            }
        }
    }

    /// Why there is no reply, and the setting that is the reason.
    pub(super) fn problem_of(&self, end: &NoReply) -> (String, Option<&'static str>) {
        let time = self.time.unwrap_or(LONGEST).as_secs_f64();
        let too_long = || (format!("reading it takes longer than {time} s"), Some("kb.extract_timeout"));
        match end {
            NoReply::TooLong => too_long(),
            NoReply::Ended(status, _) if status.signal() == Some(SIGXCPU) => too_long(),
            NoReply::Ended(_, said) if OUT_OF_MEMORY.iter().any(|words| said.contains(words)) => {
                let memory = self.memory / 1024 / 1024;
                (format!("reading it takes more than {memory} MB of memory"), Some("kb.extract_memory"))
            }
            NoReply::Ended(status, _) => {
                let how = match (status.signal(), status.code()) {
                    (_, Some(PANICKED)) => "it met a state that it does not expect".to_string(),
                    (Some(signal), _) => format!("signal {signal}"),
                    (None, code) => format!("exit status {}", code.unwrap_or_default()),
                };
                (format!("the program kb-extract crashed while reading it ({how})"), None)
            }
        }
    }
}

/// What the program, or tree-sitter in it, says when it gets no more memory.
const OUT_OF_MEMORY: [&str; 2] = ["memory allocation", "failed to allocate"];
/// The signal by which the kernel ends a process that has used its processor time.
const SIGXCPU: i32 = 24;
/// The signal that no limit of the program sends.
const SIGKILL: i32 = 9;

/// Why there is no reply.
pub(super) enum NoReply {
    TooLong,
    /// How the program ended, and the end of what it wrote to its standard error.
    Ended(ExitStatus, String),
}

impl NoReply {
    fn is_kill(&self) -> bool {
        matches!(self, NoReply::Ended(status, _) if status.signal() == Some(SIGKILL))
    }
}

impl Running {
    pub(super) fn ask<Q: Serialize, A: DeserializeOwned>(
        mut self,
        request: &Q,
        until: Instant,
        most: usize,
    ) -> Result<(A, Running), NoReply> {
        // The program reads its input while it parses, so this does not wait for long.
        let asked = write_frame(&mut self.input, request);
        let reply = asked.and_then(|()| read_frame(&mut Until { output: &mut self.output, until }, most));
        match reply {
            Ok(outcome) => Ok((outcome, self)),
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                self.stop();
                Err(NoReply::TooLong)
            }
            Err(_) => {
                let (status, said) = self.stop();
                Err(NoReply::Ended(status, said))
            }
        }
    }

    /// Ends the program. Returns its exit status and the beginning of what it wrote to its standard error.
    pub(super) fn stop(mut self) -> (ExitStatus, String) {
        drop(self.input);
        // After the end of its input or of its output it ends by itself, and then its status says why.
        let until = Instant::now() + Duration::from_secs(1);
        let mut status = self.child.try_wait();
        while matches!(status, Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
            status = self.child.try_wait();
        }
        let _ = self.child.kill();
        let status = self.child.wait().unwrap_or_default();
        let mut said = Vec::new();
        if let Some(mut errors) = self.child.stderr.take() {
            // Another process that it has started may still have the pipe open.
            let until = Instant::now() + SAID;
            let _ = Until { output: &mut errors, until }.take(4096).read_to_end(&mut said);
        }
        (status, String::from_utf8_lossy(&said).into_owned())
    }
}

/// What a program said, before what is known of it.
fn prefix(said: &str) -> String {
    let line = said.trim().lines().next().unwrap_or_default();
    if line.is_empty() { String::new() } else { format!("{line}; ") }
}

/// Reads what the program writes, until a point in time.
struct Until<'a, R> {
    output: &'a mut R,
    until: Instant,
}

impl<R: Read + AsFd> Read for Until<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut waited = [PollFd::new(self.output, PollFlags::IN)];
        match poll(&mut waited, Some(&left))? {
            0 => Err(ErrorKind::TimedOut.into()),
            _ => self.output.read(buffer),
        }
    }
}

/// The error for a file without text.
pub fn error_of(fault: Fault, external_id: &str) -> Error {
    let external_id = external_id.to_string();
    match fault {
        Fault::Unsupported { content_type } => Error::ContentType { external_id, content_type },
        Fault::TooLarge(problem) => {
            Error::Limit { object: "the file".into(), problem, setting: "kb.max_extracted_size" }
        }
        fault => Error::Document { external_id, problem: fault.to_string() },
    }
}
