//! `kb get`: one thing with its etag.

use super::kind::{Kind, Which};
use crate::context::Context;
use crate::exit::{Error, Exit, Result};
use crate::output::clean::clean_line;
use crate::output::{BOLD, DIM, Output};
use crate::sql;
use serde_json::Value;

#[derive(clap::Args)]
pub struct Args {
    /// The id (of a source, its name)
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    which: Which,
    /// Write nothing and exit with 3 if this is still the etag
    #[arg(long, value_name = "ETAG")]
    if_none_match: Option<String>,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit> {
    let (kind, kb) = (args.which.kind, args.which.kb()?);
    let session = context.connect().await?;
    let function = kind.get_function();
    let json = if session.installed.has(&function) {
        let call = session.call(&function).text("kb_id", kb).text(kind.name(), args.id.as_str());
        call.text("if_none_match", args.if_none_match.as_deref()).value().await?
    } else {
        if args.if_none_match.is_some() {
            session.installed.require(&function, &["if_none_match"])?;
        }
        let mut parameters = vec![Some(args.id.clone())];
        parameters.extend(kb.map(|kb| Some(kb.to_string())));
        let found = session.text(sql::old_get(kind), &parameters).await?;
        Some(found.ok_or_else(|| {
            Error::failed(format!("{} \"{}\" does not exist", kind.shown(), args.id))
                .hint("kb list shows what there is.")
        })?)
    };
    let Some(json) = json else {
        return Ok(Exit::No);
    };
    let output = &context.output;
    if output.json {
        output.json(&json)?;
    } else {
        let item: Value = serde_json::from_str(&json)
            .map_err(|e| Error::failed(format!("the server's result is unclear: {e}")))?;
        output.text(&shown(&item, kind, output))?;
    }
    Ok(Exit::Done)
}

/// The thing as YAML, with null values left out, and its etag as a comment.
fn shown(item: &Value, kind: Kind, output: &Output) -> String {
    let mut text = String::new();
    let empty = serde_json::Map::new();
    let members = item.as_object().unwrap_or(&empty);
    let first: Vec<&str> = kind.columns().iter().map(|(_, key, _)| *key).collect();
    let others = members.keys().map(String::as_str).filter(|key| !first.contains(key) && *key != "etag");
    for key in first.iter().copied().chain(others) {
        member(key, &item[key], 0, output, &mut text);
    }
    if let Some(etag) = item["etag"].as_str() {
        text += &output.paint(DIM, &format!("# etag: {}", clean_line(etag)));
        text.push('\n');
    }
    text
}

fn member(key: &str, value: &Value, depth: usize, output: &Output, text: &mut String) {
    if value.is_null() {
        return;
    }
    let indent = "  ".repeat(depth);
    let name = output.paint(BOLD, &format!("{}:", scalar(&Value::from(key))));
    match value {
        Value::Object(members) if !members.is_empty() => {
            *text += &format!("{indent}{name}\n");
            for (key, value) in members {
                member(key, value, depth + 1, output, text);
            }
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            *text += &format!("{indent}{name}\n");
            for item in items {
                *text += &format!("{indent}  - {}\n", scalar(item));
            }
        }
        other => *text += &format!("{indent}{name} {}\n", scalar(other)),
    }
}

/// A value in one line. JSON is YAML, too, and plain words need no quotes.
fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        other => crate::output::clean::clean_json(&other.to_string()).into_owned(),
    }
}

fn is_plain(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(is_word)
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&text.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Colour;

    #[test]
    fn a_thing_is_shown_as_yaml_without_control_characters() {
        let item = serde_json::json!({
            "id": "k", "etag": "\"a1\"", "embedder": "static", "vector_db": null, "description": "a: \u{1b}[1m\u{9b}",
            "retrieval": {"top_k": 8, "mode": "no"}, "metadata": {"tags": ["a", "b c"]},
            "sources": [{"name": "s", "type": "git"}],
        });
        let output = Output::new(false, Colour::Never);
        assert_eq!(
            shown(&item, Kind::KnowledgeBase, &output),
            "id: k\nembedder: static\ndescription: \"a: \\u001b[1m\\u009b\"\nmetadata:\n  tags: [\"a\",\"b c\"]\n\
             retrieval:\n  mode: \"no\"\n  top_k: 8\nsources:\n  - {\"name\":\"s\",\"type\":\"git\"}\n# etag: \"a1\"\n"
        );
    }
}
