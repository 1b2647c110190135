//! Runs that are interrupted, and several at once: in the end the knowledge base equals the folder.

use super::{counts, create, failures, ingest, ready, with_folder, write};
use crate::support::{APP, PRELOAD, SOON, assert_sound, until};
use std::fs;
use std::process::Command;

#[test]
fn after_thirty_kills_of_any_process_the_knowledge_base_equals_the_folder() {
    let Some((mut cluster, mut db, folder)) = with_folder(&[PRELOAD, "kb.launcher_naptime = 1"]) else {
        return;
    };
    cluster.expects_crashes = true;
    cluster.stop("fast", 60);
    cluster.up();
    db = cluster.reconnect_after_crash(db);
    create(&mut db, r#"{"path": "**/*"}"#);
    let name = |n: i32| format!("{}/{n}.{}", n % 7, if n % 4 == 0 { "eml" } else { "md" });
    let (mut expected, mut kills, mut round) = (Vec::new(), 0, 0);
    while kills < 30 {
        round += 1;
        assert!(round < 90, "nothing is killed in the middle of runs: {kills}");
        for n in 0..200 {
            if (n + round) % 5 == 0 {
                let _ = fs::remove_file(folder.join(name(n)));
            } else if (n + round) % 3 != 0 || round == 1 {
                let header = if n % 4 == 0 { "From: a@example.org\nSubject: b\n\n" } else { "" };
                write(&folder, &name(n), &format!("{header}text {n} of round {round}"));
            }
        }
        let run_no: i64 = db.one("SELECT kb.ingest('k')");
        let is_done = format!("SELECT state = 'done' FROM kb.runs WHERE run_no = {run_no}");
        let has_begun = format!("SELECT bytes > {} FROM kb.runs WHERE run_no = {run_no}", 60 * (round % 20));
        until(SOON, "the run is under way or over", || {
            db.one::<bool>(&has_begun) || db.one::<bool>(&is_done)
        });
        let is_killed = match round % 8 {
            0 => {
                cluster.stop("immediate", 60);
                cluster.up();
                true
            }
            1 | 2 => cluster.try_gateway().is_some_and(kill),
            3 | 4 => cluster.processes("kb worker", Some(APP)).into_iter().any(kill),
            // No process of the server ends.
            _ => {
                let programs = crate::put_file::programs(&cluster);
                kills += i64::from(programs.into_iter().any(kill));
                false
            }
        };
        if is_killed {
            kills += 1;
            db = cluster.reconnect_after_crash(db);
        }
        db.run(&format!("SELECT kb.wait({run_no}::bigint, 180)"));
        db.wait("k");
        let text = |n: i32| {
            let text = fs::read_to_string(folder.join(name(n))).ok()?;
            Some(format!("s/{}={}", name(n), text.rsplit('\n').next().unwrap_or_default()))
        };
        expected = (0..200).filter_map(text).collect();
        expected.sort();
        let found: Vec<String> = db.all(
            r#"SELECT external_id || '=' || regexp_replace(content, '^.*\n', '') FROM kb.documents WHERE status = 'ready'
               ORDER BY external_id COLLATE "C""#,
        );
        assert_eq!(found, expected, "round {round}; failures: {:?}", failures(&mut db));
        let counts = counts(&mut db, run_no);
        assert_eq!(counts[0], counts[1..].iter().sum::<i64>(), "{counts:?}");
    }
    assert_sound(&mut db, "k", expected.len() as i64, 0);
}

/// Whether there was such a process.
fn kill(pid: i32) -> bool {
    Command::new("kill").args(["-KILL", &pid.to_string()]).output().unwrap().status.success()
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
