//! Promise 5: one bad document never stops the others.

use crate::stub::{Options, Stub};
use crate::support::{Document, LONG, SOON, WHOLE, assert_sound, texts, until, vector_table};

#[test]
fn a_bad_document_stops_no_other_and_says_what_is_wrong() {
    let (_cluster, mut db) = crate::with_kb!("minilm", WHOLE);
    let documents: Vec<Document> = (0..20)
        .map(|i| {
            let words = if i == 7 { 700 } else { 20 };
            Document::new(format!("d{i}"), texts::paragraph(i, words))
        })
        .collect();
    db.put_all_and_wait("k", &documents);
    assert_sound(&mut db, "k", 19, 1);
    let (id, error, state, attempts): (String, String, String, i32) = {
        let row =
            db.0.query_one("SELECT external_id, error, sqlstate, attempts FROM kb.failures", &[]).unwrap();
        (row.get(0), row.get(1), row.get(2), row.get(3))
    };
    assert_eq!((id.as_str(), state.as_str()), ("d7", "54000"));
    assert!(error.contains("longer than the") && error.contains("all-MiniLM-L6-v2"), "{error}");
    assert_eq!(attempts, 1, "trying the same again cannot help");

    assert_eq!(db.one::<i64>("SELECT kb.retry('k')"), 1);
    assert_eq!(db.count("kb.failures"), 0);
    db.wait("k");
    assert_sound(&mut db, "k", 19, 1);

    db.put_and_wait("k", "d7", "It is short now.");
    assert_sound(&mut db, "k", 20, 0);
    assert_eq!(db.found("k", "It is short now.", 1), ["d7"]);
}

#[test]
fn failed_documents_are_logged_as_a_number_for_each_error_without_their_text() {
    let (cluster, mut db) = crate::connected!();
    db.run("SET kb.tenant = 'acme'");
    db.create_kb("k", "minilm", WHOLE);
    let documents = texts::documents(0..40, 700);
    db.put_all_and_wait("k", &documents);
    assert_eq!(db.count("kb.failures"), 40);
    db.put("k", "html", "x");
    db.run("SELECT kb.drop_knowledge_base('k')");
    let lines = || -> Vec<String> {
        let failed = |line: &&str| line.contains("documents failed permanently");
        cluster.log().lines().filter(failed).map(str::to_string).collect()
    };
    until(SOON, "the log has a line", || !lines().is_empty());
    // An error of a new kind is logged at once, and further ones after a minute.
    let lines = lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let says = "a text is longer than its embedder's model reads (SQLSTATE 54000, embedder \"minilm\", tenant \"acme\")";
    assert!(lines[0].contains("LOG:  kb: ") && lines[0].ends_with(says), "{lines:?}");
    let log = cluster.log();
    for document in &documents {
        let word = document.content.split(' ').max_by_key(|word| word.len()).unwrap();
        assert!(!lines[0].contains(word), "{word}");
    }
    assert!(!log.contains(&documents[0].content), "a document is in the log");
}

#[test]
fn an_edit_that_fails_leaves_nothing_of_the_old_text_to_be_found_unmarked() {
    let (_cluster, mut db) = crate::with_kb!("minilm", WHOLE);
    db.put_and_wait("k", "d", "The farmer sells apples at the market.");
    db.put_and_wait("k", "d", &texts::paragraph(1, 700));
    assert_sound(&mut db, "k", 0, 1);
    // The old text may still be found, but marked as stale.
    let old = db.count("kb.query('k', 'farmer', 5) WHERE content LIKE 'The farmer%' AND NOT stale");
    assert_eq!(old, 0);
}

#[test]
fn one_knowledge_base_that_cannot_work_stops_no_other() {
    let (_cluster, mut db) = crate::connected!();
    db.create_kb("bad", "minilm", WHOLE);
    db.create_kb("good", "minilm", "{}");
    let bad = texts::documents(0..40, 700);
    db.put_all("bad", &bad);
    for i in 0..10 {
        db.put("good", &format!("d{i}"), &texts::paragraph(i, 20));
    }
    db.wait("good");
    assert_sound(&mut db, "good", 10, 0);
    db.wait("bad");
    assert_sound(&mut db, "bad", 0, 40);
}

#[test]
fn paid_vectors_that_the_database_cannot_take_are_kept_until_it_can() {
    let (stub, cluster, mut db) = crate::with_stub!("{}", WHOLE, ["kb.lease_duration = '10s'"]);
    let table = vector_table(&mut db, "k");
    // The effect of a full disk, which does not accept a renewed lease, either.
    db.run(&format!(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'; END$$;
         CREATE TRIGGER full_disk BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION full_disk();
         CREATE TRIGGER full_disk BEFORE UPDATE ON kb.jobs FOR EACH ROW
             WHEN (OLD.leased_until IS NOT NULL AND NEW.leased_until IS NOT NULL) EXECUTE FUNCTION full_disk()"
    ));
    let documents = texts::documents(0..50, 12);
    db.put_all("k", &documents);
    until(SOON, "it is tried again", || cluster.log().matches("keeps vectors").count() >= 4);
    until(SOON, "no lease can be renewed", || cluster.log().contains("cannot renew leases"));
    assert!(documents.iter().all(|document| stub.seen(&document.content) <= 1), "bought again");
    assert_eq!(db.count("kb.documents WHERE status <> 'pending'"), 0);
    // The document in progress.
    assert_eq!(db.count("kb.jobs WHERE attempts > 1"), 0);
    db.run_and_wait("k", &format!("DROP TRIGGER full_disk ON {table}; DROP TRIGGER full_disk ON kb.jobs"));
    assert_sound(&mut db, "k", 50, 0);
    assert!(documents.iter().all(|document| stub.seen(&document.content) == 1), "bought again");
}

