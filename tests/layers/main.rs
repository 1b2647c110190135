//! What Cargo cannot express of src/: rooms import each other in no circle, the worker names a kind of work
//! in one file only, SQL stands in modules `sql`, `unsafe` in `pg`. What a room keeps to itself is private to
//! it, so the compiler holds that. ARCHITECTURE.md says why.

#![allow(clippy::unwrap_used)] // a test says more by panicking

mod files;
mod named_files;

use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What the worker imports besides crates. Of other rooms only its list of kinds knows.
const OF_WORKER: &str = "gateway jobs models pg settings sql tenants upkeep vectors work worker";
/// Words that endpoints do not know, and folders of their crate that they do not import.
const NOT_OF_ENDPOINTS: &[&str] = &["embed", "vector", "dimension"];
const NOT_IMPORTED_BY_ENDPOINTS: &[&str] = &["chat", "embed", "provider", "rerank"];

const SQL_STARTS: &str = "SELECT INSERT UPDATE DELETE CREATE ALTER DROP TRUNCATE WITH GRANT REVOKE LOCK COPY";

/// A file of src/: the path of its module, and its words, literals and punctuation, without comments and
/// tests.
struct Source {
    module: Vec<String>,
    tokens: Vec<String>,
}

fn source(file: &Path, text: &str) -> Source {
    let mut module: Vec<String> =
        file.with_extension("").iter().map(|name| name.to_str().unwrap().into()).collect();
    module.pop_if(|last| last == "mod" || last == "lib");
    let mut tokens = Vec::new();
    flatten(text.parse().unwrap(), &mut tokens);
    Source { module, tokens }
}

/// Leaves out the items under `#[cfg(test)]`, which end at a brace or a semicolon, and documentation.
fn flatten(stream: TokenStream, out: &mut Vec<String>) {
    let mut is_test = false;
    for tree in stream {
        let is_end = matches!(&tree, TokenTree::Group(group) if group.delimiter() == proc_macro2::Delimiter::Brace)
            || matches!(&tree, TokenTree::Punct(mark) if mark.as_char() == ';');
        let text = tree.to_string();
        match tree {
            _ if is_test => is_test = !is_end,
            TokenTree::Group(_) if text.starts_with("[doc = ") => {}
            TokenTree::Group(_) if text == "[cfg (test)]" => is_test = true,
            TokenTree::Group(group) => {
                out.push("{".into());
                flatten(group.stream(), out);
                out.push("}".into());
            }
            _ => out.push(text),
        }
    }
}

/// The names after `crate::`, also in braces.
fn imports(tokens: &[String]) -> impl Iterator<Item = &String> {
    tokens.windows(4).enumerate().filter(|(_, w)| w[0] == "crate" && w[1] == ":").flat_map(|(at, w)| {
        let mut depth = 0;
        let group = tokens[at + 3..].iter().take_while(move |token| {
            depth += i32::from(*token == "{") - i32::from(*token == "}");
            depth > 0
        });
        let names: Vec<&String> = if w[3] == "{" {
            let listed: Vec<&String> = group.collect();
            listed.windows(2).filter(|two| *two[0] == "," || *two[0] == "{").map(|two| two[1]).collect()
        } else {
            vec![&w[3]]
        };
        names
    })
}

fn breaches(source: &Source) -> Vec<String> {
    let module = source.module.join("::");
    let is_in = |room: &str| source.module.iter().any(|name| name == room);
    let mut out = Vec::new();
    if is_in("worker") && module != "worker::kinds" {
        let others = imports(&source.tokens).filter(|room| !OF_WORKER.split(' ').any(|known| known == *room));
        out.extend(others.map(|room| format!("{module}: names {room} outside worker::kinds")));
    }
    for (at, token) in source.tokens.iter().enumerate() {
        let before = |back: usize| at.checked_sub(back).map_or("", |at| source.tokens[at].as_str());
        let is_in_use = |at: usize| {
            source.tokens[..at].iter().rev().take_while(|before| *before != ";").any(|before| before == "use")
        };
        let content = token.trim_start_matches(['r', 'c', '#']).trim_start_matches('"').trim_start();
        let is_text = token.ends_with(['"', '#']) && token.len() > 1;
        let is_sql = SQL_STARTS
            .split(' ')
            .any(|start| content.strip_prefix(start).is_some_and(|rest| rest.starts_with([' ', '\n'])));
        // `#[unsafe(no_mangle)]` is an attribute, and `#[pg_extern(sql = "CREATE FUNCTION …")]` declares a
        // signature.
        if token == "unsafe" && !is_in("pg") && before(2) != "#" {
            out.push(format!("{module}: unsafe belongs in pg"));
        }
        let is_signature = (before(1), before(2)) == ("=", "sql") && ["{", ","].contains(&before(3));
        if is_text && is_sql && !is_in("sql") && !is_signature {
            out.push(format!("{module}: SQL text belongs in a module sql"));
        }
        let names_table =
            content.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == "table_name");
        if names_table && source.module[..2.min(source.module.len())] != ["vectors", "sql"] {
            out.push(format!("{module}: table_name is named in vectors::sql only"));
        }
        if token == "super"
            && (source.tokens[at..].iter().step_by(3).take_while(|next| *next == "super").count()
                >= source.module.len()
                || ["{", ","].contains(&before(1)) && is_in_use(at))
        {
            out.push(format!("{module}: names another room by super"));
        }
    }
    out
}

