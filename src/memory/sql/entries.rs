//! kb.memory_entries. Times are in microseconds since 1970.

use crate::builds::knowledge_bases::KnowledgeBase;
use crate::filters::filter;
use crate::pg::row::from_row;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::pg::statement_arguments::Arguments;
use crate::sql::{BY_INDEX, BY_INDEX_UNPLANNED, BY_LOOKUPS, KEYS_BY_HASH};
use kb_gateway::protocol::TenantAccesses;
use kb_types::error::Result;
use kb_types::memory::MemoryCondition;
use pgrx::datum::TimestampWithTimeZone;
use serde_json::Value;

from_row! {
    /// An entry that has an id which was made of a fact.
    #[derive(Debug, Clone, PartialEq)]
    pub struct SameFact {
        pub external_id: String,
        /// Whether it holds, or will hold for ever.
        pub is_current: bool,
    }
}

/// The entries whose ids are this one, or this one and a number.
pub fn of_fact(kb: &KnowledgeBase, base: &str) -> Result<Vec<SameFact>> {
    setting::with(BY_LOOKUPS, || {
        spi::write(
            "SELECT d.external_id, e.valid_to IS NULL AS is_current
             FROM kb.documents d JOIN kb.memory_entries e ON e.document_id = d.document_id
             WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id ~>=~ $3 AND d.external_id ~<~ ($3 || '`')",
            &[Arg::Long(kb.kb_no), Arg::Text(&kb.tenant_id), Arg::Text(base)],
            SameFact::from_row,
        )
    })
}

/// The subject of the entry with an id. Must run as the owner.
pub fn subject(kb: &KnowledgeBase, id: &str) -> Result<Option<String>> {
    setting::with(BY_LOOKUPS, || {
        spi::write_one(
            "SELECT e.subject FROM kb.documents d JOIN kb.memory_entries e ON e.document_id = d.document_id
             WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id = $3",
            &[Arg::Long(kb.kb_no), Arg::Text(&kb.tenant_id), Arg::Text(id)],
            Row::only,
        )
    })
}

const FACTS: &str = "pg_catalog.jsonb_to_recordset($3) AS f (
        id text, subject text, tags text[], confidence double precision, valid_from bigint, valid_to bigint,
        expires_at bigint, replaces boolean, source_conversation_id text, source_turn_id text, source_start integer,
        source_end integer)";
pub const TIME: &str = "'epoch'::timestamptz + '1 microsecond'::interval *";

/// Adds entries to documents that have none, and merges the others: what is given replaces what there is, or
/// is added to it; the first source stays. `facts` is an array of objects. Returns how many entries were
/// added. Must run as the owner.
pub fn put(kb: &KnowledgeBase, facts: &Value) -> Result<u64> {
    let arguments = [Arg::Long(kb.kb_no), Arg::Text(&kb.tenant_id), Arg::Json(facts)];
    let document = "(SELECT d.document_id FROM kb.documents d
                     WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id = f.id)";
    let source = |column: &str| {
        let is_taken =
            "f.replaces OR m.source_conversation_id IS NULL AND f.source_conversation_id IS NOT NULL";
        format!("source_{column} = CASE WHEN {is_taken} THEN f.source_{column} ELSE m.source_{column} END")
    };
    let source = ["conversation_id", "turn_id", "start", "end"].map(source).join(", ");
    let update = format!(
        "WITH given AS MATERIALIZED (SELECT f.*, {document} AS document_id FROM {FACTS})
         UPDATE kb.memory_entries m SET
             subject = CASE WHEN f.replaces THEN f.subject ELSE m.subject END,
             tags = CASE WHEN f.replaces THEN f.tags ELSE m.tags || ARRAY(
                 SELECT t FROM pg_catalog.unnest(f.tags) t WHERE t <> ALL (m.tags)) END,
             confidence = CASE WHEN f.replaces THEN f.confidence ELSE greatest(m.confidence, f.confidence) END,
             valid_from = CASE WHEN f.replaces AND f.valid_from IS NOT NULL THEN {TIME} f.valid_from
                          ELSE m.valid_from END,
             valid_to = CASE WHEN f.replaces THEN {TIME} f.valid_to ELSE coalesce({TIME} f.valid_to, m.valid_to) END,
             expires_at = CASE WHEN f.replaces THEN {TIME} f.expires_at
                          ELSE coalesce({TIME} f.expires_at, m.expires_at) END,
             superseded_by = CASE WHEN f.replaces THEN NULL ELSE m.superseded_by END,
             consolidated_into = CASE WHEN f.replaces THEN NULL ELSE m.consolidated_into END,
             is_compared = m.is_compared AND NOT f.replaces,
             {source}
         FROM given f
         WHERE m.document_id = ANY (ARRAY(SELECT g.document_id FROM given g)) AND m.document_id = f.document_id"
    );
    setting::with(KEYS_BY_HASH, || spi::execute(&update, &arguments))?;
    let insert = format!(
        "INSERT INTO kb.memory_entries (document_id, kb_no, tenant_id, subject, tags, confidence, valid_from, valid_to,
             expires_at, source_conversation_id, source_turn_id, source_start, source_end)
         SELECT {document}, $1, $2, f.subject, f.tags, f.confidence, coalesce({TIME} f.valid_from, now()),
             {TIME} f.valid_to, {TIME} f.expires_at, f.source_conversation_id, f.source_turn_id, f.source_start, f.source_end
         FROM {FACTS} ON CONFLICT (document_id) DO NOTHING"
    );
    setting::with(BY_INDEX, || spi::execute(&insert, &arguments))
}

