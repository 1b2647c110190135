//! The rooms of src/ import downwards only, and each keeps to its own: read from the text of the source.
//! ARCHITECTURE.md says why; the rules themselves are the tables below.

#![allow(clippy::unwrap_used)] // a test says more by panicking

mod circles;
mod named_files;
mod source;

use source::{Source, Token};
use std::path::Path;

/// A module's height: it imports from its own height and below. The longest matching path counts.
const HEIGHTS: &[(&str, u8)] = &[
    ("bm25", 0),
    ("error", 0),
    ("kernels", 0),
    ("model", 0),
    ("model_files", 0),
    ("sync", 0),
    ("tally", 0),
    ("tokenizer", 0),
    ("gateway::cancellation", 1),
    ("gateway::turns", 1),
    ("gateway::places", 1),
    ("gateway::endpoint", 1),
    ("gateway", 2),
    ("pg", 1),
    ("settings", 1),
    ("store", 2),
    ("gateway::client", 3),
    ("gateway::pump", 3),
    ("catalog", 4),
    ("ingest", 4),
    ("retrieve", 4),
    ("use_cases", 5),
    ("worker", 5),
    ("api", 6),
];

/// Without PostgreSQL: no pgrx, and nothing from a module that has it. A module declared with
/// `#[cfg(feature = "server")]` inside one of these (a use case, the gateway's client) is not pure.
const PURE: &[&str] = &[
    "bm25",
    "error",
    "kernels",
    "model",
    "model_files",
    "sync",
    "tally",
    "tokenizer",
    "gateway",
    "ingest",
    "retrieve",
    "worker",
];

/// Rooms whose files import each other in one direction only.
const WITHOUT_CIRCLES: &[&str] = &[
    "api",
    "bm25",
    "catalog",
    "gateway",
    "ingest",
    "kernels",
    "model",
    "pg",
    "retrieve",
    "store",
    "use_cases",
];

/// What a room knows nothing of: no name in it has such a part.
const UNKNOWN: &[(&str, &[&str])] = &[("gateway::endpoint", &["embed", "vector", "dimension"])];

/// What a room does not import, though it is above.
const NOT_IMPORTED: &[(&str, &[&str])] =
    &[("api", &["gateway", "settings", "store", "tokenizer", "worker"]), ("worker", &["use_cases"])];

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

/// Where each may stand.
const UNSAFE_ROOMS: &[&str] = &["pg", "kernels"];
const SQL_ROOM: &str = "store";
/// Its hints tell people what to type.
const QUOTES_SQL: &str = "error";
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

/// Where vectors are is known to who keeps them: words that appear in one room only, in code or in text.
const NAMED_IN: &[(&str, &str)] = &[("table_name", "store::vector_store")];

const MAX_LINES: usize = 400;

