//! The settings by which a text is split into chunks, and the chunk itself.

use kb_types::chunk_context::{ContextTemplate, MAX_HEADER_TOKENS, MAX_SENTENCE_TOKENS, MAX_TOKENS};
use kb_types::json_reader::Fields;
use kb_types::marks::Locator;
use kb_types::named::Named;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::borrow::Cow;

/// Which boundaries are preferred when a text is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Paragraphs, then lines, sentences, words and characters, as large as fits.
    Recursive,
    /// Headings and blocks of Markdown first, then like `Recursive`.
    Markdown,
    /// Chunks of `size` units, regardless of sentences. A token of more than 64 bytes counts as several.
    Fixed,
    /// Between sentences with different meanings, where the distance between the vectors of neighbours is
    /// large for this document.
    Semantic,
    /// Whole rows of a table in CSV. The first row, which names the columns, is in the context of each chunk.
    Rows,
    /// The whole text is one chunk.
    None,
}

kb_types::named!(Strategy {
    Recursive => "recursive",
    Markdown => "markdown",
    Fixed => "fixed",
    Semantic => "semantic",
    Rows => "rows",
    None => "none",
});

/// The unit of `size` and `overlap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    Tokens,
    Characters,
    /// Rows of a table, for strategy rows.
    Rows,
}

kb_types::named!(Unit { Tokens => "tokens", Characters => "characters", Rows => "rows" });

/// A validated chunking setting with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunking {
    pub strategy: Strategy,
    /// The most units of a chunk.
    pub size: usize,
    /// The most units at the end of one chunk that the next one repeats. It is at most half of `size`,
    /// because otherwise the chunks together would be many times as long as the text.
    pub overlap: usize,
    pub unit: Unit,
    /// The name of an OpenAI model or encoding whose tokens tiktoken counts. None means the embedder's own
    /// tokeniser.
    pub tokenizer: Option<String>,
    /// For strategy semantic: the percentile of a document's distances between neighbouring sentences above
    /// which the text is split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentile: Option<u8>,
    /// The context that is embedded and indexed for keyword search with each chunk, although it is not part
    /// of its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextTemplate>,
    /// A chat model that writes, for the context of each chunk, a sentence on what the chunk is about within
    /// its document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_llm: Option<String>,
}

/// The default of `percentile`.
pub const DEFAULT_PERCENTILE: u8 = 95;

/// The default of `size`, where the model reads that much.
pub const DEFAULT_SIZE: usize = 800;
/// The default of `size` in rows.
pub const DEFAULT_ROWS: usize = 1;
/// The default of `overlap`, as a share of `size`.
pub const DEFAULT_OVERLAP: f64 = 0.15;

