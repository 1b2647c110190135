//! docs/reference/ lists what the database has: functions, settings, tables, views and SQLSTATEs.

use crate::support::Db;
use crate::support::pages::{quoted, rows, sections, text};
use std::collections::BTreeSet;

/// The lines that a page lacks, and those that it should not have.
fn difference(page: &str, says: &BTreeSet<String>, is: &BTreeSet<String>) -> String {
    assert!(!is.is_empty(), "{page}");
    let lacks = is.difference(says).map(|line| format!("{page} lacks {line}\n"));
    lacks.chain(says.difference(is).map(|line| format!("{page} is wrong: {line}\n"))).collect()
}

fn all(db: &mut Db, sql: &str) -> BTreeSet<String> {
    db.all(sql).into_iter().collect()
}

/// The signatures of a page, each with its role: code that begins with kb., and the line "Role: …" below it.
fn signatures(page: &str) -> BTreeSet<String> {
    let text = text(page);
    let (mut found, mut parts) = (BTreeSet::new(), text.split("\n```\n"));
    parts.next();
    while let (Some(code), Some(after)) = (parts.next(), parts.next()) {
        assert!(code.starts_with("kb."), "{code}");
        let role = after.trim_start().strip_prefix("Role: ").and_then(|role| quoted(role).next());
        let signature = code.split_whitespace().collect::<Vec<_>>().join(" ");
        let signature = signature.replace("( ", "(").replace(" )", ")");
        found.insert(format!("{signature}: {}", role.unwrap_or("no role")));
    }
    found
}

#[test]
fn the_reference_has_every_function_setting_and_table_as_the_database_has_it() {
    let (_cluster, mut db) = crate::connected!();
    let wrong = functions(&mut db) + &settings(&mut db) + &tables(&mut db);
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Name, arguments with defaults, result and role.
fn functions(db: &mut Db) -> String {
    let page = "docs/reference/functions.md";
    // The type of a default is the argument's. WINDOW is a keyword, but no caller has to quote it here.
    let is = all(
        db,
        "SELECT format('kb.%s(%s) RETURNS %s: %s', replace(quote_ident(proname), '\"window\"', 'window'),
             regexp_replace(pg_get_function_arguments(p.oid), '::[a-z ]+(\\[\\])?', '', 'g'),
             pg_get_function_result(p.oid),
             (SELECT role FROM unnest('{kb_reader,kb_writer,kb_admin,pg_monitor}'::text[]) WITH ORDINALITY AS u (role, n)
              WHERE has_function_privilege(role, p.oid, 'EXECUTE') ORDER BY n LIMIT 1))
         FROM pg_proc p WHERE pronamespace = 'kb'::regnamespace AND proname !~ '^_'",
    );
    difference(page, &signatures(page), &is)
}

/// A number with a unit, in milliseconds or bytes.
fn amount(text: &str) -> i64 {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let factor = match unit {
        "" | "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "kB" => 1 << 10,
        "MB" => 1 << 20,
        "GB" => 1 << 30,
        _ => panic!("unit of {text}"),
    };
    number.parse::<i64>().unwrap_or_else(|_| panic!("{text} is no number")) * factor
}

/// Name, default, range and who sets it.
fn settings(db: &mut Db) -> String {
    let page = "docs/reference/settings.md";
    let mut says = BTreeSet::new();
    for row in rows(&text(page)) {
        let [name, default, range, set_by, _] = &row[..] else { panic!("{row:?}") };
        let name = quoted(name).next().unwrap();
        let context = match set_by.as_str() {
            "anybody" => "user",
            "superuser" => "superuser",
            "configuration file" => "sighup",
            other => panic!("{name} is set by {other}"),
        };
        // The range of a text consists of words.
        let (default, range) = match quoted(default).next() {
            Some("''") => (String::new(), String::new()),
            Some(text) => (text.to_string(), String::new()),
            None => {
                let (least, most) = range.split_once(" to ").unwrap();
                (amount(default).to_string(), format!("{} {}", amount(least), amount(most)))
            }
        };
        says.insert(format!("{name} = {default} ({range}) {context}"));
    }
    // The library defines them when it is loaded.
    db.run("LOAD 'kb'");
    let found = db.0.query(
        "SELECT name, coalesce(boot_val, ''), min_val, max_val, coalesce(' ' || unit, ''), context FROM pg_settings
         WHERE name LIKE 'kb.%'",
        &[],
    );
    let mut is = BTreeSet::new();
    for row in found.unwrap() {
        let [name, default, unit, context]: [String; 4] = [row.get(0), row.get(1), row.get(4), row.get(5)];
        let (least, most): (Option<String>, Option<String>) = (row.get(2), row.get(3));
        let number = |text: &str| amount(&format!("{text}{unit}")).to_string();
        let (default, range) = match (least, most) {
            (Some(least), Some(most)) => (number(&default), format!("{} {}", number(&least), number(&most))),
            _ => (default, String::new()),
        };
        is.insert(format!("{name} = {default} ({range}) {context}"));
    }
    difference(page, &says, &is)
}

/// Tables and views, with the names and types of their columns.
fn tables(db: &mut Db) -> String {
    let page = "docs/reference/tables.md";
    let text = text(page);
    let mut says = BTreeSet::new();
    for (relation, section) in sections(&text, "### ") {
        let section = section.split("\n## ").next().unwrap();
        for row in rows(section) {
            let column = quoted(&row[0]).next().unwrap();
            says.insert(format!("{relation}.{column} {}", row[1]));
        }
    }
    let is = all(
        db,
        "SELECT format('kb.%s.%s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod))
         FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
         WHERE c.relnamespace = 'kb'::regnamespace AND c.relkind IN ('r', 'v') AND a.attnum > 0 AND NOT a.attisdropped",
    );
    difference(page, &says, &is)
}

#[test]
fn the_reference_has_every_sqlstate() {
    let page = "docs/reference/errors.md";
    let says: BTreeSet<String> = rows(&text(page)).into_iter().map(|mut row| row.remove(0)).collect();
    let source = text("crates/kb-types/src/error.rs");
    let (_, function) = source.split_once("pub fn sqlstate").unwrap();
    let codes = function.split("\n    }\n").next().unwrap().split("=> \"").skip(1);
    let is: BTreeSet<String> = codes.map(|rest| rest[..5].to_string()).collect();
    let wrong = difference(page, &says, &is);
    assert!(wrong.is_empty(), "\n{wrong}");
}
