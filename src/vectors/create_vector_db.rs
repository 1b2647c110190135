//! kb.create_vector_db and kb.drop_vector_db.

use crate::pg::role::as_owner;
use crate::vectors::sql::VectorDb;
use crate::vectors::sql::vector_dbs;
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::vector_db::Element;
use kb_types::{Metric, VectorDbConfig, VectorDbType, id};
use serde_json::Value;

/// Checks the arguments and reports all problems at once.
fn check(id: &str, kind: &str, dimension: i32, metric: &str, config: &Value) -> Result<VectorDb> {
    let mut problems = Vec::new();
    problems.extend(id::problem(id, id::MAX_BYTES).map(|problem| format!("id: {problem}")));
    let kind = VectorDbType::parse(kind).map_err(|p| problems.push(p)).ok();
    let metric = Metric::parse(metric).map_err(|p| problems.push(p)).ok();
    let by_dimension = usize::try_from(dimension)
        .map_err(|_| format!("dimension {dimension} is below 1"))
        .and_then(Element::for_dimension)
        .map_err(|p| problems.push(p))
        .ok();
    let config = VectorDbConfig::parse(config).map_err(|p| problems.extend(p)).ok();
    if let Some(config) = &config {
        if config.element == Some(Element::Vector) && by_dimension == Some(Element::Halfvec) {
            problems.push(format!(
                "config.element: vector cannot be indexed at dimension {dimension}; use halfvec"
            ));
        }
        if let Some(table) = &config.table
            && table.strip_prefix("vectors_").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
        {
            problems.push(format!("config.table: \"{table}\" is reserved for tables that kb creates itself"));
        }
    }
    let (Some(kind), Some(metric), Some(by_dimension), Some(config), true) =
        (kind, metric, by_dimension, config, problems.is_empty())
    else {
        return Err(Error::configuration(format!("vector database \"{id}\""), problems));
    };
    let element = config.element.unwrap_or(by_dimension);
    Ok(VectorDb::shared(id, dimension as usize, kind, metric, element, config))
}

/// Creates a vector table that several knowledge bases can share.
pub fn create_vector_db(id: &str, kind: &str, dimension: i32, metric: &str, config: &Value) -> Result<()> {
    let vector_db = check(id, kind, dimension, metric, config)?;
    as_owner(|| {
        if vector_dbs::find(id)?.is_none() {
            vector_db.check_free()?;
        }
        if !vector_dbs::insert(id, &vector_db)? {
            return Err(Error::AlreadyExists { what: ObjectKind::VectorDb, id: id.into() });
        }
        vector_db.store().create()
    })
}

/// Drops a vector database. Refused while a knowledge base uses it.
pub fn drop_vector_db(id: &str) -> Result<()> {
    let vector_db =
        vector_dbs::find(id)?.ok_or_else(|| Error::NotFound { what: ObjectKind::VectorDb, id: id.into() })?;
    as_owner(|| {
        if vector_dbs::uses(id, &vector_db)? > 0 {
            return Err(Error::InUse {
                what: ObjectKind::VectorDb,
                id: id.into(),
                by: "knowledge bases".into(),
            });
        }
        vector_dbs::delete(id)?;
        vector_db.store().remove()
    })
}