impl Chunking {
    /// Reads `{strategy, size, overlap, unit, tokenizer, percentile, context, context_llm}`. `max_tokens` is
    /// the limit of the embedder's model without special tokens, or None where it reads any length. The error
    /// lists every problem.
    pub fn parse(value: &Value, max_tokens: Option<usize>) -> Result<Self, Vec<String>> {
        let mut fields = Fields::new("chunking", value);
        let strategy = match fields.text("strategy").as_deref() {
            None | Some("recursive_text_splitter") => Strategy::Recursive,
            Some(name) => Strategy::one_of(name).unwrap_or_else(|problem| {
                fields.problem("strategy", problem);
                Strategy::Recursive
            }),
        };
        let unit = fields.named("unit").unwrap_or(Unit::Tokens);
        let has_rows = strategy == Strategy::Rows;
        match unit {
            Unit::Rows if !has_rows => {
                fields.problem("unit", format_args!("rows is allowed only with strategy rows"));
            }
            Unit::Characters if has_rows => {
                fields.problem("unit", format_args!("must be rows or tokens with strategy rows"));
            }
            _ => {}
        }
        let tokenizer = fields.text("tokenizer");
        if let Some(name) = &tokenizer
            && !crate::tokenizer::is_tiktoken(name)
        {
            fields.problem(
                "tokenizer",
                format_args!("\"{name}\" is not an OpenAI model or encoding that tiktoken knows"),
            );
        }
        let context = fields.text("context").and_then(|text| {
            let read = ContextTemplate::try_from(text);
            read.map_err(|problem| fields.problem("context", format_args!("{problem}"))).ok()
        });
        let context_llm = fields.text("context_llm");
        let beside = context_tokens(context.is_some(), context_llm.is_some(), has_rows);
        let max_tokens = max_tokens.map(|most| most.saturating_sub(beside).max(1));
        let given_size = fields.integer("size", 1, 1_000_000).map(|n| n as usize);
        let given_overlap = fields.integer("overlap", 0, 1_000_000).map(|n| n as usize);
        // Only the embedder's own tokens can be compared with the limit of its model. Other units are checked
        // when a chunk is made.
        let limit = (unit == Unit::Tokens && tokenizer.is_none()).then_some(max_tokens).flatten();
        let size = match (given_size, limit) {
            (Some(size), Some(limit)) if size > limit && strategy != Strategy::None => {
                fields.problem(
                    "size",
                    format_args!(
                        "{size} tokens exceed the {limit} that the embedder's model reads{}",
                        if beside > 0 { " in addition to a context" } else { "" }
                    ),
                );
                size
            }
            (Some(size), _) => size,
            (None, _) if unit == Unit::Rows => DEFAULT_ROWS,
            (None, Some(limit)) => DEFAULT_SIZE.min(limit),
            (None, None) => DEFAULT_SIZE,
        };
        let is_semantic = strategy == Strategy::Semantic;
        let has_overlap = !is_semantic && !has_rows;
        let default_overlap = if has_overlap { (size as f64 * DEFAULT_OVERLAP) as usize } else { 0 };
        let overlap = given_overlap.unwrap_or(default_overlap);
        if !has_overlap && overlap > 0 {
            fields.problem("overlap", format_args!("{overlap} must be 0 with strategy {}", strategy.name()));
        }
        let given_percentile = fields.integer("percentile", 1, 99).map(|n| n as u8);
        if given_percentile.is_some() && !is_semantic {
            fields.problem("percentile", format_args!("is allowed only with strategy semantic"));
        }
        let percentile = is_semantic.then(|| given_percentile.unwrap_or(DEFAULT_PERCENTILE));
        if overlap > size / 2 {
            let most = size / 2;
            fields.problem("overlap", format_args!("{overlap} must be at most {most}, half of size {size}"));
        }
        let problems = fields.finish();
        if problems.is_empty() {
            Ok(Chunking { strategy, size, overlap, unit, tokenizer, percentile, context, context_llm })
        } else {
            Err(problems)
        }
    }

    /// The same with a size that a model can read; `max_tokens` as in [`Chunking::parse`].
    pub fn fitted(mut self, max_tokens: Option<usize>) -> Self {
        let limit = max_tokens.map(|most| most.saturating_sub(self.context_tokens()).max(1));
        if let Some(limit) = limit.filter(|limit| self.size > *limit)
            && self.unit == Unit::Tokens
            && self.tokenizer.is_none()
        {
            self.size = limit;
            if self.overlap != 0 {
                self.overlap = (limit as f64 * DEFAULT_OVERLAP) as usize;
            }
        }
        self
    }

    /// Whether chunks have a context.
    pub fn has_context(&self) -> bool {
        self.context.is_some() || self.context_llm.is_some() || self.strategy == Strategy::Rows
    }

    /// The most tokens of a chunk's context.
    pub fn context_tokens(&self) -> usize {
        context_tokens(self.context.is_some(), self.context_llm.is_some(), self.strategy == Strategy::Rows)
    }

    /// Whether chunking needs answers of models.
    pub fn asks_models(&self) -> bool {
        self.strategy == Strategy::Semantic || self.context_llm.is_some()
    }

    /// Reads a stored setting. An overlap that an earlier version accepted, but is too large today, is read
    /// as half of `size`.
    pub fn stored(value: &Value) -> Result<Self, Vec<String>> {
        Chunking::parse(&Chunking::repaired(value), None)
    }

