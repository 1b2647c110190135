//! Killed in the middle: nothing of what words find is lost or doubled.

use super::{compare, create, question, statistics_are_true, text, word};
use crate::keyword::model::Model;
use crate::support::db::Document;
use crate::support::{APP, Random, SOON, signal, until};

const KILLS: usize = 8;

#[test]
fn a_worker_killed_while_it_folds_and_merges_loses_and_doubles_nothing() {
    let mut cluster = crate::cluster!();
    cluster.expects_crashes = true;
    let mut db = cluster.connect(APP);
    create(&mut db, "k");
    let mut random = Random::new(7);
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
        // Now while chunks are written, now while they are folded or merged.
        let segments = db.count("kb.bm25_segments");
        let before: i64 = db.one("SELECT coalesce(max(segment_no), 0) FROM kb.bm25_segments");
        let mut victim = None;
        until(SOON, "the worker is in the middle", || {
            victim = cluster.processes("kb worker", Some(APP)).pop();
            let is_writing = db.count("kb.bm25_pending") > 0;
            let has_folded = db.count(&format!("kb.bm25_segments WHERE segment_no > {before}")) > 0;
            victim.is_some() && if kill % 2 == 0 || segments == 0 { is_writing } else { has_folded }
        });
        signal(victim.unwrap(), libc::SIGKILL);
        until(SOON, "the server notices", || db.0.simple_query("SELECT 1").is_err());
        db = cluster.reconnect(APP);
        db.wait("k");
        statistics_are_true(&mut db);
        compare(&mut db, "k", &model, &question(&mut random), 20);
    }
    // Everything is folded in the end.
    let word = word(&mut random);
    until(SOON, "few chunks wait", || {
        // A question starts the worker that is needed.
        compare(&mut db, "k", &model, &word, 5);
        db.count("kb.bm25_pending") < 256
    });
    statistics_are_true(&mut db);
    compare(&mut db, "k", &model, &format!("{word} w5x1 w5x2 w5x3"), 1_000);
}
