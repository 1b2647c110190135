//! A kill in the middle loses or duplicates nothing of what words find.

use super::{compare, create, question, statistics_are_true, text, word};
use crate::keyword::model::Model;
use crate::support::random::Rng;
use crate::support::{APP, Db, Document, LONG, PENDING_CHUNKS, SOON, signal, until};

const KILLS: usize = 8;

#[test]
fn a_worker_killed_while_it_folds_and_merges_loses_and_doubles_nothing() {
    let (cluster, mut db) = crate::crashing!();
    create(&mut db, "k");
    let mut random = Rng::with_seed(7);
    let mut model = Model::default();
    for kill in 0..KILLS {
        let mut documents = Vec::new();
        for n in 0..400 {
            let id = format!("d{kill}x{n}");
            let text = text(&mut random, &id);
            model.0.insert(id.clone(), text.clone());
            documents.push(Document::new(id, text));
        }
        db.put_all("k", &documents);
        // Sometimes while chunks are written, sometimes while they are folded or merged.
        let segments = db.count("kb.bm25_segments");
        let before: i64 = db.one("SELECT coalesce(max(segment_no), 0) FROM kb.bm25_segments");
        let mut victim = None;
        until(SOON, "the worker is in the middle", || {
            victim = cluster.processes("kb worker", Some(APP)).pop();
            let is_writing = db.count(PENDING_CHUNKS) > 0;
            let has_folded = db.count(&format!("kb.bm25_segments WHERE segment_no > {before}")) > 0;
            victim.is_some() && if kill % 2 == 0 || segments == 0 { is_writing } else { has_folded }
        });
        signal(victim.unwrap(), libc::SIGKILL);
        db = cluster.reconnect_after_crash(db);
        db.wait("k");
        statistics_are_true(&mut db);
        compare(&mut db, "k", &model, &question(&mut random), 20);
    }
    // Everything is folded in the end.
    let word = word(&mut random);
    until(SOON, "few chunks wait", || {
        // A question starts the worker that is needed.
        compare(&mut db, "k", &model, &word, 5);
        db.count(PENDING_CHUNKS) < 256
    });
    statistics_are_true(&mut db);
    compare(&mut db, "k", &model, &format!("{word} w5x1 w5x2 w5x3"), 1_000);
}

#[test]
fn large_segments_are_merged_by_the_indexer_and_a_kill_loses_and_doubles_nothing() {
    let (cluster, mut db) = crate::crashing!();
    // The vectors need no index: the indexer is started for the words only.
    db.run("SELECT kb.create_vector_db('v', dimension => 384, config => '{\"min_rows\": 100000000}')");
    db.run(
        "SELECT kb.create_knowledge_base('k', 'hash', 'v', preprocess => '{\"language\": \"simple\"}',
             retrieval => '{\"mode\": \"keyword\"}')",
    );
    let mut random = Rng::with_seed(8);
    let mut model = Model::default();
    for part in 0..17 {
        let documents: Vec<Document> = (0..1000)
            .map(|n| {
                let id = format!("d{part}x{n}");
                let text = format!("{} {} only{id}", word(&mut random), word(&mut random));
                model.0.insert(id.clone(), text.clone());
                Document::new(id, text)
            })
            .collect();
        db.put_all("k", &documents);
    }
    db.wait("k");
    // More than a fifth, in the oldest segment: what the worker merges of the others leaves as many, which
    // are too many for it.
    const GONE: usize = 3_720;
    let oldest = "SELECT d.external_id FROM kb.bm25_chunks b, pg_catalog.generate_series(0, length(b.chunk_ids) / 16 - 1) i
         JOIN LATERAL (SELECT encode(substr(b.chunk_ids, 1 + 16 * i, 16), 'hex')::uuid AS id) n ON true
         JOIN kb.chunks c ON c.chunk_id = n.id JOIN kb.documents d USING (document_id)
         WHERE NOT b.is_gone AND b.segment_no = (SELECT segment_no FROM kb.bm25_segments ORDER BY age LIMIT 1)
         ORDER BY d.external_id";
    let mut gone = Vec::new();
    until(SOON, "the worker has folded all but a few, and merged them", || {
        // A question starts the worker that is needed.
        compare(&mut db, "k", &model, "w5x1", 5);
        gone = db.all::<String>(oldest);
        db.count(PENDING_CHUNKS) < 256 && gone.len() >= GONE
    });
    gone.truncate(GONE);
    // The indexer pauses at each part that it writes, so that it is killed in the middle.
    db.run(
        "CREATE FUNCTION public.rest() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
             IF EXISTS (SELECT FROM pg_stat_activity WHERE pid = pg_backend_pid() AND backend_type = 'kb indexer') THEN
                 PERFORM pg_sleep(1);
             END IF;
             RETURN NEW;
         END$$;
         CREATE TRIGGER rest BEFORE INSERT ON kb.bm25_terms FOR EACH ROW EXECUTE FUNCTION public.rest()",
    );
    db.0.execute("SELECT kb.delete_documents('k', $1)", &[&gone]).unwrap();
    gone.iter().for_each(|id| drop(model.0.remove(id)));
    // What is pending in the end was put last, or folded by a commit that the crash lost.
    let is_merged = |db: &mut Db, chunks: usize| {
        let row =
            db.0.query_one("SELECT sum(came - went), sum(went), count(*) FROM kb.bm25_segments", &[])
                .unwrap();
        let waiting: i64 = db.count(PENDING_CHUNKS);
        let (chunks_of, went) = (row.get::<_, Option<i64>>(0), row.get::<_, Option<i64>>(1));
        row.get::<_, i64>(2) == 1 && went == Some(0) && chunks_of == Some(chunks as i64 - waiting)
    };
    let mut victim = None;
    until(LONG, "the indexer has written a part of the new segment", || {
        let resting = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'kb indexer' AND query LIKE 'merging the words%'
                           AND wait_event = 'PgSleep'";
        victim = db.all::<i32>(resting).pop();
        victim.is_some()
    });
    signal(victim.unwrap(), libc::SIGKILL);
    db = cluster.reconnect_after_crash(db);
    assert!(!is_merged(&mut db, model.0.len()), "it was merged before the kill");
    db.run("DROP TRIGGER rest ON kb.bm25_terms");
    // The next write starts the worker, which sees what is left to do.
    let document = Document::new("last", "w5x1 onlylast");
    model.0.insert(document.id.clone(), document.content.clone());
    db.put_all_and_wait("k", &[document]);
    until(LONG, "all is one segment, of what is there", || {
        compare(&mut db, "k", &model, "w5x1 w50x2", 20);
        is_merged(&mut db, model.0.len())
    });
    statistics_are_true(&mut db);
    compare(&mut db, "k", &model, &question(&mut random), 1_000);
}
