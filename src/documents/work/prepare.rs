//! What is done to a document from its job to its chunks: read, prepare (off the main thread), write.
//!
//! `kb_text::rechunk` cuts only around an edit, so that chunks elsewhere keep their text, and `kb_text::diff`
//! gives these their old ids.
//!
//! **Invariant:** a bad document costs no other document. A group that cannot be read or written is done
//! again one by one, and a panic in a parser is caught per document.

use super::file_text::{self, Reader};
use super::parts;
use crate::documents::chunks;
use crate::documents::chunks::{Existing, OwnedChunk};
use crate::documents::stored;
use crate::documents::stored::{Locked, Stored};
use crate::extract::Program;
use crate::jobs::queue::Job;
use crate::keyword::words::{InAdvance, in_advance};
use crate::pg::pidfile::{self, Activity};
use crate::settings;
use crate::vectors::VectorDb;
use crate::work::{Target, Targets};
use foldhash::HashMap;
use kb_text::chunk::{Sentences, semantic_chunk};
use kb_text::chunk_settings::Strategy;
use kb_text::context;
use kb_text::diff::{Diff, Identity, diff};
use kb_text::model_answers::Consulted;
use kb_text::parse::{ContentType, Extracted, extract_bytes, extract_file};
use kb_text::rechunk::{PreviousChunk, rechunk};
use kb_text::tokenizer::Tokenizer;
use kb_types::error::{Error, Result};
use kb_types::extraction::{Extraction, File, Reading, VERSION};
use kb_types::sync::lock;
use kb_types::vector_db::question_problem;
use kb_types::{Bounds, Extractor, Limits};
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use uuid::Uuid;

/// Maximum size in bytes of a document whose words are looked up in advance, because what is found is kept in
/// memory until the document is written.
const WORDS_LOOKED_UP: usize = 1024 * 1024;

/// A document as it was read, with what it has in each build.
#[derive(Clone)]
pub struct Document {
    pub job: Job,
    pub stored: Stored,
    pub targets: Vec<(Arc<Target>, Vec<Existing>)>,
    /// What kb-extract has found in it, for each way in which its builds have it read.
    extractions: Vec<(Reading, Arc<Extraction>)>,
    /// The extraction service that finds its text instead, and its media type.
    service: Option<(Arc<Extractor>, String)>,
}

/// What preparing documents needs of the settings, which only the main thread reads.
#[derive(Debug, Clone)]
pub struct Means {
    pub model_dir: PathBuf,
    pub limits: Limits,
}

impl Means {
    pub fn read() -> Means {
        Means { model_dir: settings::model_dir(), limits: settings::limits(|| {}) }
    }
}

impl Document {
    /// The least memory in bytes that preparing it takes.
    pub fn size(&self) -> usize {
        self.stored.original.len() + self.extractions.iter().map(|(_, found)| found.text.len()).sum::<usize>()
    }

    /// The ways in which kb-extract is still to read it.
    fn wanted(&self) -> Vec<Reading> {
        let mut wanted = Vec::new();
        if self.service.is_some() {
            return wanted;
        }
        for reading in self.targets.iter().filter_map(|(target, _)| reading(&self.stored, target)) {
            if found(&self.extractions, reading).is_none() && !wanted.contains(&reading) {
                wanted.push(reading);
            }
        }
        wanted
    }

    /// Whether it is a file, or a page, that kb-extract is to read first.
    pub fn is_unread_file(&self) -> bool {
        !self.wanted().is_empty()
    }

    /// Finds the text of a file, or who is to be asked for it. Errors are the document's own.
    pub fn read_file(mut self, program: &Program, max_text: usize) -> Result<Document> {
        if let Some((target, _)) = self.targets.last().filter(|_| self.stored.file_name.is_some())
            && !target.extractors.is_empty()
        {
            let reading = target.build.preprocess.reading();
            let file = File {
                name: self.stored.file_name.clone(),
                content_type: Some(self.claimed_type()),
                bytes: self.stored.original.clone(),
                max_text,
                reading,
            };
            let reader = file_text::reader(&file, &self.job.external_id, target, program);
            match reader.map_err(|error| error.of_document(&self.job.external_id))? {
                Reader::Service(extractor, content_type) => {
                    return Ok(Document { service: Some((extractor, content_type)), ..self });
                }
                Reader::Program(Some(found)) => self.extractions.push((reading, Arc::new(found))),
                Reader::Program(None) => {}
            }
        }
        let mut wanted = self.wanted();
        while let Some(reading) = wanted.pop() {
            // A page that was put as text stays in its row, and is compared with it.
            let is_last = wanted.is_empty() && self.stored.file_name.is_some();
            let file = File {
                name: self.stored.file_name.clone(),
                content_type: Some(self.claimed_type()),
                bytes: match is_last {
                    true => std::mem::take(&mut self.stored.original),
                    false => self.stored.original.clone(),
                },
                max_text,
                reading,
            };
            let found = program.extract(file, &self.job.external_id);
            let found = found.map_err(|error| error.of_document(&self.job.external_id))?;
            self.extractions.push((reading, Arc::new(found)));
        }
        Ok(self)
    }

