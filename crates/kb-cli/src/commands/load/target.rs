//! A knowledge base into which documents are put over one connection.

use super::file::{Content, Document, SCHEME};
use super::sql;
use crate::exit::{Error, Result};
use crate::server::Session;
use serde::Serialize;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::pin::pin;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Row, Transaction};

/// What a statement has answered.
type Asked<T> = std::result::Result<T, tokio_postgres::Error>;

/// The bytes of a piece of a large file.
const PIECE: u64 = 1 << 20;

/// The knowledge base, as all connections see it.
#[derive(Debug, Clone)]
pub struct Target {
    pub kb_id: String,
    kb_no: i64,
    tenant_id: String,
    /// kb.max_document_size, if the role may read it.
    pub most: Option<u64>,
    pub takes_all: bool,
}

/// Why a document could not be put.
#[derive(Debug)]
pub enum Fault {
    Server(tokio_postgres::Error),
    /// The file cannot be read.
    File(std::io::Error),
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Fault {
        Fault::Server(error)
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Fault {
        Fault::File(error)
    }
}

/// How a document was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    Added,
    Updated,
    Skipped,
}

impl Put {
    fn read(row: &Row) -> Asked<Put> {
        Ok(match row.try_get(0)? {
            "added" => Put::Added,
            "updated" => Put::Updated,
            _ => Put::Skipped,
        })
    }
}

impl Target {
    /// Finds the knowledge base, and fails as putting a document would.
    pub async fn find(session: &Session, kb_id: &str) -> Result<Target> {
        session.installed.require("put_documents", &["kb_id", "documents"])?;
        let client = &session.connected.client;
        client.query_typed(sql::CHECK, &[(&kb_id, Type::TEXT)]).await?;
        let row = client.query_typed(sql::TARGET, &[(&kb_id, Type::TEXT)]).await?;
        let row =
            row.first().ok_or_else(|| Error::failed(format!("knowledge base \"{kb_id}\" does not exist")))?;
        Ok(Target {
            kb_id: kb_id.to_string(),
            kb_no: row.try_get("kb_no")?,
            tenant_id: row.try_get("tenant_id")?,
            most: row.try_get::<_, Option<i64>>("most")?.map(|most| most as u64),
            takes_all: row.try_get("takes_all")?,
        })
    }
}

/// A connection to the server.
pub struct Connection<'a> {
    target: &'a Target,
    session: Session,
    /// None: it has not been tried. Some(false): the role may not create temporary tables.
    has_pieces: Option<bool>,
}

