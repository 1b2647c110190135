//! References to the keys of endpoints, and how they are resolved.

use super::seal::SealingKeys;
use super::secret::{Secret, read_file};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The reference in an endpoint's `secret`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reference {
    /// `env:NAME`, a variable of the server's environment.
    Env(String),
    /// `file:NAME`, a file in kb.secret_dir.
    File(String),
    /// `kb:NAME`, set by kb.set_secret.
    Stored(String),
}

/// The environment variables that setting kb.secret_env allows as keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variables(Vec<Variable>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Variable {
    Named(String),
    BeginsWith(String),
}

impl Variables {
    /// Parses names separated by commas, or prefixes of names followed by `*`.
    pub fn parse(text: &str) -> Result<Variables, String> {
        let mut variables = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, is_beginning) = part.strip_suffix('*').map_or((part, false), |name| (name, true));
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(format!("\"{part}\" is not the name of a variable; write NAME or PREFIX*"));
            }
            let name = name.to_string();
            variables.push(if is_beginning { Variable::BeginsWith(name) } else { Variable::Named(name) });
        }
        Ok(Variables(variables))
    }

    /// Checks whether a variable may be a key. The error does not reveal whether the variable exists.
    pub fn check(&self, name: &str) -> Result<(), String> {
        let is_listed = self.0.iter().any(|variable| match variable {
            Variable::Named(listed) => listed == name,
            Variable::BeginsWith(beginning) => name.starts_with(beginning),
        });
        match is_listed {
            true => Ok(()),
            false => Err(format!("variable {name} is not listed in kb.secret_env")),
        }
    }
}

/// The sources of keys, from the configuration file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// kb.secret_dir.
    pub dir: Option<PathBuf>,
    /// kb.secret_env.
    pub variables: Variables,
    /// The keys that kb.secret_key names, which are never keys of endpoints.
    pub sealing: SealingKeys,
}

impl Reference {
    /// Parses a reference. The error never repeats the text, which may be the key itself.
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
            "env" | "file" | "kb" => {
                Err("the name must consist of letters, digits, _, - and ., and must not begin with .")
            }
            _ => Err("it must be a reference, never the key itself: env:NAME (the server's environment), \
                 file:NAME (a file in kb.secret_dir) or kb:NAME (after kb.set_secret('NAME', key))"),
        }
    }

    /// Refuses the keys that setting kb.secret_key names.
    pub fn check_use(&self, sources: &Sources) -> Result<(), String> {
        let (is_sealing, what) = match self {
            Reference::Env(name) => (sources.sealing.is_variable(name), format!("variable {name}")),
            Reference::File(name) => {
                let is_it = |dir: &PathBuf| sources.sealing.is_file(&dir.join(name));
                (sources.dir.as_ref().is_some_and(is_it), format!("file {name} in kb.secret_dir"))
            }
            Reference::Stored(_) => return Ok(()),
        };
        if is_sealing { Err(format!("{what} is reserved as the key of kb.secret_key")) } else { Ok(()) }
    }

    /// Resolves a reference that this process can resolve.
    pub fn resolve(&self, sources: &Sources) -> Result<Secret, String> {
        let value = match self {
            Reference::Env(name) => {
                sources.variables.check(name)?;
                self.check_use(sources)?;
                std::env::var(name)
                    .map_err(|_| format!("variable {name} is not in the server's environment"))?
            }
            Reference::File(name) => {
                let path = sources.dir.as_ref().ok_or("kb.secret_dir is not set")?.join(name);
                self.check_use(sources)?;
                let bytes = read_file(&path).map_err(|e| format!("file {name} in kb.secret_dir: {e}"))?;
                String::from_utf8(bytes)
                    .map_err(|_| format!("file {name} in kb.secret_dir is not text in UTF-8"))?
            }
            Reference::Stored(name) => return Err(format!("secret {name} was not sent along")),
        };
        let secret = Secret::new(&value);
        match secret.expose() {
            "" => Err("the key it refers to is empty".into()),
            key if key.chars().any(char::is_control) => {
                Err("the key it refers to contains control characters".into())
            }
            _ => Ok(secret),
        }
    }
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
    fn only_variables_that_are_listed_are_read() {
        let sources = |variables: &str, sealing: &str| Sources {
            dir: None,
            variables: Variables::parse(variables).unwrap(),
            sealing: SealingKeys::new(sealing),
        };
        let path = Reference::Env("PATH".into());
        assert!(path.resolve(&sources("PATH", "")).is_ok());
        assert!(path.resolve(&sources("KB_*, PAT*", "")).is_ok());
        for variables in ["", "KB_*", "PAT", "PATHS, PATH_*"] {
            let problem = path.resolve(&sources(variables, "")).unwrap_err();
            // The error is the same as for a missing variable.
            let other = Reference::Env("KBX_NO_SUCH".into()).resolve(&sources(variables, "")).unwrap_err();
            assert_eq!(problem.replace("PATH", "KBX_NO_SUCH"), other, "{variables}");
            assert!(problem.contains("kb.secret_env"), "{problem}");
        }
        for list in ["*", "A-B", "A=B", "a b", "*_KEY"] {
            assert!(Variables::parse(list).is_err(), "{list}");
        }
        // The sealing key is never a key of an endpoint, even if it is listed.
        let problem = path.resolve(&sources("PATH", "file:/x, env:PATH")).unwrap_err();
        assert!(problem.contains("kb.secret_key"), "{problem}");
    }

    #[test]
    fn the_file_of_the_sealing_key_is_refused_as_a_secret() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("sealing");
        std::fs::write(&key, "0123456789abcdef0123456789abcdef").unwrap();
        std::os::unix::fs::symlink(&key, dir.path().join("link")).unwrap();
        let sources = Sources {
            dir: Some(dir.path().into()),
            variables: Variables::default(),
            sealing: SealingKeys::new(&format!("file:{}", key.display())),
        };
        for name in ["sealing", "link"] {
            let problem = Reference::File(name.into()).resolve(&sources).unwrap_err();
            assert!(problem.contains("kb.secret_key") && !problem.contains("01234"), "{problem}");
        }
        std::fs::write(dir.path().join("openai"), "sk-1\n").unwrap();
        assert_eq!(Reference::File("openai".into()).resolve(&sources).unwrap().expose(), "sk-1");
    }

    #[test]
    fn a_file_is_read_from_the_directory_and_nowhere_without_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("openai"), "the-key\n").unwrap();
        let reference = Reference::parse("file:openai").unwrap();
        let sources = Sources { dir: Some(dir.path().into()), ..Sources::default() };
        assert_eq!(reference.resolve(&sources).unwrap().expose(), "the-key");
        assert!(reference.resolve(&Sources::default()).is_err());
        assert!(Reference::parse("file:absent").unwrap().resolve(&sources).is_err());
    }
}
