//! A filter as a condition on kb.documents, which the statement calls d.
//!
//! **Invariant:** no condition raises an error, whatever a document contains. It is evaluated as the owner,
//! on documents of all tenants, so an error would reveal another tenant's document.
//!
//! A timestamp is compared by time, also by `eq` and `in`. In a debug build the setting `kb.forced_scan`
//! forces the way in which a filter is evaluated, for tests.

use super::metadata_indexes::{MetadataIndex, key_expression, shortened_number, shortened_text};
use crate::pg::spi::Arg;
use crate::pg::statement_arguments::Arguments;
use kb_types::Json;
use kb_types::filter::{Bound, Comparison, Field, Filter, IndexType, Key, Test};
use kb_types::memory::MemoryCondition;
use std::collections::{HashMap, HashSet};

/// Up to this many values are looked up in the index one by one. If there are more, the value of each
/// document is looked up among them.
const LOOKED_UP: usize = 32;

/// The condition, whose values are added to the arguments. Its text depends only on the shape of the filter.
/// NULL counts as false.
pub fn condition<'a>(filter: &'a Filter, arguments: &mut Arguments<'a>) -> String {
    indexed_condition(filter, &[], arguments)
}

/// Does what [`condition`] does, for a statement that looks up rows in these indexes on keys of metadata. The
/// indexes serve a plan that is made for the values of the arguments (`spi::read_much`), because their
/// definitions name the key.
pub fn indexed_condition<'a>(
    filter: &'a Filter,
    indexes: &[MetadataIndex],
    arguments: &mut Arguments<'a>,
) -> String {
    match filter {
        Filter::All(parts) => all(parts, indexes, arguments),
        Filter::Is(Key::Metadata(_), Test::Equals(_)) => {
            all(std::slice::from_ref(filter), indexes, arguments)
        }
        Filter::Any(parts) if parts.is_empty() => "false".into(),
        Filter::Any(parts) => {
            let parts: Vec<String> =
                parts.iter().map(|part| indexed_condition(part, indexes, arguments)).collect();
            format!("({})", parts.join(" OR "))
        }
        Filter::Not(part) => format!("(({}) IS NOT TRUE)", indexed_condition(part, indexes, arguments)),
        Filter::Is(Key::Metadata(key), test) => of_metadata(key, test, indexes, arguments),
        Filter::Is(Key::Field(field), test) => of_field(*field, test, arguments),
        Filter::Remembered(condition) => of_memory(condition, arguments),
    }
}

fn all<'a>(parts: &'a [Filter], indexes: &[MetadataIndex], arguments: &mut Arguments<'a>) -> String {
    let (mut members, mut conditions, mut flat) = (Vec::new(), Vec::new(), Vec::new());
    flatten(parts, &mut flat);
    for part in flat {
        match part {
            Filter::Is(Key::Metadata(key), Test::Equals(value)) => members.push((key.as_str(), value)),
            part => conditions.push(indexed_condition(part, indexes, arguments)),
        }
    }
    // One look-up in the index serves all keys. An object has each key once, so a second value of a key goes
    // into the next object.
    let mut objects: Vec<Vec<(&str, &Json)>> = Vec::new();
    let mut seen: HashMap<&str, HashSet<&str>> = HashMap::new();
    for (key, value) in members {
        let values = seen.entry(key).or_default();
        let place = values.len();
        // A repeated value counts once.
        if values.insert(value.as_str()) {
            if place == objects.len() {
                objects.push(Vec::new());
            }
            objects[place].push((key, value));
        }
    }
    conditions.extend(objects.iter().map(|object| has(object, arguments)));
    if conditions.is_empty() { "true".into() } else { format!("({})", conditions.join(" AND ")) }
}

/// All conditions of nested conjunctions, in one list.
fn flatten<'a>(parts: &'a [Filter], into: &mut Vec<&'a Filter>) {
    for part in parts {
        match part {
            Filter::All(parts) => flatten(parts, into),
            part => into.push(part),
        }
    }
}

