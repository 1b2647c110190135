//! Strategy semantic: sentences are embedded, and the text is cut where neighbouring sentences differ in
//! meaning.

use crate::stub::{Fault, Options, Stub};
use crate::support::{APP, Db, Document, LONG, SOON, assert_sound, chunk_set, signal, texts, until};

const SEMANTIC: &str = r#"{"strategy": "semantic", "size": 200, "percentile": 60}"#;
const SMALL: &str = r#"{"strategy": "semantic", "size": 60, "percentile": 60}"#;

/// Sentences with words of their own, each of 30 characters and more.
fn sentences(document: u64, count: u64) -> Vec<String> {
    (0..count)
        .map(|i| format!("Sentence {document}-{i} speaks of {}.", texts::paragraph(document * 1000 + i, 6)))
        .collect()
}

/// The texts that the provider was sent since the last call.
fn sent(stub: &Stub) -> Vec<String> {
    let texts = stub.requests().iter().flat_map(|request| request.texts.clone()).collect();
    stub.forget();
    texts
}

fn contents(db: &mut Db, kb: &str) -> Vec<String> {
    db.all(&format!(
        "SELECT c.content FROM kb.chunks c JOIN kb.knowledge_bases k USING (kb_no)
         WHERE k.id = '{kb}' ORDER BY c.document_id, c.ordinal"
    ))
}

