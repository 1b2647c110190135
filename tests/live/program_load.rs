//! kb load makes documents of files of the client's machine: each once, only what has changed, whatever
//! interrupts it, and deletes only what it has put itself.

use crate::program::{Said, program, said};
use crate::support::random::Rng;
use crate::support::{APP, Cluster, Db, LONG, SOON, files, signal, succeed, until};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A folder of files of the client.
struct Folder(PathBuf);

impl Folder {
    fn new(cluster: &Cluster, files: &[(&str, &str)]) -> Folder {
        let folder = Folder(cluster.path("files"));
        fs::create_dir_all(&folder.0).unwrap();
        files.iter().for_each(|(path, content)| folder.write(path, content));
        folder
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let place = self.0.join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, content).unwrap();
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.0.join(path)).unwrap();
    }

    /// kb load of paths below the folder, which is the current one, into k.
    fn command(&self, cluster: &Cluster, arguments: &[&str]) -> Command {
        let mut command = program(cluster);
        command.current_dir(&self.0).args(["load", "k"]).args(arguments);
        command
    }

    fn load(&self, cluster: &Cluster, arguments: &[&str]) -> Said {
        said(&mut self.command(cluster, arguments))
    }

    /// Counts of a load that ends with this code.
    fn counts(&self, cluster: &Cluster, arguments: &[&str], code: i32) -> serde_json::Value {
        let said = self.load(cluster, &[&["--json"], arguments].concat());
        assert_eq!(said.code, Some(code), "{}{}", said.out, said.err);
        said.json()
    }
}

/// A count that a load has reported.
#[track_caller]
fn assert_counts(counts: &serde_json::Value, expected: &[(&str, u64)]) {
    for (name, count) in expected {
        assert_eq!(counts[name], *count, "{name} of {counts}");
    }
}

fn ids(db: &mut Db) -> Vec<String> {
    db.all("SELECT external_id FROM kb.documents ORDER BY external_id COLLATE \"C\"")
}

/// The bytes of each document.
fn contents(db: &mut Db) -> BTreeMap<String, Vec<u8>> {
    let sql =
        "SELECT external_id, coalesce(original, pg_catalog.convert_to(content, 'UTF8')) FROM kb.documents";
    db.0.query(sql, &[]).unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[test]
fn a_load_sends_what_is_new_or_has_changed_and_nothing_else() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    let folder = Folder::new(
        &cluster,
        &[
            ("docs/a.md", "# Alpha\n\nText"),
            ("docs/front.md", "---\nauthor: Ann\n---\n\nBeta"),
            ("docs/sub/page.html", "<p>Gamma</p>"),
            ("docs/data.csv", "name,age\nAnn,3\n"),
            ("docs/empty.txt", ""),
            ("docs/.hidden.md", "hidden"),
            ("other.md", "Other"),
        ],
    );
    folder.write("docs/latin.txt", b"caf\xe9 au lait et th\xe9 glac\xe9, d\xe9j\xe0 vu");
    folder.write("docs/picture.bin", b"\0\x01\x02\x03");
    let all = folder.counts(&cluster, &["docs"], 0);
    assert_counts(&all, &[("files", 7), ("added", 6), ("unchanged", 0), ("left_out", 1), ("failed", 0)]);
    db.wait("k");
    let expected = ["a.md", "data.csv", "empty.txt", "front.md", "latin.txt", "sub/page.html"];
    assert_eq!(ids(&mut db), expected.map(|id| format!("docs/{id}")));
    assert_eq!(db.count("kb.documents WHERE status = 'ready'"), 6);
    assert_eq!(
        db.one::<String>(
            "SELECT metadata ->> 'author' FROM kb.documents WHERE external_id = 'docs/front.md'"
        ),
        "Ann"
    );
    assert_eq!(db.found("k", "café au lait", 1), ["docs/latin.txt"]);
    let updated: Vec<String> = db.all("SELECT max(updated_at)::text FROM kb.documents");
    // The same again: nothing is sent, and no row is touched.
    let again = folder.counts(&cluster, &["./docs/", "docs/a.md"], 0);
    assert_counts(&again, &[("added", 0), ("updated", 0), ("unchanged", 6), ("bytes_sent", 0)]);
    assert_eq!(db.all::<String>("SELECT max(updated_at)::text FROM kb.documents"), updated);
    // One that changes, one that is renamed, and one whose case differs.
    folder.write("docs/a.md", "# Alpha\n\nOther text");
    folder.write("docs/A.md", "# Alpha\n\nOther text");
    fs::rename(folder.0.join("docs/data.csv"), folder.0.join("docs/moved.csv")).unwrap();
    let changed = folder.counts(&cluster, &["docs"], 0);
    assert_counts(&changed, &[("added", 2), ("updated", 1), ("unchanged", 4), ("deleted", 0)]);
    db.wait("k");
    assert_eq!(db.found("k", "Other text", 1).len(), 1);
    assert_eq!(ids(&mut db).len(), 8);
}

