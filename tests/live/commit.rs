//! Promise 1: committed means done; rolled back means nothing happened.

use crate::support::{APP, Document, SOON, WHOLE, assert_sound, chunk_set, signal, texts, until};

#[test]
fn a_rollback_leaves_nothing_behind_and_wakes_no_process() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}", ["kb.worker_idle_timeout = '1h'"]);
    db.run("BEGIN");
    db.put("k", "a", "A text that never was.");
    db.run(
        "SELECT kb.put_documents('k', ARRAY['{\"external_id\": \"b\", \"content\": \"nor this\"}'::jsonb])",
    );
    assert_eq!(db.count("kb.documents"), 2);
    db.run("ROLLBACK");
    for table in ["kb.documents", "kb.jobs", "kb.chunks", "kb.failures"] {
        assert_eq!(db.count(table), 0, "{table}");
    }
    // A worker started by this session would be there by the time another database's worker has done its
    // work, and would still be there, because it stays for an hour.
    cluster.create_database("other");
    let mut other = cluster.connect("other");
    other.create_kb("k", "hash", "{}");
    other.put_and_wait("k", "a", "A text that is.");
    cluster.worker("other");
    assert!(cluster.processes("kb worker", Some(APP)).is_empty());
}

#[test]
fn a_rollback_to_a_savepoint_undoes_everything_after_it() {
    let (_cluster, mut db) = crate::with_kb!("hash", "{}");
    db.run("BEGIN");
    db.put("k", "kept", "The first one stays.");
    db.run("SAVEPOINT s");
    db.put("k", "undone", "The second one goes.");
    db.put("k", "kept", "An edit that goes, too.");
    db.run("ROLLBACK TO s; COMMIT");
    db.wait("k");
    assert_sound(&mut db, "k", 1, 0);
    assert_eq!(db.all::<String>("SELECT content FROM kb.chunks"), ["The first one stays."]);
}

#[test]
fn kb_wait_does_not_wait_for_what_a_savepoint_took_back() {
    let (_cluster, mut db) = crate::with_kb!("hash", "{}");
    db.run("BEGIN; SAVEPOINT s");
    db.put("k", "undone", "It goes.");
    db.run("ROLLBACK TO s; SELECT kb.wait('k', 30); COMMIT");
}

#[test]
fn kb_wait_refuses_to_wait_for_its_own_transaction() {
    let (_cluster, mut db) = crate::with_kb!("hash", "{}");
    db.run("BEGIN");
    db.put("k", "a", "Not committed yet.");
    db.refused("SELECT kb.wait('k', 30)", "55000");
    db.run("ROLLBACK; SELECT kb.wait('k', 30)");
    // Nor for a run that its own statement began.
    let fault = db.fault("SELECT kb.wait(kb.ingest('k'), 30)");
    assert_eq!((fault.code.as_str(), fault.text.contains("Commit first")), ("55000", true));
}

#[test]
fn after_wait_every_committed_document_is_found_or_listed_as_failed() {
    const SESSIONS: usize = 4;
    const EACH: usize = 30;
    let (cluster, mut db) = crate::connected!();
    // Each document has one chunk, and documents of several windows of the model are too long for it.
    db.create_kb("k", "minilm", WHOLE);
    std::thread::scope(|scope| {
        for session in 0..SESSIONS {
            let cluster = &cluster;
            scope.spawn(move || {
                let mut db = cluster.connect(APP);
                for i in 0..EACH {
                    let id = format!("{session}-{i}");
                    let words = if i % 10 == 9 { 600 } else { 15 };
                    db.put("k", &id, &texts::paragraph((session * 100 + i) as u64, words));
                }
                db.wait("k");
                // The documents that this session committed are done now, though others may not be.
                for i in 0..EACH {
                    let id = format!("{session}-{i}");
                    let text = texts::paragraph((session * 100 + i) as u64, 15);
                    if i % 10 == 9 {
                        let failed = db.count(&format!("kb.failures WHERE external_id = '{id}'"));
                        assert_eq!(failed, 1, "{id} is listed");
                    } else {
                        assert_eq!(db.found("k", &text, 1), [id]);
                    }
                }
            });
        }
    });
    let all = (SESSIONS * EACH) as i64;
    assert_sound(&mut db, "k", all - all / 10, all / 10);
}

