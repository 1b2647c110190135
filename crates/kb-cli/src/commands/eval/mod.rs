//! `kb eval`: how good the answers of a knowledge base are, by mode of search.

mod beir;
pub mod plot;
mod sql;

pub use sql::TUNE;

use crate::commands::load::Progress;
use crate::commands::load::send::Sender;
use crate::commands::load::tally::{Tally, grouped};
use crate::commands::load::target::Target;
use crate::context::Context;
use crate::exit::{Error, Exit, Result};
use crate::output::table::{Align, Table};
use crate::server::Session;
use anstyle::Style;
use beir::{Collection, Corpus};
use indicatif::ProgressBar;
use plot::Plot;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

/// The connections over which a corpus is put.
const JOBS: usize = 4;
/// How many documents of a corpus are looked up at once.
const LOOKED_UP: usize = 5000;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The id of the knowledge base
    #[arg(value_name = "ID")]
    kb: String,
    #[command(flatten)]
    questions: Questions,
    /// The modes of search
    #[arg(short, long, value_name = "MODE", value_delimiter = ',', default_value = "dense,keyword,hybrid")]
    mode: Vec<String>,
    /// How many documents of an answer count [default: 10]
    #[arg(short, value_name = "N")]
    k: Option<i32>,
    /// Write a plot of quality against latency (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Which questions are asked.
#[derive(Debug, clap::Args)]
pub struct Questions {
    /// An evaluation set, or a folder in the format of BEIR
    #[arg(value_name = "SET")]
    pub set: String,
    /// The evaluation set that the questions of a folder become [default: the name of the folder]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Which judgements of a folder: qrels/SPLIT.tsv [default: test, dev or train, the first that there is]
    #[arg(long, value_name = "SPLIT")]
    split: Option<String>,
    /// Put the corpus of a folder even if the knowledge base has other documents
    #[arg(long)]
    corpus: bool,
    /// Do not put the corpus of a folder
    #[arg(long, conflicts_with = "corpus")]
    no_corpus: bool,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit> {
    let session = context.connect().await?;
    session.installed.require("evaluate", &["kb_id", "eval_set", "option_sets"])?;
    let set = args.questions.prepare(&args.kb, &session, context).await?;
    let options: Vec<String> = (args.mode.iter())
        .map(|mode| match args.k {
            Some(k) => json!({"mode": mode.trim(), "k": k}).to_string(),
            None => json!({"mode": mode.trim()}).to_string(),
        })
        .collect();
    let waiting = Waiting::begin(context, "asking the questions".into());
    let parameters = [Some(args.kb.clone()), Some(set.clone()), Some(json!(options).to_string())];
    let rows = session.text(sql::EVALUATE, &parameters).await;
    drop(waiting);
    let rows = rows_of(rows?)?;
    if let Some(file) = &args.plot {
        Plot::of(format!("{}: {set}", args.kb), &rows, args.mode.iter().cloned()).write(file)?;
    }
    let output = &context.output;
    if output.json {
        output.json(&json!({"knowledge_base": args.kb, "eval_set": set, "rows": rows}).to_string())?;
        return Ok(Exit::Done);
    }
    let head = |name| (name, Align::Right);
    let mut table = Table::new(&[
        ("MODE", Align::Left),
        head("K"),
        head("QUESTIONS"),
        head("NDCG"),
        head("RECALL"),
        head("PRECISION"),
        head("MRR"),
        head("HIT RATE"),
        head("P50 MS"),
        head("P95 MS"),
        head("UNANSWERED"),
    ]);
    for (row, mode) in rows.iter().zip(&args.mode) {
        let whole = |key: &str| row[key].to_string();
        let cells = [
            mode.clone(),
            whole("k"),
            whole("questions"),
            number(row, "ndcg", 3),
            number(row, "recall", 3),
            number(row, "precision", 3),
            number(row, "mrr", 3),
            number(row, "hit_rate", 3),
            number(row, "p50_ms", 1),
            number(row, "p95_ms", 1),
            whole("unanswered"),
        ];
        table.row(cells.each_ref().map(|cell| (cell.as_str(), Style::new())));
    }
    output.text(&table.text(output))?;
    Ok(Exit::Done)
}

/// The rows of a statement that answers a JSON array.
pub fn rows_of(json: Option<String>) -> Result<Vec<Value>> {
    crate::call::parsed(json.as_deref().unwrap_or("[]"))
}

/// A number of a row with so many decimals; a dash if there is none.
pub fn number(row: &Value, key: &str, decimals: usize) -> String {
    row[key].as_f64().map_or_else(|| "–".into(), |number| format!("{number:.decimals$}"))
}

impl Questions {
    /// The evaluation set, which is made if a folder is given.
    pub async fn prepare(&self, kb_id: &str, session: &Session, context: &Context) -> Result<String> {
        let folder = Path::new(&self.set);
        if !folder.is_dir() {
            if self.name.is_some() || self.split.is_some() || self.corpus || self.set.contains('/') {
                return Err(Error::usage(format!("{} is not a folder", self.set)));
            }
            return Ok(self.set.clone());
        }
        session.installed.require("load_eval", &["kb_id", "eval_set", "queries", "qrels"])?;
        let collection = Collection::open(folder, self.split.as_deref())?;
        let set = self.name.clone().unwrap_or_else(|| collection.name.clone());
        if let Some(corpus) = collection.corpus.as_deref().filter(|_| !self.no_corpus) {
            self.put_corpus(corpus, kb_id, session, context).await?;
        }
        let (queries, qrels) = collection.questions()?;
        let parameters = [Some(kb_id.to_string()), Some(set.clone()), Some(queries), Some(qrels)];
        let loaded = session.text(sql::LOAD_EVAL, &parameters).await?.unwrap_or_default();
        context.output.note(&format!("{loaded} questions in evaluation set \"{set}\""));
        Ok(set)
    }

