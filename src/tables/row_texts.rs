//! Compares the texts of documents with those of the rows of attached tables.

use super::row_document;
use crate::settings;
use crate::tables::sql::row_documents;
use crate::tables::sql::sources::{Source, rows};
use kb_types::error::Result;
use kb_types::row_key;
use std::collections::BTreeSet;

/// For rows, given by tenant and external_id: the places of those whose document has another text, or which
/// have no text. Returns an error if one of them cannot be read. The text of each may be as long as a
/// document.
pub fn of_other_text(source: &Source, names: &[&(String, String)]) -> Result<BTreeSet<usize>> {
    let (tenants, external_ids): (Vec<String>, Vec<String>) = names.iter().copied().cloned().unzip();
    let stored = row_documents::hashes(source, &tenants, &external_ids)?;
    let places: Vec<usize> = (0..names.len()).filter(|place| stored[*place].is_some()).collect();
    let key = |place: &usize| row_key::decode(&external_ids[*place], source.key.len()).unwrap_or_default();
    let keys: Vec<Vec<String>> = places.iter().map(key).collect();
    let mut other: BTreeSet<usize> = places.iter().copied().collect();
    if keys.is_empty() {
        return Ok(other);
    }
    let most = settings::max_document_size();
    for row in rows::read(source, &keys, most, false)? {
        let place = places[row.place];
        let is_of_tenant = row.tenant.as_ref().is_none_or(|tenant| *tenant == tenants[place]);
        let document = row_document::of_row(source, &external_ids[place], row, most).ok().flatten();
        let hash = document.map(|document| document.hash().to_vec());
        if is_of_tenant && hash == stored[place] {
            other.remove(&place);
        }
    }
    Ok(other)
}
