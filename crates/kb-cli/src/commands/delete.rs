//! `kb delete`: drops one thing.

use super::kind::{Kind, Which};
use crate::context::Context;
use crate::exit::{Error, Exit, Result};
use crate::output::clean::clean_line;
use crate::sql;

#[derive(clap::Args)]
pub struct Args {
    /// The id (of a source, its name)
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    which: Which,
    /// Do not ask
    #[arg(short = 'y', long)]
    yes: bool,
    /// Fail unless this is still the etag (see kb get)
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit> {
    let (kind, kb) = (args.which.kind, args.which.kb()?);
    let session = context.connect().await?;
    let function = kind.drop_function();
    if !args.yes {
        let lost = match kind {
            Kind::KnowledgeBase => {
                let count = session.text(sql::DOCUMENTS, &[Some(args.id.clone())]).await?;
                let count = count.ok_or_else(|| {
                    Error::failed(format!("knowledge base \"{}\" does not exist", args.id))
                        .hint("kb list shows what there is.")
                })?;
                format!(" with its {count} documents")
            }
            Kind::Source => " with its documents".to_string(),
            _ => String::new(),
        };
        let question = format!("Drop {} {}{lost}?", kind.shown(), clean_line(&args.id));
        if !context.confirm(&question, "--yes")? {
            return Err(Error::failed("nothing was dropped"));
        }
    }
    let call = session.call(&function).text("kb_id", kb).text(kind.name(), args.id.as_str());
    call.text("if_match", args.if_match.as_deref()).value().await?;
    let output = &context.output;
    if output.json {
        output.json(&serde_json::json!({ "dropped": args.id }).to_string())?;
    } else {
        output.line(&format!("dropped {} {}", kind.shown(), clean_line(&args.id)))?;
    }
    Ok(Exit::Done)
}
