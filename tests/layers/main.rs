//! The rooms of src/ import downwards only, and each keeps to its own: read from the text of the source.
//! ARCHITECTURE.md says why; the rules themselves are the tables below.

#![allow(clippy::unwrap_used)] // a test says more by panicking

mod source;

use source::{Source, Token};
use std::path::Path;

/// A module's height: it imports from its own height and below. The longest matching path counts.
const HEIGHTS: &[(&str, u8)] = &[
    ("error", 0),
    ("kernels", 0),
    ("model", 0),
    ("model_files", 0),
    ("tokenizer", 0),
    ("gateway", 1),
    ("pg", 1),
    ("settings", 1),
    ("store", 2),
    ("gateway::client", 3),
    ("catalog", 4),
    ("ingest", 4),
    ("retrieve", 4),
    ("api", 5),
    ("worker", 5),
];

/// Without PostgreSQL: no pgrx, and nothing from a module that has it. A module declared with
/// `#[cfg(feature = "server")]` inside one of these (a use case, the gateway's client) is not pure.
const PURE: &[&str] =
    &["error", "kernels", "model", "model_files", "tokenizer", "gateway", "ingest", "retrieve"];

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
            breach_unless(
                theirs > own || !is_pure(module) || is_pure(&path),
                format!("is pure, and imports {path}"),
            );
        }
    }
    out
}

#[test]
fn layers_import_downwards() {
    let sources = source::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(sources.iter().any(|s| s.module == "error"), "src/ was not read");
    let breaches = breaches(&sources);
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
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
        ("attic.rs", "", "attic: has no height: add it to HEIGHTS"),
        ("error.rs", &long, "error: has 401 lines; past 400 it is two things"),
    ] {
        assert_eq!(breaches_of(&[("retrieve/mod.rs", server), (file, text)]), [expected], "{file}: {text}");
    }
}

#[test]
fn what_is_allowed_passes() {
    for (file, text) in [
        (
            "worker/mod.rs",
            "#[unsafe(no_mangle)] fn f() {} // unsafe SELECT 1\n/* use crate::x; */ use crate::store::jobs;",
        ),
        ("pg/spi.rs", "fn f<'a>(c: char) -> bool { c == '\"' || unsafe { g() } }"),
        ("api/query.rs", "#[pg_extern(sql = \"CREATE FUNCTION f()\")] fn f() {}"),
        ("store/jobs.rs", "const CLAIM: &str = \"SELECT 1\"; use crate::pg::spi;"),
        ("retrieve/run.rs", "use crate::{pgrx_free, store::search, gateway::client}; use pgrx::JsonB;"),
        ("model/mod.rs", "#[cfg(test)]\nmod tests { use crate::store; const Q: &str = \"SELECT 1\"; }"),
        ("error.rs", "const HINT: &str = \"SELECT kb.health()\";"),
    ] {
        let server = "#[cfg(feature = \"server\")]\npub mod run;";
        assert_eq!(breaches_of(&[("retrieve/mod.rs", server), (file, text)]), [""; 0], "{file}: {text}");
    }
}
