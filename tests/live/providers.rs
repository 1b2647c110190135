//! Documents and questions by way of a remote provider: a failure affects nothing else.

use crate::stub::{Fault, Options, Stub, vector};
use crate::support::{APP, Document, LONG, SOON, WHOLE, assert_sound, texts, until, vector_table};

fn documents(from: u64, count: u64) -> Vec<Document> {
    texts::documents(from..from + count, 12)
}

#[test]
fn documents_and_questions_go_by_the_provider_and_each_text_once() {
    let (stub, _cluster, mut db) = crate::with_stub!("{}", WHOLE);
    db.put_all_and_wait("k", &documents(0, 300));
    assert_sound(&mut db, "k", 300, 0);
    for document in documents(0, 300) {
        assert_eq!(stub.seen(&document.content), 1);
    }
    let table = vector_table(&mut db, "k");
    let text = texts::paragraph(7, 12);
    let stored: Vec<f32> = db.one_with(
        &format!(
            "SELECT embedding::real[] FROM {table} v JOIN kb.chunks c USING (chunk_id, build_no) WHERE c.content = $1"
        ),
        &[&text],
    );
    assert!(stored.iter().zip(vector(&text, 8)).all(|(a, b)| (a - b).abs() < 1e-5), "{stored:?}");
    assert_eq!(db.found("k", &text, 1), ["d7"]);
    // It was asked before, so it is not sent again.
    let before = stub.request_count();
    assert_eq!(db.found("k", &text, 1), ["d7"]);
    assert_eq!(stub.request_count(), before);
    // Batches were filled with chunks of many documents.
    assert!(before < 40, "{before} requests");
    assert_eq!(stub.complaints(), [] as [String; 0]);
}

