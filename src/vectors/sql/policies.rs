//! The policies of vector tables, which are those of every table with a tenant.

use crate::pg::spi::{self, Arg, Row, quote};
use kb_types::error::Result;

/// Replaces the policies with which a vector table was dumped by those of this version, after a restore.
pub fn replace_policies(table_name: &str) -> Result<()> {
    let policies: Vec<String> = spi::write(
        "SELECT p.polname::text FROM pg_catalog.pg_policy p
         WHERE p.polrelid = pg_catalog.to_regclass('kb.' || pg_catalog.quote_ident($1))::oid
           AND p.polname IN ('tenant_read', 'tenant_write', 'tenant_insert', 'tenant_update', 'tenant_delete')",
        &[Arg::Text(table_name)],
        Row::only,
    )?;
    let table = format!("kb.{}", quote(table_name));
    policies
        .iter()
        .try_for_each(|policy| spi::execute_utility(&format!("DROP POLICY {} ON {table}", quote(policy))))?;
    make_policies(table_name)
}

pub fn make_policies(table_name: &str) -> Result<()> {
    let table = format!("kb.{}", quote(table_name));
    for policy in [
        "tenant_read ON {table} FOR SELECT USING (tenant_id = ANY ((SELECT kb.readable_tenants())::text[]))",
        "tenant_insert ON {table} FOR INSERT WITH CHECK (tenant_id = (SELECT kb.current_tenant()))",
        "tenant_update ON {table} FOR UPDATE USING (tenant_id = (SELECT kb.current_tenant()))",
        "tenant_delete ON {table} FOR DELETE USING (tenant_id = (SELECT kb.current_tenant()))",
    ] {
        spi::execute_utility(&format!("CREATE POLICY {}", policy.replace("{table}", &table)))?;
    }
    Ok(())
}
