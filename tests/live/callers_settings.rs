//! Settings of a caller's session, role or database change neither what kb creates as the owner nor its
//! answers.

use crate::support::shadows::surface::{self, Answer, Call};
use crate::support::{APP, Cluster, Db, LONG, SOON, assert_sound, texts, until, vector_table};

/// Settings that anybody may set, each with a value other than its default.
const SETTINGS: &[(&str, &str)] = &[
    ("array_nulls", "off"),
    ("backslash_quote", "off"),
    ("bytea_output", "escape"),
    ("check_function_bodies", "off"),
    ("client_min_messages", "debug5"),
    ("constraint_exclusion", "on"),
    ("cursor_tuple_fraction", "1"),
    ("datestyle", "German, DMY"),
    ("default_statistics_target", "1"),
    ("default_table_access_method", "heap2"),
    ("default_tablespace", "elsewhere"),
    ("default_toast_compression", "lz4"),
    ("default_transaction_deferrable", "on"),
    ("enable_bitmapscan", "off"),
    ("enable_hashagg", "off"),
    ("enable_hashjoin", "off"),
    ("enable_indexonlyscan", "off"),
    ("enable_indexscan", "off"),
    ("enable_material", "off"),
    ("enable_mergejoin", "off"),
    ("enable_nestloop", "off"),
    ("enable_seqscan", "off"),
    ("enable_sort", "off"),
    ("escape_string_warning", "off"),
    ("extra_float_digits", "-15"),
    ("from_collapse_limit", "1"),
    ("geqo_threshold", "2"),
    ("gin_fuzzy_search_limit", "1"),
    ("intervalstyle", "sql_standard"),
    ("join_collapse_limit", "1"),
    ("plan_cache_mode", "force_generic_plan"),
    ("quote_all_identifiers", "on"),
    ("standard_conforming_strings", "off"),
    ("synchronize_seqscans", "off"),
    ("synchronous_commit", "off"),
    ("temp_tablespaces", "elsewhere"),
    ("timezone", "Pacific/Chatham"),
    ("timezone_abbreviations", "India"),
    ("transform_null_equals", "on"),
    ("work_mem", "64kB"),
    ("xmloption", "document"),
    ("hnsw.ef_search", "1"),
    ("hnsw.iterative_scan", "off"),
    ("hnsw.max_scan_tuples", "1"),
    ("hnsw.scan_mem_multiplier", "1"),
];

/// A cluster in which all of these can be set, and a session of a writer that has set none.
fn fixture() -> Option<(Cluster, Db, Db)> {
    let (cluster, mut db) = Cluster::connected(&["allow_in_place_tablespaces = on"])?;
    db.run("CREATE TABLESPACE elsewhere LOCATION ''");
    db.run(
        "GRANT CREATE ON TABLESPACE elsewhere TO PUBLIC;
         CREATE ACCESS METHOD heap2 TYPE TABLE HANDLER heap_tableam_handler;
         CREATE ROLE writer LOGIN IN ROLE kb_writer",
    );
    let plain = cluster.connect_as(APP, "writer");
    Some((cluster, db, plain))
}

/// A session of the same role with all of the settings.
fn set_up(cluster: &Cluster) -> Db {
    let mut session = cluster.connect_as(APP, "writer");
    // pgvector's settings exist once it is loaded.
    session.run("SELECT '[1]'::vector");
    for (name, value) in SETTINGS {
        session.run(&format!("SET {name} = '{value}'"));
    }
    session
}

const MAKE: &str = r#"SELECT kb.create_knowledge_base('ID', 'hash', chunking => '{"size": 30, "overlap": 0}', preprocess => '{"language": "english"}')"#;

/// The definition of a knowledge base and of everything that belongs to it, without numbers and times.
fn made(db: &mut Db, kb: &str) -> Vec<String> {
    let table = vector_table(db, kb);
    let name = table.trim_start_matches("kb.");
    let mut made = db.all::<String>(&format!(
        "SELECT to_jsonb(k) - '{{kb_no,id,created_at,updated_at}}'::text[] || '{{}}' || (to_jsonb(b)
             - '{{build_no,kb_no,table_name,created_at,run_no}}'::text[]) || '{{}}'::jsonb #>> '{{}}'
         FROM kb.knowledge_bases k JOIN kb.builds b USING (kb_no) WHERE k.id = '{kb}'
         UNION ALL
         SELECT concat_ws(' ', replace(c.relname, '{name}', 'TABLE'), c.relkind, c.relpersistence, c.reltablespace, m.amname,
                          c.reloptions::text, c.relrowsecurity, c.relforcerowsecurity, pg_get_userbyid(c.relowner), c.relacl::text)
         FROM pg_class c LEFT JOIN pg_am m ON m.oid = c.relam
         WHERE c.oid = '{table}'::regclass OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = '{table}'::regclass)
         UNION ALL
         SELECT concat_ws(' ', attname, format_type(atttypid, atttypmod), attstorage, attcompression, attnotnull, attcollation)
         FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0
         UNION ALL
         SELECT concat_ws(' ', polname, pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid))
         FROM pg_policy WHERE polrelid = '{table}'::regclass
         UNION ALL
         SELECT replace(pg_get_constraintdef(oid), '{name}', 'TABLE') FROM pg_constraint WHERE conrelid = '{table}'::regclass"
    ));
    // The catalogs return them in any order.
    made.sort();
    made
}

