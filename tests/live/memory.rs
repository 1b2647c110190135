//! Memories: what is remembered is recalled under its subject, its time and its tenant, and forgotten whole.

use crate::dump::{PG_RESTORE, create_empty, dump, restore};
use crate::support::{APP, Db, LONG, PENDING_CHUNKS, PRELOAD, SOON, until};

/// A memory whose embedder compares words, so that scores are known.
fn with_memory(db: &mut Db, settings: &str) {
    db.run(&format!("SELECT kb.create_memory('m', 'hash', '{settings}')"));
}

fn remember(db: &mut Db, fact: &str, rest: &str) -> String {
    db.one(&format!("SELECT kb.remember('m', '{fact}'{rest})"))
}

/// The facts that are recalled, the best first.
fn recalled(db: &mut Db, query: &str, rest: &str) -> Vec<String> {
    db.all(&format!("SELECT fact FROM kb.recall('m', '{query}', min_score => 0{rest}) ORDER BY rank"))
}

#[test]
fn a_fact_is_stored_once_and_recalled_under_its_subject_and_tags() {
    let (_cluster, mut db) = crate::connected!();
    with_memory(&mut db, "{}");
    let id = remember(&mut db, "prefers Python", ", 'user:42', '{preference}', 0.5, '{\"n\": 1}'");
    assert!(id.starts_with("mem_"), "{id}");
    assert_eq!(remember(&mut db, "prefers Python", ", 'user:42', '{language}', 0.8"), id);
    let other = remember(&mut db, "prefers Python", ", 'user:7'");
    let of_nobody = remember(&mut db, "prefers Python", "");
    assert!(id != other && other != of_nobody && of_nobody != id);
    db.wait("m");
    let row: String = db.one(&format!(
        "SELECT concat_ws('|', memory, subject, fact, confidence, tags, metadata, status, valid_to, access_count)
         FROM kb.memories WHERE id = '{id}'"
    ));
    assert_eq!(row, r#"m|user:42|prefers Python|0.8|{preference,language}|{"n": 1}|ready|0"#);
    assert_eq!(db.count("kb.memories"), 3);
    remember(&mut db, "lives in Turin", ", 'user:42', '{place}'");
    db.wait("m");
    assert_eq!(recalled(&mut db, "prefers Python", ", subject => 'user:7'"), ["prefers Python"]);
    assert_eq!(
        recalled(&mut db, "prefers Python", ", subject => 'user:42'"),
        ["prefers Python", "lives in Turin"]
    );
    assert_eq!(recalled(&mut db, "Python", ", subject => 'user:42', tags => '{place}'"), ["lives in Turin"]);
    assert_eq!(recalled(&mut db, "Python", ", subject => 'user:43'"), Vec::<String>::new());
    assert_eq!(recalled(&mut db, "prefers Python", r#", filter => '{"n": 1}'"#), ["prefers Python"]);
    assert_eq!(recalled(&mut db, "prefers Python", "").len(), 4);
    for mode in ["dense", "keyword", "hybrid"] {
        let rest = format!(", subject => 'user:42', mode => '{mode}', max_results => 1");
        assert_eq!(recalled(&mut db, "prefers Python", &rest), ["prefers Python"], "{mode}");
    }
    let score: f64 =
        db.one("SELECT score FROM kb.recall('m', 'prefers Python', subject => 'user:42') LIMIT 1");
    assert!(score > 0.999, "{score}");
    // The least score of a memory is 0.6.
    assert_eq!(db.count("kb.recall('m', 'prefers Python', subject => 'user:42', mode => 'dense')"), 1);
    assert_eq!(
        db.all::<String>("SELECT fact FROM kb.recall_by_tags('m', '{preference,language}')"),
        ["prefers Python"]
    );
    assert_eq!(db.count("kb.recall_by_tags('m', '{place}', subject => 'user:7')"), 0);
}

#[test]
fn many_facts_are_remembered_together_or_none() {
    let (_cluster, mut db) = crate::connected!();
    with_memory(&mut db, "{}");
    let rows: Vec<String> = db.all(
        r#"SELECT status || ' ' || left(id, 4) FROM kb.remember('m', ARRAY['{"fact": "one", "subject": "s"}',
           '{"fact": "two", "subject": "s", "tags": ["t"], "confidence": 0.25, "metadata": {"n": 12345678901234567890.5}}',
           '{"fact": " one ", "subject": "s", "id": "mine"}', '{"fact": "one", "subject": "s"}']::jsonb[])"#,
    );
    assert_eq!(rows, ["added mem_", "added mem_", "added mine", "added mem_"]);
    assert_eq!(
        db.one::<String>("SELECT metadata::text FROM kb.memories WHERE fact = 'two'"),
        r#"{"n": 12345678901234567890.5}"#
    );
    // A fact that is given twice is merged as with what is stored.
    let twice = r#"ARRAY['{"fact": "twice", "tags": ["a"], "confidence": 0.5}', '{"fact": "twice", "tags": ["b"], "confidence": 0.25}']::jsonb[]"#;
    assert_eq!(
        db.all::<String>(&format!("SELECT status FROM kb.remember('m', {twice})")),
        ["added", "added"]
    );
    assert_eq!(
        db.all::<String>("SELECT concat_ws(' ', tags, confidence) FROM kb.memories WHERE fact = 'twice'"),
        ["{a,b} 0.5"]
    );
    assert_eq!(
        db.one::<i64>(
            "SELECT forgotten FROM kb.forget('m', ARRAY(SELECT id FROM kb.memories WHERE fact = 'twice'))"
        ),
        1
    );
    // An id that is given is replaced.
    let facts = r#"ARRAY['{"fact": "three", "id": "mine", "tags": ["x"]}']::jsonb[]"#;
    assert_eq!(db.one::<String>(&format!("SELECT status FROM kb.remember('m', {facts})")), "updated");
    assert_eq!(
        db.one::<String>("SELECT concat_ws(' ', subject, fact, tags) FROM kb.memories WHERE id = 'mine'"),
        " three {x}"
    );
    let wrong = r#"SELECT kb.remember('m', ARRAY['{"fact": "four"}', '{"fact": "", "confidence": 3, "x": 1}']::jsonb[])"#;
    let fault = db.refused(wrong, "22023");
    for problem in ["facts[2].confidence", "facts[2].x"] {
        assert!(fault.text.contains(problem), "{problem}: {fault:?}");
    }
    assert_eq!(db.count("kb.memories"), 3);
    for (call, code) in [
        ("kb.remember('m', ' ')", "22023"),
        ("kb.remember('m', repeat('x', 9000))", "22023"),
        ("kb.remember('m', 'x', confidence => 'NaN')", "22023"),
        ("kb.remember('m', 'x', tags => '{\"\"}')", "22023"),
        ("kb.remember('m', 'x', valid_from => 'infinity')", "22023"),
        ("kb.remember('m', 'x', valid_from => '2024-01-02', valid_to => '2024-01-01')", "22023"),
        ("kb.remember('m', 'x', supersedes => 'none')", "42704"),
        ("kb.remember('none', 'x')", "42704"),
        ("kb.recall_by_tags('m', '{}')", "22023"),
        ("kb.forget('m')", "22023"),
        ("kb.forget('m', filter => '{}')", "22023"),
        ("kb.create_memory('m', 'hash')", "42710"),
        ("kb.create_memory('n', 'hash', '{\"decay\": 1}')", "22023"),
    ] {
        db.refused(&format!("SELECT {call}"), code);
    }
    // A knowledge base that is no memory, and an id that nothing has, are called what they are not.
    db.create_kb("k", "hash", "{}");
    for id in ["k", "none"] {
        for call in [
            "kb.remember($, 'x')",
            "kb.recall($, 'x')",
            "kb.recall_by_tags($, '{a}')",
            "kb.touch($, '{a}')",
            "kb.forget($, '{a}')",
            "kb.alter_memory($, '{}')",
            "kb.drop_memory($)",
        ] {
            let call = call.replace('$', &format!("'{id}'"));
            let fault = db.refused(&format!("SELECT {call}"), "42704");
            assert!(fault.text.contains(&format!("memory \"{id}\" does not exist")), "{fault:?}");
        }
    }
    assert_eq!(db.count("kb.memories"), 3);
}

#[test]
fn a_fact_is_found_by_its_context_which_is_not_part_of_it() {
    let (_cluster, mut db) = crate::connected!();
    with_memory(&mut db, "{}");
    let by_words = |db: &mut Db, query: &str| recalled(db, query, ", mode => 'keyword'");
    let context =
        |db: &mut Db| db.one::<String>("SELECT concat_ws('|', fact, context, status) FROM kb.memories");
    let id = remember(&mut db, "Yes, she does.", ", 'u', context => ' Does Ada like lighthouses? '");
    db.wait("m");
    assert_eq!(context(&mut db), "Yes, she does.|Does Ada like lighthouses?|ready");
    assert_eq!(db.one::<String>("SELECT string_agg(content, '') FROM kb.chunks"), "Yes, she does.");
    for mode in ["dense", "keyword", "hybrid"] {
        let rest = format!(", mode => '{mode}'");
        assert_eq!(
            recalled(&mut db, "Does Ada like lighthouses? Yes, she does.", &rest),
            ["Yes, she does."],
            "{mode}"
        );
    }
    let score = |db: &mut Db| -> f64 {
        db.one(
            "SELECT score FROM kb.recall('m', 'Does Ada like lighthouses? Yes, she does.', min_score => 0)",
        )
    };
    assert!(score(&mut db) > 0.99, "{}", score(&mut db));
    assert_eq!(by_words(&mut db, "lighthouses"), ["Yes, she does."]);
    // Remembered again, it keeps its context unless there is another one.
    assert_eq!(remember(&mut db, "Yes, she does.", ", 'u'"), id);
    assert_eq!(context(&mut db), "Yes, she does.|Does Ada like lighthouses?|ready");
    let again = r#"ARRAY['{"fact": "Yes, she does.", "subject": "u", "context": "Is she fond of tea?"}',
                         '{"fact": "Yes, she does.", "subject": "u"}']::jsonb[]"#;
    assert_eq!(
        db.all::<String>(&format!("SELECT status FROM kb.remember('m', {again})")),
        ["updated", "updated"]
    );
    db.wait("m");
    assert_eq!(by_words(&mut db, "lighthouses"), Vec::<String>::new());
    assert_eq!(by_words(&mut db, "tea"), ["Yes, she does."]);
    assert_eq!(remember(&mut db, "Yes, she does.", ", 'u', context => ' '"), id);
    db.wait("m");
    assert_eq!(context(&mut db), "Yes, she does.|ready");
    assert_eq!(by_words(&mut db, "tea"), Vec::<String>::new());
    // An entry whose id is given is replaced, and so is its context.
    remember(&mut db, "No.", ", 'v', id => 'mine', context => 'Does Ada row?'");
    db.wait("m");
    assert_eq!(by_words(&mut db, "rows"), ["No."]);
    remember(&mut db, "No.", ", 'v', id => 'mine'");
    db.wait("m");
    assert_eq!(by_words(&mut db, "rows"), Vec::<String>::new());
    // A long one is cut: its beginning counts.
    remember(&mut db, "Perhaps.", ", 'w', context => 'harbor ' || repeat('x y ', 900) || 'quay'");
    db.wait("m");
    assert_eq!(by_words(&mut db, "harbor"), ["Perhaps."]);
    assert_eq!(by_words(&mut db, "quay"), Vec::<String>::new());
    db.refused("SELECT kb.remember('m', 'x', context => repeat('x', 4001))", "22023");
    db.refused(r#"SELECT kb.remember('m', ARRAY['{"fact": "x", "context": 1}']::jsonb[])"#, "22023");
    assert_eq!(db.one::<i64>("SELECT forgotten FROM kb.forget('m', subject => 'w')"), 1);
    assert_eq!(
        db.count("kb.documents WHERE title LIKE 'harbor%'")
            + db.count("kb.chunks WHERE context LIKE 'harbor%'"),
        0
    );
}

#[test]
fn what_is_superseded_is_history_that_as_of_answers() {
    let (_cluster, mut db) = crate::connected!();
    with_memory(&mut db, "{}");
    let first = remember(&mut db, "lives in Turin", ", 'u', valid_from => '2024-01-01'");
    let second = remember(
        &mut db,
        "lives in Lyon",
        &format!(", 'u', valid_from => '2024-06-01', supersedes => '{first}'"),
    );
    let third = remember(
        &mut db,
        "lives in Turin",
        &format!(", 'u', valid_from => '2025-01-01', supersedes => '{second}'"),
    );
    assert!(third != first && third.starts_with(&first), "{first} {third}");
    db.wait("m");
    for (as_of, expected) in [
        ("NULL", vec!["lives in Turin"]),
        ("'2023-12-31'", vec![]),
        ("'2024-01-01'", vec!["lives in Turin"]),
        ("'2024-05-31 23:59:59'", vec!["lives in Turin"]),
        ("'2024-06-01'", vec!["lives in Lyon"]),
        ("'2025-02-01'", vec!["lives in Turin"]),
    ] {
        assert_eq!(
            recalled(&mut db, "lives in", &format!(", subject => 'u', as_of => {as_of}")),
            expected,
            "{as_of}"
        );
        // Also where nothing but the time bounds the search.
        assert_eq!(recalled(&mut db, "lives in", &format!(", as_of => {as_of}")), expected, "{as_of}");
    }
    let superseded: Vec<String> =
        db.all("SELECT id || ' ' || coalesce(superseded_by, '') FROM kb.memories ORDER BY valid_from");
    assert_eq!(superseded, [format!("{first} {second}"), format!("{second} {third}"), format!("{third} ")]);
    // Nothing of another subject is superseded.
    let other = remember(&mut db, "has a dog", ", 'v'");
    db.refused(&format!("SELECT kb.remember('m', 'has a cat', 'u', supersedes => '{other}')"), "42704");
    assert_eq!(db.count("kb.memories WHERE fact = 'has a cat'"), 0);
    // Expiry ends an entry as well.
    remember(&mut db, "is on leave", ", 'w', valid_from => '2024-01-01', expires_at => '2024-02-01'");
    db.wait("m");
    assert_eq!(recalled(&mut db, "is on leave", ", subject => 'w'"), Vec::<String>::new());
    assert_eq!(recalled(&mut db, "is on leave", ", subject => 'w', as_of => '2024-01-15'"), ["is on leave"]);
}

#[test]
fn scores_decay_with_the_days_since_the_last_access() {
    let (_cluster, mut db) = crate::connected!();
    // Recalls count no accesses, so that the age of an entry is known.
    with_memory(&mut db, r#"{"retrieval": {"count_accesses": false}}"#);
    let id = remember(&mut db, "likes tea", ", 'u'");
    db.wait("m");
    let age = |db: &mut Db, days: i32| {
        db.run(&format!("UPDATE kb.memory_entries SET last_accessed_at = NULL, created_at = now() - interval '{days} days'"));
    };
    let score = |db: &mut Db, rest: &str| -> Option<f64> {
        db.all(&format!("SELECT score FROM kb.recall('m', 'likes tea', min_score => 0{rest})")).pop()
    };
    for (days, expected) in [(0, 1.0), (45, 0.75), (90, 0.5), (170, 1.0 - 170.0 * 0.5 / 90.0)] {
        age(&mut db, days);
        let score = score(&mut db, "").unwrap();
        assert!((score - expected).abs() < 0.001, "{days}: {score}");
    }
    // After 180 days it is archived, until it is used again.
    age(&mut db, 181);
    assert_eq!(score(&mut db, ""), None);
    assert_eq!(score(&mut db, ", archived => true"), Some(0.0));
    assert_eq!(db.count("kb.memories WHERE archived_at < now()"), 1);
    assert_eq!(db.count("kb.recall_by_tags('m', '{x}')"), 0);
    assert_eq!(db.one::<i64>(&format!("SELECT kb.touch('m', '{{{id},{id},none}}')")), 1);
    assert!(score(&mut db, "").unwrap() > 0.999);
    assert_eq!(
        db.count(
            "kb.memories WHERE archived_at IS NULL AND access_count = 1 AND last_accessed_at > created_at"
        ),
        1
    );
    // Without decay the age is nothing.
    age(&mut db, 100);
    db.run(r#"SELECT kb.alter_memory('m', '{"retrieval": {"count_accesses": false}, "decay": {"enabled": false}, "retention": {"auto_archive_days": null}}')"#);
    assert!(score(&mut db, "").unwrap() > 0.999);
    age(&mut db, 10_000);
    assert!(score(&mut db, "").unwrap() > 0.999);
    // The newer of two that are equally similar comes first.
    db.run(r#"SELECT kb.alter_memory('m', '{"retrieval": {"count_accesses": false}}')"#);
    age(&mut db, 60);
    remember(&mut db, "tea likes", ", 'u'");
    db.wait("m");
    assert_eq!(
        recalled(&mut db, "likes tea", ", subject => 'u'").first().map(String::as_str),
        Some("tea likes")
    );
}

#[test]
fn after_forget_nothing_of_a_fact_is_left() {
    let (_cluster, mut db) = crate::connected!();
    with_memory(&mut db, "{}");
    db.run(r#"SELECT kb.create_knowledge_base('k', 'hash')"#);
    db.put_and_wait("k", "a", "an unforgettable document");
    let id =
        remember(&mut db, "the unforgettable secret", ", 'u', metadata => '{\"unforgettable\": \"yes\"}'");
    let next = remember(&mut db, "a milder secret", &format!(", 'u', supersedes => '{id}'"));
    remember(&mut db, "another one", ", 'v', metadata => '{\"n\": 1}'");
    remember(&mut db, "yet another one", ", 'v', metadata => '{\"n\": 2}'");
    db.wait("m");
    assert_eq!(db.one::<i64>(&format!("SELECT forgotten FROM kb.forget('m', '{{{next}}}')")), 1);
    assert_eq!(
        db.count(&format!(
            "kb.memories WHERE id = '{id}' AND superseded_by IS NULL AND valid_to IS NOT NULL"
        )),
        1
    );
    assert_eq!(db.one::<i64>("SELECT forgotten FROM kb.forget('m', subject => 'u')"), 1);
    assert_eq!(db.one::<i64>("SELECT forgotten FROM kb.forget('m', subject => 'u')"), 0);
    let tables: Vec<String> = db.all(
        "SELECT format('SELECT count(*) FROM %I.%I t WHERE t::text LIKE ''%%unforgettable secret%%''', n.nspname, c.relname)
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname IN ('kb') AND c.relkind IN ('r', 'v')",
    );
    for sql in tables {
        assert_eq!(db.one::<i64>(&sql), 0, "{sql}");
    }
    assert_eq!((db.count("kb.memory_entries"), db.vectors("m")), (2, 2));
    assert_eq!(recalled(&mut db, "unforgettable secret", ", archived => true").len(), 2);
    assert_eq!(
        db.one::<i64>(r#"SELECT forgotten FROM kb.forget('m', subject => 'v', filter => '{"n": 2}')"#),
        1
    );
    assert_eq!(db.one::<i64>(r#"SELECT forgotten FROM kb.forget('m', filter => '{"n": 1}')"#), 1);
    assert_eq!((db.count("kb.memories"), db.count("kb.documents")), (0, 1));
    db.run("SELECT kb.remember('m', 'one more', 'u'); SELECT kb.drop_memory('m')");
    assert_eq!((db.count("kb.memory_stores"), db.count("kb.memory_entries")), (0, 0));
}

#[test]
fn sessions_that_remember_the_same_fact_at_once_store_it_once() {
    let (cluster, mut db) = crate::connected!();
    with_memory(&mut db, "{}");
    let (mut a, mut b) = (cluster.connect(APP), cluster.connect(APP));
    a.run("BEGIN; SELECT kb.remember('m', 'the same', 'u', '{a}')");
    let waiter = std::thread::spawn(move || {
        b.run("SELECT kb.remember('m', 'the same', 'u', '{b}')");
    });
    until(SOON, "the other session waits", || {
        db.count("pg_locks WHERE NOT granted AND locktype = 'transactionid'") > 0
    });
    a.run("COMMIT");
    waiter.join().unwrap();
    assert_eq!(db.all::<String>("SELECT tags::text FROM kb.memories"), ["{a,b}"]);
}

#[test]
fn memories_are_their_tenants_and_readers_only_read() {
    let (cluster, mut db) = crate::connected!();
    db.run("CREATE ROLE reader LOGIN IN ROLE kb_reader; CREATE ROLE writer LOGIN IN ROLE kb_writer");
    let mut a = cluster.connect_as_tenant("writer", "a");
    let mut b = cluster.connect_as_tenant("writer", "b");
    for (db, fact) in [(&mut a, "a likes ships"), (&mut b, "b likes ships")] {
        db.run("SELECT kb.create_memory('m', 'hash')");
        db.run(&format!("SELECT kb.remember('m', '{fact}', 'u', '{{t}}')"));
        db.wait("m");
    }
    for (db, fact) in [(&mut a, "a likes ships"), (&mut b, "b likes ships")] {
        assert_eq!(recalled(db, "likes ships", ""), [fact]);
        assert_eq!(recalled(db, "likes ships", ", subject => 'u'"), [fact]);
        assert_eq!(db.all::<String>("SELECT fact FROM kb.recall_by_tags('m', '{t}')"), [fact]);
        assert_eq!(db.all::<String>("SELECT fact FROM kb.memories"), [fact]);
        assert_eq!(db.count("kb.memory_entries") + db.count("kb.memory_stores"), 2);
    }
    let mut reader = cluster.connect_as_tenant("reader", "a");
    assert_eq!(recalled(&mut reader, "likes ships", ", subject => 'u'"), ["a likes ships"]);
    for call in [
        "kb.create_memory('n', 'hash')",
        "kb.alter_memory('m', '{}')",
        "kb.drop_memory('m')",
        "kb.remember('m', 'x')",
        "kb.touch('m', '{x}')",
        "kb.forget('m', subject => 'u')",
    ] {
        reader.refused(&format!("SELECT {call}"), "42501");
    }
    a.refused("INSERT INTO kb.memory_entries SELECT * FROM kb.memory_entries", "42501");
    // A tenant to which it is shared recalls, and does not write.
    a.run("SELECT kb.create_memory('lent', 'hash'), kb.remember('lent', 'a shared fact', 'u', '{t}'), kb.share('lent', 'c')");
    a.wait("lent");
    let mut c = cluster.connect_as_tenant("writer", "c");
    let facts = "SELECT fact FROM kb.recall('lent', 'shared fact', min_score => 0, subject => 'u')";
    assert_eq!(c.all::<String>(facts), ["a shared fact"]);
    assert_eq!(c.count("kb.recall_by_tags('lent', '{t}')"), 1);
    for call in ["kb.remember('lent', 'x')", "kb.touch('lent', '{x}')", "kb.forget('lent', subject => 'u')"] {
        c.refused(&format!("SELECT {call}"), "42501");
    }
    b.refused(facts, "42704");
}

#[test]
fn recall_works_on_a_standby_and_answers_by_words_without_the_embedder() {
    let cluster = crate::cluster!("wal_level = replica");
    let mut db = cluster.connect(APP);
    with_memory(&mut db, "{}");
    remember(&mut db, "prefers Python", ", 'u'");
    db.wait("m");
    // Nobody listens at this address.
    db.run("SELECT kb.create_embedder('away', 'openai', 'm', 8, 'http://127.0.0.1:1/v1')");
    db.run("SELECT kb.create_memory('w', 'away'), kb.remember('w', 'prefers Rust', 'u')");
    until(SOON, "its words are known", || {
        db.count("kb.recall('w', 'Rust', subject => 'u') r WHERE r.score IS NULL AND r.fact = 'prefers Rust'")
            == 1
    });
    let locator: String = db.one("SELECT locator::text FROM kb.recall('w', 'Rust', subject => 'u')");
    assert!(locator.contains("keyword"), "{locator}");
    let standby = cluster.standby(&[PRELOAD]);
    let mut there = standby.connect(APP);
    assert_eq!(recalled(&mut there, "Python", ", subject => 'u'"), ["prefers Python"]);
    let tool = r#"kb.call_tool('memory_search', '{"query": "prefers Python"}', '{"memory": "m"}')"#;
    assert_eq!(there.one::<String>(&format!("SELECT {tool} ->> 'count'")), "1");
}

#[test]
fn a_memory_moves_to_another_tenant_and_through_a_dump_whole() {
    let (cluster, mut db) = crate::connected!();
    db.run("CREATE ROLE writer LOGIN IN ROLE kb_writer; CREATE ROLE chief LOGIN IN ROLE kb_admin");
    let mut a = cluster.connect_as_tenant("writer", "a");
    a.run("SELECT kb.create_memory('m', 'hash', '{\"retrieval\": {\"max_results\": 7}}')");
    let old = remember(&mut a, "lives in Turin", ", 'u', '{place}'");
    remember(&mut a, "lives in Lyon", &format!(", 'u', '{{place}}', supersedes => '{old}'"));
    a.run(&format!("SELECT kb.touch('m', '{{{old}}}')"));
    a.wait("m");
    let all = "SELECT to_jsonb(m)::text FROM kb.memories m ORDER BY id";
    let before: Vec<String> = a.all(all);
    assert_eq!(before.len(), 2);
    let file = dump(&cluster, "dump", &["--format=custom"]);
    create_empty(&cluster, "restored");
    restore(&cluster, "restored", &file, PG_RESTORE);
    let mut restored = cluster.connect_as("restored", "writer");
    restored.run("SET kb.tenant = 'a'");
    assert_eq!(restored.all::<String>(all), before);
    assert_eq!(recalled(&mut restored, "lives in", ", subject => 'u'"), ["lives in Lyon"]);
    let mut chief = cluster.connect_as_tenant("chief", "a");
    chief.run("SELECT kb.move_knowledge_base('m', 'b')");
    assert_eq!(a.count("kb.memories") + a.count("kb.memory_entries") + a.count("kb.memory_stores"), 0);
    let mut b = cluster.connect_as_tenant("writer", "b");
    b.wait("m");
    assert_eq!(recalled(&mut b, "lives in", ", subject => 'u'"), ["lives in Lyon"]);
    assert_eq!(b.all::<String>("SELECT fact FROM kb.recall_by_tags('m', '{place}')"), ["lives in Lyon"]);
    assert_eq!(b.one::<String>("SELECT settings #>> '{retrieval,max_results}' FROM kb.memory_stores"), "7");
}

#[test]
fn a_search_by_index_leaves_out_what_does_not_hold_and_what_others_have() {
    let (cluster, mut db) = crate::connected!();
    db.run("CREATE ROLE writer LOGIN IN ROLE kb_writer");
    db.run("SELECT kb.create_vector_db('v', 'pgvector', 384, config => '{\"min_rows\": 50}')");
    let mut sessions = ["a", "b"].map(|tenant| cluster.connect_as_tenant("writer", tenant));
    for db in &mut sessions {
        db.run("SELECT kb.create_memory('m', 'hash', vector_db => 'v')");
        db.run(
            "SELECT count(*) FROM kb.remember('m', ARRAY(SELECT jsonb_build_object('fact', 'likes thing ' || n, 'subject', 'u' || n % 3,
                 'valid_from', '2024-01-01', 'valid_to', CASE WHEN n % 2 = 0 THEN '2024-06-01' END) FROM generate_series(1, 120) n))",
        );
        db.wait("m");
    }
    let index =
        "pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relname LIKE '%_hnsw%' AND i.indisvalid";
    until(LONG, "the index is there and valid", || db.count(index) >= 1);
    for scan in ["index", "list", "join", ""] {
        db.run(&format!("ALTER ROLE writer SET kb.forced_scan = '{scan}'"));
        let mut a = cluster.connect_as_tenant("writer", "a");
        assert_eq!(a.one::<String>("SHOW kb.forced_scan"), scan);
        let recall = |rest: &str| {
            format!(
                "SELECT DISTINCT right(fact, 1)::int % 2 FROM kb.recall('m', 'likes thing 7', 60, 0, mode => 'dense'{rest})"
            )
        };
        assert_eq!(a.all::<i32>(&recall("")), [1], "{scan}");
        assert_eq!(a.all::<i32>(&recall(", subject => 'u1'")), [1], "{scan}");
        let sql = "SELECT count(*) FROM kb.recall('m', 'likes thing 7', 200, 0, mode => 'dense'";
        assert_eq!(a.one::<i64>(&format!("{sql})")), 60, "{scan}");
        assert_eq!(a.one::<i64>(&format!("{sql}, subject => 'u1')")), 20, "{scan}");
        assert_eq!(a.one::<i64>(&format!("{sql}, as_of => '2024-03-01')")), 120, "{scan}");
    }
}

#[test]
fn what_entries_have_besides_their_documents_counts_towards_a_quota() {
    let (cluster, mut db) = crate::connected!();
    db.run("CREATE ROLE writer LOGIN IN ROLE kb_writer");
    let mut a = cluster.connect_as_tenant("writer", "a");
    a.run("SELECT kb.create_memory('m', 'hash')");
    db.run("SELECT kb.set_quota('a', bytes => 3000)");
    let tags = |n: usize| format!("ARRAY(SELECT repeat(chr(96 + n), 100) FROM generate_series(1, {n}) n)");
    a.run(&format!("SELECT kb.remember('m', 'one', 'u', {})", tags(10)));
    a.refused(&format!("SELECT kb.remember('m', 'two', 'u', {})", tags(26)), "53400");
    assert_eq!(a.count("kb.memories"), 1);
    let used = "SELECT sum(bytes)::bigint FROM kb.quota_counts WHERE tenant_id = 'a'";
    let before: i64 = db.one(used);
    assert!((1000..1100).contains(&before), "{before}");
    a.run("SELECT kb.forget('m', subject => 'u')");
    assert!(db.one::<i64>(used) < 20);
    a.run(&format!("SELECT kb.remember('m', 'two', 'u', {})", tags(26)));
}

#[test]
fn a_fact_names_what_said_it_until_that_is_dropped() {
    let (cluster, mut db) = crate::connected!();
    db.run("CREATE ROLE writer LOGIN IN ROLE kb_writer; CREATE ROLE chief LOGIN IN ROLE kb_admin");
    let mut a = cluster.connect_as_tenant("writer", "a");
    a.run("SELECT kb.create_memory('m', 'hash'), kb.create_conversation('c'), kb.create_conversation('d')");
    let said: String = a.one("SELECT kb.append_turn('c', 'user', 'Grüße. I prefer tea.')");
    let parts: String = a.one(
        r#"SELECT kb.append_turn('d', 'user', '[{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]'::jsonb)"#,
    );
    let turn = format!(", 'u', source_turn_id => '{said}', source_start => 7, source_end => 20");
    let tea = remember(&mut a, "prefers tea", &turn);
    let facts = format!(
        r#"SELECT count(*) FROM kb.remember('m', ARRAY['{{"fact": "counts to two", "source_conversation_id": "d", "source_turn_id": "{parts}",
           "source_start": 5, "source_end": 9}}', '{{"fact": "is polite", "source_conversation_id": "c"}}']::jsonb[])"#
    );
    a.run(&facts);
    let sources = "SELECT concat_ws('|', fact, source_conversation_id, source_turn_id, source_start, source_end) FROM kb.memories
                   ORDER BY fact";
    let expected = [
        format!("counts to two|d|{parts}|5|9"),
        "is polite|c".to_string(),
        format!("prefers tea|c|{said}|7|20"),
    ];
    assert_eq!(a.all::<String>(sources), expected);
    // The first source stays, and one that is put under its id has the new one.
    remember(&mut a, "prefers tea", ", 'u', source_conversation_id => 'd'");
    remember(&mut a, "prefers tea", ", 'u'");
    assert_eq!(a.all::<String>(sources), expected);
    remember(&mut a, "prefers tea", &format!(", 'u', id => '{tea}', source_conversation_id => 'd'"));
    assert_eq!(a.all::<String>(sources)[2], "prefers tea|d");
    remember(&mut a, "prefers tea", &format!("{turn}, id => '{tea}'"));
    for (rest, code) in [
        (", source_conversation_id => 'none'", "42704"),
        (", source_turn_id => 'turn_none'", "42704"),
        (&*format!(", source_turn_id => '{said}', source_conversation_id => 'd'"), "22023"),
        (&*format!(", source_turn_id => '{said}', source_start => 7, source_end => 21"), "22023"),
        (&*format!(", source_turn_id => '{said}', source_start => 7"), "22023"),
        (&*format!(", source_turn_id => '{said}', source_start => 7, source_end => 7"), "22023"),
        (", source_conversation_id => 'c', source_start => 0, source_end => 1", "22023"),
    ] {
        a.refused(&format!("SELECT kb.remember('m', 'more'{rest})"), code);
    }
    // Of another tenant there is no turn, and no conversation.
    let mut b = cluster.connect_as_tenant("writer", "b");
    b.run("SELECT kb.create_memory('m', 'hash')");
    b.refused(&format!("SELECT kb.remember('m', 'x', source_turn_id => '{said}')"), "42704");
    b.refused("SELECT kb.remember('m', 'x', source_conversation_id => 'c')", "42704");
    a.run("SELECT kb.drop_conversation('c')");
    assert_eq!(
        a.all::<String>(sources),
        [&*format!("counts to two|d|{parts}|5|9"), "is polite", "prefers tea"]
    );
    // A fact of a conversation that is open in another transaction waits for its end.
    let mut other = cluster.connect_as_tenant("writer", "a");
    other.run("BEGIN; SELECT kb.remember('m', 'counts', source_conversation_id => 'd')");
    let waiter = std::thread::spawn(move || a.run("SELECT kb.drop_conversation('d')"));
    until(SOON, "the other session waits", || db.count("pg_locks WHERE NOT granted") > 0);
    other.run("COMMIT");
    waiter.join().unwrap();
    assert_eq!(other.count("kb.memories WHERE source_conversation_id IS NULL"), 4);
    // Conversations stay where they are when a memory moves.
    other.run("SELECT kb.create_conversation('e'), kb.remember('m', 'moves', source_conversation_id => 'e')");
    b.run("SELECT kb.drop_memory('m')");
    let mut chief = cluster.connect_as_tenant("chief", "a");
    chief.run("SELECT kb.move_knowledge_base('m', 'b')");
    assert_eq!(b.count("kb.memories WHERE source_conversation_id IS NULL"), 5);
}

#[test]
fn the_entries_of_a_tenant_have_a_limit_under_which_forgetting_makes_room() {
    let (cluster, mut db) = crate::connected!();
    db.run("CREATE ROLE writer LOGIN IN ROLE kb_writer; CREATE ROLE chief LOGIN IN ROLE kb_admin");
    assert_eq!(
        db.one::<String>("SELECT current_setting('kb.tenant_memory_entries') FROM kb.current_tenant()"),
        "10000"
    );
    db.run("ALTER DATABASE app SET kb.tenant_memory_entries = 3");
    let mut a = cluster.connect_as_tenant("writer", "a");
    a.run("SELECT kb.create_memory('m', 'hash'), kb.create_memory('n', 'hash')");
    let old = remember(&mut a, "one", ", expires_at => '2020-01-01', valid_from => '2019-01-01'");
    a.run("SELECT kb.remember('n', 'two'), kb.remember('n', 'three')");
    // Those that are expired count, and facts that are there already do not.
    let fault = a.refused("SELECT kb.remember('m', 'four')", "53400");
    assert!(fault.text.contains("may have at most 3 entries of memories"), "{fault:?}");
    assert!(fault.text.contains("It has 3; this needs 1 more."), "{fault:?}");
    a.run("SELECT kb.remember('n', 'two', tags => '{again}')");
    assert_eq!(a.count("kb.memories"), 3);
    let status = "SELECT concat_ws(' ', used, allowed) FROM kb.quota_status WHERE what = 'memory_entries'";
    assert_eq!(a.one::<String>(status), "3 3");
    assert_eq!(a.one::<i64>(&format!("SELECT forgotten FROM kb.forget('m', '{{{old}}}')")), 1);
    // Many in a transaction, of which some are forgotten again.
    a.run("BEGIN; SELECT kb.remember('m', 'four')");
    a.run("SELECT kb.forget('n', ARRAY(SELECT id FROM kb.memories WHERE fact = 'two')); SELECT kb.remember('m', 'five'); COMMIT");
    a.refused(r#"SELECT kb.remember('m', ARRAY['{"fact": "five"}', '{"fact": "six"}']::jsonb[])"#, "53400");
    assert_eq!(a.all::<String>("SELECT fact FROM kb.memories ORDER BY 1"), ["five", "four", "three"]);
    // A quota of its own, also for what is moved to it.
    db.run("SELECT kb.set_quota('a', memory_entries => 5), kb.set_quota('b', memory_entries => 1)");
    a.run("SELECT kb.remember('m', 'six'), kb.remember('m', 'seven')");
    a.refused("SELECT kb.remember('m', 'eight')", "53400");
    let mut chief = cluster.connect_as_tenant("chief", "a");
    chief.refused("SELECT kb.move_knowledge_base('m', 'b')", "53400");
    chief.run("SELECT kb.move_knowledge_base('n', 'b')");
    let mut b = cluster.connect_as_tenant("writer", "b");
    b.refused("SELECT kb.remember('n', 'one more')", "53400");
    // Sessions at the same time do not exceed it together.
    db.run("SELECT kb.set_quota('c', memory_entries => 1)");
    let (mut c, mut d) = (cluster.connect_as_tenant("writer", "c"), cluster.connect_as_tenant("writer", "c"));
    c.run("SELECT kb.create_memory('m', 'hash')");
    c.run("BEGIN; SELECT kb.remember('m', 'first')");
    let waiter = std::thread::spawn(move || d.refused("SELECT kb.remember('m', 'second')", "53400"));
    until(SOON, "the other session waits", || db.count("pg_locks WHERE NOT granted") > 0);
    c.run("COMMIT");
    waiter.join().unwrap();
    // The sole user of a database has no limit.
    with_memory(&mut db, "{}");
    db.run("SELECT count(*) FROM kb.remember('m', ARRAY(SELECT jsonb_build_object('fact', 'fact ' || n) FROM generate_series(1, 20) n))");
    assert_eq!(db.count("kb.memories WHERE tenant_id = ''"), 20);
}

#[test]
fn recalls_are_counted_by_the_worker_for_the_tenant_alone() {
    let (cluster, mut db) = crate::connected!();
    db.run("CREATE ROLE writer LOGIN IN ROLE kb_writer; CREATE ROLE reader LOGIN IN ROLE kb_reader");
    let mut a = cluster.connect_as_tenant("writer", "a");
    a.run("SELECT kb.create_memory('m', 'hash')");
    for fact in ["likes green tea", "likes black tea", "likes coffee"] {
        remember(&mut a, fact, ", 'u', '{drink}'");
    }
    a.wait("m");
    let counts = "SELECT fact || ' ' || access_count FROM kb.memories WHERE access_count > 0 ORDER BY fact";
    // A reader only reads, and not even its transaction has to commit.
    let mut reader = cluster.connect_as_tenant("reader", "a");
    reader.run("BEGIN READ ONLY");
    let found = recalled(&mut reader, "likes green tea", ", subject => 'u', max_results => 1");
    assert_eq!(found, ["likes green tea"]);
    recalled(&mut reader, "likes green tea", ", subject => 'u', max_results => 1");
    reader.run("ROLLBACK");
    assert_eq!(reader.count("kb.recall_by_tags('m', '{drink}')"), 3);
    let all = ["likes black tea 1", "likes coffee 1", "likes green tea 3"];
    until(LONG, "the accesses are counted", || a.all::<String>(counts) == all);
    assert_eq!(a.count("kb.memories WHERE last_accessed_at > created_at AND last_accessed_at <= now()"), 3);
    // A tenant to which it is shared counts none, and an entry that is dropped meanwhile is skipped.
    a.run("SELECT kb.share('m', 'b')");
    let mut b = cluster.connect_as_tenant("writer", "b");
    assert_eq!(b.count("kb.recall_by_tags('m', '{drink}')"), 3);
    a.run("SELECT kb.recall_by_tags('m', '{drink}'); SELECT kb.forget('m', ARRAY(SELECT id FROM kb.memories WHERE fact = 'likes coffee'))");
    let rest = ["likes black tea 2", "likes green tea 4"];
    until(LONG, "the further accesses are counted", || a.all::<String>(counts) == rest);
    // An entry that another transaction has locked delays no other.
    let mut other = cluster.connect_as_tenant("writer", "a");
    other
        .run("BEGIN; SELECT kb.touch('m', ARRAY(SELECT id FROM kb.memories WHERE fact = 'likes black tea'))");
    a.run("SELECT kb.recall_by_tags('m', '{drink}')");
    until(LONG, "the other is counted", || {
        a.all::<String>(counts) == ["likes black tea 2", "likes green tea 5"]
    });
    other.run("COMMIT");
    // Where recalls count nothing, an access that comes later is the next to be seen.
    a.run(r#"SELECT kb.alter_memory('m', '{"retrieval": {"count_accesses": false}}'); SELECT kb.recall_by_tags('m', '{drink}')"#);
    a.run("SELECT kb.alter_memory('m', '{}'); SELECT kb.recall_by_tags('m', '{drink}')");
    until(LONG, "the last access is counted", || {
        a.all::<String>(counts) == ["likes black tea 4", "likes green tea 6"]
    });
    // A recall works without the gateway, whose end loses accesses and nothing else.
    assert_eq!(b.count("kb.memories WHERE access_count > 6"), 0);
}

#[test]
fn recall_looks_up_each_entry_of_a_subject_once_in_each_table() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_memory('m', 'hash', '{\"retrieval\": {\"count_accesses\": false}}')");
    let recall = "count(*) FROM kb.recall('m', 'what is fact 77 about?', subject => 'u', max_results => 1, min_score => 0)";
    let (mut read, mut waiting) = (Vec::new(), Vec::new());
    for from in [1, 401] {
        db.run(&format!(
            "SELECT count(*) FROM kb.remember('m', ARRAY(SELECT jsonb_build_object('subject', 'u', 'fact', 'fact ' || n)
                 FROM generate_series({from}, {from} + 399) n))"
        ));
        db.wait("m");
        // What autovacuum does.
        db.run("VACUUM ANALYZE");
        db.buffers(recall);
        read.push(db.buffers(recall));
        waiting.push(db.count(PENDING_CHUNKS));
    }
    // Chunks that wait to be folded are looked up besides.
    let looked_up = 4 * (waiting[1] - waiting[0]);
    // The entry, its chunk and its vector: a row each, and two pages of an index for each of the latter two.
    let each = (read[1] - read[0] - looked_up) as f64 / 400.0;
    println!("{read:?}, {waiting:?} wait: {each} buffers for each entry");
    assert!(each <= 8.0, "recall reads {each} buffers for each entry");
}

#[test]
fn twice_the_memories_cost_no_more_than_twice_to_recall_and_remember() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_vector_db('v', 'pgvector', 384, config => '{\"min_rows\": 500}')");
    db.run("SELECT kb.create_memory('m', 'hash', '{\"retrieval\": {\"count_accesses\": false}}', vector_db => 'v')");
    let fill = |db: &mut Db, from: i32, to: i32| {
        db.run(&format!(
            "SELECT count(*) FROM kb.remember('m', ARRAY(SELECT jsonb_build_object('subject', 'u' || n % 100,
                 'fact', 'fact ' || n || ' about ' || md5(n::text)) FROM generate_series({from}, {to}) n))"
        ));
        db.wait("m");
    };
    fill(&mut db, 1, 3000);
    let index =
        "pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relname LIKE '%_hnsw%' AND i.indisvalid";
    until(LONG, "the index is there and valid", || db.count(index) >= 1);
    let queries = [
        "count(*) FROM kb.recall('m', 'what is fact 77 about?', subject => 'u7', min_score => 0)",
        "count(*) FROM kb.recall('m', 'what is fact 77 about?', min_score => 0)",
        "count(*) FROM kb.recall('m', 'what is fact 77 about?', min_score => 0, mode => 'dense')",
        "kb.remember('m', 'fact 77 about ' || md5('77'), 'u77')",
    ];
    // The first ask reads catalogs, and the plans are kept.
    let before = queries.map(|query| (db.buffers(query), db.buffers(query)).1);
    fill(&mut db, 3001, 6000);
    for (query, before) in queries.into_iter().zip(before) {
        // Until the indexes of the second half are built, their entries are compared one by one.
        let mut after = 0;
        until(LONG, &format!("{query} reads at most twice the {before} buffers of 3,000 entries"), || {
            after = db.buffers(query);
            after < 2 * before + 100
        });
        println!("{query}: {before} buffers at 3,000, {after} at 6,000");
    }
    // All subjects are searched without a list of all entries.
    assert!(db.buffers(queries[2]) < 6000, "{}", db.buffers(queries[2]));
}
