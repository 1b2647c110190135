//! A filter as a condition on kb.documents, which the statement calls d.

use super::arguments::Arguments;
use crate::model::{Filter, Json};
use std::collections::HashSet;

/// The condition, its values among the arguments. Its text depends on the filter's shape only.
pub fn condition(filter: &Filter, arguments: &mut Arguments) -> String {
    let parts = match filter {
        Filter::All(parts) => parts.as_slice(),
        Filter::Equals { .. } => std::slice::from_ref(filter),
    };
    let (mut members, mut conditions) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            Filter::Equals { key, value } => members.push((key.as_str(), value)),
            Filter::All(_) => conditions.push(condition(part, arguments)),
        }
    }
    // One look into the index serves all keys. An object has each key once: a second value of a key goes into the next.
    while !members.is_empty() {
        let mut keys = HashSet::new();
        let (object, again): (Vec<_>, Vec<_>) = members.into_iter().partition(|(key, _)| keys.insert(*key));
        conditions.push(has(&object, arguments));
        members = again;
    }
    if conditions.is_empty() { "true".into() } else { conditions.join(" AND ") }
}

/// Exact match of all these keys. For plain values containment, which the index serves, is enough; of arrays and
/// objects it also accepts supersets, so those are compared as well.
fn has(members: &[(&str, &Json)], arguments: &mut Arguments) -> String {
    let object = arguments.add_json(Json::object(members));
    let contains = format!("d.metadata @> {object}");
    if members.iter().all(|(_, value)| value.is_scalar()) {
        return contains;
    }
    format!(
        "{contains} AND NOT EXISTS (SELECT FROM pg_catalog.jsonb_each({object}) f
             WHERE d.metadata -> f.key IS DISTINCT FROM f.value)"
    )
}
