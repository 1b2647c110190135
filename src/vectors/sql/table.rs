//! A vector store that is a table of this database: creates, fills and drops the table.

use super::nearest::{self, Scan, VectorSearch};
use super::policies::make_policies;
use super::tail::WrittenVector;
use super::{Health, Searched, VectorDb, VectorStore, missing, sample, segments, tail};
use crate::pg::copy::{self, Rows};
use crate::pg::row::from_row;
use crate::pg::spi::{self, Arg, FromRow, Row, quote};
use crate::pg::{ddl, report, role, setting, txn};
use crate::sql::BY_INDEX_UNPLANNED;
use crate::sql::server_catalogs::vector_schema;
use crate::vectors::sql::grants;
use kb_types::Missing;
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::vector_db::Element;
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

/// What distinguishes one kind of table from another.
pub trait VectorTable {
    /// Whether a crash empties the table, and a standby cannot read it.
    const UNLOGGED: bool;

    fn vector_db(&self) -> &VectorDb;
}

from_row! {
    /// A chunk that [`VectorStore::write`] has locked.
    struct LockedChunk {
        chunk_id: Uuid,
        /// The place of its vector, from 1.
        i: i64,
        tenant_id: String,
        /// The number that its vector is packed under, or None if it is not packed.
        number: Option<i32>,
    }
}

impl<T: VectorTable> VectorStore for T {
    fn create(&self) -> Result<()> {
        create(self.vector_db(), if T::UNLOGGED { "UNLOGGED " } else { "" })
    }

    fn remove(&self) -> Result<()> {
        // CASCADE also drops objects that others made on the table, such as views: these must not keep it,
        // and no message names them.
        let table = self.vector_db().table();
        cancel_index_build(self.vector_db())?;
        setting::with(&[(c"client_min_messages", c"warning")], || {
            spi::execute_utility(&format!("DROP TABLE IF EXISTS {table} CASCADE"))
        })
    }

    fn empty(&self) -> Result<()> {
        if !self.vector_db().has_pages()? {
            return Ok(());
        }
        cancel_index_build(self.vector_db())?;
        // The worker may be dropping it.
        if !ddl::lock_if_there(&self.vector_db().table_name)? {
            return Ok(());
        }
        drop_references(self.vector_db())?;
        spi::execute_utility(&format!("TRUNCATE ONLY {}", self.vector_db().table()))
    }

    fn health(&self) -> Result<Health> {
        Ok(match ddl::table_exists(&self.vector_db().table_name)? {
            false => Health::Gone,
            true if T::UNLOGGED && report::in_recovery() => Health::Unreadable,
            true => Health::Ready,
        })
    }

    fn count(&self, build_no: i64) -> Result<i64> {
        if self.health()? != Health::Ready {
            return Ok(0);
        }
        let sql = format!("SELECT count(*) FROM {} WHERE build_no = $1", self.vector_db().table());
        let count = as_reader(|| spi::read_one(&sql, &[Arg::Long(build_no)], Row::only::<i64>))?;
        Ok(count.unwrap_or(0))
    }

