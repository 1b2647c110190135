//! kb.shares: knowledge bases that tenants share with others.

use crate::pg::spi::{self, Arg, Row};
use crate::pg::table_cache::{self, TableCache};
use crate::tenants::sql::bindings;
use kb_types::error::Result;
use std::cell::RefCell;
use std::rc::Rc;

thread_local! {
    static OWNERS: RefCell<TableCache<String, Rc<[String]>>> = RefCell::default();
}

/// The tenants that share something with a tenant.
pub fn owners(tenant_id: &str) -> Vec<String> {
    let found = table_cache::get(&OWNERS, &tenant_id.to_string(), || {
        let mut owners = Vec::new();
        table_cache::scan(c"shares", Some((c"shares_pkey", tenant_id)), |row| {
            owners.push(row.get::<String>("owner_id")?);
            Ok(())
        });
        owners.sort();
        owners.dedup();
        owners.into()
    });
    found.to_vec()
}

/// The tenants of which the session may read at least some rows.
pub fn readable_owners() -> Result<Vec<String>> {
    let mut tenants = bindings::visible()?;
    tenants.extend(owners(&tenants[0]));
    Ok(tenants)
}

/// The tenant that shares a knowledge base with a tenant. Must run as that tenant or as the owner.
pub fn owner(tenant_id: &str, kb_no: i64) -> Result<Option<String>> {
    spi::read_one(
        "SELECT s.owner_id FROM kb.shares s WHERE s.tenant_id = $1 AND s.kb_no = $2",
        &[Arg::Text(tenant_id), Arg::Long(kb_no)],
        Row::only,
    )
}

/// Whether a knowledge base is shared with any tenant. Must run as its owner.
pub fn any(kb_no: i64) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT FROM kb.shares WHERE kb_no = $1)";
    spi::write_value(sql, &[Arg::Long(kb_no)])
}

/// Shares a knowledge base of the tenant that owns it with another tenant. Returns false if it was shared
/// already. Must run as the owner.
pub fn put(kb_no: i64, owner: &str, tenant_id: &str) -> Result<bool> {
    let put = spi::execute(
        "INSERT INTO kb.shares (tenant_id, kb_no, owner_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        &[Arg::Text(tenant_id), Arg::Long(kb_no), Arg::Text(owner)],
    )?;
    Ok(put > 0)
}

/// Ends a share. Returns false if there was none. Must run as the owner.
pub fn delete(kb_no: i64, tenant_id: &str) -> Result<bool> {
    let deleted = spi::execute(
        "DELETE FROM kb.shares WHERE kb_no = $1 AND tenant_id = $2",
        &[Arg::Long(kb_no), Arg::Text(tenant_id)],
    )?;
    Ok(deleted > 0)
}

/// Ends the share of a knowledge base, given by the id that its owner uses, with a tenant. Returns false if
/// there was none. Must run as the owner.
pub fn refuse(kb_id: &str, owner: &str, tenant_id: &str) -> Result<bool> {
    let deleted = spi::execute(
        "DELETE FROM kb.shares s USING kb.knowledge_bases k
         WHERE k.tenant_id = $1 AND k.id = $2 AND s.kb_no = k.kb_no AND s.tenant_id = $3",
        &[Arg::Text(owner), Arg::Text(kb_id), Arg::Text(tenant_id)],
    )?;
    Ok(deleted > 0)
}

/// The tenants whose documents of a knowledge base the caller may read: the policy tenant_read of
/// kb.documents (sql/policies.sql), for one knowledge base.
pub fn readable(kb_no: i64) -> Result<Vec<String>> {
    let mut tenants = bindings::visible()?;
    let current = bindings::current()?;
    // In nearly all databases nothing is shared.
    if !owners(&current).is_empty() {
        tenants.extend(owner(&current, kb_no)?);
    }
    Ok(tenants)
}
