//! Reads the words of a question. Where the syntax has operators, "quoted phrases" and -exclusions are taken
//! out of the text.

use kb_types::syntax::Syntax;

/// The words of a question.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct QuestionWords {
    /// The text by which chunks are ranked, with phrases but without exclusions.
    pub text: String,
    /// Phrases that chunks must contain.
    pub phrases: Vec<String>,
    /// Words and phrases that chunks must not contain.
    pub excluded: Vec<String>,
}

pub fn read(question: &str, syntax: Syntax) -> QuestionWords {
    match syntax {
        Syntax::Plain => QuestionWords { text: question.into(), ..QuestionWords::default() },
        Syntax::Web => parse(question),
        Syntax::WithoutPhrases => QuestionWords { phrases: Vec::new(), ..parse(question) },
    }
}

/// Reads a question in the manner of search engines and of PostgreSQL's websearch_to_tsquery: "…" is a
/// phrase, and a minus sign at the beginning of a word or phrase excludes it. A quotation mark that is not
/// closed is text, and so is a minus sign at the beginning of one of several lines, because it marks the item
/// of a list.
fn parse(question: &str) -> QuestionWords {
    let is_lines = question.trim().contains('\n');
    let mut words = QuestionWords::default();
    let mut rest = question;
    let mut before = None;
    while let Some(c) = rest.chars().next() {
        let is_start = match before {
            None | Some('\n') => !is_lines,
            Some(before) => before.is_whitespace(),
        };
        let body = rest.strip_prefix('-').filter(|_| is_start);
        if let Some((phrase, after)) =
            body.unwrap_or(rest).strip_prefix('"').and_then(|rest| rest.split_once('"'))
        {
            match body {
                Some(_) => words.excluded.push(phrase.into()),
                None => {
                    words.phrases.push(phrase.into());
                    words.text.push_str(&format!(" {phrase} "));
                }
            }
            (rest, before) = (after, Some('"'));
            continue;
        }
        let excluded = body.filter(|body| body.chars().next().is_some_and(char::is_alphanumeric));
        if let Some(body) = excluded {
            let end = body.find(|c: char| c.is_whitespace() || c == '"').unwrap_or(body.len());
            words.excluded.push(body[..end].into());
            (rest, before) = (&body[end..], Some('-'));
            continue;
        }
        words.text.push(c);
        (rest, before) = (&rest[c.len_utf8()..], Some(c));
    }
    words.phrases.retain(|phrase| !phrase.trim().is_empty());
    words.excluded.retain(|excluded| !excluded.trim().is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(question: &str) -> (String, Vec<String>, Vec<String>) {
        let QuestionWords { text, phrases, excluded } = parse(question);
        (text.split_whitespace().collect::<Vec<_>>().join(" "), phrases, excluded)
    }

    fn owned(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| word.to_string()).collect()
    }

    #[test]
    fn phrases_are_used_for_ranking_and_exclusions_are_not() {
        let question = r#"fast "hash joins" -slow -"nested loop" plan"#;
        let expected =
            ("fast hash joins plan".into(), owned(&["hash joins"]), owned(&["slow", "nested loop"]));
        assert_eq!(parts(question), expected);
    }

    #[test]
    fn a_minus_sign_within_a_word_or_alone_excludes_nothing() {
        for question in ["well-known tf-idf", "a - b", "--", "x -", "-", "- a", "2 -> 1"] {
            assert_eq!(parts(question).2, owned(&[]), "{question}");
        }
        assert_eq!(parts("a -b-c d"), ("a d".into(), owned(&[]), owned(&["b-c"])));
    }

    #[test]
    fn a_list_excludes_nothing() {
        for question in ["- first\n- second", "-first\n-second", "Why?\n-first\n  - second"] {
            assert_eq!(parts(question).2, owned(&[]), "{question}");
        }
        assert_eq!(parts("-first second\n").2, owned(&["first"]));
        assert_eq!(parts("a\nb -c").2, owned(&["c"]));
    }

    #[test]
    fn plain_text_has_no_operators_and_without_phrases_exclusions_stay() {
        let question = r#"the "training" phase -x"#;
        assert_eq!(
            read(question, Syntax::Plain),
            QuestionWords { text: question.into(), ..QuestionWords::default() }
        );
        let question = r#"a "nested loop" "-b" -slow -"hash join""#;
        let QuestionWords { text, phrases, excluded } = read(question, Syntax::WithoutPhrases);
        assert_eq!((phrases, excluded), (owned(&[]), owned(&["slow", "hash join"])));
        assert!(text.contains("nested loop") && text.contains("-b"), "{text}");
    }

    #[test]
    fn a_quotation_mark_that_is_not_closed_is_text() {
        assert_eq!(parts(r#"5" pipe"#), (r#"5" pipe"#.into(), owned(&[]), owned(&[])));
        assert_eq!(parts(r#""" x"#), ("x".into(), owned(&[]), owned(&[])));
        assert_eq!(parts(r#"a "b c""#).1, owned(&["b c"]));
        assert_eq!(parts(r#"-"a" b -"c"#), (r#"b -"c"#.into(), owned(&[]), owned(&["a"])));
    }

    #[test]
    fn a_question_of_100_000_operators_is_read_completely() {
        let many = |unit: &str| unit.repeat(100_000);
        let count = |question: &str| {
            let (text, phrases, excluded) = parts(question);
            (text, phrases.len(), excluded.len())
        };
        assert_eq!(count(&(many("\"\"") + "x")), ("x".into(), 0, 0));
        assert_eq!(count(&many("\"a\" ")), (many("a ").trim_end().into(), 100_000, 0));
        assert_eq!(count(&many(" -ä")), (String::new(), 0, 100_000));
        assert_eq!(count(&many("--")), (many("--"), 0, 0));
    }
}