#[test]
fn a_text_is_cut_where_its_subject_changes_and_kb_chunk_shows_it() {
    let (_cluster, mut db) = crate::connected!();
    let leave = "Annual leave is leave of days for annual rest. Leave of annual days is for rest. ";
    let ships = "Many ships sail from old harbors north. Old harbors have many ships from north. ";
    let text = format!("{leave}{ships}");
    let shown: Vec<String> =
        db.all_with("SELECT content FROM kb.chunk($1, $2::text::jsonb, 'hash')", &[&text, &SMALL]);
    assert_eq!(shown, [leave.trim(), ships.trim()]);
    db.create_kb("k", "hash", SMALL);
    db.put("k", "d", &text);
    db.put("k", "one", "A single sentence only.");
    db.run_and_wait("k", "SELECT kb.put_document('k', 'blank', '<p> </p>', content_type => 'text/html')");
    assert_eq!(contents(&mut db, "k"), [leave.trim(), ships.trim(), "A single sentence only."]);
    // It has no text, so it is done.
    let blank = "kb.documents WHERE external_id = 'blank' AND status = 'ready' AND chunk_count = 0";
    assert_eq!(db.count(blank), 1);
    let found: Vec<String> = db.all("SELECT content FROM kb.query('k', 'which harbors do ships leave', 1)");
    assert_eq!(found, [ships.trim()]);
    // It is larger than the size, so it is cut again, into parts as large as permitted.
    db.create_kb("small", "hash", r#"{"strategy": "semantic", "size": 12}"#);
    db.put_and_wait("small", "d", &sentences(1, 40).join(" "));
    assert_eq!(
        db.count("kb.chunks c JOIN kb.knowledge_bases USING (kb_no) WHERE id = 'small' AND token_count > 12"),
        0
    );
    for (chunking, problem) in [
        (r#"{"strategy": "semantic", "overlap": 5}"#, "must be 0"),
        (r#"{"strategy": "semantic", "percentile": 100}"#, "percentile"),
        (r#"{"percentile": 90}"#, "only with strategy semantic"),
    ] {
        let fault =
            db.fault(&format!("SELECT kb.create_knowledge_base('no', 'hash', chunking => '{chunking}')"));
        assert!(fault.code == "22023" && format!("{fault:?}").contains(problem), "{fault:?}");
    }
}

#[test]
fn an_edit_embeds_only_the_sentences_that_it_changes_and_a_new_percentile_none() {
    let (stub, _cluster, mut db) =
        crate::with_stub!("{\"batch_size\": 7, \"price_per_million_tokens\": 1000000}", SEMANTIC);
    let mut parts = sentences(1, 40);
    db.put_and_wait("k", "d", &parts.join(" "));
    let first = sent(&stub);
    assert!(parts.iter().all(|sentence| first.contains(sentence)), "every sentence is embedded");
    let chunks = contents(&mut db, "k");
    assert!(chunks.len() > 3 && chunks.len() < 40, "{}", chunks.len());
    assert!(first.len() <= 40 + chunks.len(), "{} texts", first.len());
    let estimate: i64 =
        db.one("SELECT sum(requests)::bigint FROM kb.usage WHERE endpoint = 'e' AND capability = 'embed'");
    assert!(estimate >= 6, "requests for sentences are booked: {estimate}");
    parts[20] = "An edited sentence stands here now, with other words.".into();
    db.put_and_wait("k", "d", &parts.join(" "));
    let edited = sent(&stub);
    let sentences_sent: Vec<&String> = edited.iter().filter(|text| parts.contains(text)).collect();
    assert!(sentences_sent.contains(&&parts[20]) && sentences_sent.len() <= 8, "{edited:?}");
    assert_eq!(contents(&mut db, "k").join(" "), parts.join(" "));
    // The distances are known, however the sentences are cut.
    db.run(r#"SELECT kb.alter_knowledge_base('k', chunking => '{"strategy": "semantic", "size": 200, "percentile": 20}')"#);
    db.run_and_wait("k", "SELECT kb.ingest('k')");
    let again = sent(&stub);
    let chunks = contents(&mut db, "k");
    assert!(again.iter().all(|text| chunks.contains(text)), "no sentence for its own sake: {again:?}");
    // Nothing of it is kept for a document that is gone.
    db.run("SELECT kb.delete_document('k', 'd')");
    assert_eq!(db.count("kb.documents WHERE answers IS NOT NULL"), 0);
    assert!(stub.complaints().is_empty(), "{:?}", stub.complaints());
}

#[test]
fn a_model_that_hangs_delays_no_other_document() {
    let (slow, quick) = (Stub::start(Options::default()), Stub::start(Options::default()));
    let (_cluster, mut db) = crate::connected!();
    db.create_stub_embedder("slow", &slow, "{}");
    db.create_stub_embedder("quick", &quick, "{}");
    slow.hold(true);
    for (kb, embedder, chunking) in
        [("slow", "slow", SEMANTIC), ("quick", "quick", SEMANTIC), ("plain", "hash", r#"{"size": 50}"#)]
    {
        db.create_kb(kb, embedder, chunking);
    }
    let documents = Document::numbered(0..120, |i| sentences(i, 6).join(" "));
    for kb in ["slow", "quick", "plain"] {
        db.put_all(kb, &documents);
    }
    db.wait("plain");
    db.wait("quick");
    assert_eq!(db.count("kb.chunks c JOIN kb.knowledge_bases USING (kb_no) WHERE id = 'slow'"), 0);
    slow.hold(false);
    db.wait("slow");
    for kb in ["slow", "quick", "plain"] {
        assert_sound(&mut db, kb, 120, 0);
    }
}

#[test]
fn a_provider_that_fails_on_a_sentence_is_named_and_affects_no_other_document() {
    let (stub, _cluster, mut db) = crate::with_stub!("{}", SEMANTIC);
    stub.refuse_text("Sentence 3-", Fault::Status(400));
    for i in 1..=5 {
        db.put("k", &format!("d{i}"), &sentences(i, 6).join(" "));
    }
    db.wait("k");
    let failed: Vec<String> = db.all("SELECT external_id FROM kb.failures");
    assert_eq!(failed, ["d3"]);
    stub.accept_texts();
    stub.always(Some(Fault::Status(503)));
    for i in 6..=9 {
        db.put("k", &format!("d{i}"), &sentences(i, 6).join(" "));
    }
    until(SOON, "kb.health() says so", || {
        db.count(
            "kb.health() WHERE component = 'providers' AND status = 'warning' AND detail LIKE '%e%paused%'",
        ) == 1
    });
    assert!(stub.request_count() <= 60, "{} requests to a provider that is down", stub.request_count());
    stub.always(None);
    db.wait("k");
    db.run_and_wait("k", "SELECT kb.retry('k')");
    assert_sound(&mut db, "k", 9, 0);
}

#[test]
fn every_document_is_cut_once_and_in_the_same_way_whoever_is_killed() {
    let stub = Stub::start(Options::default());
    let (cluster, mut db) = crate::crashing!();
    db.create_stub_embedder("e", &stub, "{\"batch_size\": 5}");
    for kb in ["calm", "killed"] {
        db.create_kb(kb, "e", SEMANTIC);
    }
    let documents = Document::numbered(0..100, |i| sentences(i, 12).join(" "));
    db.put_all_and_wait("calm", &documents);
    stub.set_latency(std::time::Duration::from_millis(20));
    db.put_all("killed", &documents);
    for round in 0..4 {
        let before = stub.request_count();
        until(LONG, "sentences are sent", || stub.request_count() > before + 5);
        assert!(db.jobs() > 0, "the work was done at kill {round}");
        let victim = if round % 2 == 0 { cluster.gateway() } else { cluster.worker(APP) };
        signal(victim, libc::SIGKILL);
        db = cluster.reconnect_after_crash(db);
        let _ = db.try_run("SELECT kb.wait('killed', 0.1)");
    }
    db.wait("killed");
    assert_sound(&mut db, "killed", 100, 0);
    let (calm, killed) = (chunk_set(&mut db, "calm"), chunk_set(&mut db, "killed"));
    assert_eq!(calm, killed);
}
