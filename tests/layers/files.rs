//! The files of a folder, and how wide their comments are.

use std::path::{Path, PathBuf};

/// Folders whose comments have at most [`WIDEST`] columns.
const WRAPPED: &[&str] = &["crates"];
const WIDEST: usize = 110;

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

#[test]
fn comment_lines_have_at_most_110_columns() {
    let text = |width: usize| "ä".repeat(width - 3);
    let source = format!("// {}\n    /// {}\nlet a = 1; // {0}\n", text(110), text(110));
    assert_eq!(wide_comments(&source), [2]);
    let sources =
        WRAPPED.iter().flat_map(under).filter(|file| file.extension().is_some_and(|end| end == "rs"));
    let found: Vec<String> = sources
        .flat_map(|file| {
            let wide = wide_comments(&std::fs::read_to_string(&file).unwrap());
            wide.into_iter().map(move |line| format!("{}:{line}", file.display()))
        })
        .collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}
