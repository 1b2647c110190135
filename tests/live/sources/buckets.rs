//! Sources of buckets: a knowledge base follows a bucket, whatever the storage does, and its key stays
//! secret.

use super::{counts, failures, ingest, ready};
use crate::stub::bucket::{ACCOUNT, BUCKET, BucketStub, Fault, Flavour, REGION};
use crate::support::{APP, Cluster, Db, PRELOAD, SOON, assert_sound, signal, succeed, until};

/// A cluster with knowledge base k that may ask stubs, and the stub of a bucket with its secret.
fn with_bucket(settings: &[&str], page: usize) -> Option<(Cluster, Db, BucketStub)> {
    let settings = [&["kb.allowed_hosts = '127.0.0.1'"], settings].concat();
    let (cluster, mut db) = Cluster::connected(&settings)?;
    db.create_kb("k", "hash", "{}");
    let stub = BucketStub::start(Flavour::S3, page, false);
    db.0.execute("SELECT kb.set_secret('s3', $1)", &[&stub.secret()]).unwrap();
    Some((cluster, db, stub))
}

fn config(stub: &BucketStub, more: &str) -> String {
    format!(
        r#"{{"bucket": "{BUCKET}", "endpoint": "{}", "region": "{REGION}", "secret": "kb:s3"{more}}}"#,
        stub.endpoint()
    )
}

fn create(db: &mut Db, stub: &BucketStub, more: &str) {
    let config = config(stub, more);
    db.run(&format!("SELECT kb.create_source('k', 's', 's3', '{config}')"));
}

/// The documents that a bucket should have become.
fn expected(stub: &BucketStub) -> Vec<String> {
    let is_document = |(key, bytes): &(String, Vec<u8>)| !(key.ends_with('/') && bytes.is_empty());
    let objects = stub.objects().into_iter().filter(is_document);
    objects.map(|(key, bytes)| format!("s/{key}={}", String::from_utf8(bytes).unwrap())).collect()
}

fn problem(db: &mut Db) -> String {
    db.one("SELECT coalesce(error, '') FROM kb.sources WHERE name = 's'")
}

