//! Asks a chat model once, on a thread that calls nothing of PostgreSQL.

use crate::gateway::pump::Pump;
use kb_gateway::protocol::{Request, Response};
use kb_types::error::{Error, Result};
use kb_types::{ChatReply, FinishReason, ServiceKind};

/// The answer to a request.
pub fn ask(request: Request) -> Result<String> {
    let id = match &request {
        Request::Chat { llm, .. } => llm.id.clone(),
        _ => String::new(),
    };
    let mut next = Some(request);
    let mut answer = Err(Error::Gateway { problem: "gave no answer".into() });
    Pump::open()?.run(
        1,
        || next.take(),
        |_, response| {
            answer = match response {
                // Its text says that the model refuses.
                Response::Chatted(ChatReply { finish: FinishReason::ContentFilter, .. }) => {
                    Err(Error::Service {
                        kind: ServiceKind::Llm,
                        id: id.clone(),
                        problem: "refused to answer".into(),
                        passing: false,
                    })
                }
                Response::Chatted(reply) => Ok(reply.text),
                Response::Error(fault) => Err(fault.into()),
                other => Err(Error::Internal(format!("unexpected answer of the gateway: {other:?}"))),
            }
        },
    )?;
    answer
}
