//! A folder in the format of the BEIR benchmark: corpus.jsonl, queries.jsonl, and judgements in qrels.tsv
//! or in qrels/test.tsv, dev.tsv or train.tsv.

use crate::commands::load::send::{Read, Source};
use crate::commands::load::{Content, Document, Reading, content_hash};
use crate::exit::{Error, Result};
use serde::Deserialize;
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The splits, in the order in which they are looked for.
const SPLITS: [&str; 3] = ["test", "dev", "train"];
/// The most lines and bytes that are read at once.
const BATCH: usize = 500;
const BATCH_BYTES: usize = 4 << 20;
/// The server takes no larger argument.
const MOST_BYTES: u64 = 900 << 20;

/// The files of a collection.
#[derive(Debug, PartialEq, Eq)]
pub struct Collection {
    /// The folder's name.
    pub name: String,
    pub corpus: Option<PathBuf>,
    queries: PathBuf,
    qrels: PathBuf,
}

/// A line of queries.jsonl, as far as it is read.
#[derive(Deserialize)]
struct Query {
    _id: String,
}

/// A line of corpus.jsonl.
#[derive(Deserialize)]
struct Text {
    _id: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    text: Option<String>,
}

impl Collection {
    pub fn open(folder: &Path, split: Option<&str>) -> Result<Collection> {
        let of_split = |split: &str| folder.join("qrels").join(format!("{split}.tsv"));
        let candidates: Vec<PathBuf> = match split {
            Some(split) => vec![of_split(split)],
            None => [folder.join("qrels.tsv")].into_iter().chain(SPLITS.map(of_split)).collect(),
        };
        let Some(qrels) = candidates.iter().find(|file| file.is_file()) else {
            let names: Vec<String> = candidates.iter().map(|file| file.display().to_string()).collect();
            return Err(Error::failed(format!("no judgements: there is no {}", names.join(", "))));
        };
        let queries = folder.join("queries.jsonl");
        if !queries.is_file() {
            return Err(Error::failed(format!("no questions: there is no {}", queries.display())));
        }
        let named = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
        let name =
            named.file_name().map_or_else(|| "beir".into(), |name| name.to_string_lossy().into_owned());
        let corpus = folder.join("corpus.jsonl");
        Ok(Collection { name, corpus: corpus.is_file().then_some(corpus), queries, qrels: qrels.clone() })
    }

    /// The lines of the questions that are judged, and of the judgements. Most collections have many
    /// questions without judgements, which the server would only leave out.
    pub fn questions(&self) -> Result<(String, String)> {
        let size = std::fs::metadata(&self.qrels).map_err(|error| Error::file(&self.qrels, &error))?.len();
        if size > MOST_BYTES {
            return Err(Error::failed(format!("{} is too large", self.qrels.display())));
        }
        let qrels = std::fs::read_to_string(&self.qrels).map_err(|error| Error::file(&self.qrels, &error))?;
        let judged: HashSet<&str> = qrels.lines().filter_map(|line| line.split('\t').next()).collect();
        let mut queries = String::new();
        for (number, line) in (1..).zip(lines(&self.queries)?) {
            let line = line?;
            if line.trim().is_empty() {
                continue;
            }
            let query: Query =
                serde_json::from_str(&line).map_err(|error| wrong(&self.queries, number, &error))?;
            if judged.contains(query._id.as_str()) {
                queries.push_str(&line);
                queries.push('\n');
            }
        }
        Ok((queries, qrels))
    }
}

fn wrong(file: &Path, number: usize, error: &serde_json::Error) -> Error {
    Error::failed(format!("{}, line {number}: {error}", file.display()))
}

/// The lines of a file, with the file in the error.
fn lines(file: &Path) -> Result<impl Iterator<Item = Result<String>> + use<>> {
    let opened = File::open(file).map_err(|error| Error::file(file, &error))?;
    let file = file.to_path_buf();
    Ok(BufReader::new(opened).lines().map(move |line| line.map_err(|error| Error::file(&file, &error))))
}

/// The documents of a collection.
pub struct Corpus {
    file: PathBuf,
    /// The lines that are left, and the number of the last one.
    left: Mutex<(BufReader<File>, usize)>,
}

/// A line, and its number.
pub struct Line {
    number: usize,
    bytes: Vec<u8>,
}

impl Corpus {
    pub fn open(file: &Path) -> Result<Corpus> {
        let opened = File::open(file).map_err(|error| Error::file(file, &error))?;
        Ok(Corpus { file: file.to_path_buf(), left: Mutex::new((BufReader::new(opened), 0)) })
    }

    /// The number of lines.
    pub fn count(file: &Path) -> Result<u64> {
        let mut opened = BufReader::new(File::open(file).map_err(|error| Error::file(file, &error))?);
        let mut count = 0;
        loop {
            let buffer = opened.fill_buf().map_err(|error| Error::file(file, &error))?;
            if buffer.is_empty() {
                return Ok(count);
            }
            count += buffer.iter().filter(|byte| **byte == b'\n').count() as u64;
            let length = buffer.len();
            opened.consume(length);
        }
    }

