//! The rows of an attached table, read as the role that owns it.

use super::table::{KeyType, key_types};
use super::{PRINTED, Source, literal};
use crate::error::{Error, Result};
use crate::model::Json;
use crate::pg::json::Jsonb;
use crate::pg::role::as_role_of_name;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, quote};
use std::collections::HashSet;

/// A row, as far as it is a document.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceRow {
    /// Its place among the keys that were asked for.
    pub place: usize,
    /// As its column says; None: NULL, or there is no such column.
    pub tenant: Option<String>,
    pub title: Option<String>,
    pub uri: Option<String>,
    pub content_type: Option<String>,
    pub metadata: Json,
    /// Bytes of all values together.
    pub size: usize,
    /// The values of the columns of `RowContent::columns`, in their order; None where they are larger than was asked for.
    pub values: Option<Vec<Option<String>>>,
}

/// The published rows with these keys that the role may see; without their text where it has more than `most` bytes.
pub fn read(source: &Source, keys: &[Vec<String>], most: usize) -> Result<Vec<SourceRow>> {
    let config = &source.config;
    let text = |column: &str| format!("t.{}::text", quote(column));
    let optional = |column: &Option<String>| column.as_deref().map_or("NULL::text".to_string(), text);
    let values: Vec<String> = config.content.columns().into_iter().map(text).collect();
    let metadata: Vec<String> = config
        .metadata
        .iter()
        .map(|column| format!("pg_catalog.jsonb_build_object({}, t.{})", literal(column), quote(column)))
        .collect();
    let metadata = if metadata.is_empty() { "'{}'::jsonb".to_string() } else { metadata.join(" || ") };
    let sizes: Vec<String> =
        values.iter().map(|value| format!("coalesce(pg_catalog.octet_length({value}), 0)::bigint")).collect();
    let (size, values) = (sizes.join(" + "), values.join(", "));
    let columns = format!(
        "u.kb_place, {}, {}, {}, {}, {metadata}, {size}, CASE WHEN {size} <= {most} THEN ARRAY[{values}]::text[] END",
        tenant(source),
        optional(&config.title),
        optional(&config.uri),
        optional(&config.content_type),
    );
    select(source, keys, &columns, |row| {
        Ok(SourceRow {
            place: row.get::<i64>(0)? as usize - 1,
            tenant: row.opt(1)?,
            title: row.opt(2)?,
            uri: row.opt(3)?,
            content_type: row.opt(4)?,
            metadata: row.get::<Jsonb>(5)?.0,
            size: row.get::<i64>(6)? as usize,
            values: row.opt(7)?,
        })
    })
}

/// Which of these rows are there, published and visible to the role: their places and tenants.
pub fn existing(source: &Source, keys: &[Vec<String>]) -> Result<HashSet<(usize, Option<String>)>> {
    let columns = format!("u.kb_place, {}", tenant(source));
    let found = select(source, keys, &columns, |row| Ok((row.get::<i64>(0)? as usize - 1, row.opt(1)?)))?;
    Ok(found.into_iter().collect())
}

/// The next published rows in the order of their keys, after this one (empty: from the first): tenants and keys.
pub fn after(source: &Source, key: &[String], limit: usize) -> Result<Vec<(Option<String>, Vec<String>)>> {
    let types = key_types(source.relation, &source.key)?;
    let columns: Vec<String> = types.iter().map(|typ| format!("t.{}", quote(&typ.column))).collect();
    let printed: Vec<String> = columns.iter().map(|column| format!("pg_catalog.concat({column})")).collect();
    let follows = if key.is_empty() { "true".to_string() } else { follows(&types) };
    let sql = format!(
        "SELECT {}, ARRAY[{}]::text[] FROM {} AS t WHERE {follows} AND {} ORDER BY {} LIMIT {limit}",
        tenant(source),
        printed.join(", "),
        source.relation_name,
        published(source),
        columns.join(", ")
    );
    let key: Vec<Arg> = key.iter().map(|part| Arg::Text(part)).collect();
    as_table_owner(source, || spi::write(&sql, &key, |row| Ok((row.opt(0)?, row.get(1)?))))
}

/// Reads nothing, but fails as reading rows would: for want of a column or of a right.
pub fn check(source: &Source) -> Result<()> {
    read(source, &[], 0).map(|_| ())
}

