//! `kb embed`: the vectors of texts.

use crate::context::Context;
use crate::exit::{Error, Exit, Result};
use crate::sql;
use pgvector::Vector;
use std::io::{IsTerminal, Read};
use tokio_postgres::types::Type;

/// The most bytes that are read from standard input.
const MOST: u64 = 16 << 20;

#[derive(clap::Args)]
pub struct Args {
    /// The texts; without them, the lines of standard input
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
    /// The embedder; without it, the one that a knowledge base gets by default
    #[arg(long, value_name = "ID")]
    embedder: Option<String>,
    /// What the texts are
    #[arg(long, value_name = "KIND", value_enum, default_value_t)]
    kind: Kind,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Kind {
    #[default]
    Document,
    Query,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit> {
    let texts = if args.texts.is_empty() { from_stdin()? } else { args.texts };
    let session = context.connect().await?;
    let embedder = match args.embedder {
        Some(embedder) => embedder,
        None if session.installed.has("default_embedder") => {
            session.call("default_embedder").value().await?.unwrap_or_default()
        }
        None => {
            return Err(Error::usage(
                "which embedder? This version of the extension has no default: --embedder ID",
            ));
        }
    };
    session.installed.require("embed", &["embedder", "texts", "kind"])?;
    let kind = match args.kind {
        Kind::Document => "document",
        Kind::Query => "query",
    };
    let client = &session.connected.client;
    let rows = client
        .query_typed(sql::EMBED, &[(&embedder, Type::TEXT), (&texts, Type::TEXT_ARRAY), (&kind, Type::TEXT)])
        .await
        .map_err(|e| session.installed.advise(e.into()))?;
    let output = &context.output;
    let mut written = Vec::with_capacity(rows.len());
    for row in rows {
        let vector: Vector = row.try_get(0)?;
        let numbers: Vec<String> = vector.as_slice().iter().map(f32::to_string).collect();
        // In the form of pgvector, which is an array of JSON as well.
        written.push(format!("[{}]", numbers.join(",")));
    }
    if output.json {
        output.json(&format!("[{}]", written.join(",\n")))?;
    } else {
        for vector in written {
            output.line(&vector)?;
        }
    }
    Ok(Exit::Done)
}

fn from_stdin() -> Result<Vec<String>> {
    if std::io::stdin().is_terminal() {
        return Err(Error::usage("which texts? Give them as arguments, or a line each on standard input"));
    }
    let mut bytes = Vec::new();
    std::io::stdin()
        .take(MOST + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| Error::failed(format!("standard input cannot be read: {e}")))?;
    if bytes.len() as u64 > MOST {
        return Err(Error::failed(format!(
            "standard input has more than {} MB; give it in parts",
            MOST >> 20
        )));
    }
    let text = String::from_utf8(bytes).map_err(|_| Error::failed("standard input is not UTF-8"))?;
    let lines: Vec<String> =
        text.lines().filter(|line| !line.trim().is_empty()).map(str::to_string).collect();
    if lines.is_empty() { Err(Error::usage("standard input has no text")) } else { Ok(lines) }
}
