//! Roles that are bound to tenants (kb.tenant_roles) cannot leave them by a setting, by SET ROLE, or by the
//! owner of a function.

use crate::support::{APP, Cluster, Db};

/// Knowledge base k of tenants a, b and c, each with a document of its own; roles a and b are bound to their
/// tenants, either to a and b, pool to none; all may write.
fn bound() -> Option<(Cluster, Db)> {
    let (cluster, mut db) = Cluster::connected(&[])?;
    for tenant in ["a", "b", "c"] {
        db.run(&format!("SET kb.tenant = '{tenant}'"));
        db.create_kb("k", "hash", "{}");
        db.put_and_wait("k", tenant, &format!("What {tenant} knows."));
    }
    db.run("RESET kb.tenant");
    for (role, tenants) in [("a", &["a"][..]), ("b", &["b"]), ("either", &["a", "b"]), ("pool", &[])] {
        db.run(&format!("CREATE ROLE {role} LOGIN IN ROLE kb_writer"));
        for tenant in tenants {
            assert!(db.one::<bool>(&format!("SELECT kb.bind_role('{role}', '{tenant}')")));
        }
    }
    Some((cluster, db))
}

fn documents(db: &mut Db) -> Vec<String> {
    db.all("SELECT external_id FROM kb.documents ORDER BY 1")
}

#[test]
fn a_role_of_one_tenant_is_in_it_without_a_setting_and_leaves_it_by_none() {
    let Some((cluster, mut db)) = bound() else { return };
    let mut a = cluster.connect_as(APP, "a");
    assert_eq!(documents(&mut a), ["a"]);
    assert_eq!(a.found("k", "what is known?", 9), ["a"]);
    assert_eq!(a.one::<String>("SELECT kb.current_tenant()"), "a");
    assert_eq!(a.one::<Vec<String>>("SELECT kb.bound_tenants()"), ["a"]);
    for setting in
        ["SET kb.tenant = 'b'", "SET kb.tenant = 'shared'", "SELECT set_config('kb.tenant', 'b', false)"]
    {
        a.run(setting);
        for sql in [
            "SELECT count(*) FROM kb.documents",
            "SELECT count(*) FROM kb.chunks",
            "SELECT count(*) FROM kb.knowledge_bases",
            "SELECT * FROM kb.status",
            "SELECT * FROM kb.query('k', 'what')",
            "SELECT kb.put_document('k', 'x', 'A text of a.')",
            "SELECT kb.drop_knowledge_base('k')",
            "SELECT * FROM kb.embed('hash', '{a}', 'query')",
            "SELECT kb.current_tenant()",
        ] {
            let fault = a.fault(sql);
            assert_eq!(fault.code, "42501", "{setting}; {sql}: {fault:?}");
        }
        a.run("RESET kb.tenant");
    }
    // Nor by what an administrator sets for the role.
    db.run("ALTER ROLE a SET kb.tenant = 'b'");
    assert_eq!(cluster.connect_as(APP, "a").fault("SELECT FROM kb.documents").code, "42501");
}

#[test]
fn a_role_of_several_tenants_says_which_in_each_transaction() {
    let Some((cluster, _db)) = bound() else { return };
    let mut either = cluster.connect_as(APP, "either");
    either.refused("SELECT FROM kb.documents", "42501");
    // This is what a proxy that pools transactions needs.
    for tenant in ["a", "b", "a"] {
        either.run(&format!("BEGIN; SET LOCAL kb.tenant = '{tenant}'"));
        assert_eq!(documents(&mut either), [tenant]);
        assert_eq!(either.found("k", "what is known?", 9), [tenant]);
        either.run("COMMIT");
    }
    either.run("SET kb.tenant = 'c'");
    either.refused("SELECT FROM kb.documents", "42501");
}

