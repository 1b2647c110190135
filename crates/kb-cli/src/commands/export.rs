//! `kb export`: what there is as YAML, which `kb apply` finds unchanged.

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::clean::{clean, clean_json};

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
        // kb writes plain texts in ASCII and others in quotes, where YAML has the escapes of JSON. Control
        // characters it has escaped itself, so that `clean` finds none.
        context.output.text(&clean(&clean_json(&yaml)))?;
    }
    Ok(Exit::Done)
}
