//! Finds the parts of a text that recur in a language and that PostgreSQL's default parser reads in the same
//! way wherever they follow white space: words of ASCII letters without the punctuation around them, and
//! other short parts without digits. They need to be parsed only once.

use super::compound;

/// The most bytes of a plain word, and of another part that recurs.
const LONGEST: usize = 32;

/// Calls `word` with each part of a text that recurs, and appends all other parts to `others`, after white
/// space where they were. The parser finds the same tokens in `others` as in the text, except for those of
/// recurring parts, which it finds in a recurring part after a space. Calls `joined` with each part, of
/// either kind, that is a compound word.
///
/// Of the parser's tokens only a tag can contain white space, so a text with a `<` is appended as it is. What
/// follows white space is read in the same way whatever precedes it.
pub fn split<'a>(
    text: &'a str,
    mut word: impl FnMut(&'a str),
    mut joined: impl FnMut(&'a str),
    others: &mut String,
) {
    if text.contains('<') {
        others.push_str(text);
        compound::compounds(text).for_each(joined);
        return;
    }
    for (i, part) in text.split([' ', '\n', '\t', '\r']).enumerate().filter(|(_, part)| !part.is_empty()) {
        let found = plain(part);
        match found {
            Some(word) if compound::has_hump(word) => joined(word),
            None if compound::is_compound(part) => joined(part),
            _ => {}
        }
        match found {
            Some(found) => word(found),
            // The beginning of a text may be read in another way than after white space, for example `~x`.
            None if i > 0 && recurs(part) => word(part),
            None => {
                others.extend((i > 0).then_some(' '));
                others.push_str(part);
            }
        }
    }
}

/// The letters of a part that is a single word of ASCII letters, surrounded by punctuation that begins no
/// other token.
fn plain(part: &str) -> Option<&str> {
    let is_mark = |c: char| matches!(c, ',' | '.' | ';' | ':' | '!' | '?' | ')' | ']' | '"' | '\'');
    let behind = part.trim_start_matches(['(', '[', '"', '\'']);
    let inner = behind.trim_end_matches(is_mark);
    let is_word = (1..=LONGEST).contains(&inner.len()) && inner.bytes().all(|b| b.is_ascii_alphabetic());
    // Two full stops make it a path.
    (is_word && !behind[inner.len()..].contains("..")).then_some(inner)
}

/// Whether a part that is not a plain word is short and has no digits. Parts with digits are mostly unique.
pub fn recurs(part: &str) -> bool {
    part.len() <= LONGEST && !part.bytes().any(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_of(text: &str) -> (Vec<&str>, String) {
        let (mut words, mut others) = (Vec::new(), String::new());
        split(text, |word| words.push(word), |_| {}, &mut others);
        (words, others)
    }

    #[test]
    fn words_are_found_without_punctuation_and_other_parts_as_they_are() {
        let text = "The (quick) \"fox\",\njumps; over v1.2 and\tTom's e-mail: a@b.de,\u{a0}né so... (3) end.";
        let (words, others) = split_of(text);
        let found = [
            "The",
            "quick",
            "fox",
            "jumps",
            "over",
            "and",
            "Tom's",
            "e-mail:",
            "a@b.de,\u{a0}né",
            "so...",
            "end",
        ];
        assert_eq!(words, found);
        assert_eq!(others, " v1.2 (3)");
        assert_eq!(split_of("1x 1x"), (Vec::new(), "1x 1x".to_string()));
        assert_eq!(split_of("~x ~x"), (vec!["~x"], "~x".to_string()));
    }

    #[test]
    fn a_text_that_may_have_tags_is_left_as_it_is() {
        assert_eq!(split_of("a <b href=c d> e"), (Vec::new(), "a <b href=c d> e".to_string()));
    }

    #[test]
    fn a_long_part_is_left_to_the_parser() {
        let long = "x".repeat(33);
        assert_eq!(split_of(&format!("{long} ... -- ' ")), (vec!["...", "--", "'"], long));
    }
}