impl<'a> Connection<'a> {
    pub async fn begin(target: &'a Target, session: Session) -> Asked<Connection<'a>> {
        session.connected.client.batch_execute(sql::SETTINGS).await?;
        Ok(Connection { target, session, has_pieces: None })
    }

    async fn query(&self, sql: &str, parameters: &[(&(dyn ToSql + Sync), Type)]) -> Asked<Vec<Row>> {
        self.session.connected.client.query_typed(sql, parameters).await
    }

    /// The knowledge base and its tenant, as the first parameters of a statement.
    fn place(&self) -> [(&(dyn ToSql + Sync), Type); 2] {
        [(&self.target.kb_no, Type::INT8), (&self.target.tenant_id, Type::TEXT)]
    }

    /// For each document: None if it is new or has changed, and otherwise whether it has failed.
    pub async fn unchanged(&self, documents: &[Document]) -> Asked<Vec<Option<bool>>> {
        let ids: Vec<&str> = documents.iter().map(|document| document.external_id.as_str()).collect();
        let hashes: Vec<&[u8]> = documents.iter().map(|document| document.hash.as_slice()).collect();
        let [kb_no, tenant_id] = self.place();
        let given = [kb_no, tenant_id, (&ids, Type::TEXT_ARRAY), (&hashes, Type::BYTEA_ARRAY)];
        let mut unchanged = vec![None; documents.len()];
        for row in self.query(sql::UNCHANGED, &given).await? {
            let number: i64 = row.try_get("number")?;
            if let Some(place) = unchanged.get_mut(number as usize - 1) {
                *place = Some(row.try_get("has_failed")?);
            }
        }
        Ok(unchanged)
    }

    /// Puts documents of one kind, all or none.
    pub async fn put(&mut self, documents: &[Document]) -> std::result::Result<Vec<Put>, Fault> {
        match documents {
            [document @ Document { content: Content::Large { name, place }, .. }] => {
                Ok(vec![self.put_large(document, name, place).await?])
            }
            [Document { content: Content::Text { .. }, .. }, ..] => Ok(self.put_texts(documents).await?),
            _ => Ok(self.put_files(documents).await?),
        }
    }

    async fn put_texts(&self, documents: &[Document]) -> Asked<Vec<Put>> {
        let given: Vec<Jsonb> = documents.iter().filter_map(Jsonb::of).collect();
        let given: [(&(dyn ToSql + Sync), Type); 2] =
            [(&self.target.kb_id, Type::TEXT), (&given, Type::JSONB_ARRAY)];
        self.query(sql::PUT_DOCUMENTS, &given).await?.iter().map(Put::read).collect()
    }

    async fn put_files(&self, documents: &[Document]) -> Asked<Vec<Put>> {
        let mut files = Vec::with_capacity(documents.len());
        for document in documents {
            if let Content::File { name, bytes } = &document.content {
                files.push((document, name.as_str(), bytes.as_slice()));
            }
        }
        self.put_whole(&files).await
    }

    async fn put_whole(&self, files: &[(&Document, &str, &[u8])]) -> Asked<Vec<Put>> {
        let ids: Vec<&str> = files.iter().map(|(document, ..)| document.external_id.as_str()).collect();
        let bytes: Vec<&[u8]> = files.iter().map(|(_, _, bytes)| *bytes).collect();
        let names: Vec<&str> = files.iter().map(|(_, name, _)| *name).collect();
        let uris: Vec<&str> = files.iter().map(|(document, ..)| document.uri.as_str()).collect();
        let given: [(&(dyn ToSql + Sync), Type); 5] = [
            (&self.target.kb_id, Type::TEXT),
            (&ids, Type::TEXT_ARRAY),
            (&bytes, Type::BYTEA_ARRAY),
            (&names, Type::TEXT_ARRAY),
            (&uris, Type::TEXT_ARRAY),
        ];
        self.query(sql::PUT_FILES, &given).await?.iter().map(Put::read).collect()
    }

    /// Puts a file piece by piece, where the role may create temporary tables.
    async fn put_large(
        &mut self,
        document: &Document,
        name: &str,
        place: &Path,
    ) -> std::result::Result<Put, Fault> {
        if self.has_pieces != Some(false) {
            let transaction = self.session.connected.client.transaction().await?;
            match transaction.batch_execute(sql::CREATE_PIECES).await {
                Ok(()) => {
                    self.has_pieces = Some(true);
                    return put_pieces(transaction, &self.target.kb_id, document, name, place).await;
                }
                Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                    transaction.rollback().await?;
                    self.has_pieces = Some(false);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let bytes = std::fs::read(place)?;
        let put = self.put_whole(&[(document, name, &bytes)]).await?;
        Ok(put.first().copied().unwrap_or(Put::Skipped))
    }
}

async fn put_pieces(
    transaction: Transaction<'_>,
    kb_id: &str,
    document: &Document,
    name: &str,
    place: &Path,
) -> std::result::Result<Put, Fault> {
    let mut file = File::open(place)?;
    let sink = transaction.copy_in(sql::COPY_PIECES).await?;
    let mut pieces = pin!(BinaryCopyInWriter::new(sink, &[Type::INT4, Type::BYTEA]));
    let mut piece = Vec::with_capacity(PIECE as usize);
    for number in 0i32.. {
        // A piece is read in a moment.
        piece.clear();
        Read::by_ref(&mut file).take(PIECE).read_to_end(&mut piece)?;
        if piece.is_empty() {
            break;
        }
        pieces.as_mut().write(&[&number, &piece.as_slice()]).await?;
    }
    pieces.finish().await?;
    let given: [(&(dyn ToSql + Sync), Type); 4] = [
        (&kb_id, Type::TEXT),
        (&document.external_id, Type::TEXT),
        (&name, Type::TEXT),
        (&document.uri, Type::TEXT),
    ];
    let rows = transaction.query_typed(sql::PUT_PIECES, &given).await?;
    let put = rows.first().map_or(Ok(Put::Skipped), Put::read)?;
    transaction.commit().await?;
    Ok(put)
}

/// The documents that `kb load` has put, and that begin with a prefix, in the order of their external_ids.
pub struct Loaded<'a> {
    connection: &'a Connection<'a>,
    prefix: &'a str,
    last: Option<String>,
}

impl<'a> Connection<'a> {
    pub fn loaded(&'a self, prefix: &'a str) -> Loaded<'a> {
        Loaded { connection: self, prefix, last: Some(String::new()) }
    }

    /// Those of the documents that `kb load` has put.
    pub async fn loaded_of(&self, external_ids: &[String]) -> Asked<Vec<String>> {
        let [kb_no, tenant_id] = self.place();
        let given = [kb_no, tenant_id, (&external_ids, Type::TEXT_ARRAY), (&SCHEME, Type::TEXT)];
        self.query(sql::LOADED_OF, &given).await?.iter().map(|row| row.try_get(0)).collect()
    }

    /// Deletes documents. Returns how many there were.
    pub async fn delete(&self, external_ids: &[String]) -> Asked<u64> {
        let given: [(&(dyn ToSql + Sync), Type); 2] =
            [(&self.target.kb_id, Type::TEXT), (&external_ids, Type::TEXT_ARRAY)];
        let rows = self.query(sql::DELETE, &given).await?;
        Ok(rows.first().map_or(Ok(0), |row| row.try_get::<_, i64>(0))? as u64)
    }
}

impl Loaded<'_> {
    /// The next of them; None after the last.
    pub async fn next(&mut self) -> Asked<Option<Vec<String>>> {
        let Some(last) = self.last.take() else { return Ok(None) };
        let [kb_no, tenant_id] = self.connection.place();
        let given =
            [kb_no, tenant_id, (&last, Type::TEXT), (&self.prefix, Type::TEXT), (&SCHEME, Type::TEXT)];
        let mut loaded = Vec::new();
        for row in self.connection.query(sql::LOADED, &given).await? {
            let id: String = row.try_get("external_id")?;
            if !row.try_get::<_, bool>("is_below")? {
                self.last = None;
                return Ok(Some(loaded));
            }
            if row.try_get("is_loaded")? {
                loaded.push(id.clone());
            }
            self.last = Some(id);
        }
        Ok(Some(loaded))
    }
}

/// An element of the argument of kb.put_documents, in the binary form of jsonb.
#[derive(Debug)]
struct Jsonb(String);

#[derive(Serialize)]
struct Given<'a> {
    external_id: &'a str,
    content: &'a str,
    content_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    uri: &'a str,
}

impl Jsonb {
    fn of(document: &Document) -> Option<Jsonb> {
        let Content::Text { content_type, title, text } = &document.content else { return None };
        let given = Given {
            external_id: &document.external_id,
            content: text,
            content_type,
            title: title.as_deref(),
            uri: &document.uri,
        };
        serde_json::to_string(&given).ok().map(Jsonb)
    }
}

impl ToSql for Jsonb {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        // The version of the form.
        out.extend_from_slice(&[1]);
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(wanted: &Type) -> bool {
        *wanted == Type::JSONB
    }

    to_sql_checked!();
}
