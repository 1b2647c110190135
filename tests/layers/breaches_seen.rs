//! Breaches that the checks must see, and what they must allow.

use super::source::{Source, source};
use super::{breaches, circle};
use std::path::Path;

#[test]
fn every_breach_is_seen() {
    let of = |file: &str, text: &str| breaches(&source(Path::new(file), text));
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
    let allowed = "/// SELECT 1\nfn f() {} #[pg_extern(sql = \"CREATE FUNCTION f()\")] fn g() {}
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