    async fn put_corpus(&self, file: &Path, kb_id: &str, session: &Session, context: &Context) -> Result<()> {
        let target = Target::find(session, kb_id).await?;
        if !self.corpus {
            let (all, known) = known(file, kb_id, session).await?;
            if all > known {
                return Err(Error::failed(format!(
                    "knowledge base \"{kb_id}\" has {} documents that are not in {}",
                    grouped(all - known),
                    file.display()
                ))
                .hint("Use a knowledge base of its own, or add --corpus to put them together, or --no-corpus to leave the corpus out."));
            }
        }
        let size = std::fs::metadata(file).map_err(|error| Error::file(file, &error))?.len();
        let progress = Progress::new(Corpus::count(file)?, size, context.output.draws_progress());
        let is_stopped = AtomicBool::new(false);
        let sender = Sender {
            context,
            target: &target,
            source: Arc::new(Corpus::open(file)?),
            progress: &progress,
            is_stopped: &is_stopped,
            tally: Mutex::new(Tally::default()),
        };
        let sent = sender.send(JOBS).await;
        progress.finish();
        sent?;
        let tally = sender.tally.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = tally.failures.first() {
            return Err(Error::failed(format!(
                "{} documents of the corpus failed; {}: {}",
                tally.failures.len(),
                failure.path,
                failure.error
            )));
        }
        context.output.note(&format!(
            "{} documents put, {} unchanged",
            grouped(tally.added + tally.updated),
            grouped(tally.unchanged)
        ));
        wait(kb_id, session, context).await
    }
}

/// The number of documents of the knowledge base, and of those that the corpus has.
async fn known(file: &Path, kb_id: &str, session: &Session) -> Result<(u64, u64)> {
    let client = &session.connected.client;
    let all = client.query_typed(sql::DOCUMENTS, &[(&kb_id, Type::TEXT)]).await?;
    let all = all.first().map_or(Ok(0), |row| row.try_get::<_, i64>(0))? as u64;
    let (mut known, mut ids) = (0, Vec::new());
    if all > 0 {
        let mut corpus = Corpus::open(file)?.ids();
        loop {
            ids.clear();
            for id in corpus.by_ref().take(LOOKED_UP) {
                ids.push(id?);
            }
            if ids.is_empty() {
                break;
            }
            let rows =
                client.query_typed(sql::KNOWN, &[(&kb_id, Type::TEXT), (&ids, Type::TEXT_ARRAY)]).await?;
            known += rows.first().map_or(Ok(0), |row| row.try_get::<_, i64>(0))? as u64;
        }
    }
    Ok((all, known))
}

/// Waits until the documents can be found.
async fn wait(kb_id: &str, session: &Session, context: &Context) -> Result<()> {
    let waiting = Waiting::begin(context, "waiting for the worker".into());
    loop {
        match session.connected.client.query_typed(sql::WAIT, &[(&kb_id, Type::TEXT)]).await {
            Ok(_) => break,
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                let pending = session.text(sql::PENDING, &[Some(kb_id.to_string())]).await?;
                waiting.say(format!("{} documents to be processed", pending.unwrap_or_default()));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A line on a terminal that says what is waited for.
pub struct Waiting(ProgressBar);

impl Waiting {
    pub fn begin(context: &Context, what: String) -> Waiting {
        let bar = match context.output.draws_progress() {
            true => ProgressBar::new_spinner(),
            false => ProgressBar::hidden(),
        };
        bar.enable_steady_tick(Duration::from_millis(100));
        bar.set_message(what);
        Waiting(bar)
    }

    fn say(&self, what: String) {
        self.0.set_message(what);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
