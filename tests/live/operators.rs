//! What the operators of a server see of kb: in its log, in pg_stat_activity, in kb.health and in kb.monitor.

use crate::stub::Fault;
use crate::support::{APP, Document, LONG, PRELOAD, SOON, WHOLE, signal, texts, until};

fn documents(count: u64) -> Vec<Document> {
    (0..count).map(|i| Document::new(format!("d{i}"), texts::text(i + 1, 3, 35))).collect()
}

#[test]
fn a_clean_shutdown_leaves_no_fatal_line_in_the_log() {
    let (cluster, mut db) = crate::with_kb!("static", "{}", [PRELOAD, "kb.worker_idle_timeout = '1h'"]);
    db.put_and_wait("k", "d", "Ships lie in the harbor.");
    let gateway = cluster.gateway();
    signal(gateway, libc::SIGTERM);
    until(SOON, "the gateway is started again", || cluster.try_gateway().is_some_and(|pid| pid != gateway));
    assert_eq!(db.found("k", "Where are the ships?", 1), ["d"]);
    drop(db);
    cluster.stop("fast", 10);
    let log = cluster.log();
    let fatal: Vec<&str> =
        log.lines().filter(|line| line.contains("FATAL") && line.contains("kb ")).collect();
    assert_eq!(fatal, [""; 0]);
    cluster.up();
}

