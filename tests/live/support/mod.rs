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

pub use cluster::{APP, Cluster, PRELOAD, succeed};
pub use db::{Db, Document, Fault};
pub use sound::{assert_sound, chunk_set, vector_table};

use std::time::{Duration, Instant};

/// The limit of a wait for what should take a moment, on a machine that may be busy.
pub const SOON: Duration = Duration::from_secs(30);
/// The limit of a wait for real work, which an indexer may do with a thirtieth of a core beside other tests.
pub const LONG: Duration = Duration::from_secs(600);

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
        match $crate::support::Cluster::connected(&[$($setting),*]) {
            Some(connected) => connected,
            None => return,
        }
    }};
}

/// What `connected!` gives, for a test that kills processes.
#[macro_export]
macro_rules! crashing {
    ($($setting:expr),* $(,)?) => {{
        let (mut cluster, db) = $crate::connected!($($setting),*);
        cluster.expects_crashes = true;
        (cluster, db)
    }};
}

/// Chunking that keeps each document whole.
pub const WHOLE: &str = r#"{"strategy": "none"}"#;

/// What `connected!` gives, with a knowledge base k of this embedder and chunking. Lines of postgresql.conf
/// come last, in brackets.
#[macro_export]
macro_rules! with_kb {
    ($embedder:expr, $chunking:expr $(, [$($setting:expr),*])?) => {{
        let (cluster, mut db) = $crate::connected!($($($setting),*)?);
        db.create_kb("k", $embedder, $chunking);
        (cluster, db)
    }};
}

/// A stub provider, and what `connected!` gives: with an embedder e at the stub, which has this
/// configuration, and a knowledge base k of this embedder and chunking. Lines of postgresql.conf come last,
/// in brackets.
#[macro_export]
macro_rules! with_stub {
    ($config:expr, $chunking:expr $(, [$($setting:expr),*])?) => {{
        let stub = $crate::stub::Stub::start($crate::stub::Options::default());
        let (cluster, mut db) = $crate::connected!($($($setting),*)?);
        db.create_stub_embedder("e", &stub, $config);
        db.create_kb("k", "e", $chunking);
        (stub, cluster, db)
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