/// Ends an entry where the one that supersedes it begins. Returns its number; None if there is no such entry
/// of the same subject. Must run as the owner.
pub fn supersede(kb: &KnowledgeBase, id: &str, by: &str) -> Result<Option<i64>> {
    setting::with(BY_INDEX, || {
        spi::write_one(
            "UPDATE kb.memory_entries m SET superseded_by = n.document_id,
             valid_to = least(m.valid_to, greatest(n.valid_from, m.valid_from))
         FROM kb.memory_entries n
         WHERE m.document_id = (SELECT d.document_id FROM kb.documents d
                                WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id = $3)
           AND n.document_id = (SELECT d.document_id FROM kb.documents d
                                WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id = $4)
           AND n.subject = m.subject AND n.document_id <> m.document_id
         RETURNING m.document_id",
            &[Arg::Long(kb.kb_no), Arg::Text(&kb.tenant_id), Arg::Text(id), Arg::Text(by)],
            Row::only,
        )
    })
}

/// Counts an access to each of these entries. Returns how many there are. Must run as the owner.
pub fn touch(kb: &KnowledgeBase, ids: &[String]) -> Result<u64> {
    setting::with(BY_LOOKUPS, || {
        spi::execute(
            "UPDATE kb.memory_entries SET access_count = access_count + 1, last_accessed_at = pg_catalog.clock_timestamp()
             WHERE document_id = ANY (ARRAY(
                 SELECT e.document_id FROM (
                     SELECT DISTINCT (SELECT d.document_id FROM kb.documents d
                                      WHERE d.kb_no = $1 AND d.tenant_id = $2 AND d.external_id = u.id) AS document_id
                     FROM pg_catalog.unnest($3::text[]) AS u (id) ORDER BY 1) s
                 CROSS JOIN LATERAL (
                     SELECT e.document_id FROM kb.memory_entries e WHERE e.document_id = s.document_id FOR NO KEY UPDATE) e))",
            &[Arg::Long(kb.kb_no), Arg::Text(&kb.tenant_id), Arg::Texts(ids)],
    )
    })
}

/// Counts accesses to entries of a tenant. Those that do not exist any more, or that another transaction has
/// locked, are left out: the worker waits for no lock. Must run as the worker.
pub fn count_accesses(accesses: &TenantAccesses) -> Result<()> {
    let column =
        |of: fn(&kb_gateway::protocol::EntryAccesses) -> i64| accesses.entries.iter().map(of).collect();
    let kb_nos: Vec<i64> = column(|entry| entry.kb_no);
    let document_ids: Vec<i64> = column(|entry| entry.document_id);
    let counts: Vec<i64> = column(|entry| entry.count);
    let times: Vec<i64> = column(|entry| entry.at);
    let arguments = [
        Arg::Text(&accesses.tenant),
        Arg::Longs(&kb_nos),
        Arg::Longs(&document_ids),
        Arg::Longs(&counts),
        Arg::Longs(&times),
    ];
    setting::with(KEYS_BY_HASH, || {
        spi::execute(
            &format!(
                "UPDATE kb.memory_entries m SET access_count = m.access_count + a.count,
                     last_accessed_at = greatest(m.last_accessed_at, {TIME} a.at)
                 FROM (SELECT u.document_id, u.count, u.at
                       FROM ROWS FROM (pg_catalog.unnest($2::bigint[]), pg_catalog.unnest($3::bigint[]),
                                       pg_catalog.unnest($4::bigint[]), pg_catalog.unnest($5::bigint[]))
                            AS u (kb_no, document_id, count, at)
                       CROSS JOIN LATERAL (
                           SELECT FROM kb.memory_entries e
                           WHERE e.document_id = u.document_id AND e.kb_no = u.kb_no AND e.tenant_id = $1
                           LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) e OFFSET 0) a
                 WHERE m.document_id = ANY ($3) AND m.document_id = a.document_id"
            ),
            &arguments,
        )
    })?;
    Ok(())
}

