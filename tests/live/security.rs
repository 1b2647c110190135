//! docs/security.md is right: its table of functions and roles, and the tests that it names.

use crate::support::files;
use crate::support::pages::{ROOT, quoted, rows, sections, text};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The rows of the table under this heading.
fn table(heading: &str) -> Vec<Vec<String>> {
    let page = text("docs/security.md");
    let found = sections(&page, "## ").into_iter().find(|(title, _)| *title == heading);
    rows(found.unwrap().1)
}

#[test]
fn the_page_names_every_function_and_the_role_that_may_call_it() {
    let (_cluster, mut db) = crate::connected!();
    let mut says = BTreeMap::new();
    for row in table("What each role may do") {
        let may: Vec<bool> = row[1..].iter().map(|cell| cell == "yes").collect();
        says.extend(quoted(&row[0]).map(|name| (name.to_string(), may.clone())));
    }
    let rows = db.0.query(
        "SELECT DISTINCT 'kb.' || proname, ARRAY(
             SELECT has_function_privilege(r, p.oid, 'EXECUTE')
             FROM unnest('{kb_reader,kb_writer,kb_admin}'::text[]) WITH ORDINALITY AS u (r, n) ORDER BY n)
         FROM pg_proc p WHERE pronamespace = 'kb'::regnamespace AND proname !~ '^_'",
        &[],
    );
    let is: BTreeMap<String, Vec<bool>> = rows.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(says, is);
}

/// The text of all sources under a folder.
fn sources(dir: &Path) -> String {
    let is_source = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    files::under(dir)
        .iter()
        .filter(|path| is_source(path))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect()
}

#[test]
fn every_test_that_the_page_names_is_there() {
    let root = Path::new(ROOT);
    let all: String = ["tests", "src", "crates"].iter().map(|folder| sources(&root.join(folder))).collect();
    let mut count = 0;
    for row in table("Threat by threat") {
        assert!(row.len() == 4 && quoted(&row[3]).count() > 0, "{row:?}");
        for name in quoted(&row[3]) {
            count += 1;
            let is_there = match name.ends_with(".sql") {
                true => root.join("pg_test/sql").join(name).exists(),
                false => {
                    all.contains(&format!("#[test]\nfn {name}()"))
                        || all.contains(&format!("#[test]\n    fn {name}()"))
                }
            };
            assert!(is_there, "{name} is named in docs/security.md, and no test");
        }
    }
    assert!(count > 30, "{count}");
}