fn within(module: &str, room: &str) -> bool {
    module.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn height(path: &str) -> Option<u8> {
    HEIGHTS.iter().filter(|(room, _)| within(path, room)).max_by_key(|(room, _)| room.len()).map(|(_, h)| *h)
}

/// What is wrong with the files, a line each.
fn breaches(sources: &[Source]) -> Vec<String> {
    let server = source::server_modules(sources);
    let is_pure = |module: &str| {
        PURE.iter().any(|room| within(module, room)) && !server.iter().any(|m| within(module, m))
    };
    let mut out = Vec::new();
    for source in sources {
        let module = source.module.as_str();
        let name = if module.is_empty() { "lib.rs" } else { module };
        let mut breach_unless = |fine: bool, what: String| {
            if !fine {
                out.push(format!("{name}: {what}"));
            }
        };
        let lines = source.text.lines().count();
        breach_unless(lines <= MAX_LINES, format!("has {lines} lines; past {MAX_LINES} it is two things"));
        breach_unless(
            source.text.starts_with("//! "),
            "its first line does not say what it is (//! …)".into(),
        );
        let t = &source.tokens;
        for (i, token) in t.iter().enumerate() {
            let after = |what: &[Token]| t[..i].ends_with(what);
            for (word, room) in NAMED_IN {
                breach_unless(
                    !token.names(word) || within(module, room),
                    format!("{word} is named in {room} only"),
                );
            }
            match token {
                // `#[unsafe(no_mangle)]` is an attribute.
                Token::Word(w) if w == "unsafe" && !after(&[Token::Mark('#'), Token::Mark('[')]) => {
                    breach_unless(
                        UNSAFE_ROOMS.iter().any(|room| within(module, room)),
                        format!("unsafe belongs in {}", UNSAFE_ROOMS.join(" or ")),
                    );
                }
                Token::Word(w) if w == "pgrx" => {
                    breach_unless(!is_pure(module), "names pgrx, and is pure".into());
                }
                Token::Word(w) => {
                    let name = w.to_lowercase();
                    for (room, words) in UNKNOWN.iter().filter(|(room, _)| within(module, room)) {
                        let is_known = words.iter().any(|word| name.contains(word));
                        breach_unless(!is_known, format!("names {w}, which {room} knows nothing of"));
                    }
                }
                // `#[pg_extern(sql = "CREATE FUNCTION …")]` declares a function's signature.
                Token::Text(text) if !after(&[Token::Word("sql".into()), Token::Mark('=')]) => {
                    let sql = text.trim_start();
                    breach_unless(
                        within(module, SQL_ROOM)
                            || within(module, QUOTES_SQL)
                            || !SQL_STARTS.iter().any(|start| sql.starts_with(start)),
                        format!(
                            "SQL text belongs in {SQL_ROOM}: \"{}\"",
                            sql.lines().next().unwrap_or_default()
                        ),
                    );
                }
                _ => {}
            }
        }
        if module.is_empty() {
            continue; // the table of contents names everything
        }
        let Some(own) = height(module) else {
            breach_unless(false, "has no height: add it to HEIGHTS".into());
            continue;
        };
        for path in source::imports(source) {
            let Some(theirs) = height(&path) else { continue };
            breach_unless(theirs <= own, format!("imports upwards: {path}"));
            let skipped = NOT_IMPORTED.iter().filter(|(room, _)| within(module, room));
            breach_unless(
                !skipped.flat_map(|(_, rooms)| rooms.iter()).any(|room| within(&path, room)),
                format!("goes past the use cases: {path}"),
            );
            breach_unless(
                theirs > own || !is_pure(module) || is_pure(&path),
                format!("is pure, and imports {path}"),
            );
        }
    }
    for room in WITHOUT_CIRCLES {
        out.extend(circles::circle(sources, room).map(|circle| format!("{room}: a circle: {circle}")));
    }
    out
}

#[test]
fn layers_import_downwards() {
    let sources = source::read(Path::new("src"));
    assert!(sources.iter().any(|s| s.module == "error"), "src/ was not read");
    let breaches = breaches(&sources);
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
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

fn breaches_of(files: &[(&str, &str)]) -> Vec<String> {
    let sources: Vec<Source> = files
        .iter()
        .map(|(file, text)| source::source(Path::new(file), &format!("//! What.\n{text}")))
        .collect();
    breaches(&sources)
}

#[test]
fn every_breach_is_seen() {
    let server = "#[cfg(feature = \"server\")]\npub mod run;";
    let long = "\n".repeat(MAX_LINES);
    for (file, text, expected) in [
        (
            "store/jobs.rs",
            "use crate::{error::Error, ingest::diff::{self}};",
            "store::jobs: imports upwards: ingest::diff",
        ),
        (
            "pg/spi.rs",
            "fn f() { crate::store::jobs::claim() }",
            "pg::spi: imports upwards: store::jobs::claim",
        ),
        (
            "ingest/chunk/fixed.rs",
            "use super::super::super::api;",
            "ingest::chunk::fixed: imports upwards: api",
        ),
        ("ingest/diff.rs", "use crate::store::chunks;", "ingest::diff: is pure, and imports store::chunks"),
        ("ingest/diff.rs", "use crate::retrieve::run;", "ingest::diff: is pure, and imports retrieve::run"),
        ("model/mod.rs", "use pgrx::JsonB;", "model: names pgrx, and is pure"),
        ("store/jobs.rs", "fn f() { unsafe { g() } }", "store::jobs: unsafe belongs in pg or kernels"),
        (
            "api/query.rs",
            "const Q: &str = r#\"\n  SELECT 1\"#;",
            "api::query: SQL text belongs in store: \"SELECT 1\"",
        ),
        (
            "store/builds.rs",
            "fn f(b: &Build) -> &str { &b.table_name }",
            "store::builds: table_name is named in store::vector_store only",
        ),
        (
            "store/documents.rs",
            "const Q: &str = \"SELECT b.table_name FROM kb.builds b\";",
            "store::documents: table_name is named in store::vector_store only",
        ),
        ("api/query.rs", "use crate::store::search;", "api::query: goes past the use cases: store::search"),
        ("attic.rs", "", "attic: has no height: add it to HEIGHTS"),
        (
            "gateway/endpoint/call.rs",
            "use super::super::provider::find;",
            "gateway::endpoint::call: imports upwards: gateway::provider::find",
        ),
        (
            "gateway/endpoint/call.rs",
            "fn f(read_vectors: bool) {}",
            "gateway::endpoint::call: names read_vectors, which gateway::endpoint knows nothing of",
        ),
        ("error.rs", &long, "error: has 401 lines; past 400 it is two things"),
    ] {
        assert_eq!(breaches_of(&[("retrieve/mod.rs", server), (file, text)]), [expected], "{file}: {text}");
    }
}

#[test]
fn a_circle_is_seen_and_where_it_goes() {
    let files = [
        ("gateway/a.rs", "use super::b::B; use crate::gateway::c;"),
        ("gateway/b.rs", "use super::c::{self, C};"),
        ("gateway/c.rs", "fn f() { super::d::run() }"),
        ("gateway/d/mod.rs", "mod e; pub trait T {}"),
        ("gateway/d/e.rs", "use super::T; use super::super::b::B;"),
    ];
    assert_eq!(breaches_of(&files[..4]), [""; 0]);
    let circle = "gateway::b → gateway::c → gateway::d → gateway::d::e → gateway::b";
    assert_eq!(breaches_of(&files), [format!("gateway: a circle: {circle}")]);
}

#[test]
fn what_is_allowed_passes() {
    for (file, text) in [
        (
            "api/mod.rs",
            "#[unsafe(no_mangle)] fn f() {} // unsafe SELECT 1\n/* use crate::x; */ use crate::use_cases::wait;",
        ),
        ("pg/spi.rs", "fn f<'a>(c: char) -> bool { c == '\"' || unsafe { g() } }"),
        ("api/query.rs", "#[pg_extern(sql = \"CREATE FUNCTION f()\")] fn f() {}"),
        ("store/vector_store/table.rs", "const Q: &str = \"SELECT table_name\"; fn f(table_name: &str) {}"),
        ("store/jobs.rs", "fn is_table_name() {} // table_name"),
        ("store/jobs.rs", "const CLAIM: &str = \"SELECT 1\"; use crate::pg::spi;"),
        ("retrieve/run.rs", "use crate::{pgrx_free, store::search, gateway::client}; use pgrx::JsonB;"),
        ("model/mod.rs", "#[cfg(test)]\nmod tests { use crate::store; const Q: &str = \"SELECT 1\"; }"),
        ("error.rs", "const HINT: &str = \"SELECT kb.health()\";"),
    ] {
        let server = "#[cfg(feature = \"server\")]\npub mod run;";
        assert_eq!(breaches_of(&[("retrieve/mod.rs", server), (file, text)]), [""; 0], "{file}: {text}");
    }
}
