//! A document that a caller or a row provides. It is checked completely before anything is stored.

use crate::documents::sql::new_documents::NewDocument;
use crate::settings;
use kb_text::parse;
use kb_types::error::{Error, Result};
use kb_types::{Json, id, sizes};
use serde_json::Value;

/// The content of a document, as a caller provides it.
#[derive(Debug)]
pub enum Content {
    Text(String),
    Bytes(Vec<u8>),
    /// A file of any format, and its name.
    File {
        bytes: Vec<u8>,
        name: String,
    },
}

impl Content {
    fn file_name(&self) -> Option<&str> {
        match self {
            Content::File { name, .. } => Some(name),
            Content::Text(_) | Content::Bytes(_) => None,
        }
    }
}

/// The media type of bytes of which nothing is known.
const UNKNOWN: &str = "application/octet-stream";

/// A document, as a caller provides it.
#[derive(Debug)]
pub struct GivenDocument {
    pub external_id: String,
    pub content: Content,
    pub metadata: Option<Json>,
    pub title: Option<String>,
    pub content_type: Option<String>,
    pub uri: Option<String>,
    /// How it is cut, as it was given. None: as before.
    pub chunking: Option<Value>,
}

/// Checks a document completely, before anything is stored, but for its chunking, which depends on the
/// knowledge base.
pub fn check(given: GivenDocument) -> Result<NewDocument> {
    let id = given.external_id;
    if let Some(problem) = id::problem(&id, id::MAX_EXTERNAL_BYTES) {
        return Err(Error::Argument { argument: "external_id", problem });
    }
    let metadata = given.metadata.as_ref().map(Json::as_str);
    for (field, value, most) in [
        ("title", given.title.as_deref(), sizes::TITLE),
        ("uri", given.uri.as_deref(), sizes::URI),
        ("content_type", given.content_type.as_deref(), id::MAX_BYTES),
        ("filename", given.content.file_name(), sizes::URI),
        ("metadata", metadata, sizes::METADATA),
    ] {
        sizes::check(|| format!("document \"{id}\""), field, value.map_or(0, str::len), most)?;
    }
    if given.metadata.as_ref().is_some_and(|metadata| !metadata.is_object()) {
        return Err(Error::Argument { argument: "metadata", problem: "must be a JSON object".into() });
    }
    let most = settings::max_document_size();
    let (original, content, file_name) = match given.content {
        Content::Text(text) => (None, text, None),
        Content::Bytes(bytes) => {
            let text = parse::decode(&bytes, &id)?;
            ((text.as_bytes() != bytes).then_some(bytes), text, None)
        }
        Content::File { bytes, .. } if bytes.len() > most => {
            return Err(Error::DocumentTooLarge { external_id: id, size: bytes.len(), limit: most });
        }
        Content::File { bytes, name } => (Some(bytes), String::new(), Some(name)),
    };
    let content_type = match (&file_name, given.content_type) {
        // What a file is, only the program kb-extract finds out.
        (Some(_), claimed) => {
            claimed.filter(|claimed| !claimed.trim().is_empty()).unwrap_or_else(|| UNKNOWN.into())
        }
        (None, claimed) => {
            parse::check(&content, &id, most)?;
            let found = parse::ContentType::detect(claimed.as_deref(), &id, given.uri.as_deref(), &content)?;
            found.name().to_string()
        }
    };
    Ok(NewDocument {
        external_id: id,
        original,
        content,
        file_name,
        content_type,
        title: given.title,
        uri: given.uri,
        metadata: given.metadata,
        title_is_given: false,
        uri_is_given: false,
        chunking: None,
    })
}
