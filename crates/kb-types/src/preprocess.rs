//! The preprocessing of a knowledge base's documents before they are split into chunks.

use crate::extraction::Reading;
use crate::json_reader::Fields;
use crate::named;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

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
    /// Who reads files of a media type, such as "application/pdf" or "image/*".
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extractors: BTreeMap<String, NamedExtractor>,
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

/// An extraction service that reads files of a media type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedExtractor {
    /// The id of a row of kb.extractors.
    pub extractor: String,
    pub when: When,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    #[default]
    Always,
    /// Only files in which kb itself finds no text.
    NoText,
}

crate::named!(When { Always => "always", NoText => "no_text" });

impl Default for Preprocess {
    fn default() -> Self {
        Preprocess {
            dedupe: true,
            remove_html: true,
            main_content: false,
            jsonl: JsonLines::default(),
            language: "english".into(),
            extractors: BTreeMap::new(),
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
            extractors: parse_extractors(&mut fields),
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

    /// Who reads files of a media type, if kb itself does not.
    pub fn extractor_of(&self, content_type: &str) -> Option<&NamedExtractor> {
        let of_kind = || self.extractors.get(&format!("{}/*", content_type.split_once('/')?.0));
        self.extractors.get(content_type).or_else(of_kind)
    }
}

/// Reads who reads which media types: by its id, or by an object of a [`NamedExtractor`].
fn parse_extractors(fields: &mut Fields) -> BTreeMap<String, NamedExtractor> {
    let mut extractors = BTreeMap::new();
    let Some(Value::Object(given)) = fields.object("extractors") else { return extractors };
    for (content_type, value) in given {
        if !is_media_type(&content_type) {
            let expected = "is not a media type in lower case, such as application/pdf or image/*";
            fields.problem("extractors", format_args!("\"{content_type}\" {expected}"));
        }
        let named = match value {
            Value::String(extractor) => NamedExtractor { extractor, when: When::Always },
            value => {
                let mut inner = Fields::new("extractors", &value);
                let extractor = inner.required_text("extractor");
                let when = inner.named("when").unwrap_or_default();
                fields.extend(inner);
                NamedExtractor { extractor, when }
            }
        };
        extractors.insert(content_type, named);
    }
    extractors
}

fn is_media_type(name: &str) -> bool {
    let is_part = |part: &str| {
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-._".contains(&byte);
        !part.is_empty() && part.bytes().all(is_plain)
    };
    name.split_once('/').is_some_and(|(kind, rest)| is_part(kind) && (rest == "*" || is_part(rest)))
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
        // A hash of settings without extractors does not change.
        let preprocess = Preprocess::parse(&json!({"dedupe": false})).unwrap();
        assert_eq!(preprocess.to_json().get("extractors"), None);
        let preprocess = Preprocess::parse(&json!({"extractors": {"image/*": "ocr"}})).unwrap();
        assert_eq!(Preprocess::parse(&preprocess.to_json()).unwrap(), preprocess);
    }

    #[test]
    fn a_media_type_has_its_own_extractor_or_that_of_its_kind() {
        let extractors = json!({"image/*": "ocr", "image/png": "png",
                                "application/pdf": {"extractor": "ocr", "when": "no_text"}});
        let preprocess = Preprocess::parse(&json!({"extractors": extractors})).unwrap();
        let of = |content_type: &str| {
            let found = preprocess.extractor_of(content_type);
            found.map(|named| (named.extractor.as_str(), named.when))
        };
        assert_eq!(of("image/png"), Some(("png", When::Always)));
        assert_eq!(of("image/tiff"), Some(("ocr", When::Always)));
        assert_eq!(of("application/pdf"), Some(("ocr", When::NoText)));
        for other in ["text/plain", "application/zip", "image", ""] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn every_problem_of_extractors_is_reported() {
        let problems = |extractors: Value| {
            Preprocess::parse(&json!({ "extractors": extractors })).err().map_or(0, |problems| problems.len())
        };
        assert_eq!(problems(json!({"image/*": "a", "application/vnd.ms-excel": {"extractor": "a"}})), 0);
        for wrong in ["*/*", "image", "image/", "Image/png", "image/png; a=b", ""] {
            assert_eq!(problems(json!({ wrong: "a" })), 1, "{wrong}");
        }
        assert_eq!(problems(json!("ocr")), 1);
        assert_eq!(problems(json!({"image/*": {}})), 1);
        assert_eq!(problems(json!({"image/*": 1})), 2);
        assert_eq!(problems(json!({"image/*": {"extractor": "a", "when": "never", "x": 1}})), 2);
    }
}
