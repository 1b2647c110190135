//! A connection to the gateway. Requests are read as memory for them becomes free, and answered in the order
//! in which they finish, except where one provides what the next may ask for. The resources of a client are
//! bounded: the gateway stops reading, or closes a connection that makes no progress while others wait.

use super::frame::{self, Head};
use super::protocol::{Request, Response};
use super::request_memory::{Memory, Reservation, Share};
use super::turns::Urgency;
use kb_types::error::Result;
use kb_types::sync::lock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

/// The most connections, well below the usual limit of open files. To accept one more, the gateway closes the
/// connection that has been idle longest. Its client reconnects for its next request.
const CONNECTIONS: usize = 512;
/// The most answers of one connection that wait to be written. Further ones wait in the tasks of their
/// requests.
const OUTBOX: usize = 64;
/// A connection that makes no progress within a frame for this long is closed if memory is short.
const STALL: Duration = Duration::from_secs(30);
/// How often a client whose request waits for memory is told that the gateway is alive.
const ALIVE: Duration = Duration::from_secs(5);
/// How many bytes are read at a time.
const PART: usize = 64 * 1024;
/// The most bytes of all questions, and of all other requests.
const QUESTIONS: usize = 64 * 1024 * 1024;
const REQUESTS: usize = 512 * 1024 * 1024;

/// An answer that waits to be written. Until then its request keeps its memory and counts as in flight.
struct Outgoing {
    frame: Vec<u8>,
    _kept: Option<(Arc<Reservation>, UnderWay)>,
}

/// Handles requests.
pub trait Handler: Send + Sync + 'static {
    /// Answers a request from the connection with this number. Work that keeps the texts of the request must
    /// keep `memory`, too, because it may continue after the client has left.
    fn answer(
        self: &Arc<Self>,
        request: Request,
        connection: u64,
        memory: Arc<Reservation>,
    ) -> impl Future<Output = Result<Response>> + Send;
}

/// The open connections, and the memory for their requests.
pub struct Connections {
    most: usize,
    state: Mutex<OpenConnections>,
    closed: Notify,
    questions: Arc<Memory>,
    requests: Arc<Memory>,
}

#[derive(Default)]
struct OpenConnections {
    last: u64,
    connections: HashMap<u64, Arc<Activity>>,
}

/// The activity of one connection.
struct Activity {
    used: Mutex<Instant>,
    under_way: AtomicUsize,
    close: Notify,
}

/// Counts a request as in flight.
struct UnderWay(Arc<Activity>);

impl Activity {
    fn begin(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        UnderWay(Arc::clone(self))
    }

    fn used(&self) -> Instant {
        *lock(&self.used)
    }

