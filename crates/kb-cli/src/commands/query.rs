//! `kb query`: the passages that answer a question.

use super::retrieval::Retrieval;
use crate::call::{parsed, text};
use crate::context::Context;
use crate::exit::{Error, Exit, Result};
use crate::output::clean::{clean, clean_line};
use crate::output::marks::Words;
use crate::output::table::{Align, Table};
use crate::output::{BOLD, CAUTION, DIM, GOOD, Output, PLACE};
use crate::server::Session;
use anstyle::Style;
use serde_json::Value;

#[derive(clap::Args)]
pub struct Args {
    /// The knowledge bases
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    /// The question
    #[arg(short = 'q', long, value_name = "TEXT")]
    query: String,
    #[command(flatten)]
    retrieval: Retrieval,
    /// The most tokens of all passages together
    #[arg(long, value_name = "N")]
    max_tokens: Option<i32>,
    /// Show how the answer came about instead of the passages
    #[arg(long)]
    explain: bool,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit> {
    let filter = args.retrieval.filter()?;
    if args.explain && args.ids.len() > 1 {
        return Err(Error::usage("--explain is for one knowledge base"));
    }
    let session = context.connect().await?;
    if args.explain {
        return explain(&args, filter, &session, context).await;
    }
    let call = session.call("query");
    let call = match args.ids.as_slice() {
        [id] => call.text("kb_id", id.as_str()),
        ids => call.texts("kb_ids", ids),
    };
    let call = call.text("query", args.query.as_str()).integer("top_k", args.retrieval.top_k);
    let call = call.double("min_score", args.retrieval.min_score).json("filter", filter);
    let json = call.integer("max_tokens", args.max_tokens).text("mode", args.retrieval.mode()).rows().await?;
    let rows = parsed(&json)?;
    let output = &context.output;
    if output.json {
        output.json(&json)?;
    } else {
        remarks(&rows, output);
        let words = Words::of(&args.query);
        for (at, row) in rows.iter().enumerate() {
            let gap = if at > 0 { "\n" } else { "" };
            output.text(&format!("{gap}{}", passage(row, args.ids.len() > 1, &words, output)))?;
        }
        if rows.is_empty() {
            output.note("nothing was found");
        }
    }
    Ok(if rows.is_empty() { Exit::No } else { Exit::Done })
}

/// What kb says of the answer as a whole, which each row has.
fn remarks(rows: &[Value], output: &Output) {
    let Some(locator) = rows.first().map(|row| &row["locator"]) else {
        return;
    };
    if locator["answered_by"] == "keyword" {
        output.note(&format!(
            "note: words alone answered, because the embedder failed: {}",
            text(locator, "reason")
        ));
    }
    for key in ["rerank_status", "phrase_status", "words_status", "transform_status"] {
        match &locator[key] {
            Value::Null => {}
            Value::String(status) => output.note(&format!("note: {status}")),
            other => output.note(&format!("note: {key}: {other}")),
        }
    }
}

/// A head with rank, score, document and place, and the text.
fn passage(row: &Value, names_kb: bool, words: &Words, output: &Output) -> String {
    let score = row["score"].as_f64().or_else(|| row["rank_score"].as_f64());
    let score = score.map_or_else(|| "-".to_string(), |score| format!("{score:.3}"));
    let mut document = clean_line(text(row, "external_id"));
    if names_kb {
        document = format!("{}/{document}", clean_line(text(row, "kb_id")));
    }
    let rank = row["rank"].as_i64().unwrap_or(0);
    let mut head = format!(
        "{} {} {}",
        output.paint(BOLD, &format!("{rank}.")),
        output.paint(GOOD, &score),
        output.paint(PLACE, &document)
    );
    let title = clean_line(text(row, "title"));
    let headings = row["locator"]["headings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut path: Vec<String> = headings.map(clean_line).collect();
    if !title.is_empty() && path.first() != Some(&title) && title != document {
        path.insert(0, title);
    }
    if !path.is_empty() {
        head += &format!("  {}", path.join(" › "));
    }
    for place in places(&row["locator"]) {
        head += &format!("  {}", output.paint(DIM, &place));
    }
    if row["stale"] == true {
        head += &format!("  {}", output.paint(CAUTION, "(the document has been edited since)"));
    }
    let content = clean(text(row, "content"));
    format!("{head}\n{}\n", words.marked(content.trim_end(), output))
}

/// Where in a file the passage is: its page and the like.
fn places(locator: &Value) -> Vec<String> {
    let known = ["page", "slide", "sheet", "chapter"];
    let mut places: Vec<String> = known
        .iter()
        .filter(|key| !locator[**key].is_null())
        .map(|key| match &locator[*key] {
            Value::String(name) => format!("{key} {}", clean_line(name)),
            other => format!("{key} {other}"),
        })
        .collect();
    if let Some(start) = locator["cue"]["start"].as_str() {
        places.push(format!("at {}", clean_line(start)));
    }
    places
}

async fn explain(args: &Args, filter: Option<String>, session: &Session, context: &Context) -> Result<Exit> {
    let call = session.call("explain").text("kb_id", args.ids[0].as_str()).text("query", args.query.as_str());
    let call = call.integer("top_k", args.retrieval.top_k).double("min_score", args.retrieval.min_score);
    let call = call.json("filter", filter).integer("max_tokens", args.max_tokens);
    let json = call.text("mode", args.retrieval.mode()).value().await?.unwrap_or_default();
    let explained: Value = serde_json::from_str(&json)
        .map_err(|e| Error::failed(format!("the server's result is unclear: {e}")))?;
    let output = &context.output;
    if output.json {
        output.json(&json)?;
    } else {
        output.text(&explanation(&explained, output))?;
    }
    let is_empty = explained["hits"].as_array().is_none_or(Vec::is_empty);
    Ok(if is_empty { Exit::No } else { Exit::Done })
}

/// The explanation for people: what it took, what was left at each stage, and the rows.
fn explanation(explained: &Value, output: &Output) -> String {
    let mut shown = format!("{} {}\n", output.paint(BOLD, "Mode:"), clean_line(text(explained, "mode")));
    let stages: Vec<String> = explained["stages"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|stage| format!("{} {}", clean_line(text(stage, "stage")), stage["candidates"]))
        .collect();
    let times: Vec<String> = explained["milliseconds"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(step, time)| Some((step, time.as_f64().filter(|time| *time >= 0.05)?)))
        .map(|(step, time)| format!("{} {time:.1} ms", clean_line(step)))
        .collect();
    for (head, listed) in [("Candidates:", stages), ("Time:", times)] {
        if !listed.is_empty() {
            shown += &format!("{} {}\n", output.paint(BOLD, head), listed.join(", "));
        }
    }
    for scan in explained["dense"]["scans"].as_array().into_iter().flatten() {
        shown += &format!("{} {}\n", output.paint(BOLD, "By meaning:"), clean_line(&flat(scan)));
    }
    if !explained["keyword"]["words"].is_null() {
        shown += &format!(
            "{} {}\n",
            output.paint(BOLD, "By words:"),
            clean_line(&flat(&explained["keyword"]["words"]))
        );
    }
    let mut table = Table::new(&[
        ("RANK", Align::Right),
        ("SCORE", Align::Right),
        ("RANK SCORE", Align::Right),
        ("BY MEANING", Align::Right),
        ("BY WORDS", Align::Right),
        ("DOCUMENT", Align::Left),
    ]);
    let number = |value: &Value| value.as_f64().map(|number| format!("{number:.4}")).unwrap_or_default();
    let rank = |value: &Value| value["rank"].as_i64().map(|rank| rank.to_string()).unwrap_or_default();
    for hit in explained["hits"].as_array().into_iter().flatten() {
        let ranks = &hit["locator"]["ranks"];
        let plain = Style::new();
        table.row([
            (&hit["rank"].to_string(), plain),
            (&number(&hit["score"]), plain),
            (&number(&hit["rank_score"]), plain),
            (&rank(&ranks["dense"]), plain),
            (&rank(&ranks["keyword"]), plain),
            (text(hit, "external_id"), plain),
        ]);
    }
    shown += &table.text(output);
    let dropped = explained["dropped"]["count"].as_i64().unwrap_or(0);
    shown + &output.paint(DIM, &format!("{dropped} chunks were left out; --json has the reasons")) + "\n"
}

/// A value in one line: `key value, key value` for an object.
fn flat(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            members.iter().map(|(key, value)| format!("{key} {}", flat(value))).collect::<Vec<_>>().join(", ")
        }
        Value::Array(items) => items.iter().map(flat).collect::<Vec<_>>().join(", "),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
