//! What passes between the worker and the program kb-extract when the program reads a Git repository.
//!
//! The program is started with `git` as its second argument, in the repository's directory. It writes
//! [`crate::extraction::VERSION`] when it is ready. Then it answers each [`Request`], in order, in frames as
//! `extraction.rs` defines them: [`Question::Commit`] with `Result<String, String>`, [`Question::List`]
//! with `Result<Files, String>`, [`Question::Read`] with `Result<Blob, String>`. An error says in a few words
//! why there is no answer.

use serde::{Deserialize, Serialize};

/// The most files that a listing has.
pub const MOST_FILES: usize = 1_000_000;
/// The most bytes of all paths of a listing, those of directories included.
pub const MOST_PATHS: usize = 256 << 20;

/// A question, and the seconds of processor time that the answer may take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub question: Question,
    pub seconds: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Question {
    /// The id of the commit that a reference names, in hexadecimal digits.
    Commit { reference: String },
    /// The files of a commit beneath directories, none of which is beneath another.
    List {
        /// A branch, a tag, or the whole id of a commit.
        reference: String,
        /// With slashes in between; "" is the whole repository.
        directories: Vec<String>,
    },
    /// The content of a file, if it has at most this many bytes.
    Read { id: String, most: u64 },
}

/// The files of a commit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Files {
    /// The id of the commit, in hexadecimal digits.
    pub commit: String,
    /// In the order of their paths, each of which is there once.
    pub entries: Vec<Entry>,
    /// Why this is not all; the first reason.
    pub problem: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Any bytes but NUL.
    #[serde(rename = "p", with = "serde_bytes")]
    pub path: Vec<u8>,
    /// The id of its content, in hexadecimal digits.
    #[serde(rename = "i")]
    pub id: String,
    #[serde(rename = "k")]
    pub kind: EntryKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    File,
    SymbolicLink,
    Submodule,
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Blob {
    Content(#[serde(with = "serde_bytes")] Vec<u8>),
    /// It has so many bytes.
    TooLarge(u64),
}
