//! A tenant's quota (kb.set_quota) is never exceeded, in whatever way and in however many sessions, and is
//! counted exactly.

use crate::stub::{Options, Stub};
use crate::support::{APP, Cluster, Db, SOON, until};

/// Tenant a, whose role may write, with knowledge base k, and its quota.
fn tenant(quota: &str) -> Option<(Cluster, Db, Db)> {
    let (cluster, mut db) = Cluster::connected(&[])?;
    db.run("CREATE ROLE a LOGIN IN ROLE kb_writer; SELECT kb.bind_role('a', 'a')");
    let mut a = cluster.connect_as(APP, "a");
    a.run("SELECT kb.create_knowledge_base('k', 'hash')");
    db.run(&format!("SELECT kb.set_quota('a', {quota})"));
    Some((cluster, db, a))
}

fn put(a: &mut Db, id: &str, bytes: usize) -> Result<(), String> {
    // Different texts, because equal ones are stored once.
    let text = format!("{id}{}", "x".repeat(bytes - id.len()));
    let put = a.0.execute("SELECT kb.put_document('k', $1, $2)", &[&id, &text]);
    put.map(|_| ()).map_err(|error| error.code().map(|code| code.code().to_string()).unwrap_or_default())
}

/// The counts, in all: bytes, and documents of k.
fn counted(db: &mut Db) -> (i64, i64) {
    let one = |what: &str| {
        format!(
            "SELECT coalesce(sum({what}), 0)::bigint FROM kb.quota_counts JOIN kb.knowledge_bases USING (kb_no)"
        )
    };
    (db.one(&one("bytes")), db.one(&one("documents")))
}

const FULL: &str = "53400";

#[test]
fn a_quota_bounds_bytes_and_documents_and_deleting_some_makes_room() {
    let Some((cluster, mut db, mut a)) = tenant("bytes => 100, documents => 3") else { return };
    put(&mut a, "d1", 50).unwrap();
    put(&mut a, "d2", 50).unwrap();
    let fault = a.refused("SELECT kb.put_document('k', 'd3', 'x')", FULL);
    assert!(
        fault.text.contains("may have at most 100 bytes")
            && fault.text.contains("It has 100; this needs 1 more"),
        "{fault:?}"
    );
    // Another version counts for the bytes that it has more.
    assert_eq!(put(&mut a, "d1", 51), Err(FULL.into()));
    put(&mut a, "d1", 20).unwrap();
    put(&mut a, "d3", 30).unwrap();
    assert_eq!(counted(&mut db), (100, 3));
    a.run("SELECT kb.delete_document('k', 'd2')");
    put(&mut a, "d4", 10).unwrap();
    // There are three, with 60 bytes.
    assert_eq!(put(&mut a, "d5", 10), Err(FULL.into()));
    assert_eq!(counted(&mut db), (60, 3));
    // What is rolled back does not count, in part or whole, and what the same transaction deletes makes room.
    a.run("BEGIN; SELECT kb.delete_document('k', 'd4'); SAVEPOINT s");
    put(&mut a, "d6", 40).unwrap();
    a.run("ROLLBACK TO s");
    put(&mut a, "d7", 70 - 20).unwrap();
    a.run("SELECT kb.delete_document('k', 'd7')");
    put(&mut a, "d8", 50).unwrap();
    a.run("COMMIT");
    assert_eq!(counted(&mut db), (100, 3));
    // All or none.
    a.run("SELECT kb.delete_documents('k', '{d8,d3}')");
    let three = "SELECT kb.put_documents('k', ARRAY['{\"external_id\": \"n1\", \"content\": \"one\"}',
        '{\"external_id\": \"n2\", \"content\": \"two\"}', '{\"external_id\": \"n3\", \"content\": \"three\"}']::jsonb[])";
    a.refused(three, FULL);
    assert_eq!(counted(&mut db), (20, 1));
    a.run("SELECT kb.drop_knowledge_base('k')");
    assert_eq!(counted(&mut db), (0, 0));
    // The other tenants are as free as before.
    db.run("SET kb.tenant = 'b'");
    db.create_kb("k", "hash", "{}");
    for i in 0..5 {
        db.put("k", &format!("d{i}"), &format!("{i} {}", "y".repeat(100)));
    }
    db.run("SET kb.tenant = 'a'; SELECT kb.set_quota('a')");
    let mut a = cluster.connect_as(APP, "a");
    a.run("SELECT kb.create_knowledge_base('k', 'hash')");
    put(&mut a, "large", 10_000).unwrap();
    assert_eq!(db.count("kb.quota_counts"), 0);
}

