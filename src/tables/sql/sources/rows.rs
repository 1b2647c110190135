//! The rows of an attached table, read as the role that owns it.

use super::table::{KeyType, key_types};
use super::{PRINTED, Source, literal};
use crate::pg::role::as_role_of_name;
use crate::pg::row::from_row;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow, Row, quote};
use crate::sql::IN_ORDER;
use kb_types::Json;
use kb_types::error::Result;

/// The parts of a row that make a document.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceRow {
    /// Its place among the requested keys.
    pub place: usize,
    /// The value of the tenant column. None: it is NULL, or there is no such column.
    pub tenant: Option<String>,
    /// The number of bytes of all values together.
    pub size: usize,
    /// None: they are larger than the caller asked for.
    pub values: Option<RowValues>,
    /// The table or partition that it is stored in.
    pub relation: u32,
}

/// The values of which a document is made.
#[derive(Debug, Clone, PartialEq)]
pub struct RowValues {
    /// The values of the columns of `RowContent::columns`, in their order.
    pub content: Vec<Option<String>>,
    /// The type of the JSON in it.
    pub json_type: Option<String>,
    pub title: Option<String>,
    pub uri: Option<String>,
    pub content_type: Option<String>,
    pub metadata: Json,
    /// The vector that the row already has, as pgvector prints it.
    pub vector: Option<String>,
}

/// The published rows with these keys that the role may see. Values of more than `most` bytes in all are left
/// out. With `adopts`, rows include the vectors that they have, if the source adopts any.
pub fn read(source: &Source, keys: &[Vec<String>], most: usize, adopts: bool) -> Result<Vec<SourceRow>> {
    let config = &source.config;
    let text = |column: &str| format!("t.{}::text", quote(column));
    let optional = |column: &Option<String>| column.as_deref().map_or("NULL::text".to_string(), text);
    let adopted = config.adopt.as_ref().filter(|_| adopts).map(|adopt| adopt.column.clone());
    let mut texts: Vec<String> =
        [&config.title, &config.uri, &config.content_type, &config.json_fields.type_column, &adopted]
            .into_iter()
            .map(optional)
            .collect();
    texts.extend(config.content.columns().into_iter().map(text));
    let metadata: Vec<String> = config
        .metadata
        .iter()
        .map(|column| format!("pg_catalog.jsonb_build_object({}, t.{})", literal(column), quote(column)))
        .collect();
    let metadata = if metadata.is_empty() { "'{}'::jsonb".to_string() } else { metadata.join(" || ") };
    let named: Vec<String> = texts.iter().enumerate().map(|(n, text)| format!("{text} AS v{n}")).collect();
    let columns = format!(
        "u.kb_place, {} AS tenant, {metadata} AS metadata, {}, t.tableoid::bigint AS kb_relation",
        tenant(source),
        named.join(", ")
    );
    let names: Vec<String> = (0..texts.len()).map(|n| format!("r.v{n}")).collect();
    let sizes: Vec<String> = names
        .iter()
        .map(|name| format!("coalesce(pg_catalog.octet_length({name}), 0)::bigint"))
        .chain([String::from("pg_catalog.pg_column_size(r.metadata)")])
        .collect();
    let (size, values) = (sizes.join(" + "), names.join(", "));
    // Each value is computed once.
    let around = |rows: &str| {
        format!(
            "SELECT r.kb_place, r.tenant, {size} AS size, CASE WHEN {size} <= {most} THEN ARRAY[{values}]::text[] END AS texts,
                 CASE WHEN {size} <= {most} THEN r.metadata END AS metadata, r.kb_relation FROM ({rows} OFFSET 0) r"
        )
    };
    select(source, keys, &columns, around, |row| {
        let values = match (row.get::<Option<Vec<Option<String>>>>("texts")?, row.get("metadata")?) {
            (Some(mut texts), Some(metadata)) if texts.len() >= 5 => {
                let content = texts.split_off(5);
                let vector = texts.pop().flatten();
                let (json_type, content_type) = (texts.pop().flatten(), texts.pop().flatten());
                let (uri, title) = (texts.pop().flatten(), texts.pop().flatten());
                Some(RowValues { content, json_type, title, uri, content_type, metadata, vector })
            }
            _ => None,
        };
        Ok(SourceRow {
            place: place(row)?,
            tenant: row.get("tenant")?,
            size: row.get::<i64>("size")? as usize,
            values,
            relation: row.get("kb_relation")?,
        })
    })
}

