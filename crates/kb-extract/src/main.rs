//! The program kb-extract, which the worker starts and asks over a pipe (`kb_types::extraction`). It ends
//! when its standard input does.
//!
//! `kb-extract MEMORY` confines itself to MEMORY bytes of memory, and to what `confinement.rs` says, before
//! it reads anything. `kb-extract MEMORY git` reads the repository in its current directory
//! (`kb_types::repository`).

#![forbid(unsafe_code)]

mod confinement;

use kb_extract::git::Repository;
use kb_types::extraction::{Fault, Outcome, Request, VERSION, read_frame, write_frame};
use kb_types::repository;
use kb_types::repository::Question;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Write, stdin, stdout};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

/// Parsers of nested formats need more stack than a thread has by default.
const STACK: usize = 64 * 1024 * 1024;
/// The exit status after a panic.
const PANICKED: u8 = 101;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "kb-extract: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "this program is started by the worker of kb, with its memory limit in bytes as its argument";
    let memory = std::env::args().nth(1).and_then(|memory| memory.parse().ok()).ok_or(usage)?;
    match std::env::args().nth(2).as_deref() {
        None => {
            confinement::enter(memory)?;
            serve(|| |request: Request| reply(|| extract(request)))
        }
        Some("git") => {
            confinement::enter_directory(memory)?;
            serve(move || {
                let mut opened = None;
                move |request| answer(&request, memory, &mut opened)
            })
        }
        Some(_) => Err(usage.into()),
    }
}

/// Answers requests until the input ends, on a thread that begins by making what answers them.
fn serve<R, A>(begin: impl FnOnce() -> A + Send + 'static) -> Result<(), Box<dyn std::error::Error>>
where
    R: DeserializeOwned + Send + 'static,
    A: FnMut(R) -> io::Result<()>,
{
    let (requests, coming) = mpsc::channel::<R>();
    thread::Builder::new().stack_size(STACK).spawn(move || {
        let mut answer = begin();
        while let Ok(request) = coming.recv() {
            if answer(request).is_err() {
                std::process::exit(1);
            }
        }
    })?;
    write_frame(&mut stdout(), &VERSION)?;
    // This thread notices the end of the input while the other one parses, so that the program never outlives
    // the worker.
    while let Ok(request) = read_frame(&mut stdin().lock(), u32::MAX as usize) {
        requests.send(request)?;
    }
    Ok(())
}

/// Writes a reply, or ends the program if it panics.
fn reply<T: Serialize>(make: impl FnOnce() -> T) -> io::Result<()> {
    match catch_unwind(AssertUnwindSafe(make)) {
        Ok(reply) => write_frame(&mut stdout(), &reply),
        Err(_) => std::process::exit(PANICKED.into()),
    }
}

const NO_TIME: &str = "the time that it may take cannot be limited";

fn extract(Request { file, seconds }: Request) -> Outcome {
    confinement::allow_seconds(seconds).map_err(|_| Fault::Broken(NO_TIME.into()))?;
    kb_extract::extract_owned(file)
}

/// Answers a question about the repository, which is opened anew for a commit and for a listing.
fn answer(request: &repository::Request, memory: u64, opened: &mut Option<Repository>) -> io::Result<()> {
    let repository = |opened: &mut Option<Repository>| {
        confinement::allow_seconds(request.seconds).map_err(|_| NO_TIME.to_string())?;
        opened.take().map_or_else(|| Repository::open(Path::new("."), memory), Ok)
    };
    match &request.question {
        Question::Commit { reference } => reply(|| {
            *opened = None;
            let repository = repository(opened)?;
            opened.insert(repository).commit_id(reference)
        }),
        Question::List { reference, directories } => reply(|| {
            *opened = None;
            let repository = repository(opened)?;
            opened.insert(repository).list(reference, directories)
        }),
        Question::Read { id, most } => reply(|| {
            let repository = repository(opened)?;
            opened.insert(repository).read(id, *most)
        }),
    }
}
