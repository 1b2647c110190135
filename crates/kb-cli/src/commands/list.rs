//! `kb list`: pages of what there is.

use super::kind::{Kind, Which};
use crate::context::Context;
use crate::exit::{Error, Exit, Result};
use crate::output::table::Table;
use crate::server::Session;
use crate::sql;
use anstyle::Style;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// The things that one call asks for.
const PAGE: i32 = 100;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
}

/// A page as kb.list_knowledge_bases and its like return it.
#[derive(Deserialize)]
struct Page {
    items: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit> {
    let kb = args.which.kb()?;
    let kind = args.which.kind;
    let session = context.connect().await?;
    let mut list = List::new(kind, context);
    let mut cursor = None;
    loop {
        let page = page(&session, kind, kb, cursor.as_deref()).await?;
        list.write(&page.items)?;
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    list.end()?;
    Ok(Exit::Done)
}

async fn page(session: &Session, kind: Kind, kb: Option<&str>, cursor: Option<&str>) -> Result<Page> {
    let function = kind.list_function();
    if !session.installed.has(&function) {
        let parameters = match kb {
            Some(kb) => vec![Some(kb.to_string())],
            None => Vec::new(),
        };
        let items = session.text(sql::old_list(kind), &parameters).await?.unwrap_or_else(|| "[]".into());
        let items = serde_json::from_str(&items).map_err(|e| unclear(&e))?;
        return Ok(Page { items, next_cursor: None });
    }
    let call = session.call(&function).text("kb_id", kb).integer("limit", PAGE).text("cursor", cursor);
    let page = call.value().await?.unwrap_or_default();
    serde_json::from_str(&page).map_err(|e| unclear(&e))
}

fn unclear(error: &serde_json::Error) -> Error {
    Error::failed(format!("the server's list is unclear: {error}"))
}

/// A list as it is written, page by page.
struct List<'a> {
    context: &'a Context,
    kind: Kind,
    table: Table,
    count: usize,
}

impl<'a> List<'a> {
    fn new(kind: Kind, context: &'a Context) -> List<'a> {
        let heads: Vec<_> = kind.columns().iter().map(|(head, _, align)| (*head, *align)).collect();
        List { context, kind, table: Table::new(&heads), count: 0 }
    }

    fn write(&mut self, items: &[Box<RawValue>]) -> Result<()> {
        let output = &self.context.output;
        let is_first = self.count == 0;
        self.count += items.len();
        if output.json {
            let texts: Vec<&str> = items.iter().map(|item| item.get()).collect();
            if texts.is_empty() {
                return Ok(());
            }
            let text = format!("{}{}", if is_first { "[" } else { ",\n" }, texts.join(",\n"));
            return output.text(&crate::output::clean::clean_json(&text));
        }
        for item in items {
            let item: Value = serde_json::from_str(item.get()).map_err(|e| unclear(&e))?;
            let cells: Vec<String> =
                self.kind.columns().iter().map(|(_, key, _)| shown(&item[*key])).collect();
            self.table.cells(cells.iter().map(|cell| (cell.as_str(), Style::new())));
        }
        match (is_first, items.is_empty()) {
            (_, true) => Ok(()),
            (true, false) => output.text(&self.table.text(output)),
            (false, false) => output.text(&self.table.page(output)),
        }
    }

    fn end(&self) -> Result<()> {
        let output = &self.context.output;
        match (output.json, self.count) {
            (true, 0) => output.line("[]"),
            (true, _) => output.line("]"),
            (false, 0) => {
                output.note(&format!("there is no {}", self.kind.shown()));
                Ok(())
            }
            (false, _) => Ok(()),
        }
    }
}

/// A value as a cell shows it.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
