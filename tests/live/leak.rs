//! Promise 6 over the whole surface: whatever a tenant calls has the same result, whether other tenants exist
//! or not. Functions and views come from the catalog, so that new ones are covered.

use crate::support::random::Rng;
use crate::support::shadows::surface::{self, Answer, Call};
use crate::support::{APP, Cluster, Db, Document, WHOLE, texts};
use std::collections::BTreeMap;

/// Words that only other tenants have in their names, ids and texts.
const MARK: &str = "victim";
/// One role for each group role, and one that is bound to its tenant.
const ROLES: &[(&str, &str)] =
    &[("reader", "kb_reader"), ("writer", "kb_writer"), ("admin", "kb_admin"), ("bound", "kb_writer")];
/// What an admin sees of all tenants: the bindings and quotas that an admin sets. Calls begin with these.
const ADMINS: &[&str] = &[
    "admin: SELECT * FROM kb.tenant_roles",
    "admin: SELECT * FROM kb.quotas",
    "admin: SELECT * FROM kb.quota_counts",
    "admin: SELECT * FROM kb.quota_status",
    "admin: SELECT * FROM kb.\"export\"(",
];
/// A knowledge base of others, and one that all tenants share, each with its own rows.
const THEIRS: &str = "of_others";
const COMMON: &str = "common";

/// One tenant with some of everything, and what all tenants share.
fn fixture(cluster: &Cluster) -> Db {
    let mut db = cluster.connect(APP);
    for (role, group) in ROLES {
        db.run(&format!("CREATE ROLE {role} LOGIN IN ROLE {group}"));
    }
    db.run("SELECT kb.bind_role('bound', 'me')");
    for id in ["tiny", "spare"] {
        db.run(&format!("SELECT kb.create_embedder('{id}', 'hash', dimension => 16)"));
        db.run(&format!("SELECT kb.create_vector_db('{id}', dimension => 16)"));
    }
    db.run("SELECT kb.create_vector_db('shared', dimension => 16), kb.set_secret('key', 'sk-of-nobody')");
    db.run("SET kb.tenant = 'shared'; CREATE TABLE rows_of_all (id int PRIMARY KEY, domain text, body text)");
    db.run(&format!(
        "SELECT kb.create_knowledge_base('{COMMON}', 'tiny', 'shared');
         SELECT kb.attach_table('{COMMON}', 'rows_of_all', 'body', tenant => 'domain');
         INSERT INTO rows_of_all VALUES (1, 'me', 'Ships of mine in the harbor.'), (2, 'shared', 'Ships of all.')"
    ));
    db.wait(COMMON);
    db.run("SET kb.tenant = 'me'");
    db.run("SELECT kb.create_knowledge_base('k', 'tiny', 'shared', chunking => '{\"size\": 30, \"overlap\": 0}')");
    for i in 0..5 {
        db.put(
            "k",
            &format!("d{i}"),
            &format!("Ships were running to the harbor. {}", texts::paragraph(i, 60)),
        );
    }
    db.run(surface::ATTACHED);
    db.run_and_wait("k", "SELECT kb.ingest('k')");
    db
}

/// Tenants whose names are similar to that of the one that asks, and roles that are bound to them.
const OTHERS: &[&str] =
    &["m", "ME", "me ", "%", "_e", "me,m", "{me}", "é", "'", "\\", "null", "other tenant"];

