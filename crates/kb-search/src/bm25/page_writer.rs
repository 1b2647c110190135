//! Writes terms and their postings, in order, as pages.
//!
//! A page is a version and entries. An entry is the term as it differs from the one before, then its postings; a term
//! with df 1 and one posting has nothing else. Others have flags and the number of postings, the df if it is not that
//! number, and the size of the postings.
//! A list either lies wholly in one page, or begins a page and goes on in the pages after it, which begin with the same
//! term: so a reader finds it by the pages' first terms alone.

use super::bytes::{put_number, put_signed, put_term};
use super::corrupt::Corrupt;
use super::postings::{BLOCK, Columns, Posting};
use super::terms::MAX_TERM;

/// A page has at most so many bytes, so that its row fits into a heap page of 8 kB.
pub const PAGE_SIZE: usize = 7800;

/// A page and its first term, which is a column of its row, have at most so many together.
pub const ROW_SIZE: usize = 8000;

pub const VERSION: u8 = 1;

/// The flags of an entry: the list goes on in the next page; a df follows; the list began in the page before.
pub const CONTINUES: u64 = 1;
pub const HAS_DF: u64 = 2;
pub const CONTINUED: u64 = 4;
pub const FLAG_BITS: u32 = 3;

/// What an entry has at most beside its term's bytes and its postings.
const MAX_HEAD: usize = 40;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub first_term: Vec<u8>,
    pub bytes: Vec<u8>,
}

/// Takes each term by `begin`, any number of `push`, and `end`; then `finish`. Holds a page, and of the term's postings
/// at most what fits into another.
pub struct Writer<S> {
    sink: S,
    page: Vec<u8>,
    first_term: Vec<u8>,
    term: Vec<u8>,
    df: i64,
    /// The term before, for `page` only if that has terms.
    previous: Vec<u8>,
    part: PendingPart,
    /// The postings after the part's blocks.
    rest: Columns,
    /// The next posting's chunk is not below.
    lowest: u32,
    entry: Vec<u8>,
    /// Of the entry.
    postings: Vec<u8>,
}

/// Blocks that are in no page yet.
#[derive(Default)]
struct PendingPart {
    continued: bool,
    lowest: u32,
    /// The chunk after the last.
    end: u32,
    blocks: Vec<u8>,
    count: usize,
}

impl<E: From<Corrupt>, S: FnMut(Page) -> Result<(), E>> Writer<S> {
    pub fn new(sink: S) -> Self {
        Writer {
            sink,
            page: Vec::new(),
            first_term: Vec::new(),
            term: Vec::new(),
            df: 0,
            previous: Vec::new(),
            part: PendingPart::default(),
            rest: Columns::default(),
            lowest: 0,
            entry: Vec::new(),
            postings: Vec::new(),
        }
    }

    /// Terms ascend strictly.
    pub fn begin(&mut self, term: &[u8], df: i64) -> Result<(), E> {
        if term.len() > MAX_TERM || term <= self.term.as_slice() {
            return Err(Corrupt("terms are out of order, or one is too long").into());
        }
        self.term.clear();
        self.term.extend_from_slice(term);
        self.df = df;
        self.part.clear(0);
        self.part.continued = false;
        self.rest.count = 0;
        self.lowest = 0;
        Ok(())
    }

    /// Chunks ascend strictly.
    #[inline]
    pub fn push(&mut self, posting: Posting) -> Result<(), E> {
        if posting.chunk < self.lowest || posting.chunk == u32::MAX {
            return Err(Corrupt("chunks are out of order").into());
        }
        self.lowest = posting.chunk + 1;
        self.rest.push(posting);
        if self.rest.count == BLOCK { self.close_block() } else { Ok(()) }
    }

