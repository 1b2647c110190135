//! The arguments of a query, checked.

use crate::error::{Error, Result};
use crate::model::fields::Fields;
use crate::model::knowledge_base::{MAX_TOP_K, OnError};
use crate::model::{Filter, Json, Preprocess, Retrieval};
use serde_json::Value;

/// A question's bounds; None means the knowledge base's own setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub kb_id: String,
    pub top_k: Option<usize>,
    pub min_score: Option<f64>,
    pub filter: Option<Filter>,
    pub max_tokens: Option<usize>,
    pub on_error: Option<OnError>,
}

/// The limits that an answer must keep to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AnswerBounds {
    pub top_k: usize,
    /// Bounds similarities only.
    pub min_score: f64,
    pub max_tokens: Option<usize>,
    /// Equal texts count once.
    pub dedupe: bool,
}

impl Request {
    /// Checks every argument; `mode` must be dense in this version, `options` is {on_error}.
    pub fn new(
        kb_id: &str,
        top_k: Option<i32>,
        min_score: Option<f64>,
        filter: Option<Json>,
        max_tokens: Option<i32>,
        mode: &str,
        options: Option<Value>,
    ) -> Result<Self> {
        let argument = |argument, problem: String| Err(Error::Argument { argument, problem });
        if let Some(k) = top_k
            && !(1..=MAX_TOP_K).contains(&i64::from(k))
        {
            return argument("top_k", format!("{k} is not in 1 to {MAX_TOP_K}"));
        }
        if let Some(score) = min_score
            && !score.is_finite()
        {
            return argument("min_score", format!("{score} is not finite"));
        }
        if let Some(tokens) = max_tokens
            && tokens < 1
        {
            return argument("max_tokens", format!("{tokens} is below 1"));
        }
        let filter = match filter.map(|filter| Filter::parse(&filter)).transpose() {
            Ok(filter) => filter.filter(|filter| !filter.is_always()),
            Err(problem) => return argument("filter", problem),
        };
        if mode != "dense" {
            return argument("mode", format!("\"{mode}\" is not available in this version of kb; use dense"));
        }
        let mut fields = Fields::new("options", options.as_ref().unwrap_or(&Value::Null));
        let on_error = fields.text("on_error");
        if let Some(word) = &on_error
            && OnError::parse(word).is_none()
        {
            fields.problem("on_error", format_args!("\"{word}\" is not one of error, keyword"));
        }
        if let Some(problem) = fields.finish().into_iter().next() {
            return argument("options", problem);
        }
        Ok(Request {
            kb_id: kb_id.to_string(),
            top_k: top_k.map(|k| k as usize),
            min_score,
            filter,
            max_tokens: max_tokens.map(|t| t as usize),
            on_error: on_error.as_deref().and_then(OnError::parse),
        })
    }

    /// The arguments, with the knowledge base's settings for what the call leaves out.
    pub fn bounds(&self, retrieval: &Retrieval, preprocess: &Preprocess) -> AnswerBounds {
        AnswerBounds {
            top_k: self.top_k.unwrap_or(retrieval.top_k),
            min_score: self.min_score.unwrap_or(retrieval.min_score),
            max_tokens: self.max_tokens.or(retrieval.max_tokens),
            dedupe: preprocess.dedupe,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_call_leaves_open_is_the_knowledge_bases() {
        let request = Request::new("kb", Some(3), None, None, None, "dense", None).unwrap();
        let retrieval = Retrieval { min_score: 0.2, max_tokens: Some(9), ..Retrieval::default() };
        let bounds = request.bounds(&retrieval, &Preprocess::default());
        let expected = AnswerBounds { top_k: 3, min_score: 0.2, max_tokens: Some(9), dedupe: true };
        assert_eq!(bounds, expected);
    }

    #[test]
    fn a_wrong_argument_is_named_and_an_empty_filter_is_none() {
        let new = |top_k, filter: Value, mode, options| {
            Request::new("kb", top_k, None, Some(Json::new(filter.to_string())), None, mode, Some(options))
        };
        assert_eq!(new(None, json!({}), "dense", json!({})).unwrap().filter, None);
        for (wrong, argument) in [
            (new(Some(0), json!({}), "dense", json!({})), "top_k"),
            (new(None, json!([]), "dense", json!({})), "filter"),
            (new(None, json!({}), "fast", json!({})), "mode"),
            (new(None, json!({}), "dense", json!({"on_error": "retry"})), "options"),
        ] {
            let error = wrong.unwrap_err();
            assert_eq!(error.sqlstate(), "22023");
            assert!(error.to_string().contains(argument), "{error}");
        }
    }
}