/// Other tenants, with the same ids and similar texts as the first, in tables of their own and in the shared
/// one. Their number, names and amounts of data are random.
fn others_come(cluster: &Cluster, random: &mut Rng) {
    let mut db = cluster.connect(APP);
    let count = 2 + random.usize(..4);
    let first = random.usize(..OTHERS.len());
    let tenants: Vec<String> =
        (0..count).map(|n| OTHERS[(first + n) % OTHERS.len()].replace('\'', "''")).collect();
    for (n, tenant) in tenants.iter().enumerate() {
        db.run(&format!("SET kb.tenant = '{tenant}'"));
        for kb in ["k", THEIRS] {
            let vector_db = random.choice(&["'shared'", "NULL"]).unwrap();
            db.run(&format!(
                "SELECT kb.create_knowledge_base('{kb}', 'tiny', {vector_db}, description => 'of {MARK}'),
                        kb.create_conversation('{kb}'), kb.append_turn('{kb}', 'user', 'Ships of the {MARK}.')"
            ));
            for i in 0..3 + random.usize(..10) {
                let text = texts::paragraph(random.usize(..1000) as u64, 10 + random.usize(..60));
                db.put(
                    kb,
                    &format!("d{i}"),
                    &format!("Ships of the {MARK} were running to the harbor. {text}"),
                );
            }
            let edited = random.usize(..3);
            db.put(kb, &format!("d{edited}"), &format!("Edited ships of the {MARK} {n}."));
            db.run(&format!("SELECT kb.delete_document('{kb}', 'd{}')", random.usize(..3)));
        }
        db.run(&format!(
            "CREATE TABLE {MARK}_{n} (id int PRIMARY KEY, body text);
             INSERT INTO {MARK}_{n} VALUES (1, 'The {MARK} has ships'), (2, 'and a harbor');
             SELECT kb.attach_table('{THEIRS}', '{MARK}_{n}', 'body'); SELECT kb.ingest('k');
             INSERT INTO rows_of_all SELECT 100 * {n} + i, '{tenant}', 'Ships of the {MARK} {n}' FROM generate_series(10, {}) i;
             UPDATE kb.sources SET error = 'told of a {MARK}' WHERE kb_no IN (
                 SELECT kb_no FROM kb.knowledge_bases WHERE tenant_id = '{tenant}')",
            12 + random.usize(..20)
        ));
        for kb in ["k", THEIRS] {
            db.wait(kb);
        }
        let next = &tenants[(n + 1) % tenants.len()];
        db.run(&format!("SELECT kb.share('{THEIRS}', '{next}')"));
        if random.usize(..2) == 0 {
            db.run(&format!(
                "CREATE ROLE {MARK}_{n} IN ROLE kb_writer; SELECT kb.bind_role('{MARK}_{n}', '{tenant}'), kb.bind_role('{MARK}_{n}', '{next}')"
            ));
        }
        db.run(&format!("SELECT kb.create_api_key('of the {MARK}', 'reader', '{tenant}')"));
        if random.usize(..2) == 0 {
            db.run(&format!("SELECT kb.set_quota('{tenant}', documents => 1000, tokens_per_day => 1000000)"));
        }
        db.run(&format!("UPDATE kb.documents SET status = 'failed', error = 'the {MARK} is ill' WHERE external_id = 'd3' AND kb_id = '{THEIRS}'"));
        db.run("INSERT INTO kb.jobs (kb_no, tenant_id, subject, next_attempt_at)
                SELECT kb_no, tenant_id, external_id, 'infinity' FROM kb.documents WHERE external_id = 'd4' AND tenant_id <> 'me'
                ON CONFLICT DO NOTHING");
        remembers_and_converses(&mut db, tenant);
    }
}

/// Memories and conversations of another tenant, under the ids that the first one has.
fn remembers_and_converses(db: &mut Db, tenant: &str) {
    db.run(&format!(
        "SELECT kb.create_memory('facts', 'tiny');
         SELECT kb.remember('facts', 'Ships of the {MARK} run to the harbor.', 'user:1', '{{harbor}}', id => 'mem_1'),
                kb.remember('facts', 'The harbor of the {MARK}.', 'user:1', '{{harbor}}', id => 'mem_2')"
    ));
    db.wait("facts");
    db.run(&format!(
        "UPDATE kb.memory_entries m SET consolidated_into = (
             SELECT d.document_id FROM kb.documents d WHERE d.tenant_id = '{tenant}' AND d.external_id = 'mem_2')
         FROM kb.documents d WHERE d.document_id = m.document_id AND d.tenant_id = '{tenant}' AND d.external_id = 'mem_1';
         INSERT INTO kb.summaries (tenant_id, summarized_up_to, conversation_id, branch_no, depth, content, token_count, llm)
         SELECT tenant_id, id, conversation_id, branch_no, depth, 'Summary of the {MARK}.', 3, 'merger'
         FROM kb.turns WHERE tenant_id = '{tenant}';
         INSERT INTO kb.extractions (tenant_id, extracted_up_to, conversation_id, branch_no, depth, facts, llm)
         SELECT tenant_id, id, conversation_id, branch_no, depth, 1, 'merger' FROM kb.turns WHERE tenant_id = '{tenant}';
         INSERT INTO kb.chat_requests (tenant_id, kind, subject, conversation_id, failed_at, error)
         SELECT tenant_id, kind, '1', id, now(), 'told of a {MARK}' FROM kb.conversations,
             unnest('{{summary,extraction}}'::text[]) AS u (kind) WHERE tenant_id = '{tenant}' AND id = 'k';
         INSERT INTO kb.chat_requests (tenant_id, kind, subject, kb_no, failed_at, error)
         SELECT tenant_id, 'consolidation', 'facts', kb_no, now(), 'told of a {MARK}' FROM kb.memory_stores
         WHERE tenant_id = '{tenant}'"
    ));
}

