//! How a knowledge base is searched: its settings, which the options of a call override.

use super::answer_settings::{Diversity, Surroundings};
use super::fields::Fields;
use super::rerank::Rerank;
use super::syntax::Syntax;
use super::transform::Transform;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How many candidates an HNSW scan looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EfSearch {
    Fixed(usize),
    /// What kb.measure_recall has found to suffice.
    Auto(Auto),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auto {
    Auto,
}

/// Defaults of kb.query on this knowledge base; each can be overridden by the call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Retrieval {
    /// Rows at most.
    pub top_k: usize,
    /// Least similarity of a row.
    pub min_score: f64,
    /// Tokens at most of all rows together; None: no bound.
    pub max_tokens: Option<usize>,
    /// HNSW candidates looked at; None: from top_k.
    pub ef_search: Option<EfSearch>,
    /// What a query does when its embedder fails.
    pub on_error: OnError,
    pub mode: Mode,
    /// How a question's words are read; None: as it suits the mode.
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
    /// The keys that metadata and filters may have; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_metadata_keys: Vec<String>,
    /// The share of questions that are logged, 0 to 1.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub log: f64,
}

fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

/// What a question is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Vectors: meaning.
    #[default]
    Dense,
    /// Words, by BM25.
    Keyword,
    /// Both, fused.
    Hybrid,
}

/// What a query does when its embedder fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// It fails, too.
    #[default]
    Error,
    /// It answers by keywords, and marks the rows.
    Keyword,
}

/// The two constants of BM25.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bm25 {
    /// How much a further occurrence of a word adds: 0 nothing.
    pub k1: f64,
    /// How much long chunks are held back: 0 not at all, 1 fully.
    pub b: f64,
}

