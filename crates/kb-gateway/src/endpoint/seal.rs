//! Encryption of keys at rest: secrets that kb.set_secret stores are sealed with the key that setting
//! kb.secret_key names, if it is set.

use super::secret::{Secret, read_file};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::path::Path;

/// The least number of characters of a sealing key: 16 random bytes in hexadecimal.
const LEAST: usize = 32;
/// The context of key derivation, which names the use and the version of the format.
const CONTEXT: &str = "kb kb.secrets at rest 1";

/// A secret as it is stored in kb.secrets.
#[derive(Debug, Clone, PartialEq)]
pub enum Kept {
    Plain(Secret),
    /// Version 1: base64 of nonce, ciphertext and tag of ChaCha20-Poly1305, with the secret's name as
    /// associated data, so that one secret cannot be exchanged for another.
    Sealed(String),
}

/// Setting kb.secret_key: `file:/PATH` or `env:NAME`, or several separated by commas. The first one seals,
/// and each can open. Errors never repeat it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SealingKeys(String);

impl SealingKeys {
    pub fn new(setting: &str) -> SealingKeys {
        SealingKeys(setting.trim().to_string())
    }

    fn references(&self) -> impl Iterator<Item = &str> {
        self.0.split(',').map(str::trim).filter(|part| !part.is_empty())
    }

    /// Whether an environment variable is one of the keys.
    pub fn is_variable(&self, name: &str) -> bool {
        self.references().any(|part| part.strip_prefix("env:") == Some(name))
    }

    /// Whether a file is one of the keys, by any path.
    pub fn is_file(&self, path: &Path) -> bool {
        let Ok(path) = path.canonicalize() else { return false };
        let mut files = self.references().filter_map(|part| part.strip_prefix("file:"));
        files.any(|file| Path::new(file).canonicalize().is_ok_and(|file| file == path))
    }

    /// The form in which a secret is stored: sealed, unless there is no key.
    pub fn keep(&self, name: &str, secret: &Secret) -> Result<Kept, String> {
        let Some(reference) = self.references().next() else { return Ok(Kept::Plain(secret.clone())) };
        let failed = |_| "the secret cannot be sealed".to_string();
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce)
            .map_err(|_| "the operating system provides no random numbers".to_string())?;
        let mut sealed = secret.expose().as_bytes().to_vec();
        key(reference)?
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(name.as_bytes()),
                &mut sealed,
            )
            .map_err(failed)?;
        Ok(Kept::Sealed(STANDARD.encode([nonce.as_slice(), &sealed].concat())))
    }

    /// Opens the secret with this name.
    pub fn open(&self, name: &str, kept: Kept) -> Result<Secret, String> {
        let sealed = match kept {
            Kept::Plain(secret) => return Ok(secret),
            Kept::Sealed(sealed) => sealed,
        };
        if self.references().next().is_none() {
            return Err("it is sealed, and kb.secret_key is not set".into());
        }
        let bytes = STANDARD.decode(sealed).unwrap_or_default();
        let mut problem = None;
        for reference in self.references() {
            match key(reference) {
                Ok(key) => {
                    if let Some(secret) = open(&key, name, &bytes) {
                        return Ok(secret);
                    }
                }
                // Another key may open it.
                Err(unusable) => problem = Some(unusable),
            }
        }
        Err(problem.unwrap_or_else(|| {
            "it was sealed under a key that kb.secret_key does not name; add that key to the setting, or set the secret \
             again".into()
        }))
    }
}

fn open(key: &LessSafeKey, name: &str, bytes: &[u8]) -> Option<Secret> {
    let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let mut sealed = sealed.to_vec();
    let opened = key.open_in_place(nonce, Aad::from(name.as_bytes()), &mut sealed).ok()?;
    std::str::from_utf8(opened).ok().map(Secret::new)
}

