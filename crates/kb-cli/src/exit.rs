//! How the program ends: exit codes, and errors as they are shown.

use crate::output::clean::clean;
use std::fmt::Write;
use std::process::ExitCode;

/// What a command that has no error reports by its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command has done what it was asked to do.
    Done,
    /// The command has done it, and the answer is no: nothing was found, or something differs.
    No,
}

/// What a script may have to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The command failed.
    Failed,
    /// The command line is wrong.
    Usage,
    /// There is no connection to the server.
    Connection,
    /// Nobody reads the output any more (`kb query … | head -1`). This is no error for the caller.
    OutputClosed,
}

pub const EXIT_CODES: &str = "\
Exit codes:
  0    The command is done.
  1    An error occurred.
  2    The command line is wrong.
  3    The command is done, and the answer is no: query found nothing, ask was refused,
       diff (and apply --exit-code) found or made changes, doctor found problems,
       get --if-none-match found the same version.
  4    The server cannot be reached, or refuses the connection.
  130  The command was interrupted (Ctrl-C).";

const INTERRUPTED: u8 = 130;

#[derive(Debug)]
pub struct Error {
    pub kind: Kind,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
    pub sqlstate: Option<String>,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), detail: None, hint: None, sqlstate: None }
    }

    pub fn failed(message: impl Into<String>) -> Error {
        Error::new(Kind::Failed, message)
    }

    pub fn usage(message: impl Into<String>) -> Error {
        Error::new(Kind::Usage, message)
    }

    pub fn connection(message: impl Into<String>) -> Error {
        Error::new(Kind::Connection, message)
    }

    /// An error of the file system, with the file that it concerns.
    pub fn file(path: &std::path::Path, error: &std::io::Error) -> Error {
        Error::failed(format!("{}: {error}", path.display()))
    }

    /// An error of writing to standard output.
    pub fn output(error: &std::io::Error) -> Error {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Error::new(Kind::OutputClosed, "the output is closed"),
            _ => Error::failed(format!("cannot write the output: {error}")),
        }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// The error as one line of JSON.
    pub fn json(&self) -> String {
        let fields = serde_json::json!({
            "message": self.message, "detail": self.detail, "hint": self.hint, "sqlstate": self.sqlstate,
        });
        crate::output::clean::clean_json(&serde_json::json!({ "error": fields }).to_string()).into_owned()
    }

    /// The error as people read it, without a line end.
    pub fn text(&self) -> String {
        let mut text = format!("kb: error: {}", clean(&self.message));
        if let Some(code) = &self.sqlstate {
            let _ = write!(text, " (SQLSTATE {code})");
        }
        for (name, value) in [("DETAIL", &self.detail), ("HINT", &self.hint)] {
            if let Some(value) = value {
                let _ = write!(text, "\n{name}: {}", clean(value));
            }
        }
        text
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Error {
        if let Some(db) = error.as_db_error() {
            return Error {
                kind: Kind::Failed,
                message: db.message().to_string(),
                detail: db.detail().map(str::to_string),
                hint: db.hint().map(str::to_string),
                sqlstate: Some(db.code().code().to_string()),
            };
        }
        if error.is_closed() {
            return Error::connection("the server closed the connection")
                .hint("The server's log may say why.");
        }
        Error::failed(causes(&error))
    }
}

/// The message of an error with those of what caused it.
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            let _ = write!(text, ": {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// The exit code of a command that ended by itself.
pub fn code(ended: &Result<Exit>) -> ExitCode {
    ExitCode::from(match ended {
        Ok(Exit::Done) => 0,
        Ok(Exit::No) => 3,
        Err(error) => match error.kind {
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::Connection => 4,
            // As ripgrep and others do: what the reader wanted was delivered.
            Kind::OutputClosed => 0,
        },
    })
}

pub fn interrupted() -> ExitCode {
    ExitCode::from(INTERRUPTED)
}
