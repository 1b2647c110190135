//! Files of foreign formats are read by a confined program, and whatever a file does to it costs no other
//! document.

use crate::support::random::Rng;
use crate::support::{APP, Cluster, Db, SOON, assert_sound, signal, until};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn put(db: &mut Db, id: &str, bytes: &[u8]) -> String {
    db.one_with("SELECT kb.put_file('k', $1, $2)", &[&id, &bytes])
}

fn failure(db: &mut Db, id: &str) -> (String, String) {
    let row =
        db.0.query_one("SELECT error, sqlstate FROM kb.failures WHERE external_id = $1", &[&id]).unwrap();
    (row.get(0), row.get(1))
}

fn status(db: &mut Db, id: &str) -> String {
    db.one_with("SELECT status FROM kb.documents WHERE external_id = $1", &[&id])
}

/// The processes of kb-extract that this cluster's worker has started.
pub fn programs(cluster: &Cluster) -> Vec<i32> {
    let worker = cluster.worker(APP);
    let is_child = |pid: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line == format!("PPid:\t{worker}"))
    };
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_child).collect()
}

/// A program that says that it is ready, and then does this for the first file.
fn pretender(cluster: &Cluster, name: &str, then: &str) -> String {
    let path = cluster.path(name);
    let ready = r"printf '\021\000\000\000\260kb-extract 0.2.0'";
    std::fs::write(&path, format!("#!/bin/sh\n{ready}\nhead -c 4 >/dev/null\n{then}\n")).unwrap();
    executable(&path);
    path.display().to_string()
}

