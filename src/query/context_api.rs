//! kb.context and kb.annotate: from passages to a prompt, and from an answer back to passages.

use crate::pg::function_arguments::{elements, required};
use crate::pg::json::Jsonb;
use crate::pg::report::reported;
use crate::pg::uuid::{from_pg, to_pg};
use crate::query::api::request;
use crate::query::context::Context;
use kb_types::context_format::ContextFormat;
use kb_types::error::Error;
use kb_types::named::Named;
use pgrx::Uuid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// Declares a function that returns one text. Its columns are defined here and nowhere else; the body returns
/// the context. This is a macro, because pgrx reads the columns from the signature and does not look through
/// a type alias.
macro_rules! writes_context {
    ($(#[$($attribute:tt)*])* fn $name:ident($($arguments:tt)*) { $($body:tt)* }) => {
        $(#[$($attribute)*])*
        fn $name($($arguments)*) -> Result<
            TableIterator<
                'static,
                (
                    name!(context, String),
                    name!(chunk_ids, Vec<Uuid>),
                    name!(blocks, Jsonb),
                    name!(tokens, i32),
                    name!(truncated, bool),
                ),
            >,
            ErrorReport,
        > {
    reported(|| {
            let Context { text, chunk_ids, blocks, tokens, is_truncated } = { $($body)* };
            let chunk_ids = chunk_ids.into_iter().map(to_pg).collect();
            let tokens = i32::try_from(tokens).unwrap_or(i32::MAX);
            Ok(TableIterator::once((text, chunk_ids, Jsonb(blocks), tokens, is_truncated)))
        })
}
    };
}

writes_context! {
    #[allow(clippy::too_many_arguments)]
    #[pg_extern(stable, parallel_restricted)]
    fn context(
        kb_id: Option<&str>,
        query: Option<&str>,
        max_tokens: default!(Option<i32>, "NULL"),
        format: default!(Option<&str>, "'markdown'"),
        top_k: default!(Option<i32>, "NULL"),
        min_score: default!(Option<f64>, "NULL"),
        filter: default!(Option<Jsonb>, "NULL"),
        mode: default!(Option<&str>, "NULL"),
        options: default!(Option<Jsonb>, "NULL"),
    ) {
        let request = request(kb_id, top_k, min_score, filter, max_tokens, mode, options)?;
        let format = format_named(required("format", format)?)?;
        crate::query::context::context(&request, required("query", query)?, format)?
    }
}

writes_context! {
    #[allow(clippy::too_many_arguments)]
    #[pg_extern(name = "context", stable, parallel_restricted)]
    fn context_several(
        kb_ids: Option<Vec<Option<String>>>,
        query: Option<&str>,
        max_tokens: default!(Option<i32>, "NULL"),
        format: default!(Option<&str>, "'markdown'"),
        top_k: default!(Option<i32>, "NULL"),
        min_score: default!(Option<f64>, "NULL"),
        filter: default!(Option<Jsonb>, "NULL"),
        mode: default!(Option<&str>, "NULL"),
        options: default!(Option<Jsonb>, "NULL"),
        weights: default!(Option<Vec<Option<f64>>>, "NULL"),
    ) {
        let kb_ids = elements("kb_ids", required("kb_ids", kb_ids)?)?;
        let weights = weights.map(|weights| elements("weights", weights)).transpose()?;
        let request = request(Some(""), top_k, min_score, filter, max_tokens, mode, options)?;
        let format = format_named(required("format", format)?)?;
        crate::query::context::context_several(&kb_ids, &request, required("query", query)?, format, weights.as_deref())?
    }
}

fn format_named(word: &str) -> kb_types::error::Result<ContextFormat> {
    ContextFormat::one_of(word).map_err(|problem| Error::Argument { argument: "format", problem })
}

#[pg_extern(stable, parallel_restricted)]
fn annotate(answer: Option<&str>, chunk_ids: Option<Vec<Option<Uuid>>>) -> Result<Jsonb, ErrorReport> {
    reported(|| {
        let ids = elements("chunk_ids", required("chunk_ids", chunk_ids)?)?;
        let ids: Vec<uuid::Uuid> = ids.into_iter().map(from_pg).collect();
        Ok(Jsonb(crate::query::annotate::annotate(required("answer", answer)?, &ids)?))
    })
}