/// How the candidates by meaning and by words become one list.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Hybrid {
    pub fusion: Fusion,
    /// Of fusion rrf: a larger one makes the first ranks less important.
    pub k: f64,
    /// Of fusion rrf.
    pub weights: Weights,
    /// Of fusions z_score and score: the weight of the similarity; that of the words is 1 - alpha.
    pub alpha: f64,
    /// Chunks taken from each side, at least top_k.
    pub candidates: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fusion {
    /// Scores, each side's standardised: less their mean, in deviations.
    #[default]
    #[serde(rename = "z_score")]
    ZScore,
    /// Reciprocal rank fusion.
    Rrf,
    /// Scores, each side's brought to 0 to 1.
    Score,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Weights {
    pub dense: f64,
    pub keyword: f64,
}

/// Reads a word of a closed list.
macro_rules! words {
    ($type:ident { $($word:literal => $value:ident),+ }) => {
        impl $type {
            pub fn parse(word: &str) -> Option<$type> {
                match word {
                    $($word => Some($type::$value),)+
                    _ => None,
                }
            }

            /// Reads a word, or notes that it is none of those known.
            fn field(fields: &mut Fields, key: &'static str) -> Option<$type> {
                let word = fields.text(key)?;
                let known = $type::parse(&word);
                if known.is_none() {
                    fields.problem(key, format_args!("\"{word}\" is not one of {}", [$($word),+].join(", ")));
                }
                known
            }
        }
    };
}

words!(Mode { "dense" => Dense, "keyword" => Keyword, "hybrid" => Hybrid });
words!(OnError { "error" => Error, "keyword" => Keyword });
words!(Fusion { "z_score" => ZScore, "rrf" => Rrf, "score" => Score });

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

/// Rows at most that one query may ask for.
pub const MAX_TOP_K: i64 = 10_000;

/// What `options` has beside settings of retrieval (kb-search/src/request.rs).
const EXPLAIN: &str = "explain";

/// Keys of metadata at most that a knowledge base can be bound to.
const MAX_ALLOWED_KEYS: usize = 1000;

impl Retrieval {
    /// What is wrong with keys of metadata, if not all are allowed.
    pub fn key_problem<'a>(&self, keys: impl IntoIterator<Item = &'a str>) -> Option<String> {
        let allowed = &self.allowed_metadata_keys;
        let is_allowed = |key: &str| allowed.is_empty() || allowed.iter().any(|allowed| allowed == key);
        let wrong = keys.into_iter().find(|key| !is_allowed(key))?;
        Some(format!("metadata key \"{wrong}\" is not allowed; allowed are {}", allowed.join(", ")))
    }

    /// Errors are the complete list of problems.
    pub fn parse(value: &Value) -> Result<Self, Vec<String>> {
        let mut fields = Fields::new("retrieval", value);
        let mut retrieval = Retrieval::default();
        retrieval.read(&mut fields);
        retrieval.allowed_metadata_keys = fields.texts("allowed_metadata_keys").unwrap_or_default();
        if retrieval.allowed_metadata_keys.len() > MAX_ALLOWED_KEYS {
            fields.problem("allowed_metadata_keys", format_args!("at most {MAX_ALLOWED_KEYS} are taken"));
        }
        // Only the knowledge base's own: a call cannot have more written than its owner wants, nor hide.
        retrieval.log = fields.number("log", 0.0, 1.0).unwrap_or_default();
        retrieval.finish(fields)
    }

    /// These settings with those that a call's `options` name in their place; what options does not name stays, also within
    /// `bm25`, `hybrid` and `hybrid.weights`. Errors are the complete list of problems.
    pub fn with_options(&self, options: &Value) -> Result<Self, Vec<String>> {
        let mut fields = Fields::new("options", options);
        let mut retrieval = self.clone();
        retrieval.read(&mut fields);
        fields.read_elsewhere(EXPLAIN);
        retrieval.finish(fields)
    }

    /// What is wrong with a call's options, whatever the knowledge base's own settings are.
    pub fn options_problems(options: &Value) -> Vec<String> {
        let mut fields = Fields::new("options", options);
        Retrieval::default().read(&mut fields);
        fields.read_elsewhere(EXPLAIN);
        fields.finish()
    }

    /// Candidates that are looked for: more than the answer has rows, where a reranker chooses among them.
    pub fn recalled(&self) -> usize {
        let factor = self.rerank.as_ref().map_or(1, |rerank| rerank.retrieval_factor);
        self.top_k.saturating_mul(factor).min(MAX_TOP_K as usize).max(self.top_k)
    }

    fn finish(self, mut fields: Fields) -> Result<Self, Vec<String>> {
        if self.rerank.as_ref().is_some_and(|rerank| rerank.reranker.is_empty()) {
            fields.problem("rerank", "reranker is missing: the id of one of kb.rerankers");
        }
        if self.transform.as_ref().is_some_and(|transform| transform.llm.is_empty()) {
            fields.problem("transform", "llm is missing: the id of one of kb.llms");
        }
        let problems = fields.finish();
        if problems.is_empty() { Ok(self) } else { Err(problems) }
    }

    /// What a knowledge base and a call can both say.
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
        self.on_error = OnError::field(fields, "on_error").unwrap_or(self.on_error);
        self.mode = Mode::field(fields, "mode").unwrap_or(self.mode);
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
        let fusion = Fusion::field(fields, "fusion");
        let k = fields.number("k", 0.0, 1e6);
        self.k = k.unwrap_or(self.k);
        self.alpha = fields.number("alpha", 0.0, 1.0).unwrap_or(self.alpha);
        self.candidates = fields
            .integer("candidates", 1, MAX_TOP_K)
            .map_or(self.candidates, |candidates| candidates as usize);
        let weights = fields.object("weights");
        // Both are of rrf: who names one without a fusion would wait for its effect in vain.
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
    fn each_side_of_hybrid_gives_100_candidates_where_nothing_is_said() {
        assert_eq!(Hybrid::default().candidates, 100);
    }

    #[test]
    fn keys_are_bound_only_where_some_are_named() {
        let bound = Retrieval::parse(&json!({"allowed_metadata_keys": ["a", "b"]})).unwrap();
        assert_eq!(Retrieval::parse(&bound.to_json()).unwrap(), bound);
        assert_eq!(bound.key_problem(["b", "a"]), None);
        assert!(bound.key_problem(["a", "c"]).is_some_and(|p| p.contains("\"c\"") && p.contains("a, b")));
        assert_eq!(Retrieval::default().key_problem(["c"]), None);
        assert!(Retrieval::parse(&json!({"allowed_metadata_keys": "a"})).is_err());
    }

    #[test]
    fn ranges_are_checked_and_all_problems_told() {
        assert_eq!(Retrieval::parse(&json!({"top_k": 0, "ef_search": 1001, "x": 1})).unwrap_err().len(), 3);
        assert_eq!(Retrieval::parse(&json!({"ef_search": "fast"})).unwrap_err().len(), 1);
        let hybrid = json!({"weights": {"dense": 0, "keyword": 0}, "k": -1, "alpha": 1.1, "fusion": "sum"});
        assert_eq!(Retrieval::parse(&json!({"hybrid": hybrid, "mode": "fast"})).unwrap_err().len(), 5);
    }

    #[test]
    fn options_stand_in_place_of_what_they_name_only() {
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
    fn questions_are_logged_only_where_the_knowledge_base_says_so_and_no_call_changes_it() {
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
