//! Checks the arguments of a query.

use kb_types::error::{Error, Result};
use kb_types::named::Named;
use kb_types::retrieval::MAX_TOP_K;
use kb_types::syntax::Syntax;
use kb_types::{Filter, Json, Mode, Preprocess, Retrieval};
use serde_json::Value;

/// Long computations call this at least every few milliseconds, so that the user can cancel them.
pub type Check<'a> = &'a dyn Fn();

/// The arguments of a query. None means the setting of the knowledge base.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub kb_id: String,
    pub filter: Option<Filter>,
    /// The filter as the caller wrote it.
    pub filter_text: Option<Json>,
    /// The keys of metadata that it names, even where every document passes.
    pub filter_keys: Vec<String>,
    /// Whether the locator of each row shows its rank and score by meaning and by words.
    pub explain: bool,
    /// Whether the rows become one text, so that adjacent chunks of a document are one row.
    pub as_context: bool,
    top_k: Option<usize>,
    min_score: Option<f64>,
    max_tokens: Option<usize>,
    mode: Option<Mode>,
    /// The settings of retrieval for this call.
    options: Value,
}

/// The limits that an answer must keep to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AnswerBounds {
    pub top_k: usize,
    /// A limit on similarities only.
    pub min_score: f64,
    pub max_tokens: Option<usize>,
    /// Whether equal texts count once.
    pub dedupe: bool,
}

impl Request {
    /// Checks every argument. `options` has settings of retrieval for this call, and `explain`. Settings with
    /// an argument of their own are taken from the argument.
    pub fn new(
        kb_id: &str,
        top_k: Option<i32>,
        min_score: Option<f64>,
        filter: Option<Json>,
        max_tokens: Option<i32>,
        mode: Option<&str>,
        options: Option<Value>,
    ) -> Result<Self> {
        let argument = |argument, problem: String| Err(Error::Argument { argument, problem });
        if let Some(k) = top_k
            && !(1..=MAX_TOP_K).contains(&i64::from(k))
        {
            return argument("top_k", format!("{k} is not between 1 and {MAX_TOP_K}"));
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
        let filter_text = filter.clone();
        let filter = match filter.map(|filter| Filter::parse(&filter)).transpose() {
            Ok(filter) => filter,
            Err(problem) => return argument("filter", problem),
        };
        let filter_keys = filter.iter().flat_map(Filter::metadata_keys).map(str::to_string).collect();
        let filter = filter.filter(|filter| !filter.is_always());
        let mode = match mode.map(Mode::one_of).transpose() {
            Ok(mode) => mode,
            Err(problem) => return argument("mode", problem),
        };
        let mut options = options.unwrap_or_default();
        let explain = match options.as_object_mut().and_then(|options| options.remove("explain")) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(explain)) => explain,
            Some(other) => {
                return argument("options", format!("options.explain: must be true or false, not {other}"));
            }
        };
        let problems = Retrieval::options_problems(&options);
        if !problems.is_empty() {
            return argument("options", problems.join("; "));
        }
        Ok(Request {
            kb_id: kb_id.to_string(),
            filter_text: filter_text.filter(|_| filter.is_some()),
            filter_keys,
            filter,
            explain,
            as_context: false,
            top_k: top_k.map(|k| k as usize),
            min_score,
            max_tokens: max_tokens.map(|t| t as usize),
            mode,
            options,
        })
    }

    /// The settings of the call, with those of the knowledge base where the call has none.
    pub fn retrieval(&self, own: &Retrieval) -> Result<Retrieval> {
        let mut retrieval = match self.options.as_object().is_none_or(|options| options.is_empty()) {
            true => own.clone(),
            false => own
                .with_options(&self.options)
                .map_err(|problems| Error::Argument { argument: "options", problem: problems.join("; ") })?,
        };
        retrieval.top_k = self.top_k.unwrap_or(retrieval.top_k);
        retrieval.min_score = self.min_score.unwrap_or(retrieval.min_score);
        retrieval.max_tokens = self.max_tokens.or(retrieval.max_tokens);
        retrieval.mode = self.mode.unwrap_or(retrieval.mode);
        // In keyword search users type search words, while kb.context gets what somebody said.
        let is_typed = retrieval.mode == Mode::Keyword && !self.as_context;
        retrieval.syntax.get_or_insert(if is_typed { Syntax::Web } else { Syntax::Plain });
        Ok(retrieval)
    }
}