    /// A stored setting as it would be given today.
    pub fn repaired(value: &Value) -> Value {
        let mut repaired = value.clone();
        if let (Some(size), Some(overlap)) = (value["size"].as_u64(), value["overlap"].as_u64())
            && overlap > size / 2
        {
            repaired["overlap"] = json!(size / 2);
        }
        repaired
    }

    /// The setting as JSON with all defaults.
    pub fn to_json(&self) -> Value {
        json!(self)
    }
}

fn context_tokens(has_template: bool, has_sentence: bool, has_header: bool) -> usize {
    usize::from(has_template) * MAX_TOKENS
        + usize::from(has_sentence) * MAX_SENTENCE_TOKENS
        + usize::from(has_header) * MAX_HEADER_TOKENS
}

/// A slice of an extracted text, in characters (not bytes). The end is exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}

/// A piece of a document: exactly `text[span]`, never empty or blank.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunk {
    pub content: String,
    /// The context, which is embedded before the content and indexed for keyword search, too.
    pub context: Option<String>,
    pub span: Span,
    /// The number of tokens by the tokeniser that sized it (the embedder's own for unit `characters`).
    pub token_count: usize,
    pub locator: Locator,
}

impl Chunk {
    /// Identifies the content together with the context, if there is one. Chunks of equal hash share a
    /// vector. It is the BLAKE3 hash of 32 bytes.
    pub fn hash(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        if let Some(context) = &self.context {
            // Texts in PostgreSQL have no NUL, so content alone never hashes like context and content.
            hasher.update(context.as_bytes());
            hasher.update(&[0]);
        }
        hasher.update(self.content.as_bytes());
        *hasher.finalize().as_bytes()
    }