/// The newest entries of which this holds. Must run as the owner; each is then read as the caller.
pub fn newest_of(condition: &MemoryCondition, tenants: &[String], limit: usize) -> Result<Vec<i64>> {
    let mut arguments = Arguments::default();
    let conditions = filter::of_entry(condition, &mut arguments);
    let kb_no = arguments.add(Arg::Long(condition.kb_no));
    let tenants = arguments.add(Arg::Texts(tenants));
    let limit = arguments.add(Arg::Long(limit as i64));
    let sql = format!(
        "SELECT m.document_id FROM kb.memory_entries m
         WHERE m.kb_no = {kb_no} AND m.tenant_id = ANY ({tenants}){conditions}
         ORDER BY m.created_at DESC, m.document_id DESC LIMIT {limit}"
    );
    spi::read_much(&sql, &arguments.all(), Row::only)
}

from_row! {
    /// An entry as its reader sees it.
    #[derive(Debug, Clone)]
    pub struct Entry {
        pub document_id: i64,
        pub id: String,
        pub subject: String,
        pub fact: String,
        pub confidence: f64,
        pub tags: Vec<String>,
        pub metadata: kb_types::Json,
        pub created_at: TimestampWithTimeZone,
        pub valid_from: TimestampWithTimeZone,
        pub valid_to: Option<TimestampWithTimeZone>,
        pub access_count: i64,
        pub last_accessed_at: Option<TimestampWithTimeZone>,
        /// Days from its last access, or from its creation, to the time of the recall.
        pub days: f64,
    }
}

/// Those of these entries that the caller may read. `at`: the time of the recall.
pub fn read(document_ids: &[i64], at: i64) -> Result<Vec<Entry>> {
    setting::with(BY_INDEX_UNPLANNED, || {
        spi::read(
            &format!(
                "SELECT e.document_id, d.external_id AS id, e.subject, d.content AS fact, e.confidence, e.tags, d.metadata,
                        e.created_at, e.valid_from, e.valid_to, e.access_count, e.last_accessed_at,
                        (pg_catalog.date_part('epoch', {TIME} $2 - coalesce(e.last_accessed_at, e.created_at)) / 86400) AS days
                 FROM kb.memory_entries e JOIN kb.documents d ON d.document_id = e.document_id
                 WHERE e.document_id = ANY ($1)"
            ),
            &[Arg::Longs(document_ids), Arg::Long(at)],
            Entry::from_row,
    )
    })
}

from_row! {
    /// An entry whose fact is known.
    #[derive(Debug, Clone)]
    pub struct KnownFact {
        pub document_id: i64,
        pub id: String,
        pub fact: String,
    }
}

/// The newest entries of a subject that hold, without those into which others were merged. For the worker.
pub fn newest(kb: &KnowledgeBase, subject: &str, limit: i64) -> Result<Vec<KnownFact>> {
    setting::with(BY_LOOKUPS, || {
        spi::write(
            "SELECT m.document_id, d.external_id AS id, d.content AS fact
             FROM (SELECT m.document_id FROM kb.memory_entries m
                   WHERE m.kb_no = $1 AND m.subject = $2 AND m.tenant_id = $3 AND m.valid_to IS NULL
                     AND (m.expires_at IS NULL OR m.expires_at > now())
                     AND NOT EXISTS (SELECT FROM kb.memory_entries p WHERE p.consolidated_into = m.document_id)
                   ORDER BY m.created_at DESC, m.document_id DESC LIMIT $4) m
             CROSS JOIN LATERAL (SELECT d.external_id, d.content FROM kb.documents d
                                 WHERE d.document_id = m.document_id LIMIT 1) d
             WHERE d.content IS NOT NULL",
            &[Arg::Long(kb.kb_no), Arg::Text(subject), Arg::Text(&kb.tenant_id), Arg::Long(limit)],
            KnownFact::from_row,
        )
    })
}
