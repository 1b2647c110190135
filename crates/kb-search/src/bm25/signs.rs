//! Prepares a text for splitting into words: characters that look the same become the same, and text of
//! scripts without blanks is split.
//!
//! Chinese, Japanese, Thai, Lao, Khmer and Burmese have no blanks between words. Their runs are split into
//! overlapping pairs of characters (bigrams), as Lucene's CJKAnalyzer does. Whichever part of a run a
//! question contains, its pairs are found, which segmentation by a dictionary cannot guarantee. Such a run
//! also ends where another script begins. A "sign" is a character with its combining marks.

use std::borrow::Cow;
use unicode_normalization::char::is_combining_mark;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfkc_quick};

/// The pieces into which a run is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Two consecutive signs.
    Pair,
    /// The only sign of a run.
    Alone,
    /// Each sign of a run with several, by which a question of one sign finds it.
    Sign,
}

/// The most characters of a sign, because a letter may have any number of marks.
const LONGEST: usize = 8;

/// A text in NFKC, without invisible characters, and with blanks around Hangul.
pub fn normal(text: &str) -> Cow<'_, str> {
    let is_normal = || {
        is_nfkc_quick(text.chars()) == IsNormalized::Yes && !text.chars().any(|c| is_unseen(c) || is_trade(c))
    };
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    if is_normal() {
        return hangul_apart(text).map_or(Cow::Borrowed(text), Cow::Owned);
    }
    let seen = text.chars().filter(|c| !is_unseen(*c)).map(|c| if is_trade(c) { ' ' } else { c });
    let normal: String = seen.nfkc().collect();
    Cow::Owned(hangul_apart(&normal).unwrap_or(normal))
}

/// A text with blanks between Hangul and other letters or digits, because Korean adds particles to foreign
/// words. None if there is no such place.
fn hangul_apart(text: &str) -> Option<String> {
    let is_edge = |before: char, c: char| {
        is_hangul(before) != is_hangul(c) && before.is_alphanumeric() && c.is_alphanumeric()
    };
    let following = || text.chars().zip(text.chars().skip(1));
    if !text.chars().any(is_hangul) || !following().any(|(before, c)| is_edge(before, c)) {
        return None;
    }
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    out.extend(text.chars().next());
    for (before, c) in following() {
        out.extend(is_edge(before, c).then_some(' '));
        out.push(c);
    }
    Some(out)
}

/// Hangul syllables, and compatibility letters.
fn is_hangul(c: char) -> bool {
    matches!(c, '\u{ac00}'..='\u{d7a3}' | '\u{1100}'..='\u{11ff}' | '\u{3130}'..='\u{318f}')
}

/// Soft hyphens, spaces and joiners without width, marks of direction, selectors of variants. Not U+200C and
/// U+200D, which change how letters look.
pub fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{2066}'..='\u{2069}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{e0100}'..='\u{e01ef}')
}

/// Trademark signs and similar, which NFKC would turn into letters of the preceding word.
fn is_trade(c: char) -> bool {
    matches!(c, '\u{2120}' | '\u{2122}')
}

/// Whether a letter or mark is of a script that is written without blanks.
pub fn is_unspaced(c: char) -> bool {
    let is_of_script = matches!(c, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{1950}'..='\u{19df}' | '\u{1a20}'..='\u{1aaf}' | '\u{2e80}'..='\u{2fdf}' | '\u{3005}'..='\u{3007}'
        | '\u{3031}'..='\u{312f}' | '\u{31a0}'..='\u{31bf}' | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{9fff}'
        | '\u{a9e0}'..='\u{a9ff}' | '\u{aa60}'..='\u{aa7f}' | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ff9f}'
        | '\u{1b000}'..='\u{1b16f}' | '\u{20000}'..='\u{3ffff}');
    is_of_script && (c.is_alphabetic() || is_combining_mark(c))
}

