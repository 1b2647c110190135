//! Sources of files: a knowledge base follows a folder, and no file outside of it is read.

mod buckets;
mod ends;
mod git;
mod import;
mod paths;
mod query;
mod refuse;
mod site;
mod web;

use crate::support::{APP, Cluster, Db, SOON, until};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A cluster with knowledge base k and a folder that sources may read.
fn with_folder(settings: &[&str]) -> Option<(Cluster, Db, PathBuf)> {
    let cluster = Cluster::start(&[])?;
    let folder = cluster.path("folder");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let dirs = format!("kb.source_dirs = '{}'", folder.display());
    cluster.configure(&[&[dirs.as_str()], settings].concat());
    cluster.reload();
    let mut db = cluster.connect(APP);
    db.run("LOAD 'kb'");
    until(SOON, "the setting is there", || !db.one::<String>("SHOW kb.source_dirs").is_empty());
    db.create_kb("k", "hash", "{}");
    Some((cluster, db, folder))
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn create(db: &mut Db, config: &str) {
    db.run(&format!("SELECT kb.create_source('k', 's', 'files', '{config}')"));
}

/// Runs the sources to the end. Returns the number of the run.
fn ingest(db: &mut Db) -> i64 {
    let run_no: i64 = db.one("SELECT kb.ingest('k')");
    db.run(&format!("SELECT kb.wait({run_no}::bigint, 180)"));
    run_no
}

/// scanned, added, updated, skipped, deleted and failed.
fn counts(db: &mut Db, run_no: i64) -> Vec<i64> {
    db.one(&format!(
        "SELECT ARRAY[scanned, added, updated, skipped, deleted, failed] FROM kb.runs WHERE run_no = {run_no}"
    ))
}

/// The ids and texts of the documents that are ready.
fn ready(db: &mut Db) -> Vec<String> {
    db.all(
        "SELECT external_id || '=' || content FROM kb.documents WHERE status = 'ready' ORDER BY external_id COLLATE \"C\"",
    )
}

fn failures(db: &mut Db) -> Vec<String> {
    db.all("SELECT external_id || ': ' || error FROM kb.failures ORDER BY external_id COLLATE \"C\"")
}

#[test]
fn a_folder_becomes_documents_that_follow_it() {
    let Some((_cluster, mut db, folder)) = with_folder(&[]) else { return };
    write(&folder, "a.md", "One");
    write(&folder, "sub/b.md", "Two");
    write(&folder, "c.txt", "no Markdown");
    db.put_and_wait("k", "other", "Other");
    db.run(r#"SELECT kb.create_source('k', 's', 'markdown_glob', '{"path": "**/*.md", "metadata": {"of": "folder"}}')"#);
    let run_no = ingest(&mut db);
    assert_eq!(ready(&mut db), ["other=Other", "s/a.md=One", "s/sub/b.md=Two"]);
    assert_eq!(counts(&mut db, run_no), [3, 2, 0, 1, 0, 0]);
    assert_eq!(db.one::<i64>(&format!("SELECT chunks FROM kb.runs WHERE run_no = {run_no}")), 2);
    let row: String = db.one(
        "SELECT concat_ws(' ', uri, content_type, metadata) FROM kb.documents WHERE external_id = 's/sub/b.md'",
    );
    assert_eq!(row, r#"sub/b.md text/markdown {"of": "folder"}"#);
    assert_eq!(db.found("k", "Two", 1), ["s/sub/b.md"]);
    // Only the source changes its documents.
    let fault = db.refused("SELECT kb.put_document('k', 's/a.md', 'mine')", "55000");
    assert!(fault.text.contains("comes from source \"s\""), "{fault:?}");
    db.refused("SELECT kb.delete_document('k', 's/a.md')", "55000");
    write(&folder, "a.md", "One more");
    fs::remove_file(folder.join("sub/b.md")).unwrap();
    write(&folder, "d.md", "Three");
    let run_no = ingest(&mut db);
    assert_eq!(ready(&mut db), ["other=Other", "s/a.md=One more", "s/d.md=Three"]);
    assert_eq!(counts(&mut db, run_no), [4, 1, 1, 1, 1, 0]);
    assert_eq!(db.one::<i64>(&format!("SELECT chunks FROM kb.runs WHERE run_no = {run_no}")), 2);
    // A run that replaces counts the chunks of its build.
    let run_no: i64 = db.one("SELECT kb.ingest('k', 'replace')");
    db.run(&format!("SELECT kb.wait({run_no}::bigint, 180)"));
    assert_eq!(db.one::<i64>(&format!("SELECT chunks FROM kb.runs WHERE run_no = {run_no}")), 3);
    // A second run finds nothing to do.
    let run_no = ingest(&mut db);
    assert_eq!(counts(&mut db, run_no), [3, 0, 0, 3, 0, 0]);
    let row: bool = db.one(&format!(
        "SELECT run_no = {run_no} AND last_run_at IS NOT NULL AND error IS NULL FROM kb.sources"
    ));
    assert!(row);
}

#[test]
fn cleanup_says_whether_documents_of_files_that_are_gone_are_deleted() {
    let Some((_cluster, mut db, folder)) = with_folder(&[]) else { return };
    write(&folder, "a.md", "One");
    create(&mut db, r#"{"path": "*", "cleanup": "none"}"#);
    ingest(&mut db);
    fs::remove_file(folder.join("a.md")).unwrap();
    let run_no = ingest(&mut db);
    assert_eq!(ready(&mut db), ["s/a.md=One"]);
    // No match is a warning, and no error.
    let warnings: Vec<String> = db.one(&format!("SELECT warnings FROM kb.runs WHERE run_no = {run_no}"));
    assert_eq!(warnings, ["s: no file matches \"*\""]);
    db.run(r#"SELECT kb.alter_source('k', 's', '{"path": "*", "cleanup": "full"}')"#);
    let run_no = ingest(&mut db);
    assert_eq!((ready(&mut db).len(), counts(&mut db, run_no)[4]), (0, 1));
}

#[test]
fn a_source_runs_by_itself_as_often_as_it_says() {
    let Some((_cluster, mut db, folder)) = with_folder(&["kb.worker_idle_timeout = '1h'"]) else { return };
    create(&mut db, r#"{"path": "*", "every": "1 second"}"#);
    ingest(&mut db);
    write(&folder, "a.md", "One");
    until(SOON, "the source runs again", || ready(&mut db) == ["s/a.md=One"]);
    assert!(db.one::<bool>("SELECT next_run_at > last_run_at FROM kb.sources"));
    // By a cron expression, with seconds, and after a time at which the server was off.
    db.run(r#"SELECT kb.alter_source('k', 's', '{"path": "*", "every": "* * * * * *"}')"#);
    write(&folder, "b.md", "Two");
    until(SOON, "the source runs again", || ready(&mut db).len() == 2);
    db.run(r#"SELECT kb.alter_source('k', 's', '{"path": "*", "every": "0 3 1 1 *"}')"#);
    let yearly = "SELECT next_run_at AT TIME ZONE 'UTC' = date_trunc('year', now() AT TIME ZONE 'UTC') + '1 year 3 hours' FROM kb.sources";
    assert!(db.one::<bool>(yearly));
    write(&folder, "c.md", "Three");
    let last: i64 = db.one("SELECT max(run_no) FROM kb.runs");
    db.run("UPDATE kb.sources SET next_run_at = now() - '3 years'::interval");
    db.put_and_wait("k", "wakes", "The worker.");
    until(SOON, "the source has run", || ready(&mut db).len() == 4);
    until(SOON, "the next run is known", || db.one::<bool>(yearly));
    assert_eq!(db.count(&format!("kb.runs WHERE run_no > {last}")), 1);
    db.run(r#"SELECT kb.alter_source('k', 's', '{"path": "*"}')"#);
    assert!(db.one::<bool>("SELECT next_run_at IS NULL FROM kb.sources"));
}

#[test]
fn a_source_that_is_dropped_takes_its_documents_along_or_leaves_them() {
    let Some((_cluster, mut db, folder)) = with_folder(&[]) else { return };
    write(&folder, "a.md", "One");
    for (deletes, left) in [("true", 0), ("false", 1)] {
        create(&mut db, r#"{"path": "*"}"#);
        ingest(&mut db);
        assert_eq!(db.one::<i64>(&format!("SELECT kb.drop_source('k', 's', {deletes})")), 1);
        assert_eq!((ready(&mut db).len(), db.count("kb.sources")), (left, 0));
    }
    // It is a document that was put by now.
    db.put_and_wait("k", "s/a.md", "Mine");
    assert_eq!(ready(&mut db), ["s/a.md=Mine"]);
    // A new source leaves it alone, and says so.
    create(&mut db, r#"{"path": "*"}"#);
    let run_no = ingest(&mut db);
    assert_eq!((ready(&mut db), counts(&mut db, run_no)[5]), (vec!["s/a.md=Mine".to_string()], 1));
    assert!(db.one::<String>("SELECT error FROM kb.sources").contains("do not come from this source"));
}
