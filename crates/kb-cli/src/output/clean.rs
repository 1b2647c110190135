//! Texts of documents and of servers, made harmless for a terminal. Documents may hold escape sequences that
//! set a terminal's title, write its clipboard or hide what follows.

use std::borrow::Cow;

/// Characters that a terminal obeys instead of showing them, and those that change the direction of a line.
fn is_harmful(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

fn picture(c: char) -> char {
    match c {
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + c as u32).unwrap_or(char::REPLACEMENT_CHARACTER),
        '\u{7f}' => '\u{2421}',
        _ => char::REPLACEMENT_CHARACTER,
    }
}

/// The text with a visible character in the place of each harmful one. Line ends and tabs stay; `\r\n` is a
/// line end.
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let text = text.replace("\r\n", "\n");
    Cow::Owned(text.chars().map(|c| if is_harmful(c) { picture(c) } else { c }).collect())
}

/// The text in one line: white space of any length is one space.
pub fn clean_line(text: &str) -> String {
    clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A JSON text in which strings hold the remaining control characters as escapes: JSON leaves those above
/// U+001F as they are.
pub fn clean_json(json: &str) -> Cow<'_, str> {
    let is_left = |c: char| is_harmful(c) && c > '\u{1f}';
    if !json.contains(is_left) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_left(c) {
            out.push_str(&format!("\\u{:04x}", c as u32));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_shown_instead() {
        assert_eq!(clean("a\tb\r\nc\nd"), "a\tb\nc\nd");
        assert_eq!(clean("\u{1b}[2J\u{7}x\u{7f}"), "␛[2J␇x␡");
        assert_eq!(clean("\u{9b}31m\u{202e}evil"), "\u{fffd}31m\u{fffd}evil");
        assert_eq!(clean("over\rwritten"), "over␍written");
        assert!(matches!(clean("ordinary – ü 漢"), Cow::Borrowed(_)));
        assert_eq!(clean_line(" a\n\n b\u{1b}c "), "a b␛c");
    }

    #[test]
    fn json_keeps_its_value_and_has_no_control_character() {
        let value = serde_json::json!({"a": "\u{1b}\u{9b}\u{7f}\u{202e}ü\n"});
        let text = value.to_string();
        let cleaned = clean_json(&text);
        assert!(!cleaned.chars().any(is_harmful), "{cleaned}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&cleaned).unwrap(), value);
        assert!(matches!(clean_json("[1]\n"), Cow::Borrowed(_)));
    }
}