fn executable(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn use_program(cluster: &Cluster, db: &mut Db, path: &str) {
    db.run(&format!("ALTER SYSTEM SET kb.extract_program = '{path}'"));
    cluster.reload();
    until(SOON, "the setting is read", || db.one::<String>("SHOW kb.extract_program") == path);
    // A worker that runs may read the configuration later than this session.
    let workers = "pg_stat_activity WHERE backend_type = 'kb worker'";
    db.run(&format!("SELECT pg_terminate_backend(pid) FROM {workers}"));
    until(SOON, "the worker has ended", || db.count(workers) == 0);
}

#[test]
fn a_file_in_any_charset_becomes_text_and_says_how_it_was_decoded() {
    let (_cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", "{}");
    let russian = b"\xd1\xfa\xe5\xf8\xfc \xe6\xe5 \xe5\xf9\xb8 \xfd\xf2\xe8\xf5 \xec\xff\xe3\xea\xe8\xf5 \xe1\xf3\xeb\xee\xea";
    assert_eq!(put(&mut db, "a.txt", russian), "added");
    assert_eq!(put(&mut db, "a.html", b"<meta charset=koi8-r><title>T</title><p>\xe4\xe1"), "added");
    db.wait("k");
    assert_sound(&mut db, "k", 2, 0);
    let text = |db: &mut Db, id: &str| {
        db.one::<String>(&format!("SELECT content FROM kb.documents WHERE external_id = '{id}'"))
    };
    assert_eq!(text(&mut db, "a.txt"), "Съешь же ещё этих мягких булок");
    assert_eq!(text(&mut db, "a.html"), "ДА");
    assert_eq!(
        db.all::<String>("SELECT concat_ws(' ', external_id, title, content_type, metadata->>'charset', metadata->>'charset_by')
                          FROM kb.documents ORDER BY 1"),
        ["a.html T text/html KOI8-R declaration", "a.txt text/plain windows-1251 detection"]
    );
    // The same file again is no work; another one with the same text is.
    assert_eq!(put(&mut db, "a.txt", russian), "skipped");
    assert_eq!(put(&mut db, "a.txt", "Съешь же ещё этих мягких булок".as_bytes()), "updated");
    db.wait("k");
    assert_eq!(db.one::<String>("SELECT metadata::text FROM kb.documents WHERE external_id = 'a.txt'"), "{}");
}

#[test]
fn a_charset_that_was_declared_counts_when_a_file_is_read_again() {
    let (_cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", "{}");
    let sql = "SELECT kb.put_file('k', 'a', $1, 'a.txt', content_type => 'text/plain; charset=iso-8859-7')";
    let text: &[u8] = b"\xe4\xe5";
    db.one_with::<String>(sql, &[&text]);
    db.wait("k");
    let stored = "SELECT content || ' ' || content_type FROM kb.documents";
    assert_eq!(db.one::<String>(stored), "δε text/plain");
    db.run("SELECT kb.ingest('k', 'replace')");
    db.wait("k");
    assert_eq!(db.one::<String>(stored), "δε text/plain");
}

#[test]
fn what_the_caller_says_of_a_file_has_precedence_over_what_the_file_says() {
    let (_cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", "{}");
    let sql = "SELECT kb.put_file('k', 'a', $1, 'a.html', metadata => $2::text::jsonb, title => 'Mine')";
    let page: &[u8] = b"<meta charset=koi8-r><title>T</title><p>\xe4";
    let (metadata, again) = (r#"{"charset": "none", "n": 1}"#, r#"{"n": 2}"#);
    let stored = "SELECT title || ' ' || metadata::text FROM kb.documents";
    assert_eq!(db.one_with::<String>(sql, &[&page, &metadata]), "added");
    db.wait("k");
    let expected = r#"Mine {"n": 1, "charset": "none", "charset_by": "declaration"}"#;
    assert_eq!(db.one::<String>(stored), expected);
    assert_eq!(db.one_with::<String>(sql, &[&page, &again]), "skipped");
    let expected = r#"Mine {"n": 2, "charset": "KOI8-R", "charset_by": "declaration"}"#;
    assert_eq!(db.one::<String>(stored), expected);
    db.run("SELECT kb.ingest('k', 'replace')");
    db.wait("k");
    assert_eq!(db.one::<String>(stored), expected);
}

#[test]
fn source_code_is_split_at_definitions_and_chunks_name_them() {
    let (_cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", r#"{"size": 20, "overlap": 0}"#);
    let code = "import os\n\nclass Leave:\n    # Counts the days.\n    def days(self, year):\n        return self.of[year]\n\n    def apply(self):\n        ask(self.boss)\n";
    put(&mut db, "leave.py", code.as_bytes());
    db.wait("k");
    let chunks = |db: &mut Db| {
        db.all::<String>(
            "SELECT (locator->'headings')::text || ' ' || split_part(content, E'\\n', 1) FROM kb.chunks
             WHERE locator ? 'headings' ORDER BY start_char",
        )
    };
    let found = chunks(&mut db);
    assert!(found.contains(&r#"["Leave", "days"] # Counts the days."#.to_string()), "{found:?}");
    assert!(found.contains(&r#"["Leave", "apply"] def apply(self):"#.to_string()), "{found:?}");
    // An edit keeps the chunks of the other definitions.
    let ids = "SELECT chunk_id::text FROM kb.chunks WHERE content LIKE '%apply(self)%'";
    let before = db.all::<String>(ids);
    put(&mut db, "leave.py", code.replace("of[year]", "all[year]").as_bytes());
    db.wait("k");
    assert_eq!(db.all::<String>(ids), before);
    assert_sound(&mut db, "k", 1, 0);
}

#[test]
fn pages_become_their_articles_and_lines_of_json_documents_on_request() {
    let (_cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", "{}");
    let article =
        "<p>Every employee has 25 days of leave in a year, which are agreed with the team.</p>".repeat(9);
    let menu = "<li><a href='/x'>Another page of this site</a></li>".repeat(20);
    let page =
        format!("<title>Leave</title><div class=menu><ul>{menu}</ul></div><div><h2>Days</h2>{article}</div>");
    db.put("k", "text.html", &page);
    put(&mut db, "file.html", page.as_bytes());
    put(&mut db, "lines.jsonl", b"{\"id\": \"one\", \"a\": \"red\"}\n\n{\"a\": \"blue\"}\n");
    db.wait("k");
    assert_sound(&mut db, "k", 3, 0);
    let texts = |db: &mut Db, what: &str| {
        db.all::<String>(&format!(
            "SELECT external_id FROM kb.documents WHERE content LIKE '%{what}%' ORDER BY 1"
        ))
    };
    assert_eq!(texts(&mut db, "Another page"), ["file.html", "text.html"]);
    let set = |db: &mut Db, preprocess: &str| {
        db.run(&format!(
            "SELECT kb.alter_knowledge_base('k', preprocess => '{preprocess}'); SELECT kb.ingest('k')"
        ));
        db.wait("k");
    };
    set(&mut db, r#"{"main_content": true, "jsonl": "documents"}"#);
    // The file of lines itself has no text, and therefore no chunks.
    assert_eq!((db.count("kb.documents WHERE status = 'ready'"), db.count("kb.failures")), (5, 0));
    assert_eq!(texts(&mut db, "Another page"), [""; 0]);
    assert_eq!(texts(&mut db, "25 days"), ["file.html", "text.html"]);
    assert_eq!(texts(&mut db, "red"), ["lines.jsonl/one"]);
    assert_eq!(texts(&mut db, "blue"), ["lines.jsonl/3"]);
    // An edit is read in the same way.
    db.put("k", "text.html", &page.replace("25 days", "30 days"));
    put(&mut db, "lines.jsonl", b"{\"id\": \"one\", \"a\": \"green\"}\n");
    db.wait("k");
    assert_eq!(texts(&mut db, "30 days"), ["text.html"]);
    assert_eq!(texts(&mut db, "Another page"), [""; 0]);
    assert_eq!((texts(&mut db, "green").len(), texts(&mut db, "blue").len()), (1, 0));
    set(&mut db, "{}");
    assert_sound(&mut db, "k", 3, 0);
    assert_eq!(texts(&mut db, "Another page"), ["file.html", "text.html"]);
    assert_eq!(texts(&mut db, "green"), ["lines.jsonl"]);
}

#[test]
fn a_format_that_cannot_be_read_fails_alone_and_is_named() {
    let (_cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", "{}");
    put(&mut db, "picture", b"\x89PNG\r\n\x1a\n0000");
    put(&mut db, "noise.txt", b"abc\0\xff\xfedef");
    put(&mut db, "text.txt", b"Some words.");
    db.wait("k");
    assert_sound(&mut db, "k", 1, 2);
    let (error, state) = failure(&mut db, "picture");
    assert!(error.contains("image/png") && state == "0A000", "{error}");
    let (error, state) = failure(&mut db, "noise.txt");
    assert!(error.contains("not text in any known charset") && state == "22000", "{error}");
}

#[test]
fn a_file_that_crashes_or_hangs_the_program_fails_alone_and_with_the_reason() {
    let (cluster, mut db) = crate::connected!("kb.extract_timeout = '2s'", "kb.extract_memory = '256MB'");
    db.create_kb("k", "hash", "{}");
    for (name, then, reason, state) in [
        ("segv", "kill -SEGV $$", "signal 11", "22000"),
        ("kill", "kill -KILL $$", "signal 9", "22000"),
        ("hang", "sleep 100 & wait", "takes longer than 2 s", "54000"),
        ("cpu", "kill -XCPU $$", "takes longer than 2 s", "54000"),
        ("panic", "exit 101", "a state that it does not expect", "22000"),
        (
            "memory",
            "echo 'memory allocation of 9 bytes failed' >&2; kill -ABRT $$",
            "more than 256 MB",
            "54000",
        ),
        ("garbage", "printf '\\004\\000\\000\\000abcd'; sleep 1", "crashed", "22000"),
        ("long", "printf '\\377\\377\\377\\377abcd'; sleep 1", "crashed", "22000"),
    ] {
        let path = pretender(&cluster, name, then);
        use_program(&cluster, &mut db, &path);
        put(&mut db, name, b"Some words.");
        db.put("k", &format!("beside {name}"), "Words of a text.");
        db.wait("k");
        let (error, found) = failure(&mut db, name);
        assert!(error.contains(reason) && found == state, "{name}: {error} ({found})");
        assert_eq!(status(&mut db, &format!("beside {name}")), "ready");
    }
    use_program(&cluster, &mut db, "");
    db.run("SELECT kb.retry('k')");
    db.wait("k");
    assert_sound(&mut db, "k", 16, 0);
}

#[test]
fn a_file_that_hangs_keeps_no_others_back() {
    let (cluster, mut db) = crate::connected!("kb.extract_timeout = '300s'");
    for tenant in ["acme", "globex"] {
        db.run(&format!("SET kb.tenant = '{tenant}'"));
        db.create_kb(tenant, "hash", "{}");
    }
    // The file of one tenant hangs, and those of the other are read by the real program.
    let path = cluster.path("hangs once");
    let real = cluster.path("real");
    let program = db.one::<String>("SELECT setting || '/kb-extract' FROM pg_config WHERE name = 'PKGLIBDIR'");
    std::os::unix::fs::symlink(program, &real).unwrap();
    let (once, real) = (cluster.path("once").display().to_string(), real.display().to_string());
    let ready = r"printf '\021\000\000\000\260kb-extract 0.2.0'";
    let script =
        format!("#!/bin/sh\nif mkdir '{once}'; then {ready}; sleep 1000 & wait; fi\nexec '{real}' \"$@\"\n");
    std::fs::write(&path, script).unwrap();
    executable(&path);
    use_program(&cluster, &mut db, &path.display().to_string());
    db.run("SET kb.tenant = 'acme'");
    let put_file =
        "SELECT kb.put_file('{}', '{}', '\\x576f726473', 'words.bin', content_type => 'text/x-log')";
    let put_file = |kb: &str, id: &str| put_file.replacen("{}", kb, 1).replacen("{}", id, 1);
    db.run(&put_file("acme", "hangs"));
    until(SOON, "the file is read", || std::fs::exists(&once).unwrap_or_default());
    for i in 0..200 {
        db.run(&put_file("acme", &format!("file {i}")));
    }
    db.put("acme", "text", "Words of a text.");
    db.run("SET kb.tenant = 'globex'");
    db.run(&put_file("globex", "other"));
    db.put("globex", "other text", "Words of a text.");
    db.wait("globex");
    assert_sound(&mut db, "globex", 2, 0);
    db.run("SET kb.tenant = 'acme'");
    until(SOON, "the text is ready", || {
        db.count("kb.documents WHERE external_id = 'text' AND status = 'ready'") == 1
    });
    let waiting = "kb.documents WHERE status = 'pending'";
    assert_eq!(db.count(&format!("{waiting} AND kb_id = 'acme'")), 201);
    // Whoever drops the knowledge base does not wait for the file.
    db.run("SELECT kb.drop_knowledge_base('acme')");
}

#[test]
fn files_wait_while_the_program_is_missing_or_of_another_version() {
    let (cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", "{}");
    let other = cluster.path("other");
    std::fs::write(&other, "#!/bin/sh\nprintf '\\021\\000\\000\\000\\260kb-extract 0.0.1'\nsleep 100\n")
        .unwrap();
    executable(&other);
    for (program, problem) in [
        ("/nowhere/kb-extract".to_string(), "No such file"),
        (other.display().to_string(), "has version \"kb-extract 0.0.1\""),
        ("/bin/true".to_string(), "does not answer"),
    ] {
        use_program(&cluster, &mut db, &program);
        let health = "SELECT status || ': ' || detail FROM kb.health() WHERE component = 'extractor'";
        let health = db.one::<String>(health);
        assert!(health.starts_with("warning: ") && health.contains(problem), "{health}");
        put(&mut db, "a.txt", format!("Words of {program}").as_bytes());
        db.put("k", "text", &program);
        until(SOON, "the error is seen", || {
            db.count(&format!("kb.jobs WHERE error LIKE '%{problem}%' AND subject = 'a.txt'")) == 1
        });
        until(SOON, "the text is ready", || status(&mut db, "text") == "ready");
        assert_eq!(status(&mut db, "a.txt"), "pending");
    }
    use_program(&cluster, &mut db, "");
    db.wait("k");
    assert_sound(&mut db, "k", 2, 0);
}

#[test]
fn the_program_is_confined_and_is_replaced_when_it_is_killed() {
    let (cluster, mut db) = crate::connected!("kb.worker_idle_timeout = '1d'");
    db.create_kb("k", "hash", "{}");
    put(&mut db, "a.txt", b"Some words.");
    db.wait("k");
    let [program] = programs(&cluster)[..] else { panic!("one program runs: {:?}", programs(&cluster)) };
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{program}/{file}")).unwrap();
    let status = read("status");
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
    let limits: Vec<String> =
        read("limits").lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for limit in [
        "Max address space 1073741824 1073741824 bytes",
        "Max core file size 0 0 bytes",
        "Max file size 0 0 bytes",
    ] {
        assert!(limits.iter().any(|line| line == limit), "{limit}: {limits:?}");
    }
    let mut files: Vec<String> = std::fs::read_dir(format!("/proc/{program}/fd"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, ["0", "1", "2"]);
    assert_eq!(read("environ"), "");
    signal(program, libc::SIGKILL);
    put(&mut db, "b.txt", b"Other words.");
    db.wait("k");
    put(&mut db, "c.txt", b"More words.");
    db.wait("k");
    let ready = db.count("kb.documents WHERE status = 'ready'");
    assert!(ready >= 2, "only the file that met the killed program may fail");
    assert_eq!(programs(&cluster).iter().filter(|pid| **pid != program).count(), 1);
}

#[test]
fn the_program_ends_with_the_worker_however_that_ends() {
    let (cluster, mut db) = crate::crashing!("kb.worker_idle_timeout = '1d'");
    db.create_kb("k", "hash", "{}");
    put(&mut db, "a.txt", b"Some words.");
    db.wait("k");
    let [program] = programs(&cluster)[..] else { panic!("one program runs") };
    signal(cluster.worker(APP), libc::SIGKILL);
    until(SOON, "the program has ended", || {
        let status = std::fs::read_to_string(format!("/proc/{program}/status"));
        status.is_err() || status.is_ok_and(|status| status.contains("State:\tZ"))
    });
}

#[test]
fn ingest_reads_files_again_that_another_version_has_read() {
    let (_cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", "{}");
    put(&mut db, "a.txt", b"Some words.");
    put(&mut db, "b.txt", b"Other words.");
    db.put_and_wait("k", "text", "Words of a text.");
    let version: String = db.one("SELECT extractor FROM kb.documents WHERE external_id = 'a.txt'");
    assert!(version.starts_with("kb-extract 0."), "{version}");
    db.run("UPDATE kb.documents SET extractor = 'kb-extract 0.0.1', content = 'bad', indexed_hash = NULL WHERE external_id = 'a.txt'");
    db.run("SELECT kb.ingest('k')");
    db.wait("k");
    assert_eq!(
        db.all::<String>(
            "SELECT content || ', ' || coalesce(extractor, '') FROM kb.documents ORDER BY external_id"
        ),
        [format!("Some words., {version}"), format!("Other words., {version}"), "Words of a text., ".into()]
    );
    assert_eq!(db.one::<String>("SELECT scanned || ' ' || updated || ' ' || skipped FROM kb.runs"), "3 1 2");
}

/// A message with these lines in its body, and with attachments of these names and texts.
fn message(body: &str, attachments: &[(&str, &str)]) -> Vec<u8> {
    let mut message = String::from(
        "From: Ann <ann@example.com>\r\nTo: bob@example.com\r\nSubject: The lease\r\nMIME-Version: 1.0\r\n\
         Content-Type: multipart/mixed; boundary=b\r\n\r\n",
    );
    message += &format!("--b\r\nContent-Type: text/plain\r\n\r\n{body}\r\n");
    for (name, text) in attachments {
        message += &format!(
            "--b\r\nContent-Type: text/plain; name={name}\r\nContent-Disposition: attachment; filename={name}\r\n\r\n{text}\r\n"
        );
    }
    (message + "--b--\r\n").into_bytes()
}

#[test]
fn files_within_a_file_are_documents_that_come_and_go_with_it() {
    let (_cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", "{}");
    let texts = "SELECT external_id || ': ' || content FROM kb.documents ORDER BY external_id";
    put(&mut db, "m.eml", &message("See below.", &[("a.txt", "First."), ("b.txt", "Second.")]));
    db.wait("k");
    assert_sound(&mut db, "k", 3, 0);
    assert_eq!(db.all::<String>(texts), ["m.eml: See below.", "m.eml/a.txt: First.", "m.eml/b.txt: Second."]);
    assert_eq!(db.one::<String>("SELECT title FROM kb.documents WHERE part_of IS NULL"), "The lease");
    put(&mut db, "m.eml", &message("See below.", &[("b.txt", "Third."), ("c.txt", "Fourth.")]));
    db.wait("k");
    assert_sound(&mut db, "k", 3, 0);
    assert_eq!(db.all::<String>(texts), ["m.eml: See below.", "m.eml/b.txt: Third.", "m.eml/c.txt: Fourth."]);
    // A document that somebody has put is not replaced.
    db.put_and_wait("k", "n.eml/a.txt", "Mine.");
    put(&mut db, "n.eml", &message("See below.", &[("a.txt", "Theirs.")]));
    db.wait("k");
    let (error, _) = failure(&mut db, "n.eml");
    assert!(error.contains("another document has the name \"n.eml/a.txt\""), "{error}");
    assert_eq!(
        db.one::<String>("SELECT content FROM kb.documents WHERE external_id = 'n.eml/a.txt'"),
        "Mine."
    );
    db.run("SELECT kb.delete_document('k', 'm.eml')");
    assert_eq!(db.count("kb.documents WHERE external_id LIKE 'm.eml%'"), 0);
    assert_eq!(db.count("kb.jobs"), 0);
}

#[test]
fn messages_within_messages_end_at_a_depth() {
    let (_cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", "{}");
    let mut file = message("The innermost.", &[]);
    for depth in 0..12 {
        let mut outer = format!(
            "Subject: {depth}\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b{depth}\r\n\r\n\
             --b{depth}\r\nContent-Type: text/plain\r\n\r\nForwarded.\r\n--b{depth}\r\nContent-Type: message/rfc822\r\n\r\n"
        )
        .into_bytes();
        outer.extend_from_slice(&file);
        outer.extend_from_slice(format!("\r\n--b{depth}--\r\n").as_bytes());
        file = outer;
    }
    put(&mut db, "m.eml", &file);
    db.wait("k");
    assert!(db.count("kb.documents WHERE status = 'ready'") >= 4);
    assert_eq!(db.count("kb.failures"), 1);
    assert!(db.one::<String>("SELECT error FROM kb.failures").contains("is itself within 4 others"));
}

#[test]
fn a_tenants_quota_holds_for_the_files_within_a_file() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.set_quota('t', documents => 2)");
    db.run("SET kb.tenant = 't'");
    db.create_kb("k", "hash", "{}");
    put(&mut db, "m.eml", &message("See below.", &[("a.txt", "First."), ("b.txt", "Second.")]));
    db.wait("k");
    assert_eq!(db.count("kb.documents"), 1);
    let (error, state) = failure(&mut db, "m.eml");
    assert!(state == "53400", "{error}");
}

/// A PDF with a page for each text.
fn pdf(pages: &[&str]) -> Vec<u8> {
    let mut objects = vec!["<</Type/Catalog/Pages 2 0 R>>".to_string()];
    let kids: String = (0..pages.len()).map(|page| format!("{} 0 R ", 4 + 2 * page)).collect();
    objects.push(format!("<</Type/Pages/Count {}/Kids[{kids}]>>", pages.len()));
    objects.push("<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>".into());
    for (page, text) in pages.iter().enumerate() {
        objects.push(format!(
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F 3 0 R>>>>/Contents {} 0 R>>",
            5 + 2 * page
        ));
        let drawn = format!("BT /F 12 Tf 72 700 Td ({text}) Tj ET");
        objects.push(format!("<</Length {}>>stream\n{drawn}\nendstream", drawn.len()));
    }
    let (mut file, mut offsets) = (String::from("%PDF-1.4\n"), String::new());
    for (number, object) in objects.iter().enumerate() {
        offsets += &format!("{:010} 00000 n \n", file.len());
        file += &format!("{} 0 obj\n{object}\nendobj\n", number + 1);
    }
    let (at, size) = (file.len(), objects.len() + 1);
    file += &format!(
        "xref\n0 {size}\n0000000000 65535 f \n{offsets}trailer\n<</Size {size}/Root 1 0 R>>\nstartxref\n{at}\n%%EOF\n"
    );
    file.into_bytes()
}

#[test]
fn a_row_of_an_answer_names_the_page_of_a_pdf() {
    let (_cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", r#"{"size": 12, "overlap": 0}"#);
    let pages = [
        "The first page is about the bicycles in the cellar of the house, and about who may leave one there.",
        "The second page is about the opening hours of the office, which closes at eight in the evening.",
    ];
    put(&mut db, "rules", &pdf(&pages));
    db.wait("k");
    assert_sound(&mut db, "k", 1, 0);
    let sql = "SELECT content || ' ' || (locator ->> 'page') FROM kb.query('k', $1, 1, mode => 'keyword')";
    for (question, page) in [("bicycles", "1"), ("evening", "2")] {
        let row: String = db.one_with(sql, &[&question]);
        assert!(row.contains(question) && row.ends_with(page), "{row}");
    }
    // A wrong claim is told, and does not matter.
    let sql = "SELECT kb.put_file('k', 'rules', $1, 'rules.html', content_type => 'text/html')";
    db.one_with::<String>(sql, &[&pdf(&pages)]);
    db.wait("k");
    assert_eq!(
        db.one::<String>(
            "SELECT content_type || ', ' || (metadata ->> 'content_type_claimed') FROM kb.documents"
        ),
        "application/pdf, text/html"
    );
}

/// An archive of these files, which are not compressed.
fn zip(files: &[(&str, &str)]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let mut crc = flate2::Crc::new();
        crc.update(content.as_bytes());
        let mut entry = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0x50];
        entry.extend(crc.sum().to_le_bytes());
        entry.extend([content.len() as u32, content.len() as u32].map(u32::to_le_bytes).concat());
        entry.extend([name.len() as u16, 0].map(u16::to_le_bytes).concat());
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&entry);
        directory.extend([0; 10]);
        directory.extend((archive.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        archive.extend(b"PK\x03\x04");
        archive.extend(&entry);
        archive.extend(name.as_bytes());
        archive.extend(content.as_bytes());
    }
    let (at, count) = (archive.len() as u32, files.len() as u16);
    archive.extend(&directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend([count, count].map(u16::to_le_bytes).concat());
    archive.extend([directory.len() as u32, at].map(u32::to_le_bytes).concat());
    archive.extend([0, 0]);
    archive
}

fn docx(body: &str) -> Vec<u8> {
    const W: &str = "http://schemas.openxmlformats.org/wordprocessingml/2006/main";
    const OFFICE: &str = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument";
    zip(&[
        (
            "[Content_Types].xml",
            "<Types xmlns='http://schemas.openxmlformats.org/package/2006/content-types'><Override PartName='/word/document.xml' \
             ContentType='application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml'/></Types>",
        ),
        (
            "_rels/.rels",
            &format!(
                "<Relationships xmlns='http://schemas.openxmlformats.org/package/2006/relationships'>\
                 <Relationship Id='r1' Type='{OFFICE}' Target='word/document.xml'/></Relationships>"
            ),
        ),
        ("word/document.xml", &format!("<w:document xmlns:w='{W}'><w:body>{body}</w:body></w:document>")),
    ])
}

#[test]
fn mutated_files_are_read_or_fail_and_harm_nothing_else() {
    const EACH: u64 = 60;
    let (_cluster, mut db) = crate::connected!("kb.extract_timeout = '5s'");
    db.create_kb("k", "hash", "{}");
    let paragraph = "<w:p><w:r><w:t>Some words of a document.</w:t></w:r></w:p>";
    let table = format!("<w:tbl><w:tr><w:tc>{paragraph}</w:tc><w:tc>{paragraph}</w:tc></w:tr></w:tbl>");
    let seeds = [
        ("docx", docx(&format!("{paragraph}{table}"))),
        ("pdf", pdf(&["Some words of a document.", "Some words of its second page."])),
        ("eml", message("Some words.", &[("a.txt", "Others.")])),
        (
            "vtt",
            b"WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ann>Some words\n\n00:02.000 --> 00:03.000\nof a film.\n"
                .to_vec(),
        ),
        ("rtf", b"{\\rtf1\\ansi{\\fonttbl\\f0 A;}\\f0\\pard Some words \\'e4\\u228?.\\par}".to_vec()),
        ("yaml", b"a: &x [1, 2]\nb: *x\nc: {d: e}\n".to_vec()),
        ("csv", b"a;b\n1;\"x;y\"\n2;z\n".to_vec()),
        ("rst", b"Title\n=====\n\n* a\n* b::\n\n    code\n".to_vec()),
    ];
    for (extension, seed) in &seeds {
        put(&mut db, &format!("whole.{extension}"), seed);
        for number in 0..EACH {
            let mut random = Rng::with_seed(number);
            let mut file = seed.clone();
            for _ in 0..1 + random.usize(..4) {
                let at = random.usize(..file.len());
                match random.usize(..4) {
                    0 => file[at] = random.usize(..256) as u8,
                    1 => file.truncate(at.max(1)),
                    2 => {
                        let part = file[at..].to_vec();
                        file.extend(part);
                    }
                    _ => drop(file.drain(at..(at + random.usize(..9) + 1).min(file.len()))),
                }
                if file.is_empty() {
                    file.push(b'x');
                }
            }
            put(&mut db, &format!("{number}.{extension}"), &file);
        }
    }
    db.wait("k");
    assert_eq!(db.count("kb.documents WHERE status = 'pending'"), 0);
    let whole = "SELECT external_id FROM kb.documents WHERE external_id LIKE 'whole.%' AND status <> 'ready'";
    assert_eq!(db.all::<String>(whole), Vec::<String>::new());
    // Faults of the program itself would be among these.
    let internal = "SELECT DISTINCT error FROM kb.failures WHERE sqlstate NOT IN ('22000', '54000', '0A000')";
    assert_eq!(db.all::<String>(internal), Vec::<String>::new());
}
