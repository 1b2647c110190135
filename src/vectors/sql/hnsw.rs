//! HNSW indexes: which segments of which tables want one, and the statements that create and drop them.

use super::own_table::IS_SHARED;
use super::segments::{self, behind, indexes, number_behind};
use super::tail::{self, most_rows};
use super::{Health, VectorDb};
use crate::pg::spi::{self, Arg, FromRow, Row, quote};
use crate::sql::server_catalogs::vector_schema;
use kb_search::vector_segments::{Next, Segment, Traffic, cover, draft_of_rest, is_redundant, next};
use kb_types::VectorDbConfig;
use kb_types::error::Result;

/// A vector table that may have indexes.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    vector_db: VectorDb,
    /// Identifies the table for as long as it exists.
    pub oid: u32,
    /// The tenant that owns the table, or one of the tenants if several knowledge bases use it.
    pub tenant_id: String,
    /// Whether documents are waiting whose vectors will go into it.
    pub is_waited_for: bool,
    /// Whether one of these has waited for longer than [`FILLING`].
    has_waited_long: bool,
    /// Whether several knowledge bases use it, in which case it gets no first index.
    is_shared: bool,
    /// Whether further knowledge bases may come to use it.
    is_named: bool,
}

/// The next thing to do for a table.
#[derive(Debug, Clone, PartialEq)]
pub enum IndexWork {
    /// Drop an index whose build failed, or that others have made superfluous.
    Drop {
        name: String,
    },
    Build(IndexBuild),
    /// Merge segments when nothing has been written for a while. `last` is the largest number so far.
    WhenQuiet {
        last: i32,
    },
    Nothing,
}

impl IndexWork {
    /// Whether this work is the same as `before`. If an index could not be built meanwhile, it is the same
    /// even if it now covers more rows.
    pub fn is_same(&self, before: &IndexWork) -> bool {
        match (self, before) {
            (IndexWork::Build(now), IndexWork::Build(before)) => now.first == before.first,
            _ => self == before,
        }
    }
}

/// An index that is to be built, and the traffic for which this was decided.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexBuild {
    first: i32,
    last: i32,
    pub traffic: Traffic,
    /// Built in haste; a search of it finds a little less.
    pub is_draft: bool,
}

/// The ef_construction of a draft, with the default m. A draft is built several times as quickly as with kb's
/// default of 200.
const DRAFT_EF_CONSTRUCTION: usize = 64;

/// While no document has waited for longer than this, the first index is put off until all documents are
/// done.
const FILLING: &str = "10 min";

/// Marks, in the text of the statement, the build of a large merge: it is ended if much is written meanwhile.
const GIVES_WAY: &str = "/* gives way to writers */";

/// The names of all tables that builds have. The statement steps from one name to the next, because many
/// builds may share a table.
const ALL_NAMES: &str = "WITH RECURSIVE a AS (
        (SELECT b.table_name AS name FROM kb.builds b ORDER BY b.table_name LIMIT 1)
        UNION ALL
        SELECT (SELECT b.table_name FROM kb.builds b WHERE b.table_name > a.name ORDER BY b.table_name LIMIT 1)
        FROM a WHERE a.name IS NOT NULL)
    SELECT a.name FROM a WHERE a.name IS NOT NULL";

/// Whether something is waiting for a table n: a job of the build that has the table for itself or, if builds
/// share it, any job; or rows of an attached table that are still to become jobs. `job` and `source` are
/// conditions on rows of kb.jobs j and kb.sources s.
fn waiting(job: &str, source: &str) -> String {
    format!(
        "(CASE WHEN b.owns_table THEN EXISTS (
             SELECT FROM kb.builds o JOIN kb.jobs j USING (kb_no)
             WHERE o.table_name = n.name AND o.state <> 'old' AND {job})
         ELSE EXISTS (
             SELECT FROM kb.jobs j WHERE {job} AND (
                 SELECT pg_catalog.bool_or(o.table_name = n.name) FROM kb.builds o
                 WHERE o.kb_no = j.kb_no AND o.state <> 'old')) END
         OR EXISTS (
             SELECT FROM kb.sources s WHERE s.backfill IS NOT NULL AND s.error IS NULL AND {source} AND (
                 SELECT pg_catalog.bool_or(o.table_name = n.name) FROM kb.builds o
                 WHERE o.kb_no = s.kb_no AND o.state <> 'old')))"
    )
}

