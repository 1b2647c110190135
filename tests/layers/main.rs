//! What Cargo cannot express: which room of src/ may import which, and where SQL and `unsafe` may stand. ARCHITECTURE.md says why.

#![allow(clippy::unwrap_used)] // a test says more by panicking

mod named_files;
mod source;

use source::{Source, Token};
use std::path::Path;

/// Rooms by height: one imports from its own height and below. The longest matching path counts.
const HEIGHTS: &[(&str, u8)] = &[
    ("pg", 1),
    ("settings", 1),
    ("store", 2),
    ("gateway", 3),
    ("catalog", 4),
    ("retrieve", 4),
    ("use_cases", 5),
    ("worker", 5),
    ("api", 6),
];

/// What a room does not import, though it is below.
const NOT_IMPORTED: &[(&str, &[&str])] =
    &[("api", &["gateway", "settings", "store", "worker"]), ("worker", &["use_cases"])];

/// SQL functions whose use case has another's file. A plural has its singular's.
const SHARED_FILES: &[(&str, &str)] = &[
    ("query_vector", "query"),
    ("_vector_count", "vector_count"),
    ("_index_state", "vector_count"),
    ("_index_progress", "vector_count"),
    ("_terms", "terms"),
    ("_delete_vectors", "delete_vectors"),
    ("_allowed", "set_quota"),
    ("visible_tenants", "current_tenant"),
    ("readable_tenants", "current_tenant"),
    ("bound_tenants", "current_tenant"),
    ("unbind_role", "bind_role"),
    ("refuse_share", "share"),
    ("unshare", "share"),
    ("_tables_altered", "tables_altered"),
    ("delete_by_filter", "delete_document"),
    ("unindex_metadata", "index_metadata"),
    ("delete_eval_question", "put_eval_question"),
    ("context_several", "context"),
    ("evaluate_questions", "evaluate"),
];
/// For SQL of the extension's own: they compute, and touch nothing.
const WITHOUT_FILE: &[&str] = &["_fingerprint", "_in_words", "_microseconds"];

const SQL_STARTS: &[&str] = &[
    "SELECT ",
    "INSERT INTO ",
    "UPDATE ",
    "DELETE FROM ",
    "CREATE ",
    "ALTER ",
    "DROP ",
    "TRUNCATE ",
    "WITH ",
    "GRANT ",
    "REVOKE ",
    "LOCK TABLE ",
    "COPY ",
];

