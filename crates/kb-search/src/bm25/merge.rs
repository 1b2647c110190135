//! Merges segments term by term. Memory holds a page of each segment, and what the page writer needs.

use super::corrupt::Corrupt;
use super::page::{Entry, Position};
use super::page_writer::{Page, Writer};
use super::postings::{Columns, Posting, PostingBlocks};
use super::renumbering::Renumbering;
use super::terms::key;

/// A segment to merge.
pub struct Source<'a, P> {
    /// The segment's pages, in order, then None.
    pub pages: P,
    /// The new number of each chunk, or DEAD. The numbers of a source are consecutive, and lower than those
    /// of the next source.
    pub numbers: &'a [u32],
}

/// Passes the pages of the merged segment to `sink`, in order. The df of a term are added. Dropping the
/// postings of dead chunks does not change df, because their tombstones have already subtracted them. The
/// totals are the sums of the sources' totals.
pub fn merge<E, P, S>(sources: Vec<Source<'_, P>>, sink: S) -> Result<(), E>
where
    E: From<Corrupt>,
    P: FnMut() -> Result<Option<Vec<u8>>, E>,
    S: FnMut(Page) -> Result<(), E>,
{
    let mut readers = Vec::with_capacity(sources.len());
    for source in sources {
        let mut reader = SegmentReader::new(source)?;
        if reader.advance()? {
            readers.push(reader);
        }
    }
    let mut writer = Writer::new(sink);
    let (mut term, mut with_term) = (Vec::new(), Vec::new());
    // The keys are stored together, so that finding the least term reads little memory.
    let mut keys: Vec<u128> = readers.iter().map(|reader| key(reader.term())).collect();
    while let Some(least) = keys.iter().min() {
        with_term.clear();
        with_term.extend((0..keys.len()).filter(|i| keys[*i] == *least));
        if let Some(least) = with_term.iter().map(|i| readers[*i].term()).min() {
            term.clear();
            term.extend_from_slice(least);
        }
        with_term.retain(|i| readers[*i].term() == term);
        let mut df = 0i64;
        for i in &with_term {
            df = df.checked_add(readers[*i].entry.df).ok_or(Corrupt("a df is too large"))?;
        }
        writer.begin(&term, df)?;
        let mut ended = false;
        for &i in &with_term {
            readers[i].copy_postings(&mut writer)?;
            ended |= !readers[i].advance()?;
            keys[i] = key(readers[i].term());
        }
        writer.end()?;
        if ended {
            readers.retain(|reader| !reader.ended);
            keys = readers.iter().map(|reader| key(reader.term())).collect();
        }
    }
    writer.finish()
}

struct SegmentReader<P> {
    pages: P,
    numbers: Renumbering,
    page: Vec<u8>,
    position: Position,
    entry: Entry,
    ended: bool,
    columns: Columns,
}

impl<P> SegmentReader<P> {
    fn new(source: Source<'_, P>) -> Result<Self, Corrupt> {
        Ok(SegmentReader {
            pages: source.pages,
            numbers: Renumbering::new(source.numbers)?,
            page: Vec::new(),
            position: Position::default(),
            entry: Entry::default(),
            ended: false,
            columns: Columns::default(),
        })
    }

    fn term(&self) -> &[u8] {
        &self.position.term
    }

    /// Advances to the next entry that begins a list. Returns false at the end.
    fn advance<E>(&mut self) -> Result<bool, E>
    where
        E: From<Corrupt>,
        P: FnMut() -> Result<Option<Vec<u8>>, E>,
    {
        if !self.page.is_empty()
            && let Some(entry) = self.position.next_entry(&self.page)?
        {
            self.entry = entry;
        } else if !self.read_page()? {
            self.ended = true;
            return Ok(false);
        }
        if self.entry.continued {
            return Err(Corrupt("the page where a posting list begins is missing").into());
        }
        Ok(true)
    }

    /// Advances to the first entry of the next page. Returns false if there is none.
    fn read_page<E>(&mut self) -> Result<bool, E>
    where
        E: From<Corrupt>,
        P: FnMut() -> Result<Option<Vec<u8>>, E>,
    {
        let Some(page) = (self.pages)()? else { return Ok(false) };
        self.page = page;
        self.position.restart();
        self.entry = self.position.next_entry(&self.page)?.ok_or(Corrupt("a page has no terms"))?;
        Ok(true)
    }

    /// Copies the postings of the current term from this page and from those in which the list continues.
    fn copy_postings<E, S>(&mut self, writer: &mut Writer<S>) -> Result<(), E>
    where
        E: From<Corrupt>,
        P: FnMut() -> Result<Option<Vec<u8>>, E>,
        S: FnMut(Page) -> Result<(), E>,
    {
        self.copy_part(writer)?;
        let mut term = Vec::new();
        while self.entry.continues {
            term.clear();
            term.extend_from_slice(self.term());
            if !self.read_page()? || !self.entry.continued || self.entry.df != 0 || term != self.term() {
                return Err(Corrupt("the page where a posting list goes on is missing").into());
            }
            self.copy_part(writer)?;
        }
        Ok(())
    }

    fn copy_part<E, S>(&mut self, writer: &mut Writer<S>) -> Result<(), E>
    where
        E: From<Corrupt>,
        S: FnMut(Page) -> Result<(), E>,
    {
        let mut blocks = PostingBlocks::new(self.entry.part(&self.page))?;
        while let Some(block) = blocks.next_block()? {
            block.unpack_chunks(&mut self.columns)?;
            block.unpack_weights(&mut self.columns)?;
            for at in 0..self.columns.count {
                let posting = self.columns.get(at);
                if let Some(chunk) = self.numbers.number(posting.chunk)? {
                    writer.push(Posting { chunk, ..posting })?;
                }
            }
        }
        Ok(())
    }
}
