//! A client of the gateway for threads that must not call PostgreSQL. It keeps a limited number of requests
//! under way, and passes on the answers as they arrive.

use super::client::Connection;
use kb_gateway::protocol::{Request, Response};
use kb_types::error::{Error, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long this waits for a gateway that does not run yet; the caller has requested its start.
const START: Duration = Duration::from_secs(10);
/// After this time without an answer the gateway is asked whether it is alive, and after as long again it is
/// given up.
pub const SILENCE: Duration = Duration::from_secs(30);

pub struct Pump {
    connection: Connection,
    last_answer: Instant,
    is_health_asked: bool,
}

impl Pump {
    pub fn open() -> Result<Pump> {
        let begun = Instant::now();
        loop {
            match Connection::try_open() {
                Ok(connection) => {
                    return Ok(Pump { connection, last_answer: Instant::now(), is_health_asked: false });
                }
                Err(_) if begun.elapsed() < START => std::thread::sleep(Duration::from_millis(10)),
                Err(e) => return Err(Error::Gateway { problem: format!("does not answer ({e})") }),
            }
        }
    }

    /// Sends the requests that `next` returns, at most `most` at a time, and passes each answer to `take`
    /// with the number of its request, counted from 0. `next` is called again after each answer. Returns when
    /// `next` has no further request and all answers have arrived.
    pub fn run(
        &mut self,
        most: usize,
        next: impl FnMut() -> Option<Request>,
        take: impl FnMut(usize, Response),
    ) -> Result<()> {
        self.run_unless(&AtomicBool::new(false), most, next, take)
    }

    /// The same, but returns soon after `stop` is set, and leaves answers that have not arrived. Nothing else
    /// can be asked over this connection then.
    pub fn run_unless(
        &mut self,
        stop: &AtomicBool,
        most: usize,
        mut next: impl FnMut() -> Option<Request>,
        mut take: impl FnMut(usize, Response),
    ) -> Result<()> {
        let mut waiting: HashMap<u64, usize> = HashMap::new();
        let mut number = 0;
        loop {
            while waiting.len() < most.max(1)
                && let Some(request) = next()
            {
                waiting.insert(self.connection.send(&request)?, number);
                number += 1;
                self.hear();
            }
            if waiting.is_empty() || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            match self.connection.receive()? {
                Some((id, response)) => {
                    self.hear();
                    if let Some(number) = waiting.remove(&id) {
                        take(number, response);
                    }
                }
                None => {
                    self.connection.wait_on_thread(Duration::from_secs(1))?;
                    self.check_silence()?;
                }
            }
        }
    }

    fn hear(&mut self) {
        self.last_answer = Instant::now();
        self.is_health_asked = false;
    }

    /// A provider may take its time, but the gateway itself answers at once.
    fn check_silence(&mut self) -> Result<()> {
        if self.last_answer.elapsed() < SILENCE {
            return Ok(());
        }
        if self.is_health_asked {
            return Err(Error::Gateway { problem: "does not answer".into() });
        }
        self.connection.send(&Request::Health)?;
        (self.is_health_asked, self.last_answer) = (true, Instant::now());
        Ok(())
    }
}