/// These tables, or all tables that builds use.
pub fn tables(only: Option<&[VectorDb]>) -> Result<Vec<Table>> {
    let names: Vec<String> = only.unwrap_or_default().iter().map(|table| table.table_name.clone()).collect();
    let sql = format!(
        "SELECT {}, {} AS is_waited_for, {} AS has_waited_long, {IS_SHARED} AS is_shared,
             NOT b.owns_table AS is_named, t.oid::bigint AS oid, b.tenant_id
         FROM ({}) n
         CROSS JOIN LATERAL (
             SELECT * FROM kb.builds b WHERE b.table_name = n.name AND b.state <> 'old' AND b.type = 'pgvector'
             LIMIT 1) b
         CROSS JOIN LATERAL (
             SELECT pg_catalog.to_regclass(pg_catalog.format('kb.%I', n.name))::oid AS oid) t
         WHERE t.oid IS NOT NULL ORDER BY n.name",
        VectorDb::columns("b"),
        waiting("true", "true"),
        waiting(
            &format!("j.queued_at < now() - '{FILLING}'::interval"),
            &format!("s.updated_at < now() - '{FILLING}'::interval")
        ),
        if only.is_some() { "SELECT u.name FROM pg_catalog.unnest($1::text[]) AS u (name)" } else { ALL_NAMES },
    );
    spi::write(&sql, &[Arg::Texts(&names)], |row| {
        Ok(Table {
            vector_db: VectorDb::from_row(row)?,
            is_waited_for: row.get("is_waited_for")?,
            has_waited_long: row.get("has_waited_long")?,
            is_shared: row.get("is_shared")?,
            is_named: row.get("is_named")?,
            oid: row.get("oid")?,
            tenant_id: row.get("tenant_id")?,
        })
    })
}

impl Table {
    pub fn vector_db(&self) -> &VectorDb {
        &self.vector_db
    }

    /// The work to do now. `is_asked`: the first index was requested when less was waiting, and what has
    /// arrived since does not put it off. `is_quiet`: nothing has been written for a while.
    pub fn work(&self, is_asked: bool, is_quiet: bool) -> Result<IndexWork> {
        let indexes = indexes(&self.vector_db)?;
        let valid: Vec<Segment> =
            indexes.iter().filter(|index| index.is_valid).map(|index| index.segment.clone()).collect();
        let superfluous =
            indexes.iter().find(|index| !index.is_valid || is_redundant(&index.segment, &valid));
        if let Some(index) = superfluous {
            return Ok(IndexWork::Drop { name: index.name.clone() });
        }
        let cover = cover(valid);
        if cover.is_empty() && self.is_shared {
            return Ok(IndexWork::Nothing);
        }
        let traffic = match (self.is_waited_for, is_quiet) {
            (true, _) if !(cover.is_empty() && (is_asked || self.has_waited_long)) => Traffic::Busy,
            (false, true) => Traffic::Quiet,
            _ => Traffic::Calm,
        };
        // Other builds may come to use it before it is filled, and then each is scanned exactly.
        if cover.is_empty() && self.is_named && traffic == Traffic::Busy {
            return Ok(IndexWork::Nothing);
        }
        let least = self.vector_db.config.min_rows as u64;
        let most = most_rows(&self.vector_db, !self.is_named);
        let end = cover.last().map_or(-1, |segment| if segment.is_whole() { -1 } else { segment.last });
        let Some((rest, last)) = behind(&self.vector_db, end, most.max(least))? else {
            return Ok(IndexWork::Nothing);
        };
        // The newest rows may be deleted: an index for fewer rows than a segment already has would be
        // superfluous beside it.
        let last = last.max(end);
        Ok(match next(&cover, rest, last, least, most, traffic) {
            Next::Build { first, last } => {
                // The first index is built with its final settings, unless more rows are on the way.
                let is_draft = traffic == Traffic::Busy || traffic == Traffic::Calm && !cover.is_empty();
                let oldest = match draft_of_rest(&cover, most) {
                    Some(rows) if is_draft && last > end => number_behind(&self.vector_db, end, rows)?,
                    _ => None,
                };
                IndexWork::Build(IndexBuild { first, last: oldest.unwrap_or(last), traffic, is_draft })
            }
            Next::WhenQuiet => IndexWork::WhenQuiet { last },
            Next::Nothing => IndexWork::Nothing,
        })
    }

    /// Whether the table is dropped or no longer used, or a session is about to drop it or has it locked. In
    /// these cases an error of its index is no failure. The lock is looked at first, because a drop releases
    /// it only when the table is gone.
    pub fn is_going(&self) -> Result<bool> {
        Ok(self.is_locked_exclusively()?
            || self.vector_db.store().health()? == Health::Gone
            || self.vector_db.builds()? == 0)
    }

