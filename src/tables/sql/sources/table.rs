//! The properties of a table that matter before its rows become documents, and the triggers that report its
//! changes.

use super::{Source, literal};
use crate::pg::row::from_row;
use crate::pg::spi::{self, Arg, FromRow, Row, quote};
use crate::pg::{ddl, setting, trigger};
use crate::sql::BY_LOOKUPS;
use kb_types::error::{Error, ObjectKind, Result};

/// A table as the catalogs describe it.
#[derive(Debug, Clone, PartialEq)]
pub struct UserTable {
    pub relation: u32,
    /// Qualified with its schema, and quoted.
    pub name: String,
    pub schema: String,
    /// The value of pg_class.relkind.
    pub kind: String,
    pub is_temporary: bool,
    /// Whether it is a partition, or inherits from another table or is inherited from, other than as a
    /// partitioned table.
    pub has_relatives: bool,
    pub is_partitioned: bool,
    pub owner: String,
    /// Whether the caller is its owner, or has that role's rights.
    pub is_own: bool,
    /// The columns of its primary key.
    pub key: Vec<String>,
}

/// [`UserTable::has_relatives`] of a pg_class c.
const HAS_RELATIVES: &str = "c.relispartition OR c.relkind <> 'p' AND (
    EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhrelid = c.oid)
    OR EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid))";

/// A table by its oid, or None if there is no such relation.
pub fn find(relation: u32) -> Result<Option<UserTable>> {
    spi::write_one(
        &format!("SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS name, n.nspname::text AS schema, c.relkind::text AS kind,
                c.relpersistence = 't' AS is_temporary, {HAS_RELATIVES} AS has_relatives,
                pg_catalog.pg_get_userbyid(c.relowner)::text AS owner, pg_catalog.pg_has_role(c.relowner, 'USAGE') AS is_own,
                ARRAY(SELECT a.attname::text
                      FROM pg_catalog.pg_index i
                      CROSS JOIN LATERAL pg_catalog.unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
                      JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                      WHERE i.indrelid = c.oid AND i.indisprimary AND k.place <= i.indnkeyatts ORDER BY k.place) AS key
         FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1::oid"),
        &[Arg::Long(i64::from(relation))],
        |row| {
            let kind: String = row.get("kind")?;
            Ok(UserTable {
                relation,
                is_partitioned: kind == "p",
                name: row.get("name")?,
                schema: row.get("schema")?,
                kind,
                is_temporary: row.get("is_temporary")?,
                has_relatives: row.get("has_relatives")?,
                owner: row.get("owner")?,
                is_own: row.get("is_own")?,
                key: row.get("key")?,
            })
        },
    )
}

from_row! {
    /// The present table of a source.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Located {
        pub relation: u32,
        /// Qualified with its schema, and quoted.
        pub name: String,
        /// Whether its owner is still the role with whose rights it is read. Another owner could have other
        /// code run with these rights.
        pub is_same_owner: bool,
        /// Whether it is a partition, or inherits from another table or is inherited from, so that triggers
        /// do not report all its changes.
        pub has_relatives: bool,
    }
}

