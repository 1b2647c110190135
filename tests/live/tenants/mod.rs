//! Promise 6: no tenant reads another's rows, by any function, view or error message.

mod bound;
mod moved;
mod quotas;
mod shared;

use crate::support::{APP, Cluster, Db, SOON, WHOLE, assert_sound, until, vector_table};

/// Tenants a, b and shared: roles of the same names that may write, each with a document of its own in a
/// knowledge base of the same name, and one in a knowledge base that only it has.
fn tenants() -> Option<(Cluster, Db)> {
    let (cluster, mut db) = Cluster::connected(&[])?;
    for tenant in ["a", "b", "shared"] {
        let group = if tenant == "shared" { "kb_admin" } else { "kb_writer" };
        db.run(&format!("CREATE ROLE {tenant} LOGIN IN ROLE {group}"));
        let mut session = as_tenant(&cluster, tenant);
        for kb in ["handbook", &format!("only_{tenant}")] {
            session.create_kb(kb, "hash", WHOLE);
            session.put(kb, "d", &format!("The secret of {tenant} in {kb}."));
            // A document that fails, so that kb.failures has a row.
            session.wait(kb);
        }
        session.create_kb("failing", "minilm", WHOLE);
        session.put_and_wait("failing", &format!("{tenant}-long"), &format!("secret {tenant} ").repeat(400));
        db.run(&format!("CREATE TABLE rows_{tenant} (id int PRIMARY KEY, body text); ALTER TABLE rows_{tenant} OWNER TO {tenant}"));
        session.run(&format!(
            "SELECT kb.attach_table('handbook', 'rows_{tenant}', 'body'); SELECT kb.ingest('handbook')"
        ));
        session.wait("handbook");
    }
    Some((cluster, db))
}

fn as_tenant(cluster: &Cluster, tenant: &str) -> Db {
    cluster.connect_as_tenant(tenant, tenant)
}

#[test]
fn no_table_or_view_shows_a_tenant_more_than_its_own_and_what_is_shared() {
    let Some((cluster, mut db)) = tenants() else { return };
    let relations: Vec<String> = db.all(
        "SELECT format('kb.%I', c.relname) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
         WHERE c.relnamespace = 'kb'::regnamespace AND c.relkind IN ('r', 'v') AND a.attname = 'tenant_id'",
    );
    // 31 tables, 4 views, 9 vector tables.
    assert_eq!(relations.len(), 44, "{relations:?}");
    db.run(
        "INSERT INTO kb.jobs (kb_no, tenant_id, subject, next_attempt_at)
            SELECT kb_no, tenant_id, external_id, 'infinity' FROM kb.documents WHERE external_id = 'd'",
    );
    db.run(
        "INSERT INTO kb.usage (endpoint, kb_no, tenant_id, day) SELECT embedder, kb_no, tenant_id, now() FROM kb.knowledge_bases",
    );
    // The tables that the statements of tenants above do not fill.
    db.run(
        "INSERT INTO kb.bm25_segments (build_no, kb_no, tenant_id, age, came, went, sum_length)
            SELECT build_no, kb_no, tenant_id, 1, 0, 0, 0 FROM kb.builds;
         INSERT INTO kb.metadata_indexes (kb_no, tenant_id, key, type)
            SELECT kb_no, tenant_id, 'k', 'text' FROM kb.knowledge_bases;
         INSERT INTO kb.index_recall (kb_no, tenant_id, build_no, measured_at, recall, sample)
            SELECT kb_no, tenant_id, build_no, now(), 1, 0 FROM kb.builds WHERE state = 'live';
         INSERT INTO kb.eval_sets (kb_no, tenant_id, name) SELECT kb_no, tenant_id, 'e' FROM kb.knowledge_bases;
         INSERT INTO kb.eval_questions (eval_set_no, tenant_id, question_id, question, relevant)
            SELECT eval_set_no, tenant_id, 'q', 'secret?', '{}' FROM kb.eval_sets;
         INSERT INTO kb.memory_stores (kb_no, tenant_id, settings) SELECT kb_no, tenant_id, '{}' FROM kb.knowledge_bases;
         INSERT INTO kb.memory_entries (document_id, kb_no, tenant_id, subject, tags, confidence, valid_from)
            SELECT document_id, kb_no, tenant_id, 's', '{}', 1, now() FROM kb.documents;
         INSERT INTO kb.bindings (tenant_id, scope, id_ref) SELECT tenant_id, 'project', id FROM kb.knowledge_bases",
    );
    // No role may read vectors, words that wait to be folded, and the worker's notes (tests/live/vectors.rs).
    // Bindings, shares and quotas are seen by those whom they concern (bound.rs, shared.rs, quotas.rs),
    // logged questions and conversations by the tenant that had them (query_log.rs, conversations.rs).
    let others = [
        ".vectors_",
        ".tail_vectors",
        ".bm25_pending",
        ".reading_rests",
        ".query_",
        ".conversations",
        ".turns",
        ".summaries",
        ".extractions",
        ".chat_requests",
        ".tenant_roles",
        ".api_keys",
        ".shares",
        ".quota",
    ];
    let relations: Vec<String> = relations
        .into_iter()
        .filter(|relation| !others.iter().any(|other| relation.contains(other)))
        .collect();
    let mut b = as_tenant(&cluster, "b");
    for relation in &relations {
        let tenants: Vec<String> = b.all(&format!("SELECT DISTINCT tenant_id FROM {relation} ORDER BY 1"));
        assert_eq!(tenants, ["b", "shared"], "{relation}");
    }
    // Every table with rows of tenants is under forced row-level security, so that it also applies to the
    // owner.
    let open: Vec<String> = db.all(
        "SELECT c.relname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND attname = 'tenant_id'
         WHERE c.relnamespace = 'kb'::regnamespace AND c.relkind = 'r'
           AND NOT (c.relrowsecurity AND c.relforcerowsecurity)",
    );
    assert!(open.is_empty(), "{open:?}");
    // An unset tenant is a tenant of its own, not all of them.
    let mut unset = cluster.connect_as(APP, "a");
    for relation in &relations {
        let tenants: Vec<String> = unset.all(&format!("SELECT DISTINCT tenant_id FROM {relation}"));
        assert!(tenants.iter().all(|t| t == "shared"), "{relation}: {tenants:?}");
    }
}

