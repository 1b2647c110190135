//! A source whose documents are the rows of a query: its configuration, and what the query has returned
//! (`work/run_query.rs` runs it). Rows that are new or have changed are kept in a file until their documents
//! are put, because they can be many. Pure.

use super::reader::{Content, Described, Found, Item, Listing, READ_BYTES, Reader, Wanted};
use kb_types::Json;
use kb_types::error::Result;
use kb_types::json_reader::Fields;
use kb_types::sync::lock;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::io::{BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;

/// The configuration of a source of type query.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryConfig {
    pub query: String,
}

impl QueryConfig {
    pub fn parse(fields: &mut Fields) -> QueryConfig {
        QueryConfig { query: fields.required_text("query") }
    }

    pub fn to_json(&self) -> Map<String, Value> {
        Map::from_iter([("query".to_string(), json!(self.query))])
    }
}

/// A row that is new or has changed.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct QueryRow {
    pub content: String,
    pub title: Option<String>,
    pub uri: Option<String>,
    pub metadata: Option<Json>,
}

/// What a query has returned so far.
pub struct RowSpool {
    file: BufWriter<File>,
    bytes: u64,
    /// Where each of the rows is that are new or have changed, and its size in bytes.
    places: HashMap<String, (u64, usize)>,
    /// Rows whose contents are larger than a document may be.
    large: HashMap<String, usize>,
    items: Vec<Item>,
    pub has_title: bool,
    pub has_uri: bool,
}

impl RowSpool {
    /// Begins a file in this directory of the server, in which PostgreSQL deletes such files when it starts.
    /// The file has no name once it is open. `number` tells the files of this process apart.
    pub fn begin(directory: &Path, number: u64) -> io::Result<RowSpool> {
        if !directory.is_dir() {
            DirBuilder::new().mode(0o700).create(directory)?;
        }
        let path = directory.join(format!("pgsql_tmp{}.kb{number}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(RowSpool {
            file: BufWriter::new(file),
            bytes: 0,
            places: HashMap::new(),
            large: HashMap::new(),
            items: Vec::new(),
            has_title: false,
            has_uri: false,
        })
    }

    /// The number of rows.
    pub fn count(&self) -> usize {
        self.items.len()
    }

    /// The bytes of rows that are new or have changed.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Notes a row. `row` is given if it is new or has changed.
    pub fn add(&mut self, external_id: String, version: String, row: Option<&QueryRow>) -> io::Result<()> {
        let mut size = 0;
        if let Some(row) = row {
            let metadata = row.metadata.as_ref().map(Json::as_str);
            let begin = self.bytes;
            let parts =
                [Some(&*version), Some(&*row.content), row.title.as_deref(), row.uri.as_deref(), metadata];
            for part in parts {
                let length = part.map_or(u64::MAX, |part| part.len() as u64);
                self.file.write_all(&length.to_le_bytes())?;
                self.file.write_all(part.unwrap_or_default().as_bytes())?;
                self.bytes += 8 + part.map_or(0, str::len) as u64;
            }
            size = (self.bytes - begin) as usize;
            self.places.insert(external_id.clone(), (begin, size));
        }
        self.items.push(Item { path: external_id, version: Some(version), size });
        Ok(())
    }

    /// Notes a row whose content has more bytes than a document may have.
    pub fn add_large(&mut self, external_id: String, version: String, size: usize) {
        self.large.insert(external_id.clone(), size);
        self.items.push(Item { path: external_id, version: Some(version), size: 0 });
    }

    /// Ends the listing. `problem`: why the query was not read to its end.
    pub fn end(self, problem: Option<String>) -> io::Result<Rows> {
        let RowSpool { file, mut items, places, large, has_title, has_uri, .. } = self;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        items.sort_by(|a, b| a.path.cmp(&b.path));
        let twice: Vec<String> = items
            .windows(2)
            .filter(|pair| pair[0].path == pair[1].path)
            .map(|pair| pair[0].path.clone())
            .collect();
        items.retain(|item| twice.binary_search(&item.path).is_err());
        let mut failed: Vec<(String, String)> = twice
            .into_iter()
            .map(|path| (path, "the query returns several rows with this external_id".to_string()))
            .collect();
        failed.dedup();
        let listing = Mutex::new(Listing { items, failed, problem, version: None });
        Ok(Rows { file, places, large, listing, has_title, has_uri })
    }
}

