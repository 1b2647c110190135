//! Statements of kb use kb's own names: its SQL means the names of pg_catalog, although others create the
//! same names. Names are found in the source and functions in the catalog, so that new ones are covered.

use crate::support::shadows::PATHS;
use crate::support::shadows::names::Names;
use crate::support::shadows::surface::{self, Answer, Call};
use crate::support::{Cluster, Db, LONG, SOON, assert_sound, texts, until};
use std::collections::BTreeMap;

const DATABASE: &str = "shadowed";
/// A member of each group, an owner of the database who is no superuser, and a superuser.
const ROLES: &[&str] = &["reader", "writer", "admin", "boss", "postgres"];

/// A cluster with a database of `boss` that has some of everything, and a session of a superuser.
fn fixture() -> Option<(Cluster, Db)> {
    let cluster = Cluster::start(&["kb.source_dirs = '/usr'"])?;
    let mut postgres = cluster.connect("postgres");
    postgres.run("CREATE ROLE boss LOGIN");
    postgres.run(&format!("CREATE DATABASE {DATABASE} OWNER boss"));
    let mut db = cluster.connect(DATABASE).safe();
    db.run("CREATE SCHEMA ext; GRANT USAGE ON SCHEMA ext TO PUBLIC; CREATE EXTENSION vector SCHEMA ext; CREATE EXTENSION kb");
    for group in ["reader", "writer", "admin"] {
        db.run(&format!("CREATE ROLE {group} LOGIN IN ROLE kb_{group}"));
    }
    db.run("GRANT kb_admin TO boss");
    for id in ["tiny", "spare"] {
        db.run(&format!("SELECT kb.create_embedder('{id}', 'hash', dimension => 16)"));
    }
    // This provider does not exist, so questions are answered by keyword.
    db.run(
        r#"SELECT kb.create_embedder('gone', 'openai', 'model', 16, 'http://127.0.0.1:1/v1', config => '{"retry": {"max_attempts": 1}}')"#,
    );
    // It does not exist, either: a check says so.
    for id in ["talker", "spare"] {
        db.run(&format!(
            r#"SELECT kb.create_llm('{id}', 'openai', base_url => 'http://127.0.0.1:1/v1', config => '{{"retry": {{"max_attempts": 1}}}}')"#
        ));
    }
    db.run("SELECT kb.create_extractor('scanner', 'tika', base_url => 'http://127.0.0.1:1')");
    db.run(r#"SELECT kb.create_reranker('judge', 'llm', config => '{"llm": "talker"}')"#);
    for (id, config) in [("shared", "{}"), ("spare", "{}"), ("indexed", r#"{"min_rows": 5}"#)] {
        db.run(&format!("SELECT kb.create_vector_db('{id}', dimension => 16, config => '{config}')"));
    }
    db.run("SELECT kb.set_secret('key', 'sk-of-nobody')");
    for (id, embedder, vector_db) in [("k", "tiny", "'shared'"), ("words", "gone", "NULL")] {
        db.run(&format!(
            r#"SELECT kb.create_knowledge_base('{id}', '{embedder}', {vector_db}, chunking => '{{"size": 30, "overlap": 0}}',
                   preprocess => '{{"language": "english"}}')"#
        ));
        for i in 0..5 {
            db.run(&format!(
                r#"SELECT kb.put_document('{id}', 'd{i}', 'Ships were running to the harbor. {}', '{{"n": 1, "tags": ["a"]}}')"#,
                texts::paragraph(i, 60)
            ));
        }
    }
    db.run(surface::ATTACHED);
    db.run(r#"SELECT kb.create_source('k', 'folder', 'files', '{"path": "*"}')"#);
    db.run_and_wait("k", "SELECT kb.ingest('k')");
    let chunked = "kb.documents d JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'words'
        AND EXISTS (SELECT FROM kb.chunks c WHERE c.document_id = d.document_id)";
    until(SOON, "documents are chunked", || db.count(chunked) == 5);
    Some((cluster, db))
}

/// The whole surface as each role, under each search path, in sessions with temporary shadows.
fn play_all(cluster: &Cluster, calls: &[Call], expected: &BTreeMap<String, Answer>, lie: Option<&str>) {
    let mut wrong = Vec::new();
    for role in ROLES {
        for path in PATHS {
            let mut session = cluster.connect_as(DATABASE, role).safe();
            session.make_temporary_shadows(lie);
            session.run(&format!("SET search_path = {path}"));
            // Hostile calls are made once per role.
            let is_last = path == PATHS.last().unwrap();
            let answers = surface::play(&mut session, calls.iter().filter(|c| c.is_plausible || is_last));
            for call in calls.iter().filter(|c| c.is_plausible) {
                let (answer, expected) = (&answers[&call.sql], &expected[&call.sql]);
                let is_right = match (answer, expected) {
                    (Err(fault), _) if *role != "postgres" => fault.code == "42501",
                    (Ok(rows), Ok(expected)) => rows == expected || !call.is_repeatable,
                    _ => false,
                };
                if !is_right {
                    wrong.push(format!("{role}, search_path {path}: {}\n    {answer:?}", call.sql));
                }
            }
        }
    }
    let evidence = cluster.evidence();
    assert!(
        wrong.is_empty(),
        "{} calls went wrong; evidence {evidence:#?}\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    cluster.assert_no_evidence();
}

/// The results of the calls when nothing is in the way; all work.
fn expected(db: &mut Db, calls: &[Call]) -> BTreeMap<String, Answer> {
    let answers = surface::play(db, calls.iter().filter(|call| call.is_plausible));
    for (sql, answer) in &answers {
        assert!(answer.is_ok(), "teach surface::plausible sensible arguments for this: {sql}: {answer:?}");
    }
    answers
}

fn question() -> Call {
    Call {
        sql: "SELECT external_id, content FROM kb.query('words', 'a ship runs', options => '{\"on_error\": \"keyword\"}')".into(),
        is_plausible: true,
        is_repeatable: true,
    }
}

#[test]
fn the_names_of_kbs_sql_are_found_in_its_source() {
    let names = Names::of_kb();
    for word in [
        "text",
        "uuid",
        "jsonb",
        "regconfig",
        "regclass",
        "xid8",
        "bytea",
        "date", // types
        "count",
        "now",
        "unnest",
        "nextval",
        "to_tsvector",
        "phraseto_tsquery",
        "format",
        "sum",
        "md5", // functions
        "jobs",
        "documents",
        "pg_class",
        "pg_extension", // relations
        "=",
        "<>",
        "<",
        ">",
        "<=",
        ">=",
        "+",
        "-",
        "*",
        "/",
        "||",
        "@>",
        "->",
        "@@",
        ">>",
        "<<", // operators
    ] {
        assert!(names.words.contains(word), "{word} is not found");
    }
    for cast in ["text", "bigint", "regconfig", "uuid", "jsonb", "xid"] {
        assert!(names.casts.contains(cast), "::{cast} is not found");
    }
    let Some((_cluster, mut db)) = fixture() else { return };
    db.learn_names();
    db.make_shadows("public", None);
    for (kind, name, signature) in [
        ("function", "now", ""),
        ("function", "unnest", "text[]"),
        ("function", "round", "double precision, integer"),
        ("function", "format", "text, text"),
        ("aggregate", "count", "*"),
        ("aggregate", "sum", "integer"),
        ("operator", "=", "text, character varying"),
        ("operator", "=", "bigint, bigint"),
        ("operator", "+", "double precision, integer"),
        ("operator", "/", "bigint, numeric"),
        ("operator", "||", "text, bigint"),
        ("operator", "@>", "jsonb, jsonb"),
    ] {
        let made = db
            .count(&format!("evil.made WHERE (kind, name, signature) = ('{kind}', '{name}', '{signature}')"));
        // pg_catalog has no function for round(double precision, integer).
        assert_eq!(made, i64::from(name != "round"), "{kind} {name}({signature})");
    }
    assert!(db.count("pg_type WHERE typnamespace = 'public'::regnamespace AND typtype = 'd'") > 10);
    assert!(db.count("pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'v'") > 10);
}

#[test]
fn a_shadow_that_is_called_leaves_evidence() {
    let Some((cluster, mut db)) = fixture() else { return };
    db.learn_names();
    db.make_shadows("public", None);
    let mut session = cluster.connect_as(DATABASE, "reader").safe();
    session.make_temporary_shadows(None);
    session.run("SET search_path = pg_temp, public, pg_catalog");
    for (sql, what) in [
        ("SELECT 'x'::text", "type pg_temp.text"),
        ("SELECT * FROM pg_class LIMIT 1", "relation pg_temp.pg_class"),
        ("SELECT now()", "function public.now()"),
        ("SELECT count(*) FROM kb.builds", "aggregate public.count(*)"),
        ("SELECT 1 + 1", "operator public.+(integer, integer)"),
        (
            "BEGIN; SELECT 1.5::pg_catalog.float8 + 1; ROLLBACK",
            "operator public.+(double precision, integer)",
        ),
    ] {
        session.run(sql);
        let found = cluster.evidence();
        assert!(
            found.keys().any(|key| key.starts_with(&format!("{what} by reader as reader"))),
            "{what}: {found:?}"
        );
    }
}

#[test]
fn no_function_or_view_calls_a_shadow_of_a_name_that_kb_uses() {
    let Some((cluster, mut db)) = fixture() else { return };
    let mut calls = surface::calls(&mut db);
    calls.push(question());
    assert!(calls.iter().filter(|call| call.is_plausible).count() > 45);
    let expected = expected(&mut db, &calls);
    assert!(expected[&question().sql].as_ref().unwrap().len() > 2, "{expected:?}");
    db.learn_names();
    db.make_shadows("public", None);
    db.run("SELECT evil.shadow_languages('public')");
    play_all(&cluster, &calls, &expected, None);
}

/// The result of a shadow is read as the type that kb expects: read as another type, it would be another's
/// memory.
fn no_lie_is_believed(types: &[&str]) {
    for lie in types {
        let Some((cluster, mut db)) = fixture() else { return };
        let mut calls = surface::calls(&mut db);
        calls.push(question());
        let expected = expected(&mut db, &calls);
        db.learn_names();
        db.make_shadows("public", Some(lie));
        play_all(&cluster, &calls, &expected, Some(lie));
    }
}

#[test]
fn a_shadow_that_is_or_returns_an_integer_is_read_as_nothing_else() {
    no_lie_is_believed(&["bigint", "integer"]);
}

#[test]
fn a_shadow_that_is_or_returns_a_text_is_read_as_nothing_else() {
    no_lie_is_believed(&["text"]);
}

/// Puts, edits, failures, runs, an index and a drop, as this role in a session full of shadows.
fn day(cluster: &Cluster, watch: &mut Db, role: &str) {
    let mut session = cluster.connect_as(DATABASE, role).safe();
    session.make_temporary_shadows(None);
    session.run(&format!("SET kb.tenant = '{role}'; SET search_path = {}", PATHS[2]));
    let mut run = |sql: &str| session.run(sql);
    let put = |kb: &str, id: &str, text: &str| format!("SELECT kb.put_document('{kb}', '{id}', '{text}')");
    run(
        r#"SELECT kb.create_knowledge_base('own', 'tiny', chunking => '{"size": 30, "overlap": 0}', preprocess => '{"language": "english"}')"#,
    );
    run(
        r#"SELECT kb.create_knowledge_base('indexed', 'tiny', 'indexed', chunking => '{"strategy": "none"}')"#,
    );
    run(r#"SELECT kb.create_knowledge_base('failing', 'minilm', chunking => '{"strategy": "none"}')"#);
    for i in 0..8 {
        run(&put("own", &format!("d{i}.md"), &format!("# Title {i}\n\n{}", texts::text(i, 3, 30))));
        run(&put(
            "indexed",
            &format!("d{i}.html"),
            &format!("<h1>Title</h1><p>{}</p>", texts::paragraph(i, 10)),
        ));
    }
    run(&put("failing", "long", &"too long ".repeat(400)));
    for kb in ["own", "indexed", "failing"] {
        run(&format!("SELECT kb.wait('{kb}', 180)"));
    }
    let count = |watch: &mut Db, what: &str| watch.count(&format!("kb.failures WHERE {what}"));
    assert_eq!(count(watch, &format!("tenant_id = '{role}'")), 1, "{role}");
    run("SELECT kb.retry('failing')");
    run("SELECT kb.wait('failing', 180)");
    let table: String = watch.one("SELECT table_name FROM kb.vector_dbs WHERE id = 'indexed'");
    until(LONG, "the index is there and valid", || {
        watch.count(&format!(
            "pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relname LIKE '{table}_hnsw%' AND i.indisvalid"
        )) == 1
    });
    // An edit in the middle, one that changes nothing, and one that removes a document.
    run(&put("own", "d1.md", &format!("# Title 1\n\nA new beginning.\n\n{}", texts::text(1, 3, 30))));
    run(&put("own", "d2.md", &format!("# Title 2\n\n{}", texts::text(2, 3, 30))));
    run("SELECT kb.delete_document('own', 'd3.md')");
    run("SELECT kb.wait('own', 180)");
    // Other settings: document by document, then beside the existing build.
    run(r#"SELECT kb.alter_knowledge_base('own', chunking => '{"strategy": "semantic", "size": 50}')"#);
    run("SELECT kb.ingest('own', 'upsert')");
    run("SELECT kb.wait('own', 180)");
    run("SELECT kb.ingest('own', 'replace')");
    run("SELECT kb.wait('own', 180)");
    until(LONG, "the old build is swept", || {
        watch.count(&format!("kb.builds WHERE tenant_id = '{role}' AND state = 'old'")) == 0
            && watch.count(&format!("kb.runs WHERE tenant_id = '{role}' AND state = 'running'")) == 0
    });
    let languages = watch.count(&format!(
        "kb.chunks WHERE tenant_id = '{role}' AND terms IS DISTINCT FROM kb._terms(content, 'pg_catalog.english')"
    ));
    assert_eq!(languages, 0, "{role}: chunks whose words are not of the language");
    assert_sound(watch, "own", 7, 0);
    for kb in ["own", "indexed", "failing"] {
        run(&format!("SELECT kb.drop_knowledge_base('{kb}')"));
    }
    assert_eq!(watch.count(&format!("kb.documents WHERE tenant_id = '{role}'")), 0);
}

#[test]
fn no_shadow_is_called_by_the_worker_or_the_indexer_in_a_day_of_any_role() {
    let Some((cluster, mut db)) = fixture() else { return };
    db.learn_names();
    db.make_shadows("public", None);
    db.run("SELECT evil.shadow_languages('public')");
    // The settings of the database, and of the superuser as whom workers connect, apply to workers.
    db.run(&format!("ALTER DATABASE {DATABASE} SET search_path = public, pg_catalog"));
    db.run("ALTER ROLE postgres SET search_path = public, pg_catalog");
    let worker = cluster.worker(DATABASE);
    db.run(&format!("SELECT pg_terminate_backend({worker})"));
    until(SOON, "the worker has left", || cluster.processes("kb worker", Some(DATABASE)) != [worker]);
    cluster.without_evidence(|| {
        for role in ["writer", "admin", "boss", "postgres"] {
            day(&cluster, &mut db, role);
        }
    });
}