#[test]
fn after_drop_extension_no_process_complains_of_missing_tables() {
    let (cluster, mut db) = crate::connected!(PRELOAD);
    db.create_slow_embedder(32);
    db.create_kb("k", "slow", r#"{"size": 50, "overlap": 5}"#);
    db.create_kb("h", "hash", r#"{"size": 50, "overlap": 5}"#);
    for round in 0..3 {
        db.put_all("k", &documents(60));
        db.put_all("h", &documents(2000));
        until(LONG, "the worker is at work", || db.count("kb.jobs WHERE leased_until IS NOT NULL") > 0);
        let worker = cluster.worker(APP);
        db.run("DROP EXTENSION kb");
        until(SOON, "the worker has left", || !cluster.processes("kb worker", Some(APP)).contains(&worker));
        let log = cluster.log();
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("does not exist")).collect();
        assert_eq!(lines, [""; 0], "round {round}");
        db.run("CREATE EXTENSION kb");
        db.create_slow_embedder(32);
        db.create_kb("k", "slow", r#"{"size": 50, "overlap": 5}"#);
        db.create_kb("h", "hash", r#"{"size": 50, "overlap": 5}"#);
    }
}

#[test]
fn pg_stat_activity_says_what_a_worker_does() {
    let (_cluster, mut db) = crate::connected!("kb.worker_idle_timeout = '1h'");
    db.create_slow_embedder(32);
    db.create_kb("k", "slow", r#"{"size": 50, "overlap": 5}"#);
    db.put_all("k", &documents(60));
    let says = "pg_stat_activity WHERE backend_type = 'kb worker' AND state = 'active'
                AND query ~ '^processing documents: [1-9][0-9]* under way, [1-9][0-9]* batches at the gateway$'";
    until(LONG, "it says that documents are under way", || db.count(says) == 1);
    db.wait("k");
    let idle = "pg_stat_activity WHERE backend_type = 'kb worker' AND state = 'idle' AND query = 'waiting for documents'";
    until(SOON, "it says that it waits", || db.count(idle) == 1);
}

#[test]
fn health_names_the_transaction_that_an_index_build_waits_for() {
    let (cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_vector_db('v', dimension => 384, config => '{\"min_rows\": 1}')");
    db.run("SELECT kb.create_knowledge_base('k', 'hash', 'v')");
    let mut other = cluster.connect(APP);
    other.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    let pid: i32 = other.one("SELECT pg_backend_pid()");
    db.put_all_and_wait("k", &documents(3));
    db.run("CREATE ROLE reader LOGIN; GRANT kb_reader TO reader");
    let mut reader = cluster.connect_as(APP, "reader");
    let says = format!(
        "kb.health() WHERE component = 'indexes' AND status = 'warning' AND detail ~ 'process {pid}, whose transaction has been open for [0-9]+ s$'"
    );
    until(LONG, "kb.health() names it", || reader.count(&says) == 1);
    other.run("COMMIT");
    until(LONG, "the build goes on", || {
        db.count("kb.health() WHERE component = 'indexes' AND status = 'ok'") == 1
    });
}

#[test]
fn health_warns_before_process_slots_are_short() {
    let (cluster, mut db) =
        crate::connected!(PRELOAD, "max_worker_processes = 8", "kb.worker_idle_timeout = '1h'");
    db.create_kb("k", "hash", "{}");
    db.put_and_wait("k", "d", "Ships lie in the harbor.");
    // A gateway, a launcher, a worker, an indexer; two parallel workers; one for logical replication.
    let fits = "kb.health() WHERE component = 'processes' AND status = 'ok' AND detail LIKE '7 of max_worker_processes = 8 may be needed: 4 for kb in 1 databases%'";
    assert_eq!(db.count(fits), 1);
    cluster.create_database("second");
    let mut second = cluster.connect("second");
    second.run("CREATE EXTENSION IF NOT EXISTS kb CASCADE");
    second.create_kb("k", "hash", "{}");
    second.put("k", "d", "Ships lie in the harbor.");
    second.wait("k");
    let warns = "kb.health() WHERE component = 'processes' AND status = 'warning' AND detail LIKE '9 of max_worker_processes = 8 may be needed: 6 for kb in 2 databases%'";
    assert_eq!(db.count(warns), 1);
    assert_eq!(second.count(warns), 1);
}

#[test]
fn a_member_of_pg_monitor_sees_counts_of_all_tenants_and_no_content() {
    let (cluster, mut db) = crate::connected!();
    for (tenant, count) in [("acme", 3), ("umbrella", 5)] {
        db.run(&format!("SET kb.tenant = '{tenant}'"));
        db.create_kb("k", "hash", "{}");
        db.put_all_and_wait("k", &documents(count));
    }
    db.run(
        "RESET kb.tenant; CREATE ROLE watcher LOGIN; GRANT pg_monitor TO watcher; CREATE ROLE plain LOGIN",
    );
    let mut watcher = cluster.connect_as(APP, "watcher");
    let rows = "SELECT concat_ws(' ', tenant_id, kb_id, documents, ready, pending, failed, chunks, due, delayed, leased, oldest_job, failing_sources)
                FROM kb.monitor() ORDER BY 1";
    assert_eq!(
        watcher.all::<String>(rows),
        ["acme k 3 3 0 0 3 0 0 0 0", "umbrella k 5 5 0 0 5 0 0 0 0"],
        "tenant, documents, ready, pending, failed, chunks, due, delayed, leased, failing sources"
    );
    for hidden in ["kb.documents", "kb.chunks", "kb.jobs"] {
        watcher.refused(&format!("SELECT FROM {hidden}"), "42501");
    }
    let mut plain = cluster.connect_as(APP, "plain");
    plain.refused("SELECT FROM kb.monitor()", "42501");
    // A tenant's reader is no monitoring role.
    db.run("GRANT kb_admin TO plain");
    plain.refused("SELECT FROM kb.monitor()", "42501");
}

#[test]
fn dead_rows_of_jobs_are_removed_by_autovacuum_as_they_come() {
    let (_cluster, mut db) =
        crate::with_kb!("hash", WHOLE, ["autovacuum_naptime = '1s'", "autovacuum = off"]);
    db.put_all_and_wait("k", &documents(1500));
    db.run("ALTER SYSTEM SET autovacuum = on");
    db.run("SELECT pg_reload_conf()");
    until(LONG, "autovacuum has been there", || {
        // The table was large once, so a fraction of its rows would be many. A session that counts its rows
        // meanwhile finds few.
        db.run(
            "UPDATE pg_class SET reltuples = 1e6, relpages = 20000 WHERE oid = 'kb.jobs'::regclass AND reltuples < 1e6
                 AND NOT EXISTS (SELECT FROM pg_stat_user_tables WHERE relid = oid AND autovacuum_count > 0)",
        );
        db.one::<bool>(
            "SELECT autovacuum_count > 0 FROM pg_stat_user_tables WHERE relid = 'kb.jobs'::regclass",
        )
    });
}

#[test]
fn a_document_that_waits_says_why_as_its_job_does_and_no_more_when_it_is_ready() {
    let (stub, _cluster, mut db) = crate::with_stub!("{}", WHOLE);
    stub.always(Some(Fault::Status(500)));
    db.put_all("k", &documents(3));
    let told = "kb.documents d JOIN kb.jobs j ON j.kb_no = d.kb_no AND j.subject = d.external_id
                WHERE d.status = 'pending' AND d.error = j.error AND d.error LIKE '%500%'";
    until(LONG, "documents and jobs say why", || db.count(told) == 3);
    stub.always(None);
    db.wait("k");
    assert_eq!(db.count("kb.documents WHERE status = 'ready' AND error IS NULL"), 3);
}

#[test]
fn a_refused_connection_is_reported_with_its_cause_even_during_a_pause() {
    let (_cluster, mut db) = crate::connected!();
    // Nothing listens on the port of a listener that was closed.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    db.run(&format!(
        "SELECT kb.create_embedder('e', 'openai', 'model', 8, 'http://{address}/v1',
             config => '{{\"retry\": {{\"max_attempts\": 1, \"base_ms\": 1, \"max_ms\": 1}}}}')"
    ));
    db.create_kb("k", "e", WHOLE);
    let cause = "it cannot be reached: Connection refused";
    let mut seen = Vec::new();
    until(LONG, "it is paused", || {
        let fault = db.fault("SELECT kb.query('k', 'x')");
        assert_eq!(fault.text.matches(cause).count(), 1, "{fault:?}");
        seen.push(fault.text);
        seen.last().is_some_and(|text| text.contains("paused"))
    });
    assert!(!seen[0].contains("paused"), "{seen:?}");
    db.put_all("k", &documents(1));
    let told = format!("kb.documents WHERE status = 'pending' AND error LIKE '%{cause}%'");
    until(LONG, "the document says why", || db.count(&told) == 1);
}
