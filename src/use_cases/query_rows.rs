//! kb.query_rows: answers a question with the rows of attached tables.

use super::query::query;
use crate::error::Result;
use crate::model::candidate::RowSource;
use crate::model::{Hit, Json, row_key};
use crate::retrieve::Request;
use crate::store::sources::{Source, catalog, rows, table};
use std::collections::{BTreeMap, HashMap};

/// A hit with the row that it is of.
pub struct RowHit {
    pub hit: Hit,
    /// The row's key and the row, as JSON objects; None: the document was put.
    pub row: Option<(Json, Json)>,
}

/// As [`query`], but with the rows as the caller sees them now: what the caller may not see of a table is left out.
pub fn query_rows(request: &Request, question: &str) -> Result<Vec<RowHit>> {
    let hits = query(request, question)?;
    let mut by_source: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (place, hit) in hits.iter().enumerate() {
        if let Some(RowSource { source_no, .. }) = &hit.row.source {
            by_source.entry(*source_no).or_default().push(place);
        }
    }
    let mut found = HashMap::new();
    for (source_no, places) in by_source {
        let Some(source) = catalog::read(source_no)? else { continue };
        let Some(located) = table::locate(&source)?.filter(|located| located.is_same_owner) else { continue };
        let source = Source { relation: located.relation, relation_name: located.name, ..source };
        let key = |place: &usize| {
            row_key::decode(&hits[*place].row.external_id, source.key.len()).unwrap_or_default()
        };
        let keys: Vec<Vec<String>> = places.iter().map(key).collect();
        for (n, key, row) in rows::of_caller(&source, &keys)? {
            found.insert(places[n], (key, row));
        }
    }
    let with_row = |(place, hit): (usize, Hit)| match (hit.row.source.is_some(), found.remove(&place)) {
        (true, None) => None,
        (_, row) => Some(RowHit { hit, row }),
    };
    Ok(hits.into_iter().enumerate().filter_map(with_row).collect())
}
