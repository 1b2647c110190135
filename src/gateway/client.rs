//! The only way to a model: a synchronous client of the gateway that waits on the latch.

use crate::pg::{background, latch, report, wake};
use kb_gateway::frame;
use kb_gateway::protocol::{
    Access, AccessPart, Client, EmbedReply, Health, LoggedQuestion, Request, Response, SOCKET_PATH, Urgency,
    UsagePart, Vectors, WantedSummary,
};
use kb_types::error::{Error, Result};
use kb_types::extraction::File;
use kb_types::extractor::ServiceText;
use kb_types::{ChatReply, Dialogue, Embedder, Extractor, Kind, Llm, Reranker};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// A connection to the gateway. Many requests can be under way, and answers arrive in any order.
pub struct Connection {
    stream: UnixStream,
    next_id: u64,
    incoming: Vec<u8>,
    outgoing: VecDeque<u8>,
}

fn lost(e: &std::io::Error) -> Error {
    Error::Gateway { problem: format!("closed the connection ({e})") }
}

impl Connection {
    /// Connects, and starts the gateway if it does not run. Waits for at most `timeout`.
    pub fn open(timeout: Duration) -> Result<Connection> {
        Connection::open_until(Instant::now() + timeout, timeout)
    }

    /// Does the same until a deadline. `timeout` is the time that error messages name.
    fn open_until(deadline: Instant, timeout: Duration) -> Result<Connection> {
        loop {
            match Connection::try_open() {
                Ok(connection) => return Ok(connection),
                Err(e) => {
                    if !wake::start_gateway() {
                        return Err(Error::Gateway {
                            problem:
                                "cannot be started: no background worker slot is free (max_worker_processes)"
                                    .into(),
                        });
                    }
                    if Instant::now() >= deadline {
                        return Err(Error::Gateway {
                            problem: format!("did not answer within {} ms ({e})", timeout.as_millis()),
                        });
                    }
                    report::check_interrupts();
                    latch::wait(Duration::from_millis(10));
                }
            }
        }
    }

    /// Connects to a gateway that already runs.
    pub fn try_open() -> std::io::Result<Connection> {
        let stream = UnixStream::connect(SOCKET_PATH)?;
        stream.set_nonblocking(true)?;
        Ok(Connection { stream, next_id: 1, incoming: Vec::new(), outgoing: VecDeque::new() })
    }