#[test]
fn small_documents_of_many_knowledge_bases_share_requests() {
    // While one request is answered, the texts of all sessions arrive at the gateway.
    let stub = Stub::start(Options { latency: std::time::Duration::from_secs(1), ..Options::default() });
    let (_cluster, mut db) = crate::connected!();
    db.create_stub_embedder("e", &stub, r#"{"max_concurrency": 1}"#);
    db.run("SELECT kb.create_vector_db('v', dimension => 8)");
    for i in 0..60 {
        db.run(&format!("SELECT kb.create_knowledge_base('k{i}', 'e', 'v')"));
    }
    db.run("BEGIN");
    for i in 0..60 {
        db.put(&format!("k{i}"), "d", &texts::paragraph(i, 12));
    }
    db.run("COMMIT");
    for i in 0..60 {
        db.wait(&format!("k{i}"));
    }
    assert_eq!(db.count("kb.documents WHERE status = 'ready'"), 60);
    assert!(stub.request_count() <= 10, "{} requests for 60 knowledge bases", stub.request_count());
}

#[test]
fn only_the_chunk_of_a_refused_text_fails_and_retry_sends_only_that() {
    let (stub, _cluster, mut db) = crate::with_stub!("{}", r#"{"size": 30, "overlap": 0}"#);
    db.put_all("k", &documents(0, 50));
    let mut parts = texts::paragraphs(77, 4, 20);
    parts.insert(2, "This one holds the forbidden word.".into());
    stub.refuse_text("forbidden", Fault::Status(400));
    db.put_and_wait("k", "bad", &parts.join("\n\n"));
    let error: String = db.one("SELECT error FROM kb.failures WHERE external_id = 'bad'");
    assert!(error.contains(": chunk ") && error.contains("400"), "{error}");
    assert_eq!(db.count("kb.failures"), 1);
    assert_eq!(db.count("kb.documents WHERE status = 'ready'"), 50);
    // Its other chunks exist and are found.
    assert_eq!(db.found("k", &parts[4], 1), ["bad"]);
    stub.accept_texts();
    stub.forget();
    assert_eq!(db.one::<i64>("SELECT kb.retry('k', 'bad')"), 1);
    db.wait("k");
    assert_sound(&mut db, "k", 51, 0);
    assert_eq!(stub.requests().iter().map(|seen| seen.texts.len()).sum::<usize>(), 1);
}

#[test]
fn a_lasting_fault_is_listed_after_one_request_and_retry_enqueues_it() {
    let (stub, _cluster, mut db) = crate::with_stub!("{}", WHOLE);
    for fault in [Fault::Status(401), Fault::Status(404), Fault::WrongDimension] {
        stub.forget();
        stub.always(Some(fault.clone()));
        db.put_and_wait("k", "d", &format!("A text for {fault:?}."));
        assert_eq!((db.count("kb.failures"), stub.request_count()), (1, 1), "{fault:?}");
        stub.always(None);
        db.run_and_wait("k", "SELECT kb.retry('k')");
        assert_sound(&mut db, "k", 1, 0);
    }
}

#[test]
fn a_document_is_listed_after_the_last_attempt_with_the_reason() {
    // Failures are so slow that the breaker sees few faults.
    let (stub, _cluster, mut db) =
        crate::with_stub!(r#"{"retry": {"max_attempts": 1}}"#, WHOLE, ["kb.max_attempts = 2"]);
    stub.always(Some(Fault::Truncated));
    db.put_and_wait("k", "d", "Some text.");
    let (error, attempts): (String, i32) = {
        let row = db.0.query_one("SELECT error, attempts FROM kb.failures", &[]).unwrap();
        (row.get(0), row.get(1))
    };
    assert!(error.contains("JSON"), "{error}");
    assert_eq!((attempts, stub.request_count()), (2, 2));
}

#[test]
fn one_text_that_a_provider_breaks_on_is_listed_and_nobody_waits_for_it_for_ever() {
    // An attempt makes more requests than the number of faults that open the breaker.
    let (stub, _cluster, mut db) = crate::with_stub!(
        r#"{"retry": {"max_attempts": 6, "base_ms": 1, "max_ms": 2}}"#,
        WHOLE,
        ["kb.max_attempts = 3"]
    );
    stub.refuse_text("poison", Fault::Status(500));
    db.put_and_wait("k", "d", "The poison one.");
    assert_eq!(db.count("kb.failures WHERE attempts = 3 AND error LIKE '%500%'"), 1);
    db.put_and_wait("k", "well", "Another one.");
    assert_sound(&mut db, "k", 1, 1);
}

#[test]
fn a_provider_that_never_answers_delays_only_its_own_knowledge_bases() {
    let dead = Stub::start(Options::default());
    let well = Stub::start(Options::default());
    dead.always(Some(Fault::Never));
    let (_cluster, mut db) = crate::connected!();
    db.create_stub_embedder("well", &well, "{}");
    // More than may be in flight for one embedder, and more of them than may be in flight in all.
    for i in 0..7 {
        db.create_stub_embedder(&format!("dead{i}"), &dead, r#"{"timeout_ms": 600000}"#);
        db.create_kb(&format!("stuck{i}"), &format!("dead{i}"), WHOLE);
        db.put_all(&format!("stuck{i}"), &documents(i * 800, 800));
    }
    db.create_kb("free", "well", WHOLE);
    db.create_kb("local", "hash", WHOLE);
    let claimed = "kb.jobs WHERE leased_until IS NOT NULL";
    until(LONG, "as many are under way as may be", || db.count(claimed) > 3000);
    for kb in ["free", "local"] {
        db.put_all_and_wait(kb, &documents(5000, 200));
        assert_sound(&mut db, kb, 200, 0);
    }
    assert_eq!(db.count("kb.documents WHERE status = 'pending'"), 5600);
    // Dropping what is stuck waits for nothing.
    for i in 0..7 {
        db.run(&format!("SELECT kb.drop_knowledge_base('stuck{i}')"));
    }
    assert_eq!(db.jobs(), 0);
}

#[test]
fn a_killed_worker_or_gateway_has_no_text_paid_for_more_than_twice() {
    let stub = Stub::start(Options { latency: std::time::Duration::from_millis(200), ..Options::default() });
    // A crash therefore takes little of what the worker has committed (with synchronous_commit off).
    let (cluster, mut db) = crate::crashing!(crate::support::PRELOAD, "wal_writer_delay = '10ms'");
    db.create_stub_embedder("e", &stub, r#"{"batch_size": 8, "max_concurrency": 2}"#);
    db.create_kb("k", "e", WHOLE);
    db.put_all("k", &documents(0, 200));
    until(LONG, "some are done", || db.vectors("k") >= 40);
    crate::support::signal(cluster.worker(APP), libc::SIGKILL);
    let mut db = cluster.reconnect_after_crash(db);
    until(LONG, "more are done", || db.vectors("k") >= 100);
    crate::support::signal(cluster.gateway(), libc::SIGKILL);
    let mut db = cluster.reconnect_after_crash(db);
    db.wait("k");
    assert_sound(&mut db, "k", 200, 0);
    let counts = stub.counts();
    assert!(
        counts.values().all(|(seen, _)| *seen <= 3),
        "a text was sent more than once per kill and once more"
    );
    let again: usize = counts.values().map(|(seen, _)| seen - 1).sum();
    // The texts in flight, at the provider or waiting for it, at each kill.
    assert!(again <= 2 * 4 * 8 * 2, "{again} texts were sent again");
}

#[test]
fn a_stuck_knowledge_base_holds_up_no_run_no_switch_and_no_index_of_another() {
    let stub = Stub::start(Options::default());
    stub.always(Some(Fault::Never));
    let (_cluster, mut db) = crate::connected!();
    db.create_stub_embedder("e", &stub, r#"{"timeout_ms": 600000}"#);
    db.create_kb("stuck", "e", WHOLE);
    db.create_kb("k", "hash", WHOLE);
    db.put_all("stuck", &documents(0, 20));
    until(SOON, "it is stuck", || stub.request_count() > 0);
    db.put_all_and_wait("k", &documents(100, 1200));
    let index =
        "pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relname LIKE '%hnsw%' AND indisvalid";
    until(LONG, "its index is built", || db.count(index) == 1);
    for strategy in ["upsert", "replace"] {
        let run: i64 = db.one(&format!("SELECT kb.ingest('k', '{strategy}')"));
        db.run(&format!("SELECT kb.wait({run}::bigint, 60)"));
    }
    until(SOON, "the old build is swept", || db.count("kb.builds") == 2);
    assert_sound(&mut db, "k", 1200, 0);
    assert_eq!(db.count("kb.documents WHERE status = 'pending'"), 20, "the other one was not stuck");
    drop(stub);
}

#[test]
fn an_embedder_altered_while_its_last_answer_is_on_its_way_is_tried_at_once() {
    let latency = std::time::Duration::from_secs(1);
    let stub = Stub::start(Options { latency, ..Options::default() });
    stub.always(Some(Fault::RetryAfter { status: 429, seconds: 600 }));
    let (_cluster, mut db) = crate::connected!();
    db.create_stub_embedder("e", &stub, "{}");
    db.create_kb("k", "e", WHOLE);
    db.put_all("k", &documents(0, 20));
    until(SOON, "it is being asked", || stub.request_count() > 0);
    // The answer to this request is decided; later ones succeed.
    let asked = stub.request_count();
    stub.always(None);
    // With another rate it has other limits, which are not throttled.
    db.run(r#"SELECT kb.alter_embedder('e', config => '{"rpm": 60000}')"#);
    until(SOON, "it is asked again", || stub.request_count() > asked);
    db.run("SELECT kb.wait('k', 60)");
    assert_sound(&mut db, "k", 20, 0);
}

#[test]
fn equal_texts_that_are_under_way_at_one_time_are_sent_once() {
    let latency = std::time::Duration::from_millis(200);
    let stub = Stub::start(Options { latency, ..Options::default() });
    let (_cluster, mut db) = crate::connected!();
    db.create_stub_embedder("e", &stub, r#"{"batch_size": 4, "max_concurrency": 2}"#);
    db.create_kb("k", "e", r#"{"size": 30, "overlap": 0}"#);
    // Each has a paragraph of its own and one that all share.
    let common = texts::paragraph(4242, 20);
    let documents = Document::numbered(0..100, |i| format!("{}\n\n{common}", texts::paragraph(i, 20)));
    db.put_all_and_wait("k", &documents);
    assert_sound(&mut db, "k", 100, 0);
    let chunks = db.count("kb.chunks");
    let seen = stub.counts();
    let twice: Vec<_> = seen.iter().filter(|(_, (sent, _))| *sent > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert!((seen.len() as i64) < chunks, "{} texts of {chunks} chunks", seen.len());
}

#[test]
fn a_tenant_with_many_knowledge_bases_has_no_larger_share_than_one_with_one() {
    let (_cluster, mut db) = crate::connected!();
    db.create_slow_embedder(4);
    db.run("SET kb.tenant = 'large'");
    for i in 0..12 {
        db.create_kb(&format!("k{i}"), "slow", WHOLE);
    }
    db.run("BEGIN");
    for i in 0..12 {
        db.put_all(&format!("k{i}"), &documents(i * 100, 48));
    }
    db.run("COMMIT; SET kb.tenant = 'small'");
    db.create_kb("k", "slow", WHOLE);
    db.put_all("k", &documents(9000, 96));
    db.run("RESET kb.tenant");
    let ready = |db: &mut crate::support::Db, tenant: &str| {
        db.count(&format!("kb.documents WHERE status = 'ready' AND tenant_id = '{tenant}'"))
    };
    until(LONG, "the small tenant's are ready", || ready(&mut db, "small") == 96);
    let large = ready(&mut db, "large");
    assert!(large < 400, "{large} of the large tenant's 576 came first");
}

#[test]
fn documents_of_one_chunk_fill_the_requests_of_a_provider_that_is_slower() {
    let (stub, _cluster, mut db) =
        crate::with_stub!(r#"{"batch_size": 96, "max_concurrency": 2, "timeout_ms": 60000}"#, WHOLE);
    stub.hold(true);
    db.put_all("k", &documents(0, 700));
    let waiting = "kb.documents d WHERE EXISTS (SELECT FROM kb.chunks c WHERE c.document_id = d.document_id)";
    until(LONG, "as many are cut as may be under way", || db.count(waiting) >= 380);
    assert_eq!(stub.request_count(), 2);
    stub.hold(false);
    db.wait("k");
    let sizes: Vec<usize> = stub.requests().iter().map(|seen| seen.texts.len()).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 700, "each is sent once");
    assert!(sizes.iter().all(|size| *size <= 96) && sizes.contains(&96), "{sizes:?}");
}

#[test]
fn documents_of_one_chunk_are_sent_together_in_full_requests() {
    let (stub, _cluster, mut db) =
        crate::with_stub!(r#"{"batch_size": 96, "max_concurrency": 8, "timeout_ms": 60000}"#, WHOLE);
    stub.hold(true);
    db.put_all("k", &documents(0, 700));
    // No more are cut while this many wait.
    until(LONG, "the provider has eight requests", || stub.request_count() == 8);
    stub.hold(false);
    db.wait("k");
    let sizes: Vec<usize> = stub.requests().iter().map(|seen| seen.texts.len()).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 700, "each is sent once");
    // Until it has enough for one request it does not have to wait.
    assert!(sizes[..8].iter().filter(|size| **size == 96).count() >= 4, "{sizes:?}");
}

#[test]
fn vectors_that_arrive_while_a_large_document_is_cut_are_written() {
    let (stub, cluster, mut db) = crate::with_stub!(r#"{"timeout_ms": 600000}"#, WHOLE);
    stub.hold(true);
    db.create_kb("large", "hash", r#"{"tokenizer": "cl100k_base", "size": 500}"#);
    let large = Document::new("large", texts::text(7, 24_000, 60));
    db.put_all("k", &documents(0, 5));
    until(SOON, "the provider is asked", || stub.request_count() > 0);
    db.put_all("large", &[large]);
    let job: i64 = db.one("SELECT job_no FROM kb.jobs WHERE subject = 'large'");
    until(SOON, "it is being cut", || cluster.worker_notes(&mut db).get(1) == Some(&job));
    stub.hold(false);
    db.wait("k");
    assert_eq!(cluster.worker_notes(&mut db).get(1), Some(&job), "it was written only when that was done");
    assert_sound(&mut db, "k", 5, 0);
    db.wait("large");
    assert_eq!(db.count("kb.documents WHERE status = 'ready'"), 6);
}

#[test]
fn a_question_is_remembered_only_for_its_tenant_and_with_its_rights() {
    let stub = Stub::start(Options { key: Some("sk-good".into()), ..Options::default() });
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.set_secret('good', 'sk-good'); SELECT kb.set_secret('bad', 'sk-bad')");
    db.create_stub_embedder("e", &stub, "{}");
    db.create_stub_embedder("f", &stub, "{}");
    db.run("SELECT kb.alter_embedder('e', secret => 'kb:good')");
    db.run("SELECT kb.alter_embedder('f', secret => 'kb:bad')");
    db.run("SET kb.tenant = 'shared'");
    db.create_kb("k", "e", WHOLE);
    db.create_kb("other", "f", WHOLE);
    let asked = |db: &mut crate::support::Db, kb: &str, tenant: &str| {
        let before = stub.request_count();
        db.run(&format!("SET kb.tenant = '{tenant}'"));
        let answer = db.try_run(&format!("SELECT * FROM kb.query('{kb}', 'where is the harbor?')"));
        (stub.request_count() - before, answer.is_ok())
    };
    assert_eq!(asked(&mut db, "k", "a"), (1, true));
    assert_eq!(asked(&mut db, "k", "a"), (0, true), "it is remembered");
    assert_eq!(asked(&mut db, "k", "b"), (1, true), "another tenant learns that it was asked");
    // The same embedder with an invalid key: the provider refuses, although the vector is remembered.
    assert_eq!(asked(&mut db, "other", "a"), (1, false));
    // A key that was withdrawn no longer opens what it opened.
    db.run("SELECT kb.drop_secret('good')");
    assert_eq!(asked(&mut db, "k", "a"), (0, false));
    // The number of questions is not revealed.
    assert_eq!(db.count("kb.health() WHERE detail ~ 'quer|question|remember'"), 0);
}
