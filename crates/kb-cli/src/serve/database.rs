//! A request in the database: one transaction that acts as who calls. If the client goes away, the future is
//! dropped, and its statement is cancelled.

use super::auth::{Act, Identity};
use super::handler::Caller;
use super::limits::Bodies;
use super::pool::{Link, Links, Pool};
use super::problem::Problem;
use crate::mcp;
use bytes::Bytes;
use deadpool::managed::Object;
use hyper::StatusCode;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

/// How much longer than the database's own timeout a request waits for it.
const SPARE: Duration = Duration::from_secs(1);
/// How long a request to cancel may take.
const CANCEL: Duration = Duration::from_secs(5);

/// RESET undoes what functions of users may have set for the session: the next request is another user's.
const END: &str = "COMMIT; RESET ALL; RESET ROLE";

pub struct Call<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub query: &'a str,
    pub headers: String,
    pub body: &'a [u8],
}

pub struct Answer {
    pub status: StatusCode,
    /// A JSON object of texts, or of arrays of texts.
    pub headers: String,
    pub body: Bytes,
}

/// An API key that the database has accepted.
pub struct Accepted {
    pub key_id: String,
    pub requests_per_minute: Option<u32>,
}

pub struct Database {
    pub pool: Pool,
    pub roles: Vec<String>,
    pub timeout: Duration,
}

impl Database {
    fn begin(&self) -> String {
        format!(
            "BEGIN; SET LOCAL client_min_messages = error; SET LOCAL statement_timeout = {}",
            self.timeout.as_millis()
        )
    }

    /// Has kb.http answer. All statements are sent at once, so that the answer takes one round trip.
    pub async fn http(
        &self,
        identity: &Identity,
        traceparent: &str,
        call: &Call<'_>,
        bodies: &Bodies,
    ) -> Result<(Answer, Option<Accepted>), Problem> {
        let running = Running::new(self.pool_of(identity).get().await?);
        let work = async {
            let link = running.link()?;
            let (client, statements) = (&link.client, &link.statements);
            let begin = self.begin();
            let allowed: Vec<&str> = match identity.act {
                Act::Login { .. } => vec!["none"],
                _ => self.roles.iter().map(String::as_str).collect(),
            };
            let values: [&(dyn ToSql + Sync); 6] =
                [&call.method, &call.path, &call.query, &call.headers, &call.body, &allowed];
            // A biased join! polls its futures in this order, and each sends its statement when it is first
            // polled.
            let (begun, assumed, answered, ended) = tokio::join!(
                biased;
                client.batch_execute(&begin),
                assume(link, identity, traceparent),
                client.query_opt(&statements.http, &values),
                client.batch_execute(END),
            );
            // A statement after one that failed only says that the transaction is aborted.
            begun?;
            let accepted = assumed?;
            let row = answered?;
            ended?;
            let Some(row) = row else {
                return Err(Failure::Refused);
            };
            Ok((answer(&row, bodies)?, accepted))
        };
        let done = self.in_time(work).await;
        running.end(done)
    }

    /// Checks an API key, without a request.
    pub async fn check_key(&self, key: &str) -> Result<Accepted, Problem> {
        let running = Running::new(self.pool.get().await?);
        let work = async {
            let link = running.link()?;
            let begin = self.begin();
            let (begun, assumed, ended) = tokio::join!(
                biased;
                link.client.batch_execute(&begin),
                assume_key(link, key, ""),
                link.client.batch_execute(END),
            );
            begun?;
            let accepted = assumed?;
            ended?;
            Ok(accepted)
        };
        let done = self.in_time(work).await;
        running.end(done)
    }

    /// Executes a statement of MCP, which returns one JSON text, as its caller.
    pub async fn statement(
        &self,
        caller: &Caller,
        statement: &mcp::Statement<'_>,
    ) -> Result<mcp::Found, Problem> {
        let identity = &caller.identity;
        let running = Running::new(self.pool_of(identity).get().await?);
        let work = async {
            let link = running.link()?;
            let client = &link.client;
            client.batch_execute(&self.begin()).await?;
            let worked = async {
                assume(link, identity, &caller.traceparent).await?;
                let who = mcp::one(client, mcp::CALLER, &[]).await?;
                let role = who["role"].as_str().unwrap_or_default();
                let is_allowed = match identity.act {
                    Act::Login { .. } => role == "none",
                    _ => self.roles.iter().any(|allowed| allowed == role),
                };
                if !is_allowed {
                    return Err(Failure::Refused);
                }
                let scopes = mcp::allowed(&who, statement.scope).map_err(Failure::Other)?;
                let value = mcp::one(client, statement.sql, statement.parameters).await?;
                Ok(mcp::Found { value, scopes })
            };
            let worked = worked.await;
            let ended = client.batch_execute(END).await;
            let found = worked?;
            ended?;
            Ok(found)
        };
        let done = self.in_time(work).await;
        running.end(done)
    }