    /// The media type that kb-extract is told. The charset that a file was put with is not in the type that
    /// was found in it.
    fn claimed_type(&self) -> String {
        let Stored { content_type, file_name, charset, .. } = &self.stored;
        match (file_name, charset) {
            (None, _) => format!("{content_type}; charset=utf-8"),
            (Some(_), Some(charset)) if !content_type.contains("charset") => {
                format!("{content_type}; charset={charset}")
            }
            (Some(_), _) => content_type.clone(),
        }
    }

    /// Whether models or services are asked before it can be cut.
    pub fn asks_models(&self) -> bool {
        self.targets.iter().any(|(target, _)| target.asks_models()) || self.service.is_some()
    }

    /// The extraction service that is asked for its text.
    pub fn asked_extractor(&self) -> Option<&str> {
        self.service.as_ref().map(|(extractor, _)| extractor.id.as_str())
    }
}

/// How kb-extract is to read a document for a build. None: it is no file, and kb reads it itself.
fn reading(stored: &Stored, target: &Target) -> Option<Reading> {
    let reading = target.build.preprocess.reading();
    let is_page = || ContentType::parse(&stored.content_type) == Some(ContentType::Html);
    let is_read = stored.file_name.is_some() || reading.main_content && is_page();
    is_read.then_some(reading)
}

fn found(extractions: &[(Reading, Arc<Extraction>)], reading: Reading) -> Option<&Arc<Extraction>> {
    extractions.iter().find(|(of, _)| *of == reading).map(|(_, found)| found)
}

/// Reads a job's document; None when it is gone or was edited since the claim.
pub fn read(job: &Job, targets: &mut Targets) -> Result<Option<Document>> {
    let Some(stored) = stored::read(job)? else { return Ok(None) };
    let mut with_existing = Vec::new();
    for target in targets.of(job.kb_no)? {
        let existing = chunks::existing(stored.document_id, target.build.build_no)?;
        let target = match &stored.chunking {
            Some(chunking) => Arc::new(target.cut_by(chunking)?),
            None => target,
        };
        with_existing.push((target, existing));
    }
    let job = job.clone();
    Ok(Some(Document { job, stored, targets: with_existing, extractions: Vec::new(), service: None }))
}

/// What is to be written for a document.
pub struct Prepared {
    pub job: Job,
    pub document_id: i64,
    /// Settings of the last build: what the document is made under now.
    pub settings: String,
    /// It never had chunks before.
    pub is_new: bool,
    pub targets: Vec<(Arc<Target>, Diff)>,
    /// What is known of the words of new chunks, by build.
    words: HashMap<(i64, Uuid), InAdvance>,
    /// (original, content), where the row must change.
    text: Option<(Option<Vec<u8>>, String)>,
    title: Option<String>,
    /// What was found in it, if it is a file.
    extraction: Option<Arc<Extraction>>,
    /// The version of what found it.
    extractor: String,
    /// What models said of it, where the row must change.
    answers: Option<Option<Vec<u8>>>,
}

/// Parses, cuts and compares. Calls nothing of PostgreSQL. None: what `consulted` wants is to be asked first.
/// Errors are the document's own.
pub fn prepare(
    document: Document,
    means: &Means,
    consulted: &mut Consulted,
) -> Result<Option<Prepared>, (Job, Error)> {
    let job = document.job.clone();
    consulted.begin();
    // Documents are prepared one at a time, so that the next worker knows which one killed this worker.
    let _one = lock(&PREPARING);
    pidfile::note(Activity::Prepare, Some(job.job_no));
    // A library that panics on one document must not cost the others.
    let attempt = std::panic::AssertUnwindSafe(|| prepare_document(document, means, consulted));
    let prepared = std::panic::catch_unwind(attempt).unwrap_or_else(|_| {
        Err(Error::Internal("this document cannot be parsed or split into chunks".into()))
    });
    pidfile::note(Activity::Prepare, None);
    prepared.map_err(|error| {
        let error = error.of_document(&job.external_id);
        (job, error)
    })
}