/// An exact match of all these keys. For plain values containment, which the index serves, is enough. For
/// arrays and objects containment also accepts supersets, so these are compared as well.
fn has<'a>(members: &[(&'a str, &Json)], arguments: &mut Arguments<'a>) -> String {
    let mut conditions = vec![format!("d.metadata @> {}", arguments.add_json(Json::object(members)))];
    for (key, value) in members.iter().filter(|(_, value)| !value.is_scalar()) {
        let (key, value) = (arguments.add(Arg::Text(key)), arguments.add_json((*value).clone()));
        conditions.push(format!("d.metadata -> {key} = {value}"));
    }
    conditions.join(" AND ")
}

fn of_metadata<'a>(
    key: &'a str,
    test: &'a Test,
    indexes: &[MetadataIndex],
    arguments: &mut Arguments<'a>,
) -> String {
    match test {
        Test::Equals(value) => format!("({})", has(&[(key, value)], arguments)),
        Test::OneOf(values) if values.is_empty() => "false".into(),
        Test::OneOf(values) if values.len() <= LOOKED_UP && values.iter().all(Json::is_scalar) => {
            let each: Vec<String> = values.iter().map(|value| has(&[(key, value)], arguments)).collect();
            format!("({})", each.join(" OR "))
        }
        Test::OneOf(values) => {
            let (key, values) = (arguments.add(Arg::Text(key)), arguments.add_json(Json::array(values)));
            format!("((d.metadata -> {key} IN (SELECT pg_catalog.jsonb_array_elements({values}))) IS TRUE)")
        }
        Test::Contains(values) => {
            let array = Json::array(values);
            format!("(d.metadata @> {})", arguments.add_json(Json::object(&[(key, &array)])))
        }
        Test::Exists => format!("(d.metadata ? {})", arguments.add(Arg::Text(key))),
        Test::Compares(comparison, bound) => {
            let has_index = indexes.iter().any(|index| index.serves(key, IndexType::of(bound)));
            let (key, operator) = (arguments.add(Arg::Text(key)), operator(*comparison));
            let typed = |kind: &str, value: &str| {
                format!("CASE WHEN pg_catalog.jsonb_typeof(d.metadata -> {key}) = '{kind}' THEN {value} END")
            };
            // The values in an index are shortened, so it finds a few rows too many, and the value itself
            // decides.
            let looked_up = |value: &str| match has_index {
                true => format!(
                    "{} {} {value} AND ",
                    key_expression(IndexType::of(bound), "d.metadata", &key),
                    operator_or_equal(*comparison)
                ),
                false => String::new(),
            };
            match bound {
                Bound::Number(number) => {
                    let value = typed("number", &format!("(d.metadata -> {key})::numeric"));
                    let number = format!("({})::numeric", arguments.add_json(number.clone()));
                    format!("({}{value} {operator} {number})", looked_up(&shortened_number(&number)))
                }
                Bound::Text(text) => {
                    let value = typed("string", &format!("d.metadata ->> {key}"));
                    let text = arguments.add(Arg::Text(text));
                    format!(
                        "({}({value}) COLLATE \"C\" {operator} {text})",
                        looked_up(&shortened_text(&text))
                    )
                }
                Bound::Time(time) => {
                    let value = key_expression(IndexType::Timestamp, "d.metadata", &key);
                    format!("({value} {operator} {})", arguments.add(Arg::Long(*time)))
                }
            }
        }
        Test::At(times) => {
            let value = key_expression(IndexType::Timestamp, "d.metadata", &arguments.add(Arg::Text(key)));
            format!("({value} = ANY ({}))", arguments.add(Arg::Longs(times)))
        }
    }
}

