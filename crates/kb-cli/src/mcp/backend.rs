//! Where the statements of MCP are executed: in the session of `kb mcp`, or in a transaction of kb serve that
//! acts as its caller.

use super::scopes::Scope;
use super::sql;
use crate::serve::{Caller, Problem, Server};
use crate::server::Session;
use serde_json::Value;
use std::sync::Arc;
use tokio_postgres::types::{ToSql, Type};

#[derive(Clone)]
pub enum Backend {
    Session(Arc<Session>),
    Served(Arc<Server>),
}

/// A statement, and the scope that it needs; None means that it lists only what the scopes allow.
pub struct Statement<'a> {
    pub scope: Option<Scope>,
    pub sql: &'static str,
    pub parameters: &'a [Option<String>],
}

/// The value that a statement returned, and the scopes of the caller.
pub struct Found {
    pub value: Value,
    pub scopes: String,
}

impl Backend {
    /// Executes a statement that returns one JSON text.
    pub async fn run(&self, caller: Option<&Caller>, statement: &Statement<'_>) -> Result<Found, Problem> {
        match self {
            Backend::Served(server) => {
                let caller = caller.ok_or_else(|| Problem::unauthorized("nobody called"))?;
                server.database.statement(caller, statement).await
            }
            Backend::Session(session) => {
                let cancel = Cancel(Some(session.clone()));
                let client = &session.connected.client;
                let who = one(client, sql::CALLER, &[]).await?;
                let scopes = allowed(&who, statement.scope)?;
                let value = one(client, statement.sql, statement.parameters).await;
                cancel.done();
                Ok(Found { value: value?, scopes })
            }
        }
    }
}

/// The JSON text that a statement returns.
pub async fn one(
    client: &tokio_postgres::Client,
    sql: &str,
    parameters: &[Option<String>],
) -> Result<Value, tokio_postgres::Error> {
    let typed: Vec<(&(dyn ToSql + Sync), Type)> =
        parameters.iter().map(|value| (value as &(dyn ToSql + Sync), Type::TEXT)).collect();
    let rows = client.query_typed(sql, &typed).await?;
    let text: Option<String> = match rows.first() {
        Some(row) => row.try_get(0)?,
        None => None,
    };
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

/// The scopes of the caller, if they have the one that is needed.
pub fn allowed(who: &Value, needed: Option<Scope>) -> Result<String, Problem> {
    let scopes = who["scopes"].as_str().unwrap_or_default();
    match needed {
        Some(needed) if !needed.is_in(scopes) => Err(Problem::new(
            hyper::StatusCode::FORBIDDEN,
            format!("the credentials do not have the scope {}", needed.name()),
        )),
        _ => Ok(scopes.to_string()),
    }
}

/// Cancels the statement of a session if the client has given it up.
struct Cancel(Option<Arc<Session>>);

impl Cancel {
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Cancel {
    fn drop(&mut self) {
        if let (Some(session), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { session.connected.canceller.clone().cancel().await });
        }
    }
}
