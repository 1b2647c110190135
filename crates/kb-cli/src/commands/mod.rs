//! The commands, a file for each: `Args` has its options, and `run` does it.

mod apply;
mod ask;
mod completions;
mod delete;
mod doctor;
mod embed;
mod export;
mod get;
mod ingest;
pub mod kind;
mod list;
mod query;
mod retrieval;
mod status;

use crate::context::Context;
use crate::exit::{Exit, Result};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Make what YAML files declare
    Apply(apply::ApplyArgs),
    /// Show what apply would change, and exit with 3 if that is anything
    Diff(apply::DiffArgs),
    /// Write what there is as YAML
    Export(export::Args),
    /// List knowledge bases, or what else can be declared
    List(list::Args),
    /// Show a knowledge base, or what else can be declared, with its etag
    Get(get::Args),
    /// Drop a knowledge base, or what else can be declared
    Delete(delete::Args),
    /// Process the documents of a knowledge base, and read its sources
    Ingest(ingest::Args),
    /// Show the passages that answer a question
    Query(query::Args),
    /// Have a chat model answer a question from the passages, with citations
    Ask(ask::Args),
    /// Show documents, queue, runs, spending and quotas
    Status(status::Args),
    /// Show what is wrong with kb in this database, and what to do
    Doctor(doctor::Args),
    /// Write the vectors of texts
    Embed(embed::Args),
    /// Write the completions for a shell
    Completions(completions::Args),
    /// Write the manual pages
    #[command(hide = true)]
    Man(completions::ManArgs),
}

pub async fn run(command: Command, context: &Context) -> Result<Exit> {
    match command {
        Command::Apply(args) => apply::apply(args, context).await,
        Command::Diff(args) => apply::diff(args, context).await,
        Command::Export(args) => export::run(args, context).await,
        Command::List(args) => list::run(args, context).await,
        Command::Get(args) => get::run(args, context).await,
        Command::Delete(args) => delete::run(args, context).await,
        Command::Ingest(args) => ingest::run(args, context).await,
        Command::Query(args) => query::run(args, context).await,
        Command::Ask(args) => ask::run(args, context).await,
        Command::Status(args) => status::run(args, context).await,
        Command::Doctor(args) => doctor::run(args, context).await,
        Command::Embed(args) => embed::run(args, context).await,
        Command::Completions(args) => completions::run(args, context).await,
        Command::Man(args) => completions::man(args, context).await,
    }
}
