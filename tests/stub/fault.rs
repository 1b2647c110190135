//! The faults of a stub provider, and which request gets which.

use fastrand::Rng;
use std::collections::VecDeque;
use std::time::Duration;

/// A fault in the answer to a correct request.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// An error of this HTTP status, in the dialect's own shape.
    Status(u16),
    /// The same with `Retry-After: SECONDS`.
    RetryAfter { status: u16, seconds: u64 },
    /// The same with `Retry-After: DATE`, at least `seconds` from now (a date has whole seconds).
    RetryAfterDate { status: u16, seconds: u64 },
    /// The right answer, after this delay.
    Slow(Duration),
    /// No answer: the request stays open until the client leaves.
    Never,
    /// Headers and half of the right body, then the connection breaks (HTTP/2: the stream is reset).
    CloseMidway,
    /// The connection breaks instead of an answer (HTTP/2: the stream is reset).
    CloseAtOnce,
    /// Half of the right body, as if that were all of it.
    Truncated,
    /// The first number of the first vector is the word NaN (in base64: a NaN).
    NaN,
    /// The first number of the first vector is null (in base64: the first vector is null). Of a chat model:
    /// its words are.
    Null,
    /// The last vector is missing; of one text, its vector comes twice. Of a chat model: there is no message.
    WrongCount,
    /// The last vector has one number too many.
    WrongDimension,
    /// The right vectors under their right indexes, in reverse order, where the dialect has indexes.
    Shuffled,
    /// 100 MiB of spaces before the right answer, without a Content-Length.
    Huge,
    /// 307 to this URL.
    Redirect(String),
    /// 200 with a page of HTML.
    NotJson,
    /// The right answer, gzipped where the client says that it takes that.
    Gzip,
    /// The first vector is all zeros.
    ZeroVector,
    /// The first vector is empty.
    Empty,
    /// 200 with this body.
    Says(String),
}

impl Fault {
    /// The HTTP status of the answer, or 0 if there is none.
    pub fn status(&self) -> u16 {
        match self {
            Fault::Status(status)
            | Fault::RetryAfter { status, .. }
            | Fault::RetryAfterDate { status, .. } => *status,
            Fault::Redirect(_) => 307,
            Fault::Never | Fault::CloseAtOnce => 0,
            _ => 200,
        }
    }

    /// Whether the answer still has the right vector for every text.
    pub fn is_good(&self) -> bool {
        matches!(self, Fault::Slow(_) | Fault::Shuffled | Fault::Gzip)
    }

    /// Makes right vectors (at least one) wrong. An infinite number will be written as null.
    pub fn spoil(&self, vectors: &mut Vec<Vec<f32>>) {
        match self {
            Fault::NaN => vectors[0][0] = f32::NAN,
            Fault::Null => vectors[0][0] = f32::INFINITY,
            Fault::ZeroVector => vectors[0].fill(0.0),
            Fault::Empty => vectors[0].clear(),
            Fault::WrongCount if vectors.len() > 1 => vectors.truncate(vectors.len() - 1),
            Fault::WrongCount => vectors.extend_from_within(..1),
            Fault::WrongDimension => {
                if let Some(last) = vectors.last_mut() {
                    last.push(0.5);
                }
            }
            _ => {}
        }
    }
}

/// Any fault, all with the same probability.
#[derive(Debug)]
pub struct Chaos {
    /// Probability from 0 to 1.
    rate: f64,
    random: Rng,
    faults: Vec<Fault>,
}

impl Chaos {
    /// `elsewhere` is where redirects lead.
    pub fn new(rate: f64, seed: u64, elsewhere: &str) -> Chaos {
        let faults = vec![
            Fault::Never,
            Fault::Status(400),
            Fault::Status(401),
            Fault::Status(404),
            Fault::Status(429),
            Fault::Status(500),
            Fault::Status(502),
            Fault::Status(503),
            Fault::RetryAfter { status: 429, seconds: 0 },
            Fault::RetryAfter { status: 503, seconds: 1 },
            Fault::RetryAfterDate { status: 429, seconds: 0 },
            Fault::Slow(Duration::from_millis(200)),
            Fault::CloseMidway,
            Fault::CloseAtOnce,
            Fault::Truncated,
            Fault::NaN,
            Fault::WrongCount,
            Fault::WrongDimension,
            Fault::Shuffled,
            Fault::Huge,
            Fault::Redirect(elsewhere.to_string()),
            Fault::ZeroVector,
        ];
        Chaos { rate, random: Rng::with_seed(seed), faults }
    }

    /// Whether this request gets a fault.
    fn draws_fault(&mut self) -> bool {
        self.random.f64() < self.rate
    }

    fn next(&mut self) -> Option<Fault> {
        if !self.draws_fault() {
            return None;
        }
        self.random.choice(&self.faults).cloned()
    }
}

/// Which request gets which fault: the script first, then refused texts, then `always`, then chaos.
#[derive(Debug, Default)]
pub struct Schedule {
    /// Faults, each with the number of requests that it is still for.
    pub script: VecDeque<(Fault, usize)>,
    pub always: Option<Fault>,
    /// Parts of texts, and the fault of a request with such a text.
    pub refused: Vec<(String, Fault)>,
    pub chaos: Option<Chaos>,
}

impl Schedule {
    /// The fault of the request with these texts.
    pub fn next(&mut self, texts: &[&str]) -> Option<Fault> {
        if let Some((fault, times)) = self.script.front_mut() {
            let fault = fault.clone();
            *times -= 1;
            if *times == 0 {
                self.script.pop_front();
            }
            return Some(fault);
        }
        let refused =
            self.refused.iter().find(|(part, _)| texts.iter().any(|text| text.contains(part.as_str())));
        if let Some((_, fault)) = refused {
            return Some(fault.clone());
        }
        if self.always.is_some() {
            return self.always.clone();
        }
        self.chaos.as_mut()?.next()
    }

    /// Whether the next connection gets a certificate that no client trusts.
    pub fn is_untrusted(&mut self) -> bool {
        self.chaos.as_mut().is_some_and(Chaos::draws_fault)
    }
}
