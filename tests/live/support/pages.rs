//! Pages of docs/: their text and its parts.

use std::path::Path;

/// Cargo runs tests in the root of the repository, which may have been elsewhere when they were compiled.
pub const ROOT: &str = ".";

/// The text of a page, whose name is relative to the root of the repository.
pub fn text(page: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(page)).unwrap()
}

/// The text below a heading, up to the next one of its level ("## ", for example).
pub fn sections<'a>(text: &'a str, heading: &str) -> Vec<(&'a str, &'a str)> {
    let heading = format!("\n{heading}");
    let parts = text.split(&heading).skip(1);
    parts.map(|part| part.split_once('\n').unwrap_or((part, ""))).collect()
}

/// The cells of all rows of a text's tables, without their heads.
pub fn rows(text: &str) -> Vec<Vec<String>> {
    let lines: Vec<&str> = text.lines().collect();
    let is_rule = |i: usize| lines.get(i).is_some_and(|line| line.starts_with("|---"));
    let of_a_row = (0..lines.len()).filter(|i| lines[*i].starts_with('|') && !is_rule(*i) && !is_rule(i + 1));
    let cells = |line: &str| -> Vec<String> {
        let cells = line.trim_matches('|').split(" |");
        cells.map(|cell| cell.trim().trim_matches('|').trim().to_string()).collect()
    };
    of_a_row.map(|i| cells(lines[i])).collect()
}

/// What is between backticks.
pub fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}
