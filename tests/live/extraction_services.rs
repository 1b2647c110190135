//! Extraction services: files that a knowledge base has read by one are asked for once, wait while it is
//! paused, and fail alone.

use crate::dump::{PG_RESTORE, create_empty, dump, restore};
use crate::stub::{Fault, FileStub, on_one_day, scan};
use crate::support::{Cluster, Db, SOON, WHOLE, assert_sound, until};
use std::fmt::Write;

const KEY: &str = "sk-scan-71d0c2ab";
const QUICK: &str = r#""retry": {"max_attempts": 2, "base_ms": 1, "max_ms": 10}"#;
/// Provider http may connect to this machine only where it is named.
const ALLOWED: &str = "kb.allowed_hosts = '127.0.0.1, localhost'";

/// What provider http sends to the stub, and where it finds the text.
const TEMPLATE: &str = r#", "path": "/ocr", "send_as": "json", "pages_pointer": "/pages", "text_pointer": "/markdown",
    "body": {"model": "{{model}}", "document": {"name": "{{filename}}", "url": "data:{{content_type}};base64,{{base64}}"}}"#;

fn create_extractor(db: &mut Db, id: &str, provider: &str, stub: &FileStub, config: &str) {
    let (model, template) = match provider {
        "http" => ("'reader'", TEMPLATE),
        _ => ("NULL", ""),
    };
    db.run(&format!(
        "SELECT kb.create_extractor('{id}', '{provider}', {model}, '{}', config => '{{{QUICK}{config}{template}}}')",
        stub.base_url(provider)
    ));
}

fn create_kb(db: &mut Db, id: &str, extractors: &str) {
    db.run(&format!(
        "SELECT kb.create_knowledge_base('{id}', 'hash', chunking => '{{\"size\": 8, \"overlap\": 0}}',
             preprocess => '{{\"extractors\": {extractors}}}')"
    ));
}

