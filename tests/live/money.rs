//! Requests to providers are counted and bounded, and a copy of a database sends none.

use crate::stub::{Options, Stub, on_one_day};
use crate::support::{APP, SOON, WHOLE, assert_sound, succeed, texts, until};

#[test]
fn requests_of_a_dropped_knowledge_base_are_still_booked() {
    let (stub, _cluster, mut db) = crate::with_stub!(r#"{"batch_size": 4}"#, WHOLE);
    stub.hold(true);
    let documents = texts::documents(0..40, 20);
    db.put_all("k", &documents);
    until(SOON, "the provider is asked", || stub.request_count() >= 8);
    db.run("SELECT kb.drop_knowledge_base('k')");
    stub.hold(false);
    until(SOON, "it is booked", || {
        db.one::<i64>("SELECT coalesce(sum(requests), 0)::bigint FROM kb.usage")
            == stub.request_count() as i64
    });
}

#[test]
fn usage_is_counted_per_embedder_knowledge_base_and_day() {
    on_one_day();
    let stub = Stub::start(Options::default());
    let (_cluster, mut db) = crate::connected!();
    db.create_stub_embedder("e", &stub, r#"{"price_per_million_tokens": 2.5}"#);
    for kb in ["a", "b"] {
        db.create_kb(kb, "e", WHOLE);
    }
    // The stub counts a token a word.
    let documents = texts::documents(0..10, 20);
    db.put_all("a", &documents);
    db.put("b", "d", &texts::paragraph(99, 7));
    db.wait("a");
    db.wait("b");
    let figures = |db: &mut crate::support::Db, kb: &str| -> (i64, i64, f64) {
        let sql = "SELECT texts, tokens, cost::float8 FROM kb.usage WHERE endpoint = 'e' AND kb_id = $1
                   AND day = (now() AT TIME ZONE 'UTC')::date";
        let row = db.0.query_one(sql, &[&kb]).unwrap();
        (row.get(0), row.get(1), row.get(2))
    };
    let (texts_a, tokens_a, cost_a) = figures(&mut db, "a");
    let (texts_b, tokens_b, _) = figures(&mut db, "b");
    assert_eq!((texts_a, texts_b), (10, 1));
    // The tokens of a request with texts of both are divided by estimate.
    assert_eq!(tokens_a + tokens_b, 207, "{tokens_a} and {tokens_b}");
    assert!((cost_a - tokens_a as f64 * 2.5e-6).abs() < 1e-9, "{cost_a}");
    let requests: i64 = db.one("SELECT sum(requests)::bigint FROM kb.usage");
    assert_eq!(requests as usize, stub.request_count());
    // A query is counted, too, once the worker has asked the gateway.
    db.found("a", "a question of five words", 1);
    db.put_and_wait("a", "more", "More of it.");
    until(SOON, "the query is booked", || figures(&mut db, "a").0 == 12);
    db.run("SELECT kb.drop_knowledge_base('a')");
    assert_eq!(figures(&mut db, "a").0, 12, "what was spent was spent");
    // A tenant does not see what others spend.
    db.run("CREATE ROLE reader IN ROLE kb_reader; SET ROLE reader; SET kb.tenant = 'x'");
    assert_eq!(db.count("kb.usage"), 0);
}

#[test]
fn tokens_of_a_question_are_booked_once_even_if_a_worker_dies_before_writing_them() {
    let (stub, cluster, mut db) = crate::with_stub!("{}", WHOLE);
    db.put_and_wait("k", "d", "A text about harbors.");
    let booked =
        |db: &mut crate::support::Db| -> i64 { db.one("SELECT sum(requests)::bigint FROM kb.usage") };
    until(SOON, "the document is booked", || booked(&mut db) == 1);
    let mut other = cluster.connect(APP);
    other.run("BEGIN; LOCK TABLE kb.usage IN ACCESS EXCLUSIVE MODE");
    db.found("k", "a question of five words", 1);
    // It wants to write what it got from the gateway.
    let waits = "pg_locks l JOIN pg_stat_activity a USING (pid)
                 WHERE l.relation = 'kb.usage'::regclass AND NOT l.granted AND a.backend_type = 'kb worker'";
    until(SOON, "the worker waits for the table", || db.count(waits) > 0);
    let worker = cluster.worker(APP);
    db.run(&format!("SELECT pg_terminate_backend({worker})"));
    until(SOON, "the worker is gone", || db.count(&format!("pg_stat_activity WHERE pid = {worker}")) == 0);
    other.run("COMMIT");
    db.put_and_wait("k", "more", "A text about castles.");
    until(SOON, "the question is booked", || booked(&mut db) == 3);
    // Nothing is lost if it dies at any other moment, either. Between its commit and the moment at which the
    // gateway learns of it, a part is booked twice: docs/limits.md.
    let worker = cluster.worker(APP);
    db.run(&format!("SELECT pg_terminate_backend({worker})"));
    db.found("k", "another question", 1);
    db.put_and_wait("k", "last", "A text about rivers.");
    until(SOON, "the last question is booked", || booked(&mut db) >= 5);
    assert_eq!(stub.request_count(), 5);
}

#[test]
fn a_cost_is_exact_with_a_price_and_null_without_one() {
    on_one_day();
    let (_stub, _cluster, mut db) = crate::with_stub!("{}", WHOLE);
    db.put_and_wait("k", "free", &texts::paragraph(1, 10));
    let cost = "SELECT cost::text FROM kb.usage";
    assert_eq!(db.one::<Option<String>>(cost), None);
    db.run(
        r#"SELECT kb.alter_embedder('e', config => config || '{"price_per_million_tokens": 0.02}')
           FROM kb.embedders WHERE id = 'e'"#,
    );
    for (seed, id, expected) in [(2, "paid", "0.0000002"), (3, "more", "0.0000004")] {
        db.put_and_wait("k", id, &texts::paragraph(seed, 10));
        assert_eq!(db.one::<Option<String>>(cost).as_deref(), Some(expected));
    }
}

#[test]
fn a_spent_budget_pauses_the_embedder_and_the_reason_is_shown() {
    on_one_day();
    let (stub, _cluster, mut db) =
        crate::with_stub!(r#"{"daily_token_budget": 50, "batch_size": 1, "max_concurrency": 1}"#, WHOLE);
    let documents = texts::documents(0..10, 10);
    db.put_all("k", &documents);
    let says = "kb.health() WHERE component = 'providers' AND detail LIKE '%daily_token_budget of 50%'";
    until(SOON, "kb.health() says that the budget is spent", || db.count(says) == 1);
    let sent = stub.request_count();
    assert!((3..=5).contains(&sent), "{sent} requests of 10 tokens each");
    let fault =
        db.fault("SELECT * FROM kb.query('k', 'one two three four five six seven eight nine ten eleven')");
    assert_eq!(fault.code, "53400", "{fault:?}");
    let by = "SELECT locator ->> 'answered_by' FROM kb.query('k', $1, 1, options => '{\"on_error\": \"keyword\"}')";
    assert_eq!(db.all_with::<String>(by, &[&documents[9].content]), ["keyword"]);
    // This costs no attempt, and a restarted gateway knows what was spent.
    assert_eq!(db.count("kb.jobs WHERE attempts > 1"), 0);
    assert_eq!(stub.request_count(), sent);
    db.run(r#"SELECT kb.alter_embedder('e', config => '{"batch_size": 1}')"#);
    db.run("SELECT kb.retry('k')");
    db.run("SELECT kb.put_document('k', 'last', 'The last one.')");
    until(SOON, "without a budget work goes on", || db.count("kb.documents WHERE status = 'pending'") == 0);
    assert_sound(&mut db, "k", 11, 0);
}

/// A budget bounds what a key spends through all embedders, also after a restart of the gateway.
#[test]
fn spending_by_other_embedders_with_the_same_key_counts() {
    on_one_day();
    let stub = Stub::start(Options { key: Some("sk-shared".into()), ..Options::default() });
    let (cluster, mut db) = crate::connected!();
    db.run("SELECT kb.set_secret('shared', 'sk-shared')");
    for (id, config) in [("free", "{}"), ("bound", r#"{"daily_token_budget": 50}"#)] {
        db.create_stub_embedder(id, &stub, config);
        db.run(&format!("SELECT kb.alter_embedder('{id}', secret => 'kb:shared')"));
        db.create_kb(id, id, WHOLE);
    }
    db.put_and_wait("free", "d", &texts::paragraph(1, 60));
    drop(db);
    cluster.stop("fast", 30);
    cluster.up();
    let mut db = cluster.connect(APP);
    db.put("bound", "d", "A text about harbors.");
    let says = "kb.health() WHERE component = 'providers' AND detail LIKE '%daily_token_budget of 50%'";
    until(SOON, "kb.health() says that the budget is spent", || db.count(says) == 1);
    assert_eq!((stub.request_count(), stub.complaints()), (1, vec![]));
}

#[test]
fn a_restored_copy_spends_nothing_until_it_is_acknowledged() {
    // Longer than the test: nothing is sent again.
    let (stub, cluster, mut db) = crate::with_stub!(r#"{"timeout_ms": 600000}"#, WHOLE);
    db.create_kb("here", "hash", WHOLE);
    db.put("k", "done", "A text about harbors.");
    db.put("here", "done", "A text about harbors.");
    db.wait("k");
    db.wait("here");
    // A job that waits when the dump is made.
    stub.always(Some(crate::stub::Fault::Never));
    db.put("k", "waiting", "A text about castles.");
    until(SOON, "the original has asked for it", || stub.seen("A text about castles.") == 1);
    let file = cluster.path("dump");
    succeed(cluster.program("pg_dump").args(["--format=custom", "--file"]).arg(&file).arg(APP));
    db.run("SELECT kb.drop_knowledge_base('k')");
    stub.always(None);
    stub.forget();
    cluster.connect("postgres").run("CREATE DATABASE copy");
    succeed(cluster.program("pg_restore").args(["--exit-on-error", "--dbname=copy"]).arg(&file));
    let mut copy = cluster.connect("copy");
    // Work and questions that cost nothing continue; the others wait and give the reason.
    copy.put_and_wait("here", "new", "A text about castles.");
    assert_eq!(copy.found("here", "castles", 1), ["new"]);
    copy.put("k", "new", "A text about rivers.");
    let fault = copy.refused("SELECT * FROM kb.query('k', 'castles')", "53400");
    assert!(fault.text.contains("kb.acknowledge_restore()"), "{fault:?}");
    until(SOON, "the new document is chunked", || {
        copy.count("kb.chunks WHERE content = 'A text about rivers.'") == 1
    });
    assert_eq!(
        copy.count("kb.health() WHERE component = 'providers' AND hint LIKE '%acknowledge_restore%'"),
        1
    );
    assert_eq!(stub.request_count(), 0);
    copy.run_and_wait("k", "SELECT kb.acknowledge_restore()");
    assert_sound(&mut copy, "k", 3, 0);
    assert!(stub.request_count() > 0);
    // A clone made by CREATE DATABASE is a copy, too.
    drop(copy);
    until(SOON, "nobody is in the copy", || {
        cluster.connect("postgres").try_run("CREATE DATABASE clone TEMPLATE copy").is_ok()
    });
    let mut clone = cluster.connect("clone");
    clone.refused("SELECT * FROM kb.query('k', 'ships')", "53400");
}

#[test]
fn a_database_made_of_a_template_with_nothing_but_the_extension_may_spend() {
    let stub = Stub::start(Options::default());
    let cluster = crate::cluster!();
    // It has kb, and no remote embedder.
    let mut postgres = cluster.connect("postgres");
    until(SOON, "nobody is in the template", || {
        postgres.try_run(&format!("CREATE DATABASE fresh TEMPLATE {APP}")).is_ok()
    });
    let mut fresh = cluster.connect("fresh");
    fresh.create_stub_embedder("e", &stub, "{}");
    fresh.create_kb("k", "e", WHOLE);
    fresh.put_and_wait("k", "d", "A text about harbors.");
    assert_sound(&mut fresh, "k", 1, 0);
    assert_eq!(fresh.found("k", "harbors", 1), ["d"]);
    // From now on, its copies count as copies.
    drop(fresh);
    until(SOON, "nobody is in it", || postgres.try_run("CREATE DATABASE copy TEMPLATE fresh").is_ok());
    let mut copy = cluster.connect("copy");
    copy.refused("SELECT * FROM kb.query('k', 'ships')", "53400");
    copy.create_stub_embedder("another", &stub, "{}");
    copy.refused("SELECT * FROM kb.embed('another', '{ships}')", "53400");
}

#[test]
fn a_tenant_that_spent_its_share_waits_and_the_others_go_on() {
    on_one_day();
    let stub = Stub::start(Options::default());
    let (cluster, mut db) = crate::connected!();
    let config =
        r#"{"daily_token_budget": 200, "tenant_share": 0.25, "batch_size": 1, "max_concurrency": 1}"#;
    db.create_stub_embedder("e", &stub, config);
    let of_tenant = |tenant: &str| cluster.connect_as_tenant(tenant, tenant);
    db.run("CREATE ROLE a LOGIN IN ROLE kb_writer; CREATE ROLE b LOGIN IN ROLE kb_writer");
    let (mut a, mut b) = (of_tenant("a"), of_tenant("b"));
    for session in [&mut a, &mut b] {
        session.create_kb("k", "e", WHOLE);
    }
    a.put_all("k", &texts::documents(0..10, 10));
    let says = "kb.health() WHERE component = 'providers' AND detail LIKE '%tenant_share%'";
    until(SOON, "kb.health() says which limit", || a.count(says) == 1);
    let spent = "SELECT coalesce(sum(tokens), 0)::bigint FROM kb.usage";
    until(SOON, "it is booked", || a.one::<i64>(spent) > 0);
    assert!(a.one::<i64>(spent) <= 50 + 10, "more than a request over a quarter of 200");
    let words = "one two three four five six seven eight nine ten ".repeat(3);
    let question = format!("SELECT * FROM kb.query('k', '{words}')");
    a.refused(&question, "53400");
    // The others see nothing of it.
    b.put_all_and_wait("k", &texts::documents(100..102, 10));
    assert_eq!(b.count("kb.documents WHERE status = 'ready'"), 2);
    assert_eq!(b.count(says), 0);
    b.found("k", "five words", 1);
    // A restarted gateway knows what each has spent.
    drop((db, a, b));
    cluster.stop("fast", 30);
    cluster.up();
    let (mut db, mut a, mut b) = (cluster.connect(APP), of_tenant("a"), of_tenant("b"));
    let sent = stub.request_count();
    a.refused(&question, "53400");
    a.refused(&format!("SELECT kb.embed('e', ARRAY['{words}'])"), "53400");
    assert_eq!(stub.request_count(), sent);
    b.found("k", "four words", 1);
    assert!(stub.request_count() > sent);
    // No attempt was used, and a larger share lets all continue at once.
    assert_eq!(db.count("kb.jobs WHERE attempts > 1"), 0);
    db.run(r#"SELECT kb.alter_embedder('e', config => '{"daily_token_budget": 1000, "tenant_share": 1}')"#);
    a.wait("k");
    assert_eq!(a.count("kb.documents WHERE status = 'ready'"), 10);
}
