//! Relevance judgements: which documents, or which parts of their texts, belong into the answer to a question
//! of an evaluation set, with grades.

use super::json::Json;
use super::{id, sizes};
use crate::error::Result;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

/// The largest grade. The smallest is its negative.
const MAX_GRADE: i64 = 1000;
/// The most judgements of one question.
pub const MAX_JUDGEMENTS: usize = 10_000;
/// The most judgements of one question that concern parts of texts, because each chunk of an answer is
/// compared with all such judgements of its document.
const MAX_SPANS: usize = 1_000;

/// A question of an evaluation set.
#[derive(Debug, Clone, PartialEq)]
pub struct EvalQuestion {
    pub id: String,
    pub question: String,
    pub judgements: Vec<Judgement>,
    pub filter: Option<Json>,
}

/// A document or a part of its text, and how well it answers the question. A grade of 1 or more is relevant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    pub external_id: String,
    pub grade: i32,
    /// The first character, counted from 0, and the one past the last. None means the whole document.
    pub span: Option<(i32, i32)>,
}

impl EvalQuestion {
    /// Returns an error where a field is too long.
    pub fn check(&self) -> Result<()> {
        let judgements = Judgement::all_to_json(&self.judgements).to_string().len();
        let filter = self.filter.as_ref().map_or(0, |filter| filter.as_str().len());
        for (field, size, most) in [
            ("question", self.question.len(), sizes::QUESTION),
            ("relevant", judgements, sizes::JUDGEMENTS),
            ("filter", filter, sizes::FILTER),
        ] {
            let object = || format!("question \"{}\"", sizes::cut(&self.id, id::MAX_EXTERNAL_BYTES));
            sizes::check(object, field, size, most)?;
        }
        Ok(())
    }
}

impl Judgement {
    /// Reads the judgements of one question: an array of external_ids, or of objects with external_id, grade
    /// (1 where it is left out), start and end. The error lists every problem.
    pub fn parse_all(value: &Value) -> Result<Vec<Judgement>, Vec<String>> {
        let Some(elements) = value.as_array() else {
            return Err(vec!["it must be an array of external_ids, or of objects with external_id".into()]);
        };
        if elements.len() > MAX_JUDGEMENTS {
            let given = elements.len();
            return Err(vec![format!("it has {given} elements; at most {MAX_JUDGEMENTS} are allowed")]);
        }
        let (mut judgements, mut problems) = (Vec::with_capacity(elements.len()), Vec::new());
        for (number, element) in (1..).zip(elements) {
            match Judgement::parse(element) {
                Ok(judgement) => judgements.push(judgement),
                Err(problem) => problems.push(format!("element {number}: {problem}")),
            }
        }
        problems.extend(contradictions(&judgements));
        if judgements.iter().filter(|judgement| judgement.span.is_some()).count() > MAX_SPANS {
            problems.push(format!("more than {MAX_SPANS} elements have start and end"));
        }
        if problems.is_empty() { Ok(judgements) } else { Err(problems) }
    }

    fn parse(value: &Value) -> Result<Judgement, String> {
        let object = match value {
            Value::String(external_id) => Map::from_iter([("external_id".to_string(), json!(external_id))]),
            Value::Object(object) => object.clone(),
            _ => return Err("it must be an external_id or an object".into()),
        };
        const KEYS: [&str; 4] = ["external_id", "grade", "start", "end"];
        if let Some(key) = object.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(format!("unknown key \"{key}\"; known keys are {}", KEYS.join(", ")));
        }
        let external_id = object.get("external_id").and_then(Value::as_str).unwrap_or_default();
        if let Some(problem) = id::problem(external_id, id::MAX_EXTERNAL_BYTES) {
            return Err(format!("external_id: {problem}"));
        }
        let whole = |key: &str, least: i64, most: i64| match object.get(key).filter(|v| !v.is_null()) {
            None => Ok(None),
            Some(value) => match value.as_i64().filter(|n| (least..=most).contains(n)) {
                Some(n) => Ok(Some(n as i32)),
                None => Err(format!("{key}: must be a whole number from {least} to {most}")),
            },
        };
        let grade = whole("grade", -MAX_GRADE, MAX_GRADE)?.unwrap_or(1);
        let most = i64::from(i32::MAX);
        let span = match (whole("start", 0, most)?, whole("end", 0, most)?) {
            (None, None) => None,
            (Some(start), Some(end)) if start < end => Some((start, end)),
            (Some(_), Some(_)) => return Err("end must be greater than start".into()),
            _ => return Err("start and end must be given together".into()),
        };
        Ok(Judgement { external_id: external_id.to_string(), grade, span })
    }

    /// The inverse of [`Judgement::parse_all`].
    pub fn all_to_json(judgements: &[Judgement]) -> Value {
        let one = |judgement: &Judgement| match judgement.span {
            None => json!({ "external_id": judgement.external_id, "grade": judgement.grade }),
            Some((start, end)) => json!({
                "external_id": judgement.external_id, "grade": judgement.grade, "start": start, "end": end
            }),
        };
        judgements.iter().map(one).collect()
    }
}

/// Documents that are judged twice, or both as a whole and in parts.
fn contradictions(judgements: &[Judgement]) -> Vec<String> {
    let (mut seen, mut in_parts) = (HashSet::new(), HashMap::new());
    let mut problems = Vec::new();
    for Judgement { external_id, span, .. } in judgements {
        if !seen.insert((external_id, span)) {
            problems.push(format!("\"{external_id}\" is judged twice"));
        } else if *in_parts.entry(external_id).or_insert(span.is_some()) != span.is_some() {
            problems.push(format!("\"{external_id}\" is judged as a whole and in parts"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judgements_are_ids_or_objects_and_read_back_the_same() {
        let given =
            json!(["a", {"external_id": "b", "grade": 3}, {"external_id": "c", "start": 0, "end": 9}]);
        let judgements = Judgement::parse_all(&given).unwrap();
        let of = |id: &str, grade, span| Judgement { external_id: id.into(), grade, span };
        assert_eq!(judgements, [of("a", 1, None), of("b", 3, None), of("c", 1, Some((0, 9)))]);
        assert_eq!(Judgement::parse_all(&Judgement::all_to_json(&judgements)).unwrap(), judgements);
        assert_eq!(Judgement::parse_all(&json!([])).unwrap(), []);
    }

    #[test]
    fn a_malformed_judgement_is_refused_with_every_problem() {
        for (wrong, problems) in [
            (json!({"a": 1}), 1),
            (json!([1, null, "", {"external_id": "a", "rank": 1}]), 4),
            (json!([{"external_id": "a", "grade": 1.5}, {"external_id": "b", "grade": 5000}]), 2),
            (json!([{"external_id": "a", "start": 3}, {"external_id": "b", "start": 3, "end": 3}]), 2),
            (json!(["a", "a"]), 1),
            (json!(["a", {"external_id": "a", "start": 0, "end": 3}]), 1),
            (json!(vec!["a"; MAX_JUDGEMENTS + 1]), 1),
        ] {
            assert_eq!(Judgement::parse_all(&wrong).unwrap_err().len(), problems);
        }
        let span = |n: usize| json!({"external_id": "a", "start": n, "end": n + 1});
        let many = (0..=MAX_SPANS).map(span).collect::<Value>();
        assert!(Judgement::parse_all(&many).unwrap_err()[0].contains("start and end"));
    }
}