/// Held while a document is parsed and cut, on whichever thread.
static PREPARING: Mutex<()> = Mutex::new(());

fn prepare_document(
    document: Document,
    means: &Means,
    consulted: &mut Consulted,
) -> Result<Option<Prepared>> {
    let Document { job, stored, targets, extractions, service } = document;
    let bounds = &Bounds::begin(means.limits);
    let (mut of_service, mut extractor) = (None, VERSION.to_string());
    if let Some((service, content_type)) = &service {
        let file = File {
            name: stored.file_name.clone(),
            content_type: Some(content_type.clone()),
            bytes: stored.original.clone(),
            max_text: means.limits.bytes,
            ..File::default()
        };
        let build_no = targets.last().map_or(0, |(target, _)| target.build.build_no);
        match file_text::of_service(service, content_type, file, build_no, bounds, consulted)? {
            Some(found) => of_service = Some(Arc::new(found)),
            None => return Ok(None),
        }
        extractor = service.version();
    }
    let found = |reading| of_service.as_ref().or_else(|| found(&extractions, reading));
    let mut prepared = Vec::new();
    let (mut settings, mut text, mut title) = (String::new(), String::new(), None);
    let in_next = targets.iter().any(|(target, _)| target.is_next());
    // A file whose text no build can take keeps what was found in it.
    let last = targets.last().and_then(|(target, _)| found(reading(&stored, target)?));
    let mut extraction = last.filter(|_| stored.file_name.is_some()).cloned();
    for (target, existing) in targets {
        let read = reading(&stored, &target).map(found);
        let original = match read {
            Some(Some(extraction)) => Original::File(extraction),
            Some(None) => {
                return Err(Error::Internal("a file was not read before it was prepared".into()));
            }
            None => Original::Text(
                &stored.original,
                ContentType::parse(&stored.content_type).ok_or_else(|| Error::ContentType {
                    external_id: job.external_id.clone(),
                    content_type: stored.content_type.clone(),
                })?,
            ),
        };
        let before: Vec<Uuid> = existing.iter().map(|e| e.chunk_id).collect();
        let of = Arc::clone(&target);
        match prepare_for(&job, &stored, original, of, existing, means, bounds, consulted) {
            Ok(None) => {}
            Ok(Some(found)) => {
                if let (Some(_), Some(Some(of_build))) = (&stored.file_name, read) {
                    extraction = Some(Arc::clone(of_build));
                }
                settings = found.target.build.settings();
                text = found.extracted.text;
                title = found.extracted.title;
                prepared.push((found.target, found.diff));
            }
            // But questions must not find text that is gone.
            Err(_) if target.may_fail(in_next) => {
                if stored.is_edited {
                    prepared.push((target, Diff { delete: before, ..Diff::default() }));
                }
            }
            Err(error) => return Err(error),
        }
    }
    if !consulted.is_complete() {
        return Ok(None);
    }
    let answers = consulted.used.encode()?;
    let mut words = HashMap::default();
    let looked_up = if text.len() <= WORDS_LOOKED_UP { &prepared[..] } else { &[] };
    for (Target { build, .. }, diff) in looked_up.iter().map(|(target, diff)| (&**target, diff)) {
        for (chunk_id, _, chunk) in &diff.insert {
            let known = in_advance(&build.preprocess.language, &chunk.whole());
            words.extend(known.map(|known| ((build.build_no, *chunk_id), known)));
        }
    }
    let text = match (text.as_bytes() == stored.original, stored.has_original) {
        _ if stored.file_name.is_some() => Some((None, text)),
        (true, false) => None,
        (true, true) => Some((None, text)),
        (false, _) => Some((Some(stored.original), text)),
    };
    Ok(Some(Prepared {
        document_id: stored.document_id,
        settings,
        is_new: stored.settings.is_none(),
        targets: prepared,
        words,
        text,
        title,
        extraction,
        extractor,
        answers: (answers != stored.answers).then_some(answers),
        job,
    }))
}

/// Where a document's text is from.
#[derive(Clone, Copy)]
enum Original<'a> {
    Text(&'a [u8], ContentType),
    File(&'a Extraction),
}

impl Original<'_> {
    /// Whether its text is CSV.
    fn is_table(self) -> bool {
        match self {
            Original::Text(_, content_type) => content_type == ContentType::Csv,
            Original::File(extraction) => ContentType::parse(&extraction.text_type) == Some(ContentType::Csv),
        }
    }
}

/// What one build makes of a document.
struct Found {
    target: Arc<Target>,
    extracted: Extracted,
    diff: Diff,
}

