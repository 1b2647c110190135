//! The files, functions and types that ARCHITECTURE.md and CONTRIBUTING.md name exist.

use crate::files;
use std::path::PathBuf;

const FOLDERS: &[&str] =
    &["bench", "crates", "demo", "docs", "fuzz", "pg_test", "sql", "src", "tests", "tools"];
const ENDINGS: &[&str] = &[".md", ".py", ".rs", ".sh", ".sql"];
/// The most lines of a page that can be read in a quarter of an hour.
const MOST_LINES: usize = 250;

/// What is between backticks in the prose of `text`.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2))
}

/// The file names at the beginning of the texts between backticks in `text`. (Names with capitals stand for
/// any version or step.)
fn named(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    quoted(text)
        .map(move |quoted| quoted.split(|c| !is_part(c)).next().unwrap())
        .filter(|name| name.ends_with(".md") || !name.contains(char::is_uppercase))
        .filter(|name| ENDINGS.iter().any(|ending| name.len() > ending.len() && name.ends_with(ending)))
}

/// What `text` names as `path.rs::name` or `path.rs::Type::name`: the path, and a name that the file must
/// define.
fn named_within(text: &str) -> impl Iterator<Item = (&str, &str)> {
    quoted(text)
        .filter_map(|quoted| {
            let (path, names) = quoted.split_once("::").filter(|(path, _)| path.ends_with(".rs"))?;
            Some(names.split("::").map(move |name| (path, name)))
        })
        .flatten()
}

fn defines(source: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    ["fn", "struct", "enum", "trait", "const", "static"]
        .iter()
        .any(|kind| source.split(&format!("{kind} {name}")).skip(1).any(|rest| !rest.starts_with(is_part)))
}

#[test]
fn a_file_is_named_up_to_what_is_in_it() {
    let text = "`a/b.rs::f` and `c.sql` but `d` and `.rs`\n```\n`e.rs`\n```\n`f-g.sh STEP` `kb--A.sql` `h.rs::T::g` `i::j`";
    assert_eq!(named(text).collect::<Vec<_>>(), ["a/b.rs", "c.sql", "f-g.sh", "h.rs"]);
    let within: Vec<_> = named_within(text).collect();
    assert_eq!(within, [("a/b.rs", "f"), ("h.rs", "T"), ("h.rs", "g")]);
    assert!(defines("pub struct T<A>; fn g()", "T") && defines("fn g()", "g"));
    assert!(!defines("fn gone() { g() }", "g"));
}

#[test]
fn the_files_that_the_pages_for_contributors_name_are_there() {
    let mut there: Vec<PathBuf> = vec!["CHANGELOG.md".into(), "README.md".into()];
    for folder in FOLDERS {
        there.extend(files::under(folder));
    }
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = std::fs::read_to_string(page).unwrap();
        let missing: Vec<&str> =
            named(&text).filter(|name| !there.iter().any(|path| path.ends_with(name))).collect();
        assert!(named(&text).count() > 30, "{page}");
        assert!(missing.is_empty(), "{page}: {missing:?}");
        let is_there = |(path, name): &(&str, &str)| {
            let mut found = there.iter().filter(|file| file.ends_with(path));
            found.any(|file| defines(&std::fs::read_to_string(file).unwrap(), name))
        };
        let undefined: Vec<_> = named_within(&text).filter(|named| !is_there(named)).collect();
        assert!(undefined.is_empty(), "{page}: {undefined:?}");
    }
}

#[test]
fn the_architecture_is_read_in_a_quarter_of_an_hour() {
    let text = std::fs::read_to_string("ARCHITECTURE.md").unwrap();
    assert!(text.lines().count() <= MOST_LINES, "{} lines", text.lines().count());
    assert!(named_within(&text).count() > 30);
}
