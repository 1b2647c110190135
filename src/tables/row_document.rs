//! Makes a document of a row of an attached table.

use crate::documents::new_document;
use crate::documents::new_document::{Content, GivenDocument};
use crate::documents::new_documents::NewDocument;
use crate::pg::report;
use crate::settings;
use crate::tables::sql::sources::Source;
use crate::tables::sql::sources::rows::SourceRow;
use kb_text::json_text;
use kb_types::error::{Error, Result};
use kb_types::{Bounds, Json};

/// The document of a row, whose text was read up to `most` bytes, or None if the row has no text.
pub fn of_row(
    source: &Source,
    external_id: &str,
    row: SourceRow,
    most: usize,
) -> Result<Option<NewDocument>> {
    let external_id = external_id.to_string();
    let Some(mut values) = row.values else {
        return Err(Error::DocumentTooLarge { external_id, size: row.size, limit: most });
    };
    let config = &source.config;
    let fields = config.json_fields.of(values.json_type.as_deref());
    let bounds = Bounds::begin(settings::limits(report::check_interrupts));
    for (column, value) in config.content.columns().into_iter().zip(&mut values.content) {
        if config.json_columns.iter().any(|json| json == column)
            && let Some(json) = value.take()
        {
            let text = json_text::extract(&Json::new(json), fields, &bounds);
            *value = Some(text.map_err(|error| error.of_document(&external_id))?);
        }
    }
    let text = source.config.content.text(&values.content);
    if text.trim().is_empty() {
        return Ok(None);
    }
    let given = GivenDocument {
        chunking: None,
        external_id,
        content: Content::Text(text),
        metadata: Some(values.metadata),
        title: values.title,
        content_type: values.content_type,
        uri: values.uri,
    };
    let document = new_document::check(given)?;
    Ok(Some(NewDocument {
        file_name: None,
        title_is_given: source.config.title.is_some(),
        uri_is_given: source.config.uri.is_some(),
        ..document
    }))
}
