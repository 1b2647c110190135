//! Limits how deep quotes and lists of a Markdown text are nested, to more than any real document needs.
//!
//! The Markdown parser visits all open quotes and lists for every line, even for a blank one.

use std::borrow::Cow;

/// A quote or a list item may begin only in this many columns at the start of a line.
const COLUMNS: usize = 100;

/// The text with the letter x in place of marks that would begin a quote or list item further to the right.
/// Byte offsets do not change.
pub fn shallow(text: &str) -> Cow<'_, str> {
    let mut changed: Option<Vec<u8>> = None;
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if let Some((at, length)) = too_deep(line.as_bytes()) {
            let bytes = changed.get_or_insert_with(|| text.as_bytes().to_vec());
            bytes[start + at..start + at + length].fill(b'x');
        }
        start += line.len();
    }
    // ASCII replaces ASCII, so the text remains UTF-8.
    changed.and_then(|bytes| String::from_utf8(bytes).ok()).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// The offset and length of the first mark of a line that is too far to the right.
fn too_deep(line: &[u8]) -> Option<(usize, usize)> {
    let (mut at, mut column) = (0, 0);
    loop {
        let rest = &line[at..];
        let length = match rest.first()? {
            b' ' => {
                (at, column) = (at + 1, column + 1);
                continue;
            }
            b'\t' => {
                (at, column) = (at + 1, (column / 4 + 1) * 4);
                continue;
            }
            b'>' => 1,
            b'-' | b'+' | b'*' | b':' => 1,
            _ => {
                let digits = rest.iter().take(9).take_while(|byte| byte.is_ascii_digit()).count();
                (digits > 0 && matches!(rest.get(digits), Some(b'.' | b')'))).then_some(digits + 1)?
            }
        };
        let ends = rest.get(length).is_none_or(u8::is_ascii_whitespace);
        if !ends && rest[0] != b'>' {
            return None;
        }
        if column >= COLUMNS {
            return Some((at, length));
        }
        (at, column) = (at + length, column + length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marks_too_far_to_the_right_are_replaced() {
        let deep = " ".repeat(COLUMNS);
        for text in [
            "- a\n  - b\n\n> > 1. c\n".to_string(),
            "-".repeat(300),
            format!("{deep}12 - 3\n{deep}-x\n{deep}#"),
            format!("x{}", "> ".repeat(300)),
            "\t\t- é\n".to_string(),
        ] {
            assert!(matches!(shallow(&text), Cow::Borrowed(_)), "{text}");
        }
        assert_eq!(shallow(&format!("é\n{deep}- b\n- c")), format!("é\n{deep}x b\n- c"));
        assert_eq!(shallow(&format!("{deep}12) b")), format!("{deep}xxx b"));
        assert_eq!(shallow(&">".repeat(102)), format!("{}x>", ">".repeat(100)));
    }
}
