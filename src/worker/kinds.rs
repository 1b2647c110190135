//! All that the worker does, by room: the one place where a kind of work, a feed and an upkeep are named.
//! Upkeeps are run in this order.

use crate::chat_requests::upkeep::ChatRequests;
use crate::conversations::extraction::Extraction;
use crate::conversations::summaries::Summaries;
use crate::documents::work::DocumentWork;
use crate::filters::upkeep::MetadataIndexes;
use crate::keyword::upkeep::KeywordIndex;
use crate::knowledge_bases::upkeep::BuildUpkeep;
use crate::memory::consolidation::Consolidation;
use crate::memory::upkeep::{AccessCounts, ConsolidationSchedule};
use crate::models::upkeep::QueryUsage;
use crate::query::upkeep::QueryLog;
use crate::sources::upkeep::Schedule;
use crate::sources::work::SourceWork;
use crate::tables::intake::RowFeed;
use crate::tenants::upkeep::Quotas;
use crate::upkeep::Upkeep;
use crate::vectors::upkeep::{Grown, Indexes, UnusedTables};
use crate::work::Work;

/// What is done for jobs: a line for each kind of work.
pub fn works() -> Vec<Box<dyn Work>> {
    vec![Box::new(DocumentWork::new(vec![Box::new(RowFeed::default())])), Box::new(SourceWork::default())]
}

/// What chat models are asked beside jobs: a line for each kind of request.
fn chat_requests() -> ChatRequests {
    ChatRequests::new(vec![Box::new(Summaries::default()), Box::new(Extraction), Box::new(Consolidation)])
}

/// What is done beside jobs.
pub struct Upkeeps {
    builds: BuildUpkeep,
    unused_tables: UnusedTables,
    quotas: Quotas,
    indexes: Indexes,
    keyword_index: KeywordIndex,
    metadata_indexes: MetadataIndexes,
    query_log: QueryLog,
    query_usage: QueryUsage,
    schedule: Schedule,
    access_counts: AccessCounts,
    consolidations: ConsolidationSchedule,
    chat_requests: ChatRequests,
}

impl Default for Upkeeps {
    fn default() -> Self {
        Upkeeps {
            builds: BuildUpkeep::default(),
            unused_tables: UnusedTables::default(),
            quotas: Quotas,
            indexes: Indexes::default(),
            keyword_index: KeywordIndex::default(),
            metadata_indexes: MetadataIndexes::default(),
            query_log: QueryLog::default(),
            query_usage: QueryUsage::default(),
            schedule: Schedule::default(),
            access_counts: AccessCounts::default(),
            consolidations: ConsolidationSchedule::default(),
            chat_requests: chat_requests(),
        }
    }
}

impl Upkeeps {
    pub fn all(&mut self) -> [&mut dyn Upkeep; 12] {
        [
            &mut self.builds,
            &mut self.unused_tables,
            &mut self.quotas,
            &mut self.indexes,
            &mut self.keyword_index,
            &mut self.metadata_indexes,
            &mut self.query_log,
            &mut self.query_usage,
            &mut self.schedule,
            &mut self.access_counts,
            &mut self.consolidations,
            &mut self.chat_requests,
        ]
    }
    /// Vectors were written to the table of a build, which may want an index now.
    pub fn note_vectors(&mut self, build: &Grown, vectors: usize) {
        self.indexes.note_vectors(build, vectors);
    }

    /// The knowledge bases for which nothing is to be taken in before an index is built.
    pub fn full_knowledge_bases(&mut self) -> Vec<i64> {
        self.indexes.full()
    }
}
