//! kb.row_status: the state of a row of an attached table.

use crate::pg::role::as_owner;
use crate::tables::sql::row_documents;
use crate::tables::sql::row_documents::RowStatus;
use crate::tables::sql::sources::{catalog, table};
use crate::tenants::bindings;
use kb_types::error::Result;

/// The status of a row in each knowledge base to which its table is attached, by the ids of these. If a
/// column holds the tenant, the row is one of the session's tenant.
pub fn row_status(relation: u32, external_id: &str) -> Result<Vec<(String, RowStatus)>> {
    let tenant = bindings::current()?;
    let of_source = |source: catalog::Source| {
        let tenant = if source.config.tenant.is_some() { &tenant } else { &source.tenant_id };
        let status = as_owner(|| row_documents::status(&source, tenant, external_id))?;
        Ok((source.kb_id, status))
    };
    let mut sources = catalog::of_table(relation)?;
    for place in (0..sources.len()).rev() {
        if !table::is_of(&sources[place], relation)? {
            sources.remove(place);
        }
    }
    sources.into_iter().map(of_source).collect()
}