/// The table of a source, by its oid or, after a restore, by its name. Returns None if the table or its
/// triggers no longer exist.
pub fn locate(source: &Source) -> Result<Option<Located>> {
    spi::write_one(
        &format!("SELECT c.oid::bigint AS relation, pg_catalog.format('%I.%I', n.nspname, c.relname) AS name,
                pg_catalog.pg_get_userbyid(c.relowner)::text COLLATE pg_catalog.\"C\" = $4 AS is_same_owner,
                {HAS_RELATIVES} AS has_relatives
         FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE c.oid IN ($1::oid, pg_catalog.to_regclass($2)::oid) AND EXISTS (
             SELECT FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname::text COLLATE pg_catalog.\"C\" = $3 AND t.tgfoid = 'kb._rows_changed'::regproc)
         ORDER BY c.oid = $1::oid DESC LIMIT 1"),
        &[
            Arg::Long(i64::from(source.relation)),
            Arg::Text(&source.relation_name),
            Arg::Text(&trigger(source.source_no, "insert")),
            Arg::Text(&source.role_name),
        ],
        Located::from_row,
    )
}

/// Whether a table belongs to a source: it has the source's triggers or, if no table has them, it is the one
/// that had.
pub fn is_of(source: &Source, relation: u32) -> Result<bool> {
    Ok(locate(source)?.map_or(source.relation, |located| located.relation) == relation)
}

from_row! {
    /// A type and the operators of its order, in the form that SQL uses.
    #[derive(Debug, Clone, PartialEq)]
    pub struct KeyType {
        pub column: String,
        /// The qualified name of the type.
        pub name: String,
        /// The schema of its operators = and >, quoted.
        pub operators: String,
    }
}

/// The types of these columns of a table, with the operators of the primary key.
pub fn key_types(relation: u32, columns: &[String]) -> Result<Vec<KeyType>> {
    let types = spi::write(
        "SELECT a.attname::text AS column, pg_catalog.format_type(a.atttypid, -1) AS name,
             pg_catalog.quote_ident(n.nspname) AS operators
         FROM unnest($2::text[]) WITH ORDINALITY AS u (name, place)
         JOIN pg_catalog.pg_attribute a ON a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
             AND a.attname::text COLLATE pg_catalog.\"C\" = u.name
         JOIN pg_catalog.pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
         CROSS JOIN LATERAL unnest(i.indkey, i.indclass) AS k (attnum, opclass)
         JOIN pg_catalog.pg_opclass c ON c.oid = k.opclass
         JOIN pg_catalog.pg_amop o ON o.amopfamily = c.opcfamily AND o.amopstrategy = 3
             AND o.amoplefttype = c.opcintype AND o.amoprighttype = c.opcintype
         JOIN pg_catalog.pg_operator p ON p.oid = o.amopopr
         JOIN pg_catalog.pg_namespace n ON n.oid = p.oprnamespace
         WHERE k.attnum = a.attnum ORDER BY u.place",
        &[Arg::Long(i64::from(relation)), Arg::Texts(columns)],
        KeyType::from_row,
    )?;
    if types.len() == columns.len() {
        return Ok(types);
    }
    let is_missing = |column: &&String| !types.iter().any(|typ| typ.column == **column);
    let missing = columns.iter().find(is_missing).cloned().unwrap_or_default();
    if trigger::column(relation, &missing).is_none() {
        return Err(Error::NotFound { what: ObjectKind::Column, id: missing });
    }
    let name = find(relation)?.map_or_else(|| relation.to_string(), |table| table.name);
    Err(Error::State {
        problem: format!("column \"{missing}\" is not in the primary key of table {name} any more"),
        hint: "Attach the table again (kb.attach_table); its rows are identified by their key.".into(),
    })
}

/// The names of columns by their numbers.
pub fn column_names(relation: u32, columns: &[i16]) -> Result<Vec<String>> {
    let columns: Vec<i32> = columns.iter().copied().map(i32::from).collect();
    spi::write(
        "SELECT a.attname::text FROM pg_catalog.pg_attribute a
         WHERE a.attrelid = $1::oid AND a.attnum = ANY ($2) AND NOT a.attisdropped ORDER BY a.attnum",
        &[Arg::Long(i64::from(relation)), Arg::Ints(&columns)],
        Row::only,
    )
}

/// Those of these columns whose type is json or jsonb, or a domain over one.
pub fn json_columns(relation: u32, columns: &[&str]) -> Result<Vec<String>> {
    let columns: Vec<String> = columns.iter().map(|column| column.to_string()).collect();
    spi::write(
        "SELECT a.attname::text FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
         WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
           AND a.attname::text COLLATE pg_catalog.\"C\" = ANY ($2)
           AND coalesce(nullif(t.typbasetype, 0::oid), t.oid) IN ('pg_catalog.json'::regtype, 'pg_catalog.jsonb'::regtype)
         ORDER BY a.attnum",
        &[Arg::Long(i64::from(relation)), Arg::Texts(&columns)],
        Row::only,
    )
}

/// The dimension of a column of vectors, or an inner None if it accepts any dimension. The outer None means
/// that it is not a column of vectors.
pub fn vector_dimension(relation: u32, column: &str) -> Result<Option<Option<usize>>> {
    spi::write_one(
        "SELECT a.atttypmod FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
         WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname::text COLLATE pg_catalog.\"C\" = $2
           AND t.typname IN ('vector', 'halfvec') AND t.typnamespace = (
               SELECT extnamespace FROM pg_catalog.pg_extension WHERE extname = 'vector')",
        &[Arg::Long(i64::from(relation)), Arg::Text(column)],
        |row| Ok(usize::try_from(row.only::<i32>()?).ok().filter(|dimension| *dimension > 0)),
    )
}

/// The names in a text in PostgreSQL's array syntax. A text in any other form is one name.
pub fn names(text: &str) -> Result<Vec<String>> {
    if !text.trim_start().starts_with('{') {
        return Ok(vec![text.trim().to_string()]);
    }
    let names = spi::write_one("SELECT $1::text[]", &[Arg::Text(text)], Row::only::<Vec<Option<String>>>)?;
    Ok(names.unwrap_or_default().into_iter().flatten().collect())
}

/// The events of a source's triggers.
const EVENTS: &[(&str, &str)] = &[
    ("insert", "REFERENCING NEW TABLE AS kb_new"),
    ("update", "REFERENCING OLD TABLE AS kb_old NEW TABLE AS kb_new"),
    ("delete", "REFERENCING OLD TABLE AS kb_old"),
    ("truncate", ""),
];

/// The row-level trigger that logical replication fires, which fires no other.
const EACH_ROW: &str = "row";

fn trigger(source_no: i64, event: &str) -> String {
    format!("kb_{source_no}_{event}")
}

from_row! {
    /// A table whose statements fire triggers of their own: an attached table, or one of its partitions.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MemberTable {
        pub relation: u32,
        /// Qualified with its schema, and quoted.
        pub name: String,
        pub owner: String,
        /// Whether row-level security may hide some of its rows.
        pub has_policies: bool,
        /// Whether it has rows of its own, and not those of partitions.
        pub has_rows: bool,
    }
}

const MEMBER: &str = "SELECT c.oid::bigint AS relation, pg_catalog.format('%I.%I', n.nspname, c.relname) AS name,
         pg_catalog.pg_get_userbyid(c.relowner)::text AS owner, c.relrowsecurity AS has_policies, c.relkind <> 'p' AS has_rows
     FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace";

impl MemberTable {
    pub fn oid(&self) -> i64 {
        i64::from(self.relation)
    }
}

/// A table, which comes first, with all its partitions. If there is a primary key, none of them is a foreign
/// table. Locks none of them.
pub fn members(relation: u32) -> Result<Vec<MemberTable>> {
    spi::write(
        &format!(
            "WITH RECURSIVE tree AS (
                 SELECT $1::oid AS oid
                 UNION ALL
                 SELECT i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid AND NOT i.inhdetachpending)
             {MEMBER} WHERE c.oid IN (SELECT tree.oid FROM tree) ORDER BY c.oid = $1::oid DESC, c.oid"
        ),
        &[Arg::Long(i64::from(relation))],
        MemberTable::from_row,
    )
}

