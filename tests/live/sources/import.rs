//! kb.import_files reads files once, in the caller's transaction.

use super::{failures, ready, with_folder, write};
use crate::support::APP;
use std::os::unix::fs::symlink;

fn import(db: &mut crate::support::Db, path: &str) -> Vec<i64> {
    db.one_with("SELECT ARRAY[added, updated, skipped, failed] FROM kb.import_files('k', $1)", &[&path])
}

#[test]
fn an_import_reads_files_once_and_its_documents_belong_to_no_source() {
    let Some((cluster, mut db, folder)) = with_folder(&["kb.max_document_size = '10kB'"]) else { return };
    for i in 0..150 {
        write(&folder, &format!("many/{i:03}.md"), &format!("Text {i}"));
    }
    write(&folder, "a/page.html", "<h1>Title</h1><p>A page</p>");
    write(&folder, "a/large.txt", &"x".repeat(20_000));
    symlink("/etc/passwd", folder.join("a/link.txt")).unwrap();
    assert_eq!(import(&mut db, "many/*.md"), [150, 0, 0, 0]);
    db.wait("k");
    assert_eq!(ready(&mut db).len(), 150);
    write(&folder, "many/007.md", "Text 7 and more");
    assert_eq!(import(&mut db, "many/*.md"), [0, 1, 149, 0]);
    assert_eq!(import(&mut db, "a/*"), [1, 0, 0, 2]);
    // They are the caller's: put, deleted and rolled back as any other.
    db.run("BEGIN; SELECT kb.delete_document('k', 'many/001.md'); SELECT kb.import_files('k', 'many/001.md'); ROLLBACK");
    assert_eq!(db.put("k", "many/002.md", "Mine"), "updated");
    db.run("BEGIN");
    assert_eq!(import(&mut db, "many/00*.md"), [0, 1, 9, 0]);
    db.run("ROLLBACK");
    db.wait("k");
    assert!(ready(&mut db).contains(&"many/002.md=Mine".to_string()) && failures(&mut db).is_empty());
    assert_eq!(db.count("kb.documents WHERE source_no IS NOT NULL") + db.count("kb.sources"), 0);
    assert_eq!(
        db.one::<String>("SELECT uri FROM kb.documents WHERE external_id = 'a/page.html'"),
        "a/page.html"
    );
    // No match is a warning; what leads out, or is not there, is an error, and so is a document of a source.
    assert_eq!(import(&mut db, "*.pdf"), [0, 0, 0, 0]);
    for path in ["../x", "/etc/passwd", "a/../../x", "", "missing/*.md"] {
        db.refused(&format!("SELECT kb.import_files('k', '{path}')"), "22023");
    }
    db.run("CREATE ROLE w LOGIN IN ROLE kb_writer");
    let mut w = cluster.connect_as(APP, "w");
    w.refused("SELECT kb.import_files('k', 'many/*.md')", "42501");
    // It can be cancelled.
    db.run("SET statement_timeout = 1");
    db.refused("SELECT kb.import_files('k', '**/*')", "57014");
}
