//! `kb doctor`: what kb.health reports, and what to do about each problem.

use crate::call::{parsed, text};
use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::clean::{clean, clean_line};
use crate::output::{BAD, BOLD, CAUTION, GOOD, Output};
use serde_json::Value;

#[derive(clap::Args)]
pub struct Args {
    /// Leave out what is well
    #[arg(long)]
    problems: bool,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit> {
    let session = context.connect().await?;
    let json = session.call("health").rows().await?;
    let rows = parsed(&json)?;
    let is_well = |row: &Value| text(row, "status") == "ok";
    let output = &context.output;
    let problems: Vec<Value> = rows.iter().filter(|row| !is_well(row)).cloned().collect();
    let listed = if args.problems { &problems } else { &rows };
    if output.json && args.problems {
        output.json(&Value::from(problems.clone()).to_string())?;
    } else if output.json {
        output.json(&json)?;
    } else {
        let lines: String = listed.iter().map(|row| line(row, output)).collect();
        output.text(&lines)?;
        if problems.is_empty() {
            output.note("no problem was found");
        }
    }
    Ok(if problems.is_empty() { Exit::Done } else { Exit::No })
}

/// A part of kb with its state, and what to do below it.
fn line(row: &Value, output: &Output) -> String {
    let status = text(row, "status");
    let style = match status {
        "ok" => GOOD,
        "warning" => CAUTION,
        _ => BAD,
    };
    let component = output.paint(BOLD, &format!("{:<10}", clean_line(text(row, "component"))));
    let status = output.paint(style, &format!("{:<7}", clean_line(status)));
    let mut line = format!("{status}  {component}  {}\n", clean_line(text(row, "detail")));
    let hint = clean(text(row, "hint"));
    for hint in hint.lines().filter(|hint| !hint.trim().is_empty()) {
        line += &format!("{:21}{}\n", "", hint.trim_end());
    }
    line
}
