//! kb.ingest: a run switches to what it has rebuilt in one commit.

use crate::stub::{Fault, Options, Stub};
use crate::support::{
    APP, Cluster, Document, LONG, SOON, WHOLE, assert_sound, chunk_set, texts, until, vector_table,
};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

const DOCUMENTS: u64 = 600;

fn documents() -> Vec<Document> {
    (0..DOCUMENTS).map(|i| Document::new(format!("d{i}"), texts::text(i + 1, 6, 35))).collect()
}

/// A knowledge base of `hash`, whose settings were changed to `static` with smaller chunks, without a run so
/// far.
fn about_to_be_replaced(settings: &[&str]) -> Option<Cluster> {
    let cluster = Cluster::start(settings)?;
    let mut db = cluster.connect(APP);
    db.create_kb("k", "hash", r#"{"size": 1000, "overlap": 0}"#);
    db.put_all_and_wait("k", &documents());
    db.run(r#"SELECT kb.alter_knowledge_base('k', 'static', chunking => '{"size": 70, "overlap": 0}')"#);
    Some(cluster)
}

fn contents(cluster: &Cluster) -> BTreeSet<String> {
    cluster.connect(APP).all::<String>("SELECT content FROM kb.chunks").into_iter().collect()
}

#[test]
fn queries_during_a_replacement_see_the_old_or_the_new_and_never_both_or_nothing() {
    let Some(cluster) = about_to_be_replaced(&[]) else { return };
    let mut db = cluster.connect(APP);
    let old = contents(&cluster);
    let is_done = AtomicBool::new(false);
    let answers: Vec<Vec<Vec<String>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                let (cluster, is_done) = (&cluster, &is_done);
                scope.spawn(move || {
                    let mut db = cluster.connect(APP);
                    let mut answers = Vec::new();
                    let (mut seed, mut is_last) = (thread, false);
                    while !is_last {
                        // The last question therefore comes after the switch.
                        is_last = is_done.load(Ordering::Relaxed);
                        seed += 2;
                        let question = texts::paragraph(seed, 8);
                        answers.push(db.all_with(
                            "SELECT content FROM kb.query('k', $1, 5) ORDER BY rank",
                            &[&question],
                        ));
                    }
                    answers
                })
            })
            .collect();
        let run: i64 = db.one("SELECT kb.ingest('k', 'replace')");
        // However the wait ends, the queries end.
        let waited = db.try_run(&format!("SELECT kb.wait({run}::bigint, 180)"));
        let swept = catch_unwind(AssertUnwindSafe(|| {
            until(SOON, "the old build is swept", || db.count("kb.builds") == 1);
        }));
        is_done.store(true, Ordering::Relaxed);
        waited.unwrap();
        swept.unwrap();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let new = contents(&cluster);
    assert!(old.is_disjoint(&new));
    for answers in answers {
        assert!(answers.len() > 20, "{} queries ran", answers.len());
        let mut switched = 0;
        let mut was_new = false;
        for answer in answers {
            assert_eq!(answer.len(), 5);
            let is_new = new.contains(&answer[0]);
            let set = if is_new { &new } else { &old };
            assert!(answer.iter().all(|content| set.contains(content)), "a mix: {answer:?}");
            assert!(is_new || !was_new, "the old one came back");
            switched += usize::from(is_new != was_new);
            was_new = is_new;
        }
        assert_eq!(switched, 1, "queries ran before and after the switch");
    }
    assert_sound(&mut db, "k", DOCUMENTS as i64, 0);
    let row = db.0.query_one(
        "SELECT state, strategy, scanned, added, updated, skipped, deleted, failed FROM kb.runs",
        &[],
    );
    let row = row.unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("done", "replace"));
    let counts: Vec<i64> = (2..8).map(|i| row.get(i)).collect();
    assert_eq!(
        counts,
        [DOCUMENTS as i64, 0, DOCUMENTS as i64, 0, 0, 0],
        "scanned, added, updated, skipped, deleted, failed"
    );
    let dimension: i32 = {
        let table = vector_table(&mut db, "k");
        db.one(&format!("SELECT DISTINCT vector_dims(embedding) FROM {table}"))
    };
    assert_eq!(dimension, 256);
}

#[test]
fn a_replacement_ends_even_if_there_is_always_another_job() {
    let Some(cluster) = about_to_be_replaced(&[]) else { return };
    let mut db = cluster.connect(APP);
    let run: i64 = db.one("SELECT kb.ingest('k', 'replace')");
    // It is not done in this hour.
    db.run(
        "INSERT INTO kb.jobs (kb_no, tenant_id, kind, subject, priority, next_attempt_at)
         SELECT kb_no, tenant_id, 'document', 'of the next hour', 0, now() + interval '1 hour' FROM kb.knowledge_bases",
    );
    db.run(&format!("SELECT kb.wait({run}, 180)"));
    assert_eq!(db.one::<String>(&format!("SELECT state FROM kb.runs WHERE run_no = {run}")), "done");
    until(LONG, "the old build is swept", || db.count("kb.builds WHERE state <> 'live'") == 0);
    assert_eq!(db.count("kb.chunks c WHERE NOT EXISTS (SELECT FROM kb.builds b WHERE b.build_no = c.build_no AND state = 'live')"), 0);
    db.run(
        "DELETE FROM kb.jobs WHERE subject = 'of the next hour'; UPDATE kb.jobs SET next_attempt_at = NULL",
    );
    db.wait("k");
    assert_sound(&mut db, "k", 600, 0);
}

