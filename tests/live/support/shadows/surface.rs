//! Everything in kb that SQL can call or read, from the catalog, so that new objects are covered.

use crate::support::{Db, Fault};
use postgres::SimpleQueryMessage;
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
pub struct Call {
    pub sql: String,
    /// Sensible arguments: the call works for everybody who may make it.
    pub is_plausible: bool,
    /// The result is the same every time.
    pub is_repeatable: bool,
}

/// A table of the writers that is attached to knowledge base k, an evaluation set and a conversation, for
/// [`calls`].
pub const ATTACHED: &str = r#"
    CREATE TABLE public.attached (id integer PRIMARY KEY, body text);
    ALTER TABLE public.attached OWNER TO kb_writer;
    GRANT SELECT ON public.attached TO kb_reader;
    INSERT INTO public.attached VALUES (1, 'Ships in a row of a table.');
    SELECT kb.attach_table('k', 'public.attached', '{body}');
    SELECT kb.create_memory('facts', 'tiny', '{"retrieval": {"count_accesses": false}}');
    SELECT kb.remember('facts', 'Ships run to the harbor.', 'user:1', '{harbor}', valid_from => '2024-01-01', id => 'mem_1');
    SELECT kb.create_llm('merger', 'openai', base_url => 'http://127.0.0.1:1/v1');
    SELECT kb.create_memory('empty', 'tiny', '{"llm": "merger", "consolidation": {"interval_hours": null}}');
    INSERT INTO kb.api_keys (key_id, name, hash, role_name, tenant_id, created_by)
    VALUES ('0123456789ab', 'site', '\x8eb255ea2442bd529c004161869f0003bb5731d65b7cede9828dba5c92a07343', 'reader',
            kb.current_tenant(), 'postgres');
    SELECT kb.create_eval_set('k', 's');
    SELECT kb.create_conversation('k'), kb.append_turn('k', 'user', 'Where are the ships?'), kb.create_conversation('silent');
    SELECT kb.put_eval_question('k', 's', 'q1', 'Where is the harbor?', '["d1"]');
    INSERT INTO kb.query_log (query_id, kb_no, tenant_id, asked_at, query, mode, top_k, row_count, chunk_ids, duration_ms)
    SELECT '00000000-0000-4000-8000-000000000001', kb_no, tenant_id, now(), 'Where is the harbor?', 'dense', 5, 1,
           '{00000000-0000-4000-8000-000000000002}', 1
    FROM kb.knowledge_bases WHERE id = 'k'"#;

/// A question of the log and the row of its answer, for [`calls`].
const LOGGED: &str = "00000000-0000-4000-8000-000000000001";
const LOGGED_CHUNK: &str = "00000000-0000-4000-8000-000000000002";

/// The rows of an answer as text, or its error.
pub type Answer = Result<Vec<String>, Fault>;

/// Calls of every function, with sensible arguments and with each of them NULL or hostile, and reads of every
/// table and view.
pub fn calls(db: &mut Db) -> Vec<Call> {
    let mut calls = Vec::new();
    let functions = db.0.query(
        "SELECT p.proname::text, coalesce(p.proargnames[1:p.pronargs], '{}'),
                ARRAY(SELECT format('%I.%I', n.nspname, t.typname) FROM unnest(p.proargtypes) WITH ORDINALITY u (oid, i)
                      JOIN pg_type t USING (oid) JOIN pg_namespace n ON n.oid = t.typnamespace ORDER BY i),
                p.provolatile <> 'v'
         FROM pg_proc p WHERE p.pronamespace = 'kb'::regnamespace AND p.prokind = 'f'
           AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype) ORDER BY p.proname, p.oid",
        &[],
    );
    for row in functions.unwrap() {
        let (function, names, types): (String, Vec<String>, Vec<String>) =
            (row.get(0), row.get(1), row.get(2));
        assert_eq!(names.len(), types.len(), "kb.{function} has arguments without a name");
        let sensible: Vec<Option<String>> =
            names.iter().zip(&types).map(|(name, ty)| plausible(&function, name, ty)).collect();
        calls.push(Call {
            sql: call(&function, &names, &types, &sensible),
            is_plausible: true,
            // A role that may read everything sees more. What the worker has done meanwhile changes by the
            // second.
            is_repeatable: row.get::<_, bool>(3) && !["explain", "monitor"].contains(&function.as_str()),
        });
        for i in 0..names.len() {
            let others = std::iter::once(None).chain(hostile(&types[i]).iter().map(|v| Some(v.to_string())));
            for other in others {
                let mut values = sensible.clone();
                values[i] = other;
                let sql = call(&function, &names, &types, &values);
                calls.push(Call { sql, is_plausible: false, is_repeatable: false });
            }
        }
    }
    let relations: Vec<String> = db.all(
        "SELECT format('SELECT * FROM kb.%I', relname) FROM pg_class
         WHERE relnamespace = 'kb'::regnamespace AND relkind IN ('r', 'v', 'm', 'p') ORDER BY 1",
    );
    assert!(relations.len() > 10, "{relations:?}");
    // Rows that a caller cannot see cause no error; a missing right does.
    let reads = relations.into_iter();
    calls.extend(reads.map(|sql| Call { sql, is_plausible: true, is_repeatable: false }));
    calls
}

