//! `kb status`: knowledge bases, the queue, runs, spending and quotas, once or once a second.

use crate::call::text;
use crate::context::Context;
use crate::exit::{Error, Exit, Result};
use crate::output::clean::clean_line;
use crate::output::table::{Align, Table};
use crate::output::{BAD, BOLD, CAUTION, GOOD, Output};
use crate::server::Session;
use crate::sql;
use anstyle::Style;
use serde_json::{Map, Value};
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(1);
/// Moves the cursor to the top left of the terminal, and clears what is below.
const REDRAW: &str = "\u{1b}[H\u{1b}[J";

/// The sections, with the statements that read them. An older extension may lack what one of them reads.
const SECTIONS: &[(&str, &str)] = &[
    ("knowledge_bases", sql::STATUS),
    ("queue", sql::QUEUE),
    ("runs", sql::RUNS),
    ("spending", sql::SPENDING),
    ("quotas", sql::QUOTAS),
];
/// SQLSTATEs of a table or column that does not exist.
const ABSENT: &[&str] = &["42P01", "42703", "42883"];

#[derive(clap::Args)]
pub struct Args {
    /// One knowledge base instead of all
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Show it again each second, until Ctrl-C; with --json, a line each second
    #[arg(long)]
    watch: bool,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit> {
    let session = context.connect().await?;
    if !args.watch {
        write(&read(args.id.as_deref(), &session).await?, context, "")?;
        return Ok(Exit::Done);
    }
    let interrupt = tokio::signal::ctrl_c();
    let watching = async {
        loop {
            let state = read(args.id.as_deref(), &session).await?;
            write(&state, context, if context.output.is_terminal { REDRAW } else { "" })?;
            tokio::time::sleep(INTERVAL).await;
        }
    };
    tokio::select! {
        biased;
        _ = interrupt => Ok(Exit::Done),
        ended = watching => ended,
    }
}

/// The sections as one JSON object, and each as its own text.
async fn read(id: Option<&str>, session: &Session) -> Result<Vec<(&'static str, String)>> {
    let mut sections = Vec::new();
    for (name, statement) in SECTIONS {
        match session.text(statement, &[id.map(str::to_string)]).await {
            Ok(json) => sections.push((*name, json.unwrap_or_else(|| "null".into()))),
            Err(error) if error.sqlstate.as_deref().is_some_and(|code| ABSENT.contains(&code)) => {}
            Err(error) => return Err(error),
        }
    }
    let is_unknown = sections.first().is_some_and(|(name, json)| *name == "knowledge_bases" && json == "[]");
    match id {
        Some(id) if is_unknown => Err(Error::failed(format!("knowledge base \"{id}\" does not exist"))
            .hint("kb list shows what there is.")),
        _ => Ok(sections),
    }
}

fn write(sections: &[(&'static str, String)], context: &Context, before: &str) -> Result<()> {
    let output = &context.output;
    if output.json {
        let members: Vec<String> = sections.iter().map(|(name, json)| format!("\"{name}\":{json}")).collect();
        // Aggregates of PostgreSQL have line ends between their elements.
        return output.json(&format!("{{{}}}", members.join(",")).replace('\n', ""));
    }
    let mut state = Map::new();
    for (name, json) in sections {
        let value = serde_json::from_str(json).unwrap_or_default();
        state.insert(name.to_string(), value);
    }
    output.text(&format!("{before}{}", shown(&Value::from(state), output)))
}

fn shown(state: &Value, output: &Output) -> String {
    let rows = |name: &str| state[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut sections = vec![knowledge_bases(rows("knowledge_bases"), output)];
    if state["queue"]["jobs"].as_u64().unwrap_or(0) > 0 {
        sections.push(queue(&state["queue"], output));
    }
    if !rows("runs").is_empty() {
        sections.push(runs(rows("runs"), output));
    }
    if !rows("spending").is_empty() {
        sections.push(spending(rows("spending"), output));
    }
    if !rows("quotas").is_empty() {
        sections.push(quotas(rows("quotas"), output));
    }
    sections.join("\n")
}

fn number(value: &Value) -> String {
    match value {
        Value::Null => "0".into(),
        other => other.to_string(),
    }
}

fn knowledge_bases(rows: &[Value], output: &Output) -> String {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("DOCS", Align::Right),
        ("READY", Align::Right),
        ("PENDING", Align::Right),
        ("FAILED", Align::Right),
        ("CHUNKS", Align::Right),
        ("VECTORS", Align::Right),
        ("RATE", Align::Right),
        ("TIME LEFT", Align::Right),
        ("INDEX", Align::Left),
    ]);
    let plain = Style::new();
    for row in rows {
        let count = |key: &str| number(&row[key]);
        let styled = |key: &str, style: Style| if row[key].as_i64().unwrap_or(0) > 0 { style } else { plain };
        let rate = row["rate"].as_f64().unwrap_or(0.0);
        table.row([
            (text(row, "kb_id"), BOLD),
            (&count("documents"), plain),
            (&count("ready"), styled("ready", GOOD)),
            (&count("pending"), styled("pending", CAUTION)),
            (&count("failed"), styled("failed", BAD)),
            (&count("chunks"), plain),
            (&count("vectors"), plain),
            (&(if rate > 0.0 { format!("{rate:.1}/s") } else { String::new() }), plain),
            (&time_left(row), plain),
            (&index(row), plain),
        ]);
    }
    if rows.is_empty() {
        return "There is no knowledge base.\n".into();
    }
    table.text(output)
}

/// The time left; `?` if documents wait and none was processed in the last minute.
fn time_left(row: &Value) -> String {
    if row["pending"].as_i64().unwrap_or(0) == 0 {
        return String::new();
    }
    row["eta_seconds"].as_f64().map_or("?".into(), duration)
}

fn duration(seconds: f64) -> String {
    // More than this is no estimate any more.
    let seconds = seconds.clamp(0.0, 1e9) as u64;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// The parts of the index, what no part has, and the part that is being built.
fn index(row: &Value) -> String {
    let count = |key: &str| row[key].as_u64().unwrap_or(0);
    let mut parts = Vec::new();
    match count("segments") {
        0 => {}
        1 => parts.push("1 segment".to_string()),
        segments => parts.push(format!("{segments} segments")),
    }
    if count("unindexed") > 0 {
        parts.push(format!("{} unindexed", count("unindexed")));
    }
    let building = &row["building"];
    if let Some(what) = building["what"].as_str() {
        let done = building["done"].as_f64().map(|done| format!(" {:.0} %", done * 100.0));
        parts.push(format!("{what}: {}{}", text(building, "phase"), done.unwrap_or_default()));
    }
    parts.join(", ")
}

fn queue(queue: &Value, output: &Output) -> String {
    let count = |key: &str| queue[key].as_u64().unwrap_or(0);
    let waiting = count("jobs").saturating_sub(count("in_progress") + count("delayed"));
    let more = if queue["is_bounded"] == true { " or more" } else { "" };
    let mut line = format!(
        "{} {} jobs{more}: {} in progress, {waiting} waiting, {} to be tried again later",
        output.paint(BOLD, "Queue:"),
        count("jobs"),
        count("in_progress"),
        count("delayed"),
    );
    if let Some(oldest) = queue["oldest_seconds"].as_f64() {
        line += &format!("; the oldest has waited {}", duration(oldest));
    }
    if let Some(error) = queue["error"].as_str() {
        line += &format!("\n{} {}", output.paint(CAUTION, "An error:"), clean_line(error));
    }
    line + "\n"
}

fn runs(rows: &[Value], output: &Output) -> String {
    let mut table = Table::new(&[
        ("RUN", Align::Right),
        ("STRATEGY", Align::Left),
        ("DONE", Align::Right),
        ("OF", Align::Right),
        ("FAILED", Align::Right),
        ("KNOWLEDGE BASE", Align::Left),
    ]);
    let plain = Style::new();
    for row in rows {
        table.row([
            (&number(&row["run"]), plain),
            (text(row, "strategy"), plain),
            (&number(&row["done"]), plain),
            (&number(&row["scanned"]), plain),
            (&number(&row["failed"]), plain),
            (text(row, "kb_id"), plain),
        ]);
    }
    table.text(output)
}

fn spending(rows: &[Value], output: &Output) -> String {
    let mut table = Table::new(&[
        ("SPENT ON", Align::Left),
        ("ENDPOINT", Align::Left),
        ("REQUESTS TODAY", Align::Right),
        ("TOKENS TODAY", Align::Right),
        ("COST TODAY", Align::Right),
        ("REQUESTS", Align::Right),
        ("TOKENS", Align::Right),
        ("COST", Align::Right),
    ]);
    let plain = Style::new();
    let cost = |value: &Value| value.as_f64().map(|cost| format!("{cost:.4}")).unwrap_or_default();
    for row in rows {
        table.row([
            (text(row, "capability"), plain),
            (text(row, "endpoint"), plain),
            (&number(&row["requests_today"]), plain),
            (&number(&row["tokens_today"]), plain),
            (&cost(&row["cost_today"]), plain),
            (&number(&row["requests"]), plain),
            (&number(&row["tokens"]), plain),
            (&cost(&row["cost"]), plain),
        ]);
    }
    table.text(output)
}

fn quotas(rows: &[Value], output: &Output) -> String {
    let mut table = Table::new(&[
        ("QUOTA", Align::Left),
        ("USED", Align::Right),
        ("ALLOWED", Align::Right),
        ("OF", Align::Left),
    ]);
    let plain = Style::new();
    for row in rows {
        let is_full = row["used"].as_f64().unwrap_or(0.0) >= row["allowed"].as_f64().unwrap_or(f64::MAX);
        table.row([
            (text(row, "what"), plain),
            (&number(&row["used"]), if is_full { BAD } else { plain }),
            (&number(&row["allowed"]), plain),
            (row["kb_id"].as_str().unwrap_or("tenant"), plain),
        ]);
    }
    table.text(output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Colour;

    #[test]
    fn times_are_shown_in_their_two_largest_units() {
        let shown: Vec<String> = [0.4, 59.9, 61.0, 3_700.0, 90_000.0, 1e300, -5.0].map(duration).into();
        assert_eq!(shown, ["0 s", "59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h", "11574 d 1 h", "0 s"]);
    }

    #[test]
    fn sections_that_have_nothing_to_say_are_left_out() {
        let output = Output::new(false, Colour::Never);
        let state =
            serde_json::json!({"knowledge_bases": [], "queue": {"jobs": 0}, "runs": [], "spending": []});
        assert_eq!(shown(&state, &output), "There is no knowledge base.\n");
        let state = serde_json::json!({
            "knowledge_bases": [{"kb_id": "k\u{1b}[2J", "documents": 3, "pending": 2, "ready": 1, "eta_seconds": null,
                "segments": 1, "unindexed": 7, "building": {"what": "segment", "phase": "loading tuples", "done": 0.456}}],
            "queue": {"jobs": 2, "in_progress": 1, "delayed": 0, "oldest_seconds": 3.5, "error": "no\nend"},
        });
        let shown = shown(&state, &output);
        assert!(
            shown.contains("k␛[2J")
                && shown.contains("  ?  1 segment, 7 unindexed, segment: loading tuples 46 %"),
            "{shown}"
        );
        assert!(shown.contains("2 jobs: 1 in progress, 1 waiting, 0 to be tried again later; the oldest has waited 3 s\nAn error: no end\n"), "{shown}");
    }
}