    /// The ids of the documents.
    pub fn ids(self) -> impl Iterator<Item = Result<String>> {
        let file = self.file;
        let (reader, _) = self.left.into_inner().unwrap_or_else(PoisonError::into_inner);
        let lines = (1..)
            .zip(reader.lines())
            .filter(|(_, line)| line.as_ref().map_or(true, |line| !line.trim().is_empty()));
        lines.map(move |(number, line)| {
            let line = line.map_err(|error| Error::file(&file, &error))?;
            let query: Query = serde_json::from_str(&line).map_err(|error| wrong(&file, number, &error))?;
            Ok(query._id)
        })
    }
}

impl Source for Corpus {
    type Item = Line;

    fn take(&self) -> Vec<Line> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let (reader, number) = &mut *left;
        let (mut taken, mut size) = (Vec::new(), 0);
        while taken.len() < BATCH && size < BATCH_BYTES {
            let mut bytes = Vec::new();
            // What cannot be read is reported as a line that is no JSON.
            match reader.read_until(b'\n', &mut bytes) {
                Ok(0) | Err(_) if bytes.is_empty() => break,
                _ => {}
            }
            *number += 1;
            size += bytes.len();
            if !bytes.trim_ascii().is_empty() {
                taken.push(Line { number: *number, bytes });
            }
        }
        taken
    }

    fn read(&self, line: Line) -> Read {
        let size = line.bytes.len() as u64;
        let path = format!("{}, line {}", self.file.display(), line.number);
        let reading = match serde_json::from_slice::<Text>(&line.bytes) {
            Ok(text) => Reading::Ready(document(path.clone(), text, size)),
            Err(error) => Reading::Failed(error.to_string()),
        };
        Read { path, size, reading }
    }
}

/// The text has the title before it, as the benchmark has it.
fn document(path: String, given: Text, size: u64) -> Document {
    // A text in PostgreSQL has no NUL.
    let [title, text] = [given.title, given.text].map(|text| text.unwrap_or_default().replace('\0', " "));
    let title = title.trim();
    let text = format!("{title} {text}").trim().to_string();
    let content = Content::Text { content_type: "text/plain", title: None, text };
    let hash = content_hash(&content);
    Document { path, external_id: given._id, uri: String::new(), content, hash, listed_size: size, size }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let place = folder.path().join(name);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, content).unwrap();
        }
        folder
    }

    #[test]
    fn judgements_are_those_of_the_split_or_of_the_first_that_there_is() {
        let files = [("queries.jsonl", ""), ("qrels/dev.tsv", ""), ("qrels/train.tsv", "")];
        let folder = folder(&files);
        let qrels = |split| Collection::open(folder.path(), split).map(|found| found.qrels);
        assert_eq!(qrels(None).unwrap(), folder.path().join("qrels/dev.tsv"));
        assert_eq!(qrels(Some("train")).unwrap(), folder.path().join("qrels/train.tsv"));
        assert!(qrels(Some("test")).unwrap_err().message.contains("qrels/test.tsv"));
        assert!(Collection::open(&folder.path().join("qrels"), None).is_err());
    }

    #[test]
    fn only_questions_that_are_judged_are_sent() {
        let folder = folder(&[
            ("queries.jsonl", "{\"_id\": \"1\", \"text\": \"one\"}\n\n{\"_id\": \"2\", \"text\": \"two\"}\n"),
            ("qrels.tsv", "query-id\tcorpus-id\tscore\n2\td\t1\n"),
        ]);
        let collection = Collection::open(folder.path(), None).unwrap();
        assert_eq!(collection.corpus, None);
        assert_eq!(collection.questions().unwrap().0, "{\"_id\": \"2\", \"text\": \"two\"}\n");
        fs::write(folder.path().join("queries.jsonl"), "{\"_id\": \"1\"}\nnonsense\n").unwrap();
        assert!(collection.questions().unwrap_err().message.contains("queries.jsonl, line 2: "));
    }

    #[test]
    fn the_title_of_a_document_comes_before_its_text() {
        let folder = folder(&[(
            "corpus.jsonl",
            "{\"_id\": \"a\", \"title\": \"T\", \"text\": \"x\\u0000y\"}\n\n{\"_id\": \"b\", \"text\": \"z\"}\nno\n",
        )]);
        let corpus = Corpus::open(&folder.path().join("corpus.jsonl")).unwrap();
        let read: Vec<Read> = corpus.take().into_iter().map(|line| corpus.read(line)).collect();
        let texts: Vec<&str> = (read.iter())
            .filter_map(|read| match &read.reading {
                Reading::Ready(Document { content: Content::Text { text, .. }, .. }) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(texts, ["T x y", "z"]);
        assert!(read[2].path.ends_with("corpus.jsonl, line 4"), "{}", read[2].path);
        assert!(matches!(read[2].reading, Reading::Failed(_)));
        assert!(corpus.take().is_empty());
    }
}
