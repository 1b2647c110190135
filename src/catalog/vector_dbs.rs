//! Creating and dropping shared vector tables.

use crate::error::{Error, Result};
use crate::model::vector_db::Element;
use crate::model::{Metric, VectorDbConfig, VectorDbType};
use crate::pg::role::as_owner;
use crate::store::vector_dbs::{self, VectorTable};
use crate::store::vectors;
use serde_json::Value;

/// A vector table from what was asked for; all problems at once.
fn validate(id: &str, kind: &str, dimension: i32, metric: &str, config: &Value) -> Result<VectorTable> {
    let mut problems = Vec::new();
    if id.trim().is_empty() {
        problems.push("id: must not be empty".to_string());
    }
    if id.len() > super::MAX_ID_BYTES {
        problems.push(format!("id: it has {} bytes, at most {} are taken", id.len(), super::MAX_ID_BYTES));
    }
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
            problems.push(format!("config.table: \"{table}\" is a name that kb gives by itself"));
        }
    }
    let (Some(kind), Some(metric), Some(by_dimension), Some(config), true) =
        (kind, metric, by_dimension, config, problems.is_empty())
    else {
        return Err(Error::Configuration { object: format!("vector database \"{id}\""), problems });
    };
    Ok(VectorTable {
        table_name: config.table.clone().unwrap_or_else(|| table_name(id)),
        dimension: dimension as usize,
        kind,
        metric,
        element: config.element.unwrap_or(by_dimension),
        config,
    })
}

/// Letters and digits of the id, and enough of a hash that two ids never make one name.
fn table_name(id: &str) -> String {
    let plain: String =
        id.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(30).collect();
    let hash = blake3::hash(id.as_bytes()).to_hex();
    format!("vectors_{plain}_{}", &hash[..6])
}

pub fn create(id: &str, kind: &str, dimension: i32, metric: &str, config: &Value) -> Result<()> {
    let table = validate(id, kind, dimension, metric, config)?;
    as_owner(|| {
        if vector_dbs::find(id)?.is_none() && vectors::table_exists(&table.table_name)? {
            return Err(Error::AlreadyExists { what: "table", id: format!("kb.{}", table.table_name) });
        }
        if !vector_dbs::insert(id, &table)? {
            return Err(Error::AlreadyExists { what: "vector database", id: id.into() });
        }
        vectors::create_table(&table)
    })
}

pub fn drop(id: &str) -> Result<()> {
    let table =
        vector_dbs::find(id)?.ok_or_else(|| Error::NotFound { what: "vector database", id: id.into() })?;
    as_owner(|| {
        if vector_dbs::uses(id, &table.table_name)? > 0 {
            return Err(Error::InUse {
                what: "vector database",
                id: id.into(),
                by: "knowledge bases".into(),
            });
        }
        vector_dbs::delete(id)?;
        vectors::drop_table(&table.table_name)
    })
}
