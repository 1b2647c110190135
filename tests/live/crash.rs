//! Promise 3: kill -9 of any process, at any time, loses no document and duplicates no chunk.

use crate::support::{
    APP, Cluster, Db, Document, PRELOAD, SOON, assert_sound, chunk_set, signal, texts, until, vector_table,
};

const KILLS: usize = 10;
const DOCUMENTS: u64 = 60;
const CHUNKING: &str = r#"{"size": 50, "overlap": 5}"#;

fn documents() -> Vec<Document> {
    // The documents have different sizes, and every fifth has a paragraph of another.
    (0..DOCUMENTS)
        .map(|i| {
            let mut paragraphs = texts::paragraphs(i + 1, 2 + (i as usize % 4), 35);
            if i % 5 == 0 {
                paragraphs.push(texts::paragraph(4242, 35));
            }
            Document::new(format!("d{i}"), paragraphs.join("\n\n"))
        })
        .collect()
}

/// The same documents, processed once undisturbed and once with kills in the middle, must end up the same.
fn survives(mut cluster: Cluster, pid: impl Fn(&Cluster) -> Option<i32>) {
    cluster.expects_crashes = true;
    let mut db = cluster.connect(APP);
    db.create_slow_embedder(4);
    db.create_kb("calm", "slow", CHUNKING);
    db.create_kb("k", "slow", CHUNKING);
    db.put_all_and_wait("calm", &documents());
    assert_sound(&mut db, "calm", DOCUMENTS as i64, 0);
    db.put_all("k", &documents());
    for kill in 0..KILLS {
        // Alternately as soon as jobs are claimed, and after further vectors have arrived.
        let vectors = db.vectors("k");
        until(SOON, "work is under way", || {
            if kill % 2 == 0 {
                db.count("kb.jobs WHERE leased_until IS NOT NULL") > 0
            } else {
                db.vectors("k") > vectors
            }
        });
        let mut victim = None;
        until(SOON, "the process to kill is there", || {
            victim = pid(&cluster);
            victim.is_some()
        });
        assert!(db.jobs() > 0, "the work was done at kill {kill}: kill earlier or give more work");
        signal(victim.unwrap(), libc::SIGKILL);
        db = cluster.reconnect_after_crash(db);
        // Without preload, this is what starts a worker again; the test does not wait for it.
        let _ = db.try_run("SELECT kb.wait('k', 0.1)");
    }
    db.wait("k");
    assert_sound(&mut db, "k", DOCUMENTS as i64, 0);
    assert_eq!(chunk_set(&mut db, "k"), chunk_set(&mut db, "calm"));
    assert_same_vectors(&mut db);
}

/// Chunks of the same document and place have the same vector in both knowledge bases, except for rounding,
/// because batches differ.
fn assert_same_vectors(db: &mut Db) {
    let (calm, k) = (vector_table(db, "calm"), vector_table(db, "k"));
    let places = |table: &str| {
        format!(
            "(SELECT d.external_id, c.ordinal, v.embedding FROM {table} v JOIN kb.chunks c USING (chunk_id, build_no)
              JOIN kb.documents d USING (document_id))"
        )
    };
    let from = format!("{} a JOIN {} b USING (external_id, ordinal)", places(&calm), places(&k));
    let both = db.count(&from);
    assert!(both > 200, "{both} chunks");
    assert_eq!(db.count(&format!("{from} WHERE a.embedding <=> b.embedding > 1e-4")), 0, "vectors differ");
}

#[test]
fn ten_kills_of_the_worker_lose_and_double_nothing() {
    let cluster = crate::cluster!(PRELOAD);
    survives(cluster, |cluster| Some(cluster.worker(APP)));
}

#[test]
fn ten_kills_of_the_gateway_lose_and_double_nothing() {
    let cluster = crate::cluster!();
    survives(cluster, Cluster::try_gateway);
}

#[test]
fn a_crash_of_the_whole_server_loses_and_doubles_nothing() {
    let (cluster, mut db) = crate::crashing!(PRELOAD, "fsync = on", "kb.worker_idle_timeout = '1s'");
    db.create_slow_embedder(4);
    db.create_kb("calm", "slow", CHUNKING);
    db.create_kb("k", "slow", CHUNKING);
    db.put_all("k", &documents());
    for round in 1..=3 {
        let vectors = db.vectors("k");
        until(SOON, "work is under way", || db.vectors("k") > vectors);
        assert!(db.jobs() > 0, "the work was done in round {round}");
        cluster.stop("immediate", 30);
        cluster.up();
        db = cluster.reconnect(APP);
    }
    db.wait("k");
    db.put_all_and_wait("calm", &documents());
    assert_sound(&mut db, "k", DOCUMENTS as i64, 0);
    assert_eq!(chunk_set(&mut db, "k"), chunk_set(&mut db, "calm"));
    assert_same_vectors(&mut db);
}

