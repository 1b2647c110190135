//! The Model Context Protocol: `kb mcp` on standard input and output, and `/mcp` of kb serve. rmcp speaks it.

mod backend;
mod handler;
mod scopes;
mod sql;
mod tools;
mod uri;

pub use backend::{Backend, Found, Statement, allowed, one};
pub use handler::Handler;

use crate::context::Context;
use crate::exit::{Error, Exit, Result};
use rmcp::ServiceExt;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Map, Value};
use std::sync::Arc;

pub use sql::CALLER;

/// What the tools work on.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Options {
    /// Knowledge base that MCP works on; can be repeated. Without it, all that the caller may read
    #[arg(long = "knowledge-base", value_name = "ID", env = "KB_MCP_KNOWLEDGE_BASES", value_delimiter = ',')]
    pub knowledge_bases: Vec<String>,
    /// Memory in which the tools of MCP store and search
    #[arg(long, value_name = "ID", env = "KB_MCP_MEMORY")]
    pub memory: Option<String>,
    /// Subject of these memories: whom or what they are about
    #[arg(long, value_name = "TEXT", env = "KB_MCP_SUBJECT", requires = "memory")]
    pub subject: Option<String>,
    /// Chat model of the tool kb_answer; without it, the first that there is
    #[arg(long, value_name = "ID", env = "KB_MCP_LLM")]
    pub llm: Option<String>,
}

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
}

impl Options {
    /// The options of kb.tools and kb.call_tool.
    fn json(&self) -> String {
        let mut options = Map::new();
        if !self.knowledge_bases.is_empty() {
            options.insert("knowledge_bases".into(), self.knowledge_bases.as_slice().into());
        }
        for (name, value) in [("memory", &self.memory), ("subject", &self.subject)] {
            if let Some(value) = value {
                options.insert(name.into(), value.clone().into());
            }
        }
        Value::from(options).to_string()
    }

    /// Whether a call may name this knowledge base.
    fn admits(&self, kb_id: &str) -> bool {
        self.knowledge_bases.is_empty() || self.knowledge_bases.iter().any(|admitted| admitted == kb_id)
    }
}

/// Serves the client that has started this process, until it closes standard input.
pub async fn run(args: Args, context: &Context) -> Result<Exit> {
    let session = Arc::new(context.connect().await?);
    let handler = Handler { backend: Backend::Session(session), options: Arc::new(args.options) };
    let failed = |e: &dyn std::fmt::Display| Error::failed(format!("MCP: {e}"));
    let service = handler.serve(rmcp::transport::stdio_pipes()).await.map_err(|e| failed(&e))?;
    service.waiting().await.map_err(|e| failed(&e))?;
    Ok(Exit::Done)
}

pub type Service = StreamableHttpService<Handler, NeverSessionManager>;

/// MCP over HTTP. It keeps nothing between requests, so any process can answer each of them.
pub fn service(handler: Handler, longest: usize) -> Service {
    // kb serve has checked Host and Origin.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(longest);
    StreamableHttpService::new(move || Ok(handler.clone()), Arc::new(NeverSessionManager::default()), config)
}
