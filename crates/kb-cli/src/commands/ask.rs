//! `kb ask`: a chat model answers from the passages, once or as a small chat.

use super::retrieval::Retrieval;
use crate::call::{parsed, text};
use crate::context::Context;
use crate::exit::{Error, Exit, Result};
use crate::output::clean::{clean, clean_line};
use crate::output::{BOLD, DIM, Output, PLACE};
use crate::server::Session;
use crate::sql;
use rustyline::error::ReadlineError;
use serde_json::Value;
use std::io::{IsTerminal, Read};

/// The longest question that is read from standard input.
const LONGEST: u64 = 1 << 20;

#[derive(clap::Args)]
pub struct Args {
    /// The knowledge bases
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    /// The question; without it, standard input is read, or there is a chat on a terminal
    #[arg(short = 'q', long, value_name = "TEXT")]
    query: Option<String>,
    /// The chat model; needed if there are several
    #[arg(long, value_name = "ID")]
    llm: Option<String>,
    /// The conversation that goes on, or begins, by this question
    #[arg(long, value_name = "ID")]
    conversation: Option<String>,
    /// The memory whose facts the model is told
    #[arg(long, value_name = "ID")]
    memory: Option<String>,
    #[command(flatten)]
    retrieval: Retrieval,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit> {
    args.retrieval.filter()?;
    let chats = args.query.is_none() && std::io::stdin().is_terminal();
    if chats && args.conversation.is_none() {
        return Err(Error::usage("what is the question? Give it by -q, or chat with --conversation ID"));
    }
    if chats && context.output.json {
        return Err(Error::usage("--json needs a question, by -q or on standard input"));
    }
    let question = match (&args.query, chats) {
        (Some(question), _) => Some(question.clone()),
        (None, true) => None,
        (None, false) => Some(from_stdin()?),
    };
    let session = context.connect().await?;
    let llm = match &args.llm {
        Some(llm) => llm.clone(),
        None => only_llm(&session).await?,
    };
    if let Some(id) = &args.conversation
        && session.text(sql::CONVERSATION, &[Some(id.clone())]).await?.is_none()
    {
        session.call("create_conversation").text("id", id.as_str()).value().await?;
        context.output.note(&format!("conversation {id} begins"));
    }
    match question {
        Some(question) => ask(&args, &llm, &question, &session, context).await,
        None => chat(&args, &llm, &session, context).await,
    }
}

fn from_stdin() -> Result<String> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .take(LONGEST)
        .read_to_end(&mut bytes)
        .map_err(|e| Error::failed(format!("standard input cannot be read: {e}")))?;
    let question = String::from_utf8(bytes).map_err(|_| Error::failed("the question is not UTF-8"))?;
    match question.trim() {
        "" => Err(Error::usage("what is the question? Give it by -q or on standard input")),
        question => Ok(question.to_string()),
    }
}

async fn only_llm(session: &Session) -> Result<String> {
    let ids = session.text(sql::LLMS, &[]).await?.unwrap_or_default();
    let ids: Vec<String> = serde_json::from_str(&ids).unwrap_or_default();
    match ids.as_slice() {
        [id] => Ok(id.clone()),
        [] => Err(Error::failed("there is no chat model")
            .hint("Create one by kb.create_llm, or declare it (kb apply).")),
        several => Err(Error::usage(format!("which chat model? --llm is one of {}", several.join(", ")))),
    }
}

async fn ask(args: &Args, llm: &str, question: &str, session: &Session, context: &Context) -> Result<Exit> {
    let call = session.call("answer");
    let call = match args.ids.as_slice() {
        [id] => call.text("kb_id", id.as_str()),
        ids => call.texts("kb_ids", ids),
    };
    let call =
        call.text("question", question).text("llm", llm).text("conversation", args.conversation.as_deref());
    let call = call.text("memory", args.memory.as_deref()).json("options", args.retrieval.options()?);
    let json = call.rows().await?;
    let row = parsed(&json)?.pop().unwrap_or_default();
    let output = &context.output;
    if output.json {
        // The one row without the array around it.
        output.json(&row.to_string())?;
    } else {
        output.text(&shown(&row, args.ids.len() > 1, output))?;
        if let Some(invalid) = row["invalid_citations"].as_array().filter(|invalid| !invalid.is_empty()) {
            output.note(&format!("note: the model cited {} passages that it was not given", invalid.len()));
        }
        if row["finish_reason"] == "length" {
            output.note("note: the answer has as many tokens as it may have, and may be cut");
        }
    }
    Ok(if row["refused"] == true { Exit::No } else { Exit::Done })
}

