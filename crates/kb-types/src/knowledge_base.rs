//! What is done to a knowledge base's documents before they are cut.

use super::fields::Fields;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What happens to documents and chunks before they are stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preprocess {
    /// The same text is embedded once and answered once; the answer's locator names every place.
    pub dedupe: bool,
    /// HTML becomes Markdown, without script and style; false keeps the source as it is.
    pub remove_html: bool,
    /// Text search configuration for keywords.
    pub language: String,
}

impl Default for Preprocess {
    fn default() -> Self {
        Preprocess { dedupe: true, remove_html: true, language: "english".into() }
    }
}

impl Preprocess {
    /// Errors are the complete list of problems.
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