#[test]
fn a_query_finds_the_own_tenants_text_only() {
    let Some((cluster, mut db)) = tenants() else { return };
    let vector: String =
        db.one("SELECT kb.embed('hash', ARRAY['The secret of a in handbook.'], 'query')::text");
    for tenant in ["a", "b"] {
        let mut session = as_tenant(&cluster, tenant);
        let own = [format!("The secret of {tenant} in handbook.")];
        let text = "SELECT content FROM kb.query('handbook', 'The secret of a in handbook.', 100)";
        assert_eq!(session.all::<String>(text), own);
        let sql = "SELECT content FROM kb.query_vector('handbook', $1::text::vector, 100)";
        assert_eq!(session.all_with::<String>(sql, &[&vector]), own);
        assert_eq!(session.found("only_shared", "secret", 100), ["d"], "what is shared is read by all");
    }
}

/// Statements that name a knowledge base, a document or a run.
fn attempts(kb: &str, document: &str, run: i64) -> Vec<String> {
    vec![
        format!("SELECT * FROM kb.query('{kb}', 'secret')"),
        format!("SELECT * FROM kb.query_vector('{kb}', '[1,2,3]')"),
        format!("SELECT kb.put_document('{kb}', '{document}', 'text')"),
        format!("SELECT kb.delete_document('{kb}', '{document}')"),
        format!("SELECT * FROM kb.delete_documents('{kb}', ARRAY['{document}'])"),
        format!("SELECT kb.retry('{kb}')"),
        format!("SELECT kb.ingest('{kb}', 'replace')"),
        format!("SELECT kb.wait('{kb}', 1)"),
        format!("SELECT kb.wait({run}::bigint, 1)"),
        format!("SELECT kb.alter_knowledge_base('{kb}', description => 'mine')"),
        format!("SELECT kb.drop_knowledge_base('{kb}')"),
    ]
}

