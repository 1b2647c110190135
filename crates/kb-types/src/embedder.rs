//! An embedder: a model at a provider, and everything that changes what its vectors mean.
//!
//! **Invariant:** a fingerprint hashes all that changes what a vector means. Address, key and limits are not
//! in it. Vectors of different fingerprints are never compared.

use crate::json_reader::Fields;
use crate::named;
use crate::remote_settings::Remote;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most bytes of a prefix, because it is put before every text.
const MAX_PREFIX: usize = 8 * 1024;
/// The most bytes of a config as JSON, because it is sent to the gateway with every request.
const MAX_CONFIG: usize = 64 * 1024;

/// Whether a text is a query or a document. Some models embed the two differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Document,
    Query,
}

named!(Kind { Document => "document", Query => "query" });

/// How token vectors become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    Mean,
    Cls,
}

named!(Pooling { Mean => "mean", Cls => "cls" });

/// The arithmetic in which a local model's layers are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compute {
    F32,
    /// Weights and inputs, queries and keys rounded to 8 bits, with a scale for each 32 of them.
    Int8,
}

named!(Compute { F32 => "f32", Int8 => "int8" });

/// The validated `config` of an embedder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EmbedderConfig {
    /// Vectors have unit length.
    pub normalize: bool,
    /// None: as the model's files say, or mean where they do not say.
    pub pooling: Option<Pooling>,
    pub compute: Compute,
    pub query_prefix: String,
    pub document_prefix: String,
    /// Embeds only the beginning of a text that is longer than the model reads, instead of failing.
    pub truncate: bool,
    /// The most texts in a batch.
    pub batch_size: usize,
    /// A lower limit than the model's own, in tokens, special tokens included.
    pub max_input_tokens: Option<usize>,
    /// Settings that apply only to providers reached over HTTP.
    pub remote: Remote,
}

impl Default for EmbedderConfig {
    fn default() -> Self {
        EmbedderConfig {
            normalize: true,
            pooling: None,
            compute: Compute::F32,
            query_prefix: String::new(),
            document_prefix: String::new(),
            truncate: false,
            batch_size: 96,
            max_input_tokens: None,
            remote: Remote::default(),
        }
    }
}

impl EmbedderConfig {
    /// The error lists every problem.
    pub fn parse(value: &Value) -> Result<Self, Vec<String>> {
        let mut fields = Fields::new("config", value);
        let size = value.to_string().len();
        if size > MAX_CONFIG {
            fields
                .problems
                .push(format!("config has {size} bytes as JSON; at most {MAX_CONFIG} are allowed"));
        }
        let default = EmbedderConfig::default();
        let config = EmbedderConfig {
            normalize: fields.boolean("normalize").unwrap_or(default.normalize),
            pooling: fields.named("pooling"),
            compute: fields.named("compute").unwrap_or(default.compute),
            query_prefix: prefix(&mut fields, "query_prefix"),
            document_prefix: prefix(&mut fields, "document_prefix"),
            truncate: fields.boolean("truncate").unwrap_or(default.truncate),
            batch_size: fields.integer("batch_size", 1, 4096).map_or(default.batch_size, |n| n as usize),
            max_input_tokens: fields.integer("max_input_tokens", 1, 1_000_000).map(|n| n as usize),
            remote: Remote::parse(&mut fields),
        };
        let problems = fields.finish();
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }
}

fn prefix(fields: &mut Fields, key: &'static str) -> String {
    let prefix = fields.text(key).unwrap_or_default();
    if prefix.len() > MAX_PREFIX {
        let size = prefix.len();
        fields.problem(key, format_args!("has {size} bytes; at most {MAX_PREFIX} are allowed"));
    }
    prefix
}

/// A row of kb.embedders, as sent to the gateway with every request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Embedder {
    pub id: String,
    pub provider: String,
    pub model: String,
    /// How many numbers a vector has.
    pub dimension: usize,
    /// The provider's address. None for the provider's default address, and for local models.
    pub base_url: Option<String>,
    pub config: EmbedderConfig,
}

