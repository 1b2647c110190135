//! The options of kb.answer.

use crate::json::Json;
use crate::json_reader::Fields;
use crate::retrieval::Retrieval;
use crate::{Filter, sizes};
use serde_json::{Map, Value};
use std::time::Duration;

/// What is answered if nothing qualifies, unless the options say something else.
pub const REFUSAL: &str = "The documents do not answer this question.";

/// The most bytes of a refusal, and of the instructions.
const MAX_REFUSAL: usize = 4_000;
const MAX_INSTRUCTIONS: usize = 32_000;

/// The keys that are not settings of retrieval.
const KEYS: [&str; 6] = ["refusal", "instructions", "timeout", "subject", "answer_tokens", "filter"];

#[derive(Debug, Clone, PartialEq)]
pub struct AnswerOptions {
    pub refusal: String,
    /// What the model is told in addition.
    pub instructions: Option<String>,
    /// The time for everything. None: the default.
    pub timeout: Option<Duration>,
    /// Whom the memories are about.
    pub subject: Option<String>,
    /// The most tokens of the answer. None: the setting of the model.
    pub answer_tokens: Option<u32>,
    pub filter: Option<Json>,
    /// The other options, which are those of kb.query.
    pub retrieval: Value,
}

impl AnswerOptions {
    /// Reads the options. The error lists every problem.
    pub fn parse(given: Option<Json>) -> Result<AnswerOptions, Vec<String>> {
        let mut given = given.filter(|given| given.as_str() != "null").unwrap_or_else(Json::empty_object);
        // A filter is kept as it is written, because its numbers may have more digits than a value holds.
        let filter = given.take("filter").filter(|filter| filter.as_str() != "null");
        let value = given.value().map_err(|problem| vec![format!("options: {problem}")])?;
        let (own, others): (Map<_, _>, Map<_, _>) = match &value {
            Value::Object(map) => map.clone().into_iter().partition(|(key, _)| KEYS.contains(&key.as_str())),
            _ => Default::default(),
        };
        let mut fields = Fields::new("options", &Value::Object(own));
        let refusal = fields.text("refusal");
        let instructions = fields.text("instructions");
        let subject = fields.text("subject");
        let timeout = fields.number("timeout", 0.001, 3600.0).map(Duration::from_secs_f64);
        let answer_tokens = fields.integer("answer_tokens", 1, 1_000_000).map(|tokens| tokens as u32);
        if refusal.as_ref().is_some_and(|refusal| refusal.trim().is_empty()) {
            fields.problem("refusal", "it is empty");
        }
        for (key, text, most) in
            [("refusal", &refusal, MAX_REFUSAL), ("instructions", &instructions, MAX_INSTRUCTIONS)]
        {
            if let Some(problem) = text.as_ref().and_then(|text| sizes::problem(text.len(), most)) {
                fields.problem(key, problem);
            }
        }
        if let Some(Err(problem)) = filter.as_ref().map(Filter::parse) {
            fields.problem("filter", problem);
        }
        let mut problems = fields.finish();
        let retrieval = if value.is_object() { Value::Object(others) } else { value };
        problems.extend(Retrieval::options_problems_besides(&retrieval, &KEYS));
        match problems.is_empty() {
            true => Ok(AnswerOptions {
                refusal: refusal.map_or_else(|| REFUSAL.into(), |refusal| refusal.trim().to_string()),
                instructions: instructions.filter(|text| !text.trim().is_empty()),
                timeout,
                subject,
                answer_tokens,
                filter,
                retrieval,
            }),
            false => Err(problems),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(options: &Value) -> Result<AnswerOptions, Vec<String>> {
        AnswerOptions::parse(Some(Json::new(options.to_string())))
    }

    #[test]
    fn options_of_the_answer_and_of_retrieval_are_told_apart() {
        let none = AnswerOptions::parse(None).unwrap();
        assert_eq!(AnswerOptions::parse(Some(Json::new("null"))), Ok(none.clone()));
        assert_eq!((none.refusal.as_str(), none.timeout, none.filter), (REFUSAL, None, None));
        let given = json!({"refusal": " No. ", "instructions": " ", "timeout": 1.5, "subject": "user:1",
            "answer_tokens": 9, "filter": {"a": 1}, "top_k": 3, "mode": "hybrid", "min_score": null});
        let options = parse(&given).unwrap();
        assert_eq!((options.refusal.as_str(), options.instructions), ("No.", None));
        assert_eq!((options.timeout, options.answer_tokens), (Some(Duration::from_millis(1500)), Some(9)));
        assert_eq!(options.subject.as_deref(), Some("user:1"));
        assert_eq!(options.retrieval, json!({"top_k": 3, "mode": "hybrid", "min_score": null}));
        assert_eq!(options.filter.unwrap().value().unwrap(), json!({"a": 1}));
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let given = json!({"refusal": "", "instructions": 1, "timeout": 0, "answer_tokens": 0, "filter": [],
            "top_k": 0, "speed": 1});
        let problems = parse(&given).unwrap_err();
        assert_eq!(problems.len(), 7, "{problems:?}");
        let unknown = problems.iter().find(|problem| problem.starts_with("options.speed")).unwrap();
        assert!(unknown.contains("refusal") && unknown.contains("top_k"), "{unknown}");
        assert!(parse(&json!({"instructions": "x".repeat(MAX_INSTRUCTIONS + 1)})).is_err());
        for wrong in [json!([]), json!("x"), json!(1)] {
            assert_eq!(parse(&wrong).unwrap_err().len(), 1, "{wrong}");
        }
    }
}
