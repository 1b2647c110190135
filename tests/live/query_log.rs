//! The query log: questions are kept if a knowledge base specifies it, by any transaction, and never at the
//! cost of a question.

use crate::support::{APP, Db, LONG, PRELOAD, SOON, signal, texts, until};

const NEVER: &str = "00000000-0000-4000-8000-000000000000";

/// A knowledge base of three documents that logs this share of questions.
fn fill(db: &mut Db, kb: &str, log: f64) {
    db.run(&format!("SELECT kb.create_knowledge_base('{kb}', 'hash', retrieval => '{{\"log\": {log}}}')"));
    for i in 0..3 {
        db.put(kb, &format!("d{i}"), &texts::paragraph(i, 30));
    }
    db.wait(kb);
}

fn until_logged(db: &mut Db, query: &str) {
    until(SOON, "the question is logged", || {
        db.one_with::<i64>("SELECT count(*) FROM kb.query_log WHERE query = $1", &[&query]) == 1
    });
}

/// Asks a question, and returns the chunk of the first row and the id under which the question is logged.
fn ask(db: &mut Db, kb: &str, query: &str) -> (String, Option<String>) {
    let sql = "SELECT chunk_id::text, locator ->> 'query_id' FROM kb.query($1, $2, 2) ORDER BY rank LIMIT 1";
    let row = db.0.query_one(sql, &[&kb, &query]).unwrap();
    (row.get(0), row.get(1))
}

fn say(query_id: &str, chunk_id: &str, relevant: &str) -> String {
    format!("SELECT kb.feedback('{query_id}', '{chunk_id}', {relevant})")
}

