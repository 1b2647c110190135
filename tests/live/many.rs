//! Many knowledge bases and tenants: those without work cost nothing, and those with work take turns.

use crate::stub::{Options, Stub};
use crate::support::{Db, Document, LONG, SOON, texts, until};
use std::time::Duration;

/// Creates this many knowledge bases of the session's tenant, in one shared vector table.
fn create_many(db: &mut Db, prefix: &str, count: usize) {
    db.run(&format!(
        "SELECT kb.create_knowledge_base('{prefix}' || i, embedder => 'hash', vector_db => 'shared') FROM generate_series(1, {count}) AS i"
    ));
}

fn create_shared_table(db: &mut Db) {
    db.run("SELECT kb.create_vector_db('shared', 'pgvector', 384)");
}

/// The rows of kb's tables that statements have read since the server started, by index or not.
fn rows_read(db: &mut Db) -> i64 {
    db.one(
        "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables
         WHERE schemaname = 'kb' AND relname <> 'embedders'",
    )
}

/// How often the worker has looked for due jobs; it reports statistics once a second.
fn looks(db: &mut Db) -> i64 {
    db.one("SELECT idx_scan FROM pg_stat_user_indexes WHERE schemaname = 'kb' AND indexrelname = 'jobs_due'")
}

/// The rows that were read for documents of one knowledge base, and then by the idle worker that looks for
/// more.
fn cost_of_documents(db: &mut Db, round: usize) -> i64 {
    // What was done before is reported.
    let settle = |db: &mut Db| {
        let from = looks(db);
        until(LONG, "the idle worker looks for jobs", || looks(db) > from + 40);
        rows_read(db)
    };
    let before = settle(db);
    for i in 0..10 {
        db.put_and_wait("k1", &format!("{round}-{i}"), &texts::paragraph((round * 10 + i) as u64, 20));
    }
    settle(db) - before
}

#[test]
fn knowledge_bases_and_tenants_without_work_cost_the_worker_nothing() {
    let (_cluster, mut db) = crate::connected!("kb.worker_idle_timeout = '1h'", "autovacuum = off");
    create_shared_table(&mut db);
    create_many(&mut db, "k", 10);
    db.put_and_wait("k1", "first", &texts::paragraph(1, 20));
    let few = cost_of_documents(&mut db, 1);
    create_many(&mut db, "more", 600);
    for tenant in 0..60 {
        db.run(&format!("SET kb.tenant = 't{tenant}'"));
        create_many(&mut db, "k", 10);
    }
    db.run("RESET kb.tenant");
    let many = cost_of_documents(&mut db, 2);
    // There are 1,200 more: a visit to each would show.
    assert!(many < 2 * few + 500, "{few} rows were read for 10 knowledge bases, {many} for 1,210");
    assert_eq!(db.count("kb.documents WHERE status = 'ready'"), 21);
}