fn within(module: &str, room: &str) -> bool {
    module.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn height(path: &str) -> Option<u8> {
    HEIGHTS.iter().find(|(room, _)| within(path, room)).map(|(_, height)| *height)
}

/// What is wrong with a file of src/.
fn breaches(source: &Source) -> Vec<String> {
    let (module, t) = (source.module.as_str(), &source.tokens);
    let mut out = Vec::new();
    for (i, token) in t.iter().enumerate() {
        let after = |what: &[Token]| t[..i].ends_with(what);
        match token {
            // `#[unsafe(no_mangle)]` is an attribute.
            Token::Word(w)
                if w == "unsafe"
                    && !within(module, "pg")
                    && !after(&[Token::Mark('#'), Token::Mark('[')]) =>
            {
                out.push(format!("{module}: unsafe belongs in pg"));
            }
            // `#[pg_extern(sql = "CREATE FUNCTION …")]` declares a function's signature.
            Token::Text(text)
                if !within(module, "store")
                    && !after(&[Token::Word("sql".into()), Token::Mark('=')])
                    && SQL_STARTS.iter().any(|start| text.trim_start().starts_with(start)) =>
            {
                out.push(format!("{module}: SQL text belongs in store"));
            }
            // Only the vector store knows where vectors are.
            token if token.names("table_name") && !within(module, "store::vector_store") => {
                out.push(format!("{module}: table_name is named in store::vector_store only"));
            }
            _ => {}
        }
    }
    let Some(own) = height(module) else { return out };
    for path in source::imports(source) {
        let skipped = NOT_IMPORTED.iter().filter(|(room, _)| within(module, room));
        if height(&path).is_some_and(|theirs| theirs > own)
            || skipped.flat_map(|(_, rooms)| rooms.iter()).any(|room| within(&path, room))
        {
            out.push(format!("{module}: imports {path}"));
        }
    }
    out
}

#[test]
fn rooms_import_downwards_and_sql_and_unsafe_are_in_theirs() {
    let sources = source::read(Path::new("src"));
    let has_height = |source: &Source| source.module.is_empty() || height(&source.module).is_some();
    assert!(sources.len() > 100 && sources.iter().all(has_height), "a room has no height: add it to HEIGHTS");
    let breaches: Vec<String> = sources.iter().flat_map(breaches).collect();
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
}

#[test]
fn every_breach_is_seen() {
    for (file, text, expected) in [
        (
            "store/jobs.rs",
            "use crate::{pg::spi, worker::claims::{self}};",
            "store::jobs: imports worker::claims",
        ),
        ("pg/spi.rs", "fn f() { crate::store::jobs::claim() }", "pg::spi: imports store::jobs::claim"),
        ("store/jobs.rs", "fn f() { unsafe { g() } }", "store::jobs: unsafe belongs in pg"),
        ("api/query.rs", "const Q: &str = r#\"\n  SELECT 1\"#;", "api::query: SQL text belongs in store"),
        (
            "store/documents.rs",
            "const Q: &str = \"SELECT b.table_name FROM kb.builds b\";",
            "store::documents: table_name is named in store::vector_store only",
        ),
        ("api/query.rs", "use crate::store::search;", "api::query: imports store::search"),
    ] {
        assert_eq!(breaches(&source::source(Path::new(file), text)), [expected], "{file}: {text}");
    }
    for (file, text) in [
        (
            "api/mod.rs",
            "#[unsafe(no_mangle)] fn f() {} // unsafe SELECT 1\n/* use crate::worker; */ use crate::use_cases::wait;",
        ),
        ("api/query.rs", "#[pg_extern(sql = \"CREATE FUNCTION f()\")] fn f() {}"),
        ("catalog/quota.rs", "#[cfg(test)]\nmod tests { use crate::api; const Q: &str = \"SELECT 1\"; }"),
    ] {
        assert_eq!(breaches(&source::source(Path::new(file), text)), [""; 0], "{file}: {text}");
    }
}

#[test]
fn a_call_of_an_endpoint_knows_nothing_of_vectors() {
    let sources = source::read(Path::new("crates/kb-gateway/src"));
    let endpoint: Vec<&Source> = sources.iter().filter(|source| within(&source.module, "endpoint")).collect();
    assert!(endpoint.len() > 10);
    for source in endpoint {
        for token in &source.tokens {
            let Token::Word(word) = token else { continue };
            let named =
                ["embed", "vector", "dimension"].iter().find(|part| word.to_lowercase().contains(*part));
            assert_eq!(named, None, "{} names {word}", source.module);
        }
    }
}

/// SQL functions in Rust whose verb is no file of use_cases.
fn without_use_case(sources: &[Source]) -> Vec<String> {
    let has_file = |name: &str| sources.iter().any(|source| source.module == format!("use_cases::{name}"));
    let mut out = Vec::new();
    for source in sources.iter().filter(|source| within(&source.module, "api")) {
        for function in source::sql_functions(source) {
            let shared = SHARED_FILES.iter().find(|(name, _)| *name == function).map(|(_, file)| *file);
            let singular = function.strip_suffix('s').unwrap_or(&function);
            let is_found = [shared.unwrap_or(&function), singular].iter().any(|name| has_file(name));
            if !is_found && !WITHOUT_FILE.contains(&function.as_str()) {
                out.push(function);
            }
        }
    }
    out
}

#[test]
fn every_sql_functions_use_case_is_the_file_of_its_name() {
    let sources = source::read(Path::new("src"));
    let functions: Vec<String> = sources.iter().flat_map(source::sql_functions).collect();
    assert!(functions.iter().any(|name| name == "wait") && functions.len() > 25, "{functions:?}");
    assert_eq!(without_use_case(&sources), [""; 0]);
    let made = "#[pg_extern(name = \"fly\", volatile)]\nfn fly_kb(a: &str) {}";
    let source = source::source(Path::new("api/flights.rs"), made);
    assert_eq!(without_use_case(&[source]), ["fly"]);
}
