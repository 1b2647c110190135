//! What the application decides of a tool call: what it reaches, and how much it returns. Pure.

use kb_types::error::{Error, Result};
use kb_types::json_reader::Fields;
use serde_json::Value;

/// The most rows of the tools that search documents.
const MOST_RESULTS: i64 = 100;
const MOST_TOKENS: i64 = 1_000_000;
const MOST_KNOWLEDGE_BASES: usize = 100;

#[derive(Debug, Clone, PartialEq)]
pub struct ToolOptions {
    /// The memory of memory_store and memory_search.
    pub memory: Option<String>,
    /// Whom or what stored facts are about. Only facts about it are searched, or all if this is None.
    pub subject: Option<String>,
    /// The knowledge bases of file_search and search_semantic_knowledge.
    pub knowledge_bases: Vec<String>,
    /// If there are any, the only keys that metadata and filters may have.
    pub allowed_metadata_keys: Vec<String>,
    /// For the tools that search knowledge bases: rows, the least score, and tokens of all texts together.
    pub max_results: i32,
    pub min_score: f64,
    pub max_tokens: i32,
}

impl ToolOptions {
    /// Returns every problem.
    pub fn parse(given: &Value) -> Result<ToolOptions> {
        let mut fields = Fields::new("options", given);
        let number = |n: Option<i64>, default| n.and_then(|n| i32::try_from(n).ok()).unwrap_or(default);
        let options = ToolOptions {
            memory: fields.text("memory"),
            subject: fields.text("subject"),
            knowledge_bases: fields.texts("knowledge_bases").unwrap_or_default(),
            allowed_metadata_keys: fields.texts("allowed_metadata_keys").unwrap_or_default(),
            max_results: number(fields.integer("max_results", 1, MOST_RESULTS), 10),
            min_score: fields.number("min_score", 0.0, 1.0).unwrap_or(0.5),
            max_tokens: number(fields.integer("max_tokens", 1, MOST_TOKENS), 4000),
        };
        if options.knowledge_bases.len() > MOST_KNOWLEDGE_BASES {
            fields.problem("knowledge_bases", format_args!("has more than {MOST_KNOWLEDGE_BASES} elements"));
        }
        let problems = fields.finish();
        match problems.is_empty() {
            true => Ok(options),
            false => Err(Error::Argument { argument: "options", problem: problems.join("; ") }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn options_have_the_defaults_of_the_seed_and_every_problem_is_reported() {
        let options = ToolOptions::parse(&json!({})).unwrap();
        assert_eq!((options.max_results, options.min_score, options.max_tokens), (10, 0.5, 4000));
        assert_eq!(ToolOptions::parse(&Value::Null).unwrap(), options);
        let wrong = json!({"memory": 1, "max_results": 0, "min_score": 2, "max_tokens": 0, "knowledge_bases": "a", "x": 1});
        let error = ToolOptions::parse(&wrong).unwrap_err().to_string();
        for key in ["memory", "max_results", "min_score", "max_tokens", "knowledge_bases", "x"] {
            assert!(error.contains(&format!("options.{key}")), "{key}: {error}");
        }
        let many = vec!["k"; MOST_KNOWLEDGE_BASES + 1];
        assert!(ToolOptions::parse(&json!({"knowledge_bases": many})).is_err());
    }
}
