//! Sources of type git: a knowledge base follows a branch or a tag, and a repository leads to nothing outside
//! of it.

use super::{counts, failures, ingest, ready, with_folder};
use crate::support::{APP, Cluster, Db, PRELOAD, SOON, signal, until};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use gix_hash::{Kind, ObjectId};
use gix_object::Write as _;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// A repository that a test writes.
struct Repository(PathBuf);

impl Repository {
    fn new(place: &Path) -> Repository {
        for directory in ["objects/info", "refs/heads", "refs/tags"] {
            fs::create_dir_all(place.join(directory)).unwrap();
        }
        fs::write(place.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        Repository(place.to_path_buf())
    }

    fn object(&self, kind: gix_object::Kind, bytes: &[u8]) -> ObjectId {
        let id =
            gix_odb::loose::Store::at(self.0.join("objects"), Kind::Sha1).write_buf(kind, bytes).unwrap();
        let hex = id.to_string();
        let directory = self.0.join("objects").join(&hex[..2]);
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(directory.join(&hex[2..]), fs::Permissions::from_mode(0o644)).unwrap();
        id
    }

    fn blob(&self, bytes: &[u8]) -> ObjectId {
        self.object(gix_object::Kind::Blob, bytes)
    }

    fn tree(&self, entries: &[(&str, &[u8], ObjectId)]) -> ObjectId {
        let mut bytes = Vec::new();
        for (mode, name, id) in entries {
            bytes.extend_from_slice(&[mode.as_bytes(), b" ", name, b"\0", id.as_slice()].concat());
        }
        self.object(gix_object::Kind::Tree, &bytes)
    }

    /// The tree of files, of which the paths are relative to it.
    fn files(&self, files: &[(&str, &str)]) -> ObjectId {
        let mut entries: BTreeMap<&str, (&str, ObjectId)> = BTreeMap::new();
        let mut directories: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        for &(path, text) in files {
            match path.split_once('/') {
                Some((directory, rest)) => directories.entry(directory).or_default().push((rest, text)),
                None => drop(entries.insert(path, ("100644", self.blob(text.as_bytes())))),
            }
        }
        entries.extend(directories.into_iter().map(|(name, files)| (name, ("40000", self.files(&files)))));
        let entries: Vec<(&str, &[u8], ObjectId)> =
            entries.into_iter().map(|(name, (mode, id))| (mode, name.as_bytes(), id)).collect();
        self.tree(&entries)
    }

    fn commit(&self, tree: ObjectId) -> ObjectId {
        let who = "A <a@example.org> 1704067200 +0000";
        let text = format!("tree {tree}\nauthor {who}\ncommitter {who}\n\nmessage\n");
        let id = self.object(gix_object::Kind::Commit, text.as_bytes());
        self.point("heads/main", id);
        id
    }

    fn point(&self, reference: &str, id: ObjectId) {
        // As git does it: whoever reads sees one or the other.
        let new = self.0.join("refs").join(reference).with_extension("lock");
        fs::write(&new, format!("{id}\n")).unwrap();
        fs::rename(new, self.0.join("refs").join(reference)).unwrap();
    }
}

fn create(db: &mut Db, name: &str, config: &str) {
    db.run(&format!("SELECT kb.create_source('k', '{name}', 'git', '{config}')"));
}

fn alter(db: &mut Db, config: &str) {
    db.run(&format!("SELECT kb.alter_source('k', 's', '{config}')"));
}

fn version(db: &mut Db) -> String {
    db.one("SELECT coalesce(version, '') FROM kb.sources WHERE name = 's'")
}

fn error(db: &mut Db) -> String {
    db.one("SELECT coalesce(error, '') FROM kb.sources WHERE name = 's'")
}

#[test]
fn documents_follow_the_commit_that_a_branch_or_a_tag_names() {
    let Some((cluster, mut db, folder)) = with_folder(&[]) else { return };
    let repository = Repository::new(&folder.join("repos/handbook/.git"));
    let first = repository.commit(repository.files(&[
        ("docs/a.md", "One"),
        ("docs/sub/b.md", "Two"),
        ("docs/picture.png", "no text"),
        ("src/c.md", "elsewhere"),
        ("docs/same.md", "Same"),
    ]));
    create(
        &mut db,
        "s",
        r#"{"path": "repos/handbook", "globs": ["docs/**/*.md"], "metadata": {"of": "git"}}"#,
    );
    let run_no = ingest(&mut db);
    assert_eq!(ready(&mut db), ["s/docs/a.md=One", "s/docs/same.md=Same", "s/docs/sub/b.md=Two"]);
    assert_eq!(counts(&mut db, run_no), [3, 3, 0, 0, 0, 0]);
    let row: String = db.one(
        "SELECT concat_ws(' ', uri, metadata, version) FROM kb.documents WHERE external_id = 's/docs/a.md'",
    );
    assert_eq!(row, format!(r#"docs/a.md {{"of": "git"}} {}"#, repository.blob(b"One")));
    // One is edited, one renamed; one that is the same is not read again.
    let same = repository.blob(b"Same").to_string();
    let second = repository.commit(repository.files(&[
        ("docs/a.md", "One more"),
        ("docs/c.md", "Two"),
        ("docs/same.md", "Same"),
    ]));
    fs::remove_file(repository.0.join("objects").join(&same[..2]).join(&same[2..])).unwrap();
    let run_no = ingest(&mut db);
    let after = ["s/docs/a.md=One more", "s/docs/c.md=Two", "s/docs/same.md=Same"];
    assert_eq!(ready(&mut db), after);
    assert_eq!(counts(&mut db, run_no), [4, 1, 1, 1, 1, 0]);
    assert_eq!(version(&mut db), second.to_string());
    let run_no = ingest(&mut db);
    assert_eq!(counts(&mut db, run_no), [3, 0, 0, 3, 0, 0]);
    // The branch goes back to the older commit. What a partial clone lacks fails alone.
    repository.point("heads/main", first);
    alter(&mut db, r#"{"path": "repos/handbook", "ref": "main", "globs": ["docs/**/*.md", "src/*"]}"#);
    ingest(&mut db);
    let back = ["s/docs/a.md=One", "s/docs/sub/b.md=Two", "s/src/c.md=elsewhere"];
    assert_eq!(ready(&mut db), back);
    let failed = failures(&mut db);
    assert!(
        failed.len() == 1 && failed[0].contains("s/docs/same.md") && failed[0].contains("partial clone"),
        "{failed:?}"
    );
    assert_eq!(db.count("kb.documents WHERE external_id = 's/docs/same.md' AND content = 'Same'"), 1);
    repository.blob(b"Same");
    // A reference or a repository that is not there any more deletes nothing.
    fs::rename(repository.0.join("refs/heads/main"), repository.0.join("refs/heads/kept")).unwrap();
    let run_no = ingest(&mut db);
    assert!(error(&mut db).contains("no branch, tag or commit"), "{}", error(&mut db));
    assert_eq!((counts(&mut db, run_no)[4], db.count("kb.documents")), (0, 4));
    fs::rename(folder.join("repos"), folder.join("away")).unwrap();
    ingest(&mut db);
    assert!(
        error(&mut db).contains("No such file or directory; no document was deleted"),
        "{}",
        error(&mut db)
    );
    fs::rename(folder.join("away"), folder.join("repos")).unwrap();
    // An annotated tag, and the commit itself.
    let tag = format!(
        "object {second}\ntype commit\ntag v2\ntagger A <a@example.org> 1704067200 +0000\n\nmessage\n"
    );
    repository.point("tags/v2", repository.object(gix_object::Kind::Tag, tag.as_bytes()));
    alter(&mut db, r#"{"path": "repos/handbook", "ref": "v2"}"#);
    ingest(&mut db);
    assert_eq!((ready(&mut db), error(&mut db)), (after.map(str::to_string).to_vec(), String::new()));
    alter(&mut db, &format!(r#"{{"path": "repos/handbook", "ref": "{first}", "globs": ["docs/sub/*"]}}"#));
    ingest(&mut db);
    assert_eq!(ready(&mut db), ["s/docs/sub/b.md=Two"]);
    alter(&mut db, r#"{"path": "repos/handbook", "ref": "kept", "globs": ["*.txt"]}"#);
    ingest(&mut db);
    assert_eq!(
        (ready(&mut db).len(), error(&mut db)),
        (0, r#"no file of "kept" matches ["*.txt"]"#.to_string())
    );
    // Only kb_admin names paths, and only those that are allowed.
    db.run("CREATE ROLE writer LOGIN IN ROLE kb_writer");
    let mut writer = cluster.connect_as(APP, "writer");
    writer.refused(r#"SELECT kb.create_source('k', 'w', 'git', '{"path": "repos/handbook"}')"#, "42501");
    let wrong =
        r#"SELECT kb.create_source('k', 'w', 'git', '{"path": "/etc", "globs": ["["], "branch": "main"}')"#;
    let fault = db.refused(wrong, "22023");
    for problem in ["config.path: it is not beneath", "config.globs: \"[\"", "branch"] {
        assert!(fault.text.contains(problem), "{problem}: {fault:?}");
    }
}

#[test]
fn a_commit_that_is_in_the_knowledge_base_is_not_listed_again() {
    let Some((_cluster, mut db, folder)) = with_folder(&[]) else { return };
    let repository = Repository::new(&folder.join("r"));
    let files = [("a.md", "One"), ("b.md", "Two")];
    let tree = repository.files(&files);
    let first = repository.commit(tree);
    create(&mut db, "s", r#"{"path": "r"}"#);
    ingest(&mut db);
    assert_eq!(version(&mut db), first.to_string());
    // Without the tree of the commit nothing can be listed.
    let hex = tree.to_string();
    let place = repository.0.join("objects").join(&hex[..2]).join(&hex[2..]);
    let away = folder.join("away");
    fs::rename(&place, &away).unwrap();
    let run_no = ingest(&mut db);
    assert_eq!((counts(&mut db, run_no), error(&mut db)), (vec![2, 0, 0, 2, 0, 0], String::new()));
    // A new configuration and cleanup full want the listing.
    for config in [r#"{"path": "r", "cleanup": "full"}"#, r#"{"path": "r", "globs": ["*.md"]}"#] {
        fs::rename(&away, &place).unwrap();
        alter(&mut db, config);
        assert_eq!(version(&mut db), "");
        ingest(&mut db);
        assert_eq!((version(&mut db), error(&mut db)), (first.to_string(), String::new()));
        fs::rename(&place, &away).unwrap();
        ingest(&mut db);
        assert_eq!(error(&mut db).is_empty(), !config.contains("full"), "{config}");
    }
    fs::rename(&away, &place).unwrap();
    // A run that changes something and does not come to its end leaves no version behind: what it changed is
    // changed back when the branch goes back.
    let second = repository.files(&[("a.md", "Three"), ("b.md", "Four")]);
    repository.commit(second);
    let four = repository.blob(b"Four").to_string();
    fs::remove_file(repository.0.join("objects").join(&four[..2]).join(&four[2..])).unwrap();
    ingest(&mut db);
    assert_eq!((version(&mut db), ready(&mut db)), (String::new(), vec!["s/a.md=Three".to_string()]));
    repository.point("heads/main", first);
    ingest(&mut db);
    assert_eq!(
        (version(&mut db), ready(&mut db)),
        (first.to_string(), vec!["s/a.md=One".into(), "s/b.md=Two".into()])
    );
}

#[test]
fn a_hostile_repository_shows_nothing_of_others_and_costs_no_other_source() {
    let Some((cluster, mut db, folder)) = with_folder(&["kb.max_document_size = '1MB'"]) else { return };
    let outside = Repository::new(&cluster.path("outside"));
    let secret = outside.files(&[("secret.md", "secret")]);
    outside.commit(secret);
    let elsewhere = outside.0.display().to_string();
    let hostile = |name: &str| Repository::new(&folder.join(name));
    fs::write(hostile("alternates").0.join("objects/info/alternates"), format!("{elsewhere}/objects\n"))
        .unwrap();
    hostile("alternates").commit(secret);
    fs::create_dir(folder.join("file")).unwrap();
    fs::write(folder.join("file/.git"), format!("gitdir: {elsewhere}\n")).unwrap();
    symlink(&elsewhere, folder.join("link")).unwrap();
    fs::create_dir(folder.join("inner")).unwrap();
    symlink(&elsewhere, folder.join("inner/.git")).unwrap();
    let objects = hostile("objects");
    fs::remove_dir_all(objects.0.join("objects")).unwrap();
    symlink(outside.0.join("objects"), objects.0.join("objects")).unwrap();
    // Each directory of objects is a link: no check but the kernel's sees that.
    let each = hostile("each");
    each.commit(secret);
    for directory in fs::read_dir(outside.0.join("objects")).unwrap() {
        let directory = directory.unwrap();
        let _ = symlink(directory.path(), each.0.join("objects").join(directory.file_name()));
    }
    let bomb = hostile("bomb");
    let one = bomb.blob(b"One");
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&[b"blob 64000000\0".as_slice(), &vec![0; 64_000_000]].concat()).unwrap();
    let lies = ObjectId::from_bytes_or_panic(&[7; 20]);
    fs::create_dir_all(bomb.0.join("objects/07")).unwrap();
    fs::write(bomb.0.join("objects/07").join(&lies.to_string()[2..]), encoder.finish().unwrap()).unwrap();
    let names: [(&str, &[u8], ObjectId); 7] = [
        ("100644", b"a.md", one),
        ("100644", b"bad\xff.md", one),
        ("100644", b"bomb.md", lies),
        ("100644", b"gone.md", ObjectId::from_bytes_or_panic(&[9; 20])),
        ("120000", b"link.md", bomb.blob(elsewhere.as_bytes())),
        ("100644", b"new\nline'\".md", one),
        ("160000", b"sub.md", one),
    ];
    bomb.commit(bomb.tree(&names));
    for name in ["alternates", "file", "link", "inner", "objects", "each", "bomb"] {
        create(&mut db, name, &format!(r#"{{"path": "{name}", "globs": ["**/*.md"]}}"#));
    }
    ingest(&mut db);
    assert_eq!(ready(&mut db), ["bomb/a.md=One", "bomb/new\nline'\".md=One"]);
    let failed = failures(&mut db);
    let says = |id: &str, reason: &str| failed.iter().any(|row| row.starts_with(id) && row.contains(reason));
    assert_eq!(failed.len(), 5, "{failed:#?}");
    assert!(
        says("bomb/bad\u{fffd}ff.md", "not UTF-8") && says("bomb/gone.md", "partial clone"),
        "{failed:#?}"
    );
    assert!(says("bomb/link.md", "symbolic link") && says("bomb/sub.md", "submodule"), "{failed:#?}");
    assert!(says("bomb/bomb.md", "64000000 bytes"), "{failed:#?}");
    for (name, says) in [
        ("alternates", "borrows objects of another directory"),
        ("file", ".git is not a directory"),
        ("link", "cannot be opened"),
        ("inner", ".git is not a directory"),
        ("objects", "objects is not a directory"),
        ("each", "denied"),
    ] {
        let error: String = db.one_with("SELECT error FROM kb.sources WHERE name = $1", &[&name]);
        assert!(error.contains(says), "{name}: {error}");
    }
    assert_eq!(db.count("kb.documents WHERE content LIKE '%secret%'"), 0);
}

/// A process that reads a repository for this cluster's worker.
fn reader(cluster: &Cluster) -> Option<i32> {
    let worker = format!("PPid:\t{}", cluster.worker(APP));
    let pids = fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()).find(|pid| {
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        read("cmdline").ends_with(b"\0git\0") && String::from_utf8_lossy(&read("status")).contains(&worker)
    })
}

#[test]
fn after_any_kill_the_knowledge_base_equals_the_commit() {
    let Some((mut cluster, _, folder)) =
        with_folder(&[PRELOAD, "kb.launcher_naptime = 1", "kb.worker_idle_timeout = '1h'"])
    else {
        return;
    };
    cluster.expects_crashes = true;
    cluster.stop("fast", 60);
    cluster.up();
    let mut db = cluster.connect(APP);
    let repository = Repository::new(&folder.join("r"));
    create(&mut db, "s", r#"{"path": "r", "globs": ["**/*.md"]}"#);
    for round in 0..4 {
        let files: Vec<(String, String)> = (0..600)
            .filter(|n| (n + round) % 5 != 0)
            .map(|n| (format!("{}/{n}.md", n % 7), format!("text {n} of round {}", (n + round) / 300)))
            .collect();
        let files: Vec<(&str, &str)> =
            files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        repository.commit(repository.files(&files));
        let run_no: i64 = db.one("SELECT kb.ingest('k')");
        if round % 2 == 0 {
            let mut killed = false;
            until(SOON, "the program has been killed, or the run is over", || {
                if let Some(pid) = reader(&cluster) {
                    killed = true;
                    signal(pid, libc::SIGKILL);
                }
                killed
                    || db.one::<bool>(&format!("SELECT state = 'done' FROM kb.runs WHERE run_no = {run_no}"))
            });
        } else {
            until(SOON, "the run is under way or over", || {
                let has_begun = "SELECT bytes > 0 OR state = 'done' FROM kb.runs WHERE run_no = ";
                db.one::<bool>(&format!("{has_begun}{run_no}"))
            });
            signal(cluster.worker(APP), libc::SIGKILL);
            db = cluster.reconnect_after_crash(db);
        }
        db.run(&format!("SELECT kb.wait({run_no}::bigint, 180)"));
        db.wait("k");
        let mut expected: Vec<String> = files.iter().map(|(name, text)| format!("s/{name}={text}")).collect();
        expected.sort();
        assert_eq!(ready(&mut db), expected, "round {round}");
        assert_eq!(error(&mut db), "");
    }
}
