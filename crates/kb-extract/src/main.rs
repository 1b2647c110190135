//! The program kb-extract, which the worker starts and asks over a pipe (`kb_types::extraction`). It ends
//! when its standard input does.
//!
//! `kb-extract MEMORY` confines itself to MEMORY bytes of address space, and to what `confinement.rs` says,
//! before it reads anything.

#![forbid(unsafe_code)]

mod confinement;

use kb_types::extraction::{Fault, Outcome, Request, VERSION, read_frame, write_frame};
use std::io::{self, Write, stdin, stdout};
use std::panic::{AssertUnwindSafe, catch_unwind};
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
    confinement::enter(memory)?;
    let (files, coming) = mpsc::channel::<Request>();
    thread::Builder::new().stack_size(STACK).spawn(move || serve(&coming))?;
    write_frame(&mut stdout(), &VERSION)?;
    // This thread notices the end of the input while the other one parses, so that the program never outlives
    // the worker.
    while let Ok(request) = read_frame(&mut stdin().lock(), u32::MAX as usize) {
        files.send(request)?;
    }
    Ok(())
}

fn serve(requests: &mpsc::Receiver<Request>) {
    while let Ok(Request { file, seconds }) = requests.recv() {
        let outcome: Result<Outcome, _> = catch_unwind(AssertUnwindSafe(|| {
            if confinement::allow_seconds(seconds).is_err() {
                return Err(Fault::Broken("the time that it may take cannot be limited".into()));
            }
            kb_extract::extract(&file)
        }));
        let Ok(outcome) = outcome else { std::process::exit(PANICKED.into()) };
        if write_frame(&mut stdout(), &outcome).is_err() {
            std::process::exit(1);
        }
    }
}
