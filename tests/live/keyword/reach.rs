//! What each caller finds, with which scores: tenants, filters, snapshots, standbys.

use super::{answer, compare, compare_where, create, edit, statistics_are_true, text};
use crate::keyword::model::Model;
use crate::support::random::Rng;
use crate::support::{APP, Db, Document, PENDING_CHUNKS, SOON, until};
use serde_json::json;

/// Documents with a number, some of which a filter keeps.
fn numbered(random: &mut Rng, count: usize) -> (Model, Vec<Document>) {
    let mut model = Model::default();
    let documents = (0..count).map(|n| {
        let id = format!("d{n}");
        let text = text(random, &id);
        model.0.insert(id.clone(), text.clone());
        Document { metadata: json!({ "n": n }), ..Document::new(id, text) }
    });
    let documents = documents.collect();
    (model, documents)
}

const QUESTIONS: [&str; 3] = ["w5x0", "w5x1 w50x3 w2000x7", "only1 only1000"];

/// A row of an answer in mode hybrid: its document and rank_score, and its rank and score by meaning and by
/// words.
struct Fused {
    id: String,
    rank_score: f64,
    dense: Option<(usize, f64)>,
    keyword: Option<(usize, f64)>,
}

fn hybrid(db: &mut Db, question: &str, top_k: i32) -> Vec<Fused> {
    let sql = "SELECT external_id, rank_score, (locator #>> '{ranks,dense,rank}')::bigint, (locator #>> '{ranks,dense,score}')::float8,
                   (locator #>> '{ranks,keyword,rank}')::bigint, (locator #>> '{ranks,keyword,score}')::float8
               FROM kb.query('k', $1, $2, mode => 'hybrid', min_score => -1, options => '{\"explain\": true, \"hybrid\": {\"fusion\": \"rrf\"}}') ORDER BY rank";
    let rows = db.0.query(sql, &[&question, &top_k]).unwrap();
    let found = |row: &postgres::Row, column: usize| -> Option<(usize, f64)> {
        Some((row.get::<_, Option<i64>>(column)? as usize, row.get(column + 1)))
    };
    let fused = |row: &postgres::Row| Fused {
        id: row.get(0),
        rank_score: row.get(1),
        dense: found(row, 2),
        keyword: found(row, 4),
    };
    rows.iter().map(fused).collect()
}

/// In mode hybrid, the side of the words has the ranks and scores of the model, the side of the meaning has
/// every document of the model once, and the answer follows from their ranks.
fn compare_hybrid(db: &mut Db, model: &Model, question: &str) {
    let expected = model.ask(question, (1.2, 0.75), |_| true);
    for top_k in [10, 10_000] {
        let rows = hybrid(db, question, top_k);
        assert_eq!(rows.len(), model.0.len().min(top_k as usize), "{question}");
        assert!(rows.is_sorted_by(|a, b| a.rank_score >= b.rank_score), "{question}");
        for Fused { id, rank_score, dense, keyword } in &rows {
            assert!(model.0.contains_key(id), "{question}: {id}");
            let sum: f64 =
                [dense, keyword].into_iter().flatten().map(|(rank, _)| 1.0 / (60.0 + *rank as f64)).sum();
            assert!((rank_score - sum).abs() < 1e-12, "{question}: {id} {rank_score} {sum}");
            let of_model = expected.iter().find(|scored| &scored.id == id).map(|scored| scored.score);
            let Some((rank, score)) = keyword else {
                // Each side searches for a hundred.
                let is_behind = expected.len() > 100 && of_model <= Some(expected[99].score + 1e-9);
                assert!(of_model.is_none() || top_k == 10 && is_behind, "{question}: {id} {of_model:?}");
                continue;
            };
            // Of documents with equal scores, any may come first; scores that differ by a millionth are
            // equal.
            let at_rank = expected.get(rank - 1).map(|scored| scored.score);
            for (of_model, most) in [(of_model, 1e-9), (at_rank, 1e-6 * expected[0].score)] {
                assert!(
                    of_model.is_some_and(|of_model| (of_model - score).abs() < most),
                    "{question}: {id} {score}"
                );
            }
        }
        if top_k == 10_000 {
            let ranks = |of: fn(&Fused) -> Option<(usize, f64)>| {
                let mut ranks: Vec<usize> = rows.iter().filter_map(of).map(|(rank, _)| rank).collect();
                ranks.sort_unstable();
                ranks
            };
            // Documents with equal scores share a rank, that of the first of them.
            let are_ranks = |ranks: Vec<usize>, count: usize| {
                ranks.len() == count && ranks.iter().zip(1..).all(|(rank, place)| (1..=place).contains(rank))
            };
            assert!(are_ranks(ranks(|row| row.keyword), expected.len()), "{question}");
            assert!(are_ranks(ranks(|row| row.dense), model.0.len()), "{question}");
        }
    }
}

fn number(id: &str) -> usize {
    id[1..].parse().unwrap()
}

#[test]
fn a_filter_leaves_no_row_out_that_qualifies() {
    let (cluster, mut db) = crate::connected!();
    create(&mut db, "k");
    let (model, documents) = numbered(&mut Rng::with_seed(3), 3_000);
    db.put_all_and_wait("k", &documents);
    until(SOON, "chunks are folded", || db.count(PENDING_CHUNKS) < 256);
    db.run("CREATE ROLE reader LOGIN; GRANT kb_reader TO reader");
    let mut reader = cluster.connect_as(APP, "reader");
    for least in [0, 1, 1_500, 2_500, 2_970, 2_999, 3_000] {
        for question in ["w5x0 w50x7", "w50x1 w2000x9 w2000x11", "onlyd2999 w5x3", "absent"] {
            for top_k in [1, 10, 2_000] {
                let filter = json!({"type": "gte", "key": "n", "value": least}).to_string();
                let keeps = |id: &str| number(id) >= least;
                compare_where(&mut db, "k", &model, question, top_k, &filter, keeps);
                compare_where(&mut reader, "k", &model, question, top_k, &filter, keeps);
            }
        }
    }
}

#[test]
fn a_filter_that_keeps_only_low_ranked_chunks_finds_all_of_them() {
    let (_cluster, mut db) = crate::connected!();
    create(&mut db, "k");
    let mut model = Model::default();
    // Later documents contain the word less often, and there are so many that the chunks that pass are listed
    // only after thousands were examined.
    let count = 6_500;
    let documents: Vec<Document> = (0..count)
        .map(|n| {
            let id = format!("d{n}");
            let text = format!("{}{}n{n}", "harbor ".repeat(5 - n / 1_500), "other ".repeat(1 + n / 1_500));
            model.0.insert(id.clone(), text.clone());
            Document { metadata: json!({ "n": n }), ..Document::new(id, text) }
        })
        .collect();
    db.put_all_and_wait("k", &documents);
    until(SOON, "chunks are folded", || db.count(PENDING_CHUNKS) < 256);
    for (least, top_k) in [(5_000, 5), (5_000, 2_000), (3_000, 5), (1_400, 3_000)] {
        let filter = json!({"type": "gte", "key": "n", "value": least}).to_string();
        compare_where(&mut db, "k", &model, "harbor", top_k, &filter, |id| number(id) >= least);
    }
}

#[test]
fn words_of_other_tenants_change_no_score() {
    let (cluster, mut db) = crate::connected!();
    db.run(
        "CREATE TABLE notes (id bigint PRIMARY KEY, tenant text, body text);
         CREATE ROLE reader LOGIN; GRANT kb_reader TO reader",
    );
    db.run("SET kb.tenant = 'shared'");
    create(&mut db, "k");
    db.run("SELECT kb.attach_table('k', 'notes', content => 'body', tenant => 'tenant')");
    let mut model = Model::default();
    let mut insert = |db: &mut Db, tenant: &str, from: i64, count: i64| {
        let mut random = Rng::with_seed(from as u64);
        for id in from..from + count {
            let text = text(&mut random, &id.to_string());
            db.0.execute("INSERT INTO notes VALUES ($1, $2, $3)", &[&id, &tenant, &text]).unwrap();
            if tenant == "a" {
                model.0.insert(id.to_string(), text);
            }
        }
        db.wait("k");
    };
    insert(&mut db, "a", 1, 400);
    until(SOON, "chunks of one are folded", || db.count("kb.bm25_segments WHERE tenant_id = 'a'") > 0);
    insert(&mut db, "b", 1_000, 700);
    until(SOON, "chunks of the other are folded", || db.count("kb.bm25_segments WHERE tenant_id = 'b'") > 0);
    insert(&mut db, "a", 2_000, 60);
    db.run_and_wait("k", "DELETE FROM notes WHERE id % 10 = 3 AND tenant = 'b'");
    let mut reader = cluster.connect_as_tenant("reader", "a");
    for question in QUESTIONS {
        compare(&mut reader, "k", &model, question, 30);
        compare_hybrid(&mut reader, &model, question);
    }
    assert_eq!(reader.one::<i64>("SELECT count(*) FROM kb.bm25_segments WHERE tenant_id <> 'a'"), 0);
    for table in ["bm25_terms", "bm25_chunks", "bm25_pending"] {
        reader.refused(&format!("SELECT FROM kb.{table}"), "42501");
    }
    // A session of no tenant reads nothing.
    reader.run("SET kb.tenant = 'c'");
    assert_eq!(answer(&mut reader, "k", "w5x0", 10, "{}"), []);
    assert_eq!(hybrid(&mut reader, "w5x0", 10).len(), 0);
}

#[test]
fn in_a_shared_knowledge_base_only_words_of_the_owner_and_of_the_caller_count() {
    let (cluster, mut db) = crate::connected!();
    db.run(
        "CREATE TABLE notes (id text PRIMARY KEY, tenant text, body text);
         CREATE ROLE reader LOGIN; GRANT kb_reader TO reader",
    );
    db.run("SET kb.tenant = 'a'");
    create(&mut db, "k");
    db.run("SELECT kb.attach_table('k', 'notes', content => 'body', tenant => 'tenant')");
    let mut random = Rng::with_seed(17);
    let mut models = [(); 3].map(|()| Model::default());
    // Some chunks of each are folded, the others are pending.
    for (round, count) in [(0, 300), (1, 40)] {
        for (tenant, model) in ["a", "b", "c"].iter().zip(&mut models) {
            for n in 0..count {
                let id = format!("{tenant}{round}x{n}");
                let text = text(&mut random, &id);
                db.0.execute("INSERT INTO notes VALUES ($1, $2, $3)", &[&id, tenant, &text]).unwrap();
                model.0.insert(id, text);
            }
        }
        db.wait("k");
        until(SOON, "chunks of all are folded", || {
            db.one("SELECT count(DISTINCT tenant_id) = 3 FROM kb.bm25_segments")
        });
    }
    let [of_a, of_b, _] = models;
    let mut of_both = of_a.clone();
    of_both.0.extend(of_b.0);
    let (mut a, mut b) = (cluster.connect_as(APP, "reader"), cluster.connect_as(APP, "reader"));
    a.run("SET kb.tenant = 'a'");
    b.run("SET kb.tenant = 'b'");
    for is_shared in [false, true, false] {
        for question in QUESTIONS {
            compare(&mut a, "k", &of_a, question, 30);
            compare_hybrid(&mut a, &of_a, question);
            if is_shared {
                compare(&mut b, "k", &of_both, question, 30);
                compare_hybrid(&mut b, &of_both, question);
            } else {
                b.refused(&format!("SELECT * FROM kb.query('k', '{question}', mode => 'hybrid')"), "42704");
            }
        }
        db.run(if is_shared { "SELECT kb.unshare('k', 'b')" } else { "SELECT kb.share('k', 'b')" });
    }
}

#[test]
fn a_snapshot_and_a_standby_see_one_state_while_segments_are_folded_and_merged() {
    let (cluster, mut db) = crate::connected!("wal_level = replica");
    create(&mut db, "k");
    let mut random = Rng::with_seed(11);
    let (mut model, mut gone) = (Model::default(), Vec::new());
    edit(&mut db, "k", &mut model, &mut random, &mut gone);
    let mut reader = cluster.connect(APP);
    reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    let question = "w5x0 w5x1 w50x2";
    let then = model.clone();
    compare(&mut reader, "k", &then, question, 1_000);
    let standby = cluster.standby(&[]);
    let mut replica = standby.connect(APP);
    for _ in 0..8 {
        edit(&mut db, "k", &mut model, &mut random, &mut gone);
        compare(&mut reader, "k", &then, question, 1_000);
        // Chunks are folded and merged meanwhile.
        let written: String = db.one("SELECT pg_current_wal_insert_lsn()::text");
        until(SOON, "the standby has what was written", || {
            replica.one_with("SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", &[&written])
        });
        compare(&mut replica, "k", &model, question, 1_000);
    }
    until(SOON, "chunks are folded", || db.count(PENDING_CHUNKS) < 256);
    compare(&mut reader, "k", &then, question, 1_000);
    reader.run("COMMIT");
    compare(&mut reader, "k", &model, question, 1_000);
    db.put_and_wait("k", "last", "lastword w5x0");
    model.0.insert("last".into(), "lastword w5x0".into());
    until(SOON, "the standby has all", || {
        replica.count("kb.documents WHERE external_id = 'last' AND status = 'ready'") == 1
    });
    compare(&mut replica, "k", &model, question, 1_000);
    statistics_are_true(&mut replica);
}
