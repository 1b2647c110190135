//! The files of a folder, how wide their comments are, and how long the names of functions.

use std::path::{Path, PathBuf};

/// Columns that a comment line has at most.
const WIDEST: usize = 110;
/// Characters that the name of a test, or of any function, has at most.
const LONGEST_NAME: usize = 80;

/// All files under a folder, in order.
pub fn under(folder: impl AsRef<Path>) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { under(path) } else { vec![path] }).collect();
    files.sort();
    files
}

/// The numbers of the lines that are comments and too wide.
fn wide_comments(source: &str) -> Vec<usize> {
    let is_wide = |line: &str| line.trim_start().starts_with("//") && line.chars().count() > WIDEST;
    source.lines().zip(1..).filter(|(line, _)| is_wide(line)).map(|(_, number)| number).collect()
}

/// The numbers of the lines that name a function at too great length.
fn long_names(source: &str) -> Vec<usize> {
    let is_long = |line: &str| {
        let name = line.split_once("fn ").and_then(|(_, rest)| rest.split_once(['(', '<']));
        name.is_some_and(|(name, _)| name.len() > LONGEST_NAME && !name.contains(' '))
    };
    source.lines().zip(1..).filter(|(line, _)| is_long(line)).map(|(_, number)| number).collect()
}

/// Fails with the lines of the Rust files in these folders that `lines` finds.
fn assert_none(folders: impl IntoIterator<Item = PathBuf>, lines: fn(&str) -> Vec<usize>) {
    let files = folders.into_iter().flat_map(under);
    let sources = files.filter(|file| file.extension().is_some_and(|end| end == "rs"));
    let found: Vec<String> = sources
        .flat_map(|file| {
            let numbers = lines(&std::fs::read_to_string(&file).unwrap());
            numbers.into_iter().map(move |number| format!("{}:{number}", file.display()))
        })
        .collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn comment_lines_have_at_most_110_columns() {
    let text = |width: usize| "ä".repeat(width - 3);
    let source = format!("// {}\n    /// {}\nlet a = 1; // {0}\n", text(110), text(110));
    assert_eq!(wide_comments(&source), [2]);
    assert_none(["crates", "src", "tests"].map(PathBuf::from), wide_comments);
}

#[test]
fn names_of_tests_have_at_most_80_characters() {
    let name = |length: usize| "a".repeat(length);
    let source = format!("fn {}() {{\n    async fn {}<T>() {{ \"fn \" }}\n", name(80), name(81));
    assert_eq!(long_names(&source), [2]);
    assert_none(["crates", "src", "tests"].map(PathBuf::from), long_names);
}
