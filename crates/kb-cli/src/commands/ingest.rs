//! `kb ingest`: processes the documents of a knowledge base and reads its sources.

use crate::context::Context;
use crate::exit::{Error, Exit, Result};
use crate::output::clean::clean_line;
use crate::server::Session;
use crate::sql;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::time::Duration;

/// How often the run is looked at.
const INTERVAL: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Strategy {
    /// Process what is not ready, or was processed under other settings
    Upsert,
    /// Process everything anew
    Replace,
}

#[derive(clap::Args)]
pub struct Args {
    /// The knowledge base
    #[arg(value_name = "ID")]
    id: String,
    /// What to process [default: upsert]
    #[arg(long, value_name = "STRATEGY", value_enum)]
    strategy: Option<Strategy>,
    /// Wait for the end, and show the progress
    #[arg(long)]
    watch: bool,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit> {
    let session = context.connect().await?;
    let strategy = args.strategy.map(|strategy| match strategy {
        Strategy::Upsert => "upsert",
        Strategy::Replace => "replace",
    });
    let call = session.call("ingest").text("kb_id", args.id.as_str()).text("strategy", strategy);
    let run = call.value().await?.unwrap_or_default();
    let json = if args.watch { watch(&run, &session, context).await? } else { state(&run, &session).await? };
    let row: Value = serde_json::from_str(&json)
        .map_err(|e| Error::failed(format!("the server's result is unclear: {e}")))?;
    let output = &context.output;
    if output.json {
        output.json(&json)?;
    } else if args.watch {
        output.line(&summary(&row))?;
    } else {
        output.line(&format!("run {run} has begun; kb status shows how far it is"))?;
    }
    if row["state"] == "failed" {
        let reason = row["error"].as_str().unwrap_or("the run failed");
        return Err(Error::failed(format!("run {run} failed: {reason}")));
    }
    Ok(Exit::Done)
}

async fn state(run: &str, session: &Session) -> Result<String> {
    let found = session.text(sql::RUN, &[Some(run.to_string())]).await?;
    found.ok_or_else(|| {
        Error::failed(format!("run {run} does not exist any more: was its knowledge base dropped?"))
    })
}

async fn watch(run: &str, session: &Session, context: &Context) -> Result<String> {
    let bar = if context.output.draws_progress() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    if let Ok(style) =
        ProgressStyle::with_template("{bar:30} {pos} of {len} documents{msg}  {elapsed_precise}")
    {
        bar.set_style(style);
    }
    loop {
        let json = state(run, session).await?;
        let row: Value = serde_json::from_str(&json).unwrap_or_default();
        let count = |key: &str| row[key].as_u64().unwrap_or(0);
        bar.set_length(count("scanned"));
        bar.set_position(count("added") + count("updated") + count("skipped") + count("failed"));
        if count("failed") > 0 {
            bar.set_message(format!(", {} failed", count("failed")));
        }
        if row["state"] != "running" {
            bar.finish_and_clear();
            return Ok(json);
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

fn summary(row: &Value) -> String {
    let counts: Vec<String> = ["added", "updated", "skipped", "deleted", "failed"]
        .iter()
        .map(|key| format!("{} {key}", row[*key].as_u64().unwrap_or(0)))
        .collect();
    let mut text = format!("run {}: {}", row["run"], counts.join(", "));
    for warning in row["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        text += &format!("\nwarning: {}", clean_line(warning));
    }
    text
}
