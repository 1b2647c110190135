//! HTTP Basic: each name with its password has a small pool of connections as that login of PostgreSQL.

use super::pool::Pool;
use super::problem::Problem;
use super::sql;
use crate::connect::Target;
use crate::output::Output;
use hyper::StatusCode;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Connections for each login.
const POOL: usize = 4;
/// Logins that have connections at the same time.
const LOGINS: usize = 100;
/// A connection that nobody has used for this long is closed.
const IDLE: Duration = Duration::from_secs(60);
/// After this time, the database is asked again whether the password is right.
const TRUST: Duration = Duration::from_secs(300);
/// How long a login may take.
const LOGIN: Duration = Duration::from_secs(10);
/// After a wrong password, the next attempt for the same name waits.
const PAUSE: Duration = Duration::from_secs(1);
/// Names whose pause is remembered.
const PAUSES: usize = 10_000;
/// Passwords that are tried at the same time.
const ATTEMPTS: usize = 4;

pub struct Logins {
    target: Arc<Target>,
    output: Output,
    pepper: [u8; 32],
    pools: Mutex<HashMap<String, Login>>,
    failed: Mutex<HashMap<String, Instant>>,
    attempts: Semaphore,
}

struct Login {
    password: blake3::Hash,
    since: Instant,
    pool: Pool,
}

impl Logins {
    pub fn new(target: Arc<Target>, output: Output, pepper: [u8; 32]) -> Logins {
        Logins {
            target,
            output,
            pepper,
            pools: Mutex::new(HashMap::new()),
            failed: Mutex::new(HashMap::new()),
            attempts: Semaphore::new(ATTEMPTS),
        }
    }

    /// The connections of a login, whose password is checked by the database.
    pub async fn pool(&self, user: &str, password: &str) -> Result<Pool, Problem> {
        let hash = blake3::keyed_hash(&self.pepper, password.as_bytes());
        let known = |logins: &HashMap<String, Login>| {
            // Hashes are compared in constant time.
            let login = logins.get(user).filter(|login| login.since.elapsed() < TRUST)?;
            (login.password == hash).then(|| login.pool.clone())
        };
        let busy = || Problem::unavailable("the server is busy");
        if let Some(pool) = self.pools.lock().ok().as_deref().and_then(known) {
            return Ok(pool);
        }
        let _attempt = self.attempts.acquire().await.map_err(|_| busy())?;
        self.paused(user)?;
        let made = tokio::time::timeout(LOGIN, self.log_in(user, password)).await;
        match made.unwrap_or_else(|_| Err(Problem::unavailable("the database cannot be reached"))) {
            Ok(pool) => {
                let mut pools = self.pools.lock().map_err(|_| busy())?;
                pools.retain(|_, login| login.pool.close_idle(IDLE) > 0);
                if pools.len() >= LOGINS {
                    return Err(Problem::unavailable("too many logins have connections"));
                }
                pools
                    .insert(user.into(), Login { password: hash, since: Instant::now(), pool: pool.clone() });
                Ok(pool)
            }
            Err(problem) => {
                if problem.status == StatusCode::UNAUTHORIZED {
                    self.pause(user);
                }
                Err(problem)
            }
        }
    }

    /// Closes connections that nobody uses.
    pub fn close_idle(&self) {
        if let Ok(mut pools) = self.pools.lock() {
            pools.retain(|_, login| login.pool.close_idle(IDLE) > 0);
        }
    }

    async fn log_in(&self, user: &str, password: &str) -> Result<Pool, Problem> {
        let wrong = || Problem::unauthorized("the name or the password is wrong");
        if user.contains('\0') || password.contains('\0') || password.is_empty() {
            return Err(wrong());
        }
        // With `trust`, `peer` or a certificate in pg_hba.conf, every password would be right.
        let asks = self.target.for_login(user, None).asks_password(&self.output).await;
        match asks {
            Ok(true) => {}
            Ok(false) => {
                let detail = "the database does not ask for the password of this login";
                let problem = Problem::new(StatusCode::FORBIDDEN, detail);
                return Err(problem.hint("pg_hba.conf must ask for scram-sha-256 where kb serve connects."));
            }
            Err(error) if error.sqlstate.as_deref().is_some_and(|code| code.starts_with("28")) => {
                return Err(wrong());
            }
            Err(error) => return Err(error.into()),
        }
        let target = Arc::new(self.target.for_login(user, Some(password)));
        let connected =
            target.connect(&self.output).await.map_err(|error| match error.sqlstate.as_deref() {
                Some(code) if code.starts_with("28") => wrong(),
                _ => error.into(),
            })?;
        let row = connected.client.query_one(sql::IS_BOUND, &[]).await?;
        if !row.try_get::<_, bool>(0)? {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                "superusers, and roles with BYPASSRLS, cannot use this server",
            ));
        }
        Pool::new(target, self.output.clone(), POOL).map_err(Problem::from)
    }

    fn paused(&self, user: &str) -> Result<(), Problem> {
        let failed = self.failed.lock().ok().and_then(|failed| failed.get(user).copied());
        match failed {
            Some(at) if at.elapsed() < PAUSE => Err(Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                "a password for this name was wrong just before",
            )
            .retry_after(1)),
            _ => Ok(()),
        }
    }

    fn pause(&self, user: &str) {
        if let Ok(mut failed) = self.failed.lock() {
            failed.retain(|_, at| at.elapsed() < PAUSE);
            if failed.len() < PAUSES {
                failed.insert(user.into(), Instant::now());
            }
        }
    }
}
