//! Rows in columns, for people.

use super::clean::clean_line;
use super::{DIM, Output};
use anstyle::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// The columns between two columns of a table.
const GAP: usize = 2;
/// The width to which the last column is cut at least, on narrow terminals.
const LEAST_LAST: usize = 10;

pub struct Table {
    heads: Vec<(&'static str, Align)>,
    rows: Vec<Vec<(String, Style)>>,
    /// The widths of pages that were already written.
    widths: Vec<usize>,
}

impl Table {
    pub fn new(heads: &[(&'static str, Align)]) -> Table {
        let widths = heads.iter().map(|(head, _)| head.width()).collect();
        Table { heads: heads.to_vec(), rows: Vec::new(), widths }
    }

    /// Adds a row, whose cells are cleaned.
    pub fn row<const N: usize>(&mut self, cells: [(&str, Style); N]) {
        self.cells(cells);
    }

    /// Adds a row, whose cells are cleaned.
    pub fn cells<'c>(&mut self, cells: impl IntoIterator<Item = (&'c str, Style)>) {
        self.rows.push(cells.into_iter().map(|(text, style)| (clean_line(text), style)).collect());
    }

    /// The heads and the rows.
    pub fn text(&mut self, output: &Output) -> String {
        let heads: Vec<(String, Style)> =
            self.heads.iter().map(|(head, _)| (head.to_string(), DIM)).collect();
        self.rows.insert(0, heads);
        self.page(output)
    }

    /// The rows that were added since the last call, as lines; columns are at least as wide as before.
    pub fn page(&mut self, output: &Output) -> String {
        for row in &self.rows {
            for (width, (cell, _)) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        let last = self.heads.len().saturating_sub(1);
        let before: usize = self.widths[..last].iter().map(|width| width + GAP).sum();
        let limit = if output.is_terminal { output.width() } else { None }
            .map(|width| width.saturating_sub(before).max(LEAST_LAST));
        let mut text = String::new();
        for row in self.rows.drain(..) {
            let mut line = String::new();
            for (at, (cell, style)) in row.iter().enumerate() {
                let cell = match limit {
                    Some(limit) if at == last => shortened(cell, limit),
                    _ => cell.clone(),
                };
                let padding = " ".repeat(self.widths[at].saturating_sub(cell.width()));
                let painted = output.paint(*style, &cell);
                if self.heads[at].1 == Align::Right {
                    line.push_str(&padding);
                    line.push_str(&painted);
                } else {
                    line.push_str(&painted);
                    if at < last {
                        line.push_str(&padding);
                    }
                }
                if at < last {
                    line.push_str(&" ".repeat(GAP));
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// The text with at most this many columns; what is cut is shown by `…`.
pub fn shortened(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_string();
    }
    let mut used = 1;
    let kept = text.chars().take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= columns
    });
    kept.collect::<String>() + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_what_a_terminal_shows() {
        let output = Output { json: false, is_terminal: false, has_colour: false };
        let mut table = Table::new(&[("ID", Align::Left), ("N", Align::Right), ("NOTE", Align::Left)]);
        let plain = Style::new();
        table.row([("漢字", plain), ("7", plain), ("two\nlines", plain)]);
        table.row([("a", plain), ("1234", plain), ("", plain)]);
        assert_eq!(table.text(&output), "ID       N  NOTE\n漢字     7  two lines\na     1234\n");
        assert_eq!(shortened("漢字かな", 5), "漢字…");
        assert_eq!(shortened("abc", 3), "abc");
    }
}
