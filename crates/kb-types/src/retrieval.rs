//! The settings by which a knowledge base is searched. The options of a call override them.

use super::answer_settings::{Diversity, Surroundings};
use super::syntax::Syntax;
use super::transform::Transform;
use crate::id;
use crate::json_reader::Fields;
use crate::rerank_settings::Rerank;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How many candidates an HNSW scan keeps (ef_search).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EfSearch {
    Fixed(usize),
    /// The value that kb.measure_recall found to be sufficient.
    Auto(Auto),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auto {
    Auto,
}

/// The defaults of kb.query on a knowledge base.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Retrieval {
    /// The most rows of an answer.
    pub top_k: usize,
    /// The least similarity of a row.
    pub min_score: f64,
    /// The most tokens of all rows together. None means no limit.
    pub max_tokens: Option<usize>,
    /// The ef_search of HNSW scans. None derives it from top_k.
    pub ef_search: Option<EfSearch>,
    /// What a query does when its embedder fails.
    pub on_error: OnError,
    pub mode: Mode,
    /// How the words of a question are read. None chooses by the mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syntax: Option<Syntax>,
    pub bm25: Bm25,
    pub hybrid: Hybrid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerank: Option<Rerank>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<Transform>,
    #[serde(flatten)]
    pub diversity: Diversity,
    #[serde(flatten)]
    pub surroundings: Surroundings,
    /// The keys that metadata and filters may have. Empty allows any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_metadata_keys: Vec<String>,
    /// The share of questions that are logged, from 0 to 1.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub log: f64,
    /// The name under which an agent's prompt gets the passages, where the binding names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inject_as: Option<String>,
}

fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

/// The mode of retrieval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Compares vectors, which represent meaning.
    #[default]
    Dense,
    /// Compares words, by BM25.
    Keyword,
    /// Does both and fuses the results.
    Hybrid,
}

/// What a query does when its embedder fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// The query fails with the same error.
    #[default]
    Error,
    /// The query answers by keyword search, and marks the rows.
    Keyword,
}

/// The two constants of BM25.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bm25 {
    /// How much further occurrences of a word add to the score. At 0 they add nothing.
    pub k1: f64,
    /// How strongly scores are normalised by the length of a chunk, from 0 (not at all) to 1 (fully).
    pub b: f64,
}