#[test]
fn a_document_and_the_number_of_knowledge_bases_are_bounded_and_said() {
    let Some((_cluster, mut db, mut a)) = tenant("document_bytes => 10, knowledge_bases => 2") else {
        return;
    };
    put(&mut a, "d1", 10).unwrap();
    assert_eq!(put(&mut a, "d2", 11), Err(FULL.into()));
    a.run("SELECT kb.create_knowledge_base('k2', 'hash')");
    a.refused("SELECT kb.create_knowledge_base('k3', 'hash')", FULL);
    a.run("SELECT kb.drop_knowledge_base('k2'); SELECT kb.create_knowledge_base('k3', 'hash')");
    db.run(
        "SELECT kb.set_quota('a', bytes => 1000, documents => 5, knowledge_bases => 2, tokens_per_day => 7)",
    );
    assert_eq!(
        a.all::<String>("SELECT concat_ws(' ', kb_id, what, used, allowed) FROM kb.quota_status ORDER BY 1"),
        [
            "attached_tables 0 100",
            "bytes 10 1000",
            "k documents 1 5",
            "k3 documents 0 5",
            "knowledge_bases 2 2",
            "memory_entries 0 10000",
            "metadata_indexes 0 8",
            "tokens_per_day 0 7"
        ]
    );
    for (sql, code) in [
        ("SELECT kb.set_quota('a', bytes => -1)", "22023"),
        ("SELECT kb.set_quota(E'a\\n')", "22023"),
        ("SELECT kb.set_quota(NULL)", "22004"),
    ] {
        db.refused(sql, code);
    }
    a.refused("SELECT kb.set_quota('a')", "42501");
    db.run("CREATE ROLE chief IN ROLE kb_admin; SELECT kb.bind_role('chief', 'a'); SET ROLE chief");
    db.refused("SELECT kb.set_quota('a')", "42501");
}

#[test]
fn sessions_that_put_at_once_have_no_more_together() {
    let Some((cluster, mut db, _)) = tenant("documents => 20, bytes => 1000") else { return };
    let taken: usize = std::thread::scope(|scope| {
        let sessions: Vec<_> = (0..4)
            .map(|n| {
                let mut a = cluster.connect_as(APP, "a");
                scope
                    .spawn(move || (0..10).filter(|i| put(&mut a, &format!("s{n} d{i}"), 20).is_ok()).count())
            })
            .collect();
        sessions.into_iter().map(|session| session.join().unwrap()).sum()
    });
    assert_eq!(taken, 20);
    assert_eq!(db.count("kb.documents"), 20);
    assert_eq!(counted(&mut db), (400, 20));
    // Also for a session with an older snapshot. (A change of the quota itself under such a snapshot is
    // 40001, as ever.)
    until(SOON, "the quota is settled", || db.count("kb.quotas WHERE is_settled") == 1);
    let mut old = cluster.connect_as(APP, "a");
    old.run(
        "SELECT kb.delete_document('k', external_id) FROM (SELECT external_id FROM kb.documents LIMIT 1) d",
    );
    old.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM kb.documents");
    put(&mut cluster.connect_as(APP, "a"), "another", 20).unwrap();
    assert_eq!(put(&mut old, "mine", 20), Err(FULL.into()));
}

#[test]
fn a_transaction_unaware_of_a_new_quota_is_counted_when_it_ends() {
    let (cluster, mut db) = crate::connected!();
    db.run("CREATE ROLE a LOGIN IN ROLE kb_writer; SELECT kb.bind_role('a', 'a')");
    let mut a = cluster.connect_as(APP, "a");
    a.run("SELECT kb.create_knowledge_base('k', 'hash')");
    put(&mut a, "before", 30).unwrap();
    a.run("BEGIN");
    put(&mut a, "under way", 40).unwrap();
    db.run("SELECT kb.set_quota('a', bytes => 75)");
    assert_eq!(counted(&mut db), (30, 1));
    a.run("COMMIT");
    until(SOON, "the counts to be exact", || db.count("kb.quotas WHERE is_settled") == 1);
    assert_eq!(counted(&mut db), (70, 2));
    assert_eq!(put(&mut a, "too much", 10), Err(FULL.into()));
    put(&mut a, "just enough", 11).unwrap_err();
    put(&mut a, "fits", 5).unwrap();
}

