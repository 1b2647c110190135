//! The part of a knowledge base's retrieval that says how candidates are reranked.

use crate::json_reader::Fields;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rerank {
    /// Id of a row of kb.rerankers; '' while options name none, which may stand for a knowledge base's own.
    pub reranker: String,
    /// The reranker reads this many times top_k candidates.
    pub retrieval_factor: usize,
    /// The timeout in milliseconds, after which the order stays as it was.
    pub timeout_ms: u64,
}

impl Default for Rerank {
    fn default() -> Self {
        Rerank { reranker: String::new(), retrieval_factor: 3, timeout_ms: 10_000 }
    }
}

impl Rerank {
    /// Reads `rerank` of a configuration. Settings that it does not name keep the values of `own`, and null
    /// switches it off.
    pub(super) fn read(own: &mut Option<Rerank>, fields: &mut Fields) {
        let Some(given) = fields.object_or_null("rerank") else { return };
        let Some(value) = given else {
            *own = None;
            return;
        };
        let mut inner = Fields::new("rerank", &value);
        let mut rerank = own.take().unwrap_or_default();
        rerank.reranker = inner.text("reranker").unwrap_or(rerank.reranker);
        rerank.retrieval_factor =
            inner.integer("retrieval_factor", 1, 100).map_or(rerank.retrieval_factor, |n| n as usize);
        rerank.timeout_ms = inner.integer("timeout_ms", 1, 600_000).map_or(rerank.timeout_ms, |n| n as u64);
        fields.extend(inner);
        *own = Some(rerank);
    }
}

#[cfg(test)]
mod tests {
    use crate::Retrieval;
    use serde_json::json;

    #[test]
    fn a_call_changes_parts_of_a_knowledge_bases_reranking_or_switches_it_off() {
        let own = Retrieval::parse(&json!({"rerank": {"reranker": "r", "retrieval_factor": 5}})).unwrap();
        assert_eq!(Retrieval::parse(&own.to_json()).unwrap(), own);
        let asked = own.with_options(&json!({"rerank": {"timeout_ms": 7}})).unwrap().rerank.unwrap();
        assert_eq!((asked.reranker.as_str(), asked.retrieval_factor, asked.timeout_ms), ("r", 5, 7));
        assert_eq!(own.with_options(&json!({"rerank": null})).unwrap().rerank, None);
        assert_eq!(own.with_options(&json!({})).unwrap(), own);
        // A setting that a call leaves out must be set in the knowledge base.
        let none = Retrieval::default();
        assert!(none.with_options(&json!({"rerank": {"retrieval_factor": 2}})).is_err());
        assert!(Retrieval::options_problems(&json!({"rerank": {"retrieval_factor": 2}})).is_empty());
        assert_eq!(
            none.with_options(&json!({"rerank": {"reranker": "r"}}))
                .unwrap()
                .rerank
                .unwrap()
                .retrieval_factor,
            3
        );
        assert!(!none.to_json().to_string().contains("rerank"));
    }

    #[test]
    fn every_problem_is_reported() {
        let wrong = json!({"rerank": {"reranker": 5, "retrieval_factor": 0, "timeout_ms": "x", "speed": 1}});
        // The fifth problem is that the reranker is missing.
        assert_eq!(Retrieval::parse(&wrong).unwrap_err().len(), 5);
        assert!(Retrieval::parse(&json!({"rerank": "r"})).is_err());
        assert!(Retrieval::parse(&json!({"rerank": {}})).is_err());
    }

    #[test]
    fn a_reranker_has_more_candidates_recalled_but_never_more_than_the_limit() {
        let recalled = |top_k, factor| {
            Retrieval::parse(
                &json!({"top_k": top_k, "rerank": {"reranker": "r", "retrieval_factor": factor}}),
            )
            .unwrap()
            .recalled()
        };
        assert_eq!((recalled(5, 3), recalled(10_000, 100), Retrieval::default().recalled()), (15, 10_000, 5));
    }
}
