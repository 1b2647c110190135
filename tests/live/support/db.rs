//! A connection, with methods for what tests do often.

use super::until;
use crate::stub::Stub;
use postgres::types::{FromSqlOwned, ToSql};
use std::fmt::Display;
use std::time::Duration;

pub struct Db(pub postgres::Client);

/// The server's error for a statement that failed.
#[derive(Debug, PartialEq)]
pub struct Fault {
    pub code: String,
    pub message: String,
    /// The whole error, with hint and detail.
    pub text: String,
}

impl Fault {
    pub fn of(error: &postgres::Error) -> Fault {
        let Some(e) = error.as_db_error() else {
            return Fault { code: "".into(), message: error.to_string(), text: error.to_string() };
        };
        let parts = [Some(e.message()), e.detail(), e.hint(), e.where_()];
        Fault {
            code: e.code().code().to_string(),
            message: e.message().to_string(),
            text: parts.into_iter().flatten().collect::<Vec<_>>().join("\n"),
        }
    }
}

/// A document to put.
pub struct Document {
    pub id: String,
    pub content: String,
    pub metadata: serde_json::Value,
}

impl Document {
    pub fn new(id: impl Into<String>, content: impl Into<String>) -> Document {
        Document { id: id.into(), content: content.into(), metadata: serde_json::json!({}) }
    }

    /// Documents "d0", "d1", … whose texts depend on their numbers.
    pub fn numbered<N: Display + Copy>(
        numbers: impl Iterator<Item = N>,
        mut text: impl FnMut(N) -> String,
    ) -> Vec<Document> {
        numbers.map(|number| Document::new(format!("d{number}"), text(number))).collect()
    }
}

impl Db {
    /// Runs statements, and fails with the server's error.
    pub fn run(&mut self, sql: &str) {
        if let Err(e) = self.0.batch_execute(sql) {
            panic!("{sql}: {:?}", Fault::of(&e));
        }
    }

    /// Runs statements, and waits until nothing of the knowledge base is waiting.
    pub fn run_and_wait(&mut self, kb: &str, sql: &str) {
        self.run(sql);
        self.wait(kb);
    }

    pub fn try_run(&mut self, sql: &str) -> Result<(), Fault> {
        self.0.batch_execute(sql).map_err(|e| Fault::of(&e))
    }

    /// The error with which a statement fails.
    #[track_caller]
    pub fn fault(&mut self, sql: &str) -> Fault {
        match self.try_run(sql) {
            Ok(()) => panic!("no error: {sql}"),
            Err(fault) => fault,
        }
    }

    /// The error with which a statement fails, whose SQLSTATE must be this one.
    #[track_caller]
    pub fn refused(&mut self, sql: &str, code: &str) -> Fault {
        let fault = self.fault(sql);
        assert_eq!(fault.code, code, "{sql}: {fault:?}");
        fault
    }

