//! Converts the key of a row to an external_id and back.

/// Represents an empty part.
const EMPTY: &str = "\\0";

/// The external_id of a row whose key has these parts, as PostgreSQL prints them. They are joined by `/`,
/// with `\` before each `\` and, where there are several parts, before each `/`.
pub fn encode(parts: &[impl AsRef<str>]) -> String {
    let mut id = String::new();
    for (place, part) in parts.iter().enumerate() {
        push(&mut id, part.as_ref(), place, parts.len());
    }
    id
}

/// Adds the part of a key at `place` of `count` to an external_id that has the parts before it.
pub fn push(id: &mut String, part: &str, place: usize, count: usize) {
    if place > 0 {
        id.push('/');
    }
    if part.is_empty() {
        id.push_str(EMPTY);
    } else if !part.bytes().any(|byte| matches!(byte, b'\\' | b'/')) {
        id.push_str(part);
        return;
    }
    for c in part.chars() {
        if c == '\\' || (c == '/' && count > 1) {
            id.push('\\');
        }
        id.push(c);
    }
}

/// The parts of an external_id that [`encode`] made of `count` parts. None if it cannot have made it.
pub fn decode(id: &str, count: usize) -> Option<Vec<String>> {
    let mut parts = vec![String::new()];
    let mut chars = id.chars();
    let mut is_empty = false;
    while let Some(c) = chars.next() {
        match c {
            '/' if count > 1 => {
                if is_blank(&parts, is_empty) {
                    return None;
                }
                parts.push(String::new());
                is_empty = false;
            }
            _ if is_empty => return None,
            '\\' => match chars.next()? {
                '0' if parts.last().is_some_and(String::is_empty) => is_empty = true,
                c if c == '\\' || (c == '/' && count > 1) => parts.last_mut()?.push(c),
                _ => return None,
            },
            c => parts.last_mut()?.push(c),
        }
    }
    (parts.len() == count && !is_blank(&parts, is_empty)).then_some(parts)
}

/// Whether the last part is empty without being written as [`EMPTY`].
fn is_blank(parts: &[String], is_empty: bool) -> bool {
    !is_empty && parts.last().is_none_or(String::is_empty)
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn a_key_can_be_read_in_its_external_id() {
        assert_eq!(encode(&["42"]), "42");
        assert_eq!(encode(&["a/b"]), "a/b");
        assert_eq!(encode(&["7", "en"]), "7/en");
        assert_eq!(encode(&["a/b", "c\\d"]), "a\\/b/c\\\\d");
        assert_eq!(encode(&["", "x"]), "\\0/x");
        assert_eq!(encode(&[""]), "\\0");
    }

    #[test]
    fn every_key_reads_back_from_its_external_id_which_no_other_key_has() {
        let texts = ["", "a", "/", "\\", "0", "\\0", "/\\", "a/b", "\\/", "é", "//", "\\\\0"];
        let mut seen = std::collections::HashMap::new();
        for a in texts {
            assert_eq!(decode(&encode(&[a]), 1).as_deref(), Some(&[a.to_string()][..]));
            for b in texts {
                let key = [a, b];
                let id = encode(&key);
                assert_eq!(decode(&id, 2), Some(key.map(String::from).to_vec()), "{id}");
                assert_eq!(seen.insert(id, key), None);
            }
        }
    }

    #[test]
    fn an_external_id_that_no_row_can_have_is_not_decoded() {
        for (id, count) in [
            ("", 1),
            ("a", 2),
            ("a/b/c", 2),
            ("/a", 2),
            ("a/", 2),
            ("\\x", 1),
            ("\\", 1),
            ("a\\0", 1),
            ("\\0a", 1),
        ] {
            assert_eq!(decode(id, count), None, "{id}");
        }
    }
}
