//! The parts of a text that PostgreSQL's default parser reads in the same way wherever they stand behind white space, and that a
//! language has again and again: words of ASCII letters without the marks around them, and what else has no digits.

use super::joined;

/// Bytes of a plain word at most, and of another part that recurs.
const LONGEST: usize = 32;

/// Calls `word` with each part of a text that recurs, and puts all other parts into `others`, behind white space where they were: the
/// parser finds in these parts what it finds in the text but for those that recur, and in one of these, behind a space, what it finds
/// there. Calls `joined` with those parts, of either kind, that are several words.
///
/// No token of the parser goes over white space but a tag, so a text with a `<` is put there as it is; and what is behind white
/// space is read in the same way whatever is before that.
pub fn split<'a>(
    text: &'a str,
    mut word: impl FnMut(&'a str),
    mut joined: impl FnMut(&'a str),
    others: &mut String,
) {
    if text.contains('<') {
        others.push_str(text);
        joined::joined(text).for_each(joined);
        return;
    }
    for (i, part) in text.split([' ', '\n', '\t', '\r']).enumerate().filter(|(_, part)| !part.is_empty()) {
        let found = plain(part);
        match found {
            Some(word) if joined::has_hump(word) => joined(word),
            None if joined::is_joined(part) => joined(part),
            _ => {}
        }
        match found {
            Some(found) => word(found),
            // What a text begins with may be read in another way than behind white space: `~x`, for one.
            None if i > 0 && recurs(part) => word(part),
            None => {
                others.extend((i > 0).then_some(' '));
                others.push_str(part);
            }
        }
    }
}

/// The letters of a part that is one word of them and marks around it which begin nothing else.
fn plain(part: &str) -> Option<&str> {
    let is_mark = |c: char| matches!(c, ',' | '.' | ';' | ':' | '!' | '?' | ')' | ']' | '"' | '\'');
    let behind = part.trim_start_matches(['(', '[', '"', '\'']);
    let inner = behind.trim_end_matches(is_mark);
    let is_word = (1..=LONGEST).contains(&inner.len()) && inner.bytes().all(|b| b.is_ascii_alphabetic());
    // Two full stops are a path.
    (is_word && !behind[inner.len()..].contains("..")).then_some(inner)
}

/// Whether a part that is no plain word is short and without digits: numbers, dates and versions are many.
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
    fn words_are_found_with_marks_around_them_and_what_else_has_no_digits_as_it_is() {
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
