//! Writes terms and their postings, in order, into pages.
//!
//! A page has a version and entries. An entry has the difference of the term from the previous one, and the
//! postings. A term with df 1 and one posting has nothing else. Other entries also have flags, the number of
//! postings, the df if it differs from that, and the size of the postings. A list lies either wholly in one
//! page, or begins a page and continues in the following pages, which begin with the same term. A reader
//! therefore finds it by the first terms of pages alone.

use super::bytes::{put_number, put_signed, put_term};
use super::corrupt::Corrupt;
use super::postings::{BLOCK, Columns, Posting};
use super::terms::MAX_TERM;

/// The most bytes of a page, so that its row fits into a heap page of 8 kB.
pub const PAGE_SIZE: usize = 7800;

/// The most bytes of a page together with its first term, which is a column of its row.
pub const ROW_SIZE: usize = 8000;

pub const VERSION: u8 = 1;

/// The flags of an entry: the list continues in the next page, a df follows, and the list began in the
/// previous page.
pub const CONTINUES: u64 = 1;
pub const HAS_DF: u64 = 2;
pub const CONTINUED: u64 = 4;
pub const FLAG_BITS: u32 = 3;

/// The most bytes of an entry besides its term and its postings.
const MAX_HEAD: usize = 40;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub first_term: Vec<u8>,
    pub bytes: Vec<u8>,
}

/// For each term call `begin`, `push` for each posting, and `end`, and finally `finish`. The writer holds one
/// page, and at most as many postings of the term as fit into another.
pub struct Writer<S> {
    sink: S,
    page: Vec<u8>,
    first_term: Vec<u8>,
    term: Vec<u8>,
    df: i64,
    /// The previous term, which counts only if `page` has terms.
    previous: Vec<u8>,
    part: PendingPart,
    /// The postings after the part's blocks.
    rest: Columns,
    /// A lower bound of the chunk of the next posting.
    lowest: u32,
    entry: Vec<u8>,
    /// The bytes of the entry's postings.
    postings: Vec<u8>,
}

/// Blocks that have not been written to a page yet.
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
            // The bound is the first chunk itself, so that the first delta takes no more bits than the
            // others.
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

    /// Writes the blocks as a page of their own. The list continues in the next page.
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

    /// Whether `size` bytes of the term fit into the page.
    fn fits(&self, size: usize) -> bool {
        // An empty page first needs its version.
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