/// The condition of a filter on entries of a subject, or with tags, and the rest of the filter. None: there
/// is no such condition that every document has to pass.
pub fn by_entries(filter: &Filter) -> Option<(&MemoryCondition, Filter)> {
    let is_narrow = |condition: &MemoryCondition| condition.subject.is_some() || !condition.tags.is_empty();
    let parts = match filter {
        Filter::All(parts) => parts.as_slice(),
        part => std::slice::from_ref(part),
    };
    let narrow = |part: &Filter| matches!(part, Filter::Remembered(condition) if is_narrow(condition));
    let place = parts.iter().position(narrow)?;
    let Filter::Remembered(condition) = parts.get(place)? else { return None };
    let rest = parts.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, part)| part.clone());
    Some((condition, Filter::All(rest.collect())))
}

/// The condition of a filter that is nothing but a condition on entries of a subject, or with tags.
pub fn only_entries(filter: &Filter) -> Option<&MemoryCondition> {
    match by_entries(filter)? {
        (condition, Filter::All(rest)) if rest.is_empty() => Some(condition),
        _ => None,
    }
}

/// The documents of these entries, as an item of FROM that is called d. Each is looked up by its key: with
/// poor statistics, the planner would go through all documents of a memory for those of one subject.
pub fn documents_of_entries<'a>(condition: &'a MemoryCondition, arguments: &mut Arguments<'a>) -> String {
    format!(
        "pg_catalog.unnest({}) AS l (document_id)
         CROSS JOIN LATERAL (SELECT d.* FROM kb.documents d WHERE d.document_id = l.document_id LIMIT 1) d",
        entries(condition, arguments)
    )
}

/// The ids of these entries of some tenants, as a subquery. No document is looked up, because an entry has
/// the knowledge base and the tenant of its document.
pub fn ids_of_entries<'a>(
    condition: &'a MemoryCondition,
    tenants: &'a [String],
    arguments: &mut Arguments<'a>,
) -> String {
    let entries = entries_where(condition, Some(tenants), arguments);
    format!("SELECT l.document_id FROM pg_catalog.unnest({entries}) AS l (document_id)")
}

/// Entries of a subject, or with tags, are found by an index on kb.memory_entries, whatever the statistics
/// say; otherwise the entry of each document is looked up.
fn of_memory<'a>(condition: &'a MemoryCondition, arguments: &mut Arguments<'a>) -> String {
    if condition.subject.is_some() || !condition.tags.is_empty() {
        return format!("d.document_id = ANY ({})", entries(condition, arguments));
    }
    let conditions = of_entry(condition, arguments);
    format!("EXISTS (SELECT FROM kb.memory_entries m WHERE m.document_id = d.document_id{conditions})")
}

/// The document_ids of the entries of which this holds, as an array.
fn entries<'a>(condition: &'a MemoryCondition, arguments: &mut Arguments<'a>) -> String {
    entries_where(condition, None, arguments)
}

fn entries_where<'a>(
    condition: &'a MemoryCondition,
    tenants: Option<&'a [String]>,
    arguments: &mut Arguments<'a>,
) -> String {
    let mut conditions = of_entry(condition, arguments);
    if let Some(tenants) = tenants {
        conditions += &format!(" AND m.tenant_id = ANY ({})", arguments.add(Arg::Texts(tenants)));
    }
    let kb_no = arguments.add(Arg::Long(condition.kb_no));
    format!("ARRAY(SELECT m.document_id FROM kb.memory_entries m WHERE m.kb_no = {kb_no}{conditions})")
}

