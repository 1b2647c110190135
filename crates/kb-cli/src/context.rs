//! What all commands share: where to connect, how to write, and what an interrupt cancels.

use crate::connect::{Arguments, Canceller, Connected, Target};
use crate::exit::{Error, Result};
use crate::output::Output;
use crate::server::{Session, VERSION};
use std::cmp::Ordering;
use std::sync::{Mutex, Once, OnceLock};

pub struct Context {
    pub output: Output,
    /// The tenant for which the command acts; None means that of the role.
    pub project: Option<String>,
    arguments: Arguments,
    target: OnceLock<Target>,
    cancellers: Mutex<Vec<Canceller>>,
    compared: Once,
}

impl Context {
    pub fn new(output: Output, project: Option<String>, arguments: Arguments) -> Context {
        Context {
            output,
            project,
            arguments,
            target: OnceLock::new(),
            cancellers: Mutex::new(Vec::new()),
            compared: Once::new(),
        }
    }

    /// Where the command connects. It is read only when it is needed: `kb completions` needs no server.
    pub fn target(&self) -> Result<&Target> {
        if let Some(target) = self.target.get() {
            return Ok(target);
        }
        let target = Target::new(&self.arguments)?;
        Ok(self.target.get_or_init(|| target))
    }

    /// A session in a database with kb. Commands that work in parallel ask for several.
    pub async fn connect(&self) -> Result<Session> {
        let session = Session::begin(self.open().await?, self).await?;
        self.compared.call_once(|| {
            let theirs = &session.installed.version;
            let order = session.installed.order();
            if order != Ordering::Equal {
                let word = if order == Ordering::Less { "older" } else { "newer" };
                self.output.note(&format!(
                    "note: the database has kb {theirs}, which is {word} than this program ({VERSION}). What one \
                     of them does not know is left out."
                ));
            }
        });
        Ok(session)
    }

    async fn open(&self) -> Result<Connected> {
        let connected = self.target()?.connect(&self.output).await?;
        if let Ok(mut cancellers) = self.cancellers.lock() {
            cancellers.push(connected.canceller.clone());
        }
        Ok(connected)
    }

    /// Asks the servers to cancel the statements of all sessions.
    pub async fn cancel(&self) {
        let cancellers: Vec<Canceller> = match self.cancellers.lock() {
            Ok(mut cancellers) => cancellers.drain(..).collect(),
            Err(_) => return,
        };
        for canceller in cancellers {
            canceller.cancel().await;
        }
    }

    /// Asks a question on the terminal whose answer is yes or no. `flag` is the option that answers it.
    pub fn confirm(&self, question: &str, flag: &str) -> Result<bool> {
        use std::io::{BufRead, IsTerminal, Write};
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Err(Error::usage(format!("without a terminal, this needs {flag}")));
        }
        let mut stderr = std::io::stderr();
        let _ = write!(stderr, "{} [y/N] ", crate::output::clean::clean_line(question));
        let _ = stderr.flush();
        let mut answer = String::new();
        stdin
            .lock()
            .read_line(&mut answer)
            .map_err(|e| Error::failed(format!("the answer cannot be read: {e}")))?;
        Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
    }
}
