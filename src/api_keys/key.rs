//! The text of a key: kb_, the id, and the secret part, which only its holder knows. Pure.

use uuid::Uuid;

/// What every key begins with, so that scanners for leaked keys find it.
const PREFIX: &str = "kb_";

pub struct Key {
    pub id: String,
    secret: String,
}

impl Key {
    /// Of random numbers: 48 bits for the id, and 244 for the secret part.
    pub fn new(id: Uuid, secret: [Uuid; 2]) -> Key {
        let id = id.simple().to_string()[..12].to_string();
        Key { id, secret: secret.map(|part| part.simple().to_string()).concat() }
    }

    /// None: it has not the form of a key.
    pub fn parse(text: &str) -> Option<Key> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let is_hex =
            |part: &str, length| part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_hex(id, 12) && is_hex(secret, 64)).then(|| Key { id: id.into(), secret: secret.into() })
    }

    pub fn text(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, self.secret)
    }

    /// What is stored. The secret part is random, so that a fast hash is enough.
    pub fn hash(&self) -> Vec<u8> {
        blake3::hash(self.secret.as_bytes()).as_bytes().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_written_and_nothing_else_is_one() {
        let key = Key::new(Uuid::from_u128(1 << 100), [Uuid::from_u128(2), Uuid::from_u128(3)]);
        let read = Key::parse(&key.text()).unwrap();
        assert_eq!((read.id.as_str(), read.hash()), (key.id.as_str(), key.hash()));
        let other = Key::new(Uuid::from_u128(1 << 100), [Uuid::from_u128(2), Uuid::from_u128(4)]);
        assert_ne!(other.hash(), key.hash());
        for text in
            ["", "kb_", "kb__", &key.text()[1..], &format!("{}0", key.text()), &key.text().replace('0', "ü")]
        {
            assert!(Key::parse(text).is_none(), "{text}");
        }
    }
}
