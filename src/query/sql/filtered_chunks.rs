//! The chunks that a filter keeps, and an estimate of their number.
//!
//! Under row-level security PostgreSQL uses no index on metadata, because the operators of jsonb might reveal
//! rows that policies hide. Therefore these statements run as the owner, with the condition of the policies
//! written out. A chunk that they find is only a candidate: its row is read as the caller, under all
//! policies. No condition of a filter raises an error, whatever a document contains, so none reveals another
//! tenant's document.

use super::search::SearchTarget;
use crate::filters::filter;
use crate::filters::metadata_indexes;
use crate::pg::estimate;
use crate::pg::role::as_owner;
use crate::pg::setting;
use crate::pg::spi::{self, Arg, Row};
use crate::pg::statement_arguments::Arguments;
use crate::pg::table_cache::{self, TableCache};
use crate::pg::txn;
use crate::sql::BY_LOOKUPS;
use crate::tenants::shares;
use kb_types::Filter;
use kb_types::error::Result;
use kb_types::memory::MemoryCondition;
use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::CStr;
use uuid::Uuid;

/// Up to a few thousand chunks are looked up one by one. With the server's default, which describes a
/// rotating disk, the planner would rather read all chunks.
const LOOK_UPS: [(&CStr, &CStr); 1] = [(c"random_page_cost", c"1.1")];

/// Settings under which one plan serves all arguments of a statement.
const ONE_PLAN: &[(&CStr, &CStr)] = &[(c"plan_cache_mode", c"force_generic_plan")];

/// The chunks of the live build that pass the filter of a question, of documents that the caller's tenant may
/// read. The searches of a question share the list.
pub struct FilteredChunks<'a> {
    pub filter: &'a Filter,
    target: &'a SearchTarget,
    all: OnceCell<Vec<Uuid>>,
    /// A number that they are known to exceed.
    more_than: Cell<Option<usize>>,
}

impl<'a> FilteredChunks<'a> {
    pub fn new(target: &'a SearchTarget, filter: &'a Filter) -> FilteredChunks<'a> {
        FilteredChunks { filter, target, all: OnceCell::new(), more_than: Cell::new(None) }
    }

    /// Whether it can be assumed that nearly all chunks pass, because it only asks for entries of a memory
    /// that hold, of any subject. A search tests what it finds then, instead of listing what passes.
    pub fn is_wide(&self) -> bool {
        is_wide(self.filter)
    }

    /// The chunks with their words, read together, if the filter names entries of a memory and nothing else:
    /// facts are short. Returns None for any other filter, if the list is known without words, or if there
    /// are more than `most`; then [`FilteredChunks::at_most`] tells.
    pub fn facts(&self, most: usize) -> Result<Option<Vec<(Uuid, Vec<u8>)>>> {
        let is_known = self.all.get().is_some() || self.more_than.get().is_some_and(|known| known >= most);
        let Some(entries) = filter::only_entries(self.filter).filter(|_| !is_known) else { return Ok(None) };
        let pair = |row: &Row| Ok((row.get("chunk_id")?, row.get("terms")?));
        let found = of_entries(self.target, entries, "c.chunk_id, c.terms", most, pair)?;
        if found.len() > most {
            self.more_than.set(Some(most));
            return Ok(None);
        }
        drop(self.all.set(found.iter().map(|(chunk_id, _)| *chunk_id).collect()));
        Ok(Some(found))
    }

    /// Returns None if there are more than `most`.
    pub fn at_most(&self, most: usize) -> Result<Option<&[Uuid]>> {
        if self.all.get().is_none() && self.more_than.get().is_none_or(|known| known < most) {
            match read_chunks(self.target, self.filter, most)? {
                Some(all) => drop(self.all.set(all)),
                None => self.more_than.set(Some(most)),
            }
        }
        Ok(self.all.get().map(Vec::as_slice).filter(|all| all.len() <= most))
    }
}

fn is_wide(filter: &Filter) -> bool {
    match filter {
        Filter::All(parts) => !parts.is_empty() && parts.iter().all(is_wide),
        Filter::Remembered(condition) => condition.subject.is_none() && condition.tags.is_empty(),
        Filter::Any(_) | Filter::Not(_) | Filter::Is(..) => false,
    }
}