    /// The first column of all rows.
    pub fn all_with<T: FromSqlOwned>(&mut self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Vec<T> {
        match self.0.query(sql, params) {
            Ok(rows) => rows.iter().map(|row| row.get(0)).collect(),
            Err(e) => panic!("{sql}: {:?}", Fault::of(&e)),
        }
    }

    pub fn all<T: FromSqlOwned>(&mut self, sql: &str) -> Vec<T> {
        self.all_with(sql, &[])
    }

    /// The one value of the one row.
    pub fn one<T: FromSqlOwned>(&mut self, sql: &str) -> T {
        self.one_with(sql, &[])
    }

    pub fn one_with<T: FromSqlOwned>(&mut self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> T {
        let mut all = self.all_with(sql, params);
        assert_eq!(all.len(), 1, "rows of {sql}");
        all.remove(0)
    }

    pub fn count(&mut self, from: &str) -> i64 {
        self.one(&format!("SELECT count(*) FROM {from}"))
    }

    /// The buffers that `SELECT query` reads in shared memory.
    pub fn buffers(&mut self, query: &str) -> i64 {
        let plan: Vec<String> = self.all(&format!("EXPLAIN (ANALYZE, BUFFERS) SELECT {query}"));
        let shown = plan.iter().find(|line| line.contains("shared hit=")).unwrap();
        shown.split("shared hit=").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap()
    }

    /// A knowledge base with this embedder and chunking.
    pub fn create_kb(&mut self, id: &str, embedder: &str, chunking: &str) {
        self.run(&format!("SELECT kb.create_knowledge_base('{id}', '{embedder}', chunking => '{chunking}')"));
    }

    /// An embedder on MiniLM that works in small batches, so that there is a middle to interrupt.
    pub fn create_slow_embedder(&mut self, batch_size: usize) {
        self.run(&format!(
            "SELECT kb.create_embedder('slow', 'local', 'all-MiniLM-L6-v2', config => '{{\"batch_size\": {batch_size}}}')"
        ));
    }

    pub fn put(&mut self, kb: &str, id: &str, content: &str) -> String {
        self.one_with("SELECT kb.put_document($1, $2, $3)", &[&kb, &id, &content])
    }

    /// Puts a document, and waits until nothing of the knowledge base is waiting.
    pub fn put_and_wait(&mut self, kb: &str, id: &str, content: &str) {
        self.put(kb, id, content);
        self.wait(kb);
    }

    /// An embedder (dimension 8) of provider openai at the stub. `config` is JSON; retries are quick.
    pub fn create_stub_embedder(&mut self, id: &str, stub: &Stub, config: &str) {
        self.run(&format!(
            r#"SELECT kb.create_embedder('{id}', 'openai', 'model', 8, '{}', config =>
                '{{"retry": {{"max_attempts": 2, "base_ms": 1, "max_ms": 10}}, "timeout_ms": 5000}}'::jsonb || '{config}')"#,
            stub.base_url("openai")
        ));
    }

    /// Puts documents in one transaction.
    pub fn put_all(&mut self, kb: &str, documents: &[Document]) {
        let json: Vec<String> = documents
            .iter()
            .map(|d| {
                serde_json::json!({"external_id": d.id, "content": d.content, "metadata": d.metadata})
                    .to_string()
            })
            .collect();
        let put: i64 =
            self.one_with("SELECT count(*) FROM kb.put_documents($1, $2::text[]::jsonb[])", &[&kb, &json]);
        assert_eq!(put as usize, documents.len());
    }

    /// Puts documents in one transaction, and waits until nothing of the knowledge base is waiting.
    pub fn put_all_and_wait(&mut self, kb: &str, documents: &[Document]) {
        self.put_all(kb, documents);
        self.wait(kb);
    }

    /// kb.wait, with a bound.
    pub fn wait(&mut self, kb: &str) {
        self.run(&format!("SELECT kb.wait('{kb}', 180)"));
    }

    /// The external ids that a query finds, best first.
    pub fn found(&mut self, kb: &str, query: &str, top_k: i32) -> Vec<String> {
        self.all_with("SELECT external_id FROM kb.query($1, $2, $3) ORDER BY rank", &[&kb, &query, &top_k])
    }

    /// The jobs of this database that wait or are in progress.
    pub fn jobs(&mut self) -> i64 {
        self.count("kb.jobs")
    }

    /// The number of vectors of the live build of a knowledge base.
    pub fn vectors(&mut self, kb: &str) -> i64 {
        self.one(&format!("SELECT vectors FROM kb.status WHERE kb_id = '{kb}'"))
    }

    /// Waits until work on a knowledge base is in the middle: vectors written, and more to come.
    pub fn until_halfway(&mut self, kb: &str, vectors: i64) {
        until(Duration::from_secs(90), &format!("{vectors} vectors of {kb} are written"), || {
            self.vectors(kb) >= vectors
        });
        assert!(self.jobs() > 0, "the work was done before it could be interrupted");
    }
}
