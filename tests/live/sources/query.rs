//! A source of type query: its rows are documents, read with the rights of the role that created it, and
//! nothing that a query does harms anybody else.

use super::{counts, failures, ingest, ready};
use crate::support::{APP, Cluster, Db, SOON, until};

/// A cluster with knowledge base k, and a role w that may write and has a schema of its own.
fn with_writer() -> Option<(Cluster, Db, Db)> {
    let (cluster, mut db) = Cluster::connected(&[])?;
    db.create_kb("k", "hash", "{}");
    db.run("CREATE ROLE w LOGIN IN ROLE kb_writer; CREATE SCHEMA w AUTHORIZATION w");
    let w = cluster.connect_as(APP, "w");
    Some((cluster, db, w))
}

fn create(db: &mut Db, name: &str, query: &str, more: &str) -> Result<i64, String> {
    let mut config: serde_json::Value = serde_json::from_str(more).unwrap();
    config["query"] = query.into();
    let sql = "SELECT kb.create_source('k', $1, 'query', $2::text::jsonb)";
    let created = db.0.query_one(sql, &[&name, &config.to_string()]);
    created.map(|row| row.get(0)).map_err(|error| {
        let error = error.as_db_error().unwrap();
        format!("{} {}: {}", error.code().code(), error.message(), error.detail().unwrap_or_default())
    })
}

fn error(db: &mut Db, name: &str) -> Option<String> {
    db.one(&format!("SELECT error FROM kb.sources WHERE name = '{name}'"))
}

