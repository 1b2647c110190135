//! Writes and reads the rows of a segment.

use super::IDS_PER_PART;
use crate::pg::row::from_row;
use crate::pg::spi::{self, Arg, Row};
use kb_search::bm25::{Page, Totals};
use kb_types::error::{Error, Result};
use std::collections::VecDeque;
use uuid::Uuid;

/// The number of pages that one statement writes or reads: about a megabyte.
const PAGES_AT_ONCE: usize = 128;

from_row! {
    /// The build, knowledge base and tenant to which the chunks of a segment belong.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct Owner {
        pub build_no: i64,
        pub kb_no: i64,
        pub tenant_id: String,
    }
}

/// A segment that is being written: its row exists, and pages follow.
pub struct Writer {
    segment_no: i64,
    first_terms: Vec<Vec<u8>>,
    pages: Vec<Vec<u8>>,
    written: i32,
}

impl Writer {
    /// With `age` None the new segment is the youngest.
    pub fn begin(owner: &Owner, age: Option<i64>, came: &[Uuid], went: &[Uuid]) -> Result<Writer> {
        let segment_no = spi::write_one(
            "INSERT INTO kb.bm25_segments (build_no, kb_no, tenant_id, age, came, went, sum_length)
             VALUES ($1, $2, $3, coalesce($4, pg_catalog.nextval('kb.segment_no_seq')), $5, $6, 0) RETURNING segment_no",
            &[
                Arg::Long(owner.build_no),
                Arg::Long(owner.kb_no),
                Arg::Text(&owner.tenant_id),
                Arg::LongOrNull(age),
                Arg::Int(came.len() as i32),
                Arg::Int(went.len() as i32),
            ],
            Row::only::<i64>,
        )?
        .ok_or_else(|| Error::Internal("a segment has no number".into()))?;
        write_ids(segment_no, false, came)?;
        write_ids(segment_no, true, went)?;
        Ok(Writer { segment_no, first_terms: Vec::new(), pages: Vec::new(), written: 0 })
    }

    pub fn write(&mut self, page: Page) -> Result<()> {
        self.first_terms.push(page.first_term);
        self.pages.push(page.bytes);
        if self.pages.len() < PAGES_AT_ONCE { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<()> {
        spi::execute(
            "INSERT INTO kb.bm25_terms (segment_no, first_term, page_no, page)
             SELECT $1, u.first_term, $2 + u.n::integer, u.page
             FROM unnest($3::bytea[], $4::bytea[]) WITH ORDINALITY AS u (first_term, page, n)",
            &[
                Arg::Long(self.segment_no),
                Arg::Int(self.written),
                Arg::BytesArray(&self.first_terms),
                Arg::BytesArray(&self.pages),
            ],
        )?;
        self.written += self.pages.len() as i32;
        self.first_terms.clear();
        self.pages.clear();
        Ok(())
    }

    pub fn finish(mut self, totals: Totals) -> Result<()> {
        if !self.pages.is_empty() {
            self.flush()?;
        }
        spi::execute(
            "UPDATE kb.bm25_segments SET sum_length = $2 WHERE segment_no = $1",
            &[Arg::Long(self.segment_no), Arg::Long(totals.sum_length)],
        )?;
        Ok(())
    }
}

fn write_ids(segment_no: i64, is_gone: bool, ids: &[Uuid]) -> Result<()> {
    let parts: Vec<Vec<u8>> = ids
        .chunks(IDS_PER_PART)
        .map(|part| part.iter().flat_map(Uuid::as_bytes).copied().collect())
        .collect();
    for (n, parts) in parts.chunks(PAGES_AT_ONCE).enumerate() {
        spi::execute(
            "INSERT INTO kb.bm25_chunks (segment_no, is_gone, part, chunk_ids)
             SELECT $1, $2, $3 + u.n::integer - 1, u.chunk_ids
             FROM pg_catalog.unnest($4::bytea[]) WITH ORDINALITY AS u (chunk_ids, n)",
            &[
                Arg::Long(segment_no),
                Arg::Bool(is_gone),
                Arg::Int((n * PAGES_AT_ONCE) as i32),
                Arg::BytesArray(parts),
            ],
        )?;
    }
    Ok(())
}

/// All ids of one kind in a segment, in the order of their numbers.
pub fn ids(segment_no: i64, is_gone: bool) -> Result<Vec<Uuid>> {
    let parts = spi::write(
        "SELECT chunk_ids FROM kb.bm25_chunks WHERE segment_no = $1 AND is_gone = $2 ORDER BY part",
        &[Arg::Long(segment_no), Arg::Bool(is_gone)],
        Row::only::<Vec<u8>>,
    )?;
    Ok(parts.iter().flat_map(|part| ids_of(part)).collect())
}

/// The ids in a row of kb.bm25_chunks.
pub fn ids_of(part: &[u8]) -> impl Iterator<Item = Uuid> {
    part.as_chunks::<16>().0.iter().map(|bytes| Uuid::from_bytes(*bytes))
}

/// Reads the pages of a segment in order, a few at a time.
pub struct Pages {
    segment_no: i64,
    read: VecDeque<Vec<u8>>,
    /// The first term and the number of the last page that was read.
    last: (Vec<u8>, i32),
    is_at_end: bool,
}

impl Pages {
    pub fn of(segment_no: i64) -> Pages {
        Pages { segment_no, read: VecDeque::new(), last: (Vec::new(), -1), is_at_end: false }
    }

    pub fn next_page(&mut self) -> Result<Option<Vec<u8>>> {
        if self.read.is_empty() && !self.is_at_end {
            let pages = spi::write(
                &format!(
                    "SELECT first_term, page_no, page FROM kb.bm25_terms
                     WHERE segment_no = $1 AND (first_term, page_no) > ($2, $3)
                     ORDER BY first_term, page_no LIMIT {PAGES_AT_ONCE}"
                ),
                &[Arg::Long(self.segment_no), Arg::Bytes(&self.last.0), Arg::Int(self.last.1)],
                |row| Ok((row.get("first_term")?, row.get("page_no")?, row.get("page")?)),
            )?;
            self.is_at_end = pages.len() < PAGES_AT_ONCE;
            for (first_term, page_no, page) in pages {
                self.last = (first_term, page_no);
                self.read.push_back(page);
            }
        }
        Ok(self.read.pop_front())
    }
}