#[test]
fn an_error_tells_no_tenant_what_another_has() {
    let Some((cluster, mut db)) = tenants() else { return };
    let run: i64 = db.one("SELECT max(run_no) FROM kb.runs WHERE tenant_id = 'a'");
    let mut b = as_tenant(&cluster, "b");
    for (theirs, nobodys) in attempts("only_a", "d", run).iter().zip(attempts("nobodys", "x", 999_999)) {
        let (theirs_fault, mut fault) = (b.fault(theirs), b.fault(&nobodys));
        let same = |text: &str| text.replace("nobodys", "only_a").replace("999999", &run.to_string());
        fault.message = same(&fault.message);
        fault.text = same(&fault.text);
        assert_eq!(theirs_fault, fault, "{theirs}");
        assert!(!theirs_fault.text.contains("secret of"), "{theirs_fault:?}");
    }
    // Rows of shared are read by all and written by its own tenant only.
    for statement in
        attempts("only_shared", "d", 0).iter().filter(|s| !s.contains("query") && !s.contains("wait"))
    {
        b.fault(statement);
    }
    // None of it happened.
    assert_eq!(db.count("kb.documents WHERE external_id = 'd'"), 6);
    assert_eq!(db.count("kb.knowledge_bases WHERE description IS NOT NULL"), 0);
    for kb in ["only_a", "only_b", "only_shared"] {
        assert_sound(&mut db, kb, 1, 0);
    }
}

#[test]
fn no_writer_reaches_into_another_tenants_rows_by_plain_sql() {
    let Some((cluster, mut db)) = tenants() else { return };
    let mut b = as_tenant(&cluster, "b");
    let table = vector_table(&mut db, "only_a");
    for statement in [
        "DELETE FROM kb.documents",
        "DELETE FROM kb.jobs",
        "UPDATE kb.documents SET tenant_id = 'a'",
        "UPDATE kb.documents SET tenant_id = 'shared'",
        "INSERT INTO kb.chunks SELECT * FROM kb.chunks",
        "DELETE FROM kb.chunks",
        "DELETE FROM kb.knowledge_bases",
        "UPDATE kb.builds SET state = 'old'",
        &format!("DELETE FROM {table}"),
        &format!("TRUNCATE {table}"),
        "TRUNCATE kb.documents CASCADE",
        "SELECT setval('kb.document_id_seq', 1)",
        "SELECT kb.create_embedder('mine', 'hash', dimension => 8)",
        "SELECT kb.create_vector_db('mine')",
    ] {
        b.refused(statement, "42501");
    }
    assert_eq!(db.count("kb.documents"), 9);
}

#[test]
fn a_tenant_changes_nothing_of_another_that_uses_the_same_names() {
    let Some((cluster, mut db)) = tenants() else { return };
    let mut b = as_tenant(&cluster, "b");
    assert_eq!(b.put("handbook", "d", "The new secret of b."), "updated");
    b.wait("handbook");
    assert_eq!(b.found("handbook", "secret", 5), ["d"]);
    b.run_and_wait("failing", "SELECT kb.retry('failing')");
    b.run_and_wait("handbook", "SELECT kb.ingest('handbook', 'replace')");
    assert!(b.one::<bool>("SELECT kb.delete_document('handbook', 'd')"));
    b.run("SELECT kb.drop_knowledge_base('handbook')");
    for tenant in ["a", "shared"] {
        let mut session = as_tenant(&cluster, tenant);
        assert_eq!(
            session.all::<String>("SELECT content FROM kb.query('handbook', 'secret')"),
            [format!("The secret of {tenant} in handbook.")]
        );
        assert_eq!(session.count("kb.failures WHERE tenant_id = kb.current_tenant()"), 1);
        assert_eq!(session.count("kb.runs WHERE tenant_id = kb.current_tenant()"), 1);
    }
    // Now the name denotes the shared one.
    assert_eq!(
        b.all::<String>("SELECT content FROM kb.query('handbook', 'secret')"),
        ["The secret of shared in handbook."]
    );
    assert_eq!(db.count("kb.knowledge_bases WHERE id = 'handbook'"), 2);
}

