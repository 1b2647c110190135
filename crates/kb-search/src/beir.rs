//! Reads questions and judgements in the format of the BEIR benchmark: queries as JSON lines, and judgements
//! separated by tabs.

use kb_types::id;
use kb_types::judgement::{EvalQuestion, Judgement, MAX_JUDGEMENTS};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};

/// The most problems that are reported.
const MAX_PROBLEMS: usize = 20;
/// The most questions and judgements. These are many times the sizes of BEIR's collections, and fit into
/// memory.
const MAX_QUESTIONS: usize = 200_000;
const MAX_LINES: usize = 2_000_000;

/// A line of queries.jsonl. Other members are ignored.
#[derive(Deserialize)]
struct Line {
    _id: String,
    text: String,
}

/// The questions that have judgements, in the order of `queries`, and the number of those that have none.
/// Each line of `qrels` has query-id, corpus-id and score; a heading is optional. The error lists at most
/// [`MAX_PROBLEMS`] problems.
pub fn parse(queries: &str, qrels: &str) -> Result<(Vec<EvalQuestion>, usize), Vec<String>> {
    let mut problems = Vec::new();
    let mut questions = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (number, line) in (1..).zip(queries.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        if questions.len() == MAX_QUESTIONS {
            problems.push(format!("queries has more than {MAX_QUESTIONS} questions"));
            return Err(problems);
        }
        match question(line) {
            Ok(found) if places.insert(found.id.clone(), questions.len()).is_none() => questions.push(found),
            Ok(found) => problems.push(format!("queries, line {number}: _id \"{}\" appears twice", found.id)),
            Err(problem) => problems.push(format!("queries, line {number}: {problem}")),
        }
        if problems.len() == MAX_PROBLEMS {
            return Err(problems);
        }
    }
    let mut seen = HashSet::new();
    for (number, line) in (1..).zip(qrels.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        if number == 1 && line.starts_with("query-id") {
            continue;
        }
        if number > MAX_LINES {
            problems.push(format!("qrels has more than {MAX_LINES} lines"));
            break;
        }
        let problem = match judgement(line) {
            Err(problem) => Some(problem),
            Ok((query, judgement)) => match places.get(query) {
                None => Some(format!("query-id \"{query}\" is not in queries")),
                Some(_) if !seen.insert((query, judgement.external_id.clone())) => {
                    Some(format!("\"{}\" is judged twice for query \"{query}\"", judgement.external_id))
                }
                Some(&place) if questions[place].judgements.len() == MAX_JUDGEMENTS => {
                    Some(format!("query \"{query}\" has more than {MAX_JUDGEMENTS} judgements"))
                }
                Some(&place) => {
                    questions[place].judgements.push(judgement);
                    None
                }
            },
        };
        problems.extend(problem.map(|problem| format!("qrels, line {number}: {problem}")));
        if problems.len() == MAX_PROBLEMS {
            break;
        }
    }
    let all = questions.len();
    questions.retain(|question: &EvalQuestion| !question.judgements.is_empty());
    let unjudged = all - questions.len();
    if problems.is_empty() { Ok((questions, unjudged)) } else { Err(problems) }
}

fn question(line: &str) -> Result<EvalQuestion, String> {
    let Line { _id: id, text } = serde_json::from_str(line)
        .map_err(|_| "it is not a JSON object with the strings _id and text".to_string())?;
    if let Some(problem) = id::problem(&id, id::MAX_EXTERNAL_BYTES) {
        return Err(format!("_id: {problem}"));
    }
    // JSON strings may contain NUL, but texts in PostgreSQL may not.
    if id.contains('\0') || text.contains('\0') {
        return Err("it contains a NUL character".into());
    }
    if text.trim().is_empty() {
        return Err("text is empty".into());
    }
    Ok(EvalQuestion { id, question: text, judgements: Vec::new(), filter: None })
}

fn judgement(line: &str) -> Result<(&str, Judgement), String> {
    let mut columns = line.trim_end_matches('\r').split('\t');
    let (Some(query), Some(document), Some(score), None) =
        (columns.next(), columns.next(), columns.next(), columns.next())
    else {
        return Err("it must have three columns separated by tabs: query-id, corpus-id, score".into());
    };
    if let Some(problem) = id::problem(document, id::MAX_EXTERNAL_BYTES) {
        return Err(format!("corpus-id: {problem}"));
    }
    match score.trim().parse::<i32>() {
        Ok(grade) if (-1000..=1000).contains(&grade) => {
            Ok((query, Judgement { external_id: document.into(), grade, span: None }))
        }
        _ => Err(format!("score \"{score}\" is not a whole number from -1000 to 1000")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUERIES: &str = "{\"_id\": \"1\", \"text\": \"one\", \"metadata\": {}}\n\n{\"_id\": \"2\", \"text\": \"two\"}\r\n{\"_id\": \"3\", \"text\": \"three\"}\n";

    #[test]
    fn questions_come_with_their_judgements_and_others_are_counted() {
        let qrels = "query-id\tcorpus-id\tscore\n2\tb\t2\r\n1\ta\t0\n2\tc\t-1\n";
        let (questions, unjudged) = parse(QUERIES, qrels).unwrap();
        let of = |id: &str, grade| Judgement { external_id: id.into(), grade, span: None };
        assert_eq!(unjudged, 1);
        assert_eq!((questions[0].id.as_str(), &questions[0].judgements[..]), ("1", &[of("a", 0)][..]));
        assert_eq!(questions[1].question, "two");
        assert_eq!(questions[1].judgements, [of("b", 2), of("c", -1)]);
        // Without a heading.
        assert_eq!(parse(QUERIES, "1\ta\t1").unwrap().0.len(), 1);
    }

    #[test]
    fn every_wrong_line_is_named() {
        let problems = |queries: &str, qrels: &str| parse(queries, qrels).unwrap_err();
        assert!(problems("{\"_id\": 1, \"text\": \"a\"}", "")[0].starts_with("queries, line 1: "));
        assert!(problems("{\"_id\": \"1\", \"text\": \"a\\u0000\"}", "")[0].contains("NUL"));
        assert!(problems("{\"_id\": \"1\", \"text\": \" \"}", "")[0].contains("empty"));
        assert!(problems(&format!("{QUERIES}{{\"_id\": \"1\", \"text\": \"x\"}}"), "")[0].contains("twice"));
        let wrong = "1\ta\n1\ta\t1\n1\ta\t1\n9\ta\t1\n1\tb\tx\n1\t\t1\n1\tc\t1\t1";
        let found = problems(QUERIES, wrong);
        assert_eq!(found.len(), 6, "{found:?}");
        assert!(found[0].starts_with("qrels, line 1: ") && found[5].starts_with("qrels, line 7: "));
        assert_eq!(problems(&"x\n".repeat(1000), "").len(), MAX_PROBLEMS);
        let deep = format!("{{\"_id\": \"1\", \"text\": \"a\", \"m\": {}}}", "[".repeat(100_000));
        assert_eq!(problems(&deep, "").len(), 1);
    }
}
