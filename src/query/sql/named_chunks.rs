//! Chunks of the live build that the caller names, as far as the caller may read them.

use super::search::SearchTarget;
use crate::pg::row::from_row;
use crate::pg::spi::{self, Arg, FromRow};
use kb_types::error::Result;
use uuid::Uuid;

from_row! {
    #[derive(Debug, Clone, PartialEq)]
    pub struct NamedChunk {
        pub chunk_id: Uuid,
        pub external_id: String,
        pub ordinal: i32,
        pub enabled: bool,
    }
}

from_row! {
    /// The state of a document.
    #[derive(Debug, Clone, PartialEq)]
    pub struct NamedDocument {
        /// pending, ready or failed.
        pub status: String,
        pub error: Option<String>,
    }
}

const COLUMNS: &str = "SELECT c.chunk_id, d.external_id, c.ordinal, c.enabled FROM kb.chunks c
    JOIN kb.documents d ON d.document_id = c.document_id";

/// The documents with this external_id, which several tenants may have.
pub fn documents(target: &SearchTarget, external_id: &str) -> Result<Vec<NamedDocument>> {
    spi::read(
        "SELECT status, error FROM kb.documents WHERE kb_no = $1 AND external_id = $2 ORDER BY document_id",
        &[Arg::Long(target.kb_no), Arg::Text(external_id)],
        NamedDocument::from_row,
    )
}

/// The chunks of the documents with this external_id, in order, at most `most`.
pub fn of_document(target: &SearchTarget, external_id: &str, most: usize) -> Result<Vec<NamedChunk>> {
    let sql = format!(
        "{COLUMNS} WHERE d.kb_no = $1 AND d.external_id = $2 AND c.build_no = $3
         ORDER BY d.document_id, c.ordinal LIMIT $4"
    );
    let most = Arg::Long(most as i64);
    spi::read(
        &sql,
        &[Arg::Long(target.kb_no), Arg::Text(external_id), Arg::Long(target.build_no), most],
        NamedChunk::from_row,
    )
}

/// The chunk with this id.
pub fn of_id(target: &SearchTarget, chunk_id: Uuid) -> Result<Option<NamedChunk>> {
    let sql = format!("{COLUMNS} WHERE c.build_no = $1 AND c.chunk_id = ANY ($2)");
    spi::read_one(&sql, &[Arg::Long(target.build_no), Arg::Uuids(&[chunk_id])], NamedChunk::from_row)
}