    fn write(
        &self,
        build_no: i64,
        fingerprint: i64,
        chunk_ids: &[Uuid],
        numbers: &[f32],
    ) -> Result<HashSet<Uuid>> {
        let vector_db = self.vector_db();
        let sql = format!(
            "WITH c AS MATERIALIZED (
                 SELECT c.chunk_id, c.build_no, c.kb_no, c.tenant_id, u.i
                 FROM pg_catalog.unnest($1::uuid[]) WITH ORDINALITY AS u (chunk_id, i)
                 JOIN kb.chunks c ON c.chunk_id = u.chunk_id AND c.build_no = $2
                 FOR KEY SHARE OF c SKIP LOCKED),
             number AS MATERIALIZED (SELECT {number} AS number),
             inserted AS (
                 INSERT INTO {table} (chunk_id, build_no, kb_no, tenant_id, fingerprint, embedding, segment)
                 SELECT c.chunk_id, c.build_no, c.kb_no, c.tenant_id, $3,
                        ($4::real[])[(c.i - 1) * {d} + 1 : c.i * {d}]::{column}, (SELECT number FROM number)
                 FROM c ON CONFLICT DO NOTHING)
             SELECT c.chunk_id, c.i, c.tenant_id,
                 (SELECT n.number FROM number n JOIN kb.tails t ON t.build_no = $2 AND t.first <= n.number) AS number
             FROM c",
            table = vector_db.table(),
            number = segments::new_number(&vector_db.table(), "$2"),
            d = vector_db.dimension,
            column = vector_db.column_type(&vector_schema()?),
        );
        let arguments =
            [Arg::Uuids(chunk_ids), Arg::Long(build_no), Arg::Long(fingerprint), Arg::Floats(numbers)];
        // Uses the primary key, even if the statistics are older than the build.
        let found =
            setting::with(BY_INDEX_UNPLANNED, || spi::write(&sql, &arguments, LockedChunk::from_row))?;
        let ids = found.iter().map(|chunk| chunk.chunk_id).collect();
        if let Some(number) = found.first().and_then(|chunk| chunk.number) {
            let vector = |i: usize| &numbers[(i - 1) * vector_db.dimension..i * vector_db.dimension];
            let written = |LockedChunk { chunk_id, i, tenant_id, .. }| WrittenVector {
                tenant_id,
                chunk_id,
                vector: vector(i as usize),
            };
            tail::write(vector_db, build_no, number, found.into_iter().map(written))?;
        }
        Ok(ids)
    }

    fn write_all(
        &self,
        build_no: i64,
        kb_no: i64,
        fingerprint: i64,
        chunks: &[(Uuid, &str)],
        numbers: &[f32],
    ) -> Result<bool> {
        let vector_db = self.vector_db();
        let sql = format!(
            "WITH n AS MATERIALIZED (SELECT {} AS number)
             SELECT n.number, EXISTS (SELECT FROM kb.tails t WHERE t.build_no = $1 AND t.first <= n.number) AS is_packed
             FROM n
             WHERE {}",
            segments::new_number(&vector_db.table(), "$1"),
            checks_vectors("pg_catalog.to_regclass('kb.' || pg_catalog.quote_ident($2))::oid"),
        );
        let row = |row: &Row| Ok((row.get::<i32>("number")?, row.get::<bool>("is_packed")?));
        let arguments = [Arg::Long(build_no), Arg::Text(&vector_db.table_name)];
        // The trigger is what keeps out vectors whose chunks are gone.
        let Some((number, is_packed)) = spi::write_one(&sql, &arguments, row)? else { return Ok(false) };
        if numbers.len() != chunks.len() * vector_db.dimension {
            return Err(Error::Internal(format!("{} numbers for {} vectors", numbers.len(), chunks.len())));
        }
        let mut rows = Rows::of(&[
            c"chunk_id",
            c"build_no",
            c"kb_no",
            c"tenant_id",
            c"fingerprint",
            c"embedding",
            c"segment",
        ]);
        let vectors = || chunks.iter().zip(numbers.chunks_exact(vector_db.dimension.max(1)));
        for ((chunk_id, tenant_id), vector) in vectors() {
            let row = rows.row().bytes(chunk_id.as_bytes()).long(build_no).long(kb_no);
            let row = row.bytes(tenant_id.as_bytes()).long(fingerprint);
            match vector_db.element {
                Element::Vector => row.vector(vector).int(number),
                Element::Halfvec => row.half_vector(vector).int(number),
            };
        }
        copy::write(&vector_db.table_name, rows)?;
        if is_packed {
            let written = |((chunk_id, tenant_id), vector): (&(Uuid, &str), _)| {
                let tenant_id = tenant_id.to_string();
                WrittenVector { tenant_id, chunk_id: *chunk_id, vector }
            };
            tail::write(vector_db, build_no, number, vectors().map(written))?;
        }
        Ok(true)
    }

    fn delete(&self, build_no: i64, chunk_ids: Option<&[Uuid]>) -> Result<()> {
        if self.health()? != Health::Ready {
            return Ok(());
        }
        let table = self.vector_db().table();
        let (these, arguments) = match chunk_ids {
            Some(ids) => {
                ("build_no = $1 AND chunk_id = ANY ($2)", vec![Arg::Long(build_no), Arg::Uuids(ids)])
            }
            None => ("build_no = $1", vec![Arg::Long(build_no)]),
        };
        setting::with(BY_INDEX_UNPLANNED, || {
            spi::execute(&format!("DELETE FROM ONLY {table} WHERE {these}"), &arguments)?;
            if txn::is_read_committed() {
                return Ok(());
            }
            // Vectors that were written after this transaction's snapshot, which it can neither see nor
            // delete.
            let left = format!("SELECT EXISTS (SELECT FROM ONLY {table} WHERE {these})");
            let left = txn::with_latest_snapshot(|| spi::read_one(&left, &arguments, Row::only))?;
            if left == Some(true) { Err(Error::not_serializable()) } else { Ok(()) }
        })
    }

    fn search<'a>(&self, search: &VectorSearch<'a>, searched: Option<&Searched>) -> Result<Scan<'a>> {
        nearest::open(self.vector_db(), search, searched)
    }

    fn searched(&self) -> Result<Option<Searched>> {
        segments::searched(self.vector_db())
    }

    fn index_state(&self, build_no: i64) -> Result<(i64, i64)> {
        if self.health()? != Health::Ready {
            return Ok((0, 0));
        }
        as_reader(|| segments::state(self.vector_db(), build_no))
    }

    fn similarities(&self, build_no: i64, vector: &[f32], chunk_ids: &[Uuid]) -> Result<HashMap<Uuid, f64>> {
        nearest::similarities(self.vector_db(), build_no, vector, chunk_ids)
    }

    fn sample(&self, build_no: i64, most: i64) -> Result<Vec<(Uuid, Vec<f32>)>> {
        sample::sample(self.vector_db(), build_no, most)
    }

    fn vectors(&self, build_no: i64, chunk_ids: &[Uuid]) -> Result<HashMap<Uuid, Vec<f32>>> {
        nearest::vectors(self.vector_db(), build_no, chunk_ids)
    }

    fn all_vectors(&self, build_no: i64, chunk_ids: &[Uuid]) -> Result<HashMap<Uuid, Vec<f32>>> {
        nearest::all_vectors(self.vector_db(), build_no, chunk_ids)
    }

    fn missing(
        &self,
        build_no: i64,
        document_ids: &[i64],
        after: (i64, i32),
        limit: i64,
    ) -> Result<Vec<Missing>> {
        missing::missing(self.vector_db(), build_no, document_ids, after, limit)
    }

    fn incomplete(&self, kb_no: i64, build_no: i64) -> Result<Vec<i64>> {
        missing::incomplete(self.vector_db(), kb_no, build_no)
    }

    fn with_equal_text(&self, build_no: i64, fingerprint: i64, chunk_ids: &[Uuid]) -> Result<Vec<Uuid>> {
        missing::with_equal_text(self.vector_db(), build_no, fingerprint, chunk_ids)
    }

    fn among_those_with_vectors(&self, build_no: i64, chunk_ids: &[Uuid]) -> Result<HashSet<Uuid>> {
        missing::among_those_with_vectors(self.vector_db(), build_no, chunk_ids)
    }

    fn reuse(
        &self,
        build_no: i64,
        fingerprint: i64,
        document_ids: &[i64],
        lender: Option<(&VectorDb, i64)>,
    ) -> Result<u64> {
        missing::reuse(self.vector_db(), build_no, fingerprint, document_ids, lender)
    }
}