#[test]
fn a_knowledge_base_is_made_the_same_under_any_settings_of_the_session() {
    let Some((cluster, mut db, mut plain)) = fixture() else { return };
    plain.run(&MAKE.replace("ID", "plain"));
    let mut session = set_up(&cluster);
    session.run(&MAKE.replace("ID", "odd"));
    let (plain_made, odd_made) = (made(&mut db, "plain"), made(&mut db, "odd"));
    assert!(plain_made.len() > 10, "{plain_made:?}");
    assert_eq!(odd_made, plain_made);
    // The same if the table is created again, and if another one is created beside it.
    for kb in ["plain", "odd"] {
        let session = if kb == "odd" { &mut session } else { &mut plain };
        session.run(&format!("SELECT kb.alter_knowledge_base('{kb}', 'static')"));
        session.put_and_wait(kb, "d", "Ships were running to the harbor.");
        session.run_and_wait(kb, &format!("SELECT kb.ingest('{kb}', 'replace')"));
    }
    until(SOON, "old builds are swept", || db.count("kb.builds WHERE state <> 'live'") == 0);
    assert_eq!(made(&mut db, "odd"), made(&mut db, "plain"));
    assert_sound(&mut db, "odd", 1, 0);
}

#[test]
fn a_session_of_any_settings_gets_the_same_answers() {
    let Some((cluster, mut db, mut plain)) = fixture() else { return };
    for id in ["tiny", "spare"] {
        db.run(&format!("SELECT kb.create_embedder('{id}', 'hash', dimension => 16)"));
    }
    for id in ["shared", "spare"] {
        db.run(&format!(
            "SELECT kb.create_vector_db('{id}', dimension => 16, config => '{{\"min_rows\": 100}}')"
        ));
    }
    db.run("SELECT kb.set_secret('key', 'sk-of-nobody')");
    plain.run(&MAKE.replace("'ID', 'hash'", "'k', 'tiny', 'shared'"));
    for i in 0..100 {
        let metadata = format!(r#"{{"n": {i}, "half": {}}}"#, i % 2 == 0);
        let text = format!("Ships {i} were running. {}", texts::paragraph(i, 60));
        plain.run(&format!("SELECT kb.put_document('k', 'd{i}', '{text}', '{metadata}')"));
    }
    db.run(surface::ATTACHED);
    plain.run_and_wait("k", "SELECT kb.ingest('k')");
    let index =
        "pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relname LIKE '%_hnsw%' AND i.indisvalid";
    until(LONG, "the index is there and valid", || db.count(index) == 1);
    let mut calls: Vec<Call> = surface::calls(&mut db).into_iter().filter(|call| call.is_plausible).collect();
    for arguments in
        ["'where do ships run?', 10", "'castle', 50, filter => '{\"half\": true}'", "'x', 3, 0.1"]
    {
        let sql = format!(
            "SELECT rank, external_id, content, round(score::numeric, 4), metadata FROM kb.query('k', {arguments})"
        );
        calls.push(Call { sql, is_plausible: true, is_repeatable: true });
    }
    let expected = surface::play(&mut plain, calls.iter());
    // The session decides how values are written.
    let shown = ["datestyle", "intervalstyle", "extra_float_digits", "timezone", "bytea_output"];
    let mut odd = set_up(&cluster);
    for name in shown {
        odd.run(&format!("RESET {name}"));
    }
    let answers = surface::play(&mut odd, calls.iter());
    let mut wrong = Vec::new();
    for call in &calls {
        let (answer, expected): (&Answer, &Answer) = (&answers[&call.sql], &expected[&call.sql]);
        if answer.is_ok() != expected.is_ok() || call.is_repeatable && answer != expected {
            wrong.push(format!("{}\n    {answer:?}\n    {expected:?}", call.sql));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Nothing fails under those settings, either.
    let mut odd = set_up(&cluster);
    for (sql, answer) in surface::play(&mut odd, calls.iter()) {
        assert_eq!(answer.is_ok(), expected[&sql].is_ok(), "{sql}: {answer:?}");
    }
}

/// Puts, an index, a delete and a replace, by a worker to which the settings of the database apply.
fn work(db: &mut Db, settings: &[(&str, &str)]) {
    for (name, value) in settings {
        db.run(&format!("ALTER DATABASE {APP} SET {name} = '{value}'"));
    }
    // This session began before.
    db.run("SELECT kb.create_vector_db('small', dimension => 384, config => '{\"min_rows\": 5}')");
    db.run(
        r#"SELECT kb.create_knowledge_base('k', 'hash', 'small', chunking => '{"size": 30, "overlap": 0}')"#,
    );
    db.put_all("k", &texts::documents(0..20, 60));
    db.run("SELECT kb.wait('k', 60)");
    assert_sound(db, "k", 20, 0);
    let index =
        "pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relname LIKE '%_hnsw%' AND i.indisvalid";
    until(LONG, "the index is there and valid", || db.count(index) == 1);
    assert_eq!(db.count("pg_class WHERE relnamespace = 'kb'::regnamespace AND reltablespace <> 0"), 0);
    db.run("SELECT kb.delete_document('k', 'd1')");
    db.run("SELECT kb.ingest('k', 'replace')");
    db.run("SELECT kb.wait('k', 60)");
    until(LONG, "the old build is swept", || db.count("kb.builds WHERE state <> 'live'") == 0);
    assert_sound(db, "k", 19, 0);
}

#[test]
fn settings_of_the_database_have_no_say_in_what_the_worker_and_the_indexer_make() {
    let Some((_cluster, mut db, _)) = fixture() else { return };
    db.run("SELECT '[1]'::vector");
    let mut settings = SETTINGS.to_vec();
    settings.retain(|(name, _)| !["client_min_messages", "synchronous_commit"].contains(name));
    settings.extend([
        ("row_security", "off"),
        // Cascades are triggers, which a session in the role of a replica does not fire.
        ("session_replication_role", "replica"),
        ("statement_timeout", "1ms"),
        ("lock_timeout", "1ms"),
        ("idle_in_transaction_session_timeout", "1ms"),
        ("search_path", "public, pg_catalog"),
    ]);
    work(&mut db, &settings);
}

#[test]
fn a_worker_decides_itself_what_its_transactions_are_like() {
    let Some((_cluster, mut db, _)) = fixture() else { return };
    work(
        &mut db,
        &[
            ("default_transaction_isolation", "serializable"),
            ("default_transaction_read_only", "on"),
            ("default_transaction_deferrable", "on"),
        ],
    );
}

/// The lines of the log about statements of such a process that were compiled.
fn compiled(cluster: &Cluster, process: &str) -> Vec<String> {
    let log = cluster.log();
    let lines = log.lines().filter(|line| line.contains("time to inline") && line.contains(process));
    lines.map(String::from).collect()
}

#[test]
fn no_statement_of_kb_is_compiled_whatever_it_is_estimated_to_cost() {
    let (cluster, mut db) = crate::connected!("log_min_messages = debug1", "jit_above_cost = 0");
    // The server has a compiler, and this statement uses it.
    db.run("SELECT count(*) FROM pg_class");
    if compiled(&cluster, "client backend").is_empty() {
        return eprintln!("this server has no JIT compiler");
    }
    db.create_kb("k", "hash", r#"{"size": 30, "overlap": 0}"#);
    db.put_all_and_wait("k", &texts::documents(0..5, 60));
    assert_eq!(compiled(&cluster, "kb worker"), [""; 0]);
    // The session itself runs only plain expressions in PL/pgSQL, which are never compiled, so any compiled
    // statement would be kb's.
    let before = compiled(&cluster, "client backend");
    db.run(
        "DO $$ DECLARE answer text; BEGIN
             answer := kb.put_document('k', 'new', 'Ships lie in the harbor.');
             answer := kb.delete_document('k', 'new');
         END $$",
    );
    assert_eq!(compiled(&cluster, "client backend"), before);
}

#[test]
fn a_worker_keeps_its_role_whatever_role_the_database_sets() {
    for setting in ["role", "session_authorization"] {
        let Some((cluster, mut db, _)) = fixture() else { return };
        db.run("CREATE ROLE nobody");
        work(&mut db, &[(setting, "nobody")]);
        assert!(!cluster.log().contains("permission denied"), "{setting}: {}", cluster.log());
    }
}

#[test]
fn a_superuser_in_mode_replica_leaves_no_orphaned_rows() {
    let Some((_cluster, mut db, _)) = fixture() else { return };
    db.create_kb("k", "hash", r#"{"size": 30, "overlap": 0}"#);
    db.put_all_and_wait("k", &texts::documents(0..10, 60));
    db.run("SET session_replication_role = 'replica'");
    db.run("SELECT kb.delete_document('k', 'd1')");
    db.put_and_wait("k", "d2", "Another text.");
    db.run("RESET session_replication_role");
    assert_sound(&mut db, "k", 9, 0);
    db.run("SET session_replication_role = 'replica'");
    db.run("SELECT kb.drop_knowledge_base('k')");
    for table in ["knowledge_bases", "builds", "documents", "chunks", "jobs", "runs"] {
        assert_eq!(db.count(&format!("kb.{table}")), 0, "{table}");
    }
}
