//! A key, which never appears in output.
//!
//! **Invariant:** a key leaves this type only to be sent (`transport.rs`), sealed (`seal.rs`) or stored. No
//! error repeats a value that was given as a secret or a header, because it may be the key.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// A key. It appears in no log and no error, and its `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// A key without the white space around it, and that of a JSON object without the white space in it: the
    /// key files of Google are written on several lines.
    pub fn new(value: &str) -> Secret {
        let value = value.trim();
        let object = value.starts_with('{').then(|| serde_json::from_str::<serde_json::Value>(value).ok());
        Secret(object.flatten().map_or_else(|| value.to_string(), |object| object.to_string()))
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    /// `text` without the key, and without words that begin like the key, because providers repeat keys with
    /// their middle masked.
    pub fn redact(&self, text: &str) -> String {
        const START: usize = 6;
        let whole = if self.0.is_empty() { text.to_string() } else { text.replace(&self.0, "***") };
        let Some(start) = self.0.get(..START).filter(|start| start.len() < self.0.len()) else {
            return whole;
        };
        let mut words = Vec::new();
        for word in whole.split(' ') {
            words.push(match word.find(start) {
                Some(at) => format!("{}***", &word[..at]),
                None => word.to_string(),
            });
        }
        words.join(" ")
    }
}

/// The most bytes of a key file.
const MAX_FILE: u64 = 64 * 1024;

/// Reads a file with a key.
pub(super) fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_redacted_whole_and_masked() {
        let secret = Secret::new("sk-proj-1234567890\n");
        assert_eq!(secret.redact("bad key sk-proj-1234567890."), "bad key ***.");
        assert_eq!(secret.redact("key \"sk-pro****7890\" is wrong"), "key \"*** is wrong");
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }

    #[test]
    fn a_key_file_in_json_becomes_one_line() {
        assert_eq!(Secret::new("{\n  \"key\": \"a\\nb\"\n}\n").expose(), r#"{"key":"a\nb"}"#);
        assert_eq!(Secret::new(" {no JSON\n").expose(), "{no JSON");
    }
}
