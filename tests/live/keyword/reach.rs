//! What is found and scored for whom: tenants, filters, snapshots, standbys.

use super::{answer, compare, compare_where, create, edit, statistics_are_true, text};
use crate::keyword::model::Model;
use crate::support::db::Document;
use crate::support::{APP, Db, Random, SOON, until};
use serde_json::json;

/// Documents with a number, of which filters keep some.
fn numbered(random: &mut Random, count: usize) -> (Model, Vec<Document>) {
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

fn number(id: &str) -> usize {
    id[1..].parse().unwrap()
}

#[test]
fn a_filter_leaves_no_row_out_that_qualifies() {
    let cluster = crate::cluster!();
    let mut db = cluster.connect(APP);
    create(&mut db, "k");
    let (model, documents) = numbered(&mut Random::new(3), 3_000);
    db.put_all("k", &documents);
    db.wait("k");
    until(SOON, "chunks are folded", || db.count("kb.bm25_pending") < 256);
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
fn a_filter_that_keeps_what_comes_late_loses_none_of_it() {
    let cluster = crate::cluster!();
    let mut db = cluster.connect(APP);
    create(&mut db, "k");
    let mut model = Model::default();
    // The later, the less of the word; so many that the chunks that pass are listed only after thousands were looked at.
    let count = 6_500;
    let documents: Vec<Document> = (0..count)
        .map(|n| {
            let id = format!("d{n}");
            let text = format!("{}{}n{n}", "harbor ".repeat(5 - n / 1_500), "other ".repeat(1 + n / 1_500));
            model.0.insert(id.clone(), text.clone());
            Document { metadata: json!({ "n": n }), ..Document::new(id, text) }
        })
        .collect();
    db.put_all("k", &documents);
    db.wait("k");
    until(SOON, "chunks are folded", || db.count("kb.bm25_pending") < 256);
    for (least, top_k) in [(5_000, 5), (5_000, 2_000), (3_000, 5), (1_400, 3_000)] {
        let filter = json!({"type": "gte", "key": "n", "value": least}).to_string();
        compare_where(&mut db, "k", &model, "harbor", top_k, &filter, |id| number(id) >= least);
    }
}

#[test]
fn words_of_other_tenants_change_no_score() {
    let cluster = crate::cluster!();
    let mut db = cluster.connect(APP);
    db.run(
        "CREATE TABLE notes (id bigint PRIMARY KEY, tenant text, body text);
         CREATE ROLE reader LOGIN; GRANT kb_reader TO reader",
    );
    db.run("SET kb.tenant = 'shared'");
    create(&mut db, "k");
    db.run("SELECT kb.attach_table('k', 'notes', content => 'body', tenant => 'tenant')");
    let mut model = Model::default();
    let mut insert = |db: &mut Db, tenant: &str, from: i64, count: i64| {
        let mut random = Random::new(from as u64);
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
    db.run("DELETE FROM notes WHERE id % 10 = 3 AND tenant = 'b'");
    db.wait("k");
    let mut reader = cluster.connect_as(APP, "reader");
    reader.run("SET kb.tenant = 'a'");
    for question in ["w5x0", "w5x1 w50x3 w2000x7", "only1 only1000"] {
        compare(&mut reader, "k", &model, question, 30);
    }
    assert_eq!(reader.one::<i64>("SELECT count(*) FROM kb.bm25_segments WHERE tenant_id <> 'a'"), 0);
    for table in ["bm25_terms", "bm25_chunks", "bm25_pending"] {
        assert_eq!(reader.fault(&format!("SELECT FROM kb.{table}")).code, "42501", "{table}");
    }
    // Who is nobody's reads nothing.
    reader.run("SET kb.tenant = 'c'");
    assert_eq!(answer(&mut reader, "k", "w5x0", 10, "{}"), []);
}

#[test]
fn a_snapshot_and_a_standby_see_one_state_while_segments_are_folded_and_merged() {
    let cluster = crate::cluster!("wal_level = replica");
    let mut db = cluster.connect(APP);
    create(&mut db, "k");
    let mut random = Random::new(11);
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
    until(SOON, "chunks are folded", || db.count("kb.bm25_pending") < 256);
    compare(&mut reader, "k", &then, question, 1_000);
    reader.run("COMMIT");
    compare(&mut reader, "k", &model, question, 1_000);
    db.put("k", "last", "lastword w5x0");
    db.wait("k");
    model.0.insert("last".into(), "lastword w5x0".into());
    until(SOON, "the standby has all", || {
        replica.count("kb.documents WHERE external_id = 'last' AND status = 'ready'") == 1
    });
    compare(&mut replica, "k", &model, question, 1_000);
    statistics_are_true(&mut replica);
}
