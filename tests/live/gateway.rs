//! A gateway that does not answer: the error is clear and comes in time, and cancel works.

use crate::support::{APP, Fault, LONG, SOON, WHOLE, assert_sound, signal, texts, until};

const QUESTION: &str = "SELECT * FROM kb.query('k', 'where is the harbor?')";

#[test]
fn a_stopped_gateway_gives_a_clear_error_in_time_and_recovers() {
    let (cluster, mut db) = crate::with_kb!("minilm", "{}");
    db.put_and_wait("k", "d", "The harbor is south of the village.");
    // This session's connection to the gateway is open already, the other's is not.
    assert_eq!(db.found("k", "harbor", 1), ["d"]);
    let mut fresh = cluster.connect(APP);
    signal(cluster.gateway(), libc::SIGSTOP);
    for session in [&mut db, &mut fresh] {
        // A session that waited much longer than specified would be cancelled.
        session.run("SET kb.gateway_timeout = '1500ms'; SET statement_timeout = '60s'");
        for statement in
            [QUESTION, "SELECT kb.embed('minilm', ARRAY['a text'])", "SELECT kb.count_tokens('a')"]
        {
            let fault = session.refused(statement, "08006");
            assert!(fault.text.contains("kb.health()"), "{fault:?}");
            assert!(fault.message.contains("did not answer within 1500 ms"), "{statement}: {fault:?}");
        }
        // The session still works, and kb.health() reports the problem.
        assert!(session.count("kb.health() WHERE component = 'gateway' AND status <> 'ok'") > 0);
        assert_eq!(session.put("k", "d", "The harbor is south of the village."), "skipped");
    }
    signal(cluster.gateway(), libc::SIGCONT);
    for session in [&mut db, &mut fresh] {
        session.run("RESET kb.gateway_timeout");
        assert_eq!(session.found("k", "harbor", 1), ["d"]);
    }
}

#[test]
fn a_gateway_that_says_nothing_is_given_up_on_and_costs_no_attempt() {
    let (stub, cluster, mut db) = crate::with_stub!(r#"{"timeout_ms": 600000}"#, WHOLE);
    stub.hold(true);
    db.put_all("k", &texts::documents(0..5, 12));
    until(SOON, "the provider is asked", || stub.request_count() > 0);
    let gateway = cluster.gateway();
    signal(gateway, libc::SIGSTOP);
    until(LONG, "the worker gives up", || cluster.log().contains("worker: the kb gateway does not answer"));
    until(SOON, "the jobs are given back", || {
        db.count("kb.jobs WHERE error LIKE 'the worker encountered an error%'") == 5
    });
    assert_eq!(db.one::<i32>("SELECT max(attempts) FROM kb.jobs"), 0);
    stub.hold(false);
    signal(gateway, libc::SIGCONT);
    db.wait("k");
    assert_sound(&mut db, "k", 5, 0);
    assert_eq!(cluster.gateway(), gateway);
}

#[test]
fn a_query_that_waits_for_the_gateway_can_be_cancelled() {
    let (cluster, mut db) = crate::with_kb!("minilm", "{}", ["kb.gateway_timeout = '10min'"]);
    db.put_and_wait("k", "d", "The harbor is south of the village.");
    signal(cluster.gateway(), libc::SIGSTOP);
    let mut watch = cluster.connect("postgres");
    let active = |watch: &mut crate::support::Db, pid: i32| {
        watch.count(&format!(
            "pg_stat_activity WHERE pid = {pid} AND state = 'active' AND query LIKE '%kb.query%'"
        )) == 1
    };
    for by in ["token", "pg_cancel_backend", "statement_timeout"] {
        let mut session = cluster.connect(APP);
        let pid: i32 = session.one("SELECT pg_backend_pid()");
        if by == "statement_timeout" {
            session.run("SET statement_timeout = '300ms'");
        }
        let token = session.0.cancel_token();
        let fault = std::thread::scope(|scope| {
            let query = scope.spawn(move || {
                let error = session.0.batch_execute(QUESTION).unwrap_err();
                Fault::of(&error)
            });
            if by != "statement_timeout" {
                until(SOON, "the query waits", || active(&mut watch, pid));
            }
            match by {
                "token" => token.cancel_query(postgres::NoTls).unwrap(),
                "pg_cancel_backend" => watch.run(&format!("SELECT pg_cancel_backend({pid})")),
                _ => {}
            }
            query.join().unwrap()
        });
        // At the end of kb.gateway_timeout it would be 08006.
        assert_eq!(fault.code, "57014", "{by}: {fault:?}");
    }
    // A session whose cancelled request is answered late gets the answer to its next question.
    let token = db.0.cancel_token();
    let pid: i32 = db.one("SELECT pg_backend_pid()");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| db.fault("SELECT kb.embed('minilm', ARRAY['another text'])"));
        until(SOON, "the request waits", || {
            watch.count(&format!("pg_stat_activity WHERE pid = {pid} AND state = 'active'")) == 1
        });
        token.cancel_query(postgres::NoTls).unwrap();
        assert_eq!(waiting.join().unwrap().code, "57014");
    });
    // The server signals a cancellation twice, to the process and to its group, and the second signal may hit
    // the next statement.
    let _ = db.0.batch_execute("SELECT pg_sleep(0.2)");
    signal(cluster.gateway(), libc::SIGCONT);
    assert_eq!(db.found("k", "harbor", 1), ["d"]);
    assert_sound(&mut db, "k", 1, 0);
}

