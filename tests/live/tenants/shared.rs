//! Knowledge bases that a tenant shares with another (kb.share) can be read, and nothing else, until the
//! share ends.

use crate::support::{APP, Cluster, Db, SOON, until};

/// Tenants a, b and c with roles of the same names, which may write; each has a knowledge base "own", a and c
/// one named "k", which is shared with nobody yet.
fn tenants() -> Option<(Cluster, Db)> {
    let (cluster, mut db) = Cluster::connected(&[])?;
    db.run("SELECT kb.create_vector_db('one for all', dimension => 384)");
    for tenant in ["a", "b", "c"] {
        db.run(&format!(
            "CREATE ROLE {tenant} LOGIN IN ROLE kb_writer; SELECT kb.bind_role('{tenant}', '{tenant}')"
        ));
        let mut session = cluster.connect_as(APP, tenant);
        for kb in if tenant == "b" { &["own"][..] } else { &["own", "k"] } {
            session.run(&format!("SELECT kb.create_knowledge_base('{kb}', 'hash', 'one for all')"));
            session.put_and_wait(kb, tenant, &format!("What {tenant} knows of {kb}."));
        }
    }
    Some((cluster, db))
}

fn share(cluster: &Cluster, owner: &str, kb: &str, with: &str) {
    assert!(cluster.connect_as(APP, owner).one_with::<bool>("SELECT kb.share($1, $2)", &[&kb, &with]));
}

#[test]
fn a_shared_knowledge_base_is_read_by_that_tenant_and_written_by_its_owner() {
    let Some((cluster, _db)) = tenants() else { return };
    let (mut a, mut b, mut c) =
        (cluster.connect_as(APP, "a"), cluster.connect_as(APP, "b"), cluster.connect_as(APP, "c"));
    b.refused("SELECT * FROM kb.query('k', 'what')", "42704");
    assert!(a.one::<bool>("SELECT kb.share('k', 'b')"));
    assert!(!a.one::<bool>("SELECT kb.share('k', 'b')"));
    assert_eq!(b.found("k", "what is known?", 9), ["a"]);
    assert_eq!(
        b.all::<String>("SELECT content FROM kb.chunks WHERE tenant_id = 'a'"),
        ["What a knows of k."]
    );
    assert_eq!(b.all::<String>("SELECT kb_id FROM kb.documents ORDER BY 1"), ["k", "own"]);
    assert_eq!(b.all::<i64>("SELECT vectors FROM kb.status WHERE kb_id = 'k'"), [1]);
    let vector = "(SELECT v FROM kb.embed('hash', '{what}', 'query') v)";
    assert_eq!(b.all::<String>(&format!("SELECT external_id FROM kb.query_vector('k', {vector})")), ["a"]);
    for sql in [
        "SELECT kb.put_document('k', 'x', 'A text of b.')",
        "SELECT kb.delete_document('k', 'a')",
        "SELECT kb.ingest('k')",
        "SELECT kb.retry('k')",
        "SELECT kb.alter_knowledge_base('k', description => 'mine')",
        "SELECT kb.drop_knowledge_base('k')",
        "SELECT kb.share('k', 'c')",
        "SELECT kb.unshare('k', 'b')",
        "SELECT kb.reconcile('k')",
        "DELETE FROM kb.shares",
    ] {
        b.refused(sql, "42501");
    }
    // The third has its own of that name, and learns nothing about the other.
    assert_eq!(c.found("k", "what is known?", 9), ["c"]);
    assert_eq!(c.count("kb.shares"), 0);
    assert_eq!((a.count("kb.shares"), b.count("kb.shares")), (1, 1));
    // Documents that are put later are waited for and found.
    a.put("k", "later", "What a learnt later.");
    b.wait("k");
    assert_eq!(b.found("k", "What a learnt later.", 1), ["later"]);
    assert!(a.one::<bool>("SELECT kb.unshare('k', 'b')"));
    assert!(!a.one::<bool>("SELECT kb.unshare('k', 'b')"));
    b.refused("SELECT * FROM kb.query('k', 'what')", "42704");
    assert_eq!(b.count("kb.documents"), 1);
    assert_eq!(b.count("kb.knowledge_bases"), 1);
}