#[test]
fn rows_of_attached_tables_beyond_a_quota_fail_and_are_retried_when_there_is_room() {
    let Some((_cluster, mut db, mut a)) = tenant("documents => 2") else { return };
    db.run("CREATE TABLE t (id int PRIMARY KEY, body text); ALTER TABLE t OWNER TO a");
    db.run("INSERT INTO t VALUES (1, 'The first row.'), (2, 'The second row.'), (3, 'The third row.')");
    a.run_and_wait("k", "SELECT kb.attach_table('k', 't', 'body')");
    assert_eq!(a.count("kb.documents WHERE status = 'ready'"), 2);
    assert_eq!(a.all::<String>("SELECT sqlstate FROM kb.failures"), [FULL]);
    // Whoever owns the table, the statement does not fail.
    a.run_and_wait("k", "INSERT INTO t VALUES (4, 'The fourth row.'); DELETE FROM t WHERE id < 4");
    // Those that failed do not count, and there is room for two.
    a.run("SELECT kb.retry('k'); INSERT INTO t VALUES (5, 'The fifth row.'), (6, 'The sixth row.')");
    a.wait("k");
    assert_eq!(counted(&mut db).1, 2);
    assert_eq!(a.count("kb.documents WHERE status = 'ready'"), 2);
    a.run_and_wait("k", "SELECT kb.retry('k')");
    assert_eq!(a.count("kb.documents WHERE status = 'ready'"), 2);
    a.run_and_wait("k", "DELETE FROM t");
    assert_eq!((counted(&mut db).1, a.count("kb.documents")), (0, 0));
}

#[test]
fn only_the_tenant_that_has_spent_its_daily_tokens_waits_at_every_endpoint() {
    let cluster = crate::cluster!();
    let (one, two) = (Stub::start(Options::default()), Stub::start(Options::default()));
    let mut db = cluster.connect(APP);
    db.create_stub_embedder("one", &one, "{}");
    db.create_stub_embedder("two", &two, "{}");
    db.run("SELECT kb.set_quota('a', tokens_per_day => 15)");
    let embed = |tenant: &str, embedder: &str, text: &str| {
        format!(
            "SET kb.tenant = '{tenant}'; SELECT count(*) FROM kb.embed('{embedder}', '{{{text}}}', 'query')"
        )
    };
    // About ten tokens.
    db.run(&embed("a", "one", "one two three four five six seven eight nine ten"));
    let fault = db.fault(&embed("a", "two", "ten nine eight seven six five four three two one"));
    assert_eq!(fault.code, FULL);
    assert!(fault.text.contains("that this tenant may spend per day (kb.set_quota)"), "{fault:?}");
    db.run(&embed("b", "two", "one nine two seven six five four three eight ten"));
    // After it is raised, work continues.
    db.run("SELECT kb.set_quota('a', tokens_per_day => 1000)");
    db.run(&embed("a", "two", "two nine eight seven six five four three one ten"));
}

#[test]
fn a_transaction_older_than_a_quota_is_counted_when_it_ends() {
    let (cluster, mut db) = crate::connected!();
    db.run("CREATE ROLE a LOGIN IN ROLE kb_writer; SELECT kb.bind_role('a', 'a')");
    let mut a = cluster.connect_as(APP, "a");
    a.run("SELECT kb.create_knowledge_base('k', 'hash')");
    // The younger transaction does not know of the quota of the older one.
    db.run("BEGIN; SELECT kb.set_quota('a', documents => 3)");
    a.run("BEGIN");
    put(&mut a, "one", 10).unwrap();
    put(&mut a, "two", 10).unwrap();
    db.run("COMMIT");
    let seen = "kb.quotas WHERE settle_after IS NOT NULL";
    until(SOON, "the worker has seen the quota", || db.count(seen) == 1);
    assert_eq!(db.count("kb.quotas WHERE is_settled"), 0);
    a.run("COMMIT");
    until(SOON, "the counts to be exact", || db.count("kb.quotas WHERE is_settled") == 1);
    assert_eq!(counted(&mut db), (20, 2));
}

