//! An extraction service: a server that finds the text of files that the program kb-extract cannot read, such
//! as images.

use super::reranker::check_size;
use crate::json_reader::Fields;
use crate::named;
use crate::remote_settings::Remote;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The timeout of a request unless the config says otherwise, in milliseconds. Recognising the text of many
/// pages takes minutes.
const TIMEOUT_MS: u64 = 300_000;

/// How provider `http` sends a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SendAs {
    /// Its bytes are the body of the request.
    #[default]
    Body,
    /// It is a field of a form (multipart/form-data).
    Form,
    /// It is a part of a template in JSON, in base64.
    Json,
}

named!(SendAs { Body => "body", Form => "form", Json => "json" });

/// What the text in a reply is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum TextType {
    Plain,
    #[default]
    Markdown,
    Html,
}

named!(TextType { Plain => "text/plain", Markdown => "text/markdown", Html => "text/html" });

/// The validated `config` of an extraction service.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct ExtractorConfig {
    /// Fields of the form besides the file, each with its values.
    pub form: BTreeMap<String, Vec<String>>,
    pub send_as: SendAs,
    /// The name of the form's field that has the file.
    pub file_field: Option<String>,
    pub text_type: Option<TextType>,
    /// A JSON pointer to the text in a reply, or in each page of a reply. None: the reply is the text.
    pub text_pointer: Option<String>,
    /// A JSON pointer to the array of pages.
    pub pages_pointer: Option<String>,
    pub remote: Remote,
}

impl ExtractorConfig {
    /// The error lists every problem.
    pub fn parse(value: &Value) -> Result<Self, Vec<String>> {
        let mut fields = Fields::new("config", value);
        check_size(&mut fields, value);
        let mut config = ExtractorConfig {
            form: parse_form(&mut fields),
            send_as: fields.named("send_as").unwrap_or_default(),
            file_field: fields.text("file_field"),
            text_type: fields.named("text_type"),
            text_pointer: fields.pointer("text_pointer"),
            pages_pointer: fields.pointer("pages_pointer"),
            remote: Remote::parse(&mut fields),
        };
        if value.get("timeout_ms").is_none_or(Value::is_null) {
            config.remote.timeout_ms = TIMEOUT_MS;
        }
        let problems = fields.finish();
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }
}

/// Fields of a form: strings, numbers, booleans, and arrays of these for fields that occur several times.
fn parse_form(fields: &mut Fields) -> BTreeMap<String, Vec<String>> {
    let mut form = BTreeMap::new();
    let Some(Value::Object(given)) = fields.object("form") else { return form };
    for (name, value) in given {
        let values = match value {
            Value::Array(values) => values,
            value => vec![value],
        };
        let one = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
            _ => None,
        };
        match values.iter().map(one).collect::<Option<Vec<String>>>() {
            Some(values) => drop(form.insert(name, values)),
            None => fields.problem(
                "form",
                format_args!("\"{name}\" must be a string, a number, a boolean or an array of these"),
            ),
        }
    }
    form
}

/// A row of kb.extractors, as sent to the gateway with every request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Extractor {
    pub id: String,
    pub provider: String,
    pub model: String,
    /// The provider's address. None means its default address.
    pub base_url: Option<String>,
    pub config: ExtractorConfig,
}

impl Extractor {
    /// Names the service and the settings that decide what text it finds, but not its address, key and
    /// limits. It is kept with each document whose text the service found.
    pub fn version(&self) -> String {
        let ExtractorConfig { form, send_as, file_field, text_type, text_pointer, pages_pointer, remote } =
            &self.config;
        let Remote { method, path, body, headers, .. } = remote;
        let meaning = format!(
            "{:?}",
            (
                (&self.provider, &self.model, form, send_as, file_field, text_type),
                (text_pointer, pages_pointer, method, path, body, headers)
            )
        );
        format!("{} {}", self.id, &blake3::hash(meaning.as_bytes()).to_hex()[..16])
    }
}

/// The text that a service found in a file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceText {
    pub text_type: TextType,
    /// In order.
    pub pages: Vec<PageText>,
    /// Whether the service reports that it could not read all of the file.
    pub is_partial: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PageText {
    /// Counted from 1. None: the service does not say on which page the text is.
    pub number: Option<u32>,
    pub text: String,
}

impl ServiceText {
    /// A text of which no pages are known.
    pub fn whole(text_type: TextType, text: String) -> ServiceText {
        ServiceText { text_type, pages: vec![PageText { number: None, text }], is_partial: false }
    }

    /// The bytes of all pages.
    pub fn size(&self) -> usize {
        self.pages.iter().map(|page| page.text.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn config_reports_every_problem() {
        let config = json!({"form": {"a": {}}, "send_as": "mail", "text_type": "text/rtf", "batch_size": 1,
                            "text_pointer": "text", "pages_pointer": 1});
        assert_eq!(ExtractorConfig::parse(&config).unwrap_err().len(), 6);
        let form = json!({"form": {"do_ocr": true, "lang": ["de", "en"], "n": 2}, "rpm": 5});
        let read = ExtractorConfig::parse(&form).unwrap();
        assert_eq!((read.remote.timeout_ms, read.remote.rpm), (TIMEOUT_MS, Some(5)));
        assert_eq!(read.form["do_ocr"], ["true"]);
        assert_eq!(read.form["lang"], ["de", "en"]);
        let read = ExtractorConfig::parse(&json!({"timeout_ms": 7})).unwrap();
        assert_eq!(read.remote.timeout_ms, 7);
    }

    #[test]
    fn the_version_changes_with_what_decides_the_text_and_not_with_address_or_limits() {
        let with = |config: Value| Extractor {
            id: "ocr".into(),
            provider: "docling".into(),
            model: String::new(),
            base_url: None,
            config: ExtractorConfig::parse(&config).unwrap(),
        };
        let plain = with(json!({}));
        assert!(plain.version().starts_with("ocr ") && plain.version().len() == 20, "{}", plain.version());
        assert_eq!(with(json!({"rpm": 3, "timeout_ms": 1})).version(), plain.version());
        let moved = Extractor { base_url: Some("http://elsewhere".into()), ..plain.clone() };
        assert_eq!(moved.version(), plain.version());
        for config in [
            json!({"form": {"ocr_lang": "de"}}),
            json!({"text_type": "text/html"}),
            json!({"headers": {"X-Tika-OCRLanguage": "deu"}}),
        ] {
            assert_ne!(with(config.clone()).version(), plain.version(), "{config}");
        }
    }
}