    /// Reads answers for which nobody waits. Returns whether the gateway is still there.
    fn drop_answers(&mut self) -> bool {
        loop {
            match self.receive() {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Sends as much of a request as the socket takes now, and returns the request's id;
    /// [`Connection::receive`] and [`Connection::flush`] send the rest.
    pub fn send(&mut self, request: &Request) -> Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        self.outgoing.extend(frame::encode_request(id, request)?);
        self.flush()?;
        Ok(id)
    }

    /// Writes as much as the socket takes now.
    pub fn flush(&mut self) -> Result<()> {
        while !self.outgoing.is_empty() {
            let (front, _) = self.outgoing.as_slices();
            match self.stream.write(front) {
                Ok(0) => return Err(lost(&ErrorKind::WriteZero.into())),
                Ok(n) => drop(self.outgoing.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(lost(&e)),
            }
        }
        self.outgoing.shrink_to(1024 * 1024);
        Ok(())
    }

    /// The next answer, if one has arrived.
    pub fn receive(&mut self) -> Result<Option<(u64, Response)>> {
        self.flush()?;
        let mut buffer = [0u8; 64 * 1024];
        loop {
            if let Some(answer) = self.take_frame()? {
                return Ok(Some(answer));
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(lost(&ErrorKind::UnexpectedEof.into())),
                Ok(n) => self.incoming.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(lost(&e)),
            }
        }
    }

    fn take_frame(&mut self) -> Result<Option<(u64, Response)>> {
        let Some(prefix) = self.incoming.first_chunk::<4>() else { return Ok(None) };
        let end = 4 + frame::frame_length(*prefix)?;
        if self.incoming.len() < end {
            return Ok(None);
        }
        let envelope = frame::decode::<Response>(&self.incoming[4..end])?;
        self.incoming.drain(..end);
        self.incoming.shrink_to(1024 * 1024);
        Ok(Some((envelope.id, envelope.body)))
    }

    /// Waits for the socket or the latch for at most `timeout`.
    pub fn wait(&self, timeout: Duration) -> latch::Woken {
        latch::wait_for_socket(self.stream.as_raw_fd(), !self.outgoing.is_empty(), timeout)
    }

    /// Waits for the socket for at most `timeout`, on a thread that must not call PostgreSQL.
    pub fn wait_on_thread(&self, timeout: Duration) -> Result<()> {
        let wanted = if self.outgoing.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let timeout = Timespec::try_from(timeout).ok();
        match poll(&mut [PollFd::new(&self.stream, wanted)], timeout.as_ref()) {
            Err(e) if e != Errno::INTR => Err(lost(&e.into())),
            _ => Ok(()),
        }
    }

    /// Sends one request and waits for its answer. Interrupts are processed while it waits.
    fn ask(&mut self, request: &Request, deadline: Instant, timeout: Duration) -> Result<Response> {
        let id = self.send(request)?;
        loop {
            while let Some((answered, response)) = self.receive()? {
                if answered == id {
                    return Ok(response);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Gateway {
                    problem: format!("did not answer within {} ms", timeout.as_millis()),
                });
            }
            self.wait(left);
            report::check_interrupts();
        }
    }
}

thread_local! {
    static KEPT: RefCell<Option<Connection>> = const { RefCell::new(None) };
    /// The time until which the gateway is told nothing, because it did not take what it was told.
    static TELLING_RESTS: Cell<Option<Instant>> = const { Cell::new(None) };
}

thread_local! {
    /// The time until which requests of this session may wait. None: as long as each says.
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Does some work, in which no request waits beyond the deadline.
pub fn until<T>(deadline: Instant, work: impl FnOnce() -> T) -> T {
    /// Ends the deadline, also by an error.
    struct Before(Option<Instant>);
    impl Drop for Before {
        fn drop(&mut self) {
            DEADLINE.set(self.0);
        }
    }
    let before = DEADLINE.get();
    let _before = Before(before);
    DEADLINE.set(Some(before.map_or(deadline, |before| before.min(deadline))));
    work()
}

/// A timeout, or what the deadline leaves of it.
fn bounded(timeout: Duration) -> Duration {
    let left = DEADLINE.get().map(|deadline| deadline.saturating_duration_since(Instant::now()));
    left.map_or(timeout, |left| timeout.min(left.max(Duration::from_millis(1))))
}

/// How long a gateway that took nothing is told nothing.
const TELLING_REST: Duration = Duration::from_secs(10);

/// Makes one request over this session's kept connection. The connection is taken out while it is used, so
/// that a cancel or an error closes it and no old answer can stay in it.
fn ask(request: &Request, timeout: Duration) -> Result<Response> {
    let deadline = Instant::now() + timeout;
    if let Some(mut connection) = KEPT.take() {
        // The gateway may have ended since. In that case the request is sent again, over a new connection.
        match connection.ask(request, deadline, timeout) {
            Ok(response) => {
                KEPT.set(Some(connection));
                return Ok(response);
            }
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => {}
        }
    }
    // A gateway that is shutting down may accept a connection and drop it, so this tries until the next
    // gateway answers.
    loop {
        let mut connection = Connection::open_until(deadline, timeout)?;
        match connection.ask(request, deadline, timeout) {
            Ok(response) => {
                KEPT.set(Some(connection));
                return Ok(response);
            }
            Err(error) if !error.is_transient() || Instant::now() >= deadline => return Err(error),
            Err(_) => {
                latch::wait(Duration::from_millis(10));
                report::check_interrupts();
            }
        }
    }
}

fn unexpected(response: Response) -> Error {
    match response {
        Response::Error(fault) => fault.into(),
        other => Error::Internal(format!("unexpected answer of the gateway: {other:?}")),
    }
}

/// The client on whose behalf this process embeds. `kb_no` 0 stands for no knowledge base.
pub fn this_client(tenant: &str, kb_no: i64) -> Client {
    let database = background::my_database().to_u32();
    Client { database, tenant: tenant.to_string(), kb_no, is_shared: false }
}

/// Splits texts, in order, into parts that each fit into a request.
pub fn parts<'a>(embedder: &Embedder, mut texts: &'a [String]) -> impl Iterator<Item = &'a [String]> {
    let most = embedder.config.batch_size.min(frame::max_texts(embedder.dimension));
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |text: &&String| {
            bytes += text.len();
            bytes <= frame::MAX_TEXTS
        };
        let count = texts.iter().take(most).take_while(fits).count().max(1);
        let (part, rest) = texts.split_at_checked(count)?;
        texts = rest;
        Some(part)
    })
}