/// The surface, and the same calls about objects of others.
fn calls(db: &mut Db) -> Vec<Call> {
    let mut calls = surface::calls(db);
    // What waits is the work of others; here it has been done. An administrator of all tenants learns whether
    // another one has a knowledge base of that name.
    calls.retain(|call| !call.sql.contains("\"move_knowledge_base\""));
    let about = |call: &Call| {
        let own = "'k'::pg_catalog.text";
        [THEIRS, COMMON].map(|kb| Call {
            sql: call.sql.replace(own, &format!("'{kb}'::pg_catalog.text")),
            ..call.clone()
        })
    };
    let others: Vec<Call> = calls
        .iter()
        .filter(|call| call.is_plausible && call.sql.contains("'k'::pg_catalog.text"))
        .flat_map(about)
        .collect();
    calls.extend(others);
    let explained =
        "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT * FROM kb.query('k', 'ships', 3)";
    calls.push(Call { sql: explained.into(), is_plausible: true, is_repeatable: true });
    calls
}

fn play(cluster: &Cluster, calls: &[Call]) -> BTreeMap<String, Answer> {
    let mut all = BTreeMap::new();
    for (role, _) in ROLES {
        let mut session = cluster.connect_as(APP, role);
        if *role != "bound" {
            session.run("SET kb.tenant = 'me'");
        }
        let answers = surface::play(&mut session, calls.iter());
        all.extend(answers.into_iter().map(|(sql, answer)| (format!("{role}: {sql}"), answer)));
    }
    all
}

/// An answer as words, with its rows in any order.
fn words(answer: &Answer) -> Vec<String> {
    let split = |text: &str| -> Vec<String> {
        text.split(|c: char| !(c.is_alphanumeric() || c == '.')).map(str::to_string).collect()
    };
    match answer {
        Ok(rows) => {
            let mut rows: Vec<Vec<String>> = rows.iter().map(|row| split(row)).collect();
            rows.sort();
            rows.into_iter().flat_map(|row| row.into_iter().chain(["|".to_string()])).collect()
        }
        Err(fault) => split(&format!("{} {}", fault.code, fault.text)),
    }
}

/// Words that differ even without other tenants: numbers from sequences, times.
fn differs_by_itself(once: &[String], again: &[String]) -> Vec<bool> {
    once.iter().zip(again).map(|(once, again)| once != again).collect()
}