/// What has to hold for an entry m, besides its memory. One that was merged into another counts on its own
/// where that is not recalled: before it was made, after it has ended, and while it has no vector.
pub fn of_entry<'a>(condition: &'a MemoryCondition, arguments: &mut Arguments<'a>) -> String {
    let MemoryCondition { subject, tags, valid_at, accessed_after, .. } = condition;
    let mut time = |at: i64| {
        format!("('epoch'::timestamptz + {} * '1 microsecond'::interval)", arguments.add(Arg::Long(at)))
    };
    let mut conditions = String::new();
    if let Some(at) = valid_at.map(&mut time) {
        conditions += &format!(
            " AND m.valid_from <= {at} AND (m.valid_to IS NULL OR m.valid_to > {at})
              AND (m.expires_at IS NULL OR m.expires_at > {at})
              AND (m.consolidated_into IS NULL OR NOT EXISTS (
                  SELECT FROM kb.memory_entries r JOIN kb.documents o ON o.document_id = r.document_id
                  WHERE r.document_id = m.consolidated_into AND o.status = 'ready' AND r.valid_from <= {at}
                    AND (r.valid_to IS NULL OR r.valid_to > {at}) AND (r.expires_at IS NULL OR r.expires_at > {at})))"
        );
    }
    if let Some(after) = accessed_after.map(&mut time) {
        conditions += &format!(" AND coalesce(m.last_accessed_at, m.created_at) > {after}");
    }
    if !tags.is_empty() {
        conditions += &format!(" AND m.tags @> {}", arguments.add(Arg::Texts(tags)));
    }
    if let Some(subject) = subject {
        conditions += &format!(" AND m.subject = {}", arguments.add(Arg::Text(subject)));
    }
    conditions
}

fn of_field<'a>(field: Field, test: &'a Test, arguments: &mut Arguments<'a>) -> String {
    const TIME: &str = "'epoch'::timestamptz + u * '1 microsecond'::interval";
    let column = match field {
        Field::ExternalId => "d.external_id",
        Field::Uri => "d.uri",
        Field::Title => "d.title",
        Field::ContentType => "d.content_type",
        Field::CreatedAt => "d.created_at",
    };
    let one_of = |values: &[Json], arguments: &mut Arguments<'a>| {
        let is_null = match values.iter().any(|value| value.as_str() == "null") {
            true => format!("{column} IS NULL OR "),
            false => String::new(),
        };
        let values = arguments.add_json(Json::array(values));
        format!("({is_null}{column} = ANY (ARRAY(SELECT pg_catalog.jsonb_array_elements_text({values}))))")
    };
    match test {
        Test::Equals(value) => one_of(std::slice::from_ref(value), arguments),
        Test::OneOf(values) => one_of(values, arguments),
        Test::At(times) => {
            let times = arguments.add(Arg::Longs(times));
            format!("({column} = ANY (ARRAY(SELECT {TIME} FROM pg_catalog.unnest({times}) u)))")
        }
        Test::Compares(comparison, Bound::Time(time)) => {
            let time = arguments.add(Arg::Long(*time));
            format!(
                "({column} {} 'epoch'::timestamptz + {time} * '1 microsecond'::interval)",
                operator(*comparison)
            )
        }
        Test::Compares(comparison, Bound::Text(text)) => {
            let text = arguments.add(Arg::Text(text));
            format!("({column} COLLATE \"C\" {} {text})", operator(*comparison))
        }
        Test::Exists => format!("({column} IS NOT NULL)"),
        // Only keys of metadata can be compared in this way.
        Test::Compares(_, Bound::Number(_)) | Test::Contains(_) => "false".into(),
    }
}

fn operator(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
    }
}

fn operator_or_equal(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Greater | Comparison::GreaterOrEqual => ">=",
        Comparison::Less | Comparison::LessOrEqual => "<=",
    }
}

/// Whether the planner's statistics tell it how much a filter keeps. For other conditions it guesses.
pub fn is_estimated(filter: &Filter, indexes: &[MetadataIndex]) -> bool {
    match filter {
        Filter::All(parts) | Filter::Any(parts) => parts.iter().all(|part| is_estimated(part, indexes)),
        Filter::Not(part) => is_estimated(part, indexes),
        Filter::Is(Key::Metadata(key), test) => match test {
            Test::Equals(value) => value.is_scalar(),
            Test::OneOf(values) => values.len() <= LOOKED_UP && values.iter().all(Json::is_scalar),
            Test::Compares(_, bound) => indexes.iter().any(|index| index.serves(key, IndexType::of(bound))),
            Test::At(_) => indexes.iter().any(|index| index.serves(key, IndexType::Timestamp)),
            Test::Contains(_) | Test::Exists => true,
        },
        Filter::Is(Key::Field(_), _) | Filter::Remembered(_) => false,
    }
}
