//! The cells of a sheet, from which tables are made. A sheet can have a cell in its last row and column, so
//! only cells that have text take space.

use super::blocks::{Blocks, push_cell, push_text};
use kb_types::extraction::Fault;

/// The bytes that a cell takes beside its text.
const CELL: usize = 3;

/// The rows of a sheet that have text.
#[derive(Debug)]
pub struct Grid {
    rows: Vec<Row>,
    /// How many more bytes of text it may have.
    left: usize,
}

#[derive(Debug)]
struct Row {
    /// Its place, counted from 0.
    place: u64,
    /// How many rows of the same cells there are from here.
    count: u64,
    cells: Vec<(u32, String)>,
}

impl Grid {
    pub fn new(max_text: usize) -> Grid {
        Grid { rows: Vec::new(), left: max_text }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a cell. Places are counted from 0.
    pub fn push(&mut self, row: u64, column: u32, text: String) -> Result<(), Fault> {
        if text.trim().is_empty() {
            return Ok(());
        }
        self.left = self.left.checked_sub(text.len() + CELL).ok_or_else(too_large)?;
        match self.rows.last_mut() {
            Some(last) if last.place == row => last.cells.push((column, text)),
            _ => self.rows.push(Row { place: row, count: 1, cells: vec![(column, text)] }),
        }
        Ok(())
    }

    /// Says that a row, if it has text, is there several times.
    pub fn repeat(&mut self, row: u64, count: u64) -> Result<(), Fault> {
        let Some(last) = self.rows.last_mut().filter(|last| last.place == row) else { return Ok(()) };
        let size: usize = last.cells.iter().map(|(_, text)| text.len() + CELL).sum();
        let copies = usize::try_from(count.saturating_sub(1)).unwrap_or(usize::MAX);
        self.left = self.left.checked_sub(size.saturating_mul(copies)).ok_or_else(too_large)?;
        last.count = count.max(1);
        Ok(())
    }

    /// Adds a table for each run of rows without an empty row between them. Columns that are empty in all of
    /// its rows are left out.
    pub fn write(mut self, to: &mut Blocks) -> Result<(), Fault> {
        self.rows.sort_by_key(|row| row.place);
        self.rows.dedup_by(|row, before| {
            let is_same = row.place == before.place;
            if is_same {
                before.cells.append(&mut row.cells);
            }
            is_same
        });
        let ends = |row: &Row, next: &Row| row.place + row.count >= next.place;
        for rows in self.rows.chunk_by(ends) {
            let mut columns: Vec<u32> =
                rows.iter().flat_map(|row| &row.cells).map(|(column, _)| *column).collect();
            columns.sort_unstable();
            columns.dedup();
            to.begin_table()?;
            for row in rows {
                let html = row.html(&columns);
                (0..row.count).try_for_each(|_| to.row(&html))?;
            }
            to.end_table()?;
        }
        Ok(())
    }
}

impl Row {
    fn html(&self, columns: &[u32]) -> String {
        let mut texts = vec![""; columns.len()];
        for (column, text) in &self.cells {
            if let Ok(index) = columns.binary_search(column) {
                texts[index] = text;
            }
        }
        let (mut html, mut escaped) = (String::new(), String::new());
        for text in texts {
            escaped.clear();
            push_text(&mut escaped, text);
            push_cell(&mut html, &escaped, 1);
        }
        html
    }
}

fn too_large() -> Fault {
    Fault::TooLarge("its sheets have more text than is allowed".into())
}
