//! Files that ARCHITECTURE.md and CONTRIBUTING.md name are there.

use std::path::{Path, PathBuf};

const FOLDERS: &[&str] =
    &["bench", "crates", "demo", "docs", "fuzz", "pg_test", "sql", "src", "tests", "tools"];
const ENDINGS: &[&str] = &[".md", ".py", ".rs", ".sh", ".sql"];

fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, out) } else { out.push(path) }
    }
}

/// What is between backticks in `text` and begins with the name of a file. (Capitals mean any version or step.)
fn named(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let quoted = text.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2));
    quoted
        .map(move |quoted| quoted.split(|c| !is_part(c)).next().unwrap())
        .filter(|name| name.ends_with(".md") || !name.contains(char::is_uppercase))
        .filter(|name| ENDINGS.iter().any(|ending| name.len() > ending.len() && name.ends_with(ending)))
}

#[test]
fn a_file_is_named_up_to_what_is_in_it() {
    let text = "`a/b.rs::f` and `c.sql` but `d` and `.rs`\n```\n`e.rs`\n```\n`f-g.sh STEP` `kb--A.sql`";
    assert_eq!(named(text).collect::<Vec<_>>(), ["a/b.rs", "c.sql", "f-g.sh"]);
}

#[test]
fn the_files_that_the_pages_for_contributors_name_are_there() {
    let mut there: Vec<PathBuf> = vec!["CHANGELOG.md".into(), "README.md".into()];
    for folder in FOLDERS {
        files(Path::new(folder), &mut there);
    }
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = std::fs::read_to_string(page).unwrap();
        let missing: Vec<&str> =
            named(&text).filter(|name| !there.iter().any(|path| path.ends_with(name))).collect();
        assert!(named(&text).count() > 30, "{page}");
        assert!(missing.is_empty(), "{page}: {missing:?}");
    }
}