fn call(function: &str, names: &[String], types: &[String], values: &[Option<String>]) -> String {
    let arguments = names.iter().zip(types).zip(values).map(|((name, ty), value)| match value {
        Some(value) if value.starts_with("ARRAY[") => format!("\"{name}\" => {value}"),
        Some(value) => format!("\"{name}\" => '{}'::{ty}", value.replace('\'', "''")),
        None => format!("\"{name}\" => NULL::{ty}"),
    });
    let arguments = arguments.collect::<Vec<_>>().join(", ");
    match function {
        // Times differ in every run.
        "explain" => {
            format!("SELECT kb.explain({arguments}) OPERATOR(pg_catalog.-) 'milliseconds'::pg_catalog.text")
        }
        _ => format!("SELECT * FROM kb.\"{function}\"({arguments})"),
    }
}

/// A sensible argument for what [`super::fixture`] creates. None: NULL, which is its default.
fn plausible(function: &str, name: &str, ty: &str) -> Option<String> {
    if let Some(text) = plausible_for_agents(function, name) {
        return text.map(str::to_string);
    }
    let text = match (function, name) {
        ("attach_table", "tenant" | "title" | "uri" | "content_type") => return None,
        ("attach_table", "content" | "metadata") => "{body}",
        ("attach_table", "published_when") => "id IS NOT NULL",
        ("attach_table", "json_fields" | "adopt") | ("explain", "chunk_id") => return None,
        ("extract_text", "value") => r#"{"title": "One", "tags": ["a", {"b": 1}]}"#,
        ("extract_text", "fields") => r#"{"include": ["$.tags..*"], "exclude": ["$.title"]}"#,
        ("load_eval", "queries") => r#"{"_id": "q9", "text": "Where is the harbor?"}"#,
        ("load_eval", "qrels") => "query-id\tcorpus-id\tscore\nq9\td1\t1",
        ("create_eval_set", "eval_set") => "fresh",
        (_, "eval_set") => "s",
        ("feedback", "query_id") => LOGGED,
        ("feedback", "chunk_id") => LOGGED_CHUNK,
        (_, "question_id") => "q1",
        (_, "question") => "Where is the harbor?",
        ("feedback", "relevant") => "true",
        (_, "relevant") => r#"["d1", {"external_id": "d2", "grade": 2, "start": 0, "end": 9}]"#,
        (_, "option_sets") => r#"ARRAY['{"mode": "keyword", "k": 3}'::pg_catalog.jsonb]"#,
        ("bind_role" | "unbind_role", "role_name") => "pg_monitor",
        (
            "bind_role" | "unbind_role" | "share" | "unshare" | "set_quota" | "move_knowledge_base",
            "tenant",
        ) => "other",
        ("_allowed", "what") => "knowledge_bases",
        ("_delete_vectors", "relation") => "vectors_0",
        ("set_quota", "documents") => "1",
        ("create_reranker" | "create_llm" | "create_extractor", "id") => "fresh",
        ("create_extractor", "provider") => "tika",
        ("create_extractor" | "alter_extractor", "base_url") => "http://127.0.0.1:1",
        ("create_extractor" | "alter_extractor", "config") => r#"{"text_type": "text/plain"}"#,
        ("alter_extractor" | "check_extractor" | "drop_extractor", "id") => "scanner",
        ("create_reranker", "provider") => "llm",
        ("create_llm", "provider") => "openai",
        ("create_llm" | "alter_llm", "base_url") => "http://127.0.0.1:1",
        ("create_reranker" | "alter_reranker", "config") => r#"{"llm": "talker", "scoring": "single"}"#,
        ("create_llm" | "alter_llm", "config") => r#"{"temperature": 0}"#,
        ("alter_reranker" | "check_reranker" | "drop_reranker", "id") => "judge",
        ("alter_llm" | "check_llm", "id") => "talker",
        ("drop_llm", "id") => "spare",
        ("create_source", "name") => "fresh",
        ("create_source", "type") => "files",
        ("alter_source" | "drop_source", "name") => "folder",
        ("import_files", "path") => "*.md",
        ("sync_documents", "scope") => "",
        ("create_source" | "alter_source", "config") => r#"{"path": "*.md"}"#,
        ("index_metadata" | "unindex_metadata", "key") => "n",
        ("index_metadata" | "unindex_metadata", "type") => "number",
        (_, "model" | "base_url" | "secret" | "tokenizer") => return None,
        ("create_knowledge_base" | "create_embedder" | "create_vector_db", "id") => "fresh",
        ("alter_embedder" | "drop_embedder" | "drop_vector_db", "id") => "spare",
        ("check_embedder", "id") | (_, "embedder") => "tiny",
        ("annotate", "chunk_ids") => {
            "ARRAY[(SELECT c.chunk_id FROM kb.chunks c ORDER BY c.chunk_id LIMIT 1)]"
        }
        ("annotate", "answer") => "Where is the harbor of the town?",
        ("context", "format") => "xml",
        (_, "kb_ids") => "{k}",
        (_, "weights") => "{1}",
        (_, "kb_id" | "id") => "k",
        (_, "external_id") => "d1",
        (_, "external_ids") => "{d1,none}",
        (_, "documents") => r#"ARRAY['{"external_id": "new", "content": "A new text."}'::pg_catalog.jsonb]"#,
        (_, "texts") => "{one,two}",
        (_, "language") => "english",
        (_, "vector") => "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]",
        (_, "vector_db") => "shared",
        ("delete_by_filter", "filter") => r#"{"type": "eq", "key": "$external_id", "value": "d1"}"#,
        (_, "filter") => r#"{"n": 1, "tags": ["a"]}"#,
        (_, "options") => r#"{"on_error": "keyword"}"#,
        (_, "chunking") => r#"{"size": 40, "overlap": 0}"#,
        (_, "preprocess") => r#"{"language": "english"}"#,
        (_, "retrieval") => r#"{"top_k": 3}"#,
        (_, "metadata") => r#"{"n": 1}"#,
        // NULL stands for dense.
        (_, "mode") => "hybrid",
        (_, "content_type") => "text/markdown",
        ("measure_recall", "source") => "log",
        (_, "strategy") => "upsert",
        (_, "provider") => "hash",
        (_, "kind") => "query",
        (_, "name") => "key",
        (_, "type") => "pgvector",
        (_, "metric") => "l2",
        (_, "dimension") => "16",
        (_, "table_name") => "vectors_1",
        (_, "query" | "content" | "text") => "# Running\n\nWhere is the harbor?",
        _ => match ty.trim_start_matches("pg_catalog.") {
            "text" => "something",
            "jsonb" => "{}",
            "bool" => "true",
            "bytea" => "Some bytes.",
            "regclass" => "public.attached",
            ty if ty.starts_with('_') => "{}",
            _ => "1",
        },
    };
    Some(text.to_string())
}

