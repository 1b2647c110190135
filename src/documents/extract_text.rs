//! kb.extract_text: the text of a JSON document.

use crate::pg::report;
use crate::settings;
use kb_text::json_text;
use kb_types::error::{Error, Result};
use kb_types::json_fields::JsonFields;
use kb_types::{Bounds, Json};
use serde_json::Value;

/// The text of a row whose content is this JSON; `fields` is {include, exclude, members}.
pub fn extract_text(json: &Json, fields: &Value) -> Result<String> {
    let fields =
        JsonFields::parse("fields", fields).map_err(|problems| Error::configuration("fields", problems))?;
    text_of(json, &fields)
}

/// The text of a JSON value within the limits of a document.
pub fn text_of(json: &Json, fields: &JsonFields) -> Result<String> {
    let (size, most) = (json.as_str().len(), settings::max_document_size());
    if size > most {
        return Err(Error::Limit {
            object: "the JSON value".into(),
            problem: format!("it has {size} bytes; at most {most} are allowed"),
            setting: "kb.max_document_size",
        });
    }
    // A cancellation of the statement stops the work.
    let bounds = Bounds::begin(settings::limits(report::check_interrupts));
    json_text::extract(json, fields, &bounds)
}
