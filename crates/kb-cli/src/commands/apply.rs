//! `kb apply` and `kb diff`: make what files declare, or say what would be made.

use crate::call::{parsed, text};
use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::files::Files;
use crate::output::clean::{clean, clean_line};
use crate::output::{BAD, CAUTION, DIM, GOOD, Output};
use anstyle::Style;
use serde_json::Value;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Declared {
    /// Files, or folders of YAML files, which are one configuration together; `-` is standard input
    #[arg(short = 'f', long = "file", value_name = "FILE", required = true, num_args = 1..)]
    files: Vec<PathBuf>,
    /// Drop what is not declared, of the kinds that are
    #[arg(long)]
    prune: bool,
}

#[derive(clap::Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    declared: Declared,
    /// Exit with 3 if something has changed
    #[arg(long)]
    exit_code: bool,
    /// Fail unless the one thing that is declared still has this etag (see kb get)
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
}

#[derive(clap::Args)]
pub struct DiffArgs {
    #[command(flatten)]
    declared: Declared,
}

pub async fn apply(args: ApplyArgs, context: &Context) -> Result<Exit> {
    let has_changed = run(&args.declared, context, false, args.if_match.as_deref()).await?;
    Ok(if has_changed && args.exit_code { Exit::No } else { Exit::Done })
}

pub async fn diff(args: DiffArgs, context: &Context) -> Result<Exit> {
    let differs = run(&args.declared, context, true, None).await?;
    Ok(if differs { Exit::No } else { Exit::Done })
}

/// Returns whether something changed, or would.
async fn run(declared: &Declared, context: &Context, dry_run: bool, if_match: Option<&str>) -> Result<bool> {
    let files = Files::read(&declared.files)?;
    let session = context.connect().await?;
    let call = session.call("apply").text("yaml", files.text.as_str()).flag("dry_run", dry_run);
    let call = call.flag("prune", declared.prune).text("if_match", if_match);
    let json = call.rows().await.map_err(|error| files.explain(error))?;
    let rows = parsed(&json)?;
    let has_changed = rows.iter().any(|row| text(row, "action") != "unchanged");
    let output = &context.output;
    if output.json {
        output.json(&json)?;
    } else {
        output.text(&shown(&rows, dry_run, output))?;
    }
    Ok(has_changed)
}

/// A line for each thing that changes; of `diff` also what changes; and the numbers at the end.
fn shown(rows: &[Value], is_diff: bool, output: &Output) -> String {
    let mut shown = String::new();
    for row in rows {
        let action = text(row, "action");
        if action == "unchanged" {
            continue;
        }
        let name = format!("{} {}", clean_line(text(row, "kind")), clean_line(text(row, "id")));
        shown += &format!("{} {name}\n", output.paint(style(action), &format!("{action:<9}")));
        if is_diff {
            shown += &difference(text(row, "difference"), output);
        }
    }
    let count = |action: &str| rows.iter().filter(|row| text(row, "action") == action).count();
    let counts: Vec<String> = ["created", "changed", "pruned", "unchanged"]
        .iter()
        .map(|action| (count(action), action))
        .filter(|(count, action)| *count > 0 || **action == "unchanged")
        .map(|(count, action)| format!("{count} {action}"))
        .collect();
    shown + &output.paint(DIM, &counts.join(", ")) + "\n"
}

fn style(action: &str) -> Style {
    match action {
        "created" => GOOD,
        "changed" => CAUTION,
        "pruned" => BAD,
        _ => Style::new(),
    }
}

fn difference(text: &str, output: &Output) -> String {
    let line = |line: &str| {
        let style = match line.chars().next() {
            Some('+') => GOOD,
            Some('-') => BAD,
            _ => Style::new(),
        };
        format!("  {}\n", output.paint(style, line))
    };
    clean(text).lines().map(line).collect()
}