/// A role that sees the rows of all tenants sees all of their vectors, too.
fn as_reader<T>(read: impl FnOnce() -> Result<T>) -> Result<T> {
    if role::bypasses_policies() { role::as_owner(read) } else { role::as_vector_reader(read) }
}

/// Drops foreign keys that others made to the table: they would keep it from being emptied, and are dropped
/// with it in any case.
fn drop_references(vector_db: &VectorDb) -> Result<()> {
    let sql = "SELECT pg_catalog.format('ALTER TABLE %I.%I DROP CONSTRAINT %I', n.nspname, c.relname, f.conname)
         FROM pg_catalog.pg_constraint f
         JOIN pg_catalog.pg_class c ON c.oid = f.conrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE f.contype = 'f' AND f.conparentid = 0
           AND f.confrelid = pg_catalog.to_regclass('kb.' || pg_catalog.quote_ident($1))::oid";
    let statements = spi::write(sql, &[Arg::Text(&vector_db.table_name)], Row::only::<String>)?;
    statements.iter().try_for_each(|statement| spi::execute_utility(statement))
}

/// Cancels the indexer's work on the table. A build waits for older snapshots, and the drop of an index waits
/// for all transactions that have read the table; if this transaction is among them, that is a deadlock. Both
/// hold this lock on the table.
fn cancel_index_build(vector_db: &VectorDb) -> Result<()> {
    spi::write_one(
        "SELECT count(pg_catalog.pg_cancel_backend(a.pid)) FROM pg_catalog.pg_stat_activity a
         WHERE a.backend_type = 'kb indexer' AND a.datname = pg_catalog.current_database() AND EXISTS (
             SELECT FROM pg_catalog.pg_locks l
             WHERE l.pid = a.pid AND l.locktype = 'relation' AND l.mode = 'ShareUpdateExclusiveLock'
               AND l.relation = pg_catalog.to_regclass('kb.' || pg_catalog.quote_ident($1))::oid)",
        &[Arg::Text(&vector_db.table_name)],
        Row::only::<i64>,
    )?;
    Ok(())
}

