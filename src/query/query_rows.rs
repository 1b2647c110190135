//! kb.query_rows: answers a question with the rows of attached tables.

use super::query::query;
use crate::pg::report;
use crate::tables::sources::rows;
use crate::tables::sources::rows::Sight;
use crate::tables::sources::{Source, catalog, table};
use kb_search::Request;
use kb_types::candidate::SourceRow;
use kb_types::error::{Error, Result};
use kb_types::{Hit, Json, row_key};
use std::collections::{BTreeMap, HashMap};

/// A hit with its row.
pub struct RowHit {
    pub hit: Hit,
    /// The key of the row and the row, as JSON objects. None: the document was put.
    pub row: Option<(Json, Json)>,
}

/// Does what [`query`] does, but returns the rows as they are now. Rows that the caller may not see are left
/// out, and a NOTICE gives the reason.
pub fn query_rows(request: &Request, question: &str) -> Result<Vec<RowHit>> {
    let hits = query(request, question)?;
    let mut by_source: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (place, hit) in hits.iter().enumerate() {
        if let Some(SourceRow { source_no, .. }) = &hit.row.source {
            by_source.entry(*source_no).or_default().push(place);
        }
    }
    let mut found = HashMap::new();
    let mut unseen = None;
    for (source_no, places) in by_source {
        let Some(source) = catalog::read(source_no)? else {
            unseen = Some(&hits[places[0]].kb_id);
            continue;
        };
        // The rows of a table that no longer exists are gone.
        let Some(located) = table::locate(&source)? else { continue };
        if !located.is_same_owner {
            report::notice(&of_another_owner(&located.name));
            continue;
        }
        let source = Source { relation: located.relation, relation_name: located.name, ..source };
        match rows::sight(source.relation)? {
            Sight::All => {}
            Sight::ByPolicies => {
                report::notice(&left_out(&source));
                continue;
            }
            Sight::None => {
                return Err(Error::Permission {
                    problem: format!("reading rows of {} requires SELECT on the table", source.relation_name),
                });
            }
        }
        let key = |place: &usize| {
            row_key::decode(&hits[*place].row.external_id, source.key.len()).unwrap_or_default()
        };
        let keys: Vec<Vec<String>> = places.iter().map(key).collect();
        for (n, key, row) in rows::whole(&source, &keys)? {
            found.insert(places[n], (key, row));
        }
    }
    if let Some(kb_id) = unseen {
        report::notice(&of_others(kb_id));
    }
    let with_row = |(place, hit): (usize, Hit)| match (hit.row.source.is_some(), found.remove(&place)) {
        (true, None) => None,
        (_, row) => Some(RowHit { hit, row }),
    };
    Ok(hits.into_iter().enumerate().filter_map(with_row).collect())
}

/// The reason why rows of another tenant's knowledge base are left out, and what the caller can have instead.
fn of_others(kb_id: &str) -> String {
    format!(
        "rows of tables attached to knowledge base \"{kb_id}\" are left out, because a tenant that it is shared with \
         cannot read these tables; kb.query returns the texts that were found"
    )
}

/// The reason why rows are left out, and what must be done.
fn of_another_owner(table: &str) -> String {
    format!("rows of {table} are left out, because its owner has changed; the new owner must attach it again")
}

/// The reason why rows are left out, and how the caller can get them.
fn left_out(source: &Source) -> String {
    format!(
        "rows of {} are left out, because row-level security of the table applies to this role, and kb does not run the \
         policies of its owner with the caller's privileges; to read them, join kb.query with the table, whose key is \
         external_id",
        source.relation_name
    )
}
