//! The invariants of a knowledge base for which nothing is waiting.

use super::Db;

/// The table of a knowledge base's live vectors, quoted and qualified.
pub fn vector_table(db: &mut Db, kb: &str) -> String {
    db.one(&format!(
        "SELECT format('kb.%I', b.table_name) FROM kb.builds b JOIN kb.knowledge_bases k USING (kb_no)
         WHERE k.id = '{kb}' AND b.state = 'live'"
    ))
}

/// The live chunks of a knowledge base: external id, ordinal, hash of the content.
pub fn chunk_set(db: &mut Db, kb: &str) -> Vec<String> {
    db.all(&format!(
        "SELECT concat_ws(' ', d.external_id, c.ordinal, encode(c.content_hash, 'hex'))
         FROM kb.chunks c JOIN kb.documents d USING (document_id) JOIN kb.builds b USING (build_no)
         JOIN kb.knowledge_bases k ON k.kb_no = b.kb_no
         WHERE k.id = '{kb}' AND b.state = 'live' ORDER BY d.external_id, c.ordinal, c.chunk_id"
    ))
}

/// Asserts that nothing is waiting, every document is ready or in kb.failures, every ready document has
/// chunks that are slices of its text in order, every chunk has one vector, and nothing else exists.
pub fn assert_sound(db: &mut Db, kb: &str, documents: i64, failed: i64) {
    let table = vector_table(db, kb);
    let (kb_no, build_no): (i64, i64) = {
        let row = db.0.query_one(
            "SELECT kb_no, build_no FROM kb.builds b JOIN kb.knowledge_bases k USING (kb_no)
             WHERE k.id = $1 AND state = 'live'",
            &[&kb],
        );
        let row = row.unwrap();
        (row.get(0), row.get(1))
    };
    let mut none = |what: &str, from: String| {
        let n = db.count(&from);
        assert_eq!(n, 0, "{kb}: {what}");
    };
    none("jobs left", format!("kb.jobs WHERE kb_no = {kb_no}"));
    none(
        "documents neither ready nor failed",
        format!("kb.documents WHERE kb_no = {kb_no} AND status = 'pending'"),
    );
    none("builds besides the live one", format!("kb.builds WHERE kb_no = {kb_no} AND state <> 'live'"));
    none("chunks of other builds", format!("kb.chunks WHERE kb_no = {kb_no} AND build_no <> {build_no}"));
    none(
        "chunks without exactly one vector",
        format!(
            "kb.chunks c WHERE kb_no = {kb_no} AND 1 <> (SELECT count(*) FROM {table} v
             WHERE v.chunk_id = c.chunk_id AND v.build_no = c.build_no) AND EXISTS (SELECT FROM kb.documents d
             WHERE d.document_id = c.document_id AND d.status = 'ready')"
        ),
    );
    none(
        "vectors without a chunk",
        format!(
            "{table} v WHERE kb_no = {kb_no} AND NOT EXISTS (SELECT FROM kb.chunks c
             WHERE c.chunk_id = v.chunk_id AND c.build_no = v.build_no)"
        ),
    );
    none(
        "chunks that are not the slices of the text they say",
        format!(
            "kb.chunks c JOIN kb.documents d USING (document_id) WHERE c.kb_no = {kb_no} AND d.status = 'ready'
             AND c.content <> substr(d.content, start_char + 1, end_char - start_char)"
        ),
    );
    none(
        "ready documents whose chunks are not numbered 0, 1, … as many as chunk_count says",
        format!(
            "kb.documents d WHERE kb_no = {kb_no} AND status = 'ready' AND (chunk_count = 0 OR
             ARRAY(SELECT ordinal FROM kb.chunks c WHERE c.document_id = d.document_id ORDER BY 1)
             IS DISTINCT FROM ARRAY(SELECT generate_series(0, chunk_count - 1)))"
        ),
    );
    let ready = db.count(&format!("kb.documents WHERE kb_no = {kb_no} AND status = 'ready'"));
    let listed = db.count(&format!("kb.failures WHERE kb_id = '{kb}'"));
    assert_eq!((ready, listed), (documents, failed), "{kb}: documents (ready, in kb.failures)");
}