/// A stub without a key, and what `connected!` gives: with extractor ocr of this provider and configuration,
/// and a knowledge base k that has images read by it.
fn fixture(provider: &str, config: &str, settings: &[&str]) -> Option<(FileStub, Cluster, Db)> {
    let stub = FileStub::start(None);
    let (cluster, mut db) = Cluster::connected(&[&[ALLOWED], settings].concat())?;
    create_extractor(&mut db, "ocr", provider, &stub, config);
    create_kb(&mut db, "k", r#"{"image/*": "ocr"}"#);
    Some((stub, cluster, db))
}

fn put(db: &mut Db, kb: &str, id: &str, bytes: &[u8]) -> String {
    db.one_with("SELECT kb.put_file($1, $2, $3)", &[&kb, &id, &bytes])
}

fn failure(db: &mut Db, id: &str) -> String {
    db.one_with("SELECT sqlstate || ' ' || error FROM kb.failures WHERE external_id = $1", &[&id])
}

fn content(db: &mut Db, id: &str) -> Option<String> {
    db.one_with("SELECT content FROM kb.documents WHERE external_id = $1", &[&id])
}

/// A PDF whose page has this content. Object 4 is an image.
fn pdf(content: &str) -> Vec<u8> {
    let image =
        "<</Type/XObject/Subtype/Image/Width 1/Height 1/ColorSpace/DeviceGray/BitsPerComponent 8/Length 1>>";
    let objects = [
        "<</Type/Catalog/Pages 2 0 R>>".to_string(),
        "<</Type/Pages/Kids[5 0 R]/Count 1>>".to_string(),
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>".to_string(),
        format!("{image}stream\nx\nendstream"),
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents 6 0 R\
         /Resources<</Font<</F1 3 0 R>>/XObject<</I 4 0 R>>>>>>"
            .to_string(),
        format!("<</Length {}>>stream\n{content}\nendstream", content.len()),
    ];
    let (mut file, mut table) = (String::from("%PDF-1.7\n"), String::from("0000000000 65535 f \n"));
    for (number, object) in (1..).zip(&objects) {
        writeln!(table, "{:010} 00000 n ", file.len()).unwrap();
        write!(file, "{number} 0 obj\n{object}\nendobj\n").unwrap();
    }
    let start = file.len();
    write!(file, "xref\n0 7\n{table}trailer<</Size 7/Root 1 0 R>>\nstartxref\n{start}\n%%EOF\n").unwrap();
    file.into_bytes()
}

#[test]
fn images_are_read_once_by_the_service_that_is_named_and_paid_for_once() {
    on_one_day();
    let stub = FileStub::start(Some(KEY));
    let (cluster, mut db) = crate::connected!(ALLOWED);
    db.run(&format!("SELECT kb.set_secret('scan', '{KEY}')"));
    for provider in ["tika", "docling", "unstructured", "http"] {
        create_extractor(&mut db, provider, provider, &stub, r#", "price_per_million_tokens": 1000000"#);
        db.run(&format!("SELECT kb.alter_extractor('{provider}', secret => 'kb:scan')"));
        let (ok, problem): (bool, Option<String>) = {
            let row = db.0.query_one("SELECT ok, problem FROM kb.check_extractor($1)", &[&provider]).unwrap();
            (row.get(0), row.get(1))
        };
        assert!(ok, "{provider}: {problem:?}");
        create_kb(&mut db, provider, &format!(r#"{{"image/*": "{provider}"}}"#));
        let image = scan("the harbor of the old town\x0cthe castle on the green hill");
        assert_eq!(put(&mut db, provider, "scan.png", &image), "added");
        put(&mut db, provider, "note.txt", b"A note about bread.");
        db.wait(provider);
        assert_sound(&mut db, provider, 2, 0);
        let documents: Vec<String> = db.all_with(
            "SELECT concat_ws(' ', external_id, content_type, extractor) FROM kb.documents WHERE kb_id = $1 ORDER BY 1",
            &[&provider],
        );
        assert!(documents[0].starts_with("note.txt text/plain kb-extract 0."), "{documents:?}");
        let version: String = db.one_with("SELECT version FROM kb.extractors WHERE id = $1", &[&provider]);
        assert!(version.starts_with(&format!("{provider} ")), "{version}");
        assert_eq!(documents[1], format!("scan.png image/png {version}"));
        let page: Option<i32> = db.one_with(
            "SELECT (locator ->> 'page')::int FROM kb.query($1, 'castle hill', 1, mode => 'keyword')",
            &[&provider],
        );
        assert_eq!(page, Some(2), "{provider}");
        // Neither the same file nor other settings send it again.
        assert_eq!(stub.requests().len(), 2, "{provider}: a check and a file");
        assert_eq!(put(&mut db, provider, "scan.png", &image), "skipped");
        for sql in [
            "SELECT kb.ingest($1)",
            "SELECT kb.ingest($1, 'replace')",
            "SELECT kb.alter_knowledge_base($1, chunking => '{\"size\": 5, \"overlap\": 0}')",
            "SELECT kb.ingest($1)",
        ] {
            db.0.execute(sql, &[&provider]).unwrap();
            db.wait(provider);
        }
        until(SOON, "the old build is swept", || db.count("kb.builds WHERE state <> 'live'") == 0);
        assert_sound(&mut db, provider, 2, 0);
        assert_eq!(stub.requests().len(), 2, "{provider}: an answer is kept");
        let booked = "SELECT coalesce(sum(requests), 0)::bigint FROM kb.usage WHERE capability = 'extract' AND endpoint = $1
                      AND texts = requests AND tokens > 0 AND cost > 0";
        until(SOON, "it is booked", || db.one_with::<i64>(booked, &[&provider]) == 2);
        // Settings that decide the text have the file read again, and nothing else.
        let config: String =
            db.one_with("SELECT config::text FROM kb.extractors WHERE id = $1", &[&provider]);
        let more = r#"{"headers": {"X-Title": "again"}}"#;
        let sql = "SELECT kb.alter_extractor($1, config => $2::text::jsonb || $3::text::jsonb)";
        db.0.execute(sql, &[&provider, &config, &more]).unwrap();
        db.0.execute("SELECT kb.ingest($1)", &[&provider]).unwrap();
        db.wait(provider);
        assert_eq!(stub.requests().len(), 3, "{provider}");
        assert_eq!(
            db.one::<String>("SELECT updated || ' ' || skipped FROM kb.runs ORDER BY run_no DESC LIMIT 1"),
            "1 1"
        );
        assert_sound(&mut db, provider, 2, 0);
        stub.forget();
        // What is used stays.
        db.refused(&format!("SELECT kb.drop_extractor('{provider}')"), "2BP01");
        db.run(&format!("SELECT kb.drop_knowledge_base('{provider}')"));
        let drop = format!("SELECT kb.drop_extractor('{provider}')");
        until(SOON, "its builds are gone", || db.try_run(&drop).is_ok());
    }
    assert_eq!(stub.complaints(), [] as [String; 0]);
    assert!(!cluster.log().contains("71d0c2ab"), "a key is in the server's log");
}

#[test]
fn a_service_reads_only_files_without_text_if_the_knowledge_base_says_so() {
    let Some((stub, _cluster, mut db)) = fixture("docling", "", &[]) else { return };
    create_kb(
        &mut db,
        "pdf",
        r#"{"application/pdf": {"extractor": "ocr", "when": "no_text"}, "image/png": "ocr"}"#,
    );
    put(&mut db, "pdf", "text.pdf", &pdf("BT /F1 12 Tf 70 700 Td (The key is under the mat.) Tj ET"));
    put(&mut db, "pdf", "image.pdf", &pdf("q 500 0 0 700 0 0 cm /I Do Q"));
    put(&mut db, "pdf", "broken.pdf", b"%PDF-1.7 and nothing else");
    // The type is what the bytes show, whatever the name says.
    put(&mut db, "pdf", "scan.pdf", &scan("words of an image"));
    db.wait("pdf");
    assert_eq!(content(&mut db, "text.pdf").as_deref(), Some("The key is under the mat."));
    assert_eq!(content(&mut db, "image.pdf").as_deref(), Some("words of the PDF"));
    assert_eq!(content(&mut db, "scan.pdf").as_deref(), Some("words of an image"));
    let broken = failure(&mut db, "broken.pdf");
    assert!(broken.starts_with("22000 ") && broken.contains("broken"), "{broken}");
    let mut sent: Vec<String> =
        stub.requests().iter().map(|seen| format!("{} {}", seen.name, seen.content_type)).collect();
    sent.sort();
    assert_eq!(sent, ["image.pdf application/pdf", "scan.pdf image/png"]);
    let by: Vec<String> =
        db.all("SELECT external_id || ' ' || split_part(extractor, ' ', 1) FROM kb.documents WHERE kb_id = 'pdf' AND extractor IS NOT NULL ORDER BY 1");
    assert_eq!(by, ["image.pdf ocr", "scan.pdf ocr", "text.pdf kb-extract"]);
    // Without an extractor, an image fails and the error says what would help.
    db.create_kb("none", "hash", WHOLE);
    put(&mut db, "none", "picture.png", &scan("unread"));
    db.wait("none");
    assert!(failure(&mut db, "picture.png").starts_with("0A000 "));
    assert_eq!(stub.seen("unread"), 0);
    // An extractor is named by a knowledge base only if it exists, and for a content type.
    for extractors in [r#"{"image/*": "none"}"#, r#"{"images": "ocr"}"#, r#"{"image/*": {"when": "never"}}"#]
    {
        let sql =
            format!("SELECT kb.alter_knowledge_base('k', preprocess => '{{\"extractors\": {extractors}}}')");
        db.refused(&sql, "22023");
    }
    assert_eq!(stub.complaints(), [] as [String; 0]);
}

#[test]
fn a_file_that_a_service_cannot_read_fails_alone_and_with_the_reason() {
    let Some((stub, _cluster, mut db)) =
        fixture("docling", r#", "timeout_ms": 400"#, &["kb.max_attempts = 2"])
    else {
        return;
    };
    let faults = [
        ("status 422", Fault::Status(422), "it answered 422", true),
        ("status 500", Fault::Status(500), "it answered 500", false),
        ("too slow", Fault::Never, "it did not answer in time", false),
        ("too large", Fault::Huge, "more than 33554432 bytes of text", true),
        ("no json", Fault::NotJson, "is not the JSON expected", false),
        (
            "failed",
            Fault::Says(r#"{"status": "failure", "errors": [{"error_message": "bad scan"}]}"#.into()),
            "bad scan",
            true,
        ),
    ];
    for (text, fault, _, _) in &faults {
        stub.refuse_text(text, fault.clone());
        put(&mut db, "k", text, &scan(text));
        put(
            &mut db,
            "k",
            &format!("beside {text}"),
            &scan(&format!("good words of {text:?}").replace(text, "it")),
        );
    }
    db.wait("k");
    for (text, _, reason, is_refused) in &faults {
        let error = failure(&mut db, text);
        assert!(error.contains("extractor \"ocr\": ") && error.contains(reason), "{text}: {error}");
        // Faults of a service cost attempts, and a file that it refuses is not sent again.
        assert!(
            if *is_refused { stub.seen(text) == 1 } else { stub.seen(text) >= 4 },
            "{text}: {}",
            stub.seen(text)
        );
    }
    assert_sound(&mut db, "k", faults.len() as i64, faults.len() as i64);
    // What it has read is not sent again.
    assert_eq!(db.count("kb.documents WHERE status = 'ready' AND content LIKE 'good words of%'"), 6);
    assert!(stub.seen("good words of \"it\"") >= 6);
    assert_eq!(stub.complaints(), [] as [String; 0]);
}

#[test]
fn files_wait_while_a_service_is_paused_and_others_go_on() {
    let Some((stub, _cluster, mut db)) = fixture("tika", "", &["kb.max_attempts = 3"]) else { return };
    db.create_kb("plain", "hash", WHOLE);
    for (text, fault) in
        [("throttled", Fault::RetryAfter { status: 429, seconds: 3600 }), ("down", Fault::Status(503))]
    {
        stub.always(Some(fault));
        for n in 0..6 {
            put(&mut db, "k", &format!("{text} {n}"), &scan(&format!("{text} {n}")));
        }
        put(&mut db, "plain", &format!("{text}.txt"), text.as_bytes());
        db.wait("plain");
        let paused = "kb.jobs WHERE error LIKE 'extractor \"ocr\" is paused: %'";
        until(SOON, "files wait for the service", || db.count(paused) > 0);
        if text == "throttled" {
            until(SOON, "all wait", || db.count(paused) == 6);
            assert_eq!(db.count("kb.documents WHERE status = 'failed'"), 0);
            // The limits of other settings are others.
            stub.always(None);
            db.run(&format!("SELECT kb.alter_extractor('ocr', config => '{{{QUICK}, \"rpm\": 100000}}')"));
        } else {
            stub.always(None);
        }
        db.run("SELECT kb.retry('k')");
        db.wait("k");
        db.run("SELECT kb.retry('k')");
        db.wait("k");
        assert_eq!(db.count(&format!("kb.documents WHERE status = 'ready' AND content LIKE '{text} %'")), 6);
    }
    assert_sound(&mut db, "k", 12, 0);
    assert_eq!(stub.complaints(), [] as [String; 0]);
}

#[test]
fn kb_admin_names_allowed_hosts_only_and_a_secret_stays_with_its_host() {
    let stub = FileStub::start(Some(KEY));
    let setting = "kb.allowed_hosts = '127.0.0.1, files.example'";
    let (cluster, mut db) = crate::connected!(setting);
    db.run(&format!("SELECT kb.set_secret('scan', '{KEY}')"));
    let create = |id: &str, base_url: &str| {
        format!(
            "SELECT kb.create_extractor('{id}', 'tika', base_url => '{base_url}', secret => 'kb:scan', config => '{{{QUICK}}}')"
        )
    };
    let fault = db.refused(&create("e", "https://elsewhere.example"), "22023");
    assert!(fault.text.contains("kb.allowed_hosts"), "{fault:?}");
    db.refused(&create("e", "http://169.254.169.254"), "22023");
    db.run(&create("ocr", "https://files.example"));
    create_kb(&mut db, "k", r#"{"image/*": "ocr"}"#);
    // It is moved, and its secret does not go along.
    db.run(&format!("SELECT kb.alter_extractor('ocr', base_url => '{}')", stub.base_url("tika")));
    put(&mut db, "k", "a.png", &scan("words"));
    db.wait("k");
    let error = failure(&mut db, "a.png");
    assert!(error.contains("secret is not bound to http://127.0.0.1"), "{error}");
    assert_eq!(stub.requests().len(), 0);
    db.run("SELECT kb.alter_extractor('ocr', secret => 'kb:scan')");
    db.run_and_wait("k", "SELECT kb.retry('k')");
    assert_eq!(content(&mut db, "a.png").as_deref(), Some("words"));
    // A host that is no longer allowed is not connected to.
    cluster.configure(&["kb.allowed_hosts = 'files.example'"]);
    cluster.reload();
    stub.forget();
    until(SOON, "the gateway refuses", || {
        let problem: Option<String> = db.one("SELECT problem FROM kb.check_extractor('ocr')");
        problem.is_some_and(|problem| problem.contains("kb.allowed_hosts"))
    });
    let sent = stub.requests().len();
    put(&mut db, "k", "b.png", &scan("other words"));
    db.wait("k");
    assert!(failure(&mut db, "b.png").contains("kb.allowed_hosts"));
    assert_eq!(stub.requests().len(), sent);
}

#[test]
fn only_the_tenant_that_has_spent_its_daily_tokens_waits_for_a_service() {
    on_one_day();
    let Some((stub, _cluster, mut db)) = fixture("unstructured", "", &[]) else { return };
    let long = "many words of a long page ".repeat(40);
    for (tenant, quota) in [("poor", Some(200)), ("rich", None)] {
        if let Some(tokens) = quota {
            db.run(&format!("SELECT kb.set_quota('{tenant}', tokens_per_day => {tokens})"));
        }
        db.run(&format!("SET kb.tenant = '{tenant}'"));
        create_kb(&mut db, "k", r#"{"image/*": "ocr"}"#);
        put(&mut db, "k", "first", &scan(&format!("{tenant} {long}")));
        db.wait("k");
        put(&mut db, "k", "second", &scan(&format!("{tenant} second {long}")));
        match quota {
            None => db.wait("k"),
            Some(_) => until(SOON, "it waits", || {
                db.count("kb.jobs WHERE subject = 'second' AND error LIKE '%200 tokens that this tenant may spend%'") == 1
            }),
        }
        db.run("RESET kb.tenant");
    }
    assert_eq!(stub.seen(&format!("poor second {long}")), 0);
    assert_eq!(stub.seen(&format!("rich second {long}")), 1);
    // Its quota is raised.
    db.run("SELECT kb.set_quota('poor', tokens_per_day => 100000); SET kb.tenant = 'poor'");
    db.wait("k");
    assert_eq!(stub.seen(&format!("poor second {long}")), 1);
}

#[test]
fn a_restored_copy_asks_no_service_until_it_is_acknowledged() {
    let Some((stub, cluster, mut db)) = fixture("tika", "", &["max_worker_processes = 16"]) else { return };
    put(&mut db, "k", "first", &scan("first words"));
    db.wait("k");
    let file = dump(&cluster, "dump", &["--format=custom"]);
    create_empty(&cluster, "copy");
    restore(&cluster, "copy", &file, PG_RESTORE);
    let mut copy = cluster.connect("copy");
    assert_eq!(
        copy.one::<String>("SELECT to_jsonb(e)::text FROM kb.extractors e"),
        db.one::<String>("SELECT to_jsonb(e)::text FROM kb.extractors e")
    );
    stub.forget();
    put(&mut copy, "k", "second", &scan("second words"));
    put(&mut copy, "k", "text", b"This costs nothing.");
    until(SOON, "it waits", || {
        copy.count("kb.jobs WHERE subject = 'second' AND error LIKE '%kb.acknowledge_restore()%'") == 1
    });
    until(SOON, "the text is ready", || copy.count("kb.documents WHERE status = 'ready'") == 2);
    assert_eq!(stub.requests().len(), 0);
    copy.run_and_wait("k", "SELECT kb.acknowledge_restore()");
    assert_sound(&mut copy, "k", 3, 0);
    // What the original had read is part of the copy.
    assert_eq!((stub.seen("first words"), stub.seen("second words")), (0, 1));
}

#[test]
fn a_slow_service_keeps_no_other_document_waiting() {
    let Some((stub, _cluster, mut db)) = fixture("docling", "", &[]) else { return };
    stub.hold(true);
    for n in 0..120 {
        put(&mut db, "k", &format!("scan {n}"), &scan(&format!("words {n}")));
    }
    until(SOON, "the service is asked", || stub.requests().len() >= 8);
    // Those of other knowledge bases of the same embedder, and texts of this one that were put before.
    db.create_kb("other", "hash", WHOLE);
    for n in 0..20 {
        put(&mut db, "other", &format!("note {n}"), format!("note {n}").as_bytes());
    }
    db.wait("other");
    assert_sound(&mut db, "other", 20, 0);
    assert_eq!(db.count("kb.documents WHERE kb_id = 'k' AND status = 'ready'"), 0);
    stub.hold(false);
    db.wait("k");
    assert_sound(&mut db, "k", 120, 0);
    assert!(stub.in_flight_max() <= 8, "{}", stub.in_flight_max());
    assert_eq!(stub.requests().len(), 120);
}
