//! Asks a chat model or an embedder once, on a thread that calls nothing of PostgreSQL.

use crate::gateway::client;
use crate::gateway::pump::Pump;
use kb_gateway::protocol::{Request, Response};
use kb_types::error::{Error, Result};
use kb_types::{ChatReply, FinishReason, ServiceKind};

pub enum Answer {
    Text(String),
    /// A vector for each text.
    Vectors(Vec<Vec<f32>>),
}

/// The answer to a request.
pub fn ask(request: Request) -> Result<Answer> {
    let asked = request.clone();
    let mut next = Some(request);
    let mut answer = Err(Error::Gateway { problem: "gave no answer".into() });
    Pump::open()?.run(1, || next.take(), |_, response| answer = read(&asked, response))?;
    answer
}

fn read(asked: &Request, response: Response) -> Result<Answer> {
    match (asked, response) {
        // Its text says that the model refuses.
        (
            Request::Chat { llm, .. },
            Response::Chatted(ChatReply { finish: FinishReason::ContentFilter, .. }),
        ) => Err(Error::Service {
            kind: ServiceKind::Llm,
            id: llm.id.clone(),
            problem: "refused to answer".into(),
            passing: false,
        }),
        (_, Response::Chatted(reply)) => Ok(Answer::Text(reply.text)),
        (Request::Embed { embedder, texts, .. }, Response::Embedded(reply)) => {
            let mut reply = client::check(reply, embedder, texts.len())?;
            if let Some((_, fault)) = reply.failed.pop() {
                return Err(fault.into());
            }
            let numbers = reply.vectors.numbers();
            Ok(Answer::Vectors(numbers.chunks(embedder.dimension).map(<[f32]>::to_vec).collect()))
        }
        (_, Response::Error(fault)) => Err(fault.into()),
        (_, other) => Err(Error::Internal(format!("unexpected answer of the gateway: {other:?}"))),
    }
}