#[allow(clippy::too_many_arguments)]
fn prepare_for(
    job: &Job,
    stored: &Stored,
    original: Original,
    target: Arc<Target>,
    existing: Vec<Existing>,
    means: &Means,
    bounds: &Bounds,
    consulted: &mut Consulted,
) -> Result<Option<Found>> {
    let Target { build, embedder, chunking, .. } = &*target;
    let extracted = match original {
        Original::Text(bytes, content_type) => extract_bytes(bytes, content_type, &build.preprocess, bounds)?,
        Original::File(extraction) => extract_file(extraction, &build.preprocess, bounds)?,
    };
    let tokenizer = Tokenizer::for_chunking(chunking, embedder, &means.model_dir)?;
    let mut pieces = if chunking.strategy == Strategy::Semantic {
        let sentences = Sentences::of(&extracted.text, chunking, &tokenizer, bounds)?;
        let distances = consulted.distances(build.build_no, build.fingerprint, &sentences.texts())?;
        let Some(distances) = distances else { return Ok(None) };
        semantic_chunk(&sentences, &distances, chunking, &tokenizer, &extracted.marks, bounds)?
    } else {
        // Chunks made under other settings say nothing about where today's cuts would be.
        let is_same = stored.settings.as_deref() == Some(build.settings().as_str());
        let previous = if is_same { &existing[..] } else { &[] };
        let previous: Vec<PreviousChunk> = previous
            .iter()
            .map(|e| PreviousChunk {
                content: e.content.clone(),
                start: e.start,
                end: e.end,
                token_count: e.token_count,
            })
            .collect();
        rechunk(&extracted.text, chunking, &tokenizer, &extracted.marks, &previous, bounds)?
    };
    let title = stored.title.as_deref().or(extracted.title.as_deref());
    if let Some(template) = &chunking.context {
        context::give(&mut pieces, template, title, &tokenizer, bounds)?;
    }
    if let Some(row) = &target.llm {
        let whose = (build.build_no, &row.llm()?);
        let text = &extracted.text;
        if !context::situate(&mut pieces, text, title, whose, consulted, &tokenizer, bounds)? {
            return Ok(None);
        }
    }
    if original.is_table() && chunking.strategy == Strategy::Rows {
        context::name_columns(&mut pieces, &extracted.text, &tokenizer, bounds)?;
    }
    let known: Vec<(Uuid, [u8; 32])> = existing
        .iter()
        .filter_map(|e| Some((e.chunk_id, <[u8; 32]>::try_from(e.content_hash.as_slice()).ok()?)))
        .collect();
    let other_tenant = (job.tenant_id != build.tenant_id).then_some(job.tenant_id.as_str());
    let document = Identity { kb_no: job.kb_no, other_tenant, external_id: &job.external_id };
    let diff = diff(document, &known, pieces);
    Ok(Some(Found { target, extracted, diff }))
}

/// The only chunk of a row, and the vector that the row had already, where that is one of the build's.
fn adopted<'a>(document: &'a Prepared, target: &Target, diff: &Diff) -> Option<(Uuid, &'a [f32])> {
    let build = &target.build;
    let (Some((fingerprint, vector)), [(chunk_id, _, _)], []) =
        (&document.job.adopted, &diff.insert[..], &diff.keep[..])
    else {
        return None;
    };
    let VectorDb { dimension, metric, element, .. } = *target.vector_db();
    // It is the vector of the text without the context.
    let fits = !target.chunking.has_context()
        && *fingerprint == build.fingerprint
        && vector.len() == dimension
        && question_problem(metric, element, vector).is_none();
    fits.then_some((*chunk_id, &vector[..]))
}

/// What some documents become in one build: the new chunks of all together, and the vectors that rows had.
fn write_chunks(target: &Target, diffs: &[(&Prepared, &Diff)], carefully: bool) -> Result<()> {
    let build = &target.build;
    let mut inserted = Vec::new();
    for (document, diff) in diffs {
        chunks::delete(build.build_no, &diff.delete)?;
        let whose = document.job.tenant_id.as_str();
        inserted.extend(diff.insert.iter().zip(&diff.hashes).map(|(chunk, hash)| OwnedChunk {
            document_id: document.document_id,
            tenant_id: whose,
            chunk,
            hash,
            words: document.words.get(&(build.build_no, chunk.0)),
        }));
    }
    chunks::insert(build, &inserted, carefully)?;
    for (_, diff) in diffs {
        chunks::update_places(build.build_no, &diff.keep)?;
    }
    let adopted = diffs.iter().filter_map(|(document, diff)| adopted(document, target, diff));
    let (ids, vectors): (Vec<Uuid>, Vec<&[f32]>) = adopted.unzip();
    if !ids.is_empty() {
        target.vectors().write(build.build_no, build.fingerprint, &ids, &vectors.concat())?;
    }
    Ok(())
}