/// The same for functions over conversations, memories and bindings. None: what holds for all functions.
fn plausible_for_agents(function: &str, name: &str) -> Option<Option<&'static str>> {
    let text = match (function, name) {
        ("answer", "conversation" | "memory") => return Some(None),
        ("answer", "llm") => "talker",
        ("answer", "max_tokens") => "4000",
        // Nothing is found, so that the model is not asked.
        ("answer", "options") => r#"{"on_error": "keyword", "filter": {"n": "none"}}"#,
        ("create_memory", "id") => "fresh",
        // No model is asked about a memory without entries.
        ("consolidate_memories", "memory") => "empty",
        ("alter_memory" | "drop_memory", "id") | (_, "memory") => "facts",
        ("create_memory" | "alter_memory", "settings") => r#"{"retrieval": {"max_results": 3}}"#,
        ("remember", "supersedes" | "id" | "valid_to" | "expires_at") => return Some(None),
        ("remember", argument) if argument.starts_with("source_") => return Some(None),
        (_, "valid_from" | "as_of") => "2024-01-02",
        ("recall" | "recall_by_tags" | "forget", "subject") => "user:1",
        ("forget", "filter") => return Some(None),
        ("forget", "ids") => return Some(None),
        ("remember", "facts") => {
            r#"ARRAY['{"fact": "Ships in a harbor.", "subject": "user:1"}'::pg_catalog.jsonb]"#
        }
        (_, "tags") => "{harbor}",
        ("recall", "filter" | "min_score") => return Some(None),
        ("remember", "confidence") => "0.5",
        ("tools", "format") => "mcp",
        ("tools" | "call_tool", "options") => r#"{"memory": "facts", "subject": "user:1"}"#,
        ("call_tool", "name") => "memory_search",
        ("call_tool", "arguments") => r#"{"query": "ships", "filter": {"kind": "ship"}}"#,
        ("bind" | "unbind", "scope") => "agent:helper",
        ("create_api_key", "scopes") => "{search}",
        (_, "scopes") => "{project,agent:helper}",
        ("bind" | "unbind", "id_ref") => "k",
        ("bind", "fallback" | "inject_as") => "docs",
        ("prompt_context", "format") => "list",
        ("put_objects", "objects") => {
            r#"ARRAY['{"id": "o1", "title": "One", "tags": ["a"]}'::pg_catalog.jsonb]"#
        }
        ("put_objects", "fields") => r#"{"members": "first"}"#,
        (_, "if_match" | "if_none_match" | "cursor") => return Some(None),
        ("get_vector_db", "id") => "shared",
        ("get_embedder", "id") => "tiny",
        ("get_llm", "id") => "talker",
        ("get_reranker", "id") => "judge",
        ("get_extractor", "id") => "scanner",
        ("get_source", "name") => "folder",
        ("apply", "yaml") => {
            "knowledge_bases:\n  - {id: k, description: One.}\nknowledge:\n  - {id: k, top_k: 3}\n"
        }
        ("export", "kind" | "id") => "all",
        ("http", "method") => "GET",
        ("http", "path") => "/api/search/semantic",
        ("http", "query") => "query=ships",
        ("http", "headers") => r#"{"accept": "application/json"}"#,
        ("http", "body") => "",
        ("create_api_key", "role_name") => "reader",
        ("create_api_key", "tenant") => "me",
        ("create_api_key", "expires_at") => "2100-01-01",
        ("create_api_key", "requests_per_minute") => "60",
        ("drop_api_key", "key_id") => "0123456789ab",
        // Its hash is in ATTACHED.
        ("assume_api_key", "key") => {
            "kb_0123456789ab_0000000000000000000000000000000000000000000000000000000000000000"
        }
        ("create_conversation", "id") => "fresh",
        ("create_conversation" | "alter_conversation", "settings") => r#"{"token_threshold": 100}"#,
        ("wait_for_summary", "id") => "k",
        // No model is asked about a conversation without turns.
        ("extract_memories", "id") => "silent",
        ("append_turn", "parent_id" | "tool_calls" | "tool_call_id") => return Some(None),
        ("append_turn", "conversation_id") => "k",
        ("append_turn", "role") => "user",
        ("append_turn", "parts") => r#"[{"type": "text", "text": "Where is the harbor?"}]"#,
        _ => return None,
    };
    Some(Some(text))
}

