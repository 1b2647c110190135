//! Where vectors are kept: type, metric, element type, index parameters.

use super::fields::Fields;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VectorDbType {
    /// A table with an HNSW index.
    Pgvector,
    /// An unlogged table, scanned exactly: for development.
    Memory,
}

impl VectorDbType {
    pub fn name(self) -> &'static str {
        match self {
            VectorDbType::Pgvector => "pgvector",
            VectorDbType::Memory => "memory",
        }
    }

    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "pgvector" => Ok(VectorDbType::Pgvector),
            "memory" => Ok(VectorDbType::Memory),
            "qdrant" => {
                Err("type \"qdrant\" is not available in this version of kb; use pgvector or memory".into())
            }
            other => Err(format!("type \"{other}\" is not one of pgvector, memory")),
        }
    }
}

/// How near two vectors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    Cosine,
    L2,
    Ip,
}

impl Metric {
    pub fn name(self) -> &'static str {
        match self {
            Metric::Cosine => "cosine",
            Metric::L2 => "l2",
            Metric::Ip => "ip",
        }
    }

    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "cosine" => Ok(Metric::Cosine),
            "l2" => Ok(Metric::L2),
            "ip" => Ok(Metric::Ip),
            other => Err(format!("metric \"{other}\" is not one of cosine, l2, ip")),
        }
    }

    /// No score is less.
    pub fn least_score(self) -> f64 {
        match self {
            Metric::Cosine | Metric::L2 => 0.0,
            Metric::Ip => f64::NEG_INFINITY,
        }
    }

    /// pgvector's distance operator; smaller is nearer for each.
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

    /// Similarity from distance, larger is nearer: cosine 1 - d in 0..1; l2 1 / (1 + d) in 0..1;
    /// ip the inner product itself (pgvector's operator gives its negative).
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

/// Why a question's vector cannot be compared with those of a table: the table's elements cannot hold one of its numbers,
/// or it has no direction.
pub fn question_problem(metric: Metric, element: Element, vector: &[f32]) -> Option<String> {
    let held = |number: f32| element.held(number);
    if let Some(number) = vector.iter().find(|number| !held(**number).is_finite()) {
        return Some(format!("the vectors are of type {}, which cannot hold {number}", element.name()));
    }
    // In 32 bits, as pgvector computes it: the distance from a vector without a length is not a number.
    let square: f32 = vector.iter().map(|number| held(*number) * held(*number)).sum();
    let has_direction = square > 0.0 && square.is_finite();
    (metric == Metric::Cosine && !has_direction).then(|| {
        "metric cosine compares directions, and it has none: its length is 0, or too small or too large to be computed"
            .into()
    })
}

/// Dimensions at most that pgvector's HNSW indexes as `vector`.
pub const VECTOR_MAX_DIMENSION: usize = 2000;
/// Dimensions at most that pgvector's HNSW indexes as `halfvec`.
pub const HALFVEC_MAX_DIMENSION: usize = 4000;

impl Element {
    /// A number as one of these holds it.
    pub fn held(self, number: f32) -> f32 {
        match self {
            Element::Vector => number,
            Element::Halfvec => half::f16::from_f32(number).to_f32(),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Element::Vector => "vector",
            Element::Halfvec => "halfvec",
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

/// How the nearest are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// By the HNSW index if there is one, iterating until enough pass the filter, or so many vectors were visited; 0: in one pass.
    Index { ef_search: usize, visits: usize },
    /// Every vector that passes the filter.
    Exact,
    /// As Exact, and equal texts count once.
    ExactDistinct,
}

/// What a filter keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// So many chunks, which were counted.
    Exactly(usize),
    /// About so many, more than were counted.
    About(usize),
}

/// A way of looking for the nearest that a test asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forced {
    /// All that a filter keeps are listed, and those compared.
    List,
    /// The index is scanned, whatever the filter keeps.
    Index,
    /// Vectors are joined with the documents that a filter keeps, and compared.
    Join,
}

/// The validated `config` of a vector database.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VectorDbConfig {
    /// Table name in schema kb; None: made from the id.
    pub table: Option<String>,
    /// HNSW: edges a node (pgvector's m).
    pub m: usize,
    /// HNSW: candidates while building.
    pub ef_construction: usize,
    /// Rows below which no index is built: an exact scan is as fast.
    pub min_rows: usize,
    /// None: by dimension.
    pub element: Option<Element>,
}

impl Default for VectorDbConfig {
    fn default() -> Self {
        VectorDbConfig { table: None, m: 16, ef_construction: 200, min_rows: 1000, element: None }
    }
}

impl VectorDbConfig {
    /// Errors are the complete list of problems.
    pub fn parse(value: &Value) -> Result<Self, Vec<String>> {
        let mut fields = Fields::new("config", value);
        let default = VectorDbConfig::default();
        let table = fields.text("table");
        if let Some(name) = &table
            && !is_table_name(name)
        {
            fields.problem(
                "table",
                format_args!("\"{name}\" must be 1 to 55 of a-z, 0-9 and _, starting with a letter"),
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
            element: match fields.text("element").as_deref() {
                None => None,
                Some("vector") => Some(Element::Vector),
                Some("halfvec") => Some(Element::Halfvec),
                Some(other) => {
                    fields.problem("element", format_args!("\"{other}\" is not one of vector, halfvec"));
                    None
                }
            },
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
