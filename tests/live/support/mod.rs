//! What the tests share: scratch clusters, connections, texts, and the invariants of a knowledge base.

pub mod cluster;
pub mod cross_encoder;
pub mod db;
#[path = "../../layers/files.rs"]
pub mod files;
pub mod pages;
pub mod random;
pub mod shadows;
pub mod sound;
pub mod texts;
mod watchdog;

pub use cluster::{APP, Cluster};
pub use db::{Db, Fault};
pub use random::Random;
pub use sound::{assert_sound, chunk_set, vector_table};

use std::time::{Duration, Instant};

/// The limit of a wait for what should take a moment, on a machine that may be busy.
pub const SOON: Duration = Duration::from_secs(30);
/// The limit of a wait for real work.
pub const LONG: Duration = Duration::from_secs(180);

/// The chunks that were added or deleted and are in no segment of keyword search yet.
pub const PENDING_CHUNKS: &str = "kb.bm25_pending p, pg_catalog.unnest(p.chunk_ids)";

/// A cluster of the test's own with these lines of postgresql.conf. Ends the test if live tests are off.
#[macro_export]
macro_rules! cluster {
    ($($setting:expr),* $(,)?) => {
        match $crate::support::Cluster::start(&[$($setting),*]) {
            Some(cluster) => cluster,
            None => return,
        }
    };
}

/// A cluster as `cluster!` gives it, and a connection to its database.
#[macro_export]
macro_rules! connected {
    ($($setting:expr),* $(,)?) => {{
        let cluster = $crate::cluster!($($setting),*);
        let db = cluster.connect($crate::support::APP);
        (cluster, db)
    }};
}

/// Waits for a condition for at most `limit`, and then fails the test with what it waited for.
pub fn until(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < limit, "not within {} s: {what}", limit.as_secs());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Signals a process of the test's own cluster.
pub fn signal(pid: i32, signal: i32) {
    assert!(pid > 1, "{pid} is no process of a cluster");
    // SAFETY: kill takes plain numbers, and the pid was read from the test's own cluster.
    let sent = unsafe { libc::kill(pid, signal) };
    assert_eq!(sent, 0, "signal {signal} to {pid}: {}", std::io::Error::last_os_error());
}