#[test]
fn a_gateway_that_ends_is_started_again_for_the_next_query() {
    for settings in [&[][..], &[crate::support::cluster::PRELOAD]] {
        let Some(cluster) = crate::support::Cluster::start(settings) else { return };
        let mut db = cluster.connect(APP);
        db.create_kb("k", "minilm", "{}");
        db.put_and_wait("k", "d", "The harbor is south of the village.");
        for _ in 0..3 {
            let before = cluster.gateway();
            signal(before, libc::SIGTERM);
            // The gateway that is ending may still answer the first question.
            until(SOON, "there is another gateway", || {
                assert_eq!(db.found("k", "harbor", 1), ["d"]);
                cluster.try_gateway().is_some_and(|pid| pid != before)
            });
        }
    }
}

#[test]
fn bulk_calls_of_the_largest_size_are_passed_by_anothers_question() {
    let (cluster, mut db) = crate::with_kb!("minilm", "{}", ["kb.gateway_timeout = '10min'"]);
    db.put_and_wait("k", "d", "The harbor is south of the village.");
    db.run(
        "SELECT kb.create_embedder('large', 'local', 'all-MiniLM-L6-v2', config => '{\"batch_size\": 4096}')",
    );
    let mut watch = cluster.connect("postgres");
    let bulk =
        "pg_stat_activity WHERE state = 'active' AND query LIKE '%kb.embed(%' AND pid <> pg_backend_pid()";
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..4)
            .map(|i| {
                let mut session = cluster.connect(APP);
                // Some hundred thousand tokens each: far longer than a question may take.
                let sql = format!(
                    "SELECT count(*) FROM kb.embed('large', (SELECT array_agg(repeat('word {i} ', 30) || n)
                     FROM generate_series(1, 4096) n))"
                );
                let token = session.0.cancel_token();
                (scope.spawn(move || Fault::of(&session.0.batch_execute(&sql).unwrap_err())), token)
            })
            .collect();
        until(SOON, "the bulk calls wait for the gateway", || watch.count(bulk) == 4);
        assert_eq!(db.found("k", "harbor", 1), ["d"]);
        // Ingestion has its share, too.
        db.put_and_wait("k", "e", "The castle is north of the village.");
        assert_eq!(watch.count(bulk), 4, "a bulk call ended before");
        for (call, token) in calls {
            token.cancel_query(postgres::NoTls).unwrap();
            assert_eq!(call.join().unwrap().code, "57014");
        }
    });
    assert_sound(&mut db, "k", 2, 0);
}

#[test]
fn a_text_beyond_what_any_model_reads_is_refused_before_it_is_sent() {
    let (cluster, mut db) = crate::connected!("kb.max_document_size = '40MB'");
    for embedder in ["minilm", "static", "hash"] {
        db.refused(&format!("SELECT kb.embed('{embedder}', ARRAY[repeat('word ', 5000000)])"), "54000");
    }
    db.refused("SELECT kb.count_tokens(repeat('word ', 5000000))", "54000");
    db.create_kb("k", "hash", WHOLE);
    db.refused("SELECT * FROM kb.query('k', repeat('word ', 5000000))", "54000");
    // Only the document that is too large fails, and the gateway still runs.
    let gateway = cluster.gateway();
    db.run("SELECT kb.put_document('k', 'large', repeat('word ', 5000000))");
    db.put_and_wait("k", "small", "The harbor is south of the village.");
    let failed: Vec<String> = db.all("SELECT external_id FROM kb.failures WHERE sqlstate = '54000'");
    assert_eq!(failed, ["large"]);
    assert_eq!(db.found("k", "harbor", 1), ["small"]);
    assert_eq!(cluster.gateway(), gateway);
}