/// Whether texts of a document may have vectors in one of these builds, of other chunks or from an earlier
/// time. Looked up before anything is joined: most texts are new.
fn may_have_vectors(diff: &Diff, builds: &[i64]) -> bool {
    let is_there = |hash: &[u8; 32]| builds.iter().any(|build| chunks::may_have(*build, hash));
    !diff.keep.is_empty() || diff.hashes.iter().any(is_there)
}

/// What was written.
pub struct WrittenGroup {
    pub locked: Locked,
    /// Builds and documents of which every chunk is new and has no vector.
    pub without_vectors: HashSet<(i64, i64)>,
}

/// Writes chunks of documents that are still at the generation they were read at; gone text is deleted in the
/// same commit. Those that are `current` are written; the others were edited, or are being edited, and are
/// done again. `carefully`: see [`chunks::insert`].
pub fn write(prepared: &[Prepared], carefully: bool) -> Result<WrittenGroup> {
    let keys: Vec<(i64, i64)> = prepared.iter().map(|p| (p.document_id, p.job.generation)).collect();
    let locked = stored::lock_current(&keys)?;
    let current = &locked.current;
    let written: Vec<&Prepared> = prepared.iter().filter(|p| current.contains(&p.document_id)).collect();
    let mut by_build: BTreeMap<i64, (Arc<Target>, Vec<(&Prepared, &Diff)>)> = BTreeMap::new();
    for document in &written {
        for (target, diff) in &document.targets {
            let of_build =
                by_build.entry(target.build.build_no).or_insert_with(|| (target.clone(), Vec::new()));
            of_build.1.push((document, diff));
        }
    }
    for (target, diffs) in by_build.values() {
        write_chunks(target, diffs, carefully)?;
    }
    let mut extracted = Vec::new();
    for document in written {
        let title = document.title.as_deref();
        match (&document.text, title) {
            (Some((_, text)), _) if document.extraction.is_some() => {
                let Some(extraction) = &document.extraction else { continue };
                let extractor = &document.extractor;
                stored::set_extracted_file(document.document_id, text, title, extraction, extractor)?;
                let owner = document.targets.first().map(|(target, _)| target.build.tenant_id.as_str());
                let owner = owner.unwrap_or(&document.job.tenant_id);
                parts::put(document.document_id, &document.job, owner, extraction.parts.clone())?;
            }
            (None, None) => extracted.push(document.document_id),
            (text, title) => {
                let text = text.as_ref().map(|(original, content)| (original.as_deref(), content.as_str()));
                stored::set_extracted(document.document_id, text, title)?;
            }
        }
        if let Some(answers) = &document.answers {
            stored::set_answers(document.document_id, answers.as_deref())?;
        }
    }
    stored::set_extracted_as_they_are(&extracted)?;
    // The live build comes first (it is older), and lends its vectors to the next one of its knowledge base.
    let mut live: BTreeMap<i64, Arc<Target>> = BTreeMap::new();
    let mut without_vectors = HashSet::new();
    for (build_no, (target, diffs)) in by_build {
        let build = &target.build;
        let lender = live.get(&build.kb_no).map(|live| (live.vector_db(), live.build.build_no));
        let from: Vec<i64> = lender.iter().map(|(_, lender)| *lender).chain([build_no]).collect();
        // Vectors that rows brought are in no snapshot yet, and others of the group may have the same texts.
        let adopts = diffs.iter().any(|(document, _)| document.job.adopted.is_some());
        let may_have = |(_, diff): &(&Prepared, &Diff)| adopts || may_have_vectors(diff, &from);
        let id = |(document, _): (&Prepared, &Diff)| document.document_id;
        let (with, without): (Vec<_>, Vec<_>) = diffs.into_iter().partition(may_have);
        let document_ids: Vec<i64> = with.into_iter().map(id).collect();
        // One that was there already may have its vector, too.
        if !carefully {
            without_vectors.extend(without.into_iter().map(|document| (build_no, id(document))));
        }
        if !document_ids.is_empty() {
            target.vectors().reuse(build_no, build.fingerprint, &document_ids, lender)?;
        }
        if target.is_live() {
            live.insert(build.kb_no, Arc::clone(&target));
        }
    }
    Ok(WrittenGroup { locked, without_vectors })
}
