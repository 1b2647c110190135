//! kb.sync_documents makes what was put under a prefix equal to what it is given, and touches nothing else.

use crate::support::{APP, Cluster, Db, assert_sound};
use std::thread;

/// added, updated, skipped and deleted.
fn sync(db: &mut Db, scope: &str, documents: &[(&str, &str)]) -> Vec<i64> {
    let json: Vec<String> = documents
        .iter()
        .map(|(id, text)| serde_json::json!({"external_id": id, "content": text}).to_string())
        .collect();
    db.one_with(
        "SELECT ARRAY[added, updated, skipped, deleted] FROM kb.sync_documents('k', $1::text[]::jsonb[], $2)",
        &[&json, &scope],
    )
}

fn ids(db: &mut Db) -> Vec<String> {
    db.all("SELECT external_id FROM kb.documents ORDER BY external_id COLLATE \"C\"")
}

#[test]
fn a_sync_puts_all_and_deletes_the_rest_of_its_scope_in_one_transaction() {
    let (_cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", "{}");
    assert_eq!(sync(&mut db, "w/", &[("w/a", "One"), ("w/b", "Two"), ("w/c", "Three")]), [3, 0, 0, 0]);
    db.put("k", "w", "Outside");
    db.put_and_wait("k", "w0", "Outside");
    let given = [("w/b", "Two"), ("w/c", "Three and more"), ("w/d", "Four")];
    db.run("BEGIN");
    assert_eq!(sync(&mut db, "w/", &given), [1, 1, 1, 1]);
    db.run("ROLLBACK");
    assert_eq!(ids(&mut db), ["w", "w/a", "w/b", "w/c", "w0"]);
    assert_eq!(sync(&mut db, "w/", &given), [1, 1, 1, 1]);
    db.wait("k");
    assert_eq!(ids(&mut db), ["w", "w/b", "w/c", "w/d", "w0"]);
    assert_sound(&mut db, "k", 5, 0);
    assert_eq!(db.found("k", "Three and more", 1), ["w/c"]);
    assert_eq!(sync(&mut db, "w/", &given), [0, 0, 3, 0]);
    // What does not lie in the scope is refused, and so is everything else that kb.put_documents refuses.
    let one = |document: &str, scope: &str| {
        format!("SELECT kb.sync_documents('k', ARRAY['{document}']::jsonb[], {scope})")
    };
    let fault = db.refused(&one(r#"{"external_id": "v/a", "content": "x"}"#, "'w/'"), "22023");
    assert!(fault.message.contains("\"v/a\" does not begin with the scope, \"w/\""), "{fault:?}");
    db.refused(&one(r#"{"external_id": "w/a", "content": "x"}"#, "NULL"), "22004");
    db.refused(&one(r#"{"external_id": "w/a", "text": "x"}"#, "'w/'"), "22023");
    assert_eq!(ids(&mut db).len(), 5);
    // No character of a scope has a meaning of its own, and case counts.
    for scope in ["%", "_/", "W/", "w\\", "w/%", "ä", "\u{10ffff}"] {
        assert_eq!(sync(&mut db, scope, &[]), [0; 4], "{scope}");
    }
    assert_eq!(sync(&mut db, "w/\u{10ffff}", &[("w/\u{10ffff}x", "Last")]), [1, 0, 0, 0]);
    assert_eq!(sync(&mut db, "w/\u{10ffff}", &[]), [0, 0, 0, 1]);
    // An empty scope is all that was put.
    assert_eq!(sync(&mut db, "", &[("w", "Outside")]), [0, 0, 1, 4]);
    assert_eq!(sync(&mut db, "", &[]), [0, 0, 0, 1]);
    db.wait("k");
    assert_sound(&mut db, "k", 0, 0);
}

#[test]
fn a_sync_leaves_documents_of_sources_tables_files_and_others_alone() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let folder = cluster.path("folder");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("a.md"), "Of a folder").unwrap();
    cluster.configure(&[&format!("kb.source_dirs = '{}'", folder.display())]);
    cluster.reload();
    let mut db = cluster.connect(APP);
    db.create_kb("k", "hash", "{}");
    db.create_kb("other", "hash", "{}");
    db.run(
        "CREATE TABLE t (id text PRIMARY KEY, body text); INSERT INTO t VALUES ('s/row', 'Of a table');
            SELECT kb.attach_table('k', 't', content => 'body');
            SELECT kb.create_source('k', 's', 'files', '{\"path\": \"*.md\"}'); SELECT kb.ingest('k')",
    );
    db.run(
        r"SELECT kb.put_file('k', 's/mail.eml', convert_to(E'Subject: S\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n--x\nContent-Type: text/plain\n\nText\n--x\nContent-Disposition: attachment; filename=n.txt\nContent-Type: text/plain\n\nAttached\n--x--\n', 'UTF8'))",
    );
    db.put("k", "s/mine", "Mine");
    db.put_and_wait("other", "s/theirs", "Theirs");
    db.wait("k");
    let all = ["s/a.md", "s/mail.eml", "s/mail.eml/n.txt", "s/mine", "s/row", "s/theirs"];
    assert_eq!(ids(&mut db), all);
    // Another tenant's documents of the same name, in its own knowledge base of the same name.
    db.run("CREATE ROLE b LOGIN IN ROLE kb_writer; SELECT kb.bind_role('b', 'b')");
    let mut b = cluster.connect_as(APP, "b");
    b.run("SELECT kb.create_knowledge_base('k', 'hash')");
    b.put("k", "s/mine", "Of b");
    assert_eq!(sync(&mut db, "", &[]), [0, 0, 0, 2]);
    // The attachment goes with its message.
    assert_eq!(ids(&mut db), ["s/a.md", "s/mine", "s/row", "s/theirs"]);
    assert_eq!(ids(&mut b), ["s/mine"]);
    for (id, says) in [("s/a.md", "source \"s\""), ("s/row", "table")] {
        let document = format!(r#"{{"external_id": "{id}", "content": "x"}}"#);
        let fault = db
            .refused(&format!("SELECT kb.sync_documents('k', ARRAY['{document}']::jsonb[], 's/')"), "55000");
        assert!(fault.text.contains(says), "{fault:?}");
    }
    // What is deleted makes room in a quota for what is put.
    db.run("SELECT kb.set_quota('b', documents => 2)");
    assert_eq!(sync(&mut b, "", &[("x", "One"), ("y", "Two")]), [2, 0, 0, 1]);
    let three = [("x", "One"), ("y", "Two"), ("z", "Three")]
        .map(|(id, text)| format!("'{}'", serde_json::json!({"external_id": id, "content": text})));
    b.refused(&format!("SELECT kb.sync_documents('k', ARRAY[{}]::jsonb[], '')", three.join(", ")), "53400");
    assert_eq!(ids(&mut b), ["x", "y"]);
    let mut reader = cluster.connect_as(APP, "b");
    reader.run("SET ROLE kb_reader");
    reader.refused("SELECT kb.sync_documents('k', '{}', '')", "42501");
}

#[test]
fn a_sync_reads_only_its_scope_and_syncs_at_the_same_time_do_not_deadlock() {
    let (cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", "{}");
    db.run(
        "SELECT count(*) FROM kb.put_documents('k', ARRAY(SELECT jsonb_build_object('external_id', 'big/' || i,
             'content', 'Text ' || i) FROM generate_series(1, 2000) i))",
    );
    let given = [("few/a", "One"), ("few/b", "Two")];
    sync(&mut db, "few/", &[("few/a", "One"), ("few/c", "Three")]);
    db.run("BEGIN");
    let read = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = 'kb.documents'::regclass";
    let before: i64 = db.one(read);
    assert_eq!(sync(&mut db, "few/", &given), [1, 0, 1, 1]);
    let read = db.one::<i64>(read) - before;
    db.run("COMMIT");
    assert!(read < 100, "{read} rows were read");
    thread::scope(|scope| {
        for session in 0..4 {
            let cluster = &cluster;
            scope.spawn(move || {
                let mut db = cluster.connect(APP);
                for round in 0..15 {
                    let mut ids: Vec<String> =
                        (0..20).map(|i| format!("few/{}", (i * 7 + round + session) % 30)).collect();
                    if session % 2 == 0 {
                        ids.reverse();
                    }
                    let text = format!("Text {session} {round}");
                    let documents: Vec<(&str, &str)> =
                        ids.iter().map(|id| (id.as_str(), text.as_str())).collect();
                    sync(&mut db, "few/", &documents);
                }
            });
        }
    });
    // The last of them has its 20 documents.
    assert_eq!(db.count("kb.documents WHERE external_id LIKE 'few/%'"), 20);
}
