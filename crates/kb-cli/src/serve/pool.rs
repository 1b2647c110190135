//! Connections to the database that wait for requests.

use super::problem::Problem;
use super::sql;
use crate::connect::{Canceller, Connected, Target};
use crate::exit::Error;
use crate::output::Output;
use deadpool::managed::{
    Manager, Metrics, Object, PoolError, QueueMode, RecycleError, RecycleResult, TimeoutType,
};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};

/// How long a request waits for a connection that is free, and for a new one.
const WAIT: Duration = Duration::from_secs(10);
const CREATE: Duration = Duration::from_secs(10);

/// A connection with the statements of requests.
pub struct Link {
    pub client: Client,
    pub canceller: Canceller,
    pub statements: Statements,
}

pub struct Statements {
    pub assume_role: Statement,
    pub assume_key: Statement,
    pub trace: Statement,
    pub http: Statement,
}

impl Statements {
    async fn prepare(client: &Client) -> Result<Statements, tokio_postgres::Error> {
        let (text, texts, bytes) = (Type::TEXT, Type::TEXT_ARRAY, Type::BYTEA);
        let assume_role = [text.clone(), text.clone(), text.clone(), text.clone()];
        let assume_key = [text.clone(), text.clone()];
        let trace = [text.clone()];
        let http = [text.clone(), text.clone(), text.clone(), text, bytes, texts];
        let (assume_role, assume_key, trace, http) = tokio::try_join!(
            client.prepare_typed(sql::ASSUME_ROLE, &assume_role),
            client.prepare_typed(sql::ASSUME_KEY, &assume_key),
            client.prepare_typed(sql::TRACE, &trace),
            client.prepare_typed(sql::HTTP, &http),
        )?;
        Ok(Statements { assume_role, assume_key, trace, http })
    }
}

pub struct Links {
    target: Arc<Target>,
    output: Output,
}

impl Manager for Links {
    type Type = Link;
    type Error = Error;

    async fn create(&self) -> Result<Link, Error> {
        let Connected { client, canceller } = self.target.connect(&self.output).await?;
        let statements = Statements::prepare(&client).await?;
        Ok(Link { client, canceller, statements })
    }

    async fn recycle(&self, link: &mut Link, _: &Metrics) -> RecycleResult<Error> {
        if link.client.is_closed() { Err(RecycleError::message("the connection is closed")) } else { Ok(()) }
    }
}

#[derive(Clone)]
pub struct Pool(deadpool::managed::Pool<Links>);

impl Pool {
    /// A pool of at most `size` connections, which are made when they are needed.
    pub fn new(target: Arc<Target>, output: Output, size: usize) -> Result<Pool, Error> {
        let pool = deadpool::managed::Pool::builder(Links { target, output })
            .max_size(size)
            .queue_mode(QueueMode::Lifo)
            .wait_timeout(Some(WAIT))
            .create_timeout(Some(CREATE))
            .runtime(deadpool::Runtime::Tokio1)
            .build();
        pool.map(Pool).map_err(|e| Error::failed(e.to_string()))
    }

    pub async fn get(&self) -> Result<Object<Links>, Problem> {
        self.0.get().await.map_err(|error| match error {
            PoolError::Timeout(TimeoutType::Wait) => {
                Problem::unavailable("all connections to the database are busy")
            }
            PoolError::Backend(error) => lack(error),
            _ => Problem::unavailable("the database cannot be reached"),
        })
    }

    /// Closes connections that nobody has used for so long; says how many are left.
    pub fn close_idle(&self, since: Duration) -> usize {
        self.0.retain(|_, metrics| metrics.last_used() < since);
        self.0.status().size
    }
}

/// Why there is no connection with kb's statements.
fn lack(error: Error) -> Problem {
    let code = error.sqlstate.clone().unwrap_or_default();
    match code.as_str() {
        // The schema or a function is missing.
        "3F000" | "42883" => {
            let text = "this database has no extension kb that can be served";
            let mut problem = Problem::unavailable(text);
            problem.sqlstate = error.sqlstate;
            problem.hint("A superuser can run CREATE EXTENSION kb CASCADE, or ALTER EXTENSION kb UPDATE.")
        }
        "42501" => {
            let mut problem = Problem::new(hyper::StatusCode::FORBIDDEN, error.message);
            problem.sqlstate = error.sqlstate;
            problem
        }
        _ => error.into(),
    }
}
