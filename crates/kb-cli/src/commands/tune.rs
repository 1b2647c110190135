//! `kb tune`: which settings of a knowledge base answer an evaluation set best, and how fast.

use crate::commands::eval::plot::Plot;
use crate::commands::eval::{Questions, TUNE, Waiting, number, rows_of};
use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::GOOD;
use crate::output::table::{Align, Table};
use anstyle::Style;
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The id of the knowledge base
    #[arg(value_name = "ID")]
    kb: String,
    #[command(flatten)]
    questions: Questions,
    /// Make the proposal the settings of the knowledge base
    #[arg(long)]
    apply: bool,
    /// How many documents of an answer count [default: 10]
    #[arg(short, value_name = "N")]
    k: Option<i32>,
    /// How many rows are asked for
    #[arg(long, value_name = "N")]
    top_k: Option<i32>,
    /// Write a plot of quality against latency (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit> {
    let session = context.connect().await?;
    session.installed.require("tune", &["kb_id", "eval_set", "apply", "k", "top_k"])?;
    let set = args.questions.prepare(&args.kb, &session, context).await?;
    let number_of = |number: Option<i32>| number.map(|number| number.to_string());
    let parameters = [
        Some(args.kb.clone()),
        Some(set.clone()),
        Some(args.apply.to_string()),
        number_of(args.k),
        number_of(args.top_k),
    ];
    let waiting = Waiting::begin(context, "asking the questions with each of the settings".into());
    let rows = session.text(TUNE, &parameters).await;
    drop(waiting);
    let rows = rows_of(rows?)?;
    if let Some(file) = &args.plot {
        Plot::of(format!("{}: {set}", args.kb), &rows, rows.iter().map(settings)).write(file)?;
    }
    let output = &context.output;
    if output.json {
        let tuned = json!({
            "knowledge_base": args.kb, "eval_set": set, "applied": args.apply, "rows": rows,
        });
        output.json(&tuned.to_string())?;
        return Ok(Exit::Done);
    }
    let head = |name| (name, Align::Right);
    let mut table = Table::new(&[
        ("SETTINGS", Align::Left),
        head("NDCG"),
        head("RECALL"),
        head("PRECISION"),
        head("MRR"),
        head("HIT RATE"),
        head("P50 MS"),
        head("P95 MS"),
        head("GAIN"),
        head("± ERROR"),
        ("", Align::Left),
    ]);
    for row in &rows {
        let (is_present, is_proposed) = (row["present"] == true, row["proposed"] == true);
        let mark = match (is_present, is_proposed) {
            (true, true) => "present, proposed",
            (true, false) => "present",
            (false, true) => "proposed",
            (false, false) => "",
        };
        let cells = [
            settings(row),
            number(row, "ndcg", 3),
            number(row, "recall", 3),
            number(row, "precision", 3),
            number(row, "mrr", 3),
            number(row, "hit_rate", 3),
            number(row, "p50_ms", 1),
            number(row, "p95_ms", 1),
            number(row, "gain", 3),
            number(row, "gain_error", 3),
            mark.to_string(),
        ];
        let style = if is_proposed { GOOD } else { Style::new() };
        table.row(cells.each_ref().map(|cell| (cell.as_str(), style)));
    }
    output.text(&table.text(output))?;
    Ok(Exit::Done)
}

/// The options of a row in few characters: `hybrid z_score alpha 0.3`.
fn settings(row: &Value) -> String {
    let mut words = Vec::new();
    write(&row["options"], &mut words);
    if words.is_empty() { "as they are".into() } else { words.join(" ") }
}

/// The mode and the fusion by their values alone, and everything else with its name.
fn write(value: &Value, words: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            let named = ["mode", "fusion"].iter().filter_map(|key| members.get(*key));
            named.for_each(|value| write(value, words));
            for (key, value) in members.iter().filter(|(key, _)| !matches!(key.as_str(), "mode" | "fusion")) {
                if !value.is_object() {
                    words.push(key.clone());
                }
                write(value, words);
            }
        }
        Value::String(text) => words.push(text.clone()),
        other => words.push(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_words() {
        let shown = |options: Value| settings(&json!({"options": options}));
        assert_eq!(shown(json!({})), "as they are");
        assert_eq!(shown(json!({"mode": "dense"})), "dense");
        let options = json!({"mode": "hybrid", "hybrid": {"alpha": 0.3, "fusion": "z_score"}});
        assert_eq!(shown(options), "hybrid z_score alpha 0.3");
        let options =
            json!({"mode": "hybrid", "hybrid": {"fusion": "rrf", "weights": {"dense": 1, "keyword": 2}}});
        assert_eq!(shown(options), "hybrid rrf dense 1 keyword 2");
    }
}
