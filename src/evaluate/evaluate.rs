//! kb.evaluate: asks the questions of an evaluation set under several settings, and measures the answers.
//!
//! It asks by `query::answer`, as the caller, and neither logs nor writes anything.

use crate::evaluate::search_recall::{ExactResult, RecallTest};
use crate::evaluate::sql::eval_sets;
use crate::pg::report;
use crate::query::query::{answer, target};
use crate::query::question_vector::embed;
use crate::query::search;
use crate::query::search::SearchTarget;
use kb_search::Request;
use kb_search::journal::Journal;
use kb_search::metrics;
use kb_search::metrics::{Measures, Place};
use kb_types::error::{Error, Result};
use kb_types::judgement::EvalQuestion;
use kb_types::retrieval::MAX_TOP_K;
use kb_types::{Filter, Hit, Kind, Mode, Retrieval};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::time::Instant;
use uuid::Uuid;

/// The number of documents of an answer, or of rows if parts of documents are judged, that count by default.
const DEFAULT_K: i32 = 10;
const MAX_K: i64 = 1000;
/// The most settings that are measured side by side.
const MAX_TRIALS: usize = 100;

/// Settings that are measured.
#[derive(Debug, Clone)]
pub struct Trial {
    /// The settings as they were given: the `options` of kb.query, and k.
    pub options: Value,
    pub k: i32,
    /// The number of chunks to ask for. None: k, or as many as it takes to get k documents if these are
    /// judged.
    top_k: Option<i32>,
    asked: Value,
}

/// The measures of one question in one trial.
#[derive(Debug, Clone, Copy)]
pub struct QuestionMeasures {
    pub measures: Measures,
    pub millis: f64,
    pub is_answered: bool,
    /// None: no vectors were compared, or there is nothing to find.
    pub ann_recall: Option<f64>,
}

/// The measures of the questions of a set in one trial.
#[derive(Debug, Clone)]
pub struct Evaluated {
    pub options: Value,
    pub k: i32,
    pub questions: i64,
    pub mean: Measures,
    /// The part of what an exact search by vectors finds that the index finds.
    pub ann_recall: Option<f64>,
    pub p50_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    /// The number of questions whose answer has no row.
    pub unanswered: i64,
}

/// The measures of one question under one set of options.
pub struct EvaluatedQuestion {
    /// The number of the set, counted from 1.
    pub option_set: i32,
    pub options: Value,
    pub k: i32,
    pub question_id: String,
    pub question: String,
    pub outcome: QuestionMeasures,
}

/// Measures each of these settings, in order, or the knowledge base's own if there are none.
pub fn evaluate(kb_id: &str, eval_set: &str, options: Vec<Value>) -> Result<Vec<Evaluated>> {
    let trials = trials(kb_id, options)?;
    let (_, outcomes) = measure(kb_id, eval_set, &trials, true)?;
    Ok(trials.iter().zip(&outcomes).map(|(trial, outcomes)| Evaluated::of(trial, outcomes)).collect())
}

/// Does the same for each question; ordered by set of options and by the question's id.
pub fn evaluate_questions(
    kb_id: &str,
    eval_set: &str,
    options: Vec<Value>,
) -> Result<Vec<EvaluatedQuestion>> {
    let trials = trials(kb_id, options)?;
    let (questions, outcomes) = measure(kb_id, eval_set, &trials, true)?;
    let mut evaluated = Vec::with_capacity(trials.len() * questions.len());
    for ((option_set, trial), outcomes) in (1..).zip(&trials).zip(outcomes) {
        evaluated.extend(questions.iter().zip(outcomes).map(|(question, outcome)| EvaluatedQuestion {
            option_set,
            options: trial.options.clone(),
            k: trial.k,
            question_id: question.id.clone(),
            question: question.question.clone(),
            outcome,
        }));
    }
    Ok(evaluated)
}

fn trials(kb_id: &str, options: Vec<Value>) -> Result<Vec<Trial>> {
    let options = if options.is_empty() { vec![Value::Object(Map::new())] } else { options };
    if options.len() > MAX_TRIALS {
        let problem = format!("it has {} elements; at most {MAX_TRIALS} are allowed", options.len());
        return Err(Error::Argument { argument: "option_sets", problem });
    }
    Trial::all(kb_id, options)
}

impl Trial {
    /// Trials of these options, in the form that a knowledge base takes.
    pub fn all(kb_id: &str, options: Vec<Value>) -> Result<Vec<Trial>> {
        let own = search::target(kb_id)?.retrieval;
        options.into_iter().map(|options| Trial::new(kb_id, &own, options)).collect()
    }