/// The most memory that the worker has had, in kB.
fn peak_memory(cluster: &Cluster) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", cluster.worker(APP))).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn rows_of_a_query_become_documents_that_follow_it_and_old_ones_are_not_read() {
    let Some((_cluster, mut db, mut w)) = with_writer() else { return };
    w.run(
        "CREATE TABLE w.a (id integer, body text, of text, at timestamptz);
         CREATE TABLE w.b (id integer, name text);
         INSERT INTO w.a VALUES (1, 'One', 'x', '2026-01-01'), (2, 'Two', 'y', '2026-01-01'), (3, NULL, 'z', NULL);
         INSERT INTO w.b VALUES (1, 'First'), (2, NULL)",
    );
    let query = "SELECT a.id::text AS external_id, a.body AS content, b.name AS title, 'row:' || a.id AS uri,
         jsonb_build_object('of', a.of, 'n', 12345678901234567890) AS metadata, a.at AS updated_at
         FROM w.a LEFT JOIN w.b USING (id)";
    create(&mut w, "q", query, r#"{"metadata": {"of": "all", "by": "query"}}"#).unwrap();
    let run_no = ingest(&mut db);
    assert_eq!(ready(&mut db), ["q/1=One", "q/2=Two"]);
    assert_eq!(counts(&mut db, run_no), [2, 2, 0, 0, 0, 0]);
    assert_eq!(
        db.all::<String>(
            "SELECT concat_ws(' ', title, uri, metadata) FROM kb.documents ORDER BY external_id"
        ),
        [
            r#"First row:1 {"n": 12345678901234567890, "by": "query", "of": "x"}"#,
            r#"row:2 {"n": 12345678901234567890, "by": "query", "of": "y"}"#
        ]
    );
    assert_eq!(db.found("k", "Two", 1), ["q/2"]);
    // A row whose updated_at is as it was is not read, one with another is, even an older one.
    w.run("UPDATE w.a SET body = 'Not read' WHERE id = 1; UPDATE w.a SET body = 'Older', at = '2025-01-01' WHERE id = 2;
           INSERT INTO w.a VALUES (4, 'Four', 'x', '2024-01-01')");
    let run_no = ingest(&mut db);
    assert_eq!(ready(&mut db), ["q/1=One", "q/2=Older", "q/4=Four"]);
    assert_eq!(counts(&mut db, run_no), [3, 1, 1, 1, 0, 0]);
    // Rows that are gone, and one that has no content any more.
    w.run("DELETE FROM w.a WHERE id = 2; UPDATE w.a SET body = NULL, at = now() WHERE id = 4");
    let run_no = ingest(&mut db);
    assert_eq!(ready(&mut db), ["q/1=One"]);
    assert_eq!(counts(&mut db, run_no), [3, 0, 0, 1, 2, 0]);
    // cleanup full reads everything; so does a source that was altered.
    let alter = |query: &str, cleanup: &str| {
        let config = serde_json::json!({"query": query, "cleanup": cleanup});
        format!("SELECT kb.alter_source('k', 'q', '{}')", config.to_string().replace('\'', "''"))
    };
    w.run(&alter(query, "full"));
    ingest(&mut db);
    assert_eq!(ready(&mut db), ["q/1=Not read"]);
    // Without updated_at, a row is read when it has changed.
    w.run(&alter("SELECT id::text AS external_id, body AS content FROM w.a", "incremental"));
    ingest(&mut db);
    w.run("UPDATE w.a SET body = 'Read' WHERE id = 1; INSERT INTO w.a VALUES (5, 'Five')");
    let run_no = ingest(&mut db);
    assert_eq!(ready(&mut db), ["q/1=Read", "q/5=Five"]);
    assert_eq!(counts(&mut db, run_no), [2, 1, 1, 0, 0, 0]);
    let run_no = ingest(&mut db);
    assert_eq!(counts(&mut db, run_no), [2, 0, 0, 2, 0, 0]);
    assert_eq!(error(&mut db, "q"), None);
}

#[test]
fn a_query_is_one_select_with_known_columns_or_is_refused() {
    let Some((_cluster, mut db, mut w)) = with_writer() else { return };
    w.run("CREATE TABLE w.t (id text, body text); CREATE TABLE w.kept (id text)");
    let some = "'a'::text AS external_id, 'b'::text AS content";
    for (query, says) in [
        ("SELECT 1; DROP TABLE w.kept".to_string(), "multi-query"),
        (format!("SELECT {some}; SELECT {some}"), "multi-query"),
        ("DROP TABLE w.kept".into(), "DROP TABLE"),
        ("INSERT INTO w.kept VALUES ('a') RETURNING id AS external_id, id AS content".into(), "INSERT"),
        (format!("WITH d AS (DELETE FROM w.kept RETURNING id) SELECT {some} FROM d"), "not allowed"),
        (format!("SELECT {some} INTO w.new"), "cursor"),
        ("SELECT id AS external_id, body AS content FROM w.t FOR UPDATE".into(), "not allowed"),
        ("SHOW ALL".into(), "not allowed"),
        (format!("EXPLAIN ANALYZE SELECT {some}"), "not allowed"),
        ("SELECT id AS external_id, body AS content FROM t".into(), "names need their schemas"),
        ("SELECT id AS external_id, body AS content FROM pg_catalog.pg_authid".into(), "does not exist"),
        (
            "SELECT rolname::text AS external_id, rolpassword AS content FROM pg_catalog.pg_authid".into(),
            "permission denied",
        ),
        ("SELECT 1 AS external_id, 'x'::text AS content".into(), "external_id must have type text"),
        ("SELECT 'a'::text AS external_id, '{}'::jsonb AS content".into(), "content must have type text"),
        (format!("SELECT {some}, '{{}}'::json AS metadata"), "metadata must have type jsonb"),
        (format!("SELECT {some}, 1 AS updated_at"), "updated_at must have type timestamp with time zone"),
        (format!("SELECT {some}, 1 AS other"), "column other is unknown"),
        (format!("SELECT {some}, 'x'::text AS content"), "content appears twice"),
        ("SELECT 'a'::text AS external_id".into(), "content is missing"),
        ("SELECT $1::text AS external_id, 'x'::text AS content".into(), "parameter"),
        ("SELECT 'a".into(), "unterminated"),
        ("".into(), "config.query"),
    ] {
        let refused = create(&mut w, "q", &query, "{}").unwrap_err();
        assert!(refused.starts_with("22023") && refused.contains(says), "{query}: {refused}");
    }
    // All problems are listed.
    let refused =
        create(&mut w, "q/q", "SELECT 1 AS other", r#"{"every": "x", "path": "*.md"}"#).unwrap_err();
    for part in ["name:", "config.path"] {
        assert!(refused.contains(part), "{refused}");
    }
    assert_eq!(db.count("w.kept") + db.count("kb.sources"), 0);
    // A comment at the end, a semicolon and WITH are no problem.
    for (name, query) in [
        ("a", "SELECT 'a'::varchar AS external_id, 'A'::char(1) AS content; -- the end"),
        (
            "b",
            "WITH x AS (SELECT 'b'::text AS external_id) SELECT external_id, 'B'::text AS content FROM x /* */",
        ),
        ("c", "VALUES ('c'::text, 'C'::text)"),
    ] {
        let created = create(&mut w, name, query, "{}");
        assert_eq!(created.is_ok(), name != "c", "{name}: {created:?}");
    }
    ingest(&mut db);
    assert_eq!(ready(&mut db), ["a/a=A", "b/b=B"]);
}

#[test]
fn a_query_reads_with_the_rights_of_its_creator_as_they_are_and_under_policies() {
    let Some((cluster, mut db, mut w)) = with_writer() else { return };
    db.run(
        "CREATE TABLE t (id text, body text, who name); GRANT SELECT ON t TO w; ALTER TABLE t ENABLE ROW LEVEL SECURITY;
         CREATE POLICY own ON t USING (who = current_user);
         INSERT INTO t VALUES ('mine', 'Mine', 'w'), ('theirs', 'Secret', 'postgres')",
    );
    let query = "SELECT id AS external_id, body AS content FROM public.t";
    create(&mut w, "q", query, "{}").unwrap();
    // Created in a session of a superuser that acts as w.
    db.run("SET ROLE w");
    create(&mut db, "r", query, "{}").unwrap();
    db.run("RESET ROLE");
    ingest(&mut db);
    assert_eq!(ready(&mut db), ["q/mine=Mine", "r/mine=Mine"]);
    assert_eq!(db.all::<String>("SELECT DISTINCT role_name::text FROM kb.sources"), ["w"]);
    // Rights that it has lost are lost; its documents stay.
    db.run("REVOKE SELECT ON t FROM w");
    ingest(&mut db);
    assert!(error(&mut db, "q").unwrap().contains("permission denied"), "{:?}", error(&mut db, "q"));
    assert_eq!(ready(&mut db), ["q/mine=Mine", "r/mine=Mine"]);
    db.run("GRANT SELECT ON t TO w; UPDATE t SET body = 'More' WHERE who = 'w'");
    ingest(&mut db);
    assert_eq!(
        (ready(&mut db), error(&mut db, "q")),
        (vec!["q/mine=More".into(), "r/mine=More".into()], None)
    );
    // Another role of the same name is not the creator, whatever it may do.
    drop(w);
    db.run("REVOKE ALL ON t FROM w; DROP SCHEMA w; DROP ROLE w");
    ingest(&mut db);
    assert!(error(&mut db, "q").unwrap().contains("does not exist any more"));
    db.run("CREATE ROLE w SUPERUSER LOGIN");
    ingest(&mut db);
    assert!(error(&mut db, "q").unwrap().contains("does not exist any more"));
    assert_eq!(ready(&mut db), ["q/mine=More", "r/mine=More"]);
    // Whoever alters it is the creator from then on.
    db.run("DROP ROLE w; CREATE ROLE v LOGIN IN ROLE kb_writer; GRANT SELECT ON t TO v; UPDATE t SET who = 'v' WHERE id = 'theirs'");
    let mut v = cluster.connect_as(APP, "v");
    v.run(&format!("SELECT kb.alter_source('k', 'q', '{{\"query\": \"{query}\"}}')"));
    ingest(&mut db);
    assert_eq!(ready(&mut db), ["q/theirs=Secret", "r/mine=More"]);
    // The other types still need kb_admin.
    for kind in ["files", "markdown_glob"] {
        v.refused(&format!("SELECT kb.create_source('k', 'f', '{kind}', '{{\"path\": \"*.md\"}}')"), "42501");
    }
    v.run("SET ROLE kb_reader");
    v.refused("SELECT kb.create_source('k', 'f', 'query', '{}')", "42501");
}

#[test]
fn what_a_query_tries_besides_reading_fails_and_its_errors_show_no_row() {
    let Some((_cluster, mut db, mut w)) = with_writer() else { return };
    w.run(
        "CREATE TABLE w.t (id text, body text); INSERT INTO w.t VALUES ('a', 'secret'), ('b', 'B'); CREATE SEQUENCE w.s;
         CREATE FUNCTION w.writes() RETURNS text LANGUAGE sql AS $$INSERT INTO w.t VALUES ('c', 'C') RETURNING 'x'$$;
         CREATE FUNCTION w.commits() RETURNS text LANGUAGE plpgsql AS $$BEGIN COMMIT; RETURN 'x'; END$$;
         CREATE FUNCTION w.raises(body text) RETURNS text LANGUAGE plpgsql AS
             $$BEGIN RAISE 'column % does not exist', body USING ERRCODE = '42703'; END$$;
         CREATE TABLE w.gone (id text, body text);
         CREATE FUNCTION w.read_write() RETURNS text LANGUAGE plpgsql AS
             $$BEGIN SET transaction_read_only = off; INSERT INTO w.t VALUES ('c', 'C'); RETURN 'x'; END$$",
    );
    let hostile = [
        ("writes", "w.writes()", "25006"),
        ("commits", "w.commits()", "2D000"),
        ("read_write", "w.read_write()", "25001"),
        ("number", "nextval('w.s')::text", "25006"),
        ("role", "set_config('role', 'postgres', false)", "42501"),
        ("user", "set_config('session_authorization', 'postgres', false)", "42501"),
        ("temp", "(SELECT query_to_xml('CREATE TEMP TABLE x AS SELECT 1', false, false, '')::text)", ""),
        ("value", "(body::integer)::text", "22P02"),
        // Errors about names that are values.
        ("relation", "(body::regclass)::text", "42P01"),
        ("type", "(body::regtype)::text", "42704"),
        ("raise", "w.raises(body)", "42703"),
    ];
    for (name, call, _) in hostile {
        create(&mut w, name, &format!("SELECT id AS external_id, {call} AS content FROM w.t"), "{}").unwrap();
    }
    create(&mut w, "good", "SELECT id AS external_id, body AS content FROM w.t", "{}").unwrap();
    create(&mut w, "names", "SELECT id AS external_id, body AS content FROM w.gone", "{}").unwrap();
    w.run("DROP TABLE w.gone");
    let run_no = ingest(&mut db);
    for (name, _, code) in hostile {
        let error = error(&mut db, name).unwrap_or_default();
        assert!(error.contains(code), "{name}: {error}");
        assert!(error.contains("the query fails") && !error.contains("secret"), "{name}: {error}");
    }
    // A name in the query itself is told.
    let names = error(&mut db, "names").unwrap_or_default();
    assert!(names.contains("relation \"w.gone\" does not exist"), "{names}");
    let warnings: Vec<String> =
        db.all(&format!("SELECT unnest(warnings) FROM kb.runs WHERE run_no = {run_no}"));
    assert!(warnings.len() >= hostile.len() && !warnings.join(" ").contains("secret"), "{warnings:?}");
    assert_eq!(ready(&mut db), ["good/a=secret", "good/b=B"]);
    assert_eq!((w.count("w.t"), w.one::<bool>("SELECT is_called FROM w.s")), (2, false));
    // Rows that cannot be told from others.
    w.run("DELETE FROM w.t; INSERT INTO w.t VALUES (NULL, 'No id'), ('', 'Empty'), ('d', 'One'), ('d', 'Two'), ('e', 'E')");
    ingest(&mut db);
    let says = error(&mut db, "good").unwrap();
    assert!(
        says.contains("2 rows without external_id") && says.contains("no document was deleted"),
        "{says}"
    );
    // b is still there, because the rows without external_id may be those.
    assert_eq!(ready(&mut db), ["good/a=secret", "good/b=B", "good/e=E"]);
    let failed = failures(&mut db);
    assert!(
        failed.len() == 1 && failed[0].contains("good/d: ") && failed[0].contains("several rows"),
        "{failed:?}"
    );
    w.run("DELETE FROM w.t WHERE id IS NULL OR id = '' OR body = 'Two'");
    ingest(&mut db);
    assert_eq!(
        (ready(&mut db), error(&mut db, "good")),
        (vec!["good/d=One".into(), "good/e=E".into()], None)
    );
    // A text that is too long for a document, metadata that is none, an id that is too long.
    w.run("DELETE FROM w.t; INSERT INTO w.t VALUES (repeat('i', 3000), 'Long'), ('x', 'X'), ('y', 'Y'), ('z', repeat('z', 3000))");
    db.run("ALTER SYSTEM SET kb.max_document_size = '2kB'");
    db.run("SELECT pg_reload_conf()");
    let query = "SELECT id AS external_id, body AS content, CASE id WHEN ''x'' THEN ''[1]'' ELSE ''{}'' END::jsonb AS metadata FROM w.t";
    w.run(&format!("SELECT kb.alter_source('k', 'good', '{{\"query\": \"{query}\"}}')"));
    until(SOON, "the setting is read", || {
        ingest(&mut db);
        failures(&mut db).len() == 3
    });
    assert_eq!(ready(&mut db), ["good/y=Y"]);
}

#[test]
fn a_query_without_end_is_stopped_and_what_it_returned_is_kept() {
    let Some((cluster, mut db, mut w)) = with_writer() else { return };
    let query = "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)
         SELECT n::text AS external_id, CASE WHEN n <= 2 THEN 'Text ' || n END AS content FROM r";
    create(&mut w, "q", query, "{}").unwrap();
    ingest(&mut db);
    let says = error(&mut db, "q").unwrap();
    assert!(says.contains("took longer than 10 s") && says.contains("no document was deleted"), "{says}");
    assert_eq!(ready(&mut db), ["q/1=Text 1", "q/2=Text 2"]);
    let peak = peak_memory(&cluster);
    assert!(peak < 400_000, "{peak} kB");
    // It rests twenty times as long, also under the next worker, while other work goes on.
    db.run("SELECT kb.ingest('k')");
    let waits = "kb.jobs WHERE kind = 'source' AND next_attempt_at > now() + '60 s'";
    until(SOON, "the source rests", || db.count(waits) == 1);
    db.create_kb("other", "hash", "{}");
    db.put_and_wait("other", "d", "Something else.");
    assert_eq!(db.count(waits), 1);
}

#[test]
fn a_query_of_a_million_rows_takes_little_memory_and_more_are_refused() {
    let Some((cluster, mut db, mut w)) = with_writer() else { return };
    // All rows have the same external_id, so that none is a document.
    let query = "SELECT 'same' AS external_id, 'Text ' || n AS content FROM generate_series(1, 2000000) n";
    create(&mut w, "q", query, "{}").unwrap();
    ingest(&mut db);
    let says = error(&mut db, "q").unwrap();
    // On a slow machine, the time is over first.
    assert!(says.contains("more than 1000000 rows") || says.contains("longer than 10 s"), "{says}");
    assert_eq!((ready(&mut db).len(), failures(&mut db).len()), (0, 1));
    let peak = peak_memory(&cluster);
    assert!(peak < 500_000, "{peak} kB");
}