#[test]
fn a_killed_indexer_leaves_no_invalid_index() {
    let (cluster, mut db) = crate::crashing!(PRELOAD);
    db.run("SELECT kb.create_vector_db('v', 'pgvector', 384, config => '{\"ef_construction\": 1000, \"m\": 32}')");
    db.run("SELECT kb.create_knowledge_base('k', 'hash', 'v', chunking => '{\"strategy\": \"none\"}')");
    let documents = texts::documents(0..2500, 30);
    db.put_all("k", &documents);
    for _ in 0..2 {
        let mut indexer = None;
        until(SOON * 4, "an indexer builds", || {
            indexer = db
                .all::<i32>(
                    "SELECT a.pid FROM pg_stat_activity a JOIN pg_stat_progress_create_index p USING (pid)
                     WHERE backend_type = 'kb indexer' AND p.phase LIKE 'building index%'",
                )
                .pop();
            indexer.is_some()
        });
        signal(indexer.unwrap(), libc::SIGKILL);
        db = cluster.reconnect_after_crash(db);
    }
    db.wait("k");
    let table = vector_table(&mut db, "k");
    until(SOON * 6, "the index is there and valid", || crate::index::indexes(&mut db, &table) == [true]);
    assert_eq!(db.count("pg_class WHERE relname LIKE '%hnsw%'"), 1);
}

/// A crash loses vectors in memory; the worker makes them again.
#[test]
fn a_knowledge_base_in_memory_is_filled_again_after_a_crash() {
    let (cluster, mut db) = crate::crashing!(PRELOAD, "kb.launcher_naptime = 1");
    db.run("SELECT kb.create_vector_db('quick', 'memory', 384)");
    db.run("SELECT kb.create_knowledge_base('k', 'hash', 'quick')");
    db.put_all_and_wait("k", &documents());
    let before = db.vectors("k");
    cluster.stop("immediate", 30);
    cluster.up();
    let mut db = cluster.reconnect(APP);
    until(SOON, "the vectors are back", || db.vectors("k") == before);
    db.wait("k");
    assert_sound(&mut db, "k", DOCUMENTS as i64, 0);
    assert!(!db.found("k", &texts::paragraph(4242, 35), 3).is_empty());
}

#[test]
fn a_killed_launcher_is_restarted_and_resumes_waiting_work() {
    let mut cluster = crate::cluster!(PRELOAD, "kb.launcher_naptime = 1");
    cluster.expects_crashes = true;
    let launcher = |cluster: &Cluster| cluster.processes("kb launcher", None).first().copied();
    let mut db = cluster.connect(APP);
    db.create_slow_embedder(4);
    db.create_kb("k", "slow", CHUNKING);
    db.put_all("k", &documents());
    until(SOON, "there is a launcher", || launcher(&cluster).is_some());
    let pid = launcher(&cluster).unwrap();
    signal(pid, libc::SIGKILL);
    until(SOON, "the server notices", || db.0.simple_query("SELECT 1").is_err());
    drop(cluster.reconnect("postgres"));
    until(SOON, "there is another launcher", || launcher(&cluster).is_some_and(|other| other != pid));
    // Nothing uses the database until the work is done.
    until(SOON, "its worker is there", || !cluster.processes("kb worker", Some(APP)).is_empty());
    let mut db = cluster.reconnect(APP);
    db.wait("k");
    assert_sound(&mut db, "k", DOCUMENTS as i64, 0);
}

/// A document that kills the worker (by running out of memory, for example) is given up like any other that
/// fails.
#[test]
fn a_document_over_which_workers_die_is_given_up_in_the_end() {
    let (cluster, mut db) = crate::crashing!(PRELOAD, "kb.max_attempts = 2", "kb.launcher_naptime = 1");
    db.create_kb("k", "hash", r#"{"size": 4000}"#);
    // It is large enough to be caught while it is being cut.
    let large = Document::new("large", texts::text(7, 8_000, 60));
    let small = texts::documents(0..20, 30);
    db.put_all("k", &small);
    db.put_all("k", &[large]);
    let job: i64 = db.one("SELECT job_no FROM kb.jobs WHERE subject = 'large'");
    let mut killed = 0;
    for _ in 0..2 {
        let mut pid = None;
        until(SOON, "a worker is at the large document", || {
            let notes = cluster.worker_notes(&mut db);
            // The file that a killed worker left names that document.
            pid = notes.first().copied().filter(|pid| *pid != killed && notes.get(1) == Some(&job));
            pid.is_some()
        });
        killed = pid.unwrap();
        signal(killed as i32, libc::SIGKILL);
        db = cluster.reconnect_after_crash(db);
    }
    db.wait("k");
    assert_sound(&mut db, "k", 20, 1);
    let (id, error): (String, String) = {
        let row = db.0.query_one("SELECT external_id, error FROM kb.failures", &[]).unwrap();
        (row.get(0), row.get(1))
    };
    assert!(id == "large" && error.contains("the worker process died"), "{id}: {error}");
    // No kill happens this time.
    assert_eq!(db.one::<i64>("SELECT kb.retry('k')"), 1);
    db.wait("k");
    assert_sound(&mut db, "k", 21, 0);
}