#[test]
fn neither_set_role_nor_a_functions_owner_leads_out() {
    let Some((cluster, mut db)) = bound() else { return };
    // A login role of a pool, which takes the role of its user.
    db.run("CREATE ROLE proxy LOGIN NOINHERIT IN ROLE a, b; GRANT CREATE ON SCHEMA public TO a, pool");
    let mut proxy = cluster.connect_as(APP, "proxy");
    for role in ["a", "b", "a"] {
        proxy.run(&format!("SET ROLE {role}"));
        assert_eq!(documents(&mut proxy), [role]);
    }
    proxy.run("SET kb.tenant = 'b'");
    proxy.refused("SELECT FROM kb.documents", "42501");
    proxy.run("RESET kb.tenant");
    // Functions that run with their owners' rights.
    for owner in ["a", "pool"] {
        let functions = [
            ("documents", "SELECT external_id FROM kb.documents"),
            ("found", "SELECT external_id FROM kb.query('k', 'what')"),
            ("put", "SELECT kb.put_document('k', 'x', 'A text of ' || kb.current_tenant())"),
        ];
        for (name, body) in functions {
            db.run(&format!(
                "SET ROLE {owner}; CREATE FUNCTION public.{name}_of_{owner}() RETURNS SETOF text LANGUAGE sql
                 SECURITY DEFINER AS $${body}$$; RESET ROLE"
            ));
        }
    }
    let mut a = cluster.connect_as(APP, "a");
    let mut pool = cluster.connect_as(APP, "pool");
    // a is bound, also in a function of pool; pool is bound in a function of a; and proxy is bound while it
    // is a.
    for (session, of) in [(&mut a, "pool"), (&mut pool, "a"), (&mut proxy, "pool")] {
        for function in ["documents", "found"] {
            assert_eq!(
                session.all::<String>(&format!("SELECT {function}_of_{of}()")),
                ["a"],
                "{function} {of}"
            );
        }
        session.run("SET kb.tenant = 'b'");
        for function in ["documents", "found", "put"] {
            session.refused(&format!("SELECT {function}_of_{of}()"), "42501");
        }
        session.run("RESET kb.tenant");
    }
    assert_eq!(pool.all::<String>("SELECT put_of_a()"), ["added"]);
    assert_eq!(db.all::<String>("SELECT tenant_id FROM kb.documents WHERE external_id = 'x'"), ["a"]);
    // Without the rights of a, pool is not bound.
    pool.run("SET kb.tenant = 'b'");
    assert_eq!(documents(&mut pool), ["b"]);
}

#[test]
fn roles_with_the_rights_of_a_bound_one_are_bound_and_a_new_name_frees_none() {
    let Some((cluster, mut db)) = bound() else { return };
    db.run("CREATE ROLE clerk LOGIN IN ROLE a");
    assert_eq!(documents(&mut cluster.connect_as(APP, "clerk")), ["a"]);
    db.run("ALTER ROLE a RENAME TO a_by_another_name");
    let mut renamed = cluster.connect_as(APP, "a_by_another_name");
    assert_eq!(documents(&mut renamed), ["a"]);
    renamed.run("SET kb.tenant = 'b'");
    renamed.refused("SELECT FROM kb.documents", "42501");
    // A role that gets the old name is bound, too, and so is a role that was dropped and created again.
    db.run("CREATE ROLE a LOGIN IN ROLE kb_reader; DROP ROLE b; CREATE ROLE b LOGIN IN ROLE kb_reader");
    assert_eq!(documents(&mut cluster.connect_as(APP, "a")), ["a"]);
    assert_eq!(documents(&mut cluster.connect_as(APP, "b")), ["b"]);
    assert_eq!(db.one::<i64>("SELECT kb.unbind_role('a_by_another_name', 'a')"), 1);
    renamed.run("SET kb.tenant = 'b'");
    assert_eq!(documents(&mut renamed), ["b"]);
}

