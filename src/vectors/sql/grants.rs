//! Rights of other roles on kb's objects. What kb grants is in sql/grants.sql and, for vector tables, in
//! [`crate::vectors::sql`].

use crate::pg::spi::{self, Arg, Row};
use kb_types::error::Result;

/// A grantee of aclexplode in the form that GRANT and REVOKE take.
const GRANTEE: &str = "CASE a.grantee WHEN 0::oid THEN 'PUBLIC'
    ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END";

/// Revokes from other roles what ALTER DEFAULT PRIVILEGES gave them on a new table of schema kb. Must run as
/// the owner.
pub fn take_defaults(table: &str) -> Result<()> {
    let sql = format!(
        "SELECT DISTINCT pg_catalog.format('REVOKE ALL ON kb.%I FROM %s', c.relname, {GRANTEE})
         FROM pg_catalog.pg_class c CROSS JOIN LATERAL pg_catalog.aclexplode(c.relacl) a
         WHERE c.oid = pg_catalog.to_regclass('kb.' || pg_catalog.quote_ident($1))::oid AND a.grantee <> c.relowner"
    );
    let statements = spi::write(&sql, &[Arg::Text(table)], Row::only::<String>)?;
    statements.iter().try_for_each(|statement| spi::execute_utility(statement))
}

/// Rights on objects of the extension that it did not grant when it was created, and on vector tables: each
/// grantee with the first such right and the number of further ones. Must run as the owner; works on a
/// standby.
pub fn of_others() -> Result<Vec<(String, String, i64)>> {
    let sql = format!(
        "WITH objects AS (
             SELECT 'pg_catalog.pg_class'::regclass::oid AS classid, c.oid, 0 AS part, c.relowner AS owner, c.relacl AS acl,
                 pg_catalog.format('%I.%I', n.nspname, c.relname) AS name
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'kb'
             UNION ALL
             SELECT 'pg_catalog.pg_class'::regclass::oid, c.oid, t.attnum, c.relowner, t.attacl,
                 pg_catalog.format('column %I of %I.%I', t.attname, n.nspname, c.relname)
             FROM pg_catalog.pg_attribute t JOIN pg_catalog.pg_class c ON c.oid = t.attrelid
             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'kb' AND t.attacl IS NOT NULL
             UNION ALL
             SELECT 'pg_catalog.pg_proc'::regclass::oid, p.oid, 0, p.proowner,
                 coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner)), p.oid::pg_catalog.regprocedure::text
             FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'kb'),
         granted AS (
             SELECT {GRANTEE} AS grantee, a.privilege_type || ' on ' || o.name AS privilege
             FROM objects o CROSS JOIN LATERAL pg_catalog.aclexplode(o.acl) a
             JOIN pg_catalog.pg_depend d ON d.classid = o.classid AND d.objid = o.oid AND d.objsubid = 0
                 AND d.refclassid = 'pg_catalog.pg_extension'::regclass AND d.deptype IN ('e', 'a')
             JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid AND e.extname = 'kb'
             WHERE a.grantee <> o.owner
               AND NOT EXISTS (
                   SELECT FROM pg_catalog.pg_init_privs i CROSS JOIN LATERAL pg_catalog.aclexplode(i.initprivs) b
                   WHERE i.classoid = o.classid AND i.objoid = o.oid AND i.objsubid = o.part
                     AND b.grantee = a.grantee AND b.privilege_type = a.privilege_type)
               -- The right by which queries read vector tables, which are not members of the extension but
               -- are dropped with it.
               AND NOT (d.deptype = 'a' AND a.privilege_type = 'SELECT' AND o.part = 0
                   AND a.grantee = 'kb_vectors'::pg_catalog.regrole)
             UNION ALL
             SELECT pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(m.member)), 'membership in role kb_vectors'
             FROM pg_catalog.pg_auth_members m WHERE m.roleid = 'kb_vectors'::pg_catalog.regrole)
         SELECT g.grantee, pg_catalog.min(g.privilege) AS privilege, count(*) - 1 AS others
         FROM granted g GROUP BY g.grantee ORDER BY g.grantee"
    );
    spi::read(&sql, &[], |row| Ok((row.get("grantee")?, row.get("privilege")?, row.get("others")?)))
}