#[test]
fn no_writer_can_put_a_job_in_another_tenants_way() {
    let Some((cluster, mut db)) = tenants() else { return };
    let a_kb: i64 = db.one("SELECT kb_no FROM kb.knowledge_bases WHERE id = 'only_a'");
    let mut b = as_tenant(&cluster, "b");
    let _ = b.try_run(&format!(
        "INSERT INTO kb.jobs (kb_no, tenant_id, subject, next_attempt_at) VALUES ({a_kb}, 'b', 'd', 'infinity')"
    ));
    assert_eq!(db.count(&format!("kb.jobs WHERE kb_no = {a_kb}")), 0);
    let mut a = as_tenant(&cluster, "a");
    assert_eq!(a.put("only_a", "d", "A new text of a."), "updated");
    a.wait("only_a");
    assert_sound(&mut db, "only_a", 1, 0);
}

#[test]
fn no_constraint_tells_a_tenant_which_documents_another_has() {
    let Some((cluster, mut db)) = tenants() else { return };
    let a_kb: i64 = db.one("SELECT kb_no FROM kb.knowledge_bases WHERE id = 'only_a'");
    let mut b = as_tenant(&cluster, "b");
    let mut probe = |external_id: &str| {
        b.fault(&format!(
            "INSERT INTO kb.documents (kb_no, kb_id, tenant_id, external_id, content_type, content, content_hash)
             VALUES ({a_kb}, 'only_a', 'b', '{external_id}', 'text/plain', 'x', 'x')"
        ))
    };
    let (there, absent) = (probe("d"), probe("x"));
    assert_eq!(there.code, absent.code, "{there:?}\n{absent:?}");
}

#[test]
fn documents_of_two_tenants_by_one_name_in_one_knowledge_base_do_not_meet() {
    let Some((cluster, mut db)) = tenants() else { return };
    // No function makes such rows yet; attached tables with a tenant column do.
    let mine = "The secret of shared in only_shared.";
    for tenant in ["a", "b"] {
        db.run(&format!(
            "INSERT INTO kb.documents (kb_no, kb_id, tenant_id, external_id, content_type, content, content_hash)
                SELECT kb_no, id, '{tenant}', 'd', 'text/plain', '{mine}', 'x' FROM kb.knowledge_bases WHERE id = 'only_shared';
             INSERT INTO kb.jobs (kb_no, tenant_id, subject)
                SELECT kb_no, '{tenant}', 'd' FROM kb.knowledge_bases WHERE id = 'only_shared'"
        ));
    }
    db.wait("only_shared");
    assert_sound(&mut db, "only_shared", 3, 0);
    assert_eq!(
        db.count("kb.chunks WHERE kb_no = (SELECT kb_no FROM kb.knowledge_bases WHERE id = 'only_shared')"),
        3
    );
    let all = "SELECT DISTINCT tenant_id FROM kb.chunks WHERE content LIKE '%only_shared%' ORDER BY 1";
    for tenant in ["a", "b"] {
        let mut session = as_tenant(&cluster, tenant);
        assert_eq!(session.all::<String>(all), [tenant, "shared"]);
        assert_eq!(session.count("kb.documents WHERE kb_id = 'only_shared'"), 2);
        // Equal texts are one row; its other places are those of documents that the caller may read.
        let found = "SELECT jsonb_array_length(locator -> 'also_in') FROM kb.query('only_shared', 'secret')";
        assert_eq!(session.all::<Option<i32>>(found), [Some(1)]);
    }
    // What shared does to its own documents does nothing to theirs.
    let mut shared = as_tenant(&cluster, "shared");
    assert_eq!(shared.put("only_shared", "d", "A new text of shared."), "updated");
    shared.wait("only_shared");
    assert_sound(&mut db, "only_shared", 3, 0);
    assert_eq!(db.count(&format!("kb.chunks WHERE content = '{mine}'")), 2);
    assert!(shared.one::<bool>("SELECT kb.delete_document('only_shared', 'd')"));
    assert!(!shared.one::<bool>("SELECT kb.delete_document('only_shared', 'd')"));
    assert_sound(&mut db, "only_shared", 2, 0);
    let theirs: Vec<String> =
        db.all("SELECT tenant_id FROM kb.documents WHERE kb_id = 'only_shared' ORDER BY 1");
    assert_eq!(theirs, ["a", "b"]);
    // A run processes every tenant's documents.
    shared.run("SELECT kb.ingest('only_shared', 'replace')");
    db.wait("only_shared");
    until(SOON, "the old build is swept", || db.count("kb.builds WHERE state = 'old'") == 0);
    assert_sound(&mut db, "only_shared", 2, 0);
}