/// The answer, and the documents that it cites.
fn shown(row: &Value, names_kb: bool, output: &Output) -> String {
    let answer = text(row, "answer");
    let annotations = row["annotations"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut shown = format!("{}\n", with_markers(answer, annotations, output));
    let cited =
        |chunk: &&Value| annotations.iter().any(|annotation| annotation["chunk_id"] == chunk["chunk_id"]);
    let chunks: Vec<&Value> = row["chunks"].as_array().into_iter().flatten().filter(cited).collect();
    if !chunks.is_empty() {
        shown += &format!("\n{}\n", output.paint(BOLD, "Sources"));
    }
    for chunk in chunks {
        let mut document = clean_line(text(chunk, "external_id"));
        if names_kb {
            document = format!("{}/{document}", clean_line(text(chunk, "kb_id")));
        }
        let title = clean_line(text(chunk, "title"));
        let title = if title.is_empty() || title == document { String::new() } else { format!("  {title}") };
        let uri = clean_line(text(chunk, "uri"));
        let uri = if uri.is_empty() { String::new() } else { format!("  {}", output.paint(DIM, &uri)) };
        let number = output.paint(PLACE, &format!("[{}]", chunk["index"]));
        shown += &format!("{number} {document}{title}{uri}\n");
    }
    shown
}

/// The answer with its markers in colour. Their places are counted in characters.
fn with_markers(answer: &str, annotations: &[Value], output: &Output) -> String {
    let characters: Vec<char> = answer.chars().collect();
    let mut spans: Vec<(usize, usize)> = annotations
        .iter()
        .filter_map(|annotation| {
            let place = |key: &str| annotation[key].as_u64().and_then(|place| usize::try_from(place).ok());
            Some((place("start_index")?, place("end_index")?))
        })
        .collect();
    spans.sort_unstable();
    spans.dedup();
    let (mut text, mut at) = (String::new(), 0);
    for (start, end) in spans {
        // What does not fit is left as it is.
        if let (Some(before), Some(marker)) = (characters.get(at..start), characters.get(start..end)) {
            text += &clean(&before.iter().collect::<String>());
            text += &output.paint(PLACE, &clean(&marker.iter().collect::<String>()));
            at = end;
        }
    }
    text += &clean(&characters[at..].iter().collect::<String>());
    text
}

/// Questions and answers on a terminal, until the end of the input.
async fn chat(args: &Args, llm: &str, session: &Session, context: &Context) -> Result<Exit> {
    let mut editor = rustyline::DefaultEditor::new().map_err(|e| terminal(&e))?;
    loop {
        // The terminal is read on a thread, since that waits.
        let read = tokio::task::spawn_blocking(move || {
            let line = editor.readline("> ");
            (editor, line)
        });
        let (returned, line) = read.await.map_err(|e| Error::failed(format!("the terminal: {e}")))?;
        editor = returned;
        let question = match line {
            Ok(line) => line.trim().to_string(),
            Err(ReadlineError::Eof | ReadlineError::Interrupted) => return Ok(Exit::Done),
            Err(e) => return Err(terminal(&e)),
        };
        if question.is_empty() {
            continue;
        }
        let _ = editor.add_history_entry(&question);
        match ask(args, llm, &question, session, context).await {
            Ok(_) => {}
            // A model may fail once; the conversation is as it was before the question.
            Err(error) if error.sqlstate.is_some() => {
                context.output.note(error.text().trim_start_matches("kb: "))
            }
            Err(error) => return Err(error),
        }
        context.output.line("")?;
    }
}

fn terminal(error: &ReadlineError) -> Error {
    Error::failed(format!("the terminal cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Colour;

    #[test]
    fn an_answer_is_shown_with_the_documents_that_it_cites() {
        let row = serde_json::json!({
            "answer": "Dreißig Tage [1]. \u{1b}[31mMehr [3]",
            "annotations": [
                {"start_index": 13, "end_index": 16, "chunk_id": "a"},
                {"start_index": 900, "end_index": 901, "chunk_id": "a"},
            ],
            "chunks": [
                {"index": 1, "chunk_id": "a", "kb_id": "k", "external_id": "leave.md", "title": "Leave", "uri": null},
                {"index": 2, "chunk_id": "b", "kb_id": "k", "external_id": "other.md", "title": null},
            ],
        });
        let output = Output::new(false, Colour::Never);
        assert_eq!(
            shown(&row, true, &output),
            "Dreißig Tage [1]. ␛[31mMehr [3]\n\nSources\n[1] k/leave.md  Leave\n"
        );
        let painted = with_markers(
            "a [1]",
            &[serde_json::json!({"start_index": 2, "end_index": 5})],
            &Output::new(false, Colour::Always),
        );
        assert_eq!(painted, format!("a {PLACE}[1]{PLACE:#}"));
    }
}