impl Embedder {
    /// Differs whenever the vectors of two embedders may mean different things. It covers provider, model,
    /// dimension, prefixes, pooling, 8-bit arithmetic, normalisation and input limits, but not the id, so
    /// that two names for the same model share vectors. It is the first 8 bytes of BLAKE3 over a canonical
    /// encoding.
    pub fn fingerprint(&self) -> i64 {
        let c = &self.config;
        let parts = [
            self.provider.as_str(),
            self.model.as_str(),
            &self.dimension.to_string(),
            &c.normalize.to_string(),
            &format!("{:?}", c.pooling),
            c.query_prefix.as_str(),
            c.document_prefix.as_str(),
            &c.truncate.to_string(),
            &format!("{:?}", c.max_input_tokens),
        ];
        let mut hasher = blake3::Hasher::new();
        let meaning = c.remote.meaning();
        // Without a model's name, the address alone determines the model.
        let place = if self.model.is_empty() {
            format!("{:?} {:?}", self.base_url, c.remote.path)
        } else {
            String::new()
        };
        let compute = if c.compute == Compute::Int8 { "int8" } else { "" };
        // Version 0.2.0 changed how pairs of words are hashed.
        let hashing = if self.provider == "hash" { "pairs of hashes" } else { "" };
        let more = [meaning.as_str(), place.as_str(), compute, hashing].into_iter().filter(|p| !p.is_empty());
        for part in parts.into_iter().chain(more) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let mut first = [0u8; 8];
        first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        i64::from_le_bytes(first)
    }

    /// The prefix put before a text of this kind.
    pub fn prefix(&self, kind: Kind) -> &str {
        match kind {
            Kind::Document => &self.config.document_prefix,
            Kind::Query => &self.config.query_prefix,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn embedder() -> Embedder {
        Embedder {
            id: "a".into(),
            provider: "hash".into(),
            model: "hash".into(),
            dimension: 64,
            base_url: None,
            config: EmbedderConfig::default(),
        }
    }

    #[test]
    fn the_fingerprint_changes_with_what_a_vector_means_and_not_with_the_name() {
        let a = embedder();
        let renamed = Embedder { id: "b".into(), ..a.clone() };
        assert_eq!(a.fingerprint(), renamed.fingerprint());
        let mut prefixed = a.clone();
        prefixed.config.query_prefix = "query: ".into();
        let mut swapped = a.clone();
        swapped.config.document_prefix = "query: ".into();
        let rounded =
            Embedder { config: EmbedderConfig { compute: Compute::Int8, ..a.config.clone() }, ..a.clone() };
        assert_ne!(a.fingerprint(), rounded.fingerprint());
        let batched = Embedder { config: EmbedderConfig { batch_size: 7, ..a.config.clone() }, ..a.clone() };
        assert_ne!(a.fingerprint(), prefixed.fingerprint());
        assert_ne!(prefixed.fingerprint(), swapped.fingerprint());
        assert_eq!(a.fingerprint(), batched.fingerprint());
    }

    #[test]
    fn config_reports_every_problem() {
        let problems =
            EmbedderConfig::parse(&json!({"pooling": "max", "batch_size": 0, "temperature": 1})).unwrap_err();
        assert_eq!(problems.len(), 3, "{problems:?}");
    }

    #[test]
    fn the_size_of_a_prefix_and_of_a_config_is_limited() {
        let parse = |config| EmbedderConfig::parse(&config);
        let (fits, long) = ("é".repeat(4096), "a".repeat(8193));
        assert!(parse(json!({"query_prefix": fits, "document_prefix": fits})).is_ok());
        let problems = parse(json!({"query_prefix": long, "document_prefix": long})).unwrap_err();
        let expected = |key| format!("config.{key}: has 8193 bytes; at most 8192 are allowed");
        assert_eq!(problems, [expected("query_prefix"), expected("document_prefix")]);
        // Everything except the letters takes 17 bytes.
        assert!(parse(json!({"body": {"a": "a".repeat(65_536 - 17)}})).is_ok());
        let problems = parse(json!({"body": {"a": "a".repeat(65_536 - 16)}})).unwrap_err();
        assert_eq!(problems, ["config has 65537 bytes as JSON; at most 65536 are allowed"]);
    }
}
