//! Compound words, whose parts are separated by punctuation or capitals: paths, host names, addresses and
//! identifiers. PostgreSQL's parser reads most of them as one word, but a question may contain any part.

use super::signs::{normal, spaced};
use super::terms::MAX_TERM;
use std::borrow::Cow;
use unicode_normalization::char::is_combining_mark;

/// The most bytes of a text in which phrases are searched for, because a tsvector is limited to a megabyte.
const MOST: usize = 500_000;

const BLANKS: [char; 4] = [' ', '\n', '\t', '\r'];

/// Whether a part of a text between blanks consists of several words.
pub fn is_compound(part: &str) -> bool {
    // Text that may be a tag is left to PostgreSQL's parser.
    if part.contains(['<', '>']) {
        return false;
    }
    let mut is_open = false;
    let mut has_hump = Humps::default();
    let mut characters = part.chars().peekable();
    let mut before = ' ';
    let mut has_slash = false;
    while let Some(c) = characters.next() {
        if is_of_word(c) {
            if is_open || has_slash || has_hump.is_at(c, characters.clone()) {
                return true;
            }
        } else {
            has_slash |= c == '/';
            has_hump = Humps::default();
            let is_word_before = is_of_word(before);
            is_open |= is_word_before && !is_in_number(before, c, characters.peek().copied());
        }
        before = c;
    }
    false
}

/// A compound word with blanks in place of the punctuation between its words.
pub fn apart(part: &str) -> String {
    let mut out = String::with_capacity(part.len());
    let mut characters = part.chars().peekable();
    let mut before = ' ';
    while let Some(c) = characters.next() {
        let stays = is_of_word(c) || is_in_number(before, c, characters.peek().copied());
        out.push(if stays { c } else { ' ' });
        before = c;
    }
    out
}

/// The words of a compound word that begin with capitals instead of being separated by punctuation.
pub fn humps(part: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for word in part.split(|c| !is_of_word(c)) {
        let mut humps = Humps::default();
        let mut start = 0;
        let mut characters = word.char_indices();
        while let Some((place, c)) = characters.next() {
            if humps.is_at(c, characters.clone().map(|(_, c)| c)) {
                found.push(&word[start..place]);
                start = place;
            }
        }
        if start > 0 {
            found.push(&word[start..]);
        }
    }
    found
}

/// The names with underscores in a compound word, in lower case. PostgreSQL's parser has no such token.
pub fn names(part: &str) -> impl Iterator<Item = String> {
    let runs = part.split(|c| !is_of_word(c) && c != '_').map(|run| run.trim_matches('_'));
    runs.filter(|run| run.contains('_')).map(str::to_lowercase).filter(|name| name.len() <= MAX_TERM)
}

/// A text in which no part between blanks is too long for a term. A longer part is split into its words,
/// because nobody searches for it as a whole.
pub fn shortened(text: Cow<'_, str>) -> Cow<'_, str> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\t' | b'\r');
    if text.len() <= MAX_TERM || text.as_bytes().split(is_blank).all(|part| part.len() <= MAX_TERM) {
        return text;
    }
    Cow::Owned(each_part(&text, |part| part.len() > MAX_TERM && is_compound(part)))
}

/// A text in which phrases are searched for: the words of compound words are separated, and so are the
/// characters of scripts without blanks.
pub fn in_words(text: &str) -> String {
    let mut out = each_part(&spaced(&normal(text)), is_compound);
    out.truncate(out.floor_char_boundary(MOST));
    out
}

/// A text in which the chosen parts are split into their words.
fn each_part(text: &str, is_chosen: impl Fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for part in text.split_inclusive(BLANKS) {
        let word = part.trim_end_matches(BLANKS);
        match is_chosen(word) {
            true => out.push_str(&apart(word)),
            false => out.push_str(word),
        }
        out.push_str(&part[word.len()..]);
    }
    out
}

/// The compound words of a text.
pub fn compounds(text: &str) -> impl Iterator<Item = &str> {
    text.split(BLANKS).filter(|part| is_compound(part))
}