/// How the candidates from vectors and from keywords are fused into one list.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Hybrid {
    pub fusion: Fusion,
    /// For fusion `rrf`: a larger value makes the first ranks less important.
    pub k: f64,
    /// For fusion `rrf`.
    pub weights: Weights,
    /// For fusions `z_score` and `score`: the weight of the similarity. The weight of the score by words is 1
    /// - alpha.
    pub alpha: f64,
    /// How many chunks each source contributes, at least top_k.
    pub candidates: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fusion {
    /// Adds scores that are standardised within each source: minus the mean, divided by the standard
    /// deviation.
    #[default]
    #[serde(rename = "z_score")]
    ZScore,
    /// Reciprocal rank fusion.
    Rrf,
    /// Adds scores that are scaled within each source to between 0 and 1.
    Score,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Weights {
    pub dense: f64,
    pub keyword: f64,
}

crate::named!(Mode { Dense => "dense", Keyword => "keyword", Hybrid => "hybrid" });
crate::named!(OnError { Error => "error", Keyword => "keyword" });
crate::named!(Fusion { ZScore => "z_score", Rrf => "rrf", Score => "score" });

impl Default for Retrieval {
    fn default() -> Self {
        Retrieval {
            top_k: 5,
            min_score: 0.0,
            max_tokens: None,
            ef_search: None,
            on_error: OnError::Error,
            mode: Mode::Dense,
            syntax: None,
            bm25: Bm25::default(),
            hybrid: Hybrid::default(),
            rerank: None,
            transform: None,
            diversity: Diversity::default(),
            surroundings: Surroundings::default(),
            allowed_metadata_keys: Vec::new(),
            log: 0.0,
            inject_as: None,
        }
    }
}

impl Default for Bm25 {
    fn default() -> Self {
        Bm25 { k1: 1.2, b: 0.75 }
    }
}

impl Default for Hybrid {
    fn default() -> Self {
        let weights = Weights { dense: 1.0, keyword: 1.0 };
        Hybrid { fusion: Fusion::default(), k: 60.0, weights, alpha: 0.5, candidates: 100 }
    }
}

/// The largest top_k of a query.
pub const MAX_TOP_K: i64 = 10_000;

/// The key of `options` that is not a setting of retrieval (kb-search/src/request.rs).
const EXPLAIN: &str = "explain";

/// The most keys in `allowed_metadata_keys`.
const MAX_ALLOWED_KEYS: usize = 1000;

impl Retrieval {
    /// Says which keys of metadata are not allowed, if any.
    pub fn key_problem<'a>(&self, keys: impl IntoIterator<Item = &'a str>) -> Option<String> {
        let allowed = &self.allowed_metadata_keys;
        let is_allowed = |key: &str| allowed.is_empty() || allowed.iter().any(|allowed| allowed == key);
        let wrong = keys.into_iter().find(|key| !is_allowed(key))?;
        Some(format!("metadata key \"{wrong}\" is not allowed; allowed keys are {}", allowed.join(", ")))
    }

    /// The error lists every problem.
    pub fn parse(value: &Value) -> Result<Self, Vec<String>> {
        let mut fields = Fields::new("retrieval", value);
        let mut retrieval = Retrieval::default();
        retrieval.read(&mut fields);
        retrieval.allowed_metadata_keys = fields.texts("allowed_metadata_keys").unwrap_or_default();
        if retrieval.allowed_metadata_keys.len() > MAX_ALLOWED_KEYS {
            fields.problem("allowed_metadata_keys", format_args!("at most {MAX_ALLOWED_KEYS} are allowed"));
        }
        // Only the knowledge base sets this, so that a call can neither have more logged than the owner wants
        // nor hide.
        retrieval.log = fields.number("log", 0.0, 1.0).unwrap_or_default();
        // A property of the knowledge base in prompts, not of one question.
        retrieval.inject_as = fields.text("inject_as");
        if let Some(problem) = retrieval.inject_as.as_deref().and_then(id::name_problem) {
            fields.problem("inject_as", problem);
        }
        retrieval.finish(fields)
    }

    /// These settings, overridden by those that a call's `options` name. Settings that `options` does not
    /// name stay, also within `bm25`, `hybrid` and `hybrid.weights`. The error lists every problem.
    pub fn with_options(&self, options: &Value) -> Result<Self, Vec<String>> {
        let mut fields = Fields::new("options", options);
        let mut retrieval = self.clone();
        retrieval.read(&mut fields);
        fields.read_elsewhere(EXPLAIN);
        retrieval.finish(fields)
    }

    /// The problems of a call's options that do not depend on the knowledge base's settings.
    pub fn options_problems(options: &Value) -> Vec<String> {
        Retrieval::options_problems_besides(options, &[])
    }

    /// The same, where the options have other keys, too.
    pub fn options_problems_besides(options: &Value, others: &[&'static str]) -> Vec<String> {
        let mut fields = Fields::new("options", options);
        Retrieval::default().read(&mut fields);
        fields.read_elsewhere(EXPLAIN);
        others.iter().for_each(|other| fields.read_elsewhere(other));
        fields.finish()
    }

    /// How many candidates are recalled: more than the answer has rows where a reranker chooses among them.
    pub fn recalled(&self) -> usize {
        let factor = self.rerank.as_ref().map_or(1, |rerank| rerank.retrieval_factor);
        self.top_k.saturating_mul(factor).min(MAX_TOP_K as usize).max(self.top_k)
    }

    fn finish(self, mut fields: Fields) -> Result<Self, Vec<String>> {
        if self.rerank.as_ref().is_some_and(|rerank| rerank.reranker.is_empty()) {
            fields.problem("rerank", "reranker is missing: specify an id of kb.rerankers");
        }
        if self.transform.as_ref().is_some_and(|transform| transform.llm.is_empty()) {
            fields.problem("transform", "llm is missing: specify an id of kb.llms");
        }
        let problems = fields.finish();
        if problems.is_empty() { Ok(self) } else { Err(problems) }
    }

    /// Reads the settings that both a knowledge base and a call can have.
    fn read(&mut self, fields: &mut Fields) {
        if let Some(n) = fields.integer("top_k", 1, MAX_TOP_K) {
            self.top_k = n as usize;
        }
        if let Some(score) = fields.number("min_score", -1e6, 1e6) {
            self.min_score = score;
        }
        if let Some(n) = fields.integer("max_tokens", 1, i64::MAX) {
            self.max_tokens = Some(n as usize);
        }
        match fields.integer_or("ef_search", "auto", 1, 1000) {
            Some(Some(n)) => self.ef_search = Some(EfSearch::Fixed(n as usize)),
            Some(None) => self.ef_search = Some(EfSearch::Auto(Auto::Auto)),
            None => {}
        }
        self.on_error = fields.named("on_error").unwrap_or(self.on_error);
        self.mode = fields.named("mode").unwrap_or(self.mode);
        Syntax::read(&mut self.syntax, fields);
        if let Some(value) = fields.object("bm25") {
            let mut inner = Fields::new("bm25", &value);
            self.bm25.read(&mut inner);
            fields.problems.extend(inner.finish());
        }
        if let Some(value) = fields.object("hybrid") {
            let mut inner = Fields::new("hybrid", &value);
            self.hybrid.read(&mut inner);
            fields.problems.extend(inner.finish());
        }
        Rerank::read(&mut self.rerank, fields);
        Transform::read(&mut self.transform, fields);
        self.diversity.read(fields);
        self.surroundings.read(fields);
    }

    pub fn to_json(&self) -> Value {
        json!(self)
    }
}

impl Bm25 {
    fn read(&mut self, fields: &mut Fields) {
        self.k1 = fields.number("k1", 0.0, 1000.0).unwrap_or(self.k1);
        self.b = fields.number("b", 0.0, 1.0).unwrap_or(self.b);
    }
}

impl Hybrid {
    fn read(&mut self, fields: &mut Fields) {
        let fusion = fields.named("fusion");
        let k = fields.number("k", 0.0, 1e6);
        self.k = k.unwrap_or(self.k);
        self.alpha = fields.number("alpha", 0.0, 1.0).unwrap_or(self.alpha);
        self.candidates = fields
            .integer("candidates", 1, MAX_TOP_K)
            .map_or(self.candidates, |candidates| candidates as usize);
        let weights = fields.object("weights");
        // Both belong to rrf. Without a fusion the one that is named would have no effect.
        let is_by_ranks = k.is_some() || weights.is_some();
        self.fusion = fusion.unwrap_or(if is_by_ranks { Fusion::Rrf } else { self.fusion });
        let Some(value) = weights else { return };
        let mut inner = Fields::new("weights", &value);
        self.weights.dense = inner.number("dense", 0.0, 1e6).unwrap_or(self.weights.dense);
        self.weights.keyword = inner.number("keyword", 0.0, 1e6).unwrap_or(self.weights.keyword);
        if self.weights.dense + self.weights.keyword == 0.0 {
            inner.problem("dense", "and weights.keyword are both 0");
        }
        fields.problems.extend(inner.finish());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_in_a_prompt_is_a_property_of_the_knowledge_base_only() {
        let retrieval = Retrieval::parse(&json!({"inject_as": "{{ .workflow.vars.docs }}"})).unwrap();
        assert_eq!(retrieval.inject_as.as_deref(), Some("{{ .workflow.vars.docs }}"));
        assert_eq!(Retrieval::parse(&retrieval.to_json()).unwrap(), retrieval);
        for wrong in [json!(""), json!("a\nb"), json!(7)] {
            assert!(Retrieval::parse(&json!({ "inject_as": wrong })).is_err(), "{wrong}");
        }
        assert!(retrieval.with_options(&json!({"inject_as": "other"})).is_err());
    }

    #[test]
    fn written_settings_read_back_the_same() {
        let given = json!({"top_k": 8, "min_score": 0.1, "mode": "hybrid", "syntax": "web", "bm25": {"b": 0.5},
                           "hybrid": {"fusion": "score", "weights": {"keyword": 0.5}}});
        let retrieval = Retrieval::parse(&given).unwrap();
        assert_eq!(Retrieval::parse(&retrieval.to_json()).unwrap(), retrieval);
        assert_eq!((retrieval.bm25.k1, retrieval.bm25.b), (1.2, 0.5));
        for ef_search in [json!("auto"), json!(64)] {
            let retrieval = Retrieval::parse(&json!({ "ef_search": ef_search })).unwrap();
            assert_eq!(Retrieval::parse(&retrieval.to_json()).unwrap(), retrieval);
            assert_eq!(retrieval.to_json()["ef_search"], ef_search);
        }
        assert_eq!(retrieval.hybrid.weights, Weights { dense: 1.0, keyword: 0.5 });
    }

    #[test]
    fn each_source_of_hybrid_gives_100_candidates_by_default() {
        assert_eq!(Hybrid::default().candidates, 100);
    }

    #[test]
    fn keys_are_restricted_only_where_some_are_named() {
        let bound = Retrieval::parse(&json!({"allowed_metadata_keys": ["a", "b"]})).unwrap();
        assert_eq!(Retrieval::parse(&bound.to_json()).unwrap(), bound);
        assert_eq!(bound.key_problem(["b", "a"]), None);
        assert!(bound.key_problem(["a", "c"]).is_some_and(|p| p.contains("\"c\"") && p.contains("a, b")));
        assert_eq!(Retrieval::default().key_problem(["c"]), None);
        assert!(Retrieval::parse(&json!({"allowed_metadata_keys": "a"})).is_err());
    }

    #[test]
    fn ranges_are_checked_and_all_problems_reported() {
        assert_eq!(Retrieval::parse(&json!({"top_k": 0, "ef_search": 1001, "x": 1})).unwrap_err().len(), 3);
        assert_eq!(Retrieval::parse(&json!({"ef_search": "fast"})).unwrap_err().len(), 1);
        let hybrid = json!({"weights": {"dense": 0, "keyword": 0}, "k": -1, "alpha": 1.1, "fusion": "sum"});
        assert_eq!(Retrieval::parse(&json!({"hybrid": hybrid, "mode": "fast"})).unwrap_err().len(), 5);
    }

    #[test]
    fn options_override_only_the_settings_that_they_name() {
        let own =
            Retrieval::parse(&json!({"top_k": 8, "hybrid": {"k": 10, "weights": {"dense": 2}}})).unwrap();
        let options = json!({"mode": "hybrid", "hybrid": {"weights": {"keyword": 3}}});
        let asked = own.with_options(&options).unwrap();
        assert_eq!((asked.top_k, asked.mode, asked.hybrid.k), (8, Mode::Hybrid, 10.0));
        assert_eq!((Hybrid::default().fusion, asked.hybrid.fusion), (Fusion::ZScore, Fusion::Rrf));
        let named = own.with_options(&json!({"hybrid": {"fusion": "z_score", "k": 5}})).unwrap();
        assert_eq!(
            (named.hybrid.fusion, named.to_json()["hybrid"]["fusion"].as_str()),
            (Fusion::ZScore, Some("z_score"))
        );
        assert_eq!(asked.hybrid.weights, Weights { dense: 2.0, keyword: 3.0 });
        assert_eq!(own.with_options(&Value::Null).unwrap(), own);
        assert!(own.with_options(&json!({"allowed_metadata_keys": []})).is_err());
    }

    #[test]
    fn only_the_knowledge_base_and_no_call_decides_whether_questions_are_logged() {
        assert_eq!(Retrieval::default().to_json().get("log"), None);
        let logging = Retrieval::parse(&json!({"log": 0.25})).unwrap();
        assert_eq!(Retrieval::parse(&logging.to_json()).unwrap(), logging);
        assert_eq!(logging.with_options(&json!({"top_k": 3})).unwrap().log, 0.25);
        for log in [json!(0), json!(1)] {
            assert!(logging.with_options(&json!({ "log": log })).is_err());
        }
        for wrong in [json!(1.5), json!(-0.1), json!("all")] {
            assert!(Retrieval::parse(&json!({ "log": wrong })).is_err(), "{wrong}");
        }
    }
}