#[test]
fn the_caller_of_a_function_is_no_more_than_itself() {
    let Some((cluster, mut db)) = tenants() else { return };
    db.run("CREATE ROLE nobody LOGIN; CREATE ROLE onlooker LOGIN IN ROLE kb_reader");
    let mut nobody = cluster.connect_as(APP, "nobody");
    for statement in attempts("handbook", "d", 1) {
        nobody.refused(&statement, "42501");
    }
    let mut onlooker = cluster.connect_as_tenant("onlooker", "a");
    assert_eq!(onlooker.found("handbook", "secret", 5), ["d"]);
    for statement in
        attempts("handbook", "d", 1).iter().filter(|s| !s.contains("query") && !s.contains("wait"))
    {
        onlooker.refused(statement, "42501");
    }
}

#[test]
fn rows_with_an_impossible_tenant_are_refused_and_cost_no_other_row_an_attempt() {
    let (cluster, mut db) = crate::connected!();
    for kb in ["mine", "theirs"] {
        db.create_kb(kb, "hash", WHOLE);
    }
    let mut other = cluster.connect(APP);
    for name in ["repeat('t', 1100)", "E'a\\nb'", "repeat('t', 256)"] {
        other.run(&format!("SELECT set_config('kb.tenant', {name}, false)"));
        for statement in [
            "SELECT kb.create_knowledge_base('k', 'hash')",
            "SELECT kb.put_document('mine', 'd', 'A text.')",
            "SELECT kb.embed('hash', '{a text}')",
        ] {
            let fault = other.fault(statement);
            // No tenant has a knowledge base under that name.
            let is_refused = fault.code == "22023" && fault.message.contains("kb.tenant");
            assert!(is_refused || fault.code == "42704", "{name}: {statement}: {fault:?}");
            assert!(is_refused || statement.contains("put"), "{name}: {statement}: {fault:?}");
        }
    }
    assert_eq!(db.count("kb.knowledge_bases"), 2);
    // A row that a superuser wrote by hand does not stop the others, either.
    db.run(
        "SET session_replication_role = replica;
         UPDATE kb.knowledge_bases SET tenant_id = repeat('t', 1100) WHERE id = 'theirs';
         UPDATE kb.builds SET tenant_id = k.tenant_id FROM kb.knowledge_bases k WHERE k.kb_no = builds.kb_no;
         RESET session_replication_role;
         BEGIN;
         INSERT INTO kb.documents (kb_no, kb_id, tenant_id, external_id, content_type, content, content_hash)
             SELECT kb_no, id, tenant_id, 'd', 'text/plain', 'A text of theirs.', 'x' FROM kb.knowledge_bases WHERE id = 'theirs';
         INSERT INTO kb.jobs (kb_no, tenant_id, subject)
             SELECT kb_no, tenant_id, 'd' FROM kb.knowledge_bases WHERE id = 'theirs'",
    );
    db.put_all("mine", &crate::support::texts::documents(0..50, 12));
    db.run("COMMIT");
    db.wait("mine");
    assert_sound(&mut db, "mine", 50, 0);
    assert_eq!(db.count("kb.documents WHERE kb_id = 'mine' AND attempts > 0"), 0);
    until(SOON, "theirs is listed", || {
        db.count("kb.documents WHERE kb_id = 'theirs' AND status = 'failed'") == 1
    });
    let error: String = db.one("SELECT sqlstate || ' ' || error FROM kb.documents WHERE kb_id = 'theirs'");
    assert!(error.starts_with("54000 ") && error.contains("tenant"), "{error}");
    assert!(!cluster.log().contains("kb: worker: "), "the worker began again");
}