/// Whether a word of ASCII letters is a compound word.
pub fn has_hump(word: &str) -> bool {
    // Most words have no capitals after their first letter.
    word.bytes().skip(1).any(|b| b.is_ascii_uppercase()) && is_compound(word)
}

#[derive(Default)]
struct Humps {
    /// The previous character.
    before: Option<char>,
    is_capital_before: bool,
}

impl Humps {
    /// Whether a word begins at a character within letters: at a capital after a small letter, or at the last
    /// of several capitals if small letters follow (`HTTPServer`, but not `URLs`).
    fn is_at(&mut self, c: char, mut behind: impl Iterator<Item = char>) -> bool {
        let is_capital = c.is_uppercase();
        let mut is_small = || behind.next().is_some_and(char::is_lowercase);
        let is_hump = is_capital
            && (self.before.is_some_and(char::is_lowercase)
                || self.is_capital_before && is_small() && is_small());
        (self.before, self.is_capital_before) = (Some(c), is_capital);
        is_hump
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || !c.is_ascii() && is_combining_mark(c)
}

/// Whether a punctuation character belongs to a number or version.
fn is_in_number(before: char, mark: char, behind: Option<char>) -> bool {
    matches!(mark, '.' | ',') && before.is_numeric() && behind.is_some_and(char::is_numeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(part: &str) -> Vec<String> {
        let mut words: Vec<String> = apart(part).split_whitespace().map(str::to_string).collect();
        words.extend(humps(part).into_iter().map(str::to_string));
        words.extend(names(part));
        words
    }

    #[test]
    fn the_words_of_a_compound_word_are_found() {
        for (part, words) in [
            ("TCP/IP", "TCP IP"),
            ("Node.js", "Node js"),
            ("(/etc/postgresql/main.conf)", "etc postgresql main conf"),
            ("kb.query(x)", "kb query x"),
            ("john.smith@mail.example.com", "john smith mail example com"),
            ("getUserName", "getUserName get User Name"),
            ("HTTPServer", "HTTPServer HTTP Server"),
            ("snake_case", "snake case snake_case"),
            ("_my_var.x", "my var x my_var"),
            ("/etc", "etc"),
            ("v1.2.3-rc1", "v1.2.3 rc1"),
            ("1,000-2.5", "1,000 2.5"),
            ("naïve/e\u{301}tude", "naïve e\u{301}tude"),
        ] {
            assert!(is_compound(part), "{part}");
            assert_eq!(words_of(part).join(" "), words);
        }
    }

    #[test]
    fn punctuated_words_numbers_and_possible_tags_are_not_compound_words() {
        for part in [
            "word", "(word).", "URLs", "IDs", "3.14", "1.2.3", "-5", "+", "", "Über", "Vec<a.b>", "USA,",
            "and/",
        ] {
            assert!(!is_compound(part), "{part}");
        }
        assert_eq!(in_words("The TCP/IP stack, 3.5 <a.b>\n x_y"), "The TCP IP stack, 3.5 <a.b>\n x y");
    }

    #[test]
    fn only_parts_that_are_too_long_for_a_term_are_split() {
        let long = "a/b.".repeat(600);
        let text = format!("x/y {long} z");
        assert_eq!(shortened(text.as_str().into()), format!("x/y {} z", long.replace(['/', '.'], " ")));
        assert!(matches!(shortened("x/y z".into()), Cow::Borrowed(_)));
        assert!(in_words(&"a/".repeat(1_000_000)).len() <= MOST);
    }

    #[test]
    fn a_long_compound_word_is_split_completely() {
        let n = 400_000;
        for (text, words, capitals, underscores) in [
            ("aB".repeat(n), 1, n + 1, 0),
            ("A".repeat(2 * n), 1, 0, 0),
            ("a/".repeat(n), n, 0, 0),
            ("1.".repeat(n), 1, 0, 0),
            ("a_b ".repeat(n), 2 * n, 0, n),
        ] {
            let found = (apart(&text).split_whitespace().count(), humps(&text).len(), names(&text).count());
            assert_eq!(found, (words, capitals, underscores), "{}", &text[..4]);
            assert!(in_words(&text).len() <= MOST);
        }
    }
}