/// Those of these tables that have a source's triggers.
pub fn followed(source_no: i64, relations: &[i64]) -> Result<Vec<MemberTable>> {
    spi::write(
        &format!(
            "{MEMBER} WHERE c.oid::bigint = ANY ($2) AND EXISTS (
                 SELECT FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid
                   AND t.tgname::text COLLATE pg_catalog.\"C\" = $1 AND t.tgfoid = 'kb._rows_changed'::regproc) ORDER BY c.oid"
        ),
        &[Arg::Text(&trigger(source_no, "insert")), Arg::Longs(relations)],
        MemberTable::from_row,
    )
}

/// Whether a table is one of the partitions of another.
pub fn is_partition_of(relation: u32, root: u32) -> Result<bool> {
    spi::write_value(
        "SELECT pg_catalog.pg_partition_root($1::oid::regclass) = $2::oid::regclass AND $1::oid <> $2::oid",
        &[Arg::Long(i64::from(relation)), Arg::Long(i64::from(root))],
    )
}

/// Creates the triggers that report the changes of a source's table, or of one of its partitions. Must run as
/// the owner.
pub fn create_triggers(source: &Source, table: &MemberTable) -> Result<()> {
    for (event, referencing) in EVENTS {
        let rest = format!("{referencing} FOR EACH STATEMENT");
        create_trigger(source, table, event, &format!("AFTER {event}"), &rest)?;
    }
    match is_followed_by_row(source, table) {
        true => create_trigger(source, table, EACH_ROW, "AFTER INSERT OR UPDATE OR DELETE", "FOR EACH ROW"),
        false => Ok(()),
    }
}