#[test]
fn a_document_costs_no_more_where_there_are_many() {
    let stub = Stub::start(Options::default());
    // Requests wait, and documents are examined together.
    stub.set_latency(Duration::from_millis(20));
    let (_cluster, mut db) = crate::connected!("kb.worker_idle_timeout = '1h'", "autovacuum = off");
    db.create_stub_embedder("e", &stub, r#"{"batch_size": 96, "max_concurrency": 8}"#);
    // There is no index, so only documents cost anything.
    db.run("SELECT kb.create_vector_db('v', dimension => 8, config => '{\"min_rows\": 100000000}')");
    db.run("SELECT kb.create_knowledge_base('k', 'e', 'v', chunking => '{\"strategy\": \"none\"}')");
    let put = |db: &mut Db, ids: std::ops::Range<u64>| {
        let documents: Vec<Document> =
            ids.map(|i| Document::new(i.to_string(), texts::paragraph(i, 20))).collect();
        db.put_all_and_wait("k", &documents);
    };
    let settle = |db: &mut Db| {
        let from = looks(db);
        until(LONG, "the idle worker looks for jobs", || looks(db) > from + 40);
        rows_read(db)
    };
    let cost = |db: &mut Db, ids: std::ops::Range<u64>| {
        let before = settle(db);
        put(db, ids);
        settle(db) - before
    };
    // As without statistics: the planner expects 200 documents.
    db.run("ALTER TABLE kb.chunks ALTER document_id SET (n_distinct = 200)");
    // The worker begins with the first.
    put(&mut db, 0..400);
    let few = cost(&mut db, 400..800);
    cost(&mut db, 800..8000);
    db.run("ANALYZE kb.chunks");
    let many = cost(&mut db, 8000..8400);
    db.run("ALTER TABLE kb.chunks ALTER document_id RESET (n_distinct); ANALYZE kb.documents, kb.chunks");
    let with_statistics = cost(&mut db, 8400..8800);
    assert!(
        many.max(with_statistics) < 2 * few + 500,
        "{few} rows were read for 400 documents among few, {many} among 8,000, {with_statistics} with statistics"
    );
}

#[test]
fn a_tenant_of_many_knowledge_bases_delays_no_other() {
    let (_cluster, mut db) = crate::connected!();
    create_shared_table(&mut db);
    let documents = |count| -> Vec<Document> {
        (0..count).map(|i| Document::new(i.to_string(), texts::paragraph(i, 20))).collect()
    };
    // All are committed at once.
    db.run("BEGIN; SET LOCAL kb.tenant = 'large'");
    create_many(&mut db, "k", 60);
    for kb in 1..=60 {
        db.put_all(&format!("k{kb}"), &documents(20));
    }
    // More than are claimed from one backlog at once.
    for tenant in ["before", "small"] {
        db.run(&format!("SET LOCAL kb.tenant = '{tenant}'"));
        create_many(&mut db, "s", 1);
        db.put_all("s1", &documents(64));
    }
    db.run("COMMIT");
    until(LONG, "all are ready", || db.count("kb.documents WHERE status = 'ready'") == 1328);
    for tenant in ["before", "small"] {
        let earlier = db.count(&format!(
            "kb.documents WHERE tenant_id = 'large' AND processed_at <
             (SELECT max(processed_at) FROM kb.documents WHERE tenant_id = '{tenant}')"
        ));
        assert!(earlier < 600, "{earlier} of 1,200 documents came before the last of tenant {tenant}");
    }
}

#[test]
fn every_backlog_of_many_tenants_is_worked_off() {
    let (_cluster, mut db) = crate::connected!();
    create_shared_table(&mut db);
    // More tenants than get turns at once, some with several knowledge bases.
    db.run("BEGIN");
    let mut documents = 0;
    for tenant in 0..300 {
        db.run(&format!("SET LOCAL kb.tenant = 'tenant {tenant}'"));
        let kbs = if tenant % 50 == 0 { 10 } else { 1 };
        create_many(&mut db, "k", kbs);
        for kb in 1..=kbs {
            db.put(&format!("k{kb}"), "d", &texts::paragraph(tenant, 10));
            documents += 1;
        }
    }
    db.run("COMMIT");
    until(LONG, "all are ready", || db.count("kb.documents WHERE status = 'ready'") == documents);
    assert_eq!(db.jobs(), 0);
}

#[test]
fn a_delayed_job_is_due_again_when_its_time_has_come_and_not_before() {
    let (_cluster, mut db) = crate::with_kb!("hash", "{}", ["kb.worker_idle_timeout = '1h'"]);
    db.run("BEGIN");
    db.put("k", "d", "It waits for a while.");
    db.run("UPDATE kb.jobs SET next_attempt_at = clock_timestamp() + interval '2 s'");
    let begun: f64 = db.one("SELECT extract(epoch FROM clock_timestamp())::float8");
    db.run("COMMIT");
    until(SOON, "it is ready", || db.count("kb.documents WHERE external_id = 'd' AND status = 'ready'") == 1);
    let took: f64 = db.one(&format!(
        "SELECT extract(epoch FROM processed_at)::float8 - {begun} FROM kb.documents WHERE external_id = 'd'"
    ));
    assert!(took >= 2.0, "it was worked on after {took} s");
}

#[test]
fn documents_of_a_transaction_cost_the_same_each_after_a_vacuum_of_empty_tables() {
    let (_cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", "{}");
    for table in ["documents", "jobs", "quota_counts"] {
        db.run(&format!("VACUUM ANALYZE kb.{table}"));
    }
    db.run("BEGIN");
    let mut read = Vec::new();
    for batch in 0..3 {
        db.run(&format!(
            "SELECT count(*) FROM kb.put_documents('k', ARRAY(SELECT jsonb_build_object('external_id', 'd{batch}/' || i,
                 'content', 'Text ' || i) FROM generate_series(1, 400) i))"
        ));
        read.push(db.one::<i64>(
            "SELECT sum(seq_tup_read)::bigint FROM pg_stat_xact_user_tables WHERE schemaname = 'kb' AND relname <> 'embedders'",
        ));
    }
    db.run("ROLLBACK");
    assert!(read[2] < 2000, "rows that were read one after the other: {read:?}");
}
