//! The document that a row of an attached table is.

use super::new_document::{self, Content, Given};
use crate::error::{Error, Result};
use crate::store::new_documents::NewDocument;
use crate::store::sources::Source;
use crate::store::sources::rows::SourceRow;

/// The document of a row, whose text was read up to `most` bytes; None where the row has no text.
pub fn of_row(
    source: &Source,
    external_id: &str,
    row: SourceRow,
    most: usize,
) -> Result<Option<NewDocument>> {
    let external_id = external_id.to_string();
    let Some(values) = row.values else {
        return Err(Error::DocumentTooLarge { external_id, size: row.size, limit: most });
    };
    let text = source.config.content.text(&values.content);
    if text.trim().is_empty() {
        return Ok(None);
    }
    let given = Given {
        external_id,
        content: Content::Text(text),
        metadata: Some(values.metadata),
        title: values.title,
        content_type: values.content_type,
        uri: values.uri,
    };
    let document = new_document::check(given)?;
    Ok(Some(NewDocument {
        title_is_given: source.config.title.is_some(),
        uri_is_given: source.config.uri.is_some(),
        ..document
    }))
}