    /// The name of the table and those of up to three knowledge bases whose vectors it holds, for messages.
    /// For the worker.
    pub fn describe(&self) -> Result<String> {
        let ids: Vec<String> = spi::write(
            "SELECT DISTINCT pg_catalog.format('\"%s\"', k.id) FROM kb.builds b JOIN kb.knowledge_bases k USING (kb_no)
             WHERE b.table_name = $1 ORDER BY 1 LIMIT 3",
            &[Arg::Text(&self.vector_db.table_name)],
            Row::only,
        )?;
        Ok(format!("table kb.{} (knowledge base {})", self.vector_db.table_name, ids.join(", ")))
    }

    /// Whether a session holds or awaits an exclusive lock on the table, in order to drop it, for example.
    pub fn is_locked_exclusively(&self) -> Result<bool> {
        spi::write_value("SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_class t ON t.oid = l.relation
             WHERE t.relname = $1 AND t.relnamespace = 'kb'::regnamespace
               AND l.mode = 'AccessExclusiveLock' AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
               AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()))", &[Arg::Text(&self.vector_db.table_name)])
    }

    /// Whether autovacuum works on the table. A session that waits for its lock cancels it.
    pub fn is_vacuumed(&self) -> Result<bool> {
        spi::write_value("SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l
                 JOIN pg_catalog.pg_class t ON t.oid = l.relation AND t.relname = $1 AND t.relnamespace = 'kb'::regnamespace
                 JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid AND a.backend_type = 'autovacuum worker'
                 WHERE l.mode = 'ShareUpdateExclusiveLock' AND l.granted
                   AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()))", &[Arg::Text(&self.vector_db.table_name)])
    }

    /// The statement that creates an index without blocking writers.
    pub fn create_statement(&self, build: &IndexBuild) -> Result<String> {
        let vector_db = &self.vector_db;
        Ok(format!(
            "CREATE INDEX CONCURRENTLY {} ON {} USING hnsw (embedding {}.{}) WITH (m = {}, ef_construction = {}) WHERE {} {}",
            quote(&self.index_name(build)),
            vector_db.table(),
            vector_schema()?,
            vector_db.metric.operator_class(vector_db.element),
            vector_db.config.m,
            match build.is_draft {
                // pgvector requires at least twice m.
                true =>
                    vector_db.config.ef_construction.min(DRAFT_EF_CONSTRUCTION.max(2 * vector_db.config.m)),
                false => vector_db.config.ef_construction,
            },
            segments::condition("", build.first, build.last),
            if build.traffic == Traffic::Quiet { GIVES_WAY } else { "" }
        ))
    }

    /// See [`tail::tidy`]. Also removes what a killed indexer has left packed. For the worker.
    pub fn tidy(&self) -> Result<()> {
        self.unpack()?;
        if self.is_named { Ok(()) } else { tail::tidy(&self.vector_db) }
    }

    /// Ends the packing of rows that an index now has.
    pub fn unpack(&self) -> Result<()> {
        if self.is_named {
            return Ok(());
        }
        let valid = indexes(&self.vector_db)?.into_iter().filter(|index| index.is_valid);
        let cover = cover(valid.map(|index| index.segment).collect());
        match cover.last() {
            Some(segment) if !segment.is_whole() => tail::forget(&self.vector_db, segment.last),
            _ => Ok(()),
        }
    }

    /// Gives the planner fresh statistics of what a query reads, if an index was built on all rows that
    /// existed.
    pub fn analyze_after(&self, build: &IndexBuild) -> Result<()> {
        if build.first > 0 {
            return Ok(());
        }
        spi::execute_utility(&format!("ANALYZE kb.documents, kb.chunks, {}", self.vector_db.table()))
    }

    fn index_name(&self, build: &IndexBuild) -> String {
        let mut name = self.vector_db.table_name.clone();
        if name.len() > LONGEST_NAME {
            let hash = blake3::hash(name.as_bytes()).to_hex();
            name.truncate(LONGEST_NAME - 7);
            name.push_str(&format!("_{}", &hash[..6]));
        }
        // The name differs, because a draft, or an index with fewer edges, still exists while the index for
        // the same numbers is built again.
        let kind = match self.vector_db.config.m {
            _ if build.is_draft => "_draft".to_string(),
            m if m > VectorDbConfig::default().m => format!("_m{m}"),
            _ => String::new(),
        };
        format!("{name}_hnsw_{}_{}{kind}", build.first, build.last)
    }
}