#[test]
fn quotas_work_where_all_tables_are_published() {
    let Some((_cluster, mut db, mut a)) = tenant("documents => 100") else { return };
    db.run("SET client_min_messages = error; CREATE PUBLICATION p FOR ALL TABLES; RESET client_min_messages");
    for i in 0..70 {
        put(&mut a, &format!("d{i}"), 10).unwrap();
    }
    db.run("SELECT kb.set_quota('a', documents => 80)");
    assert_eq!(counted(&mut db).1, 70);
    db.run("SELECT kb.set_quota('a')");
}

#[test]
fn a_quota_check_does_not_depend_on_what_other_tenants_have() {
    let Some((_cluster, mut db, mut a)) = tenant("documents => 1000, bytes => 100000") else { return };
    // Plans are made while tables are nearly empty.
    for i in 0..10 {
        put(&mut a, &format!("d{i}"), 10).unwrap();
        a.run(&format!("SELECT kb.delete_document('k', 'd{i}')"));
    }
    db.run(
        "ALTER TABLE kb.knowledge_bases SET (autovacuum_enabled = off); ALTER TABLE kb.quotas SET (autovacuum_enabled = off);
         INSERT INTO kb.knowledge_bases (tenant_id, id, embedder, chunking, preprocess, retrieval)
             SELECT 't' || i, 'k', 'hash', '{}', '{}', '{}' FROM generate_series(1, 3000) i;
         INSERT INTO kb.quotas (tenant_id, documents, is_settled) SELECT 't' || i, 5, true FROM generate_series(1, 3000) i",
    );
    let read = "SELECT sum(seq_tup_read)::bigint FROM pg_stat_user_tables WHERE relid IN (
        'kb.knowledge_bases'::regclass, 'kb.quotas'::regclass, 'kb.documents'::regclass, 'kb.quota_counts'::regclass)";
    let mut rows_read = |a: &mut Db| -> i64 {
        a.run("SELECT pg_stat_force_next_flush()");
        db.run("SELECT pg_stat_clear_snapshot()");
        db.one(read)
    };
    let before = rows_read(&mut a);
    for i in 0..100 {
        put(&mut a, &format!("e{i}"), 10).unwrap();
        a.run(&format!("SELECT kb.delete_document('k', 'e{i}')"));
    }
    let each = (rows_read(&mut a) - before) / 100;
    assert!(each < 300, "{each} rows are read one by one for a put and a delete");
}