/// Values of a type that are not sensible.
fn hostile(ty: &str) -> &'static [&'static str] {
    match ty.trim_start_matches("pg_catalog.") {
        "text" => &["", "'", "\\", "%s $1 {} \u{1F600}", "'; SELECT evil.called('text') --", "pg_temp.text"],
        "int4" => &["-1", "0", "2147483647"],
        "int8" => &["-1", "9223372036854775807"],
        "float8" => &["NaN", "Infinity", "-1", "1e308"],
        "jsonb" => &["null", "[]", "\"x\"", r#"{"": {"a": [[]]}}"#, r#"{"language": "pg_temp.english"}"#],
        "bytea" => &["\\xff00"],
        "regclass" => &["0", "1", "pg_catalog.pg_class", "kb.documents"],
        "_text" | "_jsonb" | "_uuid" => &["{}", "{NULL}"],
        _ => &[],
    }
}

/// Makes calls, each in a transaction that is rolled back. The end of a session is a failure.
pub fn play<'a>(db: &mut Db, calls: impl Iterator<Item = &'a Call>) -> BTreeMap<String, Answer> {
    let mut answers = BTreeMap::new();
    for call in calls {
        let answer = match db.0.simple_query(&format!("BEGIN; {}", call.sql)) {
            Ok(messages) => Ok(messages.iter().filter_map(row).collect()),
            Err(e) => Err(Fault::of(&e)),
        };
        if let Err(e) = db.0.batch_execute("ROLLBACK") {
            panic!("the session ended ({e}) in {}", call.sql);
        }
        answers.insert(call.sql.clone(), answer);
    }
    answers
}

fn row(message: &SimpleQueryMessage) -> Option<String> {
    let SimpleQueryMessage::Row(row) = message else { return None };
    let columns = (0..row.len()).map(|i| row.get(i).unwrap_or("NULL"));
    Some(columns.collect::<Vec<_>>().join("\t"))
}