/// Reads the key of a reference, again each time.
fn key(reference: &str) -> Result<LessSafeKey, String> {
    let material = match reference.split_once(':') {
        Some(("file", path)) if path.starts_with('/') => {
            read_file(Path::new(path)).map_err(|e| format!("the file that kb.secret_key names: {e}"))?
        }
        Some(("env", name)) => std::env::var(name)
            .map_err(|_| {
                "the variable that kb.secret_key names is not in the server's environment".to_string()
            })?
            .into_bytes(),
        _ => return Err("kb.secret_key is not a reference; write file:/PATH or env:NAME".into()),
    };
    let material = material.trim_ascii();
    if material.len() < LEAST {
        return Err(format!("the key of kb.secret_key is shorter than {LEAST} characters"));
    }
    let key = UnboundKey::new(&CHACHA20_POLY1305, &blake3::derive_key(CONTEXT, material));
    Ok(LessSafeKey::new(key.map_err(|_| "the key of kb.secret_key cannot be used".to_string())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk-live-5f1e9b7c3a2d4068";

    fn sealed(kept: &Kept) -> &str {
        match kept {
            Kept::Sealed(sealed) => sealed,
            Kept::Plain(_) => panic!("it is not sealed"),
        }
    }

    /// Writes files with keys, and returns the setting that names them.
    fn keys(names: &[&str], dir: &Path) -> SealingKeys {
        let mut parts = Vec::new();
        for name in names {
            let path = dir.join(name);
            std::fs::write(&path, format!("{name} {}\n", "0123456789abcdef".repeat(2))).unwrap();
            parts.push(format!("file:{}", path.display()));
        }
        SealingKeys::new(&parts.join(", "))
    }

    #[test]
    fn a_sealed_secret_opens_under_its_key_and_name_only() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (keys(&["old"], dir.path()), keys(&["new"], dir.path()));
        let secret = Secret::new(KEY);
        let kept = old.keep("openai", &secret).unwrap();
        assert!(!sealed(&kept).contains(KEY));
        assert_eq!(old.open("openai", kept.clone()), Ok(secret.clone()));
        // Sealing twice never gives the same result.
        assert_ne!(old.keep("openai", &secret).unwrap(), kept);
        let text = sealed(&kept);
        let altered = format!("{}{}", if text.starts_with('A') { 'B' } else { 'A' }, &text[1..]);
        for problem in [
            old.open("cohere", kept.clone()),
            new.open("openai", kept.clone()),
            SealingKeys::default().open("openai", kept.clone()),
            old.open("openai", Kept::Sealed("AAAA".into())),
            old.open("openai", Kept::Sealed(altered)),
        ] {
            let problem = problem.unwrap_err();
            assert!(problem.contains("kb.secret_key") && !problem.contains(KEY), "{problem}");
        }
    }

    #[test]
    fn a_new_key_seals_while_an_old_one_still_opens() {
        let dir = tempfile::tempdir().unwrap();
        let (old, both) = (keys(&["old"], dir.path()), keys(&["new", "old"], dir.path()));
        let secret = Secret::new(KEY);
        assert_eq!(both.open("a", old.keep("a", &secret).unwrap()), Ok(secret.clone()));
        let again = both.keep("a", &secret).unwrap();
        assert!(old.open("a", again.clone()).is_err());
        assert_eq!(keys(&["new"], dir.path()).open("a", again), Ok(secret));
    }

    #[test]
    fn a_secret_stored_before_there_was_a_key_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let secret = Secret::new(KEY);
        let plain = SealingKeys::default().keep("a", &secret).unwrap();
        assert_eq!(plain, Kept::Plain(secret.clone()));
        assert_eq!(keys(&["new"], dir.path()).open("a", plain), Ok(secret));
    }

    #[test]
    fn a_key_that_cannot_be_used_is_an_error_and_nothing_is_stored_unsealed() {
        let dir = tempfile::tempdir().unwrap();
        let short = dir.path().join("short");
        std::fs::write(&short, "short").unwrap();
        for setting in [
            format!("file:{}", short.display()),
            format!("file:{}", dir.path().join("none").display()),
            "file:relative".into(),
            "env:KB_NO_SUCH_VARIABLE".into(),
            KEY.into(),
        ] {
            let problem = SealingKeys::new(&setting).keep("a", &Secret::new("sk")).unwrap_err();
            assert!(problem.contains("kb.secret_key") && !problem.contains(KEY), "{problem}");
        }
    }
}
