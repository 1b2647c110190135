//! The commands, a file for each: `Args` has its options, and `run` does it.

mod apply;
mod ask;
mod completions;
mod delete;
mod doctor;
mod embed;
mod eval;
mod export;
mod get;
mod ingest;
pub mod kind;
mod list;
mod load;
mod query;
mod retrieval;
mod status;
mod tune;

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
    /// Put files of this machine into a knowledge base
    ///
    /// PATHS are files, folders, or patterns in quotes ('docs/**/*.pdf'). Of folders, hidden files are
    /// left out (--hidden takes them), as are binary files of formats that kb does not read. The
    /// external_id of a document is the path of its file below the root, which is the current folder
    /// (--root names another one), with the prefix, if there is one, before it. Files that the server has
    /// with the same content are not sent. If a load is interrupted, the same command continues it, on
    /// any machine.
    Load(load::Args),
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
    /// Measure the answers of a knowledge base by questions whose answers are known
    ///
    /// SET is an evaluation set of the knowledge base, or a folder in the format of the BEIR benchmark:
    /// queries.jsonl, qrels.tsv or qrels/*.tsv, and optionally corpus.jsonl. The questions of a folder
    /// become an evaluation set with the name of the folder, and its corpus is put into the knowledge
    /// base, which must not have other documents (--no-corpus leaves it out; --corpus puts it in any
    /// case). Each question is asked once in each mode.
    Eval(eval::Args),
    /// Measure settings of a knowledge base, and propose the best ones
    ///
    /// SET is an evaluation set of the knowledge base, or a folder in the format of BEIR, as for `kb
    /// eval`. Settings are proposed if they are better than the present ones by more than chance.
    Tune(tune::Args),
    /// Answer requests over HTTP
    Serve(Box<crate::serve::Args>),
    /// Serve the Model Context Protocol on standard input and output
    ///
    /// Programs such as Claude Desktop start this command themselves. `kb serve` serves the protocol over
    /// HTTP.
    Mcp(crate::mcp::Args),
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
        Command::Load(args) => load::run(args, context).await,
        Command::Query(args) => query::run(args, context).await,
        Command::Ask(args) => ask::run(args, context).await,
        Command::Status(args) => status::run(args, context).await,
        Command::Doctor(args) => doctor::run(args, context).await,
        Command::Embed(args) => embed::run(args, context).await,
        Command::Eval(args) => eval::run(args, context).await,
        Command::Tune(args) => tune::run(args, context).await,
        Command::Serve(args) => crate::serve::run(*args, context).await,
        Command::Mcp(args) => crate::mcp::run(args, context).await,
        Command::Completions(args) => completions::run(args, context).await,
        Command::Man(args) => completions::man(args, context).await,
    }
}