/// Calls `each` with the pieces of the runs without blanks, and returns the text without these runs.
pub fn cut<'a>(text: &'a str, mut each: impl FnMut(&'a str, Cut)) -> Cow<'a, str> {
    let Some(first) = next_run(text) else { return Cow::Borrowed(text) };
    let mut others = String::with_capacity(text.len());
    let (mut rest, mut run) = (text, first);
    loop {
        others.push_str(&rest[..run.start]);
        others.push(' ');
        pairs(&rest[run.clone()], &mut each);
        rest = &rest[run.end..];
        match next_run(rest) {
            Some(next) => run = next,
            None => break,
        }
    }
    others.push_str(rest);
    Cow::Owned(others)
}

/// A text with blanks between the signs of runs without blanks.
pub fn spaced(text: &str) -> Cow<'_, str> {
    if next_run(text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() * 2);
    let mut rest = text;
    while let Some(run) = next_run(rest) {
        out.push_str(&rest[..run.start]);
        for sign in signs(&rest[run.clone()]) {
            out.push(' ');
            out.push_str(sign);
        }
        out.push(' ');
        rest = &rest[run.end..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn next_run(text: &str) -> Option<std::ops::Range<usize>> {
    if text.is_ascii() {
        return None;
    }
    let start = text.find(is_unspaced)?;
    let length = text[start..].find(|c| !is_unspaced(c) && !is_combining_mark(c));
    Some(start..length.map_or(text.len(), |length| start + length))
}

fn pairs<'a>(run: &'a str, each: &mut impl FnMut(&'a str, Cut)) {
    let mut before: Option<(usize, usize)> = None;
    let mut place = 0;
    for sign in signs(run) {
        let end = place + sign.len();
        if let Some((start, length)) = before {
            if start == 0 {
                each(&run[..length], Cut::Sign);
            }
            each(&run[start..end], Cut::Pair);
            each(sign, Cut::Sign);
        }
        before = Some((place, sign.len()));
        place = end;
    }
    if let Some((0, _)) = before {
        each(run, Cut::Alone);
    }
}

/// The signs of a run: each letter with its marks, and in Thai and Lao also with the vowels beside it, from
/// which no word boundary separates it.
fn signs(run: &str) -> impl Iterator<Item = &str> {
    let mut rest = run;
    std::iter::from_fn(move || {
        let mut characters = rest.char_indices();
        let (_, mut before) = characters.next()?;
        let mut end = rest.len();
        for (count, (place, c)) in (1..).zip(characters) {
            if count >= LONGEST || !goes_on(before, c) {
                end = place;
                break;
            }
            before = c;
        }
        let (sign, others) = rest.split_at(end);
        rest = others;
        Some(sign)
    })
}

/// Whether the sign of a character includes the next character.
fn goes_on(before: char, c: char) -> bool {
    // Vowels that are written before their consonant, and marks that stack consonants.
    let is_open = matches!(before, '\u{e40}'..='\u{e44}' | '\u{ec0}'..='\u{ec4}' | '\u{17d2}' | '\u{1039}' | '\u{1a60}');
    // Vowels that are written after it.
    let is_behind = matches!(c, '\u{e30}' | '\u{e32}' | '\u{e45}' | '\u{eb0}' | '\u{eb2}');
    is_open || is_behind || is_combining_mark(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut_of(text: &str) -> (Vec<(&str, Cut)>, String) {
        let mut found = Vec::new();
        let others = cut(text, |sign, cut| found.push((sign, cut))).into_owned();
        (found, others)
    }

    fn of(text: &str, what: Cut) -> Vec<&str> {
        cut_of(text).0.into_iter().filter(|(_, cut)| *cut == what).map(|(sign, _)| sign).collect()
    }

    #[test]
    fn characters_that_look_the_same_become_the_same() {
        for (written, seen) in [
            ("Ge\u{ad}samt\u{ad}kon\u{ad}zept", "Gesamtkonzept"),
            ("Mu\u{308}nchen", "München"),
            ("e\u{ad}\u{301}tude", "étude"),
            ("ＰｏｓｔｇｒｅＳＱＬ　１６", "PostgreSQL 16"),
            ("ﾃﾞｰﾀﾍﾞｰｽ", "データベース"),
            ("ﬁle", "file"),
            ("zero\u{200b}width\u{feff} a\u{2060}b", "zerowidth ab"),
            ("Kb™ H₂O", "Kb  H2O"),
        ] {
            assert_eq!(normal(written), seen, "{written}");
        }
        assert_eq!(normal("PostgreSQL은 3월, 한국어"), "PostgreSQL 은 3 월, 한국어");
        for same in ["plain", "München", "数据库", "می\u{200c}خواهم"] {
            assert!(matches!(normal(same), Cow::Borrowed(_)), "{same}");
        }
    }

    #[test]
    fn a_run_is_split_into_pairs_and_ends_where_the_script_changes() {
        let (found, others) = cut_of("PostgreSQL数据库 x 管.");
        let pairs = [("数据", Cut::Pair), ("据库", Cut::Pair)];
        let signs = [("数", Cut::Sign), ("据", Cut::Sign), ("库", Cut::Sign)];
        let expected = [signs[0], pairs[0], signs[1], pairs[1], signs[2], ("管", Cut::Alone)];
        assert_eq!((found, others.as_str()), (expected.to_vec(), "PostgreSQL  x  ."));
        assert_eq!(of("データ、ベース", Cut::Pair), ["デー", "ータ", "ベー", "ース"]);
        // Digits and Hangul are left as words.
        assert_eq!(cut_of("2024年1月 한국어").1, "2024 1  한국어");
        assert!(matches!(cut("naïve ASCII", |_, _| {}), Cow::Borrowed(_)));
    }

    #[test]
    fn a_sign_is_a_letter_with_its_marks_and_vowels() {
        let signs = |run| signs(run).collect::<Vec<_>>();
        assert_eq!(signs("ประเทศไทย"), ["ป", "ระ", "เท", "ศ", "ไท", "ย"]);
        assert_eq!(signs("ພາສາລາວ"), ["ພາ", "ສາ", "ລາ", "ວ"]);
        assert_eq!(signs("កម្ពុជា"), ["ក", "ម្ពុ", "ជា"]);
        assert_eq!(signs("မြန်မာ"), ["မြ", "န်", "မာ"]);
        // In NFKC, as all texts are before they are split.
        assert_eq!(signs(&normal("น้ำ")).len(), 1);
        assert_eq!(spaced("a数据b"), "a 数 据 b");
    }

    #[test]
    fn a_long_run_is_cut_completely_into_pieces_of_bounded_length() {
        for text in [
            "数".repeat(400_000),
            "ก\u{301}".repeat(200_000),
            format!("ก{}", "\u{301}".repeat(400_000)),
            "a数".repeat(300_000),
        ] {
            let (mut bytes, mut longest) = (0, 0);
            cut(&normal(&text), |sign, cut| {
                bytes += if cut == Cut::Pair { 0 } else { sign.len() };
                longest = longest.max(sign.len());
            });
            assert!(bytes > 600_000 && longest <= 2 * LONGEST * 4, "{bytes} {longest}");
        }
    }
}