/// The places and tenants of those of these rows that exist, are published, and are visible to the role.
pub fn existing(source: &Source, keys: &[Vec<String>]) -> Result<Vec<(usize, Option<String>)>> {
    let columns = format!("u.kb_place, {} AS tenant", tenant(source));
    select(source, keys, &columns, str::to_string, |row| Ok((place(row)?, row.get("tenant")?)))
}

/// The place of a row among the keys that were asked for.
fn place(row: &Row) -> Result<usize> {
    Ok(row.get::<i64>("kb_place")? as usize - 1)
}

from_row! {
    /// A row by its key.
    #[derive(Debug, Clone, PartialEq)]
    pub struct KeyRow {
        /// The value of the tenant column. None: there is no such column.
        pub tenant: Option<String>,
        pub key: Vec<String>,
        /// Also true if this was not asked.
        pub is_published: bool,
    }
}

/// The next rows in the order of their keys, after this one, or from the first if it is empty. The cost is
/// that of the rows that are returned, even if few are published.
pub fn after(source: &Source, key: &[String], limit: usize, asks_published: bool) -> Result<Vec<KeyRow>> {
    let types = key_types(source.relation, &source.key)?;
    let columns: Vec<String> = types.iter().map(|typ| format!("t.{}", quote(&typ.column))).collect();
    let printed: Vec<String> = columns.iter().map(|column| format!("pg_catalog.concat({column})")).collect();
    let follows = if key.is_empty() { "true".to_string() } else { follows(&types) };
    let mut needed: Vec<&String> = source.key.iter().chain(&source.config.tenant).collect();
    if asks_published {
        needed.extend(&source.config.published_columns);
    }
    needed.sort_unstable();
    needed.dedup();
    let needed: Vec<String> = needed.into_iter().map(|column| format!("t.{}", quote(column))).collect();
    let order = columns.join(", ");
    let sql = format!(
        "SELECT {} AS tenant, ARRAY[{}]::text[] AS key, {} AS is_published FROM (SELECT {} FROM {} AS t WHERE {follows} ORDER BY {order} LIMIT {limit}) AS t
         ORDER BY {order}",
        tenant(source),
        printed.join(", "),
        if asks_published { format!("{} IS TRUE", published(source)) } else { "true".to_string() },
        needed.join(", "),
        source.relation_name,
    );
    let key: Vec<Arg> = key.iter().map(|part| Arg::Text(part)).collect();
    as_table_owner(source, || setting::with(IN_ORDER, || spi::write(&sql, &key, KeyRow::from_row)))
}

/// Reads nothing, but fails as reading rows would, if a column or a right is missing.
pub fn check(source: &Source) -> Result<()> {
    read(source, &[], 0, true).map(|_| ())
}

/// Runs `work` as the role that owns the table, under settings that print values the same everywhere.
fn as_table_owner<T>(source: &Source, work: impl FnOnce() -> Result<T>) -> Result<T> {
    as_role_of_name(&source.role_name, || setting::with(PRINTED, work))
}

/// The part of a table's rows that the caller may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    All,
    /// The rows that row-level security admits. Only its policies determine which, and these call code of the
    /// table's owner.
    ByPolicies,
    /// A right to read every column, or to use the schema, is missing.
    None,
}