    /// Drops the term if it has neither postings nor a df.
    pub fn end(&mut self) -> Result<(), E> {
        if self.part.count + self.rest.count == 0 && self.df == 0 && !self.part.continued {
            return Ok(());
        }
        self.encode_entry(false);
        if !self.fits(self.entry.len()) {
            if !self.page.is_empty() {
                self.flush_page()?;
                self.encode_entry(false);
            }
            if !self.fits(self.entry.len()) {
                self.write_part()?;
                self.encode_entry(false);
            }
        }
        self.append_entry();
        Ok(())
    }

    pub fn finish(mut self) -> Result<(), E> {
        if self.page.is_empty() { Ok(()) } else { self.flush_page() }
    }

    fn close_block(&mut self) -> Result<(), E> {
        if self.part.count == 0 {
            // The first chunk itself, so that the first delta takes no more bits than the others.
            self.part.clear(self.rest.chunks[0]);
        }
        let before = self.part.blocks.len();
        self.rest.put_block(&mut self.part.blocks, self.part.end);
        let size = MAX_HEAD + self.term.len() + self.part.blocks.len();
        if self.part.count > 0 && size > capacity(&self.term) {
            let block = self.part.blocks.split_off(before);
            let rest = std::mem::take(&mut self.rest.count);
            self.write_part()?;
            self.rest.count = rest;
            self.part.blocks = block;
        }
        self.part.count += BLOCK;
        self.part.end = self.lowest;
        self.rest.count = 0;
        Ok(())
    }

    /// Writes the blocks as a page of their own; the list goes on in the next.
    fn write_part(&mut self) -> Result<(), E> {
        if !self.page.is_empty() {
            self.flush_page()?;
        }
        let rest = std::mem::take(&mut self.rest.count);
        self.encode_entry(true);
        self.rest.count = rest;
        self.append_entry();
        self.flush_page()?;
        let end = self.part.end;
        self.part.clear(end);
        self.part.continued = true;
        Ok(())
    }

    fn encode_entry(&mut self, continues: bool) {
        let Self { entry, postings, part, rest, .. } = self;
        let previous = if self.page.is_empty() { &[][..] } else { &self.previous };
        let count = part.count + rest.count;
        entry.clear();
        let single = count == 1 && self.df == 1 && !part.continued;
        put_term(entry, single, previous, &self.term);
        if single {
            rest.put_short(entry, 0);
            return;
        }
        let has_df = !part.continued && self.df != count as i64;
        let flags = [(continues, CONTINUES), (has_df, HAS_DF), (part.continued, CONTINUED)];
        let flags: u64 = flags.iter().map(|(set, flag)| u64::from(*set) * flag).sum();
        put_number(entry, ((count as u64) << FLAG_BITS) + flags);
        if has_df {
            put_signed(entry, self.df);
        }
        if count == 0 {
            return;
        }
        postings.clear();
        if part.count > 0 {
            put_number(postings, part.lowest.into());
            postings.extend_from_slice(&part.blocks);
        }
        rest.put_short(postings, if part.count > 0 { part.end } else { 0 });
        put_number(entry, postings.len() as u64);
        entry.extend_from_slice(postings);
    }

    /// Whether so many bytes of the term fit into the page.
    fn fits(&self, size: usize) -> bool {
        // An empty page gets its version first.
        let (used, first_term) =
            if self.page.is_empty() { (1, &self.term) } else { (self.page.len(), &self.first_term) };
        used + size <= capacity(first_term)
    }

    fn append_entry(&mut self) {
        if self.page.is_empty() {
            self.page.push(VERSION);
            self.first_term.clone_from(&self.term);
        }
        self.page.extend_from_slice(&self.entry);
        self.previous.clone_from(&self.term);
    }

    fn flush_page(&mut self) -> Result<(), E> {
        let bytes = std::mem::take(&mut self.page);
        (self.sink)(Page { first_term: self.first_term.clone(), bytes })
    }
}

impl PendingPart {
    fn clear(&mut self, lowest: u32) {
        (self.lowest, self.end) = (lowest, lowest);
        self.blocks.clear();
        self.count = 0;
    }
}

fn capacity(first_term: &[u8]) -> usize {
    PAGE_SIZE.min(ROW_SIZE - first_term.len())
}
