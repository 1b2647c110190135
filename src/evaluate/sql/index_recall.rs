//! kb.index_recall: the recall of each knowledge base's index, compared with an exact search, when it was
//! last measured.

use crate::builds::knowledge_bases::KnowledgeBase;
use crate::pg::spi::{self, Arg, FromRow};
use crate::vectors::VectorDb;
use kb_types::error::Result;

/// A measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// From 0 to 1.
    pub recall: f64,
    pub sample: usize,
    /// None: there is no index, or queries do not use it, so every search is exact.
    pub ef_search: Option<usize>,
}

/// Stores the last measurement of a knowledge base. Must run as the owner.
pub fn put(kb: &KnowledgeBase, build_no: i64, measured: &Measured) -> Result<()> {
    spi::execute(
        "INSERT INTO kb.index_recall (kb_no, tenant_id, build_no, measured_at, recall, sample, ef_search)
         VALUES ($1, $2, $3, pg_catalog.clock_timestamp(), $4, $5, $6)
         ON CONFLICT (kb_no) DO UPDATE SET build_no = EXCLUDED.build_no, measured_at = EXCLUDED.measured_at,
             recall = EXCLUDED.recall, sample = EXCLUDED.sample, ef_search = EXCLUDED.ef_search",
        &[
            Arg::Long(kb.kb_no),
            Arg::Text(&kb.tenant_id),
            Arg::Long(build_no),
            Arg::Double(measured.recall),
            Arg::Long(measured.sample as i64),
            Arg::LongOrNull(measured.ef_search.map(|ef_search| ef_search as i64)),
        ],
    )?;
    Ok(())
}

/// Sets the value that queries with ef_search auto use from now on, and whether the index finds too little
/// with it. Must run as the owner.
pub fn set_ef_search(build_no: i64, ef_search: usize, index_misses: bool) -> Result<()> {
    spi::execute(
        "UPDATE kb.builds SET ef_search = $2, index_misses = $3 WHERE build_no = $1",
        &[Arg::Long(build_no), Arg::Long(ef_search as i64), Arg::Bool(index_misses)],
    )?;
    Ok(())
}

/// A knowledge base whose index found too little.
pub struct Low {
    pub kb_id: String,
    pub recall: f64,
    /// Whether its ef_search is auto and no value suffices, so that all vectors are compared if that is
    /// quick.
    pub is_auto: bool,
    pub owns_table: bool,
    pub vector_db: VectorDb,
}

/// The knowledge bases that the caller may read whose live build's index found less than `least`, or less
/// than ef_search auto aims at; the worst first.
pub fn below(least: f64) -> Result<Vec<Low>> {
    let sql = format!(
        "SELECT k.id, r.recall, a.is_auto, b.owns_table, {}
         FROM kb.index_recall r
         JOIN kb.builds b ON b.build_no = r.build_no AND b.state = 'live'
         JOIN kb.knowledge_bases k ON k.kb_no = r.kb_no
         CROSS JOIN LATERAL (SELECT b.index_misses AND coalesce(k.retrieval ->> 'ef_search', '') = 'auto') a (is_auto)
         WHERE r.recall < CASE WHEN a.is_auto THEN 1 ELSE $1 END ORDER BY r.recall, k.id",
        VectorDb::columns("b")
    );
    spi::read(&sql, &[Arg::Double(least)], |row| {
        Ok(Low {
            kb_id: row.get("id")?,
            recall: row.get("recall")?,
            is_auto: row.get("is_auto")?,
            owns_table: row.get("owns_table")?,
            vector_db: VectorDb::from_row(row)?,
        })
    })
}
