//! Reads pages entry by entry, or the list of one term.

use super::bytes::{Reader, read_term};
use super::corrupt::Corrupt;
use super::page_writer::{CONTINUED, CONTINUES, FLAG_BITS, HAS_DF, VERSION};
use super::postings::ListPart;
use std::ops::Range;

/// The list of a term in one segment. The default is the list of a term that the segment does not contain.
#[derive(Debug, Clone, Default)]
pub struct List<'a> {
    /// The number of chunks of the segment with the term, minus the number of tombstones with it.
    pub df: i64,
    pub parts: Vec<ListPart<'a>>,
}

/// An entry of a page. It has positions instead of references, because the page may move.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    pub df: i64,
    /// Whether the list began in the previous page.
    pub continued: bool,
    /// Whether the list continues in the next page.
    pub continues: bool,
    count: u32,
    postings: Range<usize>,
}

impl Entry {
    /// `page` must be the page of the entry.
    pub fn part<'a>(&self, page: &'a [u8]) -> ListPart<'a> {
        ListPart { count: self.count, bytes: page.get(self.postings.clone()).unwrap_or_default() }
    }
}

/// The position in a page at which reading continues, and the last term.
#[derive(Default)]
pub struct Position {
    pub term: Vec<u8>,
    at: usize,
}

impl Position {
    /// Starts the next page.
    pub fn restart(&mut self) {
        self.at = 0;
    }

    /// Reads the next entry of `page` and stores its term in `term`. None at the end.
    pub fn next_entry(&mut self, page: &[u8]) -> Result<Option<Entry>, Corrupt> {
        if self.at == 0 {
            if page.first() != Some(&VERSION) {
                return Err(Corrupt("a page has an unknown version"));
            }
            self.at = 1;
            self.term.clear();
        }
        let mut reader = Reader::new(page.get(self.at..).unwrap_or_default());
        if reader.is_empty() {
            return Ok(None);
        }
        let single = read_term(&mut reader, &mut self.term)?;
        let mut entry = Entry { df: 1, continued: false, continues: false, count: 1, postings: 0..0 };
        let size = if single {
            let start = reader;
            read_past_single(&mut reader)?;
            let size = start.remaining() - reader.remaining();
            reader = start;
            size
        } else {
            let head = reader.number()?;
            let count =
                u32::try_from(head >> FLAG_BITS).map_err(|_| Corrupt("a posting list is too long"))?;
            entry.count = count;
            entry.continued = head & CONTINUED != 0;
            entry.continues = head & CONTINUES != 0;
            entry.df = match (head & HAS_DF != 0, entry.continued) {
                (true, _) => reader.signed()?,
                (false, true) => 0,
                (false, false) => count.into(),
            };
            if count > 0 { reader.small()? as usize } else { 0 }
        };
        let start = page.len() - reader.remaining();
        reader.take(size)?;
        entry.postings = start..start + size;
        self.at = start + size;
        Ok(Some(entry))
    }
}

fn read_past_single(reader: &mut Reader) -> Result<(), Corrupt> {
    let repeated = reader.number()? & 1 == 1;
    for _ in 0..1 + u8::from(repeated) {
        reader.number()?;
    }
    Ok(())
}

/// Finds a term. `pages` must be all pages of the segment whose first term is `term`, in order. If there is
/// none, it must be the last page whose first term is less (the last among equals), if there is one.
pub fn find<'a>(term: &[u8], pages: &[&'a [u8]]) -> Result<Option<List<'a>>, Corrupt> {
    let mut list = List::default();
    for (i, &page) in pages.iter().enumerate() {
        let mut position = Position::default();
        let entry = loop {
            match position.next_entry(page)? {
                Some(entry) if position.term.as_slice() == term => break entry,
                Some(_) if position.term.as_slice() < term => {}
                _ if i == 0 => return Ok(None),
                _ => return Err(Corrupt("a page of a posting list does not have its term")),
            }
        };
        if entry.continued != (i > 0) || entry.continues != (i + 1 < pages.len()) {
            return Err(Corrupt("a page of a posting list is missing or does not belong to it"));
        }
        list.df = list.df.checked_add(entry.df).ok_or(Corrupt("a df is too large"))?;
        list.parts.extend((entry.count > 0).then(|| entry.part(page)));
    }
    Ok((!pages.is_empty()).then_some(list))
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
