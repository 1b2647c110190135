//! The content of an answer, which is read part by part within a size and a time.

use super::super::endpoint::transport::{Failure, classify};
use super::super::frame::MAX_PART;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// An answer whose content is read.
pub struct Download {
    response: reqwest::Response,
    /// What was received and is not in a part yet.
    spare: Vec<u8>,
    read: usize,
    most: usize,
    pub deadline: Instant,
}

/// Why there is no more of it.
#[derive(Debug, PartialEq)]
pub enum Fault {
    /// It has at least so many bytes.
    TooLarge(usize),
    Failed(Failure),
}

impl Download {
    /// `most`: the most bytes, unpacked.
    pub fn new(response: reqwest::Response, most: usize, deadline: Instant) -> Result<Download, Fault> {
        // The client removes the header when it unpacks the content.
        if let Some(encoding) = response.headers().get("content-encoding")
            && encoding != "identity"
        {
            let problem = "its content is packed in a way that was not asked for".to_string();
            return Err(Fault::Failed(Failure::Lasting(problem)));
        }
        match response.content_length().and_then(|length| usize::try_from(length).ok()) {
            Some(length) if length > most => Err(Fault::TooLarge(length)),
            _ => Ok(Download { response, spare: Vec::new(), read: 0, most, deadline }),
        }
    }

    /// The next part, and whether it is the last one.
    pub async fn part(&mut self) -> Result<(Vec<u8>, bool), Fault> {
        let mut part = std::mem::take(&mut self.spare);
        while part.len() < MAX_PART {
            let chunk = match timeout_at(self.deadline, self.response.chunk()).await {
                Ok(chunk) => chunk.map_err(|e| Fault::Failed(classify(&e)))?,
                Err(_) => return Err(Fault::Failed(late())),
            };
            let Some(chunk) = chunk else { return Ok((part, true)) };
            self.read += chunk.len();
            if self.read > self.most {
                return Err(Fault::TooLarge(self.read));
            }
            part.extend_from_slice(&chunk);
        }
        // A chunk is as large as a frame of HTTP/2 at most.
        self.spare = part.split_off(MAX_PART);
        Ok((part, false))
    }
}

/// The failure of an answer that takes too long.
pub fn late() -> Failure {
    let text = "it did not answer in time".to_string();
    Failure::Passing(text.clone(), text)
}

/// The time of one attempt, in bounds.
pub fn deadline(timeout_ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(timeout_ms.clamp(1, 3_600_000))
}
