//! kb.reconcile: compares attached tables with their documents and repairs the differences, which arise while
//! triggers are disabled, for example.

use crate::builds::knowledge_bases;
use crate::pg::role::as_owner;
use crate::pg::{report, wake};
use crate::settings;
use crate::tables::row_document;
use crate::tables::row_presence::{presence, read_apart};
use crate::tables::source_tables::located;
use crate::tables::sql::changes;
use crate::tables::sql::changes::What;
use crate::tables::sql::row_documents;
use crate::tables::sql::row_documents::RowDocument;
use crate::tables::sql::sources::{Source, catalog, rows};
use kb_types::error::Result;
use kb_types::row_key;

/// The number of rows or documents that are compared together.
const BATCH: usize = 500;

/// The result of a comparison.
#[derive(Debug, Default, Clone)]
pub struct Drift {
    /// The table, with its schema, quoted.
    pub table: String,
    /// The number of published rows.
    pub rows: i64,
    /// Of these, the number of rows without a document.
    pub missing: i64,
    /// The number of rows whose document has another text.
    pub changed: i64,
    /// The number of documents without a published row.
    pub orphaned: i64,
}

/// Compares each table that is attached to a knowledge base with its documents. Orphaned documents leave the
/// answers, and the worker reads the other rows that differ again. A table that no longer exists is skipped
/// with a WARNING, or causes an error if it is the only one.
pub fn reconcile(kb_id: &str) -> Result<Vec<Drift>> {
    let kb = knowledge_bases::get_own(kb_id)?;
    as_owner(|| {
        let (mut found, mut left) = (Vec::new(), Vec::new());
        for source in catalog::of_knowledge_base(kb.kb_no)? {
            let source_no = source.source_no;
            let source = match located(source) {
                Ok(source) => source,
                // The error of one table does not affect the others.
                Err(error) => {
                    catalog::set_error(source_no, Some(&error.to_string()))?;
                    left.push(error);
                    continue;
                }
            };
            // An error that persists will be found again.
            catalog::set_error(source_no, None)?;
            let mut drift = Drift { table: source.relation_name.clone(), ..Drift::default() };
            compare_rows(&source, &mut drift)?;
            compare_documents(&source, &mut drift)?;
            found.push(drift);
        }
        if found.is_empty()
            && let Some(error) = left.pop()
        {
            return Err(error);
        }
        left.iter().for_each(|error| report::warning(&error.to_string()));
        wake::at_commit(kb.kb_no);
        Ok(found)
    })
}

/// Finds rows that have no document of their text.
fn compare_rows(source: &Source, drift: &mut Drift) -> Result<()> {
    let most = settings::max_document_size();
    let mut after = Vec::new();
    loop {
        report::check_interrupts();
        let page = rows::after(source, &after, BATCH, false)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.key.clone();
        let keys: Vec<Vec<String>> = page.iter().map(|row| row.key.clone()).collect();
        let (mut tenants, mut external_ids, mut hashes) = (Vec::new(), Vec::new(), Vec::new());
        let (rows, unreadable) = read_apart(keys.len(), |range| {
            let mut rows = rows::read(source, &keys[range.clone()], most, false)?;
            rows.iter_mut().for_each(|row| row.place += range.start);
            Ok(rows)
        })?;
        // A row that cannot be read has a document that gives the reason.
        for place in unreadable {
            tenants.push(page[place].tenant.clone().unwrap_or_else(|| source.tenant_id.clone()));
            external_ids.push(row_key::encode(&keys[place]));
            hashes.push(None);
        }
        for row in rows {
            let (external_id, tenant) = (row_key::encode(&keys[row.place]), row.tenant.clone());
            // A row that cannot become a document has one that gives the reason.
            let hash = match row_document::of_row(source, &external_id, row, most) {
                Ok(None) => continue,
                Ok(Some(document)) => Some(document.hash().to_vec()),
                Err(_) => None,
            };
            tenants.push(tenant.unwrap_or_else(|| source.tenant_id.clone()));
            external_ids.push(external_id);
            hashes.push(hash);
        }
        drift.rows += external_ids.len() as i64;
        let stored = row_documents::hashes(source, &tenants, &external_ids)?;
        let (mut of, mut differing) = (Vec::new(), Vec::new());
        for (place, (stored, hash)) in stored.iter().zip(&hashes).enumerate() {
            match (stored, hash) {
                (None, _) => drift.missing += 1,
                (Some(stored), Some(hash)) if stored != hash => drift.changed += 1,
                _ => continue,
            }
            of.push(tenants[place].clone());
            differing.push(external_ids[place].clone());
        }
        if !differing.is_empty() {
            changes::append(source.source_no, What::Changed, &of, &differing)?;
        }
    }
}

/// Finds documents that have no row.
fn compare_documents(source: &Source, drift: &mut Drift) -> Result<()> {
    let mut after = 0;
    loop {
        report::check_interrupts();
        let page = row_documents::after(source.source_no, after, BATCH)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.document_id;
        let names: Vec<_> = page.iter().map(RowDocument::name).collect();
        let orphaned = presence(source, &names)?.absent;
        drift.orphaned += orphaned.len() as i64;
        if !orphaned.is_empty() {
            let (tenants, external_ids): (Vec<String>, Vec<String>) = orphaned
                .into_iter()
                .map(|place| (page[place].tenant_id.clone(), page[place].external_id.clone()))
                .unzip();
            changes::append(source.source_no, What::Gone, &tenants, &external_ids)?;
        }
    }
}
