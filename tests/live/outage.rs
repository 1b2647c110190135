//! What happens while a provider is down.

use crate::stub::{Fault, Options, Stub};
use crate::support::{Document, LONG, SOON, WHOLE, assert_sound, texts, until};

#[test]
fn during_an_outage_documents_are_chunked_and_afterwards_embedded() {
    let (stub, _cluster, mut db) =
        crate::with_stub!("{}", r#"{"size": 30, "overlap": 0}"#, ["kb.max_attempts = 3"]);
    stub.always(Some(Fault::Status(500)));
    let documents = Document::numbered(0..300, |i| texts::text(i, 2, 20));
    db.put_all("k", &documents);
    let chunked = "kb.documents d WHERE EXISTS (SELECT FROM kb.chunks c WHERE c.document_id = d.document_id)";
    until(LONG, "all documents are chunked", || db.count(chunked) == 300);
    assert_eq!(db.vectors("k"), 0);
    until(SOON, "kb.health() says so", || {
        db.count(
            "kb.health() WHERE component = 'providers' AND status = 'warning' AND detail LIKE '%e%paused%'",
        ) == 1
    });
    // While the breaker is open nothing is used up: neither requests nor attempts.
    let sent = stub.request_count();
    assert!(sent <= 40, "{sent} requests to a provider that is down");
    stub.always(None);
    db.wait("k");
    assert_sound(&mut db, "k", 300, 0);
}

#[test]
fn an_outage_has_a_line_in_the_servers_log_when_it_begins_and_one_when_it_ends() {
    let stub = Stub::start(Options::default());
    // The log level and the writer of the message are the defaults, so nobody has to look for it.
    let (cluster, mut db) = crate::connected!();
    db.run("SET kb.tenant = 'acme'");
    db.create_stub_embedder("e", &stub, r#"{"retry": {"max_attempts": 1}, "batch_size": 1}"#);
    db.create_kb("k", "e", WHOLE);
    let oid: i64 = db.one("SELECT oid::bigint FROM pg_database WHERE datname = current_database()");
    let (database, key) = (format!("database {oid}"), "sk-");
    let lines = |what: &str| -> Vec<String> {
        let of_kb = |line: &&str| line.contains("LOG:  kb: ") && line.contains(what);
        cluster.log().lines().filter(of_kb).map(str::to_string).collect()
    };
    // The stub's message of a fault repeats the text that it was sent.
    stub.always(Some(Fault::Status(500)));
    let documents = texts::documents(0..30, 12);
    db.put_all("k", &documents);
    let begun = "embedder \"e\" takes no requests: its endpoint keeps failing";
    until(LONG, "the log says that it begins", || !lines(begun).is_empty());
    let failed = "calls of embedder \"e\" failed: it answered 500 (tenant \"acme\", ";
    until(SOON, "the log has the kind of failure, with tenant and number", || !lines(failed).is_empty());
    stub.always(None);
    db.wait("k");
    let ended = "embedder \"e\" answers again after ";
    until(SOON, "the log says that it ended", || !lines(ended).is_empty());
    for what in [begun, failed, ended] {
        let lines = lines(what);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(&database), "{lines:?}");
        let is_told = lines[0].contains("the stub says") || lines[0].contains(key);
        assert!(
            !is_told && documents.iter().all(|document| !lines[0].contains(&document.content)),
            "{lines:?}"
        );
    }
    assert!(lines(ended)[0].contains("calls failed"));
}

#[test]
fn a_provider_that_does_not_answer_questions_is_named_and_then_left_alone() {
    let (stub, _cluster, mut db) =
        crate::with_stub!(r#"{"timeout_ms": 5000, "retry": {"max_attempts": 1}}"#, "{}");
    stub.always(Some(Fault::Never));
    // A gateway that has to be started first takes some time.
    db.run("SELECT kb.embed('hash', ARRAY['a text'])");
    // The client gives up before the embedder does. The gateway answers when a twentieth of the time is left,
    // which is enough on a busy machine, too.
    db.run("SET kb.gateway_timeout = '3s'");
    let fault = db.fault("SELECT * FROM kb.query('k', 'where is the harbor?')");
    assert!(
        fault.code == "08006" && fault.message.contains("embedder \"e\": no answer within 3000 ms"),
        "{fault:?}"
    );
    // Requests whose client has left still count for the breaker.
    db.run("SET kb.gateway_timeout = '300ms'");
    for i in 0..4 {
        db.fault(&format!("SELECT * FROM kb.query('k', 'question {i}')"));
    }
    until(SOON, "it is left alone", || db.fault("SELECT * FROM kb.query('k', 'one more')").code == "53400");
    // A late answer is remembered and booked; no answer can arrive in time.
    stub.always(None);
    stub.set_latency(std::time::Duration::from_millis(450));
    let asked = "SELECT * FROM kb.query('k', 'where is the castle?')";
    until(SOON, "the answer is there when it is asked again", || db.0.simple_query(asked).is_ok());
    until(SOON, "it is booked", || {
        db.put("k", "d", &format!("A text of {} requests.", stub.request_count()));
        db.one::<i64>("SELECT coalesce(sum(requests), 0)::bigint FROM kb.usage")
            == stub.request_count() as i64
    });
}

#[test]
fn a_query_says_what_is_wrong_or_answers_by_keyword_and_marks_the_rows() {
    let (stub, _cluster, mut db) = crate::with_stub!("{}", "{}");
    db.put("k", "harbor", "The harbor lies south of the village and has three piers.");
    db.put("k", "castle", "The castle stands on a hill and is closed on Mondays.");
    db.run("SELECT kb.put_document('k', 'other', 'Harbors of another country.', '{\"lang\": \"x\"}')");
    db.wait("k");
    stub.always(Some(Fault::Status(500)));
    let fault = db.refused("SELECT * FROM kb.query('k', 'where is the harbor?')", "08006");
    assert!(fault.message.contains("embedder \"e\"") && fault.message.contains("500"), "{fault:?}");

    let by_option = "kb.query('k', 'where is the harbor?', options => '{\"on_error\": \"keyword\"}')";
    let marked = "score IS NULL AND rank_score > 0 AND locator->>'answered_by' = 'keyword'
        AND locator->>'reason' LIKE '%embedder%'";
    let found: Vec<String> =
        db.all(&format!("SELECT external_id FROM {by_option} WHERE {marked} ORDER BY external_id"));
    assert_eq!(found, ["harbor", "other"]);
    let filtered =
        "kb.query('k', 'harbor', filter => '{\"lang\": \"x\"}', options => '{\"on_error\": \"keyword\"}')";
    assert_eq!(db.all::<String>(&format!("SELECT external_id FROM {filtered}")), ["other"]);
    // A setting of the knowledge base, which the option overrides.
    db.run("SELECT kb.alter_knowledge_base('k', retrieval => '{\"on_error\": \"keyword\"}')");
    assert_eq!(db.count(&format!("kb.query('k', 'castle on Mondays') WHERE {marked}")), 1);
    db.fault("SELECT * FROM kb.query('k', 'castle', options => '{\"on_error\": \"error\"}')");
    // An answer by keyword contains nobody else's rows, either.
    db.run("SET kb.tenant = 'b'");
    db.refused("SELECT * FROM kb.query('k', 'castle')", "42704");
    db.run("RESET kb.tenant");
    // The provider is back: rows have scores again, and no mark.
    stub.always(None);
    until(SOON, "questions are answered by vectors again", || {
        db.count("kb.query('k', 'castle on Mondays') WHERE score IS NOT NULL AND NOT locator ? 'answered_by'")
            > 0
    });
}

#[test]
fn a_providers_message_about_a_tenants_text_is_shown_to_no_other() {
    let stub = Stub::start(Options::default());
    let (cluster, mut db) = crate::connected!();
    cluster.connect("postgres").run("CREATE DATABASE second");
    let mut second = cluster.connect("second");
    second.run("CREATE EXTENSION kb CASCADE");
    // The stub's message of a fault begins with "the stub says".
    let config = r#"{"retry": {"max_attempts": 1}, "batch_size": 1}"#;
    for db in [&mut db, &mut second] {
        db.create_stub_embedder("e", &stub, config);
    }
    db.run("SET kb.tenant = 'a'; CREATE ROLE b LOGIN IN ROLE kb_writer");
    db.create_kb("k", "e", WHOLE);
    let mut b = cluster.connect_as_tenant("b", "b");
    b.create_kb("k", "e", WHOLE);
    for (from, fault) in [(0, Fault::Status(500)), (20, Fault::RetryAfter { status: 429, seconds: 3600 })] {
        stub.always(Some(fault.clone()));
        db.put_all("k", &texts::documents(from..from + 20, 12));
        until(LONG, "the embedder is paused", || db.count("kb.jobs WHERE error LIKE '%is paused%'") > 0);
        for other in [&mut b, &mut second] {
            let sent = stub.seen("a question");
            let told = other.fault("SELECT kb.embed('e', ARRAY['a question'])");
            assert_eq!(told.code, "53400", "{told:?}");
            assert!(told.message.contains(&fault.status().to_string()), "{told:?}");
            // The client may read what is said of its own text, where that was sent.
            let is_own = stub.seen("a question") > sent;
            assert!(is_own || !told.text.contains("the stub says"), "{told:?}");
        }
        b.put("k", "d", &format!("A document of tenant b, {fault:?}."));
        until(LONG, "it waits", || b.count("kb.jobs WHERE error IS NOT NULL") == 1);
        let shown: Vec<String> = b.all(
            "SELECT error FROM kb.jobs WHERE error IS NOT NULL UNION ALL
             SELECT error FROM kb.failures WHERE error IS NOT NULL UNION ALL SELECT detail FROM kb.health()",
        );
        assert!(shown.iter().all(|text| !text.contains("the stub says")), "{shown:?}");
        stub.always(None);
        // With another rate it has other limits, which are not throttled.
        let rpm = 100_000 + from;
        db.run(&format!(
            r#"SELECT kb.alter_embedder('e', config => '{config}'::jsonb || '{{"rpm": {rpm}}}')"#
        ));
        until(LONG, "all goes on", || db.count("kb.jobs") == 0);
    }
}
