//! `kb export`: what there is as YAML, which `kb apply` finds unchanged.

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::clean::clean;

#[derive(clap::Args)]
pub struct Args {
    /// llm, embedder, reranker, extractor, vector_db, knowledge_base, memory, binding, quota or all
    #[arg(value_name = "KIND", default_value = "all")]
    kind: String,
    /// The id of one of them
    #[arg(value_name = "ID", default_value = "all")]
    id: String,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit> {
    let session = context.connect().await?;
    let call = session.call("export").text("kind", args.kind.as_str()).text("id", args.id.as_str());
    let yaml = call.value().await?.unwrap_or_default();
    if context.output.json {
        context.output.json(&serde_json::json!({ "yaml": yaml }).to_string())?;
    } else {
        // kb writes control characters of values as escapes, so that nothing changes here.
        context.output.text(&clean(&yaml))?;
    }
    Ok(Exit::Done)
}
