//! The statements of `kb load`. They are fast on tables without statistics: each external_id is looked up by
//! the index on its own.

/// No plan may read whole tables, of which the session's planner may know nothing yet.
pub const SETTINGS: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off";

/// Puts nothing. Fails as putting something would: the knowledge base does not exist or belongs to
/// another tenant, the role has no right to write, the server is a standby. Also loads the library, whose
/// settings can be read from then on.
pub const CHECK: &str = "SELECT p.status FROM kb.put_documents($1, '{}') p";

/// The knowledge base, the limit of the server, and whether an extraction service reads files for it.
pub const TARGET: &str = "SELECT k.kb_no, k.tenant_id,
        pg_catalog.pg_size_bytes(pg_catalog.current_setting('kb.max_document_size', true)) AS most,
        coalesce(k.preprocess -> 'extractors', '{}') NOT IN ('{}', '[]', 'null') AS takes_all
    FROM kb.knowledge_bases k WHERE k.id = $1 AND k.tenant_id = kb.current_tenant()";

/// Those of the documents that the server has with the same hash: their numbers, from 1, and whether they
/// have failed.
pub const UNCHANGED: &str = "SELECT s.number, s.has_failed FROM (
        SELECT u.number, (
            SELECT d.status = 'failed' FROM kb.documents d
            WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id = u.external_id AND d.content_hash = u.hash
              AND d.source_no IS NULL AND d.part_of IS NULL) AS has_failed
        FROM ROWS FROM (pg_catalog.unnest($3::text[]), pg_catalog.unnest($4::bytea[])) WITH ORDINALITY
            AS u (external_id, hash, number) OFFSET 0) s
    WHERE s.has_failed IS NOT NULL";

pub const PUT_DOCUMENTS: &str = "SELECT p.status FROM kb.put_documents($1, $2::jsonb[]) p";

/// A call for each, in one transaction.
pub const PUT_FILES: &str = "SELECT kb.put_file($1, u.external_id, u.bytes, filename => u.name, uri => u.uri)
    FROM ROWS FROM (pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::bytea[]), pg_catalog.unnest($4::text[]),
                    pg_catalog.unnest($5::text[])) AS u (external_id, bytes, name, uri)";

/// Where the pieces of a large file are put together. Bytes are stored as they are: compression would take
/// longer than it saves.
pub const CREATE_PIECES: &str =
    "CREATE TEMPORARY TABLE kb_load_pieces (number integer, bytes bytea) ON COMMIT DROP;
    ALTER TABLE pg_temp.kb_load_pieces ALTER COLUMN bytes SET STORAGE EXTERNAL";

pub const COPY_PIECES: &str = "COPY pg_temp.kb_load_pieces (number, bytes) FROM STDIN (FORMAT binary)";

pub const PUT_PIECES: &str = "SELECT kb.put_file($1, $2, (
        SELECT coalesce(pg_catalog.string_agg(p.bytes, ''::bytea ORDER BY p.number), '') FROM pg_temp.kb_load_pieces p),
        filename => $3, uri => $4)";

/// The documents whose external_ids follow $3 and begin with $4, in their order, as far as `kb load` has put
/// them.
pub const LOADED: &str = "SELECT d.external_id, pg_catalog.starts_with(d.external_id, $4) AS is_below,
        coalesce(pg_catalog.starts_with(d.uri, $5), false) AND d.source_no IS NULL AND d.part_of IS NULL AS is_loaded
    FROM kb.documents d
    WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id ~>~ $3 AND d.external_id ~>=~ $4
    ORDER BY d.external_id USING ~<~ LIMIT 10000";

/// Those of the documents that `kb load` has put.
pub const LOADED_OF: &str = "SELECT s.external_id FROM (
        SELECT u.external_id, (
            SELECT true FROM kb.documents d
            WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id = u.external_id
              AND pg_catalog.starts_with(d.uri, $4) AND d.source_no IS NULL AND d.part_of IS NULL) AS is_loaded
        FROM pg_catalog.unnest($3::text[]) AS u (external_id)) s
    WHERE s.is_loaded";

pub const DELETE: &str =
    "SELECT count(*) FROM kb.delete_documents($1, $2::text[]) d WHERE d.status = 'deleted'";
