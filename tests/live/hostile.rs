//! Callers who put their own code and types in the way: none of it runs in kb's statements, crashes the
//! server, or changes what belongs to others. shadows.rs tests the names that kb uses; this file shows how
//! they were misused.

use crate::support::shadows::surface;
use crate::support::{APP, Db, SOON, WHOLE, until};

/// The time at which this server was started, which changes when one of its processes crashes.
fn started(db: &mut Db) -> String {
    db.one("SELECT pg_catalog.pg_postmaster_start_time()::text || (SELECT min(backend_start) FROM pg_stat_activity WHERE backend_type = 'checkpointer')::text")
}

#[test]
fn a_temporary_type_over_another_is_never_read_as_what_it_is_named_after() {
    let cluster = crate::cluster!("kb.source_dirs = '/usr'");
    let mut db = cluster.connect(APP).safe();
    for id in ["tiny", "spare"] {
        db.run(&format!("SELECT kb.create_embedder('{id}', 'hash', dimension => 16)"));
        let vector_db = if id == "tiny" { "shared" } else { id };
        db.run(&format!("SELECT kb.create_vector_db('{vector_db}', dimension => 16)"));
    }
    db.run(
        "SELECT kb.set_secret('key', 'sk-of-nobody'); SELECT kb.create_knowledge_base('k', 'tiny', 'shared')",
    );
    // No provider is there: a check says so.
    for id in ["talker", "spare"] {
        db.run(&format!(
            r#"SELECT kb.create_llm('{id}', 'openai', base_url => 'http://127.0.0.1:1/v1', config => '{{"retry": {{"max_attempts": 1}}}}')"#
        ));
    }
    db.run("SELECT kb.create_extractor('scanner', 'tika', base_url => 'http://127.0.0.1:1')");
    db.run(r#"SELECT kb.create_reranker('judge', 'llm', config => '{"llm": "talker"}')"#);
    db.put("k", "d1", "Ships were running to the harbor.");
    db.run(surface::ATTACHED);
    db.run(r#"SELECT kb.create_source('k', 'folder', 'files', '{"path": "*.md"}')"#);
    db.run_and_wait("k", "SELECT kb.ingest('k')");
    let calls = surface::calls(&mut db);
    let begun = started(&mut db);
    for group in ["reader", "writer", "admin"] {
        db.run(&format!("CREATE ROLE {group} LOGIN IN ROLE kb_{group}"));
    }
    db.learn_names();
    for base in
        ["bigint", "boolean", "double precision", "bytea", "jsonb", "integer[]", "numeric", "\"char\""]
    {
        for role in ["reader", "writer", "admin"] {
            let mut session = cluster.connect_as(APP, role).safe();
            session.make_temporary_shadows(Some(base));
            session.run("RESET search_path");
            let answers = surface::play(&mut session, calls.iter().filter(|call| call.is_plausible));
            for (sql, answer) in answers {
                let is_right = answer.as_ref().err().is_none_or(|fault| fault.code == "42501");
                assert!(is_right, "{role}, types over {base}: {sql}: {answer:?}");
            }
        }
    }
    assert_eq!(started(&mut db), begun, "the server was restarted");
    cluster.assert_no_evidence();
}

/// Asks so many different questions that not all of their plans are kept.
const NEST: &str = "
    DECLARE
        found bigint;
    BEGIN
        IF coalesce(pg_catalog.current_setting('test.is_nested', true), '') = 'yes' THEN RETURN TRUTH; END IF;
        PERFORM pg_catalog.set_config('test.is_nested', 'yes', false);
        FOR k IN 1 .. 400 LOOP
            SELECT count(*) INTO found FROM kb.query('k', 'where is the harbor?', k);
            ASSERT found = pg_catalog.least_of(k, 3);
        END LOOP;
        PERFORM pg_catalog.set_config('test.is_nested', 'no', false);
        PERFORM pg_catalog.set_config('test.nested', 'yes', false);
        RETURN TRUTH;
    END";

fn nest(truth: &str) -> String {
    NEST.replace("TRUTH", truth).replace("pg_catalog.least_of(k, 3)", "LEAST(k, 3)")
}

fn three_documents(db: &mut Db, kb: &str) {
    db.create_kb(kb, "hash", WHOLE);
    for id in ["a", "b", "c"] {
        db.put(kb, id, &format!("The harbor of {id}."));
    }
    db.wait(kb);
}

#[test]
fn a_domain_whose_check_asks_hundreds_of_questions_frees_no_plan_in_use() {
    let (cluster, mut db) = crate::connected!();
    three_documents(&mut db, "k");
    let begun = started(&mut db);
    db.run("CREATE ROLE reader LOGIN IN ROLE kb_reader");
    for _ in 0..3 {
        let mut session = cluster.connect_as(APP, "reader");
        session.run(&format!(
            "CREATE FUNCTION pg_temp.nest() RETURNS boolean LANGUAGE plpgsql AS $$ {} $$;
             CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (pg_temp.nest())",
            nest("true")
        ));
        for question in 1..20 {
            assert_eq!(session.count(&format!("kb.query('k', 'where is {question}?', 3)")), 3);
            session.run("SET test.is_nested = 'no'");
        }
        let nested: Option<String> = session.one("SELECT current_setting('test.nested', true)");
        assert_eq!(nested, None, "the caller's code was run in a statement of kb");
    }
    assert_eq!(started(&mut db), begun, "the server was restarted");
}

#[test]
fn statements_nested_in_one_of_kb_by_a_trigger_free_no_plan_in_use() {
    let (cluster, mut db) = crate::connected!();
    three_documents(&mut db, "k");
    db.create_kb("other", "hash", WHOLE);
    let begun = started(&mut db);
    // Only a superuser can do this: it is an example of code that may run inside a statement of kb.
    db.run(&format!(
        "CREATE FUNCTION nest() RETURNS trigger LANGUAGE plpgsql AS $$ {} $$;
         CREATE TRIGGER nest BEFORE INSERT OR UPDATE OR DELETE ON kb.documents FOR EACH ROW EXECUTE FUNCTION nest()",
        nest("coalesce(new, old)")
    ));
    db.run("CREATE ROLE writer LOGIN IN ROLE kb_writer");
    let mut session = cluster.connect_as(APP, "writer");
    for i in 0..2 {
        let documents: Vec<_> = (0..3)
            .map(|j| crate::support::db::Document::new(format!("d{j}"), format!("Text {i} of {j}.")))
            .collect();
        session.run("SET test.nested = 'no'");
        session.put_all("other", &documents);
        assert_eq!(session.one::<String>("SELECT current_setting('test.nested')"), "yes");
        session.run("SELECT kb.delete_document('other', 'd2')");
    }
    db.run("DROP TRIGGER nest ON kb.documents");
    session.wait("other");
    assert_eq!(
        session.count("kb.documents d JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'other'"),
        2
    );
    assert_eq!(started(&mut db), begun, "the server was restarted");
}

#[test]
fn a_superusers_question_calls_no_operator_that_somebody_made_in_public() {
    let (cluster, mut db) = crate::connected!();
    three_documents(&mut db, "k");
    db.run("GRANT CREATE ON SCHEMA public TO PUBLIC; CREATE ROLE mallory LOGIN");
    let mut mallory = cluster.connect_as(APP, "mallory");
    mallory.run(
        "CREATE FUNCTION public.plus(double precision, integer) RETURNS double precision LANGUAGE plpgsql AS $$
         BEGIN RAISE LOG 'shadow called: public.+ as %', current_user; RETURN 0; END $$;
         CREATE OPERATOR public.+ (LEFTARG = double precision, RIGHTARG = integer, FUNCTION = public.plus)",
    );
    cluster.without_evidence(|| {
        for arguments in ["", ", filter => '{}'", ", filter => '{\"a\": [1]}'", ", min_score => 0.0", ", 1"] {
            db.run(&format!("SELECT * FROM kb.query('k', 'where is the harbor?'{arguments})"));
        }
        db.run("SELECT * FROM kb.status");
        assert_eq!(db.found("k", "The harbor of b.", 1), ["b"]);
    });
}

/// Everything that belongs to others, table by table.
fn of_others(db: &mut Db, tenant: &str) -> Vec<(String, String)> {
    let tables: Vec<String> = db.all(
        "SELECT format('kb.%I', c.relname) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
         WHERE c.relnamespace = 'kb'::regnamespace AND c.relkind = 'r' AND a.attname = 'tenant_id' ORDER BY 1",
    );
    assert!(tables.len() > 8, "{tables:?}");
    tables
        .into_iter()
        .filter_map(|table| {
            let digest: Option<String> = db.one(&format!(
                "SELECT md5(string_agg(t::text, E'\\n' ORDER BY t::text)) FROM {table} t WHERE tenant_id <> '{tenant}'"
            ));
            digest.map(|digest| (table, digest))
        })
        .collect()
}

#[test]
fn a_tenants_own_operators_change_nothing_of_another() {
    let (cluster, mut db) = crate::connected!();
    db.run("CREATE ROLE a LOGIN IN ROLE kb_writer");
    for tenant in ["shared", "b"] {
        db.run(&format!("SET kb.tenant = '{tenant}'"));
        three_documents(&mut db, "k");
        three_documents(&mut db, "l");
    }
    // All operators, or only those that find rows by number: a knowledge base's builds and documents.
    for types in ["bigint,text,name,integer,boolean", "bigint", "text"] {
        for truth in ["true", "false"] {
            let schema = format!("\"{types} {truth}\"");
            db.run(&format!("CREATE SCHEMA {schema} AUTHORIZATION a; SET kb.tenant = 'a'"));
            three_documents(&mut db, "k");
            three_documents(&mut db, "l");
            let is_idle = "SELECT (SELECT count(*) FROM kb.jobs) + (SELECT count(*) FROM kb.runs WHERE state = 'running')
                + (SELECT count(*) FROM kb.builds WHERE state <> 'live') = 0
                AND (SELECT count(*) FROM pg_class WHERE relname ~ '^vectors_[0-9]+$' AND relkind = 'r')
                    = (SELECT count(*) FROM kb.builds)";
            until(SOON, "nothing is under way", || db.one(is_idle));
            let before = of_others(&mut db, "a");
            let mut a = cluster.connect_as(APP, "a");
            for ty in types.split(',') {
                a.run(&format!(
                    "CREATE FUNCTION {schema}.say({ty}, {ty}) RETURNS boolean LANGUAGE sql AS 'SELECT {truth}'"
                ));
                for operator in ["=", "<>", "<", ">", "<=", ">="] {
                    a.run(&format!(
                        "CREATE OPERATOR {schema}.{operator} (LEFTARG = {ty}, RIGHTARG = {ty}, FUNCTION = {schema}.say)"
                    ));
                }
            }
            a.run(&format!("SET kb.tenant = 'a'; SET search_path = {schema}, pg_catalog"));
            let mut faults = Vec::new();
            for statement in [
                r#"SELECT kb.alter_knowledge_base('k', chunking => '{"size": 7, "overlap": 0}')"#,
                "SELECT kb.ingest('k', 'upsert')",
                "SELECT kb.put_document('k', 'a', 'Another text of a.')",
                "SELECT kb.put_document('k', 'new', 'A new text of a.')",
                "SELECT kb.delete_document('k', 'b')",
                "SELECT kb.delete_documents('k', '{c,none}')",
                "SELECT kb.retry('k')",
                "SELECT kb.ingest('k', 'replace')",
                r#"SELECT kb.alter_knowledge_base('l', 'static', preprocess => '{"language": "german"}')"#,
                "SELECT kb.ingest('l', 'upsert')",
                "SELECT kb.wait('l', 60)",
                "SELECT kb.drop_knowledge_base('k')",
                "SELECT kb.create_knowledge_base('k', 'hash')",
                "SELECT kb.drop_knowledge_base('k')",
                "SELECT kb.drop_knowledge_base('l')",
            ] {
                faults.extend(a.try_run(statement).err().map(|fault| format!("{statement}: {fault:?}")));
            }
            until(SOON, "nothing is under way", || db.one(is_idle));
            assert_eq!(of_others(&mut db, "a"), before, "operators for {types} that are always {truth}");
            // Everything works as if the operators did not exist.
            assert_eq!(faults, [""; 0], "operators for {types} that are always {truth}");
            assert_eq!(db.count("kb.knowledge_bases WHERE tenant_id = 'a'"), 0);
        }
    }
}

#[test]
fn a_type_in_the_place_that_pgvector_has_left_is_not_taken_for_pgvectors() {
    let cluster = crate::cluster!("kb.worker_idle_timeout = '1h'");
    let mut postgres = cluster.connect("postgres");
    postgres.run("CREATE ROLE boss LOGIN");
    postgres.run("CREATE DATABASE theirs OWNER boss");
    let mut db = cluster.connect("theirs");
    db.run("CREATE EXTENSION kb CASCADE; GRANT kb_admin TO boss");
    three_documents(&mut db, "k");
    let worker = cluster.worker("theirs");
    assert_eq!(db.count("kb.query('k', 'where is the harbor?', 3)"), 3);
    db.run(
        "CREATE SCHEMA moved; GRANT USAGE ON SCHEMA moved TO kb_vectors, boss; ALTER EXTENSION vector SET SCHEMA moved",
    );
    // The owner of the database may create objects in public.
    let mut boss = cluster.connect_as("theirs", "boss");
    boss.run(
        "CREATE FUNCTION public.called() RETURNS boolean LANGUAGE plpgsql AS $$
             BEGIN RAISE LOG 'shadow called: public.vector as %', current_user; RETURN true; END $$;
         CREATE DOMAIN public.vector AS moved.vector CHECK (public.called());
         CREATE DOMAIN public.halfvec AS moved.halfvec CHECK (public.called());
         CREATE FUNCTION public.distance(moved.vector, moved.vector) RETURNS double precision LANGUAGE sql AS
             'SELECT public.called(); SELECT 0.0::double precision';
         CREATE OPERATOR public.<=> (LEFTARG = moved.vector, RIGHTARG = moved.vector, FUNCTION = public.distance)",
    );
    db.put("k", "d", "Another text.");
    let done = "kb.documents WHERE external_id = 'd' AND status <> 'pending'";
    cluster.without_evidence(|| {
        until(SOON, "it is done, one way or the other", || {
            db.count(done) == 1 || !cluster.evidence().is_empty()
        });
        // An open session that knows the old schema may report that, but calls nothing there.
        let _ = db.try_run("SELECT * FROM kb.query('k', 'where is the harbor?', 3)");
        let _ =
            db.try_run("SELECT kb.create_knowledge_base('l', 'hash'); SELECT kb.drop_knowledge_base('l')");
    });
    assert_eq!(cluster.worker("theirs"), worker, "it is the worker that knew the old place");
}
