//! kb.measure_recall: compares the index of a knowledge base with exact search.

use crate::builds::knowledge_bases;
use crate::evaluate::search_recall::{ExactResult, IndexResult, RecallTest};
use crate::evaluate::sql::index_recall;
use crate::evaluate::sql::index_recall::Measured;
use crate::pg::role::as_owner;
use crate::pg::{report, wake};
use crate::query::question_vector::embed;
use crate::query::search::SearchTarget;
use crate::query::{query_log, search};
use crate::vectors::hnsw;
use kb_search::scan_plan;
use kb_types::error::{Error, Result};
use kb_types::retrieval::EfSearch;
use kb_types::{Filter, Kind};
use uuid::Uuid;

const MAX_SAMPLE: i32 = 10_000;
/// The number of nearest chunks that are compared, unless the knowledge base returns more.
const LEAST_K: usize = 10;
/// With ef_search auto, the smallest ef_search that reaches this recall is chosen.
const TARGET: f64 = 0.97;
const EF_SEARCH: [usize; 6] = [40, 80, 160, 320, 640, 1000];

/// A vector to search for.
struct SampledVector {
    vector: Vec<f32>,
    filter: Option<Filter>,
    /// The chunk that has this vector.
    own: Option<Uuid>,
}

/// Searches for the nearest neighbours of chunks that are chosen at random, or of logged questions (`source`
/// is chunks or log), by the index and exactly, and stores the result. With ef_search auto, this chooses the
/// value that queries use from now on. If no ef_search finds enough, queries compare all vectors if that is
/// quick; otherwise the index is built again with more edges.
pub fn measure_recall(kb_id: &str, sample: i32, source: &str) -> Result<Measured> {
    let is_log = match source {
        "chunks" => false,
        "log" => true,
        other => {
            let problem = format!("\"{other}\" is not one of chunks, log");
            return Err(Error::Argument { argument: "source", problem });
        }
    };
    if !(1..=MAX_SAMPLE).contains(&sample) {
        let problem = format!("{sample} is not between 1 and {MAX_SAMPLE}");
        return Err(Error::Argument { argument: "sample", problem });
    }
    let kb = knowledge_bases::get_own(kb_id)?;
    // The index is measured even if queries do not use it.
    let target = SearchTarget { index_misses: false, ..search::target(kb_id)? };
    let store = target.vector_db.store();
    if store.searched()?.is_none() {
        let measured = Measured { recall: 1.0, sample: 0, ef_search: None };
        as_owner(|| index_recall::put(&kb, target.build_no, &measured))?;
        return Ok(measured);
    }
    let questions = match is_log {
        true => logged(&target, i64::from(sample))?,
        false => {
            let vectors = store.sample(target.build_no, i64::from(sample))?;
            let of = |(own, vector)| SampledVector { vector, filter: None, own: Some(own) };
            vectors.into_iter().map(of).collect()
        }
    };
    let k = target.retrieval.top_k.max(LEAST_K);
    let mut tests: Vec<(RecallTest, ExactResult)> = Vec::with_capacity(questions.len());
    for SampledVector { vector, filter, own } in &questions {
        report::check_interrupts();
        let test = RecallTest { target: &target, vector, filter: filter.as_ref(), own: *own, k };
        tests.extend(test.exact()?.map(|exact| (test, exact)));
    }
    let is_auto = matches!(target.retrieval.ef_search, Some(EfSearch::Auto(_)));
    let tried = if is_auto { EF_SEARCH.map(Some).to_vec() } else { vec![target.ef_search()] };
    let mut measured = Measured { recall: 1.0, sample: 0, ef_search: None };
    for ef_search in tried {
        let mut found: Vec<IndexResult> = Vec::with_capacity(tests.len());
        for (test, exact) in &tests {
            report::check_interrupts();
            found.extend(test.found(exact, ef_search)?);
        }
        // Questions that are answered by an exact scan say nothing about the index.
        if found.is_empty() {
            break;
        }
        let sum: f64 = found.iter().map(|found| found.recall).sum();
        measured = Measured {
            recall: sum / found.len() as f64,
            sample: found.len(),
            // With a filter, ef_search is larger than without one.
            ef_search: match is_auto {
                true => ef_search,
                false => found.iter().map(|found| found.ef_search).min(),
            },
        };
        if measured.recall >= TARGET {
            break;
        }
    }
    let index_misses = is_auto && measured.recall < TARGET;
    let vectors = store.searched()?.map_or(0, |searched| searched.vectors);
    let is_exact = index_misses && scan_plan::is_quick_exactly(vectors, target.vector_db.dimension);
    as_owner(|| {
        if let Some(ef_search) = measured.ef_search.filter(|_| is_auto) {
            index_recall::set_ef_search(target.build_no, ef_search, index_misses)?;
        }
        if index_misses && !is_exact && hnsw::strengthen(&target.vector_db)? {
            wake::look_at_commit();
        }
        // The result is stored even if queries do not use the index, because they will once there are more
        // vectors.
        index_recall::put(&kb, target.build_no, &measured)
    })?;
    Ok(match is_exact {
        true => Measured { recall: 1.0, ef_search: None, ..measured },
        false => measured,
    })
}

/// Logged questions of the session's tenant, chosen at random.
fn logged(target: &SearchTarget, sample: i64) -> Result<Vec<SampledVector>> {
    let mut questions = Vec::new();
    let logged = query_log::sample(target.kb_no, sample)?;
    for part in logged.chunks(EMBEDDED_AT_ONCE) {
        report::check_interrupts();
        let texts: Vec<String> = part.iter().map(|(query, _)| query.clone()).collect();
        for (vector, (_, filter)) in embed_shorter(target, &texts)?.into_iter().zip(part) {
            // The filter was valid when the question was asked, unless it was too long for the log.
            let filter = filter.as_ref().map(Filter::parse).transpose().ok();
            let question =
                vector.zip(filter).map(|(vector, filter)| SampledVector { vector, filter, own: None });
            questions.extend(question);
        }
    }
    Ok(questions)
}

/// The vectors of questions, in order. None: the question is longer than the model reads, which need not be
/// the model of that time.
fn embed_shorter(target: &SearchTarget, texts: &[String]) -> Result<Vec<Option<Vec<f32>>>> {
    match embed(target, Kind::Query, texts) {
        Ok(vectors) => Ok(vectors.into_iter().map(Some).collect()),
        Err(Error::InputTooLong { .. }) if texts.len() == 1 => Ok(vec![None]),
        Err(Error::InputTooLong { .. }) => {
            let (first, last) = texts.split_at(texts.len() / 2);
            Ok([embed_shorter(target, first)?, embed_shorter(target, last)?].concat())
        }
        Err(error) => Err(error),
    }
}

/// The number of questions that one request embeds.
const EMBEDDED_AT_ONCE: usize = 16;