/// Runs `work` as the role that owns the table, with values printed the same everywhere.
fn as_table_owner<T>(source: &Source, work: impl FnOnce() -> Result<T>) -> Result<T> {
    as_role_of_name(&source.role_name, || setting::with(PRINTED, work))
}

/// Rows that the caller may see, as they are: their places among these keys, their keys and themselves as JSON objects. Under
/// the caller's snapshot. They are made JSON as the role that owns the table, since that calls what its owner wrote; what the
/// caller may see is asked as the caller.
pub fn of_caller(source: &Source, keys: &[Vec<String>]) -> Result<Vec<(usize, Json, Json)>> {
    let types = key_types(source.relation, &source.key)?;
    let object =
        |column: &String| format!("pg_catalog.jsonb_build_object({}, t.{})", literal(column), quote(column));
    let key: Vec<String> = source.key.iter().map(object).collect();
    let columns = format!("u.kb_place, {}, pg_catalog.to_jsonb(t), t.ctid::text", key.join(" || "));
    let parts = parts(keys, types.len());
    let arguments: Vec<Arg> = parts.iter().map(|part| Arg::Texts(part)).collect();
    let sql = statement(source, &types, &columns, "true");
    let mut found = as_role_of_name(&source.role_name, || {
        spi::read(&sql, &arguments, |row| {
            let json = |column| Ok::<_, Error>(row.get::<Jsonb>(column)?.0);
            Ok((row.get::<i64>(0)? as usize - 1, json(1)?, json(2)?, row.get::<String>(3)?))
        })
    })?;
    let places: Vec<String> = found.iter().map(|(_, _, _, place)| place.clone()).collect();
    // Naming the whole row takes the right to read every column.
    let visible: HashSet<String> = spi::read(
        &format!(
            "SELECT t.ctid::text FROM {} AS t WHERE t.ctid = ANY ($1::tid[]) AND (t IS NULL) IS NOT NULL",
            source.relation_name
        ),
        &[Arg::Texts(&places)],
        |row| row.get(0),
    )?
    .into_iter()
    .collect();
    found.retain(|(_, _, _, place)| visible.contains(place));
    Ok(found.into_iter().map(|(n, key, row, _)| (n, key, row)).collect())
}

fn select<T>(
    source: &Source,
    keys: &[Vec<String>],
    columns: &str,
    each: impl FnMut(&spi::Row) -> Result<T>,
) -> Result<Vec<T>> {
    let types = key_types(source.relation, &source.key)?;
    let parts = parts(keys, types.len());
    let arguments: Vec<Arg> = parts.iter().map(|part| Arg::Texts(part)).collect();
    let sql = statement(source, &types, columns, &published(source));
    as_table_owner(source, || spi::write(&sql, &arguments, each))
}

/// Keys as one array for each of their parts.
fn parts(keys: &[Vec<String>], count: usize) -> Vec<Vec<String>> {
    let part = |n: usize| keys.iter().map(|key| key.get(n).cloned().unwrap_or_default()).collect();
    (0..count).map(part).collect()
}

/// A SELECT of rows `t` by their keys `u`, whose parts are the statement's arguments.
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
    source.config.published_when.as_ref().map_or("true".to_string(), |condition| format!("({condition})"))
}

fn tenant(source: &Source) -> String {
    let column = source.config.tenant.as_deref();
    column.map_or("NULL::text".to_string(), |column| format!("pg_catalog.concat(t.{})", quote(column)))
}

/// The condition that a row's key comes after the given one.
fn follows(types: &[KeyType]) -> String {
    let given = |n: usize| format!("${}::text::{}", n + 1, types[n].name);
    let column = |n: usize| format!("t.{}", quote(&types[n].column));
    if types.iter().all(|typ| typ.operators == "pg_catalog") {
        let columns: Vec<String> = (0..types.len()).map(column).collect();
        let values: Vec<String> = (0..types.len()).map(given).collect();
        return format!("({}) > ({})", columns.join(", "), values.join(", "));
    }
    // Operators of other schemas must be named one by one.
    let compare = |n: usize, operator: &str| {
        format!("{} OPERATOR({}.{operator}) {}", column(n), types[n].operators, given(n))
    };
    let last = types.len() - 1;
    let rest = (0..last).rev().fold(compare(last, ">"), |rest, n| {
        format!("({} OR ({} AND ({rest})))", compare(n, ">"), compare(n, "="))
    });
    format!("{} AND {rest}", compare(0, ">="))
}