#[test]
fn only_knowledge_bases_that_log_have_their_questions_logged_with_the_answers() {
    let (_cluster, mut db) = crate::connected!();
    fill(&mut db, "silent", 0.0);
    fill(&mut db, "k", 1.0);
    assert_eq!(ask(&mut db, "silent", "what does nobody hear?").1, None);
    let fault = db.fault(r#"SELECT * FROM kb.query('silent', 'a', options => '{"log": 1}')"#);
    assert!(fault.message.contains("log"), "{fault:?}");
    let (chunk, id) = ask(&mut db, "k", "where is the harbor?");
    until_logged(&mut db, "where is the harbor?");
    let row = db
        .0
        .query_one(
            "SELECT query_id::text, chunk_ids[1]::text, row_count, cardinality(chunk_ids), mode, top_k, filter IS NULL,
                    score > 0, duration_ms > 0, asked_at BETWEEN now() - interval '5 min' AND now()
             FROM kb.query_log",
            &[],
        )
        .unwrap();
    assert_eq!((Some(row.get::<_, String>(0)), row.get::<_, String>(1)), (id, chunk));
    assert_eq!((row.get::<_, i32>(2), row.get::<_, i32>(3), row.get::<_, i32>(5)), (2, 2, 2));
    assert_eq!(row.get::<_, String>(4), "dense");
    assert!((6..10).all(|column| row.get::<_, bool>(column)), "{row:?}");
    // A question without an answer, and one by words, which uses no embedder.
    db.run(r#"SELECT * FROM kb.query('k', 'xyzzy?', filter => '{"n": 1}', mode => 'keyword')"#);
    until_logged(&mut db, "xyzzy?");
    let empty: Vec<String> = db.all("SELECT query || mode || filter FROM kb.query_log WHERE row_count = 0");
    assert_eq!(empty, [r#"xyzzy?keyword{"n": 1}"#]);
    // Each of several knowledge bases logs for itself; long questions are cut; measurements are not logged.
    let long = "harbor ".repeat(1000);
    db.one_with::<i64>("SELECT count(*) FROM kb.query(ARRAY['k', 'silent'], $1)", &[&long]);
    until_logged(&mut db, &long[..1000]);
    db.run(
        "SELECT kb.create_eval_set('k', 's'); SELECT kb.put_eval_question('k', 's', 'q', 'measured?', '[\"d1\"]');
            SELECT * FROM kb.evaluate('k', 's')",
    );
    db.run("SELECT * FROM kb.query('k', 'last?')");
    until_logged(&mut db, "last?");
    assert_eq!(db.count("kb.query_log"), 4);
    db.run("SELECT kb.drop_knowledge_base('k')");
    assert_eq!(db.count("kb.query_log"), 0);
}

#[test]
fn a_question_is_logged_after_a_rollback_in_read_only_mode_and_after_its_session() {
    let (cluster, mut db) = crate::connected!("kb.worker_idle_timeout = '1s'");
    fill(&mut db, "k", 1.0);
    db.run("BEGIN; SELECT * FROM kb.query('k', 'rolled back?'); ROLLBACK");
    db.run("BEGIN READ ONLY; SELECT * FROM kb.query('k', 'read only?'); COMMIT");
    until_logged(&mut db, "rolled back?");
    until_logged(&mut db, "read only?");
    // No worker runs any more: a question starts one. The session leaves at once.
    for i in 0..10 {
        until(SOON, "the worker has left", || cluster.processes("kb worker", Some(APP)).is_empty());
        let question = format!("in passing {i}?");
        cluster
            .connect(APP)
            .one_with::<i64>("SELECT count(*) FROM kb.query('k', $1, mode => 'keyword')", &[&question]);
        until_logged(&mut db, &question);
    }
}

#[test]
fn a_share_of_the_questions_is_logged_and_their_rows_say_which() {
    let (_cluster, mut db) = crate::connected!();
    fill(&mut db, "half", 0.5);
    let asked: Vec<Option<String>> =
        (0..200).map(|i| ask(&mut db, "half", &format!("number {i}?")).1).collect();
    let logged: Vec<String> = asked.into_iter().flatten().collect();
    assert!((60..140).contains(&logged.len()), "{}", logged.len());
    until(SOON, "they are logged", || db.count("kb.query_log") == logged.len() as i64);
    let sql = "SELECT count(*) FROM kb.query_log WHERE query_id::text = ANY ($1)";
    assert_eq!(db.one_with::<i64>(sql, &[&logged]), logged.len() as i64);
}

#[test]
fn a_question_that_cannot_be_asked_again_as_it_was_is_left_out_of_what_is_measured() {
    let (_cluster, mut db) = crate::connected!();
    db.run(
        r#"SELECT kb.create_embedder('short', 'hash', dimension => 64, config => '{"max_input_tokens": 300}');
           SELECT kb.create_vector_db('v', dimension => 64, config => '{"min_rows": 500}');
           SELECT kb.create_knowledge_base('k', 'short', 'v', chunking => '{"strategy": "none"}',
               retrieval => '{"log": 1, "on_error": "keyword"}')"#,
    );
    db.put_all_and_wait("k", &texts::documents(0..1200, 12));
    until(LONG, "the index is built", || db.one("SELECT indexed FROM kb.status WHERE kb_id = 'k'"));
    // One that the model reads, one that is longer, and one whose filter is too long for the log.
    let long = "a ".repeat(400);
    let values: Vec<String> = (0..900).map(|n| format!("\"v{n}\"")).collect();
    let filter = format!(r#"{{"type": "nin", "key": "n", "value": [{}]}}"#, values.join(", "));
    for (question, filter) in [("harbor", "{}"), (long.as_str(), "{}"), ("village", filter.as_str())] {
        let sql = "SELECT count(*) FROM kb.query('k', $1, 3, filter => $2::text::jsonb)";
        db.one_with::<i64>(sql, &[&question, &filter]);
    }
    until(SOON, "they are logged", || db.count("kb.query_log WHERE mode = 'dense'") == 3);
    let kinds = "SELECT jsonb_typeof(filter) FROM kb.query_log WHERE filter IS NOT NULL";
    assert_eq!(db.all::<String>(kinds), ["string"]);
    assert_eq!(db.one::<i64>("SELECT sample FROM kb.measure_recall('k', 50, 'log')"), 1);
}

#[test]
fn a_standby_answers_and_logs_nothing() {
    let primary = crate::cluster!("wal_level = replica");
    let mut db = primary.connect(APP);
    fill(&mut db, "k", 1.0);
    assert!(ask(&mut db, "k", "on the primary?").1.is_some());
    let standby = primary.standby(&[]);
    let mut replica = standby.connect(APP);
    until(SOON, "the documents have arrived", || {
        replica.count("kb.documents WHERE status = 'ready'") == 3 && replica.count("kb.status") == 1
    });
    assert_eq!(ask(&mut replica, "k", "on the standby?").1, None);
}

#[test]
fn tenants_see_only_their_own_questions_and_readers_none_and_nobody_writes_them() {
    let (cluster, mut db) = crate::connected!();
    db.run("CREATE ROLE reader LOGIN IN ROLE kb_reader; CREATE ROLE writer LOGIN IN ROLE kb_writer");
    let mut writer = cluster.connect_as_tenant("writer", "a");
    fill(&mut writer, "k", 1.0);
    writer.run("SELECT kb.share('k', 'b')");
    let (chunk, id) = ask(&mut writer, "k", "asked by a?");
    let id = id.unwrap();
    let mut reader = cluster.connect_as_tenant("reader", "b");
    let (chunk_of_b, of_b) = ask(&mut reader, "k", "asked by b?");
    until_logged(&mut db, "asked by a?");
    until_logged(&mut db, "asked by b?");
    let all = "SELECT query FROM kb.query_log ORDER BY 1";
    assert_eq!(writer.all::<String>(all), ["asked by a?"]);
    // A tenant that reads another tenant's knowledge base owns its questions, and sees no feedback on others'
    // questions.
    reader.refused(&say(&id, &chunk, "true"), "22023");
    reader.run(&say(&of_b.unwrap(), &chunk_of_b, "true"));
    writer.run("SET kb.tenant = 'b'");
    assert_eq!(writer.all::<String>(all), ["asked by b?"]);
    assert_eq!(writer.count("kb.query_feedback"), 1);
    writer.run("SET kb.tenant = 'a'");
    assert_eq!(writer.count("kb.query_feedback"), 0);
    for table in ["kb.query_log", "kb.query_feedback"] {
        reader.refused(&format!("SELECT * FROM {table}"), "42501");
        for write in [format!("DELETE FROM {table}"), format!("UPDATE {table} SET kb_no = 1")] {
            writer.refused(&write, "42501");
        }
    }
}

#[test]
fn feedback_is_taken_at_once_for_rows_of_logged_answers_and_the_last_word_counts() {
    // Without a worker nothing is written, but the gateway has the question.
    let (cluster, mut db) = crate::connected!(PRELOAD);
    fill(&mut db, "k", 1.0);
    let worker = cluster.stop_worker(APP);
    let (chunk, id) = ask(&mut db, "k", "where is the village?");
    let id = id.unwrap();
    until(SOON, "the gateway has the question", || db.try_run(&say(&id, &chunk, "true")).is_ok());
    assert_eq!(db.count("kb.query_log"), 0);
    signal(worker, libc::SIGCONT);
    until_logged(&mut db, "where is the village?");
    let said = |db: &mut Db| {
        db.all::<bool>("SELECT relevant FROM kb.query_feedback JOIN kb.query_log USING (query_id)")
    };
    assert_eq!(said(&mut db), [true]);
    db.run(&say(&id, &chunk, "false"));
    assert_eq!(said(&mut db), [false]);
    db.run(&say(&id, &chunk, "NULL"));
    assert!(said(&mut db).is_empty());
    for wrong in [say(NEVER, &chunk, "true"), say(&id, NEVER, "true")] {
        db.refused(&wrong, "22023");
    }
    assert_eq!(db.count("kb.query_feedback"), 0);
}

#[test]
fn old_questions_are_deleted_and_those_beyond_the_bound_with_what_was_said_to_them() {
    let (cluster, mut db) = crate::connected!("kb.worker_idle_timeout = '1s'", "kb.query_log_days = 7");
    fill(&mut db, "k", 1.0);
    db.run(
        "INSERT INTO kb.query_log (query_id, kb_no, tenant_id, asked_at, query, mode, top_k, row_count, chunk_ids, duration_ms)
         SELECT gen_random_uuid(), kb_no, '', now() - i * interval '1 ms', 'many', 'dense', 5, 0, '{}', 1
         FROM kb.knowledge_bases, generate_series(1, 100004) i;
         INSERT INTO kb.query_log (query_id, kb_no, tenant_id, asked_at, query, mode, top_k, row_count, chunk_ids, duration_ms)
         SELECT gen_random_uuid(), kb_no, '', now() - days * interval '1 day', days || ' days', 'dense', 5, 0, '{}', 1
         FROM kb.knowledge_bases, unnest('{6,8}'::int[]) days;
         INSERT INTO kb.query_feedback (query_id, chunk_id, kb_no, tenant_id, relevant)
         SELECT query_id, gen_random_uuid(), kb_no, '', true FROM kb.query_log WHERE query LIKE '%days'",
    );
    until(SOON, "the worker has left", || cluster.processes("kb worker", Some(APP)).is_empty());
    db.run("SELECT * FROM kb.query('k', 'young?')");
    until(SOON, "the log is trimmed", || db.count("kb.query_log") == 100_000);
    assert_eq!(db.count("kb.query_log WHERE query LIKE '%days'"), 0);
    assert_eq!(db.count("kb.query_feedback"), 0);
    assert_eq!(db.count("kb.query_log WHERE query = 'young?'"), 1);
}

#[test]
fn a_gateway_that_is_down_or_stopped_and_a_flood_cost_no_question_anything() {
    let (cluster, mut db) = crate::connected!();
    fill(&mut db, "k", 1.0);
    let ask = |db: &mut Db, what: &str, times: i64| {
        let sql = "SELECT count(*) FROM generate_series(1, $2::bigint) i,
                   LATERAL kb.query('k', $1 || i, mode => 'keyword') WHERE i > 0";
        db.one_with::<i64>(sql, &[&what, &times]);
    };
    ask(&mut db, "first", 1);
    until_logged(&mut db, "first1");
    // The gateway does not read: the socket is full after some hundred questions.
    let gateway = cluster.gateway();
    signal(gateway, libc::SIGSTOP);
    db.run("SET kb.gateway_timeout = '10min'");
    // A question that waited for it would not end.
    ask(&mut db, "stopped", 3000);
    signal(gateway, libc::SIGCONT);
    signal(gateway, libc::SIGTERM);
    until(SOON, "the gateway is gone", || cluster.try_gateway() != Some(gateway));
    ask(&mut db, "down", 1);
    // More than may wait, in no time; then it continues.
    ask(&mut db, "flood", 3000);
    let mut other = cluster.connect(APP);
    until(SOON, "questions are logged again", || {
        ask(&mut other, "again", 1);
        db.count("kb.query_log WHERE query = 'again1'") > 0
    });
}
