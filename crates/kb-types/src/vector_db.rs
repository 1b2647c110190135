//! The configuration of where vectors are stored: type, metric, element type and index parameters.

use crate::json_reader::Fields;
use crate::named;
use crate::named::Named;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VectorDbType {
    /// A table of pgvector with an HNSW index.
    Pgvector,
    /// An unlogged table that is scanned exactly, for development.
    Memory,
}

named!(VectorDbType { Pgvector => "pgvector", Memory => "memory" });

impl VectorDbType {
    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "qdrant" => {
                Err("type \"qdrant\" is not available in this version of kb; use pgvector or memory".into())
            }
            other => VectorDbType::one_of(other).map_err(|problem| format!("type {problem}")),
        }
    }
}

/// The metric by which vectors are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    Cosine,
    L2,
    Ip,
}

named!(Metric { Cosine => "cosine", L2 => "l2", Ip => "ip" });

impl Metric {
    pub fn parse(name: &str) -> Result<Self, String> {
        Metric::one_of(name).map_err(|problem| format!("metric {problem}"))
    }

    /// The lower bound of scores.
    pub fn least_score(self) -> f64 {
        match self {
            Metric::Cosine | Metric::L2 => 0.0,
            Metric::Ip => f64::NEG_INFINITY,
        }
    }

    /// pgvector's distance operator. Smaller distances are nearer for every metric.
    pub fn operator(self) -> &'static str {
        match self {
            Metric::Cosine => "<=>",
            Metric::L2 => "<->",
            Metric::Ip => "<#>",
        }
    }

    /// pgvector's HNSW operator class for an element type.
    pub fn operator_class(self, element: Element) -> String {
        format!("{}_{}_ops", element.name(), self.name())
    }

    /// The similarity for a distance, larger for nearer vectors: 1 - d in 0..1 for cosine, 1 / (1 + d) in
    /// 0..1 for l2, and the inner product itself for ip, whose negative pgvector's operator returns.
    pub fn score(self, distance: f64) -> f64 {
        match self {
            Metric::Cosine => (1.0 - distance).clamp(0.0, 1.0),
            Metric::L2 => 1.0 / (1.0 + distance),
            Metric::Ip => -distance,
        }
    }
}

/// pgvector's column type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    Vector,
    Halfvec,
}

/// Says why the vector of a question cannot be compared with those of a table, if so: the element type cannot
/// hold one of its numbers, or the vector has no direction.
pub fn question_problem(metric: Metric, element: Element, vector: &[f32]) -> Option<String> {
    let held = |number: f32| element.held(number);
    if let Some(number) = vector.iter().find(|number| !held(**number).is_finite()) {
        return Some(format!("the vectors are of type {}, which cannot hold {number}", element.name()));
    }
    // Computed in 32 bits as in pgvector. The distance from a vector of length 0 is not a number.
    let square: f32 = vector.iter().map(|number| held(*number) * held(*number)).sum();
    let has_direction = square > 0.0 && square.is_finite();
    (metric == Metric::Cosine && !has_direction).then(|| {
        "metric cosine needs a vector with a direction, but its length is 0, too small or too large to be computed"
            .into()
    })
}

/// The most dimensions of a `vector` that pgvector's HNSW can index.
pub const VECTOR_MAX_DIMENSION: usize = 2000;
/// The most dimensions of a `halfvec` that pgvector's HNSW can index.
pub const HALFVEC_MAX_DIMENSION: usize = 4000;

named!(Element { Vector => "vector", Halfvec => "halfvec" });

impl Element {
    /// A number as an element of this type holds it.
    pub fn held(self, number: f32) -> f32 {
        match self {
            Element::Vector => number,
            Element::Halfvec => half::f16::from_f32(number).to_f32(),
        }
    }

