//! Runs that are interrupted, and several at once: in the end the knowledge base equals the folder.

use super::{counts, create, ingest, ready, with_folder, write};
use crate::support::{APP, PRELOAD, SOON, assert_sound, signal, until};
use std::fs;

#[test]
fn after_any_kill_the_next_worker_finishes_the_run() {
    let Some((mut cluster, _, folder)) = with_folder(&[PRELOAD, "kb.launcher_naptime = 1"]) else {
        return;
    };
    cluster.expects_crashes = true;
    cluster.stop("fast", 60);
    cluster.up();
    let mut db = cluster.connect(APP);
    create(&mut db, r#"{"path": "**/*.md"}"#);
    let mut expected = Vec::new();
    for round in 0..4 {
        for n in 0..400 {
            let name = format!("{}/{n}.md", n % 7);
            if (n + round) % 5 == 0 {
                let _ = fs::remove_file(folder.join(&name));
            } else if (n + round) % 3 != 0 || round == 0 {
                write(&folder, &name, &format!("text {n} of round {round}"));
            }
        }
        let before = db.one::<i64>("SELECT coalesce(max(run_no), 0) FROM kb.runs");
        let run_no: i64 = db.one("SELECT kb.ingest('k')");
        assert!(run_no > before);
        let has_begun = format!("SELECT bytes > {} FROM kb.runs WHERE run_no = {run_no}", 500 * round);
        until(SOON, "the run is under way or over", || {
            db.one::<bool>(&has_begun)
                || db.one::<bool>(&format!("SELECT state = 'done' FROM kb.runs WHERE run_no = {run_no}"))
        });
        signal(cluster.worker(APP), libc::SIGKILL);
        db = cluster.reconnect_after_crash(db);
        db.run(&format!("SELECT kb.wait({run_no}::bigint, 180)"));
        db.wait("k");
        expected = (0..400)
            .filter_map(|n| {
                let name = format!("{}/{n}.md", n % 7);
                fs::read_to_string(folder.join(&name)).ok().map(|text| format!("s/{name}={text}"))
            })
            .collect();
        expected.sort();
        assert_eq!(ready(&mut db), expected, "round {round}");
        let counts = counts(&mut db, run_no);
        assert_eq!(counts[0], counts[1..].iter().sum::<i64>(), "{counts:?}");
    }
    assert_sound(&mut db, "k", expected.len() as i64, 0);
}

#[test]
fn runs_of_one_source_do_not_overlap() {
    let Some((cluster, mut db, folder)) = with_folder(&[]) else { return };
    for n in 0..300 {
        write(&folder, &format!("{n}.md"), &format!("text {n}"));
    }
    create(&mut db, r#"{"path": "*"}"#);
    let mut other = cluster.connect(APP);
    let (first, second): (i64, i64) = (db.one("SELECT kb.ingest('k')"), other.one("SELECT kb.ingest('k')"));
    assert!(db.count("kb.jobs WHERE kind = 'source'") <= 1);
    for run_no in [first, second] {
        db.run(&format!("SELECT kb.wait({run_no}::bigint, 180)"));
    }
    db.wait("k");
    assert_eq!(ready(&mut db).len(), 300);
    // One that the second run takes up while it is processed may have chunks by then.
    let processed: i64 = db.one("SELECT sum(added + updated)::bigint FROM kb.runs");
    assert_eq!(processed, 300);
    assert_eq!(db.count("kb.runs WHERE state <> 'done'"), 0);
    let run_no = ingest(&mut db);
    assert_eq!(counts(&mut db, run_no), [300, 0, 0, 300, 0, 0]);
}

#[test]
fn a_locked_document_delays_its_source_and_nobody_else() {
    let Some((cluster, mut db, folder)) = with_folder(&[]) else { return };
    write(&folder, "a.md", "One");
    create(&mut db, r#"{"path": "*"}"#);
    ingest(&mut db);
    let mut other = cluster.connect(APP);
    other.run("BEGIN; SELECT FROM kb.documents WHERE external_id = 's/a.md' FOR UPDATE");
    write(&folder, "a.md", "Two");
    write(&folder, "b.md", "New");
    let run_no: i64 = db.one("SELECT kb.ingest('k')");
    until(SOON, "the other file is put", || ready(&mut db) == ["s/a.md=One", "s/b.md=New"]);
    other.run("ROLLBACK");
    db.run(&format!("SELECT kb.wait({run_no}::bigint, 180)"));
    assert_eq!(ready(&mut db), ["s/a.md=Two", "s/b.md=New"]);
}
