//! kb.import_files: reads files once, in the session.

use super::config::{Origin, SourceConfig, SourceType};
use super::create_source::{allowed, may_name_paths};
use super::reader::{Content, READ_BYTES, Reader, Wanted};
use super::work::given;
use crate::builds::knowledge_bases;
use crate::builds::knowledge_bases::KnowledgeBase;
use crate::documents::new_documents::NewDocument;
use crate::documents::put_document::{check_all, put_checked};
use crate::pg::{latch, report};
use crate::settings;
use crate::work::helper_thread;
use kb_types::error::{Error, Result};
use kb_types::row_states::PutStatus;
use kb_types::sizes;
use serde_json::json;
use std::sync::Arc;

/// Files that are read and put together, if they have few bytes.
const READ: usize = 64;
/// How many files that cannot be read are named.
const NAMED: i64 = 20;

/// How many files were added, updated, skipped because they are unchanged, and failed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ImportCounts {
    pub added: i64,
    pub updated: i64,
    pub skipped: i64,
    pub failed: i64,
}

/// Puts the files that a path matches, in the transaction of the caller. The documents belong to no source.
pub fn import_files(kb_id: &str, path: &str) -> Result<ImportCounts> {
    let kb = knowledge_bases::get_own(kb_id)?;
    may_name_paths()?;
    let wrong = |problems: Vec<String>| Error::configuration("files", problems);
    let allowed = allowed();
    let config = SourceConfig::parse(SourceType::Files, &json!({"path": path}), &allowed).map_err(wrong)?;
    let Origin::Folder(folder) = &config.origin else {
        return Err(Error::Internal("files are read as something else".into()));
    };
    let reader: Arc<dyn Reader> = Arc::new(folder.reader(&allowed).map_err(|problem| wrong(vec![problem]))?);
    let of = Arc::clone(&reader);
    let mut listing = helper_thread::begin(move || of.list())?;
    let listing = loop {
        match listing.take() {
            Some(listing) => break listing??,
            None => drop(latch::wait(latch::LONGEST)),
        }
        report::check_interrupts();
    };
    if let Some(problem) = listing.problem {
        return Err(wrong(vec![problem]));
    }
    if listing.items.is_empty() && listing.failed.is_empty() {
        report::warning(&reader.nothing());
    }
    let mut import = Import { kb, reader, counts: ImportCounts::default() };
    for (path, problem) in listing.failed {
        import.fail(&path, &problem);
    }
    let mut wanted = listing.items.into_iter().peekable();
    while wanted.peek().is_some() {
        let (mut some, mut bytes) = (Vec::new(), 0);
        while let Some(item) =
            wanted.next_if(|item| some.is_empty() || some.len() < READ && bytes + item.size <= READ_BYTES)
        {
            bytes += item.size;
            some.push(Wanted { path: item.path, known: None, size: item.size });
        }
        import.read(&some)?;
    }
    if import.counts.failed > NAMED {
        report::warning(&format!("{} more files were not read", import.counts.failed - NAMED));
    }
    Ok(import.counts)
}

struct Import {
    kb: KnowledgeBase,
    reader: Arc<dyn Reader>,
    counts: ImportCounts,
}

impl Import {
    fn fail(&mut self, path: &str, problem: &str) {
        self.counts.failed += 1;
        if self.counts.failed <= NAMED {
            report::warning(sizes::cut(&format!("\"{path}\" was not read: {problem}"), sizes::MESSAGE));
        }
    }

    /// Reads and puts files; the reader may read fewer at once.
    fn read(&mut self, mut wanted: &[Wanted]) -> Result<()> {
        while !wanted.is_empty() {
            report::check_interrupts();
            let contents = self.reader.read(wanted)?;
            let (read, rest) = wanted.split_at(contents.len().clamp(1, wanted.len()));
            let mut documents = Vec::new();
            for (item, content) in read.iter().zip(contents) {
                match self.document(&item.path, content) {
                    Ok(document) => documents.extend(document),
                    Err(error) if error.is_of_the_work() => self.fail(&item.path, &error.to_string()),
                    Err(error) => return Err(error),
                }
            }
            for (_, status) in put_checked(&self.kb, documents)? {
                match status {
                    PutStatus::Added => self.counts.added += 1,
                    PutStatus::Updated => self.counts.updated += 1,
                    PutStatus::Skipped => self.counts.skipped += 1,
                }
            }
            wanted = rest;
        }
        Ok(())
    }

    /// The document of a file; None if it is gone.
    fn document(&self, path: &str, content: Content) -> Result<Option<NewDocument>> {
        let external_id = path.to_string();
        let found = match content {
            Content::Read(found) => found,
            Content::Gone | Content::Unchanged => return Ok(None),
            Content::Unreadable(problem) => return Err(Error::Document { external_id, problem }),
            Content::TooLarge(size) => {
                return Err(Error::DocumentTooLarge {
                    external_id,
                    size,
                    limit: settings::max_document_size(),
                });
            }
        };
        let given = given(path, path, self.reader.uri(path), &json!({}), found)?;
        Ok(check_all(&self.kb, vec![given])?.pop())
    }
}
