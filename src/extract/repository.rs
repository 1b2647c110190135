//! Asks kb-extract for the files of a Git repository. Pure.

use super::program::{Program, Running};
use kb_types::error::Result;
use kb_types::repository::{Blob, Files, MOST_FILES, MOST_PATHS, Question, Request};
use serde::de::DeserializeOwned;
use std::os::fd::{AsFd, OwnedFd};

/// The size of a reply, besides the content or the paths that it contains. Files have their ids beside them.
const REPLY: usize = 1 << 20;
const ID: usize = 128;

/// A repository, which is read by a program of its own.
pub struct Repository {
    program: Program,
    /// Where it is. The program can open nothing else.
    directory: OwnedFd,
    running: Option<Running>,
}

/// What is wrong with a repository, or with a file of it.
pub type Answer<T> = std::result::Result<T, String>;

impl Repository {
    pub fn new(program: Program, directory: OwnedFd) -> Repository {
        Repository { program, directory, running: None }
    }

    /// The id of the commit that a reference names.
    pub fn commit(&mut self, reference: &str) -> Answer<String> {
        let question = Question::Commit { reference: reference.into() };
        self.ask(question, ID).unwrap_or_else(|error| Err(error.to_string()))
    }

    /// The files of the commit that a reference names, beneath these directories.
    pub fn list(&mut self, reference: &str, directories: Vec<String>) -> Answer<Files> {
        let question = Question::List { reference: reference.into(), directories };
        self.ask(question, MOST_PATHS + MOST_FILES * ID).unwrap_or_else(|error| Err(error.to_string()))
    }

    /// The content of the file with this id, if it has at most `most` bytes. Returns an error if the program
    /// cannot be started.
    pub fn read(&mut self, id: &str, most: usize) -> Result<Answer<Blob>> {
        self.ask(Question::Read { id: id.into(), most: most as u64 }, most)
    }

    fn ask<A: DeserializeOwned>(&mut self, question: Question, most: usize) -> Result<Answer<A>> {
        let request = Request { question, seconds: self.program.seconds() };
        let most = most.saturating_add(REPLY);
        let mut has_crashed = false;
        loop {
            let running = match self.running.take() {
                Some(running) => running,
                None => match self.program.start(Some(self.directory.as_fd())) {
                    Err(_) if !has_crashed => {
                        has_crashed = true;
                        continue;
                    }
                    started => started?,
                },
            };
            match running.ask::<_, Answer<A>>(&request, self.program.until(), most) {
                Ok((answer, running)) => {
                    self.running = Some(running);
                    return Ok(answer);
                }
                Err(end) => match self.program.problem_of(&end) {
                    // Perhaps it was not its fault: a file that others shorten while it is mapped ends it,
                    // too.
                    (_, None) if !has_crashed => has_crashed = true,
                    (problem, None) => return Ok(Err(problem)),
                    (problem, Some(setting)) => return Ok(Err(format!("{problem} ({setting})"))),
                },
            }
        }
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        self.running.take().map(Running::stop);
    }
}