#[test]
fn patterns_prefixes_and_roots_decide_what_documents_are_called() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    let folder = Folder::new(
        &cluster,
        &[
            ("one/docs/a.md", "One"),
            ("two/docs/a.md", "Two"),
            ("two/docs/a.txt", "Three"),
            ("two/x y?#.md", "Four"),
        ],
    );
    folder.load(&cluster, &["one/docs", "two/docs"]).ended(0);
    assert_eq!(ids(&mut db), ["one/docs/a.md", "two/docs/a.md", "two/docs/a.txt"]);
    folder.load(&cluster, &["--root", "one", "--prefix", "wiki/", "one/**/*.md"]).ended(0);
    folder.load(&cluster, &["--prefix", "wiki", "two/*.md"]).ended(0);
    let expected =
        ["one/docs/a.md", "two/docs/a.md", "two/docs/a.txt", "wiki/docs/a.md", "wiki/two/x y?#.md"];
    assert_eq!(ids(&mut db), expected);
    let uri: String = db.one("SELECT uri FROM kb.documents WHERE external_id = 'wiki/two/x y?#.md'");
    assert_eq!(uri, "file:two/x%20y%3F%23.md");
    // Outside of the root there is no path; the command line is wrong, and nothing is done.
    let refused = folder.load(&cluster, &["--root", "one", "two"]).complained(2);
    assert!(refused.contains("--root"), "{refused}");
    let missing = said(program(&cluster).current_dir(&folder.0).args(["load", "no", "one"])).complained(1);
    assert!(missing.contains("\"no\""), "{missing}");
    assert_eq!(ids(&mut db).len(), 5);
}

#[test]
fn what_cannot_be_loaded_is_reported_and_does_not_stop_the_rest() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}", ["kb.max_document_size = '64kB'"]);
    let folder = Folder::new(&cluster, &[("a.md", "Alpha"), ("z.md", "Omega")]);
    folder.write("large.txt", "x".repeat(65 * 1024));
    folder.write(&format!("{}.md", "n".repeat(250)), "fits");
    folder.write(&format!("{0}/{0}/{0}/{0}/long.md", "d".repeat(250)), "too long");
    folder.write(" ", "blank");
    fs::write(folder.0.join(OsStr::from_bytes(b"\xff.md")), "x").unwrap();
    symlink("a.md", folder.0.join("link.md")).unwrap();
    symlink("nowhere", folder.0.join("dangling.md")).unwrap();
    // A document of a table, which no load can replace.
    db.run(
        "CREATE TABLE t (id text PRIMARY KEY, body text); INSERT INTO t VALUES ('row.md', 'Of a table');
            SELECT kb.attach_table('k', 't', content => 'body')",
    );
    db.wait("k");
    folder.write("row.md", "Of a file");
    let said = folder.load(&cluster, &["--json", "."]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    let counts = said.json();
    assert_counts(&counts, &[("added", 3), ("failed", 5), ("links", 2)]);
    let failures = counts["failures"].to_string();
    for reason in
        ["66560 bytes", "its name is not UTF-8", "at most 1000 are allowed", "must not be empty", "row.md"]
    {
        assert!(failures.contains(reason), "{reason}: {failures}");
    }
    assert!(said.err.contains("5 of 8 files failed"), "{}", said.err);
    assert_eq!(db.count("kb.documents WHERE external_id IN ('a.md', 'z.md') AND source_no IS NULL"), 2);
    assert_eq!(
        db.one::<String>("SELECT content FROM kb.documents WHERE external_id = 'row.md'"),
        "Of a table"
    );
    // The next load sends nothing that is there, and reports the same.
    assert_counts(&folder.counts(&cluster, &["."], 1), &[("added", 0), ("unchanged", 3), ("failed", 5)]);
}