#[test]
fn no_function_or_view_answers_a_tenant_otherwise_because_of_others() {
    // The same worker runs all the time, because kb.health shows its pid.
    let cluster = crate::cluster!("kb.worker_idle_timeout = '1h'");
    let mut db = fixture(&cluster);
    // This shows that the comparison detects a leak.
    db.run("CREATE FUNCTION kb.planted() RETURNS bigint LANGUAGE sql SECURITY DEFINER RETURN (SELECT count(*) FROM kb.chunks)");
    let calls = calls(&mut db);
    let (once, again) = (play(&cluster, &calls), play(&cluster, &calls));
    let seed = std::env::var("KB_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("KB_SEED={seed}");
    others_come(&cluster, &mut Rng::with_seed(seed));
    let logged = cluster.log().len();
    let (then, later) = (play(&cluster, &calls), play(&cluster, &calls));
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for (call, answer) in &then {
        if ADMINS.iter().any(|seen| call.starts_with(seen)) {
            continue;
        }
        assert!(!format!("{answer:?}").contains(MARK), "{call}: {answer:?}");
        let all = [&once[call], &again[call], answer, &later[call]].map(words);
        let [before, before_again, after, after_again] = &all;
        if before.len() != before_again.len() || after.len() != after_again.len() {
            continue;
        }
        compared += 1;
        let volatile = differs_by_itself(before, before_again);
        let volatile_later = differs_by_itself(after, after_again);
        let is_same = before.len() == after.len()
            && (0..before.len()).all(|i| volatile[i] || volatile_later[i] || before[i] == after[i]);
        if !is_same {
            wrong.push(format!("{call}\n  before {:?}\n  after  {answer:?}", once[call]));
        }
    }
    let planted = wrong.extract_if(.., |call| call.contains("planted")).count();
    assert_eq!(planted, ROLES.len());
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared * 10 > then.len() * 9, "{compared} of {} are compared", then.len());
    let log = cluster.log();
    let told: Vec<&str> = log[logged..]
        .lines()
        .filter(|line| {
            ["NOTICE", "WARNING", "INFO"].iter().any(|level| line.contains(level)) && line.contains(MARK)
        })
        .collect();
    assert!(told.is_empty(), "{told:?}");
}

#[test]
fn policies_are_asked_once_for_a_statement_and_leave_its_indexes_usable() {
    let cluster = crate::cluster!();
    let mut db = fixture(&cluster);
    let relations: Vec<String> = db.all(
        "SELECT format('kb.%I', c.relname) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
         WHERE c.relnamespace = 'kb'::regnamespace AND c.relkind = 'r' AND c.relname NOT IN ('bm25_pending', 'tail_vectors', 'reading_rests') ORDER BY 1",
    );
    assert!(relations.len() > 8, "{relations:?}");
    let plan = |db: &mut Db, sql: &str| -> String { db.all::<String>(&format!("EXPLAIN {sql}")).join("\n") };
    for relation in &relations {
        let role = match relation {
            relation if relation.contains(".vectors_") => "kb_vectors",
            relation if relation == "kb.tenant_roles" || relation == "kb.api_keys" => "admin",
            relation if relation.starts_with("kb.query_") => "writer",
            _ => "reader",
        };
        db.run(&format!("SET ROLE {role}"));
        let plan = plan(&mut db, &format!("SELECT tenant_id FROM {relation}"));
        db.run("RESET ROLE");
        let filters: Vec<&str> =
            plan.lines().filter(|line| line.contains("Filter:") || line.contains("Cond:")).collect();
        assert!(plan.contains("InitPlan"), "{relation}: {plan}");
        assert!(
            !filters.is_empty()
                && filters.iter().all(|line| !line.contains("tenants(") && !line.contains("current_tenant(")),
            "{relation}: {plan}"
        );
    }
    db.run("SET ROLE reader; SET enable_seqscan = off; SET enable_bitmapscan = off");
    for (sql, condition) in [
        ("kb.documents WHERE kb_no = 1 AND external_id = 'd1'", "external_id = 'd1'"),
        ("kb.documents WHERE document_id = 1", "document_id = 1"),
        ("kb.chunks WHERE build_no = 1 AND chunk_id = gen_random_uuid()", "build_no = 1"),
        ("kb.chunks WHERE document_id = 1", "document_id = 1"),
        ("kb.jobs WHERE kb_no = 1 AND subject = 'd1'", "kb_no = 1"),
    ] {
        let plan = plan(&mut db, &format!("SELECT * FROM {sql}"));
        let is_by_index = plan.lines().any(|line| line.contains("Index Cond") && line.contains(condition));
        assert!(is_by_index, "{sql}: {plan}");
    }
}

