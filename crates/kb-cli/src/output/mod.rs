//! What the program writes: JSON or texts for people on standard output, messages on standard error.

pub mod clean;
pub mod marks;
pub mod table;

use crate::exit::{Error, Result};
use anstyle::{AnsiColor, Style};
use std::io::{IsTerminal, Write};

pub const BOLD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();
pub const MARK: Style = AnsiColor::Yellow.on_default().bold();
pub const GOOD: Style = AnsiColor::Green.on_default();
pub const CAUTION: Style = AnsiColor::Yellow.on_default();
pub const BAD: Style = AnsiColor::Red.on_default();
pub const PLACE: Style = AnsiColor::Cyan.on_default();

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set or TERM is `dumb`.
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Clone)]
pub struct Output {
    /// JSON instead of texts for people.
    pub json: bool,
    /// Whether standard output is a terminal.
    pub is_terminal: bool,
    has_colour: bool,
}

impl Output {
    pub fn new(json: bool, colour: Colour) -> Output {
        let is_terminal = std::io::stdout().is_terminal();
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let has_colour = match colour {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => is_terminal && !is_dumb && !is_set("NO_COLOR"),
        };
        Output { json, is_terminal, has_colour: has_colour && !json }
    }

    /// Writes a text as it is. What comes from elsewhere must have been cleaned ([`clean::clean`]).
    pub fn text(&self, text: &str) -> Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| Error::output(&e))
    }

    /// Writes a line as [`Output::text`] does.
    pub fn line(&self, line: &str) -> Result<()> {
        self.text(&format!("{line}\n"))
    }

    /// Writes a JSON text and a line end.
    pub fn json(&self, json: &str) -> Result<()> {
        self.line(&clean::clean_json(json))
    }

    /// Writes a line to standard error, such as a note or the progress of a command.
    pub fn note(&self, note: &str) {
        let _ = writeln!(std::io::stderr(), "kb: {}", clean::clean(note));
    }

    /// The text in a style, if there are colours.
    pub fn paint(&self, style: Style, text: &str) -> String {
        if self.has_colour && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.to_string() }
    }

    /// The columns of the terminal; None if standard output is none.
    pub fn width(&self) -> Option<usize> {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        (size.ws_col > 0).then_some(usize::from(size.ws_col))
    }

    /// Whether progress bars can be drawn, which is done on standard error.
    pub fn draws_progress(&self) -> bool {
        !self.json && std::io::stderr().is_terminal()
    }
}
