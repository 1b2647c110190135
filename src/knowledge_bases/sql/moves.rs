//! Moves the rows of a knowledge base to another tenant. Must run as the owner.
//!
//! Rows that refer to the knowledge base by its tenant follow by ON UPDATE CASCADE; the statements here
//! change all other rows. Locks on its builds and chunks keep the worker from writing at the same time. A new
//! generation of each job makes the worker repeat what is in progress, and vectors that return are refused
//! under the old tenant.

use crate::pg::spi::{self, Arg, Row};
use crate::vectors;
use kb_types::error::Result;

/// Waits for transactions that write chunks or words of a knowledge base's builds, because they refer to
/// these rows.
pub fn lock_builds(kb_no: i64) -> Result<()> {
    spi::execute("SELECT FROM kb.builds WHERE kb_no = $1 ORDER BY build_no FOR UPDATE", &[Arg::Long(kb_no)])?;
    Ok(())
}

/// Whether a tenant has a knowledge base with this id.
pub fn has(tenant_id: &str, id: &str) -> Result<bool> {
    spi::write_value(
        "SELECT EXISTS (SELECT FROM kb.knowledge_bases WHERE tenant_id = $1 AND id = $2)",
        &[Arg::Text(tenant_id), Arg::Text(id)],
    )
}

/// The external_id of a document that both tenants have in a knowledge base, of which there would be two.
pub fn name_of_both(kb_no: i64, from: &str, to: &str) -> Result<Option<String>> {
    spi::write_one(
        "SELECT d.external_id FROM kb.documents d
         WHERE d.kb_no = $1 AND d.tenant_id = $3
           AND (SELECT true FROM kb.documents o
                WHERE o.kb_no = $1 AND o.tenant_id = $2 AND o.external_id = d.external_id)
         LIMIT 1",
        &[Arg::Long(kb_no), Arg::Text(from), Arg::Text(to)],
        Row::only,
    )
}

/// Gives what a tenant has in a knowledge base, and the knowledge base, to another one. The builds are
/// locked.
pub fn move_rows(kb_no: i64, from: &str, to: &str) -> Result<()> {
    let arguments = [Arg::Long(kb_no), Arg::Text(from), Arg::Text(to)];
    for sql in [
        "UPDATE kb.documents SET tenant_id = $3 WHERE kb_no = $1 AND tenant_id = $2",
        // Conversations stay with the tenant that had them.
        "UPDATE kb.memory_entries SET tenant_id = $3, source_conversation_id = NULL, source_turn_id = NULL,
             source_start = NULL, source_end = NULL WHERE kb_no = $1 AND tenant_id = $2",
        // Of two jobs for one name one is enough.
        "DELETE FROM kb.jobs j WHERE j.kb_no = $1 AND j.tenant_id = $2 AND $3 = (
             SELECT o.tenant_id FROM kb.jobs o
             WHERE o.kb_no = $1 AND o.tenant_id = $3 AND o.kind = j.kind AND o.subject = j.subject)",
        // The worker repeats what is in progress for the previous tenant.
        "UPDATE kb.jobs SET tenant_id = CASE WHEN tenant_id = $2 THEN $3 ELSE tenant_id END,
             generation = pg_catalog.nextval('kb.job_no_seq') WHERE kb_no = $1",
        // Transactions that write vectors of these chunks have them locked.
        "SELECT FROM kb.chunks c WHERE c.build_no IN (SELECT b.build_no FROM kb.builds b WHERE b.kb_no = $1)
             AND c.tenant_id = $2 ORDER BY c.build_no, c.chunk_id FOR UPDATE",
        "UPDATE kb.chunks SET tenant_id = $3
         WHERE tenant_id = $2 AND build_no IN (SELECT b.build_no FROM kb.builds b WHERE b.kb_no = $1)",
        "UPDATE kb.bm25_pending SET tenant_id = $3
         WHERE tenant_id = $2 AND build_no IN (SELECT b.build_no FROM kb.builds b WHERE b.kb_no = $1)",
        "UPDATE kb.bm25_segments SET tenant_id = $3
         WHERE tenant_id = $2 AND build_no IN (SELECT b.build_no FROM kb.builds b WHERE b.kb_no = $1)",
        // The rows of these tables name their tenants, so they are compared again.
        "UPDATE kb.sources SET backfill = '{}' WHERE kb_no = $1 AND config ->> 'tenant' IS NOT NULL",
        "DELETE FROM kb.shares WHERE kb_no = $1 AND (tenant_id = $3 OR $3 = 'shared' AND owner_id = $2)",
    ] {
        spi::execute(sql, &arguments)?;
    }
    vectors::move_vectors(kb_no, from, to)?;
    // Rows that refer to it by its tenant are updated with it (ON UPDATE CASCADE).
    spi::execute(
        "UPDATE kb.knowledge_bases SET tenant_id = $3 WHERE kb_no = $1 AND tenant_id = $2",
        &arguments,
    )?;
    Ok(())
}