impl AnswerBounds {
    pub fn new(retrieval: &Retrieval, preprocess: &Preprocess) -> AnswerBounds {
        AnswerBounds {
            top_k: retrieval.top_k,
            min_score: retrieval.min_score,
            max_tokens: retrieval.max_tokens,
            dedupe: preprocess.dedupe,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_that_a_call_leaves_out_are_the_knowledge_bases() {
        let options = json!({"mode": "keyword", "top_k": 9, "explain": true});
        let request = Request::new("kb", Some(3), None, None, None, None, Some(options)).unwrap();
        let own = Retrieval { min_score: 0.2, max_tokens: Some(9), ..Retrieval::default() };
        let retrieval = request.retrieval(&own).unwrap();
        assert_eq!((retrieval.mode, request.explain), (Mode::Keyword, true));
        let bounds = AnswerBounds::new(&retrieval, &Preprocess::default());
        let expected = AnswerBounds { top_k: 3, min_score: 0.2, max_tokens: Some(9), dedupe: true };
        assert_eq!(bounds, expected);
    }

    #[test]
    fn quotes_and_minus_signs_are_operators_only_in_keyword_search_or_on_request() {
        let syntax = |mode: &str, as_context: bool, options: Value| {
            let request = Request::new("kb", None, None, None, None, Some(mode), Some(options)).unwrap();
            Request { as_context, ..request }.retrieval(&Retrieval::default()).unwrap().syntax.unwrap()
        };
        for (mode, as_context, expected) in [
            ("keyword", false, Syntax::Web),
            ("keyword", true, Syntax::Plain),
            ("hybrid", false, Syntax::Plain),
            ("dense", false, Syntax::Plain),
        ] {
            assert_eq!(syntax(mode, as_context, json!({})), expected, "{mode}");
            for (word, asked) in [("plain", Syntax::Plain), ("web", Syntax::Web)] {
                assert_eq!(syntax(mode, as_context, json!({ "syntax": word })), asked, "{mode}");
            }
        }
    }

    #[test]
    fn the_keys_of_a_filter_are_kept_even_where_every_document_passes() {
        for filter in [
            json!({"type": "or", "filters": [{"mood": 1}, {}]}),
            json!({"type": "nin", "key": "mood", "value": []}),
            json!({"type": "not", "filter": {"type": "in", "key": "mood", "value": []}}),
        ] {
            let given = Some(Json::new(filter.to_string()));
            let request = Request::new("kb", None, None, given, None, None, None).unwrap();
            assert_eq!((request.filter, request.filter_keys), (None, vec!["mood".to_string()]), "{filter}");
        }
    }

    #[test]
    fn a_wrong_argument_is_named_and_an_empty_filter_is_none() {
        let new = |top_k, filter: Value, mode, options| {
            Request::new("kb", top_k, None, Some(Json::new(filter.to_string())), None, mode, Some(options))
        };
        assert_eq!(new(None, json!({}), Some("dense"), json!({})).unwrap().filter, None);
        for (wrong, argument) in [
            (new(Some(0), json!({}), None, json!({})), "top_k"),
            (new(None, json!([]), None, json!({})), "filter"),
            (new(None, json!({}), Some("fast"), json!({})), "mode"),
            (new(None, json!({}), None, json!({"on_error": "retry"})), "options"),
            (new(None, json!({}), None, json!({"explain": 1})), "options"),
            (new(None, json!({}), None, json!([])), "options"),
        ] {
            let error = wrong.unwrap_err();
            assert_eq!(error.sqlstate(), "22023");
            assert!(error.to_string().contains(argument), "{error}");
        }
    }
}