/// Embeds the texts of one of [`parts`] and returns their vectors in the same order. If some texts have no
/// vector, returns the error of the first of them.
pub fn embed(
    embedder: &Embedder,
    access: &Access,
    kind: Kind,
    texts: Vec<String>,
    client: Client,
    timeout: Duration,
) -> Result<Vectors> {
    let timeout = bounded(timeout);
    let count = texts.len();
    let request = Request::Embed {
        embedder: embedder.clone(),
        access: access.clone(),
        kind,
        urgency: Urgency::of(&texts),
        texts,
        tokens: Vec::new(),
        client,
        patience_ms: u64::try_from(timeout.as_millis()).ok(),
    };
    match ask(&request, timeout)? {
        Response::Embedded(embedded) => {
            let mut embedded = check(embedded, embedder, count)?;
            match embedded.failed.is_empty() {
                true => Ok(embedded.vectors),
                false => Err(embedded.failed.swap_remove(0).1.into()),
            }
        }
        other => Err(unexpected(other)),
    }
}

/// Returns a score for each text that says how well it answers the question; a higher score is better.
#[allow(clippy::too_many_arguments)]
pub fn rerank(
    reranker: &Reranker,
    llm: Option<&Llm>,
    access: Access,
    query: &str,
    texts: Vec<String>,
    client: Client,
    timeout: Duration,
) -> Result<Vec<f64>> {
    let timeout = bounded(timeout);
    let count = texts.len();
    let request = Request::Rerank {
        reranker: reranker.clone(),
        llm: llm.cloned(),
        access,
        query: query.to_string(),
        texts,
        client,
        patience_ms: u64::try_from(timeout.as_millis()).ok(),
    };
    match ask(&request, timeout)? {
        Response::Reranked(scores) if scores.len() == count => Ok(scores),
        Response::Reranked(scores) => {
            Err(Error::Internal(format!("the gateway returned {} scores for {count} texts", scores.len())))
        }
        other => Err(unexpected(other)),
    }
}

/// The reply of a chat model.
pub fn chat(
    llm: &Llm,
    access: Access,
    dialogue: Dialogue,
    client: Client,
    timeout: Duration,
) -> Result<ChatReply> {
    let timeout = bounded(timeout);
    let patience_ms = u64::try_from(timeout.as_millis()).ok();
    match ask(&Request::Chat { llm: llm.clone(), access, dialogue, client, patience_ms }, timeout)? {
        Response::Chatted(answer) => Ok(answer),
        other => Err(unexpected(other)),
    }
}

/// The text that an extraction service finds in a file.
pub fn extract(
    extractor: Extractor,
    access: Access,
    file: File,
    client: Client,
    timeout: Duration,
) -> Result<ServiceText> {
    let timeout = bounded(timeout);
    let patience_ms = u64::try_from(timeout.as_millis()).ok();
    match ask(&Request::Extract { extractor, access, file, client, patience_ms }, timeout)? {
        Response::Extracted(text) => Ok(text),
        other => Err(unexpected(other)),
    }
}

/// Refuses an answer with another number of vectors or with vectors of another dimension.
pub fn check(embedded: EmbedReply, embedder: &Embedder, count: usize) -> Result<EmbedReply> {
    let vectors = &embedded.vectors;
    if vectors.dimension == embedder.dimension && vectors.count() + embedded.failed.len() == count {
        return Ok(embedded);
    }
    Err(Error::Embedding {
        embedder: embedder.id.clone(),
        problem: format!(
            "the gateway returned {} vectors of dimension {} for {count} texts and dimension {}",
            vectors.count(),
            vectors.dimension,
            embedder.dimension
        ),
    })
}