    /// Context and content, as they are embedded.
    pub fn whole(&self) -> Cow<'_, str> {
        match &self.context {
            Some(context) => format!("{context}\n\n{}", self.content).into(),
            None => self.content.as_str().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_follow_the_model() {
        let c = Chunking::parse(&json!({}), Some(254)).unwrap();
        assert_eq!((c.size, c.overlap, c.strategy), (254, 38, Strategy::Recursive));
        let c = Chunking::parse(&Value::Null, None).unwrap();
        assert_eq!((c.size, c.overlap), (800, 120));
    }

    #[test]
    fn a_chunk_longer_than_the_model_reads_is_refused() {
        let problems = Chunking::parse(&json!({"size": 300}), Some(254)).unwrap_err();
        assert!(problems[0].contains("300 tokens exceed the 254"), "{problems:?}");
    }

    #[test]
    fn overlap_is_at_most_half_of_size() {
        let parse =
            |size: u32, overlap: u32| Chunking::parse(&json!({"size": size, "overlap": overlap}), None);
        assert_eq!(parse(10, 5).unwrap().overlap, 5);
        assert_eq!(parse(1, 0).unwrap().overlap, 0);
        for (size, overlap) in [(10, 6), (10, 9), (11, 6), (1, 1), (800, 799)] {
            let problems = parse(size, overlap).unwrap_err();
            let bound = format!("{overlap} must be at most {}, half of size {size}", size / 2);
            assert!(problems.len() == 1 && problems[0].contains(&bound), "{problems:?}");
        }
    }

    #[test]
    fn a_larger_overlap_that_is_stored_is_read_as_half_of_size() {
        let stored = json!({"strategy": "fixed", "size": 100, "overlap": 99, "unit": "tokens"});
        assert!(Chunking::parse(&stored, None).is_err());
        let read = Chunking::stored(&stored).unwrap();
        assert_eq!((read.size, read.overlap, read.strategy), (100, 50, Strategy::Fixed));
        let usual = Chunking::parse(&json!({}), None).unwrap();
        assert_eq!(Chunking::stored(&usual.to_json()).unwrap(), usual);
    }

    #[test]
    fn every_problem_is_named_with_unknown_keys() {
        let problems = Chunking::parse(&json!({"size": 10, "overlap": 10, "sise": 3, "strategy": "x"}), None)
            .unwrap_err();
        assert_eq!(problems.len(), 3, "{problems:?}");
    }

    #[test]
    fn a_context_reduces_the_largest_size_and_is_part_of_the_identity() {
        let c = Chunking::parse(&json!({"context": "title>heading"}), Some(254)).unwrap();
        assert_eq!((c.size, &c.to_json()["context"]), (190, &json!("title > heading")));
        assert_eq!(Chunking::parse(&c.to_json(), Some(254)).unwrap(), c);
        assert!(Chunking::parse(&json!({"size": 200, "context": "title"}), Some(254)).is_err());
        assert!(Chunking::parse(&json!({"context": "author"}), None).is_err());
        assert!(Chunking::parse(&json!({}), None).unwrap().to_json().get("context").is_none());
        let plain = Chunk {
            content: "a".into(),
            context: None,
            span: Span { start: 0, end: 1 },
            token_count: 1,
            locator: Locator::default(),
        };
        assert_eq!(plain.hash(), *blake3::hash(b"a").as_bytes());
        let with = |context: &str| Chunk { context: Some(context.into()), ..plain.clone() };
        assert_ne!(with("x").hash(), plain.hash());
        assert_ne!(with("x").hash(), with("y").hash());
    }

    #[test]
    fn semantic_has_a_percentile_and_no_overlap() {
        let c = Chunking::parse(&json!({"strategy": "semantic"}), Some(254)).unwrap();
        assert_eq!((c.size, c.overlap, c.percentile), (254, 0, Some(95)));
        assert_eq!(Chunking::stored(&c.to_json()).unwrap(), c);
        for wrong in [
            json!({"strategy": "semantic", "overlap": 1}),
            json!({"strategy": "semantic", "percentile": 100}),
            json!({"strategy": "semantic", "percentile": 0}),
            json!({"percentile": 90}),
        ] {
            assert!(Chunking::parse(&wrong, None).is_err(), "{wrong}");
        }
        assert!(Chunking::parse(&json!({}), None).unwrap().to_json().get("percentile").is_none());
    }

    #[test]
    fn rows_are_counted_in_rows_or_tokens_and_leave_room_for_the_header() {
        let parse = |value: Value| Chunking::parse(&value, Some(254));
        let c = parse(json!({"strategy": "rows"})).unwrap();
        assert_eq!((c.size, c.overlap, c.unit), (254 - MAX_HEADER_TOKENS, 0, Unit::Tokens));
        assert!(c.has_context());
        let c = parse(json!({"strategy": "rows", "unit": "rows"})).unwrap();
        assert_eq!((c.size, c.overlap), (DEFAULT_ROWS, 0));
        assert_eq!(Chunking::stored(&c.to_json()).unwrap(), c);
        assert_eq!(parse(json!({"strategy": "rows", "unit": "rows", "size": 500})).unwrap().size, 500);
        for (wrong, says) in [
            (json!({"unit": "rows", "size": 5}), "rows is allowed only with strategy rows"),
            (json!({"strategy": "rows", "unit": "characters"}), "must be rows or tokens with strategy rows"),
            (json!({"strategy": "rows", "overlap": 1}), "1 must be 0 with strategy rows"),
            (json!({"strategy": "rows", "size": 254}), "exceed the 126"),
            (json!({"strategy": "rows", "percentile": 5}), "only with strategy semantic"),
        ] {
            let problems = parse(wrong).unwrap_err();
            assert!(problems.len() == 1 && problems[0].contains(says), "{problems:?}");
        }
    }

    #[test]
    fn recursive_has_another_name_that_is_accepted() {
        let c = Chunking::parse(
            &json!({"strategy": "recursive_text_splitter", "size": 800, "overlap": 120}),
            None,
        )
        .unwrap();
        assert_eq!(c.strategy, Strategy::Recursive);
        assert_eq!(Chunking::parse(&c.to_json(), None).unwrap(), c);
    }
}
