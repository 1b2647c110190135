//! Whatever somebody puts into a folder: nothing outside of it is read, nothing is lost, and a run ends.

use super::{counts, create, failures, ingest, ready, with_folder, write};
use crate::support::SOON;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

#[test]
fn links_special_files_and_large_files_fail_each_alone() {
    let Some((cluster, mut db, folder)) = with_folder(&["kb.max_document_size = '1kB'"]) else { return };
    write(&folder, "a.md", "One");
    write(&folder, "large.md", &"x".repeat(1025));
    write(&folder, "empty-of-text.md", "\u{0}");
    let outside = cluster.path("secret.md");
    fs::write(&outside, "secret").unwrap();
    symlink(&outside, folder.join("link.md")).unwrap();
    symlink(cluster.path(""), folder.join("up")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.join("fifo.md")).status().unwrap().success());
    for name in ["new\nline.md", "quo'te\".md", "100%.md", "back\\slash.md", "Ünï.md"] {
        write(&folder, name, "strange");
    }
    fs::write(folder.join(OsStr::from_bytes(b"bad\xff.md")), "bad").unwrap();
    create(&mut db, r#"{"path": "**/*.md"}"#);
    let run_no = ingest(&mut db);
    let strange = ["s/100%.md", "s/a.md", "s/back\\slash.md", "s/new\nline.md", "s/quo'te\".md", "s/Ünï.md"];
    let ids: Vec<String> =
        ready(&mut db).iter().map(|row| row.split('=').next().unwrap().to_string()).collect();
    assert_eq!(ids, strange);
    let failed = failures(&mut db);
    let says = |id: &str, reason: &str| failed.iter().any(|row| row.starts_with(id) && row.contains(reason));
    assert_eq!(failed.len(), 5, "{failed:#?}");
    assert!(says("s/bad\u{fffd}ff.md", "its name is not UTF-8"), "{failed:#?}");
    assert!(says("s/link.md", "symbolic link") && says("s/fifo.md", "not a regular file"), "{failed:#?}");
    assert!(
        says("s/large.md", "has 1025 bytes; at most 1024") && says("s/empty-of-text.md", ""),
        "{failed:#?}"
    );
    assert_eq!(counts(&mut db, run_no), [11, 6, 0, 0, 0, 5]);
    // They fail again, and are counted as failed again.
    let run_no = ingest(&mut db);
    assert_eq!(counts(&mut db, run_no), [11, 0, 0, 6, 0, 5]);
    // kb.retry leaves to the source what the source could not read.
    assert_eq!(db.one::<i64>("SELECT kb.retry('k')"), 0);
    fs::remove_file(folder.join("link.md")).unwrap();
    write(&folder, "link.md", "a file");
    ingest(&mut db);
    assert_eq!((ready(&mut db).len(), failures(&mut db).len()), (7, 4));
}

#[test]
fn a_listing_that_fails_half_way_deletes_nothing() {
    let Some((_cluster, mut db, folder)) = with_folder(&[]) else { return };
    for name in ["a.md", "closed/b.md", "open/c.md"] {
        write(&folder, name, name);
    }
    create(&mut db, r#"{"path": "**/*.md"}"#);
    ingest(&mut db);
    let closed = folder.join("closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    fs::remove_file(folder.join("a.md")).unwrap();
    write(&folder, "open/d.md", "new");
    let run_no = ingest(&mut db);
    assert_eq!(
        ready(&mut db),
        ["s/a.md=a.md", "s/closed/b.md=closed/b.md", "s/open/c.md=open/c.md", "s/open/d.md=new"]
    );
    let problem: String = db.one("SELECT error FROM kb.sources");
    assert!(
        problem.contains("\"closed\" cannot be read: Permission denied; no document was deleted"),
        "{problem}"
    );
    assert_eq!(
        db.one::<String>(&format!("SELECT warnings[1] FROM kb.runs WHERE run_no = {run_no}")),
        format!("s: {problem}")
    );
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
    ingest(&mut db);
    assert_eq!(ready(&mut db).len(), 3);
    assert!(db.one::<bool>("SELECT error IS NULL FROM kb.sources"));
    // The whole folder is missing, as if a disk were not mounted.
    fs::rename(&folder, folder.with_extension("away")).unwrap();
    ingest(&mut db);
    assert_eq!(ready(&mut db).len(), 3);
}

#[test]
fn a_file_that_becomes_something_else_while_it_is_read_shows_nothing_outside() {
    let Some((cluster, mut db, folder)) = with_folder(&[]) else { return };
    let outside = cluster.path("secret");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("x.md"), "secret").unwrap();
    create(&mut db, r#"{"path": "**/*.md"}"#);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (file, dir) = (folder.join("x.md"), folder.join("d"));
            while !ended.load(Ordering::Relaxed) {
                for step in 0..3 {
                    let _ = fs::remove_file(&file);
                    let _ = fs::remove_dir_all(&file);
                    let _ = fs::remove_file(&dir);
                    let _ = fs::remove_dir_all(&dir);
                    let _ = match step {
                        0 => fs::write(&file, "mine").and_then(|()| fs::create_dir(&dir)),
                        1 => symlink(outside.join("x.md"), &file).and_then(|()| symlink(&outside, &dir)),
                        _ => fs::create_dir(&file),
                    };
                    let _ = fs::write(dir.join("y.md"), "mine");
                }
                let _ = fs::write(outside.join("x.md"), "secret");
            }
        });
        let begun = Instant::now();
        for _ in 0..15 {
            ingest(&mut db);
            assert_eq!(db.count("kb.documents WHERE content LIKE '%secret%'"), 0);
        }
        assert!(begun.elapsed() < SOON * 10);
        ended.store(true, Ordering::Relaxed);
    });
}
