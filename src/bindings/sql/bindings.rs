//! kb.bindings: which knowledge bases a scope asks, and how.

use crate::pg::row::from_row;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, FromRow};
use crate::sql::BY_LOOKUPS;
use crate::tenants::bindings;
use kb_search::bindings::{Binding, Scope};
use kb_types::Json;
use kb_types::error::Result;

from_row! {
    struct Stored {
        scope: String,
        id_ref: String,
        top_k: Option<i32>,
        min_score: Option<f64>,
        max_tokens: Option<i32>,
        fallback: Option<String>,
        inject_as: Option<String>,
        filter: Option<Json>,
    }
}

/// The bindings of scopes, each with its scope, in the order of the scopes. Within a scope, those of all
/// tenants come before the caller's own, and each in the order in which they were made.
pub fn of_scopes(scopes: &[Scope]) -> Result<Vec<(String, Binding)>> {
    let scopes: Vec<String> = scopes.iter().map(Scope::to_string).collect();
    let sql = format!(
        "SELECT {} FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY AS u (scope, place)
         JOIN kb.bindings b ON b.tenant_id = ANY ($2) AND b.scope = u.scope
         ORDER BY u.place, b.tenant_id = $3, b.binding_no",
        Stored::columns("b")
    );
    let (visible, current) = (bindings::visible()?, bindings::current()?);
    let arguments = [Arg::Texts(&scopes), Arg::Texts(&visible), Arg::Text(&current)];
    let stored = setting::with(BY_LOOKUPS, || spi::read(&sql, &arguments, Stored::from_row))?;
    Ok(stored.into_iter().map(Stored::with_scope).collect())
}

impl Stored {
    fn with_scope(self) -> (String, Binding) {
        let Stored { scope, id_ref, top_k, min_score, max_tokens, fallback, inject_as, filter } = self;
        (scope, Binding { id_ref, top_k, min_score, max_tokens, fallback, inject_as, filter })
    }
}

/// How many bindings a tenant has, counted up to `most`. Must run as the owner.
pub fn count(tenant_id: &str, most: i64) -> Result<i64> {
    spi::write_value(
        "SELECT pg_catalog.count(*) AS count
         FROM (SELECT FROM kb.bindings b WHERE b.tenant_id = $1 LIMIT $2) AS counted",
        &[Arg::Text(tenant_id), Arg::Long(most)],
    )
}

/// Adds a binding. Returns false if its scope already has one of this name. Must run as the owner.
pub fn insert(tenant_id: &str, scope: &Scope, binding: &Binding) -> Result<bool> {
    let inserted = spi::execute(
        "INSERT INTO kb.bindings (tenant_id, scope, id_ref, top_k, min_score, max_tokens, fallback, inject_as, filter)
         VALUES ($1, $2, $3, $4::integer, $5, $6::integer, $7, $8, $9)
         ON CONFLICT (tenant_id, scope, id_ref) DO NOTHING",
        &arguments(tenant_id, &scope.to_string(), binding),
    )?;
    Ok(inserted > 0)
}

/// Replaces what a binding specifies, at its place. Returns false if there is none of this name. Must run as
/// the owner.
pub fn update(tenant_id: &str, scope: &Scope, binding: &Binding) -> Result<bool> {
    let updated = spi::execute(
        "UPDATE kb.bindings SET top_k = $4::integer, min_score = $5, max_tokens = $6::integer, fallback = $7,
             inject_as = $8, filter = $9
         WHERE tenant_id = $1 AND scope = $2 AND id_ref = $3",
        &arguments(tenant_id, &scope.to_string(), binding),
    )?;
    Ok(updated > 0)
}

fn arguments<'a>(tenant_id: &'a str, scope: &'a str, binding: &'a Binding) -> [Arg<'a>; 9] {
    [
        Arg::Text(tenant_id),
        Arg::Text(scope),
        Arg::Text(&binding.id_ref),
        Arg::LongOrNull(binding.top_k.map(i64::from)),
        Arg::DoubleOrNull(binding.min_score),
        Arg::LongOrNull(binding.max_tokens.map(i64::from)),
        Arg::TextOrNull(binding.fallback.as_deref()),
        Arg::TextOrNull(binding.inject_as.as_deref()),
        Arg::JsonText(binding.filter.as_ref()),
    ]
}

/// Deletes a binding. Returns false if there is none of this name. Must run as the owner.
pub fn delete(tenant_id: &str, scope: &Scope, id_ref: &str) -> Result<bool> {
    let deleted = spi::execute(
        "DELETE FROM kb.bindings WHERE tenant_id = $1 AND scope = $2 AND id_ref = $3",
        &[Arg::Text(tenant_id), Arg::Text(&scope.to_string()), Arg::Text(id_ref)],
    )?;
    Ok(deleted > 0)
}