fn is_followed_by_row(source: &Source, table: &MemberTable) -> bool {
    source.config.replicated && table.has_rows
}

/// Sets which of these triggers fire in sessions that replay the changes of another database, if that was
/// requested. The processes of a subscription fire row-level triggers, and those of TRUNCATE. Must run as the
/// owner.
pub fn set_firing(source: &Source, table: &MemberTable) -> Result<()> {
    let set = |event: &str, when: &str| {
        let trigger = quote(&trigger(source.source_no, event));
        spi::execute_utility(&format!("ALTER TABLE ONLY {} ENABLE {when} TRIGGER {trigger}", table.name))
    };
    if source.config.replicated {
        set("truncate", "ALWAYS")?;
    }
    if is_followed_by_row(source, table) { set(EACH_ROW, "REPLICA") } else { Ok(()) }
}

fn create_trigger(source: &Source, member: &MemberTable, event: &str, when: &str, rest: &str) -> Result<()> {
    let (name, table) = (quote(&trigger(source.source_no, event)), &member.name);
    let argument = literal(&source.source_no.to_string());
    spi::execute_utility(&format!(
        "CREATE TRIGGER {name} {when} ON {table} {rest} EXECUTE FUNCTION kb._rows_changed({argument})"
    ))?;
    // The trigger is dropped with the extension, which could not be dropped otherwise.
    ddl::trigger_depends_on_extension(member.relation, &trigger(source.source_no, event))
}

/// Drops a source's triggers on those of these tables that exist. Must run as the owner.
pub fn drop_triggers(source_no: i64, relations: &[i64]) -> Result<()> {
    let events = EVENTS.iter().map(|(event, _)| *event).chain([EACH_ROW]);
    let names: Vec<String> = events.map(|event| trigger(source_no, event)).collect();
    let there: Vec<(String, String)> = spi::write(
        "SELECT t.tgname::text AS name, pg_catalog.format('%I.%I', n.nspname, c.relname) AS table
         FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE t.tgrelid = ANY ($2::oid[]) AND t.tgname::text COLLATE pg_catalog.\"C\" = ANY ($1)
           AND t.tgfoid = 'kb._rows_changed'::regproc",
        &[Arg::Texts(&names), Arg::Longs(relations)],
        |row| Ok((row.get("name")?, row.get("table")?)),
    )?;
    there.iter().try_for_each(|(name, table)| {
        spi::execute_utility(&format!("DROP TRIGGER {} ON {table}", quote(name)))
    })
}

/// The tables that the statement has dropped; for event triggers on sql_drop.
pub fn dropped() -> Result<Vec<i64>> {
    spi::write(
        "SELECT o.objid::bigint FROM pg_catalog.pg_event_trigger_dropped_objects() o
         WHERE o.classid = 'pg_catalog.pg_class'::regclass AND o.objsubid = 0 AND o.object_type = 'table'",
        &[],
        Row::only,
    )
}

/// The attached tables that the statement has created or altered, or whose partitions it has, with the
/// numbers of their sources; for event triggers on ddl_command_end. They are recognised by their triggers.
/// Reads only what the catalogs have about the altered tables.
pub fn altered() -> Result<Vec<(u32, i64)>> {
    setting::with(BY_LOOKUPS, || {
        spi::write(
            "WITH RECURSIVE tree AS (
                 SELECT o.objid AS oid FROM pg_catalog.pg_event_trigger_ddl_commands() o
                 WHERE o.classid = 'pg_catalog.pg_class'::regclass AND o.object_type = 'table'
                 UNION
                 SELECT i.inhparent FROM tree JOIN pg_catalog.pg_inherits i ON i.inhrelid = tree.oid)
             SELECT tree.oid::bigint AS relation, substring(t.tgname::text from '^kb_([0-9]{1,18})_insert$')::bigint AS source_no
             FROM tree JOIN pg_catalog.pg_trigger t ON t.tgrelid = tree.oid
             WHERE t.tgfoid = 'kb._rows_changed'::regproc AND t.tgname::text ~ '^kb_[0-9]{1,18}_insert$' ORDER BY source_no",
            &[],
            |row| Ok((row.get("relation")?, row.get("source_no")?)),
        )
    })
}