#[test]
fn files_and_folders_without_permission_fail_alone_and_keep_their_documents() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    // As root, nothing is forbidden: the server's user runs the program.
    let psql = cluster.program("psql");
    if psql.get_program() != "runuser" {
        return;
    }
    let folder = Folder::new(&cluster, &[("a/x.md", "X"), ("b/y.md", "Y"), ("z.md", "Z")]);
    let run = |arguments: &[&str]| {
        let kb = folder.command(&cluster, arguments);
        let mut command = Command::new("runuser");
        command
            .args(["-u", "postgres", "--"])
            .arg(kb.get_program())
            .args(kb.get_args())
            .current_dir(&folder.0);
        command.env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
        command.envs(kb.get_envs().filter_map(|(name, value)| Some((name, value?))));
        said(&mut command)
    };
    run(&["."]).ended(0);
    fs::set_permissions(folder.0.join("a"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(folder.0.join("z.md"), fs::Permissions::from_mode(0o000)).unwrap();
    folder.write("b/y.md", "Y changed");
    folder.write("b/new.md", "new");
    folder.remove("b/y.md");
    let said = run(&["--json", "--delete", "."]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert_counts(&said.json(), &[("added", 1), ("deleted", 1), ("failed", 2)]);
    assert_eq!(ids(&mut db), ["a/x.md", "b/new.md", "z.md"]);
    fs::set_permissions(folder.0.join("a"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn only_documents_of_loads_whose_files_are_gone_are_deleted() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    let folder = Folder::new(
        &cluster,
        &[
            ("a/x.md", "X"),
            ("a/y.md", "Y"),
            ("a/z.pdf.md", "Z"),
            ("b/x.md", "X2"),
            ("a2/x.md", "X3"),
            ("a/.h.md", "H"),
        ],
    );
    db.put("k", "a/by-hand.md", "By hand");
    db.put("k", "outside", "By hand");
    db.run("SELECT kb.put_document('k', 'a/uri.md', 'x', uri => 'https://example.com/file:x')");
    folder.load(&cluster, &["--hidden", "."]).ended(0);
    let before = ids(&mut db).len();
    for gone in ["a/x.md", "a/y.md", "b/x.md", "a2/x.md"] {
        folder.remove(gone);
    }
    // Without --delete, nothing is.
    folder.load(&cluster, &["a"]).ended(0);
    assert_eq!(ids(&mut db).len(), before);
    // A pattern deletes what it would match, and a folder what was in it.
    assert_counts(&folder.counts(&cluster, &["--delete", "a/[xz]*.md"], 0), &[("deleted", 1)]);
    assert_eq!(db.count("kb.documents WHERE external_id IN ('a/x.md')"), 0);
    assert_counts(&folder.counts(&cluster, &["--delete", "a"], 0), &[("deleted", 1), ("unchanged", 1)]);
    // What is hidden now is there nevertheless, and so is what others have put.
    let left = ["a/.h.md", "a/by-hand.md", "a/uri.md", "a/z.pdf.md", "a2/x.md", "b/x.md", "outside"];
    assert_eq!(ids(&mut db), left);
    // A prefix is a place of its own.
    folder.load(&cluster, &["--prefix", "p", "a"]).ended(0);
    folder.remove("a/z.pdf.md");
    folder.write("a/other.md", "Other");
    assert_counts(
        &folder.counts(&cluster, &["--delete", "--prefix", "p", "a"], 0),
        &[("deleted", 1), ("added", 1)],
    );
    assert!(ids(&mut db).contains(&"a/z.pdf.md".to_string()));
}

#[test]
fn a_folder_that_is_missing_or_empty_deletes_nothing_unless_forced() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    let folder = Folder::new(&cluster, &[("a/x.md", "X"), ("b/y.md", "Y")]);
    folder.load(&cluster, &["."]).ended(0);
    folder.remove("a/x.md");
    folder.write("b/y.md", "Y changed");
    for arguments in [&["--delete", "a"], &["--delete", "a/*.md"]] {
        let refused = folder.load(&cluster, arguments).complained(1);
        assert!(refused.contains("nothing was done") && refused.contains("--force"), "{refused}");
    }
    fs::remove_dir(folder.0.join("a")).unwrap();
    folder.load(&cluster, &["--delete", "a", "b"]).complained(1);
    assert_eq!(
        contents(&mut db),
        [("a/x.md", "X"), ("b/y.md", "Y")].map(|(id, text)| (id.into(), text.into())).into()
    );
    let forced = folder.load(&cluster, &["--json", "--delete", "--force", "a", "b"]);
    assert_counts(&forced.json(), &[("deleted", 1), ("updated", 1)]);
    assert_eq!(ids(&mut db), ["b/y.md"]);
}

#[test]
fn a_large_file_is_sent_in_pieces_and_takes_no_more_memory_than_a_small_one() {
    const SIZE: usize = 96 << 20;
    const MOST_KB: u64 = 48 * 1024;
    let (cluster, mut db) = crate::connected!("kb.max_document_size = '200MB'", "kb.extract_timeout = '1s'");
    db.create_kb("k", "hash", "{}");
    let folder = Folder::new(&cluster, &[]);
    // Bytes that look different everywhere, so that a piece in the wrong place is seen.
    let mut random = Rng::with_seed(7);
    let bytes: Vec<u8> =
        (0..SIZE / 4).flat_map(|_| (random.usize(..usize::MAX) as u32).to_le_bytes()).collect();
    folder.write("large.bin", &bytes);
    let mut child = folder.command(&cluster, &["large.bin"]).stdout(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    until(LONG, "the file is sent", || {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let high = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let high = high.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
        peak = peak.max(high.unwrap_or(0));
        child.try_wait().unwrap().is_some()
    });
    assert!(child.wait().unwrap().success());
    let hash: String = db.one("SELECT md5(original) FROM kb.documents WHERE external_id = 'large.bin'");
    let expected = String::from_utf8(succeed(Command::new("md5sum").arg(folder.0.join("large.bin"))).stdout);
    assert_eq!(hash, expected.unwrap()[..32]);
    assert!((1..MOST_KB).contains(&peak), "the program took {peak} kB");
    // Its hash is found to be the same, without the file being sent.
    assert_counts(&folder.counts(&cluster, &["large.bin"], 0), &[("unchanged", 1), ("bytes_sent", 0)]);
    // A role that may not create temporary tables sends it whole.
    db.run(
        "CREATE ROLE w LOGIN; GRANT kb_writer TO w; REVOKE TEMPORARY ON DATABASE app FROM PUBLIC;
            SELECT kb.delete_document('k', 'large.bin')",
    );
    fs::File::options().write(true).open(folder.0.join("large.bin")).unwrap().set_len(5 << 20).unwrap();
    assert_counts(&folder.counts(&cluster, &["-U", "w", "large.bin"], 0), &[("added", 1)]);
}

/// What a killed load leaves is continued, and the result is what one load without an interruption gives.
#[test]
fn loads_that_are_killed_at_random_end_in_the_same_documents() {
    const FILES: usize = 1500;
    const KILLS: u32 = 20;
    let (cluster, mut db) = crate::with_kb!("hash", "{\"strategy\": \"none\"}");
    let folder = Folder::new(&cluster, &[]);
    let mut random = Rng::with_seed(11);
    let mut version = 0;
    let mut edit = |folder: &Folder, random: &mut Rng, count: usize| {
        for _ in 0..count {
            let number = random.usize(..FILES);
            let extension = ["md", "txt", "csv"][number % 3];
            let path = format!("docs/{}/{number}.{extension}", number % 17);
            version += 1;
            if random.usize(..5) == 0 && folder.0.join(&path).exists() {
                folder.remove(&path);
            } else {
                folder.write(&path, format!("Document {number}, version {version}"));
            }
        }
    };
    edit(&folder, &mut random, 2 * FILES);
    let (mut kills, mut ends) = (0, 0);
    while kills < KILLS {
        let jobs = (1 + random.usize(..6)).to_string();
        let mut command = folder.command(&cluster, &["--delete", "--jobs", &jobs, "docs"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // In the middle: when it has changed so many documents, and a moment later.
        let begun: String = db.one("SELECT clock_timestamp()::text");
        let wanted = random.usize(..140) as i64;
        let changed = format!("kb.documents WHERE updated_at > '{begun}'");
        until(LONG, "documents change", || {
            db.count(&changed) >= wanted || child.try_wait().unwrap().is_some()
        });
        std::thread::sleep(Duration::from_millis(random.usize(..30) as u64));
        match child.try_wait().unwrap() {
            None => {
                signal(child.id() as i32, libc::SIGKILL);
                kills += 1;
            }
            Some(status) => {
                assert!(status.success(), "{status}");
                ends += 1;
            }
        }
        child.wait().unwrap();
        edit(&folder, &mut random, 150);
    }
    let last = folder.counts(&cluster, &["--delete", "docs"], 0);
    println!("{kills} kills, {ends} loads that ended before; the last one: {last}");
    let mut files = BTreeMap::new();
    for entry in files::under(&folder.0) {
        let id = entry.strip_prefix(&folder.0).unwrap().to_str().unwrap().to_string();
        files.insert(id, fs::read(&entry).unwrap());
    }
    assert!(files.len() > FILES / 3);
    assert_eq!(contents(&mut db), files);
    assert_counts(
        &folder.counts(&cluster, &["--delete", "docs"], 0),
        &[("unchanged", files.len() as u64), ("deleted", 0)],
    );
    db.wait("k");
    assert_eq!(db.count("kb.documents WHERE status <> 'ready'"), 0);
}

#[test]
fn a_load_survives_a_restart_of_the_server_and_an_interrupt_ends_it_cleanly() {
    let (cluster, mut db) = crate::with_kb!("hash", "{\"strategy\": \"none\"}");
    let folder = Folder::new(&cluster, &[]);
    for number in 0..3000 {
        folder.write(&format!("{number}.txt"), format!("Document {number}"));
    }
    let count = |db: &mut Db| db.count("kb.documents");
    let mut child = folder.command(&cluster, &["--jobs", "1", "."]).stderr(Stdio::piped()).spawn().unwrap();
    until(SOON, "documents arrive", || count(&mut db) > 0);
    signal(child.id() as i32, libc::SIGINT);
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    let stopped = count(&mut db);
    assert!(stopped < 3000, "it was not interrupted");
    until(SOON, "its sessions end", || {
        db.count("pg_stat_activity WHERE application_name = 'kb'") == 0 || count(&mut db) != stopped
    });
    assert_eq!(count(&mut db), stopped);
    let mut child = folder.command(&cluster, &["."]).stdout(Stdio::piped()).spawn().unwrap();
    until(SOON, "more documents arrive", || count(&mut db) > stopped);
    drop(db);
    cluster.stop("fast", 60);
    cluster.up();
    let mut db = cluster.reconnect(APP);
    assert!(child.wait().unwrap().success());
    assert_eq!(count(&mut db), 3000);
}

/// A load that watches, and what it has written.
struct Watching {
    child: Child,
    lines: BufReader<ChildStdout>,
    notes: BufReader<ChildStderr>,
}

impl Watching {
    fn begin(folder: &Folder, cluster: &Cluster, arguments: &[&str]) -> Watching {
        let mut command = folder.command(cluster, &[&["--watch", "--json"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let notes = BufReader::new(child.stderr.take().unwrap());
        Watching { child, lines, notes }
    }

    /// The counts of the next round.
    fn round(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Waits until it notes this.
    fn until_noted(&mut self, note: &str) {
        let mut line = String::new();
        while !line.contains(note) {
            line.clear();
            assert!(self.notes.read_line(&mut line).unwrap() > 0, "it ended without a note of {note}");
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_watching_load_puts_what_changes_and_ends_at_an_interrupt() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    let folder = Folder::new(&cluster, &[("docs/a.md", "A"), ("docs/b.md", "B")]);
    let mut watching = Watching::begin(&folder, &cluster, &["--delete", "docs"]);
    assert_counts(&watching.round(), &[("added", 2)]);
    let text = |db: &mut Db, id: &str| -> Option<String> {
        db.all_with("SELECT content FROM kb.documents WHERE external_id = $1", &[&id]).pop()
    };
    folder.write("docs/a.md", "A changed");
    until(SOON, "a change is put", || text(&mut db, "docs/a.md").as_deref() == Some("A changed"));
    folder.write("docs/new/deep/c.md", "C");
    until(SOON, "a file in a new folder is put", || text(&mut db, "docs/new/deep/c.md").is_some());
    // As editors save: by a file that takes the place of the other.
    folder.write("docs/.b.md.tmp", "B saved");
    fs::rename(folder.0.join("docs/.b.md.tmp"), folder.0.join("docs/b.md")).unwrap();
    until(SOON, "a replaced file is put", || text(&mut db, "docs/b.md").as_deref() == Some("B saved"));
    folder.remove("docs/a.md");
    until(SOON, "a removed file's document is deleted", || text(&mut db, "docs/a.md").is_none());
    db.put("k", "docs/by-hand.md", "By hand");
    // The folder vanishes, as one that is unmounted: its documents stay. When it is there again, it is
    // watched.
    fs::rename(folder.0.join("docs"), folder.0.join("elsewhere")).unwrap();
    watching.until_noted("nothing is deleted");
    assert_eq!(ids(&mut db), ["docs/b.md", "docs/by-hand.md", "docs/new/deep/c.md"]);
    fs::rename(folder.0.join("elsewhere"), folder.0.join("docs")).unwrap();
    folder.write("docs/d.md", "D");
    until(SOON, "the folder is watched again", || text(&mut db, "docs/d.md").is_some());
    // The server is away while something changes.
    drop(db);
    cluster.stop("fast", 60);
    folder.write("docs/e.md", "E");
    watching.until_noted("trying again");
    cluster.up();
    let mut db = cluster.reconnect(APP);
    until(LONG, "the load goes on after a restart", || text(&mut db, "docs/e.md").is_some());
    signal(watching.child.id() as i32, libc::SIGINT);
    assert_eq!(watching.child.wait().unwrap().code(), Some(0));
    assert_eq!(ids(&mut db).len(), 5);
}

#[test]
fn a_load_acts_for_its_tenant_and_needs_the_right_to_write() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    db.run("CREATE ROLE reader LOGIN; GRANT kb_reader TO reader; CREATE ROLE writer LOGIN; GRANT kb_writer TO writer");
    let mut other = cluster.connect_as_tenant("postgres", "acme");
    other.create_kb("k", "hash", "{}");
    let folder = Folder::new(&cluster, &[("a.md", "Ours"), ("b.md", "Theirs")]);
    let refused = folder.load(&cluster, &["-U", "reader", "."]).complained(1);
    assert!(refused.contains("GRANT kb_writer TO"), "{refused}");
    folder.load(&cluster, &["-U", "writer", "a.md"]).ended(0);
    folder.load(&cluster, &["--project", "acme", "b.md"]).ended(0);
    let tenants: Vec<String> =
        db.all("SELECT tenant_id || ' ' || external_id FROM kb.documents ORDER BY external_id");
    let own: String = db.one("SELECT kb.current_tenant()");
    assert!(tenants.contains(&format!("{own} a.md")), "{tenants:?}");
    assert_eq!(ids(&mut other).last().map(String::as_str), Some("b.md"));
    // A load of one tenant deletes nothing of another.
    folder.remove("a.md");
    folder.write("c.md", "Theirs, too");
    folder.load(&cluster, &["--project", "acme", "--delete", "."]).ended(0);
    assert_eq!(db.count(&format!("kb.documents WHERE tenant_id = '{own}' AND external_id = 'a.md'")), 1);
    // A quota that is used up ends the load with the server's error.
    db.run("SELECT kb.set_quota('acme', documents => 3)");
    for number in 0..10 {
        folder.write(&format!("q/{number}.md"), format!("Document {number}"));
    }
    let quota = folder.load(&cluster, &["--project", "acme", "q"]).complained(1);
    assert!(quota.contains("53400"), "{quota}");
}