#[test]
fn documents_put_edited_or_deleted_during_a_replacement_stay_so_after_it() {
    let Some(cluster) = about_to_be_replaced(&[]) else { return };
    let mut db = cluster.connect(APP);
    let run: i64 = db.one("SELECT kb.ingest('k', 'replace')");
    db.put("k", "early", "Put right after the run began.");
    until(LONG, "the next build is half full", || {
        db.count("kb.chunks c JOIN kb.builds USING (build_no) WHERE state = 'next'") > 500
    });
    db.put("k", "late", "Put in the middle of the run.");
    db.put("k", "d5", "Edited in the middle of the run.");
    db.put("k", "d599", "Edited in the middle of the run, too.");
    db.run("SELECT kb.delete_document('k', 'd6'), kb.delete_document('k', 'd598')");
    assert_eq!(db.one::<String>(&format!("SELECT state FROM kb.runs WHERE run_no = {run}")), "running");
    db.run_and_wait("k", &format!("SELECT kb.wait({run}::bigint, 180)"));
    until(SOON, "the old build is swept", || db.count("kb.builds") == 1);
    assert_sound(&mut db, "k", DOCUMENTS as i64, 0);
    for (question, id) in [
        ("Put right after the run began.", "early"),
        ("Put in the middle of the run.", "late"),
        ("Edited in the middle of the run.", "d5"),
        ("Edited in the middle of the run, too.", "d599"),
    ] {
        assert_eq!(db.found("k", question, 1), [id]);
    }
    // The result equals a new knowledge base of the same documents.
    db.create_kb("calm", "static", r#"{"size": 70, "overlap": 0}"#);
    db.run(
        "SELECT kb.put_document('calm', external_id, content) FROM kb.documents
            WHERE kb_no = (SELECT kb_no FROM kb.knowledge_bases WHERE id = 'k')",
    );
    db.wait("calm");
    assert_eq!(chunk_set(&mut db, "k"), chunk_set(&mut db, "calm"));
}

#[test]
fn a_transaction_that_began_before_the_switch_still_gets_its_answer() {
    let Some(cluster) = about_to_be_replaced(&[]) else { return };
    let mut reader = cluster.connect(APP);
    reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(reader.count("kb.documents"), DOCUMENTS as i64);
    let mut db = cluster.connect(APP);
    db.run("SELECT kb.ingest('k', 'replace')");
    until(LONG, "the new build is live", || {
        db.count("kb.builds WHERE state = 'live' AND embedder = 'static'") == 1
    });
    // The worker gets every opportunity to sweep the old build in spite of the reader: it finishes its work,
    // and more of it, again and again.
    for i in 0..20 {
        db.put("k", &format!("after{i}"), "One more round of the worker.");
        until(LONG, "the worker has nothing to do", || db.jobs() == 0);
    }
    assert_eq!(reader.found("k", "river and mountain", 5).len(), 5);
    reader.run("COMMIT");
    assert_eq!(reader.found("k", "river and mountain", 5).len(), 5);
}

#[test]
fn a_replacement_that_fails_leaves_everything_as_it_was() {
    let (_cluster, mut db) = crate::with_kb!("hash", WHOLE);
    for i in 0..10 {
        let words = if i == 4 { 700 } else { 20 };
        db.put("k", &format!("d{i}"), &texts::paragraph(i, words));
    }
    db.wait("k");
    let (chunks, answer) = (chunk_set(&mut db, "k"), db.found("k", "river", 10));
    assert_eq!(answer.len(), 10);
    // One model reads it, the other does not.
    db.run(r#"SELECT kb.alter_knowledge_base('k', 'minilm', chunking => '{"strategy": "none"}')"#);
    let run: i64 = db.one("SELECT kb.ingest('k', 'replace')");
    let fault = db.fault(&format!("SELECT kb.wait({run}::bigint, 120)"));
    assert!(fault.text.contains("documents failed: 1") && fault.text.contains("kb.failures"), "{fault:?}");
    assert_eq!(db.one::<String>(&format!("SELECT state FROM kb.runs WHERE run_no = {run}")), "failed");
    db.wait("k");
    until(SOON, "the failed build is swept", || db.count("kb.builds") == 1);
    assert_eq!(chunk_set(&mut db, "k"), chunks);
    assert_eq!(db.found("k", "river", 10), answer);
}

#[test]
fn an_upsert_takes_up_what_was_made_under_other_settings_and_nothing_else() {
    let (_cluster, mut db) = crate::with_kb!("static", r#"{"size": 70, "overlap": 0}"#);
    db.create_kb("calm", "static", r#"{"size": 40, "overlap": 0}"#);
    let documents = Document::numbered(0..50, |i| texts::text(i + 1, 4, 35));
    db.put_all_and_wait("k", &documents);
    for (skipped, updated) in [(50, 0), (0, 50), (50, 0)] {
        if updated > 0 {
            db.run(r#"SELECT kb.alter_knowledge_base('k', chunking => '{"size": 40, "overlap": 0}')"#);
        }
        let run: i64 = db.one("SELECT kb.ingest('k', 'upsert')");
        db.run(&format!("SELECT kb.wait({run}::bigint, 120)"));
        let row = db.0.query_one(
            "SELECT state, scanned, added, updated, skipped, failed FROM kb.runs WHERE run_no = $1",
            &[&run],
        );
        let row = row.unwrap();
        assert_eq!(row.get::<_, &str>(0), "done");
        let counts: Vec<i64> = (1..6).map(|i| row.get(i)).collect();
        assert_eq!(counts, [50, 0, updated, skipped, 0], "scanned, added, updated, skipped, failed");
    }
    db.put_all_and_wait("calm", &documents);
    assert_sound(&mut db, "k", 50, 0);
    assert_eq!(chunk_set(&mut db, "k"), chunk_set(&mut db, "calm"));
}

/// After a replace that fails, chunks are slices of the current text.
#[test]
fn a_replace_that_fails_takes_back_how_it_extracted_texts() {
    let (stub, _cluster, mut db) = crate::with_stub!("{}", WHOLE);
    for i in 0..20 {
        let text = format!("<h1>Page {i}</h1><p>About <b>{}</b>.</p>", texts::paragraph(i, 8));
        db.put("k", &format!("d{i}.html"), &text);
    }
    db.wait("k");
    let before = chunk_set(&mut db, "k");
    db.run(r#"SELECT kb.alter_knowledge_base('k', preprocess => '{"remove_html": false}')"#);
    stub.refuse_text("Page 7<", Fault::Status(400));
    let run: i64 = db.one("SELECT kb.ingest('k', 'replace')");
    db.refused(&format!("SELECT kb.wait({run}::bigint, 60)"), "55000");
    db.run("SELECT kb.wait('k', 60)");
    until(SOON, "what it made is swept", || db.count("kb.builds") == 1);
    assert_sound(&mut db, "k", 19, 1);
    assert_eq!(chunk_set(&mut db, "k"), before);
}

/// An edit that only the next build's settings can process: the old text leaves the answers all the same.
#[test]
fn an_edit_that_the_live_build_cannot_take_is_not_answered_with_the_old_text() {
    let stub = Stub::start(Options::default());
    stub.always(Some(Fault::Never));
    let (_cluster, mut db) = crate::connected!();
    db.create_stub_embedder("e", &stub, r#"{"timeout_ms": 600000}"#);
    db.create_kb("k", "hash", WHOLE);
    db.put("k", "edited.html", "<h1>Harbors</h1><p>Ships lie in the harbor.</p>");
    db.put_and_wait("k", "other.html", "<h1>Castles</h1><p>Knights live in the castle.</p>");
    db.run(r#"SELECT kb.alter_knowledge_base('k', 'e', preprocess => '{"remove_html": false}')"#);
    db.run("SELECT kb.ingest('k', 'replace')");
    // As HTML it has no text; as plain text it has.
    db.put("k", "edited.html", "<html><body><script>let ship = 1;</script></body></html>");
    until(SOON, "the old text is gone", || db.found("k", "ships harbor", 5) == ["other.html"]);
    assert!(db.count("kb.jobs") > 0, "the replace was done");
}

#[test]
fn simultaneous_replacements_pay_for_no_existing_vector_again() {
    let stub = Stub::start(Options::default());
    let (_cluster, mut db) = crate::connected!();
    db.create_stub_embedder("e", &stub, "{}");
    for (i, kb) in ["k0", "k1"].iter().enumerate() {
        db.create_kb(kb, "e", r#"{"size": 60, "overlap": 0}"#);
        let documents = Document::numbered(0..5, |d| texts::paragraph(100 * i as u64 + d, 12));
        db.put_all_and_wait(kb, &documents);
        db.run(&format!(
            r#"SELECT kb.alter_knowledge_base('{kb}', chunking => '{{"size": 80, "overlap": 0}}')"#
        ));
    }
    stub.forget();
    // In one transaction, so that the worker writes documents of both together.
    db.run("BEGIN; SELECT kb.ingest('k0', 'replace'); SELECT kb.ingest('k1', 'replace'); COMMIT");
    for kb in ["k0", "k1"] {
        db.wait(kb);
    }
    until(SOON, "the old builds are swept", || db.count("kb.builds") == 2);
    for kb in ["k0", "k1"] {
        assert_sound(&mut db, kb, 5, 0);
    }
    assert_eq!(stub.request_count(), 0);
}