    /// The widest element type that HNSW can index at this dimension.
    pub fn for_dimension(dimension: usize) -> Result<Self, String> {
        match dimension {
            0 => Err("dimension must be at least 1".into()),
            d if d <= VECTOR_MAX_DIMENSION => Ok(Element::Vector),
            d if d <= HALFVEC_MAX_DIMENSION => Ok(Element::Halfvec),
            d => Err(format!(
                "dimension {d} is more than the {HALFVEC_MAX_DIMENSION} that pgvector's HNSW can index"
            )),
        }
    }
}

/// How the nearest vectors are searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// By the HNSW index, if there is one, iterating until enough vectors pass the filter or `visits` vectors
    /// were visited. With 0 visits it makes one pass.
    Index { ef_search: usize, visits: usize },
    /// By comparing every vector that passes the filter.
    Exact,
    /// Like Exact, with equal texts counted once.
    ExactDistinct,
}

/// How many chunks pass a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The chunks were counted.
    Exactly(usize),
    /// An estimate, where there are more than were counted.
    About(usize),
}

/// The way of searching that a test demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forced {
    /// Lists all chunks that pass the filter, and compares their vectors.
    List,
    /// Scans the index, however few chunks pass the filter.
    Index,
    /// Joins vectors with the documents that pass the filter, and compares them.
    Join,
}

/// The validated `config` of a vector database.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VectorDbConfig {
    /// The name of the table in schema kb. None derives it from the id.
    pub table: Option<String>,
    /// For HNSW: edges per node (pgvector's m).
    pub m: usize,
    /// For HNSW: candidates while building.
    pub ef_construction: usize,
    /// The number of rows below which no index is built, because an exact scan is as fast.
    pub min_rows: usize,
    /// None chooses by the dimension.
    pub element: Option<Element>,
}

impl Default for VectorDbConfig {
    fn default() -> Self {
        VectorDbConfig { table: None, m: 16, ef_construction: 200, min_rows: 1000, element: None }
    }
}

impl VectorDbConfig {
    /// The error lists every problem.
    pub fn parse(value: &Value) -> Result<Self, Vec<String>> {
        let mut fields = Fields::new("config", value);
        let default = VectorDbConfig::default();
        let table = fields.text("table");
        if let Some(name) = &table
            && !is_table_name(name)
        {
            fields.problem(
                "table",
                format_args!(
                    "\"{name}\" must have 1 to 55 characters of a-z, 0-9 and _, and begin with a letter"
                ),
            );
        }
        let m = fields.integer("m", 2, 100).map_or(default.m, |n| n as usize);
        let ef_construction =
            fields.integer("ef_construction", 4, 1000).map_or(default.ef_construction, |n| n as usize);
        if ef_construction < 2 * m {
            fields
                .problem("ef_construction", format_args!("{ef_construction} must be at least twice m ({m})"));
        }
        let config = VectorDbConfig {
            table,
            m,
            ef_construction,
            min_rows: fields.integer("min_rows", 0, i64::MAX).map_or(default.min_rows, |n| n as usize),
            element: fields.named("element"),
        };
        let problems = fields.finish();
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }
}

fn is_table_name(name: &str) -> bool {
    (1..=55).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_element_type_follows_the_dimension() {
        assert_eq!(Element::for_dimension(2000), Ok(Element::Vector));
        assert_eq!(Element::for_dimension(2001), Ok(Element::Halfvec));
        assert!(Element::for_dimension(4001).is_err());
        assert!(Element::for_dimension(0).is_err());
    }

    #[test]
    fn a_table_name_cannot_carry_sql() {
        let problems = VectorDbConfig::parse(&json!({"table": "x; drop table y"})).unwrap_err();
        assert_eq!(problems.len(), 1);
    }

    #[test]
    fn cosine_scores_stay_in_range() {
        assert_eq!(Metric::Cosine.score(1.7), 0.0);
        assert_eq!(Metric::Cosine.score(-1e-9), 1.0);
        assert_eq!(Metric::Ip.score(-3.0), 3.0);
    }

    #[test]
    fn qdrant_is_refused_by_name() {
        assert!(VectorDbType::parse("qdrant").unwrap_err().contains("not available in this version"));
    }
}
