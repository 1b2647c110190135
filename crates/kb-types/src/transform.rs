//! The settings by which a chat model rewords questions.

use crate::json_reader::Fields;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transform {
    /// The id of a row of kb.llms. It is '' where options name none, so that the knowledge base's own
    /// applies.
    pub llm: String,
    /// How many further questions are asked besides the original.
    pub multi_query: usize,
    /// Whether the model writes a hypothetical passage that could answer the question, whose vector is
    /// searched for, too (Gao and others: "Precise Zero-Shot Dense Retrieval without Relevance Labels",
    /// 2022).
    pub hyde: bool,
    /// The timeout in milliseconds for each answer of the chat model.
    pub timeout_ms: u64,
}

impl Default for Transform {
    fn default() -> Self {
        Transform { llm: String::new(), multi_query: 0, hyde: false, timeout_ms: 10_000 }
    }
}

impl Transform {
    /// Reads `transform` of a configuration. Settings that it does not name keep the values of `own`, and
    /// null switches it off.
    pub(super) fn read(own: &mut Option<Transform>, fields: &mut Fields) {
        let Some(given) = fields.object_or_null("transform") else { return };
        let Some(value) = given else {
            *own = None;
            return;
        };
        let mut inner = Fields::new("transform", &value);
        let mut transform = own.take().unwrap_or_default();
        transform.llm = inner.text("llm").unwrap_or(transform.llm);
        transform.multi_query =
            inner.integer("multi_query", 0, 10).map_or(transform.multi_query, |n| n as usize);
        transform.hyde = inner.boolean("hyde").unwrap_or(transform.hyde);
        transform.timeout_ms =
            inner.integer("timeout_ms", 1, 600_000).map_or(transform.timeout_ms, |n| n as u64);
        fields.extend(inner);
        *own = Some(transform);
    }
}

#[cfg(test)]
mod tests {
    use crate::Retrieval;
    use serde_json::json;

    #[test]
    fn a_call_changes_parts_of_a_knowledge_bases_transform_or_switches_it_off() {
        let own = Retrieval::parse(&json!({"transform": {"llm": "l", "multi_query": 3}})).unwrap();
        assert_eq!(Retrieval::parse(&own.to_json()).unwrap(), own);
        let asked = own.with_options(&json!({"transform": {"hyde": true}})).unwrap().transform.unwrap();
        assert_eq!((asked.llm.as_str(), asked.multi_query, asked.hyde), ("l", 3, true));
        assert_eq!(own.with_options(&json!({"transform": null})).unwrap().transform, None);
        assert!(Retrieval::parse(&json!({"transform": {"hyde": true}})).is_err());
        assert_eq!(Retrieval::options_problems(&json!({"transform": {"multi_query": 11, "x": 1}})).len(), 2);
    }
}