/// Columns of the chunks of entries of a memory, and of one more than `most` if there are more.
fn of_entries<T>(
    target: &SearchTarget,
    entries: &MemoryCondition,
    columns: &str,
    most: usize,
    each: impl FnMut(&Row) -> Result<T>,
) -> Result<Vec<T>> {
    let tenants = shares::readable(target.kb_no)?;
    let mut arguments = Arguments::default();
    let build_no = arguments.add(Arg::Long(target.build_no));
    let limit = arguments.add(Arg::Long(most as i64 + 1));
    let documents = filter::ids_of_entries(entries, &tenants, &mut arguments);
    let sql = format!(
        "SELECT {columns} FROM ({documents}) d
         JOIN kb.chunks c ON c.document_id = d.document_id AND c.build_no = {build_no} AND c.enabled
         LIMIT {limit}"
    );
    let arguments = arguments.all();
    as_owner(|| match entries.subject {
        // A subject has few entries. To make a plan for each question takes longer than to read them.
        Some(_) => {
            setting::with(ONE_PLAN, || setting::with(BY_LOOKUPS, || spi::read(&sql, &arguments, each)))
        }
        None => setting::with(&LOOK_UPS, || spi::read_much(&sql, &arguments, each)),
    })
}

/// Returns None if there are more than `most`.
fn read_chunks(target: &SearchTarget, filter: &Filter, most: usize) -> Result<Option<Vec<Uuid>>> {
    if let Some(entries) = filter::only_entries(filter) {
        let found = of_entries(target, entries, "c.chunk_id", most, Row::only)?;
        return Ok((found.len() <= most).then_some(found));
    }
    let tenants = shares::readable(target.kb_no)?;
    let by_entries = filter::by_entries(filter);
    let filter = by_entries.as_ref().map_or(filter, |(_, rest)| rest);
    let found = as_owner(|| {
        let indexes = metadata_indexes::of_filter(target.kb_no, filter)?;
        let mut arguments = Arguments::default();
        let build_no = arguments.add(Arg::Long(target.build_no));
        let kb_no = arguments.add(Arg::Long(target.kb_no));
        let tenants = arguments.add(Arg::Texts(&tenants));
        let limit = arguments.add(Arg::Long(most as i64 + 1));
        let documents = match &by_entries {
            Some((entries, _)) => filter::documents_of_entries(entries, &mut arguments),
            None => "kb.documents d".into(),
        };
        let condition = filter::indexed_condition(filter, &indexes, &mut arguments);
        // "OFFSET 0" makes the planner find documents by the filter, never by way of all chunks. One array
        // costs less than a row for each chunk.
        let sql = format!(
            "SELECT pg_catalog.array_agg(l.chunk_id) FROM (
                 SELECT c.chunk_id FROM (
                     SELECT d.document_id FROM {documents}
                     WHERE d.kb_no = {kb_no} AND d.tenant_id = ANY ({tenants}) AND {condition} OFFSET 0) d
                 JOIN kb.chunks c ON c.document_id = d.document_id AND c.build_no = {build_no} AND c.enabled
                 LIMIT {limit}) l"
        );
        setting::with(&LOOK_UPS, || spi::read_much(&sql, &arguments.all(), Row::only::<Vec<Uuid>>))
    })?;
    let found = found.into_iter().next().unwrap_or_default();
    Ok((found.len() <= most).then_some(found))
}

/// The longest filter, in bytes, for which the estimate is kept.
const KEPT: usize = 1000;

thread_local! {
    /// By knowledge base and filter, because many questions use one of a few filters.
    static PARTS: RefCell<TableCache<(i64, String), Option<f64>>> = RefCell::default();
}

/// The estimated part of all documents that passes a filter, from 0 to 1, by the planner's statistics.
/// Returns None if these do not tell. The estimate is kept until the statistics or the indexes of
/// kb.documents change.
pub fn expected_part(target: &SearchTarget, filter: &Filter) -> Result<Option<f64>> {
    let key = (target.kb_no, format!("{filter:?}"));
    if key.1.len() > KEPT || txn::is_parallel() {
        return read_expected_part(target, filter);
    }
    table_cache::try_get(&PARTS, &key, || {
        table_cache::depends_on("documents");
        read_expected_part(target, filter)
    })
}

fn read_expected_part(target: &SearchTarget, filter: &Filter) -> Result<Option<f64>> {
    as_owner(|| {
        let indexes = metadata_indexes::of_filter(target.kb_no, filter)?;
        if !filter::is_estimated(filter, &indexes) {
            return Ok(None);
        }
        let mut arguments = Arguments::default();
        let condition = filter::indexed_condition(filter, &indexes, &mut arguments);
        let sql = format!("SELECT FROM kb.documents d WHERE {condition}");
        let passing = estimate::rows(&sql, &arguments.all())?;
        let all = estimate::rows_of_table(c"documents");
        Ok((all > 0.0).then(|| (passing / all).min(1.0)))
    })
}