#[test]
fn a_new_embedder_does_not_wait_for_the_old_one_that_is_down() {
    let stub = Stub::start(Options::default());
    let (_cluster, mut db) = crate::connected!();
    db.create_stub_embedder("old", &stub, "{}");
    db.create_kb("k", "old", WHOLE);
    let documents = texts::documents(0..20, 12);
    db.put_all_and_wait("k", &documents);
    for status in [500, 401] {
        stub.always(Some(crate::stub::Fault::Status(status)));
        // Documents that have no vector of the old embedder, and never will.
        db.put("k", &format!("new {status}"), &format!("A text that came too late, at {status}."));
        let embedder = if status == 500 { "hash" } else { "static" };
        db.run(&format!("SELECT kb.alter_knowledge_base('k', embedder => '{embedder}')"));
        let run: i64 = db.one("SELECT kb.ingest('k')");
        db.run_and_wait("k", &format!("SELECT kb.wait({run}, 120)"));
        assert_eq!(db.count("kb.failures"), 0);
        assert_eq!(db.found("k", &format!("came too late, at {status}"), 1), [format!("new {status}")]);
        stub.always(None);
        db.run("SELECT kb.alter_knowledge_base('k', embedder => 'old')");
        let run: i64 = db.one("SELECT kb.ingest('k')");
        db.run_and_wait("k", &format!("SELECT kb.wait({run}, 120)"));
    }
}

#[test]
fn a_replace_that_fails_leaves_no_document_ready_that_the_old_embedder_has_not_seen() {
    let stub = Stub::start(Options::default());
    let (_cluster, mut db) = crate::connected!();
    db.create_stub_embedder("old", &stub, "{}");
    db.run("SELECT kb.create_embedder('short', 'hash', config => '{\"max_input_tokens\": 5}')");
    db.create_kb("k", "old", WHOLE);
    let documents = texts::documents(0..5, 12);
    db.put_all_and_wait("k", &documents);
    // While the old embedder is down, a text is put that the new one accepts; it does not accept the others.
    stub.always(Some(crate::stub::Fault::Status(500)));
    db.put("k", "late", "Zebra quasar.");
    db.run("SELECT kb.alter_knowledge_base('k', embedder => 'short')");
    let run: i64 = db.one("SELECT kb.ingest('k')");
    let fault = db.fault(&format!("SELECT kb.wait({run}, 120)"));
    assert!(fault.text.contains("documents failed: 5"), "{fault:?}");
    assert_eq!(db.count("kb.documents WHERE external_id = 'late' AND status = 'ready'"), 0);
    assert_eq!(db.count("kb.usage WHERE texts > 5"), 0, "texts that got no vector are not counted");
    stub.always(None);
    db.wait("k");
    let status: String = db.one("SELECT status FROM kb.documents WHERE external_id = 'late'");
    assert_eq!(status, "ready");
    assert_eq!(db.found("k", "Zebra quasar.", 1), ["late"]);
}

/// The disk is so full that not even the jobs can be given back.
#[test]
fn documents_that_a_full_disk_delays_are_processed_when_there_is_room() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}", ["kb.lease_duration = '10min'"]);
    db.run(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'; END$$;
         CREATE TRIGGER full_disk BEFORE INSERT ON kb.chunks FOR EACH ROW EXECUTE FUNCTION full_disk();
         CREATE TRIGGER full_disk BEFORE UPDATE ON kb.jobs FOR EACH ROW WHEN (NEW.leased_until IS NULL)
             EXECUTE FUNCTION full_disk()",
    );
    let documents = texts::documents(0..40, 10);
    db.put_all("k", &documents);
    let complaints = || cluster.log().matches("worker cannot return jobs to the queue").count();
    until(SOON, "the worker says so", || complaints() >= 2);
    assert_eq!(db.count("kb.jobs WHERE attempts <= 1"), 40);
    // Now they can be given back, and the reason why they wait can be seen.
    db.run("DROP TRIGGER full_disk ON kb.jobs");
    let says =
        "kb.health() WHERE component = 'documents' AND status = 'warning' AND detail LIKE '%no space left%'";
    until(SOON, "kb.health() says so", || db.count(says) == 1);
    assert_eq!(db.count("kb.jobs WHERE attempts <= 1"), 40);
    db.run_and_wait("k", "DROP TRIGGER full_disk ON kb.chunks");
    assert_sound(&mut db, "k", 40, 0);
    assert!(complaints() <= 8, "{} complaints", complaints());
}