    /// The same settings, measured up to k, asking for `top_k` chunks.
    pub fn at(self, k: Option<i32>, top_k: Option<i32>) -> Result<Trial> {
        let refused = |argument, most: i64| {
            let problem = format!("it is not between 1 and {most}");
            Err(Error::Argument { argument, problem })
        };
        let is_within = |number: Option<i32>, most| number.is_none_or(|n| (1..=most).contains(&i64::from(n)));
        if !is_within(k, MAX_K) {
            return refused("k", MAX_K);
        }
        if !is_within(top_k, MAX_TOP_K) {
            return refused("top_k", MAX_TOP_K);
        }
        Ok(Trial { k: k.unwrap_or(self.k), top_k: top_k.or(self.top_k), ..self })
    }

    fn new(kb_id: &str, own: &Retrieval, options: Value) -> Result<Trial> {
        let refused = |problem: String| Err(Error::Argument { argument: "option_sets", problem });
        let Value::Object(mut asked) = options.clone() else {
            return refused("each element must be a JSON object".into());
        };
        let k = match asked.remove("k").filter(|k| !k.is_null()) {
            None => DEFAULT_K,
            Some(k) => match k.as_i64().filter(|k| (1..=MAX_K).contains(k)) {
                Some(k) => k as i32,
                None => {
                    return refused(format!("k: must be a whole number from 1 to {MAX_K}, not {k}"));
                }
            },
        };
        let trial = Trial { k, top_k: None, asked: Value::Object(asked), options };
        // Everything that can be checked without asking is checked before anything is asked.
        let retrieval = trial.request(kb_id, None, None)?.retrieval(own)?;
        let names_top_k = trial.asked.get("top_k").is_some_and(|top_k| !top_k.is_null());
        Ok(Trial { top_k: names_top_k.then_some(retrieval.top_k as i32), ..trial })
    }

    fn request(&self, kb_id: &str, question: Option<&EvalQuestion>, top_k: Option<i32>) -> Result<Request> {
        let filter = question.and_then(|question| question.filter.clone());
        Request::new(kb_id, top_k, None, filter, None, None, Some(self.asked.clone()))
    }
}

/// The questions in the order of their ids, and the measures of each question in each trial.
pub fn measure(
    kb_id: &str,
    eval_set: &str,
    trials: &[Trial],
    with_ann: bool,
) -> Result<(Vec<EvalQuestion>, Vec<Vec<QuestionMeasures>>)> {
    let kb = search::target(kb_id)?;
    let questions = eval_sets::questions(kb.kb_no, eval_set)?;
    let mut outcomes: Vec<Vec<QuestionMeasures>> =
        trials.iter().map(|_| Vec::with_capacity(questions.len())).collect();
    for (number, question) in questions.iter().enumerate() {
        let named = |error| Error::Question { id: question.id.clone(), error: Box::new(error) };
        let asked = ask(kb_id, question, trials, number, with_ann).map_err(named)?;
        outcomes.iter_mut().zip(asked).for_each(|(of_trial, outcome)| of_trial.push(outcome));
    }
    Ok((questions, outcomes))
}