#[test]
fn all_that_a_tenant_stores_counts_and_makes_room_again_when_it_is_gone() {
    let Some((_cluster, mut db, mut a)) = tenant("bytes => 1000") else { return };
    db.run("CREATE TABLE t (id int PRIMARY KEY, body text); ALTER TABLE t OWNER TO a");
    a.run("SELECT kb.create_eval_set('k', 'set')");
    let empty = counted(&mut db).0;
    assert_eq!(empty, 3);
    let text = "repeat('x', 600)";
    // Each with a way to undo it.
    for (stores, ends) in [
        (
            format!("SELECT kb.put_document('k', 'd', 'A text.', title => {text})"),
            "SELECT kb.delete_document('k', 'd')",
        ),
        (
            format!("SELECT kb.put_document('k', 'd', 'A text.', uri => {text})"),
            "SELECT kb.delete_document('k', 'd')",
        ),
        (
            format!(
                "SELECT kb.put_document('k', 'd', 'A text.', metadata => jsonb_build_object('a', {text}))"
            ),
            "SELECT kb.delete_document('k', 'd')",
        ),
        (
            format!("SELECT kb.alter_knowledge_base('k', description => {text})"),
            "SELECT kb.alter_knowledge_base('k', description => '')",
        ),
        (
            format!("SELECT kb.alter_knowledge_base('k', metadata => jsonb_build_object('a', {text}))"),
            "SELECT kb.alter_knowledge_base('k', metadata => '{}')",
        ),
        (
            format!("SELECT kb.create_knowledge_base('l', 'hash', description => {text})"),
            "SELECT kb.drop_knowledge_base('l')",
        ),
        (
            format!("SELECT kb.put_eval_question('k', 'set', 'q', {text}, '[]')"),
            "SELECT kb.delete_eval_question('k', 'set', 'q')",
        ),
        (
            format!("SELECT kb.put_eval_question('k', 'set', 'q', {text}, '[]')"),
            "SELECT kb.drop_eval_set('k', 'set'); SELECT kb.create_eval_set('k', 'set')",
        ),
        // A document that is put again counts with its new size.
        (
            format!(
                "SELECT kb.put_eval_question('k', 'set', 'q', 'Which?', '[]'), kb.put_eval_question('k', 'set', 'q', {text}, '[]')"
            ),
            "SELECT kb.delete_eval_question('k', 'set', 'q')",
        ),
        (
            "SELECT kb.put_eval_question('k', 'set', 'q', 'Which?', (SELECT jsonb_agg(n || repeat('d', 199)) FROM generate_series(1, 3) n))"
                .into(),
            "SELECT kb.delete_eval_question('k', 'set', 'q')",
        ),
        (
            format!(
                "SELECT kb.put_eval_question('k', 'set', 'q', 'Which?', '[]', jsonb_build_object('a', {text}))"
            ),
            "SELECT kb.delete_eval_question('k', 'set', 'q')",
        ),
        (
            "SELECT kb.share('k', n || repeat('t', 199)) FROM generate_series(1, 3) n".into(),
            "SELECT kb.unshare('k', n || repeat('t', 199)) FROM generate_series(1, 3) n",
        ),
        (
            format!(
                "SELECT kb.load_eval('k', 'set', jsonb_build_object('_id', 'q', 'text', {text})::text, E'q\td\t1')"
            ),
            "SELECT kb.delete_eval_question('k', 'set', 'q')",
        ),
        (
            format!(
                "SELECT kb.attach_table('k', 't', 'body'); SELECT kb.attach_table('k', 't', '{{{{body}}}} ' || {text})"
            ),
            "SELECT kb.detach_table('k', 't')",
        ),
    ] {
        a.run(&stores);
        let used = counted(&mut db).0;
        assert!((empty + 600..empty + 950).contains(&used), "{stores}: {used}");
        // The same once more, as another document, is too much.
        let more = format!("SELECT kb.put_document('k', 'more', {text})");
        assert_eq!(a.fault(&more).code, FULL, "{stores}");
        // Counted again, the sums are the same.
        db.run("SELECT kb.set_quota('a', bytes => 1000)");
        assert_eq!(counted(&mut db).0, used, "{stores}");
        a.run(ends);
        assert_eq!(counted(&mut db).0, empty, "{ends}");
    }
    // Whatever exceeds it is refused, and leaves nothing behind.
    let fault = a.fault("SELECT kb.alter_knowledge_base('k', description => repeat('x', 1001))");
    assert_eq!(fault.code, FULL);
    assert!(fault.text.contains("may have at most 1000 bytes"), "{fault:?}");
    assert_eq!(a.fault("SELECT kb.put_eval_question('k', 'set', 'q', repeat('x', 1001), '[]')").code, FULL);
    assert_eq!(counted(&mut db).0, empty);
}

#[test]
fn kept_parts_of_a_document_that_is_put_again_still_count() {
    let Some((_cluster, mut db, mut a)) = tenant("bytes => 5000") else { return };
    let title = "title => repeat('t', 100), uri => repeat('u', 200), metadata => jsonb_build_object('a', repeat('m', 300))";
    a.run(&format!("SELECT kb.put_document('k', 'd', 'A text.', {title})"));
    let all = counted(&mut db).0;
    assert_eq!(all, 7 + 100 + 200 + 300 + 9);
    for _ in 0..3 {
        a.run("SELECT kb.put_document('k', 'd', 'A text.')");
        assert_eq!(counted(&mut db).0, all);
        a.run("SELECT kb.put_document('k', 'd', 'A texT.', metadata => '{}')");
        a.run_and_wait("k", &format!("SELECT kb.put_document('k', 'd', 'A text.', {title})"));
        assert_eq!(counted(&mut db).0, all);
    }
    // A title that the worker finds in the text is not credited when the document is deleted.
    a.run("SELECT kb.put_document('k', 'h.html', '<title>' || repeat('t', 900) || '</title><p>A page.</p>')");
    a.wait("k");
    a.run("SELECT kb.delete_document('k', 'h.html')");
    assert_eq!(counted(&mut db).0, all);
}

