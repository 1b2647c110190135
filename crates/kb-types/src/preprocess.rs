//! The preprocessing of a knowledge base's documents before they are split into chunks.

use crate::json_reader::Fields;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What is done to documents and chunks before they are stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preprocess {
    /// Equal texts are embedded once and appear once in an answer, whose locator names every place.
    pub dedupe: bool,
    /// Converts HTML to Markdown without scripts and styles. If false, the source is kept as it is.
    pub remove_html: bool,
    /// The text search configuration for keyword search.
    pub language: String,
}

impl Default for Preprocess {
    fn default() -> Self {
        Preprocess { dedupe: true, remove_html: true, language: "english".into() }
    }
}

impl Preprocess {
    /// The error lists every problem.
    pub fn parse(value: &Value) -> Result<Self, Vec<String>> {
        let mut fields = Fields::new("preprocess", value);
        let preprocess = Preprocess {
            dedupe: fields.boolean("dedupe").unwrap_or(true),
            remove_html: fields.boolean("remove_html").unwrap_or(true),
            language: fields.text("language").unwrap_or_else(|| "english".into()),
        };
        let problems = fields.finish();
        if problems.is_empty() { Ok(preprocess) } else { Err(problems) }
    }

    pub fn to_json(&self) -> Value {
        json!(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_settings_read_back_the_same() {
        let preprocess = Preprocess::parse(&json!({"dedupe": false})).unwrap();
        assert_eq!(Preprocess::parse(&preprocess.to_json()).unwrap(), preprocess);
    }
}
