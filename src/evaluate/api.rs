//! SQL functions that measure: evaluation sets, the quality of answers, and the recall of indexes.

use crate::evaluate::eval_sets;
use crate::evaluate::evaluate::{Evaluated, EvaluatedQuestion};
use crate::evaluate::tune::Tuned;
use crate::pg::function_arguments::{elements, json, required, value};
use crate::pg::json::Jsonb;
use crate::pg::report::reported;
use crate::pg::uuid::from_pg;
use pgrx::JsonB;
use pgrx::Uuid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use serde_json::Value;

#[pg_extern(volatile, parallel_unsafe)]
fn create_eval_set(kb_id: Option<&str>, eval_set: Option<&str>) -> Result<(), ErrorReport> {
    reported(|| eval_sets::create_eval_set(required("kb_id", kb_id)?, required("eval_set", eval_set)?))
}

#[pg_extern(volatile, parallel_unsafe)]
fn drop_eval_set(kb_id: Option<&str>, eval_set: Option<&str>) -> Result<(), ErrorReport> {
    reported(|| eval_sets::drop_eval_set(required("kb_id", kb_id)?, required("eval_set", eval_set)?))
}

#[pg_extern(volatile, parallel_unsafe)]
fn put_eval_question(
    kb_id: Option<&str>,
    eval_set: Option<&str>,
    question_id: Option<&str>,
    question: Option<&str>,
    relevant: Option<Jsonb>,
    filter: default!(Option<Jsonb>, "NULL"),
) -> Result<(), ErrorReport> {
    reported(|| {
        let (kb_id, eval_set) = (required("kb_id", kb_id)?, required("eval_set", eval_set)?);
        let (id, question) = (required("question_id", question_id)?, required("question", question)?);
        let relevant = required("relevant", value("relevant", relevant)?)?;
        eval_sets::put_eval_question(kb_id, eval_set, id, question, &relevant, json("filter", filter)?)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn delete_eval_question(
    kb_id: Option<&str>,
    eval_set: Option<&str>,
    question_id: Option<&str>,
) -> Result<bool, ErrorReport> {
    reported(|| {
        let (kb_id, eval_set) = (required("kb_id", kb_id)?, required("eval_set", eval_set)?);
        eval_sets::delete_eval_question(kb_id, eval_set, required("question_id", question_id)?)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn load_eval(
    kb_id: Option<&str>,
    eval_set: Option<&str>,
    queries: Option<&str>,
    qrels: Option<&str>,
) -> Result<i64, ErrorReport> {
    reported(|| {
        let (kb_id, eval_set) = (required("kb_id", kb_id)?, required("eval_set", eval_set)?);
        eval_sets::load_eval(kb_id, eval_set, required("queries", queries)?, required("qrels", qrels)?)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn evaluate(
    kb_id: Option<&str>,
    eval_set: Option<&str>,
    option_sets: default!(Option<Vec<Option<Jsonb>>>, "NULL"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(options, JsonB),
            name!(k, i32),
            name!(questions, i64),
            name!(recall, f64),
            name!(precision, f64),
            name!(mrr, f64),
            name!(ndcg, f64),
            name!(hit_rate, f64),
            name!(ann_recall, Option<f64>),
            name!(p50_ms, Option<f64>),
            name!(p95_ms, Option<f64>),
            name!(unanswered, i64),
        ),
    >,
    ErrorReport,
> {
    reported(|| {
        let (kb_id, eval_set) = (required("kb_id", kb_id)?, required("eval_set", eval_set)?);
        let evaluated = crate::evaluate::evaluate::evaluate(kb_id, eval_set, option_sets_of(option_sets)?)?;
        Ok(TableIterator::new(evaluated.into_iter().map(|evaluated| {
            let Evaluated { options, k, questions, mean, ann_recall, p50_ms, p95_ms, unanswered } = evaluated;
            let (ndcg, hit_rate) = (mean.ndcg, mean.hit);
            let (recall, precision, mrr) = (mean.recall, mean.precision, mean.reciprocal_rank);
            let options = JsonB(options);
            (
                options, k, questions, recall, precision, mrr, ndcg, hit_rate, ann_recall, p50_ms, p95_ms,
                unanswered,
            )
        })))
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn evaluate_questions(
    kb_id: Option<&str>,
    eval_set: Option<&str>,
    option_sets: default!(Option<Vec<Option<Jsonb>>>, "NULL"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(option_set, i32),
            name!(options, JsonB),
            name!(k, i32),
            name!(question_id, String),
            name!(question, String),
            name!(recall, f64),
            name!(precision, f64),
            name!(reciprocal_rank, f64),
            name!(ndcg, f64),
            name!(hit, bool),
            name!(ann_recall, Option<f64>),
            name!(ms, f64),
            name!(answered, bool),
        ),
    >,
    ErrorReport,
> {
    reported(|| {
        let (kb_id, eval_set) = (required("kb_id", kb_id)?, required("eval_set", eval_set)?);
        let evaluated =
            crate::evaluate::evaluate::evaluate_questions(kb_id, eval_set, option_sets_of(option_sets)?)?;
        Ok(TableIterator::new(evaluated.into_iter().map(|evaluated| {
            let EvaluatedQuestion { option_set, options, k, question_id, question, outcome } = evaluated;
            let measures = outcome.measures;
            (
                option_set,
                JsonB(options),
                k,
                question_id,
                question,
                measures.recall,
                measures.precision,
                measures.reciprocal_rank,
                measures.ndcg,
                measures.hit > 0.0,
                outcome.ann_recall,
                outcome.millis,
                outcome.is_answered,
            )
        })))
    })
}

fn option_sets_of(given: Option<Vec<Option<Jsonb>>>) -> kb_types::error::Result<Vec<Value>> {
    let mut option_sets = Vec::new();
    for given in elements("option_sets", given.unwrap_or_default())? {
        option_sets.extend(value("option_sets", Some(given))?);
    }
    Ok(option_sets)
}

#[pg_extern(volatile, parallel_unsafe)]
fn tune(
    kb_id: Option<&str>,
    eval_set: Option<&str>,
    apply: default!(Option<bool>, "false"),
    k: default!(Option<i32>, "NULL"),
    top_k: default!(Option<i32>, "NULL"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(options, JsonB),
            name!(k, i32),
            name!(questions, i64),
            name!(recall, f64),
            name!(precision, f64),
            name!(mrr, f64),
            name!(ndcg, f64),
            name!(hit_rate, f64),
            name!(p50_ms, Option<f64>),
            name!(p95_ms, Option<f64>),
            name!(gain, f64),
            name!(gain_error, Option<f64>),
            name!(present, bool),
            name!(proposed, bool),
        ),
    >,
    ErrorReport,
> {
    reported(|| {
        let (kb_id, eval_set) = (required("kb_id", kb_id)?, required("eval_set", eval_set)?);
        let tuned = crate::evaluate::tune::tune(kb_id, eval_set, required("apply", apply)?, k, top_k)?;
        Ok(TableIterator::new(tuned.into_iter().map(|Tuned { evaluated, gain, is_present, is_proposed }| {
            let Evaluated { options, k, questions, mean, p50_ms, p95_ms, .. } = evaluated;
            (
                JsonB(options),
                k,
                questions,
                mean.recall,
                mean.precision,
                mean.reciprocal_rank,
                mean.ndcg,
                mean.hit,
                p50_ms,
                p95_ms,
                gain.mean,
                Some(gain.error).filter(|error| error.is_finite()),
                is_present,
                is_proposed,
            )
        })))
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn feedback(
    query_id: Option<Uuid>,
    chunk_id: Option<Uuid>,
    relevant: Option<bool>,
) -> Result<(), ErrorReport> {
    reported(|| {
        let (query_id, chunk_id) = (required("query_id", query_id)?, required("chunk_id", chunk_id)?);
        crate::query::feedback::feedback(from_pg(query_id), from_pg(chunk_id), relevant)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn measure_recall(
    kb_id: Option<&str>,
    sample: default!(Option<i32>, "100"),
    source: default!(Option<&str>, "'chunks'"),
) -> Result<
    TableIterator<'static, (name!(recall, f64), name!(sample, i64), name!(ef_search, Option<i32>))>,
    ErrorReport,
> {
    reported(|| {
        let (kb_id, sample) = (required("kb_id", kb_id)?, required("sample", sample)?);
        let measured =
            crate::evaluate::measure_recall::measure_recall(kb_id, sample, required("source", source)?)?;
        let ef_search = measured.ef_search.map(|ef_search| ef_search as i32);
        Ok(TableIterator::once((measured.recall, measured.sample as i64, ef_search)))
    })
}
