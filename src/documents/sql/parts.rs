//! kb.documents: the files within a file.

use crate::pg::spi::{self, Arg, Row};
use kb_types::Json;
use kb_types::error::Result;

/// What is known of the file that contains others.
#[derive(Debug)]
pub struct Whole {
    pub kb_id: String,
    /// How many files it is within.
    pub depth: i64,
    /// Its own chunking; an empty object if it has none.
    pub chunking: Json,
}

/// Reads a document that contains files, with the documents that it is itself a part of.
pub fn whole(document_id: i64) -> Result<Option<Whole>> {
    spi::write_one(
        "WITH RECURSIVE above (document_id, part_of, kb_id) AS (
             SELECT document_id, part_of, kb_id FROM kb.documents WHERE document_id = $1
             UNION ALL
             SELECT d.document_id, d.part_of, d.kb_id FROM above a JOIN kb.documents d ON d.document_id = a.part_of)
         SELECT (SELECT kb_id FROM above WHERE document_id = $1) AS kb_id, count(*) - 1 AS depth,
             (SELECT coalesce(chunking, '{}')::text FROM kb.documents WHERE document_id = $1) AS chunking
         FROM above HAVING count(*) > 0",
        &[Arg::Long(document_id)],
        |row| Ok(Whole { kb_id: row.get("kb_id")?, depth: row.get("depth")?, chunking: Json::new(row.get::<String>("chunking")?) }),
    )
}

/// Deletes the parts of a document, except these.
pub fn delete_others(document_id: i64, external_ids: &[String]) -> Result<()> {
    spi::execute(
        "DELETE FROM kb.documents WHERE part_of = $1 AND external_id <> ALL ($2)",
        &[Arg::Long(document_id), Arg::Texts(external_ids)],
    )?;
    Ok(())
}

/// Whether a document has parts.
pub fn any(document_id: i64) -> Result<bool> {
    spi::write_value("SELECT EXISTS (SELECT FROM kb.documents WHERE part_of = $1)", &[Arg::Long(document_id)])
}

/// Which of these names belong to documents that are not parts of this one.
pub fn taken(document_id: i64, kb_no: i64, tenant_id: &str, external_ids: &[String]) -> Result<Vec<String>> {
    spi::write(
        "SELECT d.external_id FROM pg_catalog.unnest($4::text[]) AS u (id)
         JOIN kb.documents d ON d.kb_no = $2 AND d.tenant_id = $3 AND d.external_id = u.id
         WHERE d.part_of IS DISTINCT FROM $1",
        &[Arg::Long(document_id), Arg::Long(kb_no), Arg::Text(tenant_id), Arg::Texts(external_ids)],
        Row::only,
    )
}
