//! Who may create which source, and what is refused.

use super::{create, failures, ingest, ready, with_folder, write};
use crate::support::APP;

#[test]
fn a_source_that_cannot_be_is_refused_with_every_reason() {
    let Some((cluster, mut db, folder)) = with_folder(&[]) else { return };
    let create = |name: &str, kind: &str, config: &str| {
        format!("SELECT kb.create_source('k', '{name}', '{kind}', '{config}')")
    };
    let wrong = r#"{"path": "../x", "every": "soon", "cleanup": "all", "metadata": 1, "paths": []}"#;
    let fault = db.refused(&create("s", "folder", wrong), "22023");
    assert!(fault.text.contains("type: \"folder\" is not one of"), "{fault:?}");
    let fault = db.refused(&create("a/b", "files", wrong), "22023");
    for problem in ["name: ", "config.path: it leads out", "config.cleanup: ", "config.metadata: ", "paths"] {
        assert!(fault.text.contains(problem), "{problem}: {fault:?}");
    }
    for (config, says) in [
        ("{}", "config.path: is missing"),
        (r#"{"path": "/etc/passwd"}"#, "not beneath a directory that kb.source_dirs allows"),
        (r#"{"path": "a/../../x"}"#, "leads out"),
        (r#"{"path": "*", "every": "soon"}"#, "config.every: invalid input syntax for type interval"),
        (r#"{"path": "*", "every": "0 s"}"#, "a second or longer"),
    ] {
        let fault = db.refused(&create("s", "files", config), "22023");
        assert!(fault.text.contains(says), "{config}: {fault:?}");
    }
    // The same source may be created again; another of this name may not.
    let config = format!(r#"{{"path": "{}/*.md"}}"#, folder.display());
    let first: i64 = db.one(&create("s", "files", &config));
    assert_eq!(db.one::<i64>(&create("s", "files", &config)), first);
    db.refused(&create("s", "markdown_glob", &config), "42710");
    db.refused(&create("s", "files", r#"{"path": "*"}"#), "42710");
    db.refused("SELECT kb.drop_source('k', 'none')", "42704");
    db.refused(r#"SELECT kb.alter_source('k', 'none', '{"path": "*"}')"#, "42704");
    // Only kb_admin names paths. Another tenant sees nothing of it.
    db.run("CREATE ROLE writer LOGIN IN ROLE kb_writer");
    let mut writer = cluster.connect_as(APP, "writer");
    writer.refused(&create("w", "files", r#"{"path": "*"}"#), "42501");
    writer.refused(r#"SELECT kb.alter_source('k', 's', '{"path": "*"}')"#, "42501");
    assert_eq!(writer.count("kb.sources"), 1);
    writer.run("SET kb.tenant = 'another'");
    assert_eq!(writer.count("kb.sources"), 0);
    writer.refused("SELECT kb.drop_source('k', 's')", "42704");
}

#[test]
fn a_directory_that_is_no_longer_allowed_is_not_read() {
    let Some((cluster, mut db, folder)) = with_folder(&[]) else { return };
    write(&folder, "a.md", "One");
    create(&mut db, r#"{"path": "*"}"#);
    cluster.configure(&[]);
    cluster.stop("fast", 60);
    cluster.up();
    let mut db = cluster.connect(APP);
    let run_no: i64 = db.one("SELECT kb.ingest('k')");
    db.run(&format!("SELECT kb.wait({run_no}::bigint, 60)"));
    assert_eq!(ready(&mut db).len(), 0);
    assert!(db.one::<String>("SELECT error FROM kb.sources").contains("allows no directory"));
    assert!(db.one::<String>("SELECT warnings[1] FROM kb.runs").starts_with("s: "));
}

#[test]
fn a_quota_bounds_what_a_source_puts() {
    let Some((_cluster, mut db, folder)) = with_folder(&[]) else { return };
    db.run("SET kb.tenant = 'a'; SELECT kb.create_knowledge_base('k', 'hash')");
    db.run("SELECT kb.set_quota('a', documents => 2)");
    for name in ["1.md", "2.md", "3.md"] {
        write(&folder, name, name);
    }
    create(&mut db, r#"{"path": "*"}"#);
    ingest(&mut db);
    assert_eq!(ready(&mut db), ["s/1.md=1.md", "s/2.md=2.md"]);
    let failed = failures(&mut db);
    assert!(
        failed.len() == 1 && failed[0].starts_with("s/3.md: tenant \"a\" may have at most 2"),
        "{failed:?}"
    );
    // What cannot be put is tried again by each run.
    db.run("SELECT kb.set_quota('a', documents => 3)");
    ingest(&mut db);
    assert_eq!((ready(&mut db).len(), failures(&mut db).len()), (3, 0));
}
