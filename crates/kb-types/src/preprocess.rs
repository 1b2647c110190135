//! The preprocessing of a knowledge base's documents before they are split into chunks.

use crate::extraction::Reading;
use crate::json_reader::Fields;
use crate::named;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What is done to documents and chunks before they are stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preprocess {
    /// Equal texts are embedded once and appear once in an answer, whose locator names every place.
    pub dedupe: bool,
    /// Converts HTML to Markdown without scripts and styles. If false, the source is kept as it is.
    pub remove_html: bool,
    /// Leaves out what surrounds the article of a page in HTML.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub main_content: bool,
    /// What a file of JSON Lines becomes.
    #[serde(skip_serializing_if = "JsonLines::is_default")]
    pub jsonl: JsonLines,
    /// The text search configuration for keyword search.
    pub language: String,
}

/// What a file of JSON Lines becomes: a document, or one for each line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JsonLines {
    #[default]
    Document,
    Documents,
}

named!(JsonLines { Document => "document", Documents => "documents" });

impl JsonLines {
    fn is_default(&self) -> bool {
        *self == JsonLines::default()
    }
}

impl Default for Preprocess {
    fn default() -> Self {
        Preprocess {
            dedupe: true,
            remove_html: true,
            main_content: false,
            jsonl: JsonLines::default(),
            language: "english".into(),
        }
    }
}

impl Preprocess {
    /// The error lists every problem.
    pub fn parse(value: &Value) -> Result<Self, Vec<String>> {
        let mut fields = Fields::new("preprocess", value);
        let preprocess = Preprocess {
            dedupe: fields.boolean("dedupe").unwrap_or(true),
            remove_html: fields.boolean("remove_html").unwrap_or(true),
            main_content: fields.boolean("main_content").unwrap_or(false),
            jsonl: fields.named("jsonl").unwrap_or_default(),
            language: fields.text("language").unwrap_or_else(|| "english".into()),
        };
        let problems = fields.finish();
        if problems.is_empty() { Ok(preprocess) } else { Err(problems) }
    }

    pub fn to_json(&self) -> Value {
        json!(self)
    }

    /// How files are to be read.
    pub fn reading(&self) -> Reading {
        Reading { main_content: self.main_content, lines_apart: self.jsonl == JsonLines::Documents }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_settings_read_back_the_same() {
        for settings in [json!({"dedupe": false}), json!({"main_content": true, "jsonl": "documents"})] {
            let preprocess = Preprocess::parse(&settings).unwrap();
            assert_eq!(Preprocess::parse(&preprocess.to_json()).unwrap(), preprocess);
        }
        let refused = Preprocess::parse(&json!({"jsonl": "lines"})).unwrap_err();
        assert_eq!(refused, ["preprocess.jsonl: \"lines\" is not one of document, documents"]);
    }
}
