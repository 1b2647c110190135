//! `kb serve`: HTTP for the function kb.http of a database. The process has no state: any number of them may
//! serve the same database.

mod auth;
mod basic;
mod config;
mod console;
mod cors;
mod database;
mod handler;
mod jwt;
mod limits;
mod log;
mod login;
mod pool;
mod problem;
mod sql;
mod tls;

pub use config::Args;
pub use handler::{Caller, Server};
pub use problem::Problem;

use crate::context::Context;
use crate::exit::{Error, Exit, Result};
use crate::mcp;
use auth::Auth;
use basic::Logins;
use bytes::Bytes;
use config::{Config, Limits};
use cors::Cors;
use database::Database;
use http_body_util::combinators::BoxBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use limits::{Bodies, Rates};
use log::Log;
use pool::Pool;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tls::Tls;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;

type Body = BoxBody<Bytes, Infallible>;

/// How often connections that nobody uses are looked for.
const SWEEP: Duration = Duration::from_secs(10);
/// After the system has refused a connection, for example because there are no file descriptors.
const REFUSED: Duration = Duration::from_millis(100);

pub async fn run(args: Args, context: &Context) -> Result<Exit> {
    let config = Config::new(args)?;
    let log = Log(config.log);
    let tls = match &config.tls {
        Some((certificate, key)) => {
            let tls = Tls::new(certificate.clone(), key.clone()).map_err(Error::failed)?;
            Some(Arc::new(tls))
        }
        None => None,
    };
    let mut signals = Signals::new()?;
    let target = Arc::new(context.target()?.for_server());
    for warning in login::check(&target, &context.output, &config.roles).await? {
        log.message("warning", &warning);
    }
    let listener = TcpListener::bind(config.listen).await;
    let listener = listener.map_err(|e| Error::failed(format!("cannot listen on {}: {e}", config.listen)))?;
    let address = listener.local_addr().map_err(|e| Error::failed(e.to_string()))?;
    if tls.is_none() && !address.ip().is_loopback() {
        log.message(
            "warning",
            "passwords and keys travel unencrypted unless a proxy before this server has TLS",
        );
    }
    let limits = config.limits;
    let pepper: [u8; 32] =
        *blake3::hash(&[*uuid::Uuid::new_v4().as_bytes(), *uuid::Uuid::new_v4().as_bytes()].concat())
            .as_bytes();
    let server = Arc::new(Server {
        database: Database {
            pool: Pool::new(target.clone(), context.output.clone(), limits.pool)?,
            roles: config.roles.clone(),
            timeout: limits.request_timeout,
        },
        auth: Auth {
            roles: config.roles,
            anonymous: config.anonymous,
            tokens: config.jwt,
            logins: config.basic.then(|| Logins::new(target, context.output.clone(), pepper)),
            pepper,
        },
        bodies: Bodies::new(limits.body, limits.bodies, limits.body_timeout),
        rates: Rates::new(limits.requests_per_minute),
        cors: Cors { origins: config.cors },
        log,
        is_stopping: AtomicBool::new(false),
    });
    let handler =
        mcp::Handler { backend: mcp::Backend::Served(server.clone()), options: Arc::new(config.mcp) };
    let mcp = Arc::new(mcp::service(handler, limits.body));
    let scheme = if tls.is_some() { "https" } else { "http" };
    log.message("info", &format!("listening on {scheme}://{address}"));
    serve(&listener, &server, &mcp, tls.as_ref(), &limits, &mut signals).await;
    drop(listener);
    Ok(Exit::Done)
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> Result<Signals> {
        let on = |kind| signal(kind).map_err(|e| Error::failed(format!("cannot wait for signals: {e}")));
        Ok(Signals {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
            hang_up: on(SignalKind::hangup())?,
        })
    }
}

/// Accepts connections until a signal says to stop; then requests that are being answered may end.
async fn serve(
    listener: &TcpListener,
    server: &Arc<Server>,
    mcp: &Arc<mcp::Service>,
    tls: Option<&Arc<Tls>>,
    limits: &Limits,
    signals: &mut Signals,
) {
    let slots = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
    let graceful = GracefulShutdown::new();
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        let accept = async {
            let slot = slots.clone().acquire_owned().await;
            (listener.accept().await, slot)
        };
        tokio::select! {
            (accepted, slot) = accept => match (accepted, slot) {
                (Ok((stream, peer)), Ok(slot)) => {
                    let watcher = graceful.watcher();
                    let connection = Connection {
                        server: server.clone(),
                        mcp: mcp.clone(),
                        tls: tls.cloned(),
                        header: limits.header,
                        header_timeout: limits.header_timeout,
                        write_timeout: limits.write_timeout,
                        _slot: slot,
                    };
                    tokio::spawn(connection.run(stream, peer, watcher));
                }
                _ => tokio::time::sleep(REFUSED).await,
            },
            _ = sweep.tick() => {
                if let Some(logins) = &server.auth.logins {
                    logins.close_idle();
                }
            }
            _ = signals.hang_up.recv() => reload(server, tls),
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
        }
    }
    server.is_stopping.store(true, Ordering::Relaxed);
    server.log.message("info", "stopping");
    if tokio::time::timeout(limits.grace, graceful.shutdown()).await.is_err() {
        server.log.message("warning", "some requests did not end in time");
    }
}

fn reload(server: &Server, tls: Option<&Arc<Tls>>) {
    let reloads = [tls.map(|tls| tls.reload()), server.auth.tokens.as_ref().map(jwt::Tokens::reload)];
    for reload in reloads.into_iter().flatten() {
        match reload {
            Ok(()) => server.log.message("info", "read certificates and keys again"),
            Err(problem) => server.log.message("error", &problem),
        }
    }
}

struct Connection {
    server: Arc<Server>,
    mcp: Arc<mcp::Service>,
    tls: Option<Arc<Tls>>,
    header: usize,
    header_timeout: Duration,
    write_timeout: Duration,
    _slot: OwnedSemaphorePermit,
}

impl Connection {
    async fn run(self, stream: TcpStream, peer: SocketAddr, watcher: hyper_util::server::graceful::Watcher) {
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(self.write_timeout));
        let stream = Box::pin(stream);
        match &self.tls {
            None => self.converse(stream, peer, watcher).await,
            Some(tls) => {
                let Some(acceptor) = tls.acceptor() else {
                    return;
                };
                let accepted = tokio::time::timeout(self.header_timeout, acceptor.accept(stream)).await;
                if let Ok(Ok(stream)) = accepted {
                    self.converse(stream, peer, watcher).await;
                }
            }
        }
    }

    /// An error ends the connection: the client has gone away, or does not speak HTTP.
    async fn converse<S>(&self, stream: S, peer: SocketAddr, watcher: hyper_util::server::graceful::Watcher)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let (server, mcp) = (self.server.clone(), self.mcp.clone());
        let service = tower::service_fn(move |request: hyper::Request<Incoming>| {
            let (server, mcp) = (server.clone(), mcp.clone());
            async move { Ok::<_, Infallible>(server.answer(peer, request, &mcp).await) }
        });
        let service = tower_http::compression::Compression::new(service);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.header_timeout)
            .max_buf_size(self.header)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        let _ = watcher.watch(connection).await;
    }
}