#[test]
fn a_share_ends_with_its_commit_for_sessions_that_have_asked_before() {
    let Some((cluster, _db)) = tenants() else { return };
    let (mut a, mut b) = (cluster.connect_as(APP, "a"), cluster.connect_as(APP, "b"));
    for _ in 0..3 {
        a.run("BEGIN; SELECT kb.share('k', 'b')");
        b.refused("SELECT * FROM kb.query('k', 'what')", "42704");
        a.run("COMMIT");
        assert_eq!(b.found("k", "what is known?", 9), ["a"]);
        a.run("SELECT kb.unshare('k', 'b')");
        b.refused("SELECT * FROM kb.query('k', 'what')", "42704");
        a.run("BEGIN; SELECT kb.share('k', 'b'); ROLLBACK");
        assert_eq!(b.count("kb.documents"), 1);
    }
    a.run("SELECT kb.share('k', 'b'); SELECT kb.drop_knowledge_base('k')");
    assert_eq!(b.count("kb.shares"), 0);
}

#[test]
fn rows_of_a_third_tenant_in_a_shared_knowledge_base_are_not_shared() {
    let Some((cluster, mut db)) = tenants() else { return };
    // a's table has rows of a, b and c; a is not bound, so that it may have them.
    db.run("SELECT kb.unbind_role('a'); CREATE TABLE t (id int PRIMARY KEY, tenant text, body text); ALTER TABLE t OWNER TO a");
    db.run("INSERT INTO t VALUES (1, 'a', 'A row of a.'), (2, 'b', 'A row of b.'), (3, 'c', 'A row of c.')");
    let mut a = cluster.connect_as(APP, "a");
    a.run("SET kb.tenant = 'a'; SELECT kb.attach_table('k', 't', 'body', tenant => 'tenant')");
    db.run("SET kb.tenant = 'a'");
    db.wait("k");
    a.run("SELECT kb.share('k', 'b')");
    // c shares something with b as well, so that b may read some rows of c, not these.
    share(&cluster, "c", "own", "b");
    let mut b = cluster.connect_as(APP, "b");
    let of_k = "FROM kb.documents WHERE kb_id = 'k' ORDER BY 1";
    assert_eq!(b.all::<String>(&format!("SELECT external_id {of_k}")), ["1", "2", "a"]);
    let mut found = b.found("k", "a row", 9);
    found.sort();
    assert_eq!(found, ["1", "2", "a"]);
    for relation in ["chunks", "documents", "jobs", "builds", "knowledge_bases"] {
        let theirs = format!(
            "kb.{relation} WHERE tenant_id = 'c' AND kb_no <> (SELECT kb_no FROM kb.shares WHERE owner_id = 'c')"
        );
        assert_eq!(b.count(&theirs), 0, "{relation}");
    }
}

#[test]
fn a_name_denotes_the_own_then_the_common_then_the_first_shared_one() {
    let Some((cluster, mut db)) = tenants() else { return };
    share(&cluster, "c", "k", "b");
    share(&cluster, "a", "k", "b");
    let mut b = cluster.connect_as(APP, "b");
    assert_eq!(b.found("k", "what is known?", 9), ["c"]);
    db.run("SET kb.tenant = 'shared'; SELECT kb.create_knowledge_base('k', 'hash')");
    db.put_and_wait("k", "all", "What all know.");
    assert_eq!(b.found("k", "what is known?", 9), ["all"]);
    b.run("SELECT kb.create_knowledge_base('k', 'hash')");
    assert_eq!(b.found("k", "what is known?", 9), [""; 0]);
}