/// Asks one question in each trial. Each question begins with another trial, because the first one finds less
/// in caches.
fn ask(
    kb_id: &str,
    question: &EvalQuestion,
    trials: &[Trial],
    number: usize,
    with_ann: bool,
) -> Result<Vec<QuestionMeasures>> {
    let mut vector = None;
    let mut exact: HashMap<usize, Option<ExactResult>> = HashMap::new();
    let mut outcomes: Vec<(usize, QuestionMeasures)> = Vec::with_capacity(trials.len());
    for turn in 0..trials.len() {
        report::check_interrupts();
        let place = (turn + number) % trials.len();
        let trial = &trials[place];
        let request = trial.request(kb_id, Some(question), Some(trial.top_k.unwrap_or(trial.k)))?;
        let target = target(&request)?;
        // The failure of an embedder is no property of the settings, even if words would give an answer. In
        // addition, the gateway remembers the vector, so no trial waits longer than another.
        if target.retrieval.mode != Mode::Keyword && vector.is_none() {
            vector = embed(&target, Kind::Query, std::slice::from_ref(&question.question))?.pop();
        }
        let begun = Instant::now();
        let hits = answer(&request, &question.question, &Journal::closed())?.hits;
        let millis = begun.elapsed().as_secs_f64() * 1000.0;
        is_whole(&hits)?;
        let is_answered = !hits.is_empty();
        let measures = measure_answer(kb_id, question, trial, &target, hits)?;
        let ann_recall = match (&vector, request.filter.as_ref()) {
            (Some(vector), filter) if with_ann && target.retrieval.mode != Mode::Keyword => {
                ann_recall(&target, vector, filter, &mut exact)?
            }
            _ => None,
        };
        outcomes.push((place, QuestionMeasures { measures, millis, is_answered, ann_recall }));
    }
    outcomes.sort_unstable_by_key(|(place, _)| *place);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

/// The failure of a reranker or a chat model is no property of the settings, either.
fn is_whole(hits: &[Hit]) -> Result<()> {
    let failed = |hit: &Hit| {
        let status = |key| hit.row.locator.get(key).and_then(Value::as_str).map(str::to_string);
        status("rerank_status").or_else(|| status("transform_status"))
    };
    match hits.first().and_then(failed) {
        None => Ok(()),
        Some(problem) => Err(Error::State {
            problem: format!("the answer does not match the settings: {problem}"),
            hint: "Check the model with kb.check_reranker or kb.check_llm, and repeat the measurement."
                .into(),
        }),
    }
}

/// The measures of an answer. If documents are judged and the chunks of the answer belong to few documents,
/// more chunks are requested until there are k documents, and new rows are appended. This is not done with a
/// reranker or a chat model, which would be paid for again and again.
fn measure_answer(
    kb_id: &str,
    question: &EvalQuestion,
    trial: &Trial,
    target: &SearchTarget,
    mut hits: Vec<Hit>,
) -> Result<Measures> {
    let k = trial.k as usize;
    let mut top_k = trial.top_k.unwrap_or(trial.k) as usize;
    let is_paid = target.retrieval.rerank.is_some() || target.retrieval.transform.is_some();
    let counts_rows = metrics::counts_rows(&question.judgements);
    let mut is_all = trial.top_k.is_some() || counts_rows || is_paid || chunks(&hits) < top_k;
    let ranking = loop {
        let mut ranking = metrics::ranking(&places(&hits), &question.judgements);
        if is_all || ranking.len() >= k || top_k >= MAX_CHUNKS {
            ranking.truncate(if trial.top_k.is_some() { usize::MAX } else { k });
            break ranking;
        }
        top_k = (top_k * 2).min(MAX_CHUNKS);
        let request = trial.request(kb_id, Some(question), Some(top_k as i32))?;
        let wider = answer(&request, &question.question, &Journal::closed())?.hits;
        is_all = chunks(&wider) < top_k;
        let known: HashSet<Uuid> = hits.iter().map(|hit| hit.chunk_id).collect();
        hits.extend(wider.into_iter().filter(|hit| !known.contains(&hit.chunk_id)));
    };
    let judged: Vec<i32> = question.judgements.iter().map(|judgement| judgement.grade).collect();
    Ok(metrics::measure(&ranking, &judged, k))
}

/// The most chunks that are requested to get k documents.
const MAX_CHUNKS: usize = MAX_TOP_K as usize;

/// The number of chunks in the rows, which is at least the number of rows: a row that is joined with what
/// surrounds it has several.
fn chunks(hits: &[Hit]) -> usize {
    let of = |hit: &Hit| hit.row.locator.get("chunk_ids").and_then(Value::as_array).map_or(1, Vec::len);
    hits.iter().map(of).sum()
}

/// The documents of the hits, and the places of their texts in them.
fn places(hits: &[Hit]) -> Vec<Place> {
    let place = |hit: &Hit| Place {
        external_id: hit.row.external_id.clone(),
        span: Some((hit.row.place.start, hit.row.place.end)),
    };
    hits.iter().map(place).collect()
}

fn ann_recall(
    target: &SearchTarget,
    vector: &[f32],
    filter: Option<&Filter>,
    exact: &mut HashMap<usize, Option<ExactResult>>,
) -> Result<Option<f64>> {
    let top_k = target.retrieval.recalled();
    let k = match target.retrieval.mode {
        Mode::Hybrid => top_k.max(target.retrieval.hybrid.candidates),
        Mode::Dense | Mode::Keyword => top_k,
    };
    let test = RecallTest { target, vector, filter, own: None, k };
    let exact = match exact.get(&k) {
        Some(exact) => *exact,
        None => *exact.entry(k).or_insert(test.exact()?),
    };
    let Some(exact) = exact else { return Ok(None) };
    // If all vectors are compared, nothing is missed.
    Ok(Some(test.found(&exact, target.ef_search())?.map_or(1.0, |found| found.recall)))
}

impl Evaluated {
    pub fn of(trial: &Trial, outcomes: &[QuestionMeasures]) -> Evaluated {
        let measures: Vec<Measures> = outcomes.iter().map(|outcome| outcome.measures).collect();
        let millis: Vec<f64> = outcomes.iter().map(|outcome| outcome.millis).collect();
        let recalls: Vec<f64> = outcomes.iter().filter_map(|outcome| outcome.ann_recall).collect();
        Evaluated {
            options: trial.options.clone(),
            k: trial.k,
            questions: outcomes.len() as i64,
            mean: metrics::mean(&measures),
            ann_recall: (!recalls.is_empty()).then(|| recalls.iter().sum::<f64>() / recalls.len() as f64),
            p50_ms: metrics::percentile(&millis, 0.5),
            p95_ms: metrics::percentile(&millis, 0.95),
            unanswered: outcomes.iter().filter(|outcome| !outcome.is_answered).count() as i64,
        }
    }
}