#[test]
fn a_bucket_becomes_documents_that_follow_it() {
    let Some((_cluster, mut db, stub)) = with_bucket(&[], 3) else { return };
    let strange = [
        "docs/a b+c.md",
        "docs/ä%20&?#.txt",
        "docs//x.md",
        "/lead.md",
        "a\nb.txt",
        "日本/🦀.md",
        "quote'\".txt",
        "plain",
    ];
    for key in strange {
        stub.put(key, format!("Text of {}", key.len()));
    }
    stub.put("folder/", "");
    stub.put("empty.txt", "");
    stub.put("docs/../up.md", "never read");
    create(&mut db, &stub, r#", "metadata": {"of": "bucket"}"#);
    let run_no = ingest(&mut db);
    stub.delete("docs/../up.md");
    assert_eq!(ready(&mut db), expected(&stub));
    assert_eq!(counts(&mut db, run_no), [10, 9, 0, 0, 0, 1]);
    let failed = failures(&mut db);
    assert!(failed.len() == 1 && failed[0].contains("a part . or .., which no URL can have"), "{failed:?}");
    let row: String = db
        .one("SELECT concat_ws(' ', uri, metadata) FROM kb.documents WHERE external_id = 's/docs/a b+c.md'");
    assert_eq!(row, format!(r#"s3://{BUCKET}/docs/a b+c.md {{"of": "bucket"}}"#));
    // A second run lists and reads nothing.
    let (reads, lists) = (stub.reads().len(), stub.lists());
    let run_no = ingest(&mut db);
    assert_eq!((stub.reads().len(), counts(&mut db, run_no)), (reads, vec![10, 0, 0, 9, 1, 0]));
    assert_eq!(stub.lists() - lists, 4);
    // Only what changed is read.
    stub.put("plain", "More");
    stub.put("new.md", "New");
    stub.delete("/lead.md");
    let run_no = ingest(&mut db);
    assert_eq!(ready(&mut db), expected(&stub));
    assert_eq!((stub.reads().len() - reads, counts(&mut db, run_no)), (2, vec![10, 1, 1, 7, 1, 0]));
    // A pattern, which decides what is listed, too.
    let altered = config(&stub, r#", "path": "docs/**/*.md""#);
    db.run(&format!("SELECT kb.alter_source('k', 's', '{altered}')"));
    ingest(&mut db);
    assert_eq!(ready(&mut db).len(), 2);
    assert_eq!(stub.complaints(), Vec::<String>::new());
    assert_sound(&mut db, "k", 2, 0);
}

#[test]
fn a_bucket_that_fails_or_changes_while_it_is_read_loses_no_document() {
    let Some((_cluster, mut db, stub)) = with_bucket(&[], 2) else { return };
    for n in 0..6 {
        stub.put(&format!("{n}.md"), format!("Text {n}"));
    }
    create(&mut db, &stub, "");
    // It changes between its listing and its being read, and one that is listed disappears.
    stub.on_read("1.md", Some(b"Changed meanwhile"));
    stub.on_read("2.md", None);
    stub.fail_lists(Fault::Status(503, "SlowDown"), 1);
    stub.fail_reads(Fault::Status(500, "InternalError"), 1);
    ingest(&mut db);
    assert_eq!(ready(&mut db), expected(&stub));
    let reads = stub.reads().len();
    ingest(&mut db);
    assert_eq!((ready(&mut db), stub.reads().len()), (expected(&stub), reads));
    let before = ready(&mut db);
    // Half of the listing, and none: nothing is deleted.
    stub.delete("0.md");
    stub.delete("5.md");
    for (fault, times, part) in [
        (Fault::Status(403, "AccessDenied"), 1, "403 (AccessDenied: Words of the storage.)"),
        (Fault::SameToken, 9, "repeats itself"),
        (Fault::CutText, 5, "is not XML"),
        (Fault::CutConnection, 5, "connection failed"),
        (Fault::Html(404), 1, "status 404"),
        (Fault::Redirect("http://127.0.0.1:1/".into()), 1, "status 307"),
    ] {
        stub.fail_lists(fault.clone(), times);
        ingest(&mut db);
        stub.end_faults();
        let problem = problem(&mut db);
        assert!(
            problem.contains(part) && problem.contains("no document was deleted"),
            "{fault:?}: {problem}"
        );
        assert!(!problem.contains("internal words"), "{problem}");
        assert_eq!(ready(&mut db), before, "{fault:?}");
    }
    // What cannot be read keeps its text, is named, and is read by the next run.
    stub.put("1.md", "Newer");
    stub.fail_reads(Fault::Status(403, "AccessDenied"), 1);
    let run_no = ingest(&mut db);
    assert_eq!(counts(&mut db, run_no)[5], 1);
    assert!(failures(&mut db)[0].contains("403 (AccessDenied"), "{:?}", failures(&mut db));
    ingest(&mut db);
    assert_eq!((ready(&mut db), problem(&mut db)), (expected(&stub), String::new()));
    assert_eq!(stub.complaints(), Vec::<String>::new());
}

#[test]
fn buckets_of_google_and_azure_and_public_ones_are_read() {
    let Some((_cluster, mut db, _)) = with_bucket(&[], 1) else { return };
    for (flavour, kind, more) in [
        (Flavour::Gcs, "gcs", String::new()),
        (Flavour::Azure, "azure", format!(r#", "account": "{ACCOUNT}""#)),
        (Flavour::Azure, "cloud_storage", format!(r#", "provider": "azure", "account": "{ACCOUNT}""#)),
        (Flavour::Gcs, "cloud_storage", r#", "provider": "gcs""#.into()),
        (Flavour::S3, "cloud_storage", format!(r#", "provider": "s3", "region": "{REGION}""#)),
    ] {
        for is_public in [false, true] {
            let stub = BucketStub::start(flavour, 2, is_public);
            for n in 0..5 {
                stub.put(&format!("docs/{n}.md"), format!("Text {n} of {kind}"));
            }
            stub.put("other.md", "Another");
            db.0.execute("SELECT kb.set_secret('own', $1)", &[&stub.secret()]).unwrap();
            let right = if is_public { r#""anonymous": true"# } else { r#""secret": "kb:own""# };
            let endpoint = stub.endpoint();
            db.run(&format!(
                r#"SELECT kb.create_source('k', 's', '{kind}', '{{"bucket": "{BUCKET}", "prefix": "docs/",
                   "endpoint": "{endpoint}", {right}{more}}}')"#
            ));
            ingest(&mut db);
            stub.delete("other.md");
            assert_eq!((ready(&mut db), problem(&mut db)), (expected(&stub), String::new()), "{kind}");
            assert_eq!(stub.complaints(), Vec::<String>::new());
            db.run("SELECT kb.drop_source('k', 's')");
        }
    }
}

#[test]
fn the_secret_of_a_bucket_is_bound_to_it_and_shown_nowhere() {
    let settings = ["log_min_messages = debug1", "log_min_error_statement = error"];
    let Some((cluster, mut db, stub)) = with_bucket(&settings, 10) else { return };
    stub.put("a.md", "One");
    // Only kb_admin names buckets, and so no tenant uses a secret that was not given to it.
    db.run("CREATE ROLE writer LOGIN IN ROLE kb_writer; SELECT kb.bind_role('writer', 'a')");
    let mut writer = cluster.connect_as(APP, "writer");
    writer.run("SELECT kb.create_knowledge_base('k', 'hash')");
    let own = config(&stub, "");
    writer.refused(&format!("SELECT kb.create_source('k', 's', 's3', '{own}')"), "42501");
    db.run(&format!("SET kb.tenant = 'a'; SELECT kb.create_source('k', 's', 's3', '{own}')"));
    writer.refused(&format!("SELECT kb.alter_source('k', 's', '{own}')"), "42501");
    db.run("SELECT kb.drop_source('k', 's'); RESET kb.tenant");
    create(&mut db, &stub, "");
    assert_eq!(writer.count("kb.sources"), 0);
    // Addresses of clouds, private ones that are not listed, and keys in the place of references.
    let key = "wJalrXUtnFEMI";
    for (endpoint, secret, part) in [
        ("http://169.254.169.254/latest", "kb:s3", "metadata"),
        ("http://10.0.0.1", "kb:s3", "kb.allowed_hosts"),
        ("https://minio.example.com", "kb:s3", "kb.allowed_hosts"),
        ("http://127.0.0.1:1", "env:PATH", "kb.secret_env"),
        ("http://127.0.0.1:1", "AKID:wJalrXUtnFEMI", "must be a reference"),
        ("http://AKID:wJalrXUtnFEMI@127.0.0.1", "kb:s3", "must be a URL"),
    ] {
        let fault = db.refused(
            &format!(
                r#"SELECT kb.create_source('k', 'x', 's3', '{{"bucket": "b", "endpoint": "{endpoint}", "secret": "{secret}"}}')"#
            ),
            "22023",
        );
        assert!(fault.text.contains(part) && !fault.text.contains(key), "{fault:?}");
    }
    ingest(&mut db);
    assert_eq!(ready(&mut db), ["s/a.md=One"]);
    // A key that the storage refuses.
    db.run("SELECT kb.set_secret('s3', 'AKIDEXAMPLE:wJalrXUtnFEMI-wrong')");
    ingest(&mut db);
    assert!(problem(&mut db).contains("403 (SignatureDoesNotMatch"), "{}", problem(&mut db));
    db.run("SELECT kb.drop_secret('s3')");
    ingest(&mut db);
    assert!(problem(&mut db).contains("kb:s3 does not exist"), "{}", problem(&mut db));
    db.0.execute("SELECT kb.set_secret('s3', $1)", &[&stub.secret()]).unwrap();
    let dump = succeed(cluster.program("pg_dump").arg(APP)).stdout;
    let dump = String::from_utf8_lossy(&dump);
    assert!(dump.contains("kb:s3") && !dump.contains(key));
    // The server logs what the test itself writes in a statement, but not with an error.
    let log = cluster.log();
    let shown: Vec<&str> = log.lines().filter(|line| line.contains(key)).collect();
    assert_eq!(shown, Vec::<&str>::new());
    // A copy of the database does not use it before somebody says so.
    stub.put("a.md", "Two");
    let lists = stub.lists();
    db.run("UPDATE kb.origins SET database_oid = 1");
    db.run("SELECT kb.ingest('k')");
    until(SOON, "the source waits", || {
        db.count("kb.jobs WHERE kind = 'source' AND error LIKE '%source \"s\" is paused: this database was restored%'") == 1
    });
    assert_eq!(stub.lists(), lists);
    db.run("SELECT kb.acknowledge_restore()");
    db.wait("k");
    assert_eq!(ready(&mut db), ["s/a.md=Two"]);
}

#[test]
fn after_a_kill_of_worker_or_gateway_the_knowledge_base_equals_the_bucket() {
    let settings = [PRELOAD, "kb.launcher_naptime = 1"];
    let Some((mut cluster, mut db, stub)) = with_bucket(&settings, 50) else { return };
    cluster.expects_crashes = true;
    create(&mut db, &stub, "");
    for round in 0..6 {
        for n in 0..300 {
            let key = format!("{}/{n}.md", n % 7);
            let exists = stub.objects().iter().any(|(other, _)| *other == key);
            if (n + round) % 5 == 0 && exists {
                stub.delete(&key);
            } else if (n + round) % 3 != 0 || round == 0 {
                stub.put(&key, format!("text {n} of round {round}"));
            }
        }
        let (reads, lists) = (stub.reads().len(), stub.lists());
        let run_no: i64 = db.one("SELECT kb.ingest('k')");
        // Some are killed while they list, others while they read.
        until(SOON, "the run is under way", || match round % 3 {
            0 => stub.lists() > lists,
            _ => stub.reads().len() > reads + 20 * round,
        });
        let killed = if round % 2 == 0 { cluster.gateway() } else { cluster.worker(APP) };
        signal(killed, libc::SIGKILL);
        db = cluster.reconnect_after_crash(db);
        db.run(&format!("SELECT kb.wait({run_no}::bigint, 180)"));
        db.wait("k");
        assert_eq!(ready(&mut db), expected(&stub), "round {round}");
        assert_eq!((problem(&mut db), failures(&mut db)), (String::new(), Vec::new()));
    }
    assert_eq!(stub.complaints(), Vec::<String>::new());
    let documents = expected(&stub).len() as i64;
    assert_sound(&mut db, "k", documents, 0);
}