#[test]
fn a_commit_while_the_worker_leaves_is_not_forgotten() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}", ["kb.worker_idle_timeout = '1s'"]);
    let oid: u32 = db.one("SELECT oid FROM pg_database WHERE datname = current_database()");
    let pid_file = cluster.data().join(format!("pg_stat_tmp/kb.worker.{oid}.pid"));
    for i in 0..8 {
        db.put("k", &format!("d{i}"), &texts::paragraph(i, 20));
        // kb.wait would start a worker, so this does without it: the commit alone must.
        until(SOON, &format!("document {i} is ready"), || db.jobs() == 0);
        // The next commit comes while the worker removes itself from the list, before its process has ended.
        until(SOON, "the worker leaves", || !pid_file.exists());
    }
    assert_sound(&mut db, "k", 8, 0);
}

#[test]
fn fifty_edits_of_a_document_end_as_the_last_one() {
    let (_cluster, mut db) = crate::connected!();
    for kb in ["many", "once"] {
        db.create_kb(kb, "static", r#"{"size": 60}"#);
    }
    for i in 0..50 {
        db.put("many", "d", &texts::text(i, 12, 40));
        assert!(db.jobs() <= 1);
    }
    db.put("once", "d", &texts::text(49, 12, 40));
    db.wait("many");
    db.wait("once");
    assert_sound(&mut db, "many", 1, 0);
    let chunks = chunk_set(&mut db, "many");
    assert!(chunks.len() > 8, "{}", chunks.len());
    assert_eq!(chunks, chunk_set(&mut db, "once"));
}

#[test]
fn sessions_that_edit_the_same_documents_end_as_the_last_commit() {
    let (cluster, mut db) = crate::with_kb!("static", r#"{"size": 60}"#);
    db.create_kb("calm", "static", r#"{"size": 60}"#);
    std::thread::scope(|scope| {
        for session in 0..4 {
            let cluster = &cluster;
            scope.spawn(move || {
                let mut db = cluster.connect(APP);
                for i in 0..30 {
                    let seed = session * 1000 + i;
                    db.put("k", &format!("d{}", i % 3), &texts::text(seed, 6, 40));
                }
            });
        }
    });
    db.wait("k");
    let contents: Vec<String> = db.all("SELECT content FROM kb.documents ORDER BY external_id");
    let documents: Vec<Document> =
        contents.into_iter().enumerate().map(|(i, c)| Document::new(format!("d{i}"), c)).collect();
    assert_eq!(documents.len(), 3);
    db.put_all_and_wait("calm", &documents);
    assert_sound(&mut db, "k", 3, 0);
    assert_eq!(chunk_set(&mut db, "k"), chunk_set(&mut db, "calm"));
}

#[test]
fn a_put_is_searchable_right_after_wait_every_time() {
    let (_cluster, mut db) = crate::with_kb!("static", "{}");
    for i in 0..100 {
        let text = texts::paragraph(i, 30);
        db.put_and_wait("k", &format!("d{i}"), &text);
        assert_eq!(db.found("k", &text, 1), [format!("d{i}")]);
    }
}

#[test]
fn the_commit_of_a_put_and_nothing_else_wakes_a_worker_that_waits() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}", ["kb.worker_idle_timeout = '1h'"]);
    db.put_and_wait("k", "a", "The first text starts the worker.");
    // A signal wakes it, and stays pending while the process is stopped.
    let worker = cluster.stop_worker(APP);
    let is_woken = || {
        let status = std::fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap().trim();
        u64::from_str_radix(pending, 16).unwrap() & (1 << (libc::SIGUSR1 - 1)) != 0
    };
    for (end, wakes) in [("ROLLBACK", false), ("COMMIT", true)] {
        db.run("BEGIN");
        db.put("k", "b", "The second text finds it waiting.");
        assert!(!is_woken(), "before {end}");
        db.run(end);
        assert_eq!(is_woken(), wakes, "{end}");
    }
    signal(worker, libc::SIGCONT);
    db.wait("k");
    assert_sound(&mut db, "k", 2, 0);
    assert_eq!(cluster.worker(APP), worker);
}

#[test]
fn a_prepared_transaction_counts_from_its_commit() {
    let (_cluster, mut db) = crate::with_kb!("hash", "{}", ["max_prepared_transactions = 5"]);
    for (id, end) in [("kept", "COMMIT"), ("gone", "ROLLBACK")] {
        db.run("BEGIN");
        db.put("k", id, "The harbor is south of the village.");
        db.run("PREPARE TRANSACTION 'two phases'");
        db.wait("k");
        assert_eq!(db.count(&format!("kb.documents WHERE external_id = '{id}'")), 0, "before its commit");
        db.run(&format!("{end} PREPARED 'two phases'"));
    }
    // The second phase woke no worker; kb.wait starts the work.
    db.wait("k");
    assert_sound(&mut db, "k", 1, 0);
    assert_eq!(db.found("k", "harbor", 5), ["kept"]);
}
