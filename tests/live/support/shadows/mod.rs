//! Shadows: objects with the names that kb's SQL uses, created by a hostile user, which leave evidence in the
//! server's log when they are called.

pub mod names;
pub mod surface;

use super::{Cluster, Db};
use names::Names;
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};

/// The search paths that a session can have: everybody's, and those that put a user's schema first.
pub const PATHS: &[&str] = &["\"$user\", public", "public, pg_catalog", "pg_temp, public, pg_catalog"];

impl Db {
    /// A session whose own statements no shadow affects.
    pub fn safe(mut self) -> Db {
        self.run("SET search_path = pg_catalog");
        self
    }

    /// Creates the functions that make shadows, and the names to make them for, as the owner of the database.
    pub fn learn_names(&mut self) {
        let names = Names::of_kb();
        self.run(include_str!("shadows.sql"));
        for (table, set) in [("words", &names.words), ("casts", &names.casts)] {
            let all: Vec<&String> = set.iter().collect();
            let sql = format!("INSERT INTO evil.{table} SELECT unnest($1::text[])");
            self.0.execute(sql.as_str(), &[&all]).unwrap();
        }
    }

    /// Shadows of everything in a schema, of the same types as the originals or of another.
    pub fn make_shadows(&mut self, schema: &str, lie: Option<&str>) {
        self.0.execute("SELECT evil.shadow_types($1, $2)", &[&schema, &lie]).unwrap();
        for kind in ["functions", "aggregates", "operators"] {
            self.0.execute(&format!("SELECT evil.shadow_{kind}($1, $2)"), &[&schema, &lie]).unwrap();
        }
    }

    /// Shadows of types and tables in the session's temporary schema, in which functions are not looked up.
    pub fn make_temporary_shadows(&mut self, lie: Option<&str>) {
        let all: Vec<i64> = self.all_with("SELECT evil.shadow_types('pg_temp', $1)", &[&lie]);
        assert!(all[0] > 10, "temporary shadows: {all:?}");
    }
}

impl Cluster {
    /// The shadows that were called according to the log: which, by whom, in which statement of kb, and how
    /// often.
    pub fn evidence(&self) -> BTreeMap<String, usize> {
        let mut found = BTreeMap::new();
        let log = self.log();
        // An entry begins with a time, and its further lines belong to it.
        let mut entries: Vec<String> = Vec::new();
        for line in log.lines() {
            match entries.last_mut() {
                Some(entry) if line.starts_with('\t') => entry.push_str(line),
                _ => entries.push(line.to_string()),
            }
        }
        for (i, entry) in entries.iter().enumerate() {
            let Some((_, what)) = entry.split_once("shadow called: ") else { continue };
            let context = entries[i + 1..].iter().take(2).find(|e| e.contains("CONTEXT:  "));
            let statement = context.and_then(|c| c.split_once("SQL statement ")).map_or("", |(_, s)| s);
            let statement: String = statement.split_whitespace().collect::<Vec<_>>().join(" ");
            let statement: String = statement.chars().take(160).collect();
            *found.entry(format!("{what}: {statement}")).or_default() += 1;
        }
        found
    }

    /// Runs `work`. Fails with the shadows that were called, which explains more than the error of the work.
    pub fn without_evidence(&self, work: impl FnOnce()) {
        let result = panic::catch_unwind(AssertUnwindSafe(work));
        self.assert_no_evidence();
        if let Err(failure) = result {
            panic::resume_unwind(failure);
        }
    }

    /// Fails with the shadows that were called.
    pub fn assert_no_evidence(&self) {
        let found = self.evidence();
        let lines: Vec<String> = found.iter().map(|(what, times)| format!("{times} times {what}")).collect();
        assert!(lines.is_empty(), "{} shadows were called:\n{}", lines.len(), lines.join("\n"));
    }
}