    /// Whether the database answers, and has what kb serve needs.
    pub async fn is_ready(&self) -> Result<(), Problem> {
        let running = Running::new(self.pool.get().await?);
        let work = async { Ok(running.link()?.client.batch_execute("SELECT 1").await?) };
        let done = self.in_time(work).await;
        running.end(done)
    }

    fn pool_of<'a>(&'a self, identity: &'a Identity) -> &'a Pool {
        match &identity.act {
            Act::Login { pool } => pool,
            _ => &self.pool,
        }
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        tokio::time::timeout(self.timeout + SPARE, work).await.unwrap_or(Err(Failure::Late))
    }
}

async fn assume(link: &Link, identity: &Identity, traceparent: &str) -> Result<Option<Accepted>, Failure> {
    match &identity.act {
        Act::Key { key } => Ok(Some(assume_key(link, key, traceparent).await?)),
        Act::Role { role, tenant, scopes } => {
            let statement = &link.statements.assume_role;
            link.client.query_one(statement, &[role, tenant, scopes, &traceparent]).await?;
            Ok(None)
        }
        Act::Login { .. } => {
            link.client.query_one(&link.statements.trace, &[&traceparent]).await?;
            Ok(None)
        }
    }
}

async fn assume_key(link: &Link, key: &str, traceparent: &str) -> Result<Accepted, Failure> {
    let row = link.client.query_opt(&link.statements.assume_key, &[&key, &traceparent]).await?;
    let row = row.ok_or(Failure::Refused)?;
    let rate: Option<i32> = row.try_get("requests_per_minute")?;
    Ok(Accepted {
        key_id: row.try_get("key_id")?,
        requests_per_minute: rate.and_then(|rate| u32::try_from(rate).ok()),
    })
}

fn answer(row: &Row, bodies: &Bodies) -> Result<Answer, Failure> {
    let status: i32 = row.try_get("status")?;
    let status = u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok());
    let headers: Option<String> = row.try_get("headers")?;
    let body: Option<&[u8]> = row.try_get("body")?;
    Ok(Answer {
        status: status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        headers: headers.unwrap_or_default(),
        body: bodies.hold(body.unwrap_or_default()).map_err(Failure::Other)?,
    })
}

enum Failure {
    Database(tokio_postgres::Error),
    /// The transaction has no role that it may have.
    Refused,
    Late,
    Lost,
    Other(Problem),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Failure {
        Failure::Database(error)
    }
}

impl Failure {
    /// Whether the next request may have the connection.
    fn leaves_connection(&self) -> bool {
        match self {
            // A cancellation may have been meant for the statement before; a statement of the pool may be one
            // of an extension that has been replaced since.
            Failure::Database(error) => error.code().is_some_and(|code| {
                let class = code.code().get(..2).unwrap_or_default();
                let is_stale = [SqlState::UNDEFINED_FUNCTION, SqlState::UNDEFINED_TABLE].contains(code);
                !is_stale && !["08", "0A", "3F", "53", "57", "58", "F0", "XX"].contains(&class)
            }),
            Failure::Refused | Failure::Other(_) => true,
            Failure::Late | Failure::Lost => false,
        }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        match failure {
            Failure::Database(error) => error.into(),
            Failure::Other(problem) => problem,
            Failure::Refused => {
                let problem = Problem::new(StatusCode::FORBIDDEN, "this server does not serve the role");
                problem.hint("Start kb serve with --role for each role that requests may act as.")
            }
            Failure::Late => Problem::new(StatusCode::GATEWAY_TIMEOUT, "the database did not answer in time"),
            Failure::Lost => Problem::unavailable("the connection to the database was lost"),
        }
    }
}

/// A connection that works for a request. If the request is given up, its statement is cancelled and the
/// connection is closed: a late request to cancel must not hit the next request.
struct Running(Option<Object<Links>>);

impl Running {
    fn new(link: Object<Links>) -> Running {
        Running(Some(link))
    }

    fn link(&self) -> Result<&Link, Failure> {
        self.0.as_deref().ok_or(Failure::Lost)
    }

    fn end<T>(mut self, done: Result<T, Failure>) -> Result<T, Problem> {
        match done {
            Err(Failure::Late) => {}
            Err(failure) if !failure.leaves_connection() => {
                if let Some(link) = self.0.take() {
                    drop(Object::take(link));
                }
                return Err(failure.into());
            }
            _ => drop(self.0.take()),
        }
        done.map_err(Problem::from)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(link) = self.0.take() else {
            return;
        };
        // There is no runtime any more when the process ends.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            let _ = tokio::time::timeout(CANCEL, link.canceller.clone().cancel()).await;
            drop(Object::take(link));
        });
    }
}