/// The tokens that queries of this database have used. The gateway returns a part again until its number is
/// passed as `booked`.
pub fn take_usage(booked: u64, timeout: Duration) -> Result<UsagePart> {
    match ask(&Request::TakeUsage { database: this_client("", 0).database, booked }, timeout)? {
        Response::Usage(part) => Ok(part),
        other => Err(unexpected(other)),
    }
}

/// Sends a question to the gateway for the log. Returns false if it was not sent.
pub fn log_question(question: LoggedQuestion) -> bool {
    tell(&Request::LogQuestion { database: this_client("", 0).database, question: Box::new(question) })
}

/// Counts an access to each of these entries of a memory, at a time in microseconds since 1970. Returns false
/// if that was not sent.
pub fn count_accesses(tenant: String, kb_no: i64, at: i64, document_ids: Vec<i64>) -> bool {
    let database = this_client("", 0).database;
    tell(&Request::CountAccesses { database, tenant, kb_no, at, document_ids })
}

/// The accesses to memories of this database. The gateway returns a part again until its number is passed as
/// `written`.
pub fn take_accesses(written: u64, timeout: Duration) -> Result<AccessPart> {
    match ask(&Request::TakeAccesses { database: this_client("", 0).database, written }, timeout)? {
        Response::Accesses(part) => Ok(part),
        other => Err(unexpected(other)),
    }
}

/// Says that a summary is wanted. Returns false if that was not sent.
pub fn want_summary(wanted: WantedSummary) -> bool {
    tell(&Request::WantSummary { database: this_client("", 0).database, wanted })
}

/// Sends a request without waiting for an answer: a gateway that does not run or does not read delays no
/// question. Returns false if the request was not sent.
fn tell(request: &Request) -> bool {
    if TELLING_RESTS.get().is_some_and(|until| Instant::now() < until) {
        return false;
    }
    let kept = KEPT.take().and_then(|mut kept| kept.drop_answers().then_some(kept));
    let Some(mut connection) = kept.or_else(|| Connection::try_open().ok()) else {
        // The next question will find it running.
        wake::start_gateway();
        return false;
    };
    let is_sent = connection.send(request).is_ok() && connection.outgoing.is_empty();
    // A connection with half a request in it is closed. If a gateway does not accept connections, connect()
    // waits once there are many.
    KEPT.set(is_sent.then_some(connection));
    TELLING_RESTS.set((!is_sent).then(|| Instant::now() + TELLING_REST));
    is_sent
}

/// The questions of this database that wait for the log, and the number of the last of them. The gateway
/// returns them again until their number is passed as `written`.
pub fn take_questions(written: u64, timeout: Duration) -> Result<(u64, Vec<LoggedQuestion>)> {
    match ask(&Request::TakeQuestions { database: this_client("", 0).database, written }, timeout)? {
        Response::Questions(number, questions) => Ok((number, questions)),
        other => Err(unexpected(other)),
    }
}

/// Some of the summaries that are wanted in this database. The gateway does not return them again.
pub fn take_wanted_summaries(timeout: Duration) -> Result<Vec<WantedSummary>> {
    match ask(&Request::TakeWantedSummaries { database: this_client("", 0).database }, timeout)? {
        Response::WantedSummaries(wanted) => Ok(wanted),
        other => Err(unexpected(other)),
    }
}

/// A question that waits for the log, if the gateway has it.
pub fn find_question(query_id: Uuid, timeout: Duration) -> Result<Option<LoggedQuestion>> {
    match ask(&Request::FindQuestion { database: this_client("", 0).database, query_id }, timeout)? {
        Response::Question(question) => Ok(question.map(|question| *question)),
        other => Err(unexpected(other)),
    }
}

/// The number of tokens of each text, in the embedder's own tokeniser.
pub fn count_tokens(embedder: &Embedder, texts: Vec<String>, timeout: Duration) -> Result<Vec<u32>> {
    let timeout = bounded(timeout);
    let wanted = texts.len();
    match ask(&Request::CountTokens { embedder: embedder.clone(), texts }, timeout)? {
        Response::Counts(counts) if counts.len() == wanted => Ok(counts),
        other => Err(unexpected(other)),
    }
}

/// What the gateway reports about itself.
pub fn health(timeout: Duration) -> Result<Health> {
    match ask(&Request::Health, timeout)? {
        Response::Health(health) => Ok(health),
        other => Err(unexpected(other)),
    }
}