#[test]
fn a_dropped_vector_table_is_named_and_a_replace_makes_it_again() {
    let (cluster, mut db) = crate::connected!();
    for kb in ["k", "other"] {
        db.create_kb(kb, "hash", "{}");
        db.put_and_wait(kb, "before", "A text about harbors.");
    }
    let table = vector_table(&mut db, "k");
    db.run(&format!("DROP TABLE {table}"));
    db.put("k", "after", "A text about castles.");
    db.put("other", "after", "A text about castles.");
    db.wait("k");
    db.wait("other");
    assert_sound(&mut db, "other", 2, 0);
    assert_eq!(db.count("kb.failures WHERE kb_id = 'k' AND sqlstate = '42P01' AND attempts = 1"), 1);
    let says =
        format!("kb.health() WHERE component = 'tables' AND status = 'error' AND detail LIKE '%{table}%'");
    assert_eq!(db.count(&says), 1);
    let logged =
        |line: &str| line.contains("documents failed permanently: relation") && line.contains("42P01");
    until(SOON, "the log says so", || cluster.log().lines().any(logged));
    let run: i64 = db.one("SELECT kb.ingest('k', 'replace')");
    db.run(&format!("SELECT kb.wait({run}::bigint, 60)"));
    until(SOON, "the old build is swept", || db.count("kb.builds") == 2);
    assert_sound(&mut db, "k", 2, 0);
    assert_eq!(db.found("k", "castles", 1), ["after"]);
    assert_eq!(db.count("kb.health() WHERE component = 'tables' AND status = 'ok'"), 1);
}

#[test]
fn a_fault_that_the_worker_meets_again_and_again_does_not_fill_the_log() {
    let (cluster, mut db) = crate::connected!();
    db.create_kb("kept", "hash", WHOLE);
    db.put_and_wait("kept", "d", "a text");
    // The worker cannot sweep the old build: an event trigger refuses it, and counts the attempts.
    db.run(
        "CREATE SEQUENCE public.refused;
         CREATE FUNCTION public.refuse() RETURNS event_trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM nextval('public.refused'); RAISE EXCEPTION 'tables stay'; END $$;
         CREATE EVENT TRIGGER refuse ON sql_drop EXECUTE FUNCTION public.refuse()",
    );
    db.run_and_wait("kept", "SELECT kb.ingest('kept', 'replace')");
    until(LONG, "the worker to try to sweep five times", || {
        db.one::<i64>("SELECT last_value FROM public.refused") >= 5
    });
    assert_eq!(cluster.log().matches("stays for now").count(), 1, "{}", cluster.log());
}

#[test]
fn failed_documents_are_found_by_an_index_of_their_own() {
    let (_cluster, mut db) = crate::with_kb!("hash", WHOLE, ["autovacuum = off"]);
    let document = |n: usize| Document::new(format!("d{n}"), format!("Text {n}."));
    db.put_all_and_wait("k", &(0..2000).map(document).collect::<Vec<_>>());
    db.run("UPDATE kb.documents SET status = 'failed', error = 'as told' WHERE external_id LIKE 'd%99'");
    // There are enough that statistics are gathered once more.
    db.put_all_and_wait("k", &(2000..3500).map(document).collect::<Vec<_>>());
    assert_eq!(db.count("kb.failures"), 20);
    // Without statistics of the column, the planner would expect nearly all documents in the index.
    let statistics = "pg_stats WHERE schemaname = 'kb' AND tablename = 'documents' AND attname = 'error'";
    until(SOON, "the worker has taken statistics", || db.count(statistics) == 1);
    until(SOON, "the plan is made by them", || {
        let plan: Vec<String> = db.all("EXPLAIN (COSTS OFF) SELECT * FROM kb.failures");
        plan.iter().any(|line| line.contains("documents_failed"))
    });
}

#[test]
fn a_job_of_an_unknown_kind_is_left_alone_and_no_document_waits_for_it() {
    let (_cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", r#"{"strategy": "none"}"#);
    // More of them than the worker claims at once, in front of all documents.
    db.run(
        "ALTER TABLE kb.jobs DROP CONSTRAINT jobs_kind_check;
         INSERT INTO kb.jobs (kb_no, tenant_id, kind, subject)
             SELECT kb_no, tenant_id, 'memory', 'd' || n FROM kb.knowledge_bases, generate_series(1, 300) n",
    );
    let written =
        "SELECT count(*) || ' ' || string_agg(DISTINCT xmin::text, ' ') FROM kb.jobs WHERE kind = 'memory'";
    let before: String = db.one(written);
    db.put_all("k", &texts::documents(0..50, 12));
    let ready = "kb.documents WHERE status = 'ready'";
    until(SOON, "documents are ready", || db.count(ready) == 50);
    assert_eq!(db.one::<String>(written), before, "a job of another kind was touched");
    db.run("DELETE FROM kb.jobs WHERE kind = 'memory'");
    db.wait("k");
    assert_sound(&mut db, "k", 50, 0);
}