/// Rooms that import each other, directly or through others.
fn circle(sources: &[Source]) -> BTreeSet<&String> {
    let mut rooms: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.module.is_empty()) {
        let room = &source.module[0];
        rooms.entry(room).or_default().extend(imports(&source.tokens).filter(|name| *name != room));
    }
    loop {
        let all: BTreeSet<&String> = rooms.keys().copied().collect();
        rooms.retain(|_, imported| imported.iter().any(|room| all.contains(room)));
        if rooms.len() == all.len() {
            return all;
        }
    }
}

#[test]
fn rooms_import_in_no_circle_and_sql_and_unsafe_are_in_theirs() {
    let files = files::under("src");
    let sources: Vec<Source> = (files.iter())
        .map(|file| source(file.strip_prefix("src").unwrap(), &std::fs::read_to_string(file).unwrap()))
        .collect();
    assert!(sources.len() > 100);
    let found: Vec<String> = sources.iter().flat_map(breaches).collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    assert!(circle(&sources).is_empty(), "a circle is among {:?}", circle(&sources));
}

#[test]
fn a_call_of_an_endpoint_knows_nothing_of_vectors() {
    let files = files::under("crates/kb-gateway/src/endpoint");
    assert!(files.len() > 10);
    for file in files.iter().filter(|file| !file.ends_with("tests.rs")) {
        let text = std::fs::read_to_string(file).unwrap().to_lowercase();
        let endpoint = source(file, &text);
        let imported =
            imports(&endpoint.tokens).find(|name| NOT_IMPORTED_BY_ENDPOINTS.contains(&name.as_str()));
        assert_eq!(imported, None, "{}", file.display());
        for token in endpoint.tokens.iter().filter(|token| !token.starts_with('"')) {
            let named = NOT_OF_ENDPOINTS.iter().find(|part| token.contains(*part));
            assert_eq!(named, None, "{} names {token}", file.display());
        }
    }
}

#[test]
fn every_breach_is_seen() {
    let of = |file: &str, text: &str| breaches(&source(Path::new(file), text));
    assert_eq!(
        of("jobs/sql/queue.rs", "fn f() { unsafe { g() } }"),
        ["jobs::sql::queue: unsafe belongs in pg"]
    );
    assert_eq!(
        of("query/api.rs", "const Q: &str = r#\"\n  SELECT 1\"#;"),
        ["query::api: SQL text belongs in a module sql"]
    );
    let table = "const Q: &str = \"SELECT b.table_name FROM kb.builds b\";";
    assert_eq!(of("jobs/sql.rs", table), ["jobs::sql: table_name is named in vectors::sql only"]);
    assert_eq!(of("jobs/mod.rs", "use super::pg;"), ["jobs: names another room by super"]);
    assert_eq!(of("jobs/sql.rs", "use super::{a, super::pg};"), ["jobs::sql: names another room by super"]);
    assert_eq!(of("lib.rs", "fn f() { let sql = \"SELECT 1\"; }"), [": SQL text belongs in a module sql"]);
    let named = "use crate::tables::changes;";
    assert_eq!(of("worker/runner.rs", named), ["worker::runner: names tables outside worker::kinds"]);
    assert_eq!(of("worker/kinds.rs", named), [""; 0]);
    let allowed =
        "#[unsafe(no_mangle)] /// SELECT 1\nfn f() {} #[pg_extern(sql = \"CREATE FUNCTION f()\")] fn g() {}
        #[cfg(test)]\nmod tests { use super::*; const Q: &str = \"SELECT 1\"; }";
    assert_eq!(of("query/api.rs", allowed), [""; 0]);
    let room = |file: &str, text: &str| source(Path::new(file), text);
    let rooms =
        ["use crate::{b::x, pg::spi};", "fn f() { crate::c::g() }", "use crate::a::y;", "use crate::a::y;"];
    let rooms: Vec<Source> = rooms
        .iter()
        .zip(["a.rs", "b/sql.rs", "c/mod.rs", "d.rs"])
        .map(|(text, file)| room(file, text))
        .collect();
    assert_eq!(circle(&rooms).into_iter().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    assert!(circle(&rooms[..2]).is_empty() && circle(&rooms[1..]).is_empty());
}