/// What the caller may see, by the catalogs only. Not even a plan for a statement on the table is made as the
/// caller, because planning evaluates what the owner wrote into policies, constraints and indexes.
pub fn sight(relation: u32) -> Result<Sight> {
    let found = spi::read_one(
        "SELECT pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE') AND (
                    pg_catalog.has_table_privilege(c.oid, 'SELECT') OR NOT EXISTS (
                        SELECT FROM pg_catalog.pg_attribute a
                        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                          AND NOT pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT'))) AS may_read,
                pg_catalog.row_security_active(c.oid) AND pg_catalog.pg_get_userbyid(c.relowner) <> current_user AS has_policies
         FROM pg_catalog.pg_class c WHERE c.oid = $1::oid",
        &[Arg::Long(i64::from(relation))],
        |row| Ok((row.get::<bool>("may_read")?, row.get::<bool>("has_policies")?)),
    )?;
    Ok(match found {
        Some((true, false)) => Sight::All,
        Some((true, true)) => Sight::ByPolicies,
        _ => Sight::None,
    })
}

/// The present rows, for a caller who may see all of them: their places among these keys, their keys, and the
/// rows as JSON objects. They are read under the caller's snapshot as the role that owns the table, because
/// the types of its columns and its indexes call code of that role.
pub fn whole(source: &Source, keys: &[Vec<String>]) -> Result<Vec<(usize, Json, Json)>> {
    let types = key_types(source.relation, &source.key)?;
    let object =
        |column: &String| format!("pg_catalog.jsonb_build_object({}, t.{})", literal(column), quote(column));
    let key: Vec<String> = source.key.iter().map(object).collect();
    let columns = format!("u.kb_place, {} AS kb_key, pg_catalog.to_jsonb(t) AS kb_row", key.join(" || "));
    let parts = parts(keys, types.len());
    let arguments: Vec<Arg> = parts.iter().map(|part| Arg::Texts(part)).collect();
    let sql = statement(source, &types, &columns, "true");
    as_role_of_name(&source.role_name, || {
        spi::read(&sql, &arguments, |row| Ok((place(row)?, row.get("kb_key")?, row.get("kb_row")?)))
    })
}

/// Rows by their keys; `around` makes the statement out of the one that finds them.
fn select<T>(
    source: &Source,
    keys: &[Vec<String>],
    columns: &str,
    around: impl FnOnce(&str) -> String,
    each: impl FnMut(&Row) -> Result<T>,
) -> Result<Vec<T>> {
    let types = key_types(source.relation, &source.key)?;
    let parts = parts(keys, types.len());
    let arguments: Vec<Arg> = parts.iter().map(|part| Arg::Texts(part)).collect();
    // A key that is equal but printed in another way belongs to another document.
    let printed = types.iter().enumerate().map(|(n, typ)| {
        let column = quote(&typ.column);
        format!("pg_catalog.concat(t.{column}) COLLATE pg_catalog.\"C\" = u.kb_key_{}", n + 1)
    });
    let conditions: Vec<String> = printed.chain([published(source)]).collect();
    let sql = around(&statement(source, &types, columns, &conditions.join(" AND ")));
    as_table_owner(source, || spi::write(&sql, &arguments, each))
}

/// Keys as one array for each part.
fn parts(keys: &[Vec<String>], count: usize) -> Vec<Vec<String>> {
    let part = |n: usize| keys.iter().map(|key| key.get(n).cloned().unwrap_or_default()).collect();
    (0..count).map(part).collect()
}

/// A SELECT of rows `t` by their keys `u`, whose parts are the arguments of the statement.
fn statement(source: &Source, types: &[KeyType], columns: &str, condition: &str) -> String {
    let arrays: Vec<String> = (1..=types.len()).map(|n| format!("${n}::text[]")).collect();
    let names: Vec<String> = (1..=types.len()).map(|n| format!("kb_key_{n}")).collect();
    let same: Vec<String> = types
        .iter()
        .zip(&names)
        .map(|(KeyType { column, name, operators }, key)| {
            format!("t.{} OPERATOR({operators}.=) u.{key}::{name}", quote(column))
        })
        .collect();
    format!(
        "SELECT {columns} FROM unnest({}) WITH ORDINALITY AS u ({}, kb_place) JOIN {} AS t ON {} WHERE {condition}",
        arrays.join(", "),
        names.join(", "),
        source.relation_name,
        same.join(" AND ")
    )
}

fn published(source: &Source) -> String {
    source.config.published_when.as_ref().map_or("(true)".to_string(), |condition| format!("({condition})"))
}

fn tenant(source: &Source) -> String {
    let column = source.config.tenant.as_deref();
    column.map_or("NULL::text".to_string(), |column| format!("pg_catalog.concat(t.{})", quote(column)))
}

/// The condition that the key of a row comes after the given one.
fn follows(types: &[KeyType]) -> String {
    let given = |n: usize| format!("${}::text::{}", n + 1, types[n].name);
    let column = |n: usize| format!("t.{}", quote(&types[n].column));
    if types.iter().all(|typ| typ.operators == "pg_catalog") {
        let columns: Vec<String> = (0..types.len()).map(column).collect();
        let values: Vec<String> = (0..types.len()).map(given).collect();
        return format!("({}) > ({})", columns.join(", "), values.join(", "));
    }
    // Operators of other schemas must be qualified one by one.
    let compare = |n: usize, operator: &str| {
        format!("{} OPERATOR({}.{operator}) {}", column(n), types[n].operators, given(n))
    };
    let last = types.len() - 1;
    let rest = (0..last).rev().fold(compare(last, ">"), |rest, n| {
        format!("({} OR ({} AND ({rest})))", compare(n, ">"), compare(n, "="))
    });
    format!("{} AND {rest}", compare(0, ">="))
}
