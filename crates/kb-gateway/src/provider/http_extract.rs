//! Provider `http` for extraction: any other server that takes a file and returns text. The config says how
//! the file is sent, and where in the reply the text is.

use super::form::{self, Form};
use super::{Body, ExtractApi, ExtractFacts, HttpRequest, Unusable, read};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kb_types::extraction::File;
use kb_types::extractor::{Extractor, PageText, SendAs, ServiceText, TextType};
use serde_json::Value;

/// The form's field that has the file.
const FIELD: &str = "file";
const FILE: &str = "{{base64}}";

pub struct HttpExtract;

impl ExtractApi for HttpExtract {
    fn facts(&self) -> ExtractFacts {
        const KEYS: &[&str] = &[
            "path",
            "method",
            "send_as",
            "file_field",
            "form",
            "body",
            "text_type",
            "text_pointer",
            "pages_pointer",
        ];
        ExtractFacts { model: "", path: "", keys: KEYS }
    }

    fn problems(&self, extractor: &Extractor) -> Vec<String> {
        let config = &extractor.config;
        let mut problems = Vec::from_iter(super::http::method_problem(config.remote.method.as_deref()));
        let is_form = config.send_as == SendAs::Form;
        if !is_form && (config.file_field.is_some() || !config.form.is_empty()) {
            problems.push("config.form: file_field and form require \"send_as\": \"form\"".into());
        }
        let body = config.remote.body.as_deref();
        match config.send_as {
            SendAs::Json if !body.is_some_and(|body| body.contains(FILE)) => problems.push(format!(
                "config.body: must be given, with \"{FILE}\" in the string where the bytes of the file go"
            )),
            SendAs::Body | SendAs::Form if body.is_some() => {
                problems.push("config.body: requires \"send_as\": \"json\"".into());
            }
            _ => {}
        }
        problems
    }

    fn request(&self, extractor: &Extractor, url: String, file: &File) -> HttpRequest {
        let config = &extractor.config;
        let body = match config.send_as {
            SendAs::Body => {
                Body::Bytes { content_type: form::content_type(file).to_string(), bytes: file.bytes.clone() }
            }
            SendAs::Form => {
                let mut form = Form::of_file(config.file_field.as_deref().unwrap_or(FIELD), file);
                super::add_fields(&mut form, extractor);
                form.finish()
            }
            SendAs::Json => {
                let template = config.remote.body.as_deref().unwrap_or_default();
                let template = serde_json::from_str(template).unwrap_or_default();
                let values = [
                    ("base64", STANDARD.encode(&file.bytes)),
                    ("content_type", form::content_type(file).to_string()),
                    ("filename", form::name(file)),
                    ("model", extractor.model.clone()),
                ];
                Body::Json(fill(template, &values))
            }
        };
        let method = config.remote.method.clone().unwrap_or_else(|| "POST".into());
        HttpRequest { method, url, headers: Vec::new(), body }
    }

    fn read(&self, extractor: &Extractor, body: &[u8]) -> Result<ServiceText, Unusable> {
        let config = &extractor.config;
        let text_type = config.text_type.unwrap_or(TextType::Plain);
        let pointer = match (&config.text_pointer, &config.pages_pointer) {
            (None, None) => return Ok(ServiceText::whole(text_type, read::text(body)?)),
            (pointer, _) => pointer.as_deref().unwrap_or_default(),
        };
        let answer: Value = read::parse(body)?;
        let text = |value: &Value| match value.pointer(pointer) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Null) => Ok(String::new()),
            _ => Err(format!("the answer has no text at text_pointer \"{pointer}\"")),
        };
        let Some(pages_pointer) = &config.pages_pointer else {
            return Ok(ServiceText::whole(text_type, text(&answer)?));
        };
        let pages = answer.pointer(pages_pointer).and_then(Value::as_array);
        let pages = pages
            .ok_or_else(|| format!("the answer has no array at pages_pointer \"{pages_pointer}\""))?
            .iter()
            .zip(1..)
            .map(|(page, number)| Ok(PageText { number: Some(number), text: text(page)? }));
        Ok(ServiceText { text_type, pages: pages.collect::<Result<_, String>>()?, is_partial: false })
    }
}

/// Replaces `{{name}}` in the strings of a template, in one pass, so that a name of a file that contains
/// "{{model}}" is not changed.
fn fill(template: Value, values: &[(&str, String)]) -> Value {
    match template {
        Value::String(string) => {
            let mut filled = String::new();
            let mut rest = string.as_str();
            while let Some((before, after)) = rest.split_once("{{") {
                filled.push_str(before);
                let found = values
                    .iter()
                    .find_map(|(name, value)| Some((value, after.strip_prefix(name)?.strip_prefix("}}")?)));
                match found {
                    Some((value, after)) => {
                        filled.push_str(value);
                        rest = after;
                    }
                    None => {
                        filled.push_str("{{");
                        rest = after;
                    }
                }
            }
            filled.push_str(rest);
            Value::String(filled)
        }
        Value::Array(items) => Value::Array(items.into_iter().map(|item| fill(item, values)).collect()),
        Value::Object(map) => {
            Value::Object(map.into_iter().map(|(key, item)| (key, fill(item, values))).collect())
        }
        other => other,
    }
}
