//! kb.vector_dbs.

use crate::error::{Error, Result};
use crate::model::vector_db::Element;
use crate::model::{Metric, VectorDbConfig, VectorDbType};
use crate::pg::spi::{self, Arg};
use serde_json::{Value, json};

/// A place for vectors: everything the worker and a query must know of a vector table.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorTable {
    pub table_name: String,
    pub dimension: usize,
    pub kind: VectorDbType,
    pub metric: Metric,
    pub element: Element,
    pub config: VectorDbConfig,
}

impl VectorTable {
    /// From stored columns; a bad one is an internal error, for they were checked on the way in.
    pub fn from_parts(
        table_name: String,
        dimension: i32,
        kind: &str,
        metric: &str,
        config: &Value,
    ) -> Result<Self> {
        let internal = |problem: String| Error::Internal(format!("vector table {table_name}: {problem}"));
        let config = VectorDbConfig::parse(config).map_err(|p| internal(p.join("; ")))?;
        let element = match config.element {
            Some(element) => element,
            None => Element::for_dimension(dimension as usize).map_err(internal)?,
        };
        Ok(VectorTable {
            dimension: dimension as usize,
            kind: VectorDbType::parse(kind).map_err(internal)?,
            metric: Metric::parse(metric).map_err(internal)?,
            element,
            config,
            table_name,
        })
    }

    /// The configuration as it is stored, every default written out.
    pub fn config_json(&self) -> Value {
        json!({
            "table": self.config.table,
            "m": self.config.m,
            "ef_construction": self.config.ef_construction,
            "min_rows": self.config.min_rows,
            "element": self.element.name(),
        })
    }
}

pub fn find(id: &str) -> Result<Option<VectorTable>> {
    spi::write_one(
        "SELECT table_name, dimension, type, metric, config FROM kb.vector_dbs WHERE id = $1",
        &[Arg::Text(id)],
        |row| {
            let (kind, metric): (String, String) = (row.get(2)?, row.get(3)?);
            VectorTable::from_parts(row.get(0)?, row.get(1)?, &kind, &metric, &row.json(4)?)
        },
    )
}

/// False when the id is taken.
pub fn insert(id: &str, table: &VectorTable) -> Result<bool> {
    let inserted = spi::execute(
        "INSERT INTO kb.vector_dbs (id, type, dimension, metric, config, table_name)
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO NOTHING",
        &[
            Arg::Text(id),
            Arg::Text(table.kind.name()),
            Arg::Int(table.dimension as i32),
            Arg::Text(table.metric.name()),
            Arg::Json(&table.config_json()),
            Arg::Text(&table.table_name),
        ],
    )?;
    Ok(inserted == 1)
}

pub fn delete(id: &str) -> Result<()> {
    spi::execute("DELETE FROM kb.vector_dbs WHERE id = $1", &[Arg::Text(id)])?;
    Ok(())
}

/// How many knowledge bases or builds of any tenant use it. As the owner.
pub fn uses(id: &str, table_name: &str) -> Result<i64> {
    let count = spi::write_one(
        "SELECT (SELECT count(*) FROM kb.knowledge_bases WHERE vector_db = $1)
              + (SELECT count(*) FROM kb.builds WHERE table_name = $2)",
        &[Arg::Text(id), Arg::Text(table_name)],
        |row| row.get::<i64>(0),
    )?;
    Ok(count.unwrap_or(0))
}