#[test]
fn sessions_that_are_open_are_bound_and_unbound_at_the_commit() {
    let Some((cluster, mut db)) = bound() else { return };
    let mut pool = cluster.connect_as_tenant("pool", "c");
    assert_eq!(documents(&mut pool), ["c"]);
    // Also under a snapshot from before.
    let mut old = cluster.connect_as(APP, "pool");
    old.run("SET kb.tenant = 'c'; BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(documents(&mut old), ["c"]);
    db.run("BEGIN; SELECT kb.bind_role('pool', 'a')");
    assert_eq!(documents(&mut pool), ["c"]);
    db.run("COMMIT");
    for session in [&mut pool, &mut old] {
        session.refused("SELECT FROM kb.documents", "42501");
    }
    pool.run("RESET kb.tenant");
    assert_eq!(documents(&mut pool), ["a"]);
    // By hand, as a superuser may.
    db.run("DELETE FROM kb.tenant_roles WHERE role_name = 'pool'");
    pool.run("SET kb.tenant = 'c'");
    assert_eq!(documents(&mut pool), ["c"]);
    db.run("INSERT INTO kb.tenant_roles VALUES ('pool', NULL, 'b')");
    pool.refused("SELECT FROM kb.documents", "42501");
    assert_eq!(db.one::<i64>("SELECT kb.unbind_role('pool')"), 1);
    assert_eq!(documents(&mut pool), ["c"]);
}

#[test]
fn a_bound_role_binds_no_role_and_an_unsuitable_role_is_not_bound() {
    let Some((cluster, mut db)) = bound() else { return };
    db.run("CREATE ROLE chief LOGIN IN ROLE kb_admin; CREATE ROLE free LOGIN IN ROLE kb_admin; CREATE ROLE blind BYPASSRLS");
    db.run("SELECT kb.bind_role('chief', 'a')");
    let (mut chief, mut free) = (cluster.connect_as(APP, "chief"), cluster.connect_as(APP, "free"));
    for sql in [
        "SELECT kb.bind_role('pool', 'a')",
        "SELECT kb.unbind_role('chief')",
        "SELECT kb.bind_role('chief', 'b')",
    ] {
        chief.refused(sql, "42501");
    }
    assert_eq!(
        chief.all::<String>("SELECT role_name::text FROM kb.tenant_roles ORDER BY 1"),
        ["a", "chief", "either"]
    );
    assert_eq!(free.count("kb.tenant_roles"), 5);
    assert!(!free.one::<bool>("SELECT kb.bind_role('chief', 'a')"));
    for (sql, code) in [
        ("SELECT kb.bind_role('postgres', 'a')", "22023"),
        ("SELECT kb.bind_role('blind', 'a')", "22023"),
        ("SELECT kb.bind_role('kb_reader', 'a')", "22023"),
        ("SELECT kb.bind_role('is_not_there', 'a')", "42704"),
        ("SELECT kb.bind_role('pool', E'a\\nb')", "22023"),
        ("SELECT kb.bind_role(NULL, 'a')", "22004"),
    ] {
        free.refused(sql, code);
    }
    let mut a = cluster.connect_as(APP, "a");
    for sql in [
        "SELECT kb.bind_role('pool', 'a')",
        "SELECT FROM kb.tenant_roles",
        "INSERT INTO kb.tenant_roles VALUES ('pool', 0, 'a')",
    ] {
        a.refused(sql, "42501");
    }
}

#[test]
fn tenant_shared_is_written_by_kb_admin_only() {
    let Some((cluster, mut db)) = bound() else { return };
    db.run("CREATE ROLE librarian LOGIN IN ROLE kb_admin; CREATE TABLE t (id int PRIMARY KEY, tenant text, body text)");
    db.run("ALTER TABLE t OWNER TO pool; INSERT INTO t VALUES (1, 'a', 'A row of a.'), (2, 'shared', 'A row of all.')");
    let mut pool = cluster.connect_as_tenant("pool", "shared");
    for sql in [
        "SELECT kb.create_knowledge_base('for all', 'hash')",
        "SELECT kb.put_document('k', 'd', 'x')",
        "SELECT kb.attach_table('k', 't', 'body')",
        "SELECT * FROM kb.embed('hash', '{a}', 'query')",
    ] {
        pool.refused(sql, "42501");
    }
    let mut librarian = cluster.connect_as(APP, "librarian");
    librarian.run("SET kb.tenant = 'shared'; SELECT kb.create_knowledge_base('for all', 'hash')");
    librarian.put_and_wait("for all", "d", "What everybody may read.");
    assert_eq!(cluster.connect_as(APP, "a").found("for all", "what", 9), ["d"]);
    // Nor by a column that names it: pool owns the table, and is no kb_admin.
    pool.run("SET kb.tenant = 'c'; SELECT kb.attach_table('k', 't', 'body', tenant => 'tenant')");
    pool.wait("k");
    // It does not wait for documents of a.
    db.run("SET kb.tenant = 'c'");
    db.wait("k");
    db.run("RESET kb.tenant");
    assert_eq!(db.all::<String>("SELECT tenant_id FROM kb.documents WHERE external_id IN ('1', '2')"), ["a"]);
    let error: String = pool.one("SELECT error FROM kb.sources");
    assert!(error.contains("\"pool\" may not act for its tenant"), "{error}");
}

#[test]
fn rows_of_a_bound_roles_table_are_of_its_tenants_only() {
    let Some((cluster, mut db)) = bound() else { return };
    db.run("CREATE TABLE t (id int PRIMARY KEY, tenant text, body text); ALTER TABLE t OWNER TO a");
    db.run("INSERT INTO t VALUES (1, 'a', 'Seen by its own.'), (2, 'b', 'Smuggled to another.')");
    let mut a = cluster.connect_as(APP, "a");
    a.run_and_wait("k", "SELECT kb.attach_table('k', 't', 'body', tenant => 'tenant')");
    a.run("INSERT INTO t VALUES (3, 'c', 'Smuggled to a third.'), (4, 'a', 'Seen as well.'); UPDATE t SET tenant = 'b' WHERE id = 1");
    a.wait("k");
    assert_eq!(
        db.all::<String>(
            "SELECT concat(tenant_id, ' ', external_id) FROM kb.documents WHERE source_no IS NOT NULL"
        ),
        ["a 4"]
    );
}

#[test]
fn a_role_that_was_made_again_and_bound_again_is_bound_under_a_new_name_too() {
    let Some((cluster, mut db)) = bound() else { return };
    db.run("DROP ROLE b; CREATE ROLE b LOGIN IN ROLE kb_reader");
    assert!(!db.one::<bool>("SELECT kb.bind_role('b', 'b')"));
    db.run("ALTER ROLE b RENAME TO b_by_another_name");
    let mut renamed = cluster.connect_as(APP, "b_by_another_name");
    assert_eq!(documents(&mut renamed), ["b"]);
    renamed.run("SET kb.tenant = 'a'");
    renamed.refused("SELECT FROM kb.documents", "42501");
}

#[test]
fn a_prepared_statement_in_an_open_transaction_is_bound_too() {
    let Some((cluster, mut db)) = bound() else { return };
    let mut pool = cluster.connect_as(APP, "pool");
    pool.run("SET kb.tenant = 'c'; PREPARE p AS SELECT count(*) FROM kb.documents");
    // Often enough for a plan to be kept.
    pool.run(&"EXECUTE p;".repeat(7));
    pool.run("BEGIN; EXECUTE p");
    db.run("SELECT kb.bind_role('pool', 'a')");
    pool.refused("EXECUTE p", "42501");
}

#[test]
fn code_of_a_bound_roles_table_is_bound_in_the_worker_too() {
    let Some((cluster, mut db)) = bound() else { return };
    db.run("GRANT CREATE ON SCHEMA public TO a, pool; SET ROLE pool");
    // A function of a role that is not bound, and one of a bound role that calls it where its rows are read.
    db.run(
        "CREATE FUNCTION documents_of(tenant text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$BEGIN
             PERFORM set_config('kb.tenant', tenant, true);
             RETURN (SELECT string_agg(content, ' ') FROM kb.documents);
         END$$; SET ROLE a;
         CREATE FUNCTION spy(id int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$BEGIN
             RAISE LOG 'spied: %', public.documents_of('b');
             RETURN true;
         EXCEPTION WHEN insufficient_privilege THEN RAISE LOG 'refused to spy'; RETURN true; END$$;
         CREATE TABLE t (id int PRIMARY KEY, body text); INSERT INTO t VALUES (1, 'A row'); RESET ROLE",
    );
    let mut a = cluster.connect_as(APP, "a");
    a.run_and_wait("k", "SELECT kb.attach_table('k', 't', 'body', published_when => 'public.spy(id)')");
    a.run_and_wait("k", "UPDATE t SET body = 'Another row'");
    let log = cluster.log();
    assert!(log.contains("refused to spy") && !log.contains("spied: "), "{log}");
}

/// The documents that come from tables, with their content and tenant.
fn of_rows(db: &mut Db) -> Vec<String> {
    db.all("SELECT concat_ws(' ', tenant_id, external_id, content) FROM kb.documents WHERE source_no IS NOT NULL ORDER BY 1")
}

#[test]
fn rows_belong_only_to_tenants_for_which_the_attaching_roles_may_act() {
    let Some((cluster, mut db)) = bound() else { return };
    // A group without bindings owns the tables; a and taker, who are bound to a, are its members.
    db.run(
        "CREATE ROLE owners IN ROLE kb_writer; GRANT owners TO a; GRANT CREATE ON SCHEMA public TO owners;
         CREATE ROLE taker LOGIN NOINHERIT IN ROLE owners; SELECT kb.bind_role('taker', 'a'); SET ROLE owners;
         CREATE FUNCTION attach(t text) RETURNS bigint LANGUAGE sql SECURITY DEFINER AS
             $$SELECT kb.attach_table('k', t::regclass, 'body', tenant => 'whose')$$; RESET ROLE",
    );
    let attach = |table: &str| format!("SELECT kb.attach_table('k', '{table}', 'body', tenant => 'whose')");
    for (table, role, sql) in [
        ("inherited", "a", attach("inherited")),
        ("taken", "taker", format!("SET ROLE owners; {}", attach("taken"))),
        ("defined", "a", "SELECT attach('defined')".to_string()),
    ] {
        db.run(&format!(
            "SET ROLE owners; CREATE TABLE {table} (id text PRIMARY KEY, whose text, body text); RESET ROLE;
             INSERT INTO {table} VALUES ('1 {table}', 'a', 'Its own'), ('2 {table}', 'b', 'Smuggled')"
        ));
        cluster.connect_as(APP, role).run(&sql);
        db.run("SET kb.tenant = 'a'");
        db.wait("k");
        db.run(&format!(
            "INSERT INTO {table} VALUES ('3 {table}', 'b', 'Smuggled later'), ('4 {table}', 'shared', 'Smuggled to all')"
        ));
        db.wait("k");
        assert_eq!(of_rows(&mut db), [format!("a 1 {table} Its own")], "{table}");
        let error: String = db.one("SELECT error FROM kb.sources");
        assert!(error.contains("may not act for its tenant"), "{error}");
        db.run(&format!("SELECT kb.detach_table('k', '{table}', false); RESET kb.tenant"));
    }
}

#[test]
fn a_role_that_is_bound_after_attaching_writes_to_no_other_tenant() {
    let Some((cluster, mut db)) = bound() else { return };
    db.run("CREATE TABLE t (id int PRIMARY KEY, whose text, body text); CREATE ROLE owners IN ROLE kb_writer; ALTER TABLE t OWNER TO owners; GRANT owners TO pool");
    db.run("INSERT INTO t VALUES (1, 'a', 'Of a'), (2, 'b', 'Of b')");
    let mut pool = cluster.connect_as(APP, "pool");
    pool.run("SET kb.tenant = 'a'; SELECT kb.attach_table('k', 't', 'body', tenant => 'whose')");
    db.run("SET kb.tenant = 'a'");
    db.wait("k");
    assert_eq!(of_rows(&mut db), ["a 1 Of a", "b 2 Of b"]);
    db.run("SELECT kb.bind_role('pool', 'a')");
    db.run(
        "UPDATE t SET body = body || ' edited'; INSERT INTO t VALUES (3, 'b', 'Later'), (4, 'a', 'Later')",
    );
    db.wait("k");
    assert_eq!(of_rows(&mut db), ["a 1 Of a edited", "a 4 Later", "b 2 Of b"]);
    // Nor by a job that another role makes.
    db.run("SET kb.tenant = 'b'; UPDATE kb.jobs SET source_no = source_no; SELECT kb.ingest('k'); SET kb.tenant = 'a'; SELECT kb.ingest('k')");
    db.wait("k");
    assert!(of_rows(&mut db).contains(&"b 2 Of b".to_string()));
    // Under another name it is bound, too; of a role that is gone it is unknown for whom it may act.
    for sql in [
        "ALTER ROLE pool RENAME TO pond",
        "SELECT kb.unbind_role('pond'); DROP OWNED BY pond; DROP ROLE pond",
    ] {
        db.run(sql);
        db.run_and_wait("k", "UPDATE t SET body = body || ' again' WHERE id < 3");
        let rows = of_rows(&mut db);
        assert!(rows.contains(&"b 2 Of b".to_string()), "{sql}: {rows:?}");
        assert!(rows.iter().any(|row| row.starts_with("a 1 Of a edited again")), "{sql}: {rows:?}");
    }
    let error: String = db.one("SELECT error FROM kb.sources");
    assert!(error.contains("\"pool\"") && error.contains("attach the table again"), "{error}");
    db.run_and_wait("k", "SELECT kb.attach_table('k', 't', 'body', tenant => 'whose')");
    assert!(of_rows(&mut db).contains(&"b 3 Later".to_string()));
    // Also without a column that holds the tenant: a role that is bound elsewhere no longer writes to the
    // knowledge base.
    db.run("CREATE TABLE plain (id text PRIMARY KEY, body text); ALTER TABLE plain OWNER TO either; SELECT kb.unbind_role('either')");
    let mut either = cluster.connect_as(APP, "either");
    either.run("SET kb.tenant = 'c'; SELECT kb.attach_table('k', 'plain', 'body')");
    db.run(
        "SELECT kb.bind_role('either', 'a'); INSERT INTO plain VALUES ('plain', 'To c'); SET kb.tenant = 'c'",
    );
    db.wait("k");
    assert_eq!(db.count("kb.documents WHERE external_id = 'plain'"), 0);
}
