//! The description of a vector database: everything that is needed to read and write it, from rows of
//! kb.vector_dbs and kb.builds.

use crate::pg::spi::{self, Arg, FromRow, Row};
use crate::pg::statement_arguments::Arguments;
use kb_types::error::{Error, Result};
use kb_types::vector_db::Element;
use kb_types::{Json, Metric, VectorDbConfig, VectorDbType};
use serde_json::{Value, json};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VectorDb {
    /// The table, in schema kb. Only this room names it.
    pub(super) table_name: String,
    pub dimension: usize,
    pub kind: VectorDbType,
    pub metric: Metric,
    pub element: Element,
    pub config: VectorDbConfig,
}

impl FromRow for VectorDb {
    /// [`VectorDb::values`] gives what is written into them.
    const COLUMNS: &'static [&'static str] = &["table_name", "dimension", "type", "metric", "config"];

    /// A bad value is an internal error, for they were checked on the way in.
    fn from_row(row: &Row) -> Result<VectorDb> {
        let (table_name, dimension): (String, usize) = (row.get("table_name")?, row.get("dimension")?);
        let (kind, metric): (String, String) = (row.get("type")?, row.get("metric")?);
        let internal = |problem: String| Error::Internal(format!("vector table {table_name}: {problem}"));
        let config =
            VectorDbConfig::parse(&row.get("config")?).map_err(|problems| internal(problems.join("; ")))?;
        let element = match config.element {
            Some(element) => element,
            None => Element::for_dimension(dimension).map_err(internal)?,
        };
        Ok(VectorDb {
            dimension,
            kind: VectorDbType::parse(&kind).map_err(internal)?,
            metric: Metric::parse(&metric).map_err(internal)?,
            element,
            config,
            table_name,
        })
    }
}

impl VectorDb {
    /// A vector database for a single build, named after the build.
    pub fn of_build(build_no: i64, dimension: usize) -> Result<VectorDb> {
        Ok(VectorDb {
            table_name: format!("vectors_{build_no}"),
            dimension,
            kind: VectorDbType::Pgvector,
            metric: Metric::Cosine,
            element: Element::for_dimension(dimension).map_err(Error::Internal)?,
            config: VectorDbConfig::default(),
        })
    }

    /// A vector database that several knowledge bases can name by its id.
    pub fn shared(
        id: &str,
        dimension: usize,
        kind: VectorDbType,
        metric: Metric,
        element: Element,
        config: VectorDbConfig,
    ) -> VectorDb {
        let table_name = config.table.clone().unwrap_or_else(|| name_of(id));
        VectorDb { table_name, dimension, kind, metric, element, config }
    }

    /// Whether the table exists and has held rows since it was created or emptied.
    pub fn has_pages(&self) -> Result<bool> {
        let sql = "SELECT pg_catalog.pg_relation_size(pg_catalog.to_regclass('kb.' || pg_catalog.quote_ident($1))) > 0";
        spi::write_value(sql, &[Arg::Text(&self.table_name)])
    }

    /// The columns in an INSERT.
    pub fn inserted() -> String {
        Self::COLUMNS.join(", ")
    }

    /// The values for these columns.
    pub fn values<'a>(&'a self, arguments: &mut Arguments<'a>) -> String {
        [
            arguments.add(Arg::Text(&self.table_name)),
            arguments.add(Arg::Int(self.dimension as i32)),
            arguments.add(Arg::Text(self.kind.name())),
            arguments.add(Arg::Text(self.metric.name())),
            arguments.add_json(Json::new(self.config_json().to_string())),
        ]
        .join(", ")
    }

    /// The configuration in its stored form, with every default written out.
    fn config_json(&self) -> Value {
        json!({
            "table": self.config.table,
            "m": self.config.m,
            "ef_construction": self.config.ef_construction,
            "min_rows": self.config.min_rows,
            "element": self.element.name(),
        })
    }
}

/// Letters and digits of the id and the beginning of a hash, so that similar ids seldom produce the same
/// name. If two do, creating the second is an error; `config.table` specifies another name.
fn name_of(id: &str) -> String {
    let plain: String =
        id.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(30).collect();
    let hash = blake3::hash(id.as_bytes()).to_hex();
    format!("vectors_{plain}_{}", &hash[..6])
}