/// Columns under row-level security whose equality is leakproof and for which the planner has statistics:
/// those by which rows are looked up, states, and names of objects. docs/security.md lists them.
const WITH_STATISTICS: &[&str] = &[
    "bindings.tenant_id",
    "bm25_segments.tenant_id",
    "builds.element",
    "builds.embedder",
    "builds.metric",
    "builds.state",
    "builds.table_name",
    "builds.tenant_id",
    "builds.type",
    "chat_requests.conversation_id",
    "chat_requests.kind",
    "chat_requests.subject",
    "chat_requests.tenant_id",
    "chunks.content_hash",
    "chunks.tenant_id",
    "conversations.id",
    "conversations.tenant_id",
    "documents.error",
    "documents.external_id",
    "documents.kb_id",
    "documents.status",
    "documents.tenant_id",
    "eval_questions.question_id",
    "eval_questions.tenant_id",
    "eval_sets.name",
    "eval_sets.tenant_id",
    "extractions.conversation_id",
    "extractions.extracted_up_to",
    "extractions.tenant_id",
    "index_recall.tenant_id",
    "jobs.embedder",
    "jobs.kind",
    "jobs.subject",
    "jobs.tenant_id",
    "knowledge_bases.embedder",
    "knowledge_bases.id",
    "knowledge_bases.tenant_id",
    "knowledge_bases.vector_db",
    "memory_entries.tenant_id",
    "memory_stores.tenant_id",
    "metadata_indexes.key",
    "metadata_indexes.tenant_id",
    "metadata_indexes.type",
    "query_feedback.tenant_id",
    "query_log.mode",
    "query_log.tenant_id",
    "quota_counts.tenant_id",
    "quotas.tenant_id",
    "runs.state",
    "runs.strategy",
    "runs.tenant_id",
    "shares.owner_id",
    "shares.tenant_id",
    "sources.relation_name",
    "sources.tenant_id",
    "sources.type",
    "summaries.conversation_id",
    "summaries.summarized_up_to",
    "summaries.tenant_id",
    "turns.conversation_id",
    "turns.id",
    "turns.tenant_id",
    "usage.capability",
    "usage.endpoint",
    "usage.kb_id",
    "usage.tenant_id",
];

#[test]
fn explain_expects_as_many_rows_of_a_frequent_guess_as_of_an_absent_one() {
    let (cluster, mut db) = crate::connected!();
    db.run("SET kb.tenant = 'them'");
    db.create_kb("k", "hash", WHOLE);
    let documents: Vec<Document> = (0..400)
        .map(|n| {
            Document::new(
                format!("d{n}"),
                if n % 2 == 0 { "The same".to_string() } else { format!("Text {n}") },
            )
        })
        .collect();
    db.put_all_and_wait("k", &documents);
    db.run(
        "UPDATE kb.documents SET title = CASE WHEN document_id % 2 = 0 THEN 'frequent' ELSE external_id END,
             uri = CASE WHEN document_id % 2 = 0 THEN 'https://frequent.example' ELSE external_id END;
         ANALYZE kb.documents, kb.chunks; CREATE ROLE reader LOGIN IN ROLE kb_reader; SELECT kb.bind_role('reader', 'me')",
    );
    let mut reader = cluster.connect_as(APP, "reader");
    let mut expected = |relation: &str, column: &str, value: &str| -> u64 {
        let plan: Vec<String> =
            reader.all(&format!("EXPLAIN SELECT FROM kb.{relation} WHERE {column} = '{value}'"));
        let rows = plan[0].split("rows=").nth(1).and_then(|rest| rest.split(' ').next());
        rows.and_then(|rows| rows.parse().ok()).unwrap_or_else(|| panic!("{plan:?}"))
    };
    for (relation, column, frequent) in [
        ("documents", "title", "frequent"),
        ("documents", "uri", "https://frequent.example"),
        ("documents", "content", "The same"),
        ("documents", "content_type", "text/plain"),
        ("chunks", "content", "The same"),
    ] {
        let rows = [frequent, "absent"].map(|value| expected(relation, column, value));
        assert_eq!(rows[0], rows[1], "{relation}.{column}");
    }
    // A column that is added has none either, or is listed here and in the docs.
    let columns: Vec<String> = db.all(
        "SELECT format('%s.%s', c.relname, a.attname) COLLATE \"C\" FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
         WHERE c.relnamespace = 'kb'::regnamespace AND c.relrowsecurity AND has_table_privilege('kb_writer', c.oid, 'SELECT')
           AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid IN ('text'::regtype, 'bytea'::regtype) AND a.attstattarget <> 0
         ORDER BY 1",
    );
    assert_eq!(columns, WITH_STATISTICS);
}