/// Has an index built again, when the table is quiet, with twice the edges and twice the candidates for them.
/// Returns false if it has many already, or if several knowledge bases may use it. Must run as the owner.
pub fn strengthen(vector_db: &VectorDb) -> Result<bool> {
    let VectorDbConfig { m, ef_construction, .. } = vector_db.config;
    if !can_be_stronger(vector_db) {
        return Ok(false);
    }
    // An index with a smaller ef_construction counts as a draft.
    let changed = spi::execute(
        "UPDATE kb.builds SET config = config || pg_catalog.jsonb_build_object('m', $2::int, 'ef_construction', $3::int)
         WHERE table_name = $1 AND owns_table",
        &[
            Arg::Text(&vector_db.table_name),
            Arg::Int((2 * m).max(2 * VectorDbConfig::default().m) as i32),
            Arg::Int((2 * ef_construction) as i32),
        ],
    )?;
    Ok(changed > 0)
}

/// Whether [`strengthen`] would ask for more than the table's index is to have.
pub fn can_be_stronger(vector_db: &VectorDb) -> bool {
    let VectorDbConfig { m, ef_construction, .. } = vector_db.config;
    m <= MOST_EDGES / 2 && ef_construction <= MOST_CANDIDATES / 2
}

/// Whether an index of the table has still to be built with the table's present settings.
pub fn is_weak(vector_db: &VectorDb) -> Result<bool> {
    Ok(indexes(vector_db)?.iter().any(|index| index.segment.is_draft))
}

/// The most edges per vector that [`strengthen`] requests, and the most candidates.
const MOST_EDGES: usize = 64;
const MOST_CANDIDATES: usize = 1000;

/// The tables whose index misses too much, and is to be built again with more edges. For the worker.
pub fn weak() -> Result<Vec<VectorDb>> {
    // Uses the index builds_misses, whatever the statistics say: the index of live builds has an entry for
    // each knowledge base.
    let sql = format!(
        "WITH b AS MATERIALIZED (SELECT * FROM kb.builds WHERE index_misses)
         SELECT {} FROM b WHERE b.owns_table AND b.state = 'live'",
        VectorDb::columns("b")
    );
    let mut found = spi::write(&sql, &[], VectorDb::from_row)?;
    found.retain(|table| is_weak(table).unwrap_or(false));
    Ok(found)
}

/// The number of bytes of a table's name that go into the names of its indexes, so that the numbers fit, too.
const LONGEST_NAME: usize = 63 - "_hnsw_2147483647_2147483647_draft".len();

/// The beginning of a statement that drops an index. PostgreSQL reports no progress for it.
const DROP: &str = "DROP INDEX CONCURRENTLY IF EXISTS";

/// The statement that drops an index of a vector table without blocking other sessions.
pub fn drop_statement(name: &str) -> String {
    format!("{DROP} kb.{}", quote(name))
}

/// The pids of the indexers of all databases that only wait for the end of older transactions, because they
/// have built an index or drop one.
pub fn waiting_builders() -> Result<Vec<i32>> {
    spi::write(
        "SELECT a.pid FROM pg_catalog.pg_stat_activity a
         LEFT JOIN pg_catalog.pg_stat_progress_create_index p ON p.pid = a.pid
         WHERE a.backend_type = 'kb indexer'
           AND (p.phase = 'waiting for old snapshots' OR pg_catalog.starts_with(a.query, $1))",
        &[Arg::Text(DROP)],
        Row::only::<i32>,
    )
}

/// Whether indexers of other databases run.
pub fn has_other_builders() -> Result<bool> {
    spi::write_value(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity a
             WHERE a.backend_type = 'kb indexer' AND a.datname <> pg_catalog.current_database())",
        &[],
    )
}

/// Ends the merge of a table's segments, if one is being built.
pub fn cancel_merge(vector_db: &VectorDb) -> Result<()> {
    spi::write_one(
        "SELECT count(pg_catalog.pg_cancel_backend(p.pid)) FROM pg_catalog.pg_stat_progress_create_index p
         JOIN pg_catalog.pg_stat_activity a ON a.pid = p.pid AND a.backend_type = 'kb indexer'
         WHERE p.datname = pg_catalog.current_database() AND pg_catalog.strpos(a.query, $2) > 0
           AND p.relid = pg_catalog.to_regclass('kb.' || pg_catalog.quote_ident($1))",
        &[Arg::Text(&vector_db.table_name), Arg::Text(GIVES_WAY)],
        Row::only::<i64>,
    )?;
    Ok(())
}
