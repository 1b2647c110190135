//! What Cargo cannot express of src/; ARCHITECTURE.md says why. The compiler checks what is private to a
//! room, and that `unsafe` is in `pg` only.

#![allow(clippy::unwrap_used)] // a test says more by panicking

mod breaches_seen;
mod endpoint;
mod files;
mod named_files;
mod source;

use source::{Source, imports, source};
use std::collections::{BTreeMap, BTreeSet};

/// What the worker imports besides crates. Of other rooms only its list of kinds knows.
const OF_WORKER: &str = "gateway jobs models pg settings sql tenants upkeep vectors work worker";
const SQL_STARTS: &str = "SELECT INSERT UPDATE DELETE CREATE ALTER DROP TRUNCATE WITH GRANT REVOKE LOCK COPY";

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
        // `#[pg_extern(sql = "CREATE FUNCTION …")]` declares a signature.
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
fn rooms_import_in_no_circle_and_sql_is_in_modules_sql() {
    let sources: Vec<Source> = (files::under("src").iter())
        .map(|file| source(file.strip_prefix("src").unwrap(), &std::fs::read_to_string(file).unwrap()))
        .collect();
    assert!(sources.len() > 100);
    let found: Vec<String> = sources.iter().flat_map(breaches).collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    assert!(circle(&sources).is_empty(), "a circle is among {:?}", circle(&sources));
}

/// The names that kinds of work give themselves, beside the constraint on kb.jobs.kind.
#[test]
fn the_kinds_of_work_are_those_that_a_job_can_be_of() {
    let mut names: Vec<String> = Vec::new();
    for file in files::under("src") {
        let tokens = source(&file, &std::fs::read_to_string(&file).unwrap()).tokens;
        if tokens.windows(3).any(|words| words == ["impl", "Work", "for"]) {
            let at = tokens.windows(2).position(|words| words == ["fn", "kind"]).unwrap();
            names.extend(tokens[at..].iter().find(|token| token.starts_with('"')).cloned());
        }
    }
    names.sort();
    let schema = std::fs::read_to_string("sql/tables.sql").unwrap();
    let listed = format!("CHECK (kind IN ({}))", names.join(", ").replace('"', "'"));
    assert!(schema.contains(&listed), "sql/tables.sql has not: {listed}");
}
