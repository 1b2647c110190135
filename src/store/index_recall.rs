//! kb.index_recall: how much of what an exact search finds the index of each knowledge base found when it was last measured.

use crate::error::Result;
use crate::pg::spi::{self, Arg};
use crate::store::knowledge_bases::KnowledgeBase;

/// A measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// From 0 to 1.
    pub recall: f64,
    pub sample: usize,
    /// None: there is no index, or it is not used, so every search is exact.
    pub ef_search: Option<usize>,
}

/// Keeps the last measurement of a knowledge base. As the owner.
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

/// What queries with ef_search auto use from now on, and whether the index finds too little with that. As the owner.
pub fn set_ef_search(build_no: i64, ef_search: usize, index_misses: bool) -> Result<()> {
    spi::execute(
        "UPDATE kb.builds SET ef_search = $2, index_misses = $3 WHERE build_no = $1",
        &[Arg::Long(build_no), Arg::Long(ef_search as i64), Arg::Bool(index_misses)],
    )?;
    Ok(())
}

/// Knowledge bases that the caller may read whose live build's index found less than `least`, with what it found, and whether it was
/// measured with ef_search auto, which found none that suffices: at most `most`, the worst first.
pub fn below(least: f64, most: i64) -> Result<Vec<(String, f64, bool)>> {
    spi::read(
        "SELECT k.id, r.recall, b.index_misses FROM kb.index_recall r
         JOIN kb.builds b ON b.build_no = r.build_no AND b.state = 'live'
         JOIN kb.knowledge_bases k ON k.kb_no = r.kb_no
         WHERE r.recall < $1 ORDER BY r.recall, k.id LIMIT $2",
        &[Arg::Double(least), Arg::Long(most)],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )
}