impl VectorDb {
    /// The name of the table in a statement.
    pub fn table(&self) -> String {
        format!("kb.{}", quote(&self.table_name))
    }

    /// The type of its vectors in a statement.
    pub fn column_type(&self, vector_schema: &str) -> String {
        format!("{vector_schema}.{}({})", self.element.name(), self.dimension)
    }

    /// Creates a table that accepts any vector. Must run as the owner.
    pub fn create_unchecked(&self) -> Result<()> {
        create_unchecked(self, "")
    }

    /// Makes the table refuse a vector without its chunk from now on (`sql/tables.sql`).
    pub fn check_vectors(&self) -> Result<()> {
        spi::execute_utility(&format!(
            "CREATE CONSTRAINT TRIGGER vector_written AFTER INSERT OR UPDATE OF build_no, chunk_id, tenant_id ON {} FROM kb.chunks
             FOR EACH ROW EXECUTE FUNCTION kb._vector_written()",
            self.table()
        ))
    }

    /// Returns an error if a table of that name exists already.
    pub fn check_free(&self) -> Result<()> {
        match ddl::table_exists(&self.table_name)? {
            true => {
                Err(Error::AlreadyExists { what: ObjectKind::Table, id: format!("kb.{}", self.table_name) })
            }
            false => Ok(()),
        }
    }
}

/// Creates a vector table with the policies of every table with a tenant.
fn create(vector_db: &VectorDb, unlogged: &str) -> Result<()> {
    create_unchecked(vector_db, unlogged)?;
    vector_db.check_vectors()
}

/// An expression: whether a table, given by its oid, refuses a vector without its chunk.
pub fn checks_vectors(table: &str) -> String {
    format!(
        "EXISTS (SELECT FROM pg_catalog.pg_trigger g WHERE g.tgrelid = {table}
             AND g.tgfoid = 'kb._vector_written()'::regprocedure AND g.tgenabled IN ('O', 'A'))"
    )
}

fn create_unchecked(vector_db: &VectorDb, unlogged: &str) -> Result<()> {
    vector_db.check_free()?;
    let table = vector_db.table();
    for statement in [
        format!(
            "CREATE {unlogged}TABLE {table} (
                 chunk_id uuid NOT NULL,
                 build_no bigint NOT NULL,
                 kb_no bigint NOT NULL,
                 tenant_id text NOT NULL,
                 fingerprint bigint NOT NULL,
                 embedding {column} NOT NULL,
                 PRIMARY KEY (build_no, chunk_id))",
            column = vector_db.column_type(&vector_schema()?)
        ),
        // Vectors do not compress, and storing them inline spares a look-up for each.
        format!("ALTER TABLE {table} ALTER COLUMN embedding SET STORAGE PLAIN"),
        format!("ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"),
        format!("ALTER TABLE {table} FORCE ROW LEVEL SECURITY"),
    ] {
        // A vector of over 7,000 bytes may not fit a page and must stay TOASTable.
        let wide = vector_db.dimension * if vector_db.element.name() == "vector" { 4 } else { 2 } > 7000;
        if wide && statement.contains("SET STORAGE PLAIN") {
            continue;
        }
        spi::execute_utility(&statement)?;
    }
    add_segments(&vector_db.table_name)?;
    make_policies(&vector_db.table_name)?;
    attach(&vector_db.table_name)
}

/// Adds the column that decides which index a row goes into, if the table lacks it: a restore can have left
/// it out. Each row gets its number when it is written, and numbers grow.
pub fn add_segments(table_name: &str) -> Result<()> {
    let table = format!("kb.{}", quote(table_name));
    let has_segments = spi::write_one(
        "SELECT true FROM pg_catalog.pg_attribute a
         WHERE a.attrelid = pg_catalog.to_regclass('kb.' || pg_catalog.quote_ident($1))::oid
           AND a.attname = 'segment' AND NOT a.attisdropped",
        &[Arg::Text(table_name)],
        Row::only::<bool>,
    )?;
    if has_segments.is_some() {
        return Ok(());
    }
    spi::execute_utility(&format!("ALTER TABLE {table} ADD COLUMN segment integer NOT NULL DEFAULT 0"))?;
    spi::execute_utility(&format!("CREATE INDEX ON {table} (segment)"))
}

/// Makes DROP EXTENSION drop a vector table, and lets queries read it. No other role may read it: distances
/// between vectors would reveal something about other tenants' documents.
pub fn attach(table_name: &str) -> Result<()> {
    grants::take_defaults(table_name)?;
    spi::execute_utility(&format!("GRANT SELECT ON kb.{} TO kb_vectors", quote(table_name)))?;
    ddl::drop_with_extension(table_name)
}