    /// Waits until the connection is to be closed in favour of another one. If a request has begun since that
    /// was decided, the connection stays open.
    async fn closed(&self) {
        loop {
            self.close.notified().await;
            if self.under_way.load(Ordering::SeqCst) == 0 {
                return;
            }
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        *lock(&self.0.used) = Instant::now();
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Default for Connections {
    fn default() -> Self {
        Connections {
            most: CONNECTIONS,
            state: Mutex::default(),
            closed: Notify::new(),
            questions: Memory::new(QUESTIONS),
            requests: Memory::new(REQUESTS),
        }
    }
}

impl Connections {
    /// Waits until one more connection may be opened, and closes an idle one if necessary.
    pub async fn make_room(&self) {
        loop {
            let closed = self.closed.notified();
            {
                let open = lock(&self.state);
                if open.connections.len() < self.most {
                    return;
                }
                let idle = |activity: &&Arc<Activity>| activity.under_way.load(Ordering::SeqCst) == 0;
                let oldest = open.connections.values().filter(idle).min_by_key(|activity| activity.used());
                if let Some(activity) = oldest {
                    activity.close.notify_one();
                }
            }
            // A busy connection may become idle soon.
            let _ = timeout(Duration::from_millis(50), closed).await;
        }
    }

    fn open(&self) -> (u64, Arc<Activity>) {
        let mut open = lock(&self.state);
        open.last += 1;
        let activity = Arc::new(Activity {
            used: Mutex::new(Instant::now()),
            under_way: AtomicUsize::new(0),
            close: Notify::new(),
        });
        let number = open.last;
        open.connections.insert(number, Arc::clone(&activity));
        (number, activity)
    }

    fn close(&self, number: u64) {
        lock(&self.state).connections.remove(&number);
        self.closed.notify_one();
    }
}

/// Serves a client until it leaves.
pub async fn serve<S: Handler>(stream: UnixStream, connections: Arc<Connections>, service: Arc<S>) {
    let (number, activity) = connections.open();
    let (reader, writer) = stream.into_split();
    let (outbox, outgoing) = mpsc::channel::<Outgoing>(OUTBOX);
    let writing = tokio::spawn(write(writer, outgoing, Arc::clone(&connections.requests)));
    let client = RequestReader {
        number,
        activity: Arc::clone(&activity),
        connections: Arc::clone(&connections),
        service,
        outbox,
    };
    tokio::select! {
        // The order matters: a request that has arrived is seen before the connection is closed.
        biased;
        _ = client.read(reader) => {}
        () = client.outbox.closed() => {}
        () = activity.closed() => {}
    }
    // Ending the writer closes the channel, which drops unanswered requests.
    writing.abort();
    connections.close(number);
}

/// Reads the requests of a client.
struct RequestReader<S> {
    number: u64,
    activity: Arc<Activity>,
    connections: Arc<Connections>,
    service: Arc<S>,
    outbox: mpsc::Sender<Outgoing>,
}

impl<S: Handler> RequestReader<S> {
    /// Reads requests, as memory for each becomes free, until the client leaves or sends something else.
    async fn read(&self, mut reader: OwnedReadHalf) -> Option<()> {
        let share = Share::default();
        let questions = Share::default();
        loop {
            let mut head = [0u8; Head::SIZE];
            reader.read_exact(&mut head).await.ok()?;
            let under_way = self.activity.begin();
            let head = Head::read(head).ok()?;
            // A question does not wait for memory that other requests hold.
            let (memory, share) = match head.urgency {
                Urgency::Query => (&self.connections.questions, &questions),
                _ => (&self.connections.requests, &share),
            };
            let reservation = Arc::new(self.take(memory, share, head.cost()).await);
            let content = read_content(&mut reader, head.length, memory).await?;
            let request = frame::decode::<Request>(&content).ok()?;
            drop(content);
            let refused = frame::check(&request.body, &head).err();
            let (service, outbox, number) = (Arc::clone(&self.service), self.outbox.clone(), self.number);
            let is_done_first = request.body.is_done_first();
            let answering = async move {
                let answer = match refused {
                    Some(error) => Err(error),
                    // A client that leaves closes the channel, and its work is dropped at the next await.
                    // This comes first. Otherwise work that needs no answer might not be done for a client
                    // that leaves at once.
                    None => tokio::select! {
                        biased;
                        answer = service.answer(request.body, number, Arc::clone(&reservation)) => answer,
                        () = outbox.closed() => return,
                    },
                };
                let response = answer.unwrap_or_else(|error| Response::Error(error.into()));
                let frame = frame::encode(request.id, response)
                    .or_else(|error| frame::encode(request.id, Response::Error(error.into())));
                if let Ok(frame) = frame {
                    let _ = outbox.send(Outgoing { frame, _kept: Some((reservation, under_way)) }).await;
                }
            };
            match is_done_first {
                true => answering.await,
                false => drop(tokio::spawn(answering)),
            }
        }
    }

    /// Waits for memory, and meanwhile tells the client that the gateway is alive.
    async fn take(&self, memory: &Arc<Memory>, share: &Share, bytes: usize) -> Reservation {
        let taking = memory.take(share, bytes);
        tokio::pin!(taking);
        loop {
            match timeout(ALIVE, &mut taking).await {
                Ok(reservation) => return reservation,
                Err(_) => {
                    if let Ok(frame) = frame::encode(0, Response::Alive) {
                        let _ = self.outbox.try_send(Outgoing { frame, _kept: None });
                    }
                }
            }
        }
    }
}

/// Reads `length` bytes. Memory is allocated only as they arrive.
async fn read_content(reader: &mut OwnedReadHalf, length: usize, memory: &Memory) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    let mut part = vec![0u8; PART.min(length)];
    while content.len() < length {
        let most = part.len().min(length - content.len());
        match timeout(STALL, reader.read(&mut part[..most])).await {
            Ok(Ok(0) | Err(_)) => return None,
            Ok(Ok(n)) => content.extend_from_slice(&part[..n]),
            Err(_) if memory.is_short() => return None,
            Err(_) => {}
        }
    }
    Some(content)
}

async fn write(mut writer: OwnedWriteHalf, mut outgoing: mpsc::Receiver<Outgoing>, memory: Arc<Memory>) {
    while let Some(Outgoing { frame, _kept }) = outgoing.recv().await {
        let mut left = frame.as_slice();
        while !left.is_empty() {
            match timeout(STALL, writer.write(left)).await {
                Ok(Ok(0) | Err(_)) => return,
                Ok(Ok(n)) => left = &left[n..],
                Err(_) if memory.is_short() => return,
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
