//! Builds the text of structured data: each value on a line after the names that lead to it, as kb does with
//! the JSON of table rows. Here, however, numbers come too, the order is that of the file, and no member
//! counts more than others, because nobody can say of a file what its text is.

use kb_types::extraction::Fault;

#[derive(Debug)]
pub struct Lines {
    pub text: String,
    max_text: usize,
    is_apart: bool,
}

impl Lines {
    /// `max_text` is the most bytes of text: the names that lead to a value may be long, and are repeated.
    pub fn new(max_text: usize) -> Lines {
        Lines { text: String::new(), max_text, is_apart: false }
    }

    /// Sets what follows apart by a blank line.
    pub fn set_apart(&mut self) {
        self.is_apart = true;
    }

    /// Adds a value, unless it is blank.
    pub fn push<'a>(&mut self, names: impl Iterator<Item = &'a str>, value: &str) -> Result<(), Fault> {
        let value = value.trim_matches(['\n', ' ']);
        if value.trim().is_empty() {
            return Ok(());
        }
        if !self.text.is_empty() {
            self.text.push_str(if self.is_apart { "\n\n" } else { "\n" });
        }
        self.is_apart = false;
        let mut separator = "";
        for name in names.filter(|name| !name.is_empty()) {
            self.text.push_str(separator);
            self.text.push_str(name);
            separator = ".";
        }
        if !separator.is_empty() {
            self.text.push_str(": ");
        }
        self.text.push_str(value);
        match self.text.len() > self.max_text {
            true => Err(Fault::TooLarge(format!("it has more than {} bytes of text", self.max_text))),
            false => Ok(()),
        }
    }

    /// The text, without characters that cannot be stored.
    pub fn finish(self) -> String {
        match self.text.contains(['\r', '\0', '\u{feff}']) {
            true => self.text.replace("\r\n", "\n").replace('\r', "\n").replace(['\0', '\u{feff}'], ""),
            false => self.text,
        }
    }
}
