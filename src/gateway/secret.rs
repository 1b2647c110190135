//! Keys: where the gateway finds them, and how they are kept out of everything that is shown.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// A key. It shows itself to nobody: not in logs, not in errors.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    pub fn new(value: &str) -> Secret {
        Secret(value.trim().to_string())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    /// `text` without the key, and without words that begin as the key does (providers echo keys with
    /// their middle masked).
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

/// What an embedder's `secret` refers to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reference {
    /// `env:NAME`, a variable of the server's environment.
    Env(String),
    /// `file:NAME`, a file in kb.secret_dir.
    File(String),
    /// `kb:NAME`, set by kb.set_secret.
    Stored(String),
}

/// Bytes of a key file at most.
const MAX_FILE: u64 = 64 * 1024;

impl Reference {
    /// The error never repeats what was given: it may be the key itself.
    pub fn parse(text: &str) -> Result<Reference, &'static str> {
        let (kind, name) = text.split_once(':').unwrap_or(("", text));
        let is_name = name.len() <= 128
            && !name.starts_with('.')
            && !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
        match kind {
            "env" if is_name => Ok(Reference::Env(name.into())),
            "file" if is_name => Ok(Reference::File(name.into())),
            "kb" if is_name => Ok(Reference::Stored(name.into())),
            "env" | "file" | "kb" => Err("the name may hold letters, digits, _, - and . (not first)"),
            _ => Err("it must be a reference, never the key itself: env:NAME (the server's environment), \
                 file:NAME (a file in kb.secret_dir) or kb:NAME (after kb.set_secret('NAME', key))"),
        }
    }

    /// The key itself, of a reference that this process can follow. `dir` is kb.secret_dir.
    pub fn resolve(&self, dir: Option<&Path>) -> Result<Secret, String> {
        let value = match self {
            Reference::Env(name) => std::env::var(name)
                .map_err(|_| format!("variable {name} is not in the server's environment"))?,
            Reference::File(name) => {
                let dir = dir.ok_or("kb.secret_dir is not set")?;
                read_file(&dir.join(name)).map_err(|e| format!("file {name} in kb.secret_dir: {e}"))?
            }
            Reference::Stored(name) => return Err(format!("secret {name} was not sent along")),
        };
        let secret = Secret::new(&value);
        match secret.expose() {
            "" => Err("the key it refers to is empty".into()),
            key if key.chars().any(char::is_control) => {
                Err("the key it refers to holds control characters".into())
            }
            _ => Ok(secret),
        }
    }
}

fn read_file(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_key_is_refused_without_repeating_it() {
        for key in
            ["sk-abcdefghijklmnop", "vault:sk-abc", "env:", "file:../../etc/passwd", "file:.pgpass", "kb:a b"]
        {
            let problem = Reference::parse(key).unwrap_err();
            assert!(!problem.contains("sk-abc"), "{problem}");
        }
        assert_eq!(Reference::parse("env:OPENAI_API_KEY"), Ok(Reference::Env("OPENAI_API_KEY".into())));
    }

    #[test]
    fn a_key_is_redacted_whole_and_masked() {
        let secret = Secret::new("sk-proj-1234567890\n");
        assert_eq!(secret.redact("bad key sk-proj-1234567890."), "bad key ***.");
        assert_eq!(secret.redact("key \"sk-pro****7890\" is wrong"), "key \"*** is wrong");
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }

    #[test]
    fn a_file_is_read_from_the_directory_and_nowhere_without_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("openai"), "the-key\n").unwrap();
        let reference = Reference::parse("file:openai").unwrap();
        assert_eq!(reference.resolve(Some(dir.path())).unwrap().expose(), "the-key");
        assert!(reference.resolve(None).is_err());
        assert!(Reference::parse("file:absent").unwrap().resolve(Some(dir.path())).is_err());
    }
}