#[test]
fn a_share_that_is_impossible_is_refused() {
    let Some((cluster, mut db)) = tenants() else { return };
    let mut a = cluster.connect_as(APP, "a");
    for (sql, code) in [
        ("SELECT kb.share('k', 'a')", "22023"),
        ("SELECT kb.share('k', 'shared')", "22023"),
        ("SELECT kb.share('k', E'b\\n')", "22023"),
        ("SELECT kb.share('k', NULL)", "22004"),
        ("SELECT kb.share('none', 'b')", "42704"),
    ] {
        a.refused(sql, code);
    }
    db.run("SET kb.tenant = 'shared'; SELECT kb.create_knowledge_base('for all', 'hash')");
    db.refused("SELECT kb.share('for all', 'b')", "22023");
}

#[test]
fn a_tenant_with_a_share_delays_no_drop_by_an_open_transaction() {
    let (cluster, mut db) = crate::connected!();
    for tenant in ["a", "b"] {
        db.run(&format!(
            "CREATE ROLE {tenant} LOGIN IN ROLE kb_writer; SELECT kb.bind_role('{tenant}', '{tenant}')"
        ));
    }
    let (mut a, mut b) = (cluster.connect_as(APP, "a"), cluster.connect_as(APP, "b"));
    let ask =
        "SELECT chunk_id::text || ' ' || (locator ->> 'query_id') FROM kb.query('k', 'what is known?', 1)";
    for is_said_before in [false, true] {
        a.run(r#"SELECT kb.create_knowledge_base('k', 'hash', retrieval => '{"log": 1}')"#);
        a.put_and_wait("k", "d", "What a knows.");
        a.run("SELECT kb.share('k', 'b')");
        let answer: String = b.one(ask);
        let (chunk, id) = answer.split_once(' ').unwrap();
        let say = format!("SELECT kb.feedback('{id}', '{chunk}', true)");
        until(SOON, "the question is logged", || b.count("kb.query_log") == 1);
        if is_said_before {
            b.run(&say);
        }
        b.run(&format!("BEGIN; {ask}; {say}"));
        a.run("SET statement_timeout = '20s'; SELECT kb.drop_knowledge_base('k'); RESET statement_timeout");
        b.run("COMMIT");
        b.refused(ask, "42704");
        assert_eq!(b.count("kb.query_log"), 0);
    }
}

#[test]
fn a_tenant_can_refuse_a_share() {
    let Some((cluster, mut db)) = tenants() else { return };
    share(&cluster, "a", "k", "b");
    share(&cluster, "c", "k", "b");
    share(&cluster, "a", "k", "c");
    let mut b = cluster.connect_as(APP, "b");
    // A knowledge base of its own with the same id hides it, and is not refused.
    b.run("SELECT kb.create_knowledge_base('k', 'hash')");
    assert_eq!(b.count("kb.documents WHERE kb_id = 'k'"), 2);
    for (sql, is_ended) in [
        ("SELECT kb.refuse_share('k', 'a')", true),
        ("SELECT kb.refuse_share('k', 'a')", false),
        ("SELECT kb.refuse_share('own', 'c')", false),
        ("SELECT kb.refuse_share('k', 'b')", false),
    ] {
        assert_eq!(b.one::<bool>(sql), is_ended, "{sql}");
    }
    assert_eq!(b.all::<String>("SELECT tenant_id FROM kb.documents WHERE kb_id = 'k'"), ["c"]);
    assert_eq!(b.count("kb.knowledge_bases WHERE id = 'k'"), 2);
    // Another tenant's share of it stays, and so do shares that only others may refuse.
    assert_eq!(cluster.connect_as(APP, "c").count("kb.shares WHERE tenant_id = 'c'"), 1);
    assert!(!cluster.connect_as(APP, "a").one::<bool>("SELECT kb.refuse_share('k', 'c')"));
    assert_eq!(b.count("kb.shares"), 1);
    db.run("SET kb.tenant = 'shared'; SELECT kb.create_knowledge_base('for all', 'hash')");
    b.refused("SELECT kb.refuse_share('for all', 'shared')", "22023");
    db.run("CREATE ROLE reader LOGIN IN ROLE kb_reader; SELECT kb.bind_role('reader', 'b')");
    assert_eq!(cluster.connect_as(APP, "reader").fault("SELECT kb.refuse_share('k', 'c')").code, "42501");
}