/// What a query has returned.
pub struct Rows {
    file: File,
    places: HashMap<String, (u64, usize)>,
    large: HashMap<String, usize>,
    listing: Mutex<Listing>,
    has_title: bool,
    has_uri: bool,
}

impl Rows {
    /// The row at a place, and its version.
    fn row(&self, (begin, size): (u64, usize)) -> io::Result<(String, QueryRow)> {
        let mut bytes = vec![0; size];
        self.file.read_exact_at(&mut bytes, begin)?;
        let mut rest = &bytes[..];
        let mut part = || {
            let (length, after) = rest.split_first_chunk::<8>()?;
            rest = after;
            let length =
                usize::try_from(u64::from_le_bytes(*length)).ok().filter(|length| *length <= after.len())?;
            let (text, after) = after.split_at(length);
            rest = after;
            Some(String::from_utf8_lossy(text).into_owned())
        };
        let (version, content) = (part().unwrap_or_default(), part().unwrap_or_default());
        let (title, uri, metadata) = (part(), part(), part().map(Json::new));
        Ok((version, QueryRow { content, title, uri, metadata }))
    }

    fn content(&self, path: &str) -> Content {
        if let Some(size) = self.large.get(path) {
            return Content::TooLarge(*size);
        }
        // The document has changed since the query was run, not the row.
        let Some(place) = self.places.get(path) else { return Content::Unchanged };
        match self.row(*place) {
            Ok((version, QueryRow { content, title, uri, metadata })) => Content::Read(Found {
                bytes: content.into_bytes(),
                version,
                described: Some(Described {
                    title,
                    uri,
                    metadata,
                    has_title: self.has_title,
                    has_uri: self.has_uri,
                }),
                ..Found::default()
            }),
            Err(error) => Content::Unreadable(format!("the row cannot be read again: {error}")),
        }
    }
}

impl Reader for Rows {
    /// What was listed, once.
    fn list(&self) -> Result<Listing> {
        Ok(std::mem::take(&mut *lock(&self.listing)))
    }

    fn read(&self, wanted: &[Wanted]) -> Result<Vec<Content>> {
        let (mut read, mut bytes) = (Vec::new(), 0);
        for item in wanted {
            if bytes > 0 && bytes + item.size > READ_BYTES {
                break;
            }
            bytes += item.size;
            read.push(self.content(&item.path));
        }
        Ok(read)
    }

    fn uri(&self, path: &str) -> String {
        path.to_string()
    }

    fn nothing(&self) -> String {
        "the query returns no row".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(content: &str) -> QueryRow {
        let metadata = Some(Json::new(r#"{"a": 1}"#));
        QueryRow { content: content.into(), title: Some(String::new()), uri: None, metadata }
    }

    #[test]
    fn rows_are_read_back_as_they_were_and_only_those_that_are_new() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = RowSpool::begin(dir.path(), 1).unwrap();
        spool.add("b".into(), "1".into(), Some(&row("Ä"))).unwrap();
        spool.add("a".into(), "2".into(), None).unwrap();
        spool.add_large("c".into(), "3".into(), 99);
        assert_eq!(spool.count(), 3);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let rows = spool.end(None).unwrap();
        let listed = rows.list().unwrap();
        let paths: Vec<&str> = listed.items.iter().map(|item| item.path.as_str()).collect();
        assert_eq!((paths, listed.problem), (vec!["a", "b", "c"], None));
        let wanted: Vec<Wanted> = listed
            .items
            .iter()
            .map(|item| Wanted { path: item.path.clone(), known: None, size: item.size })
            .collect();
        let read = rows.read(&wanted).unwrap();
        assert_eq!((&read[0], &read[2]), (&Content::Unchanged, &Content::TooLarge(99)));
        let Content::Read(found) = &read[1] else { panic!("{read:?}") };
        assert_eq!((&found.bytes[..], found.version.as_str()), ("Ä".as_bytes(), "1"));
        let described = found.described.clone().unwrap();
        assert_eq!((described.title.as_deref(), described.uri), (Some(""), None));
        assert_eq!(described.metadata.unwrap().as_str(), r#"{"a": 1}"#);
    }

    #[test]
    fn an_external_id_of_several_rows_fails_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = RowSpool::begin(dir.path(), 1).unwrap();
        for id in ["a", "b", "a", "a"] {
            spool.add(id.into(), "1".into(), Some(&row(id))).unwrap();
        }
        let listed = spool.end(None).unwrap().list().unwrap();
        assert_eq!((listed.items.len(), listed.failed.len()), (1, 1));
    }
}