#[test]
fn no_tenant_takes_all_of_what_the_server_has_and_an_administrator_gives_more() {
    let (cluster, mut db) = crate::connected!();
    db.run("CREATE ROLE a LOGIN IN ROLE kb_writer; CREATE ROLE b LOGIN IN ROLE kb_writer;
        SELECT kb.bind_role('a', 'a'), kb.bind_role('b', 'b');
        ALTER DATABASE app SET kb.tenant_knowledge_bases = 3; ALTER DATABASE app SET kb.tenant_attached_tables = 1");
    let (mut a, mut b) = (cluster.connect_as(APP, "a"), cluster.connect_as(APP, "b"));
    for n in 1..=3 {
        a.run(&format!("SELECT kb.create_knowledge_base('k{n}', 'hash')"));
    }
    let fault = a.fault("SELECT kb.create_knowledge_base('k4', 'hash')");
    assert_eq!(fault.code, FULL);
    assert!(fault.text.contains("may have at most 3 knowledge bases"), "{fault:?}");
    b.run("SELECT kb.create_knowledge_base('k', 'hash')");
    // Of the 32 keys that may be indexed in a database it has eight, each of which counts once.
    for n in 1..=8 {
        a.run(&format!(
            "SELECT kb.index_metadata('k1', 'key {n}', 'text'), kb.index_metadata('k2', 'key {n}', 'text')"
        ));
    }
    a.refused("SELECT kb.index_metadata('k1', 'key 9', 'text')", FULL);
    b.run("SELECT kb.index_metadata('k', 'key of b', 'text')");
    // And as many tables.
    for table in ["t", "u"] {
        db.run(&format!(
            "CREATE TABLE {table} (id int PRIMARY KEY, body text); ALTER TABLE {table} OWNER TO a"
        ));
    }
    a.run("SELECT kb.attach_table('k1', 't', 'body'); SELECT kb.attach_table('k1', 't', '{body}')");
    a.refused("SELECT kb.attach_table('k2', 'u', 'body')", FULL);
    assert_eq!(
        a.all::<String>("SELECT concat_ws(' ', what, used, allowed) FROM kb.quota_status ORDER BY 1"),
        ["attached_tables 1 1", "knowledge_bases 3 3", "memory_entries 0 10000", "metadata_indexes 8 8"]
    );
    // One tenant gets more, and the sole user of a database has no limit.
    db.run("SELECT kb.set_quota('a', knowledge_bases => 4, attached_tables => 2, metadata_indexes => 9)");
    a.run("SELECT kb.create_knowledge_base('k4', 'hash'), kb.index_metadata('k1', 'key 9', 'text')");
    a.run("SELECT kb.attach_table('k2', 'u', 'body')");
    a.refused("SELECT kb.create_knowledge_base('k5', 'hash')", FULL);
    let mut own = cluster.connect(APP);
    for n in 1..=5 {
        own.run(&format!("SELECT kb.create_knowledge_base('own {n}', 'hash')"));
    }
    assert_eq!(own.count("kb.quota_status"), 0);
    // Sessions that create some at the same time do not exceed the limit together.
    let mut others: Vec<_> = (0..3).map(|_| cluster.connect_as(APP, "b")).collect();
    b.run("BEGIN; SELECT kb.create_knowledge_base('l', 'hash')");
    std::thread::scope(|scope| {
        let made: Vec<_> = others
            .iter_mut()
            .enumerate()
            .map(|(n, session)| {
                scope.spawn(move || {
                    session.try_run(&format!("SELECT kb.create_knowledge_base('m{n}', 'hash')")).is_ok()
                })
            })
            .collect();
        until(SOON, "they wait", || db.count("pg_locks WHERE NOT granted AND locktype = 'advisory'") == 3);
        b.run("COMMIT");
        assert_eq!(made.into_iter().map(|made| made.join().unwrap()).filter(|made| *made).count(), 1);
    });
}
