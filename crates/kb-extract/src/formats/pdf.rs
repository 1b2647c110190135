//! PDF: the text of each page in reading order, with headings where the size of their font tells them.
//! Headers and footers of pages stay.
//!
//! The library pdf_oxide finds the glyphs and their places, and `layout.rs` makes text of them.
//! bench/extract.md has the figures, beside what the library makes of them itself.

mod layout;

use super::Format;
use crate::sections::Sections;
use kb_types::Mark;
use kb_types::extraction::{Extraction, Fault, File};
use kb_types::sizes;
use pdf_oxide::extractors::xmp::{XmpExtractor, XmpMetadata};
use pdf_oxide::fonts::cmap::clear_cmap_cache;
use pdf_oxide::fonts::global_cache::clear_global_font_cache;
use pdf_oxide::object::{Object, ObjectRef};
use pdf_oxide::optional_content::decode_pdf_text_string;
use pdf_oxide::{Error, PdfDocument};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::thread;

pub const PDF: Format = Format {
    content_types: &["application/pdf", "application/x-pdf"],
    extensions: &["pdf"],
    is_text: false,
    read,
};

/// The most pages of a file. A page tree of a few bytes can have millions.
const MOST_PAGES: usize = 100_000;
/// How deep a page tree may be. The library follows it by recursion.
const MOST_DEPTH: usize = 50;
/// How many pages may be another one once more. The library searches for each of them from the first page.
const MOST_REPEATED: usize = 100;
/// The most bytes of a title.
const MOST_TITLE: usize = 2_000;
/// How many pages show what size the text has.
const FIRST_PAGES: usize = 6;
/// The library follows nested objects by recursion.
const STACK: usize = 64 * 1024 * 1024;

fn read(file: &File) -> Result<Extraction, Fault> {
    read_bytes(file.bytes.clone(), file.max_text)
}

/// Reads a file that nobody else needs any more: a copy of a large one would take too much memory.
pub fn read_bytes(bytes: Vec<u8>, max_text: usize) -> Result<Extraction, Fault> {
    // These caches live as long as the process and find fonts by a hash that a file can be made to collide
    // with, so the fonts of one document could change the text of another.
    clear_global_font_cache();
    clear_cmap_cache();
    let mut reading = Reading { most_text: max_text, ..Reading::default() };
    in_thread(|| reading.open(bytes)).unwrap_or_else(|| Err(broken("it cannot be opened")))?;
    // What panics here does so again when it is read.
    reading.usual_size = in_thread(|| reading.measure()).flatten();
    while reading.next < reading.pages {
        if let Some(ended) = in_thread(|| reading.read_pages()) {
            ended?;
        } else {
            reading.failed.push(reading.next);
            reading.next += 1;
        }
    }
    reading.finish()
}

/// Runs something in a thread of its own. Returns None if it panics: then the library may leave state of the
/// thread behind (the objects that it was resolving), which would spoil what is read next in that thread.
fn in_thread<T: Send>(run: impl FnOnce() -> T + Send) -> Option<T> {
    thread::scope(|scope| thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run).ok()?.join().ok())
}

/// A file that is being read. Pages are counted from 0.
#[derive(Default)]
struct Reading {
    document: Option<PdfDocument>,
    pages: usize,
    /// The page that is read, or the next one.
    next: usize,
    most_text: usize,
    /// The size of most of the text, by which headings are known.
    usual_size: Option<f32>,
    sections: Sections,
    title: Option<String>,
    metadata: Map<String, Value>,
    failed: Vec<usize>,
    images_only: Vec<usize>,
}

impl Reading {
    fn open(&mut self, bytes: Vec<u8>) -> Result<(), Fault> {
        let mut document = PdfDocument::from_bytes(bytes).map_err(fault)?;
        // A second copy of the file, which only the library's writers use.
        document.source_bytes = Vec::new();
        // The library has tried the empty password.
        if !document.is_authenticated() {
            return Err(Fault::Encrypted);
        }
        self.pages = count_pages(&document)?;
        self.read_metadata(&document);
        self.document = Some(document);
        Ok(())
    }

    /// The size of most of the text on the first pages, of which the library remembers the glyphs.
    fn measure(&self) -> Option<f32> {
        let document = self.document.as_ref()?;
        let pages = (0..self.pages.min(FIRST_PAGES)).filter_map(|page| document.extract_chars(page).ok());
        layout::usual_size(pages.flatten())
    }

    /// Reads pages until the last one, or until there is too much text.
    fn read_pages(&mut self) -> Result<(), Fault> {
        let Some(document) = &self.document else { return Ok(()) };
        while self.next < self.pages {
            match document.extract_chars(self.next).map(|glyphs| layout::html(&glyphs, self.usual_size)) {
                // The library says nothing of content that it cannot unpack.
                Ok(html) if html.trim().is_empty() => {
                    if document.get_page_content_data(self.next).is_err() {
                        self.failed.push(self.next);
                    } else if has_images(document, self.next) {
                        self.images_only.push(self.next);
                    }
                }
                Ok(html) => {
                    self.sections.begin(Mark::Page(number(self.next)));
                    self.sections.push_html(&html)?;
                }
                Err(Error::EncryptedPdf) => return Err(Fault::Encrypted),
                Err(_) => self.failed.push(self.next),
            }
            if self.sections.text.len() > self.most_text {
                return Err(Fault::TooLarge(format!("it has more than {} bytes of text", self.most_text)));
            }
            self.next += 1;
        }
        Ok(())
    }

    fn finish(self) -> Result<Extraction, Fault> {
        let Reading { mut metadata, .. } = self;
        if self.sections.text.trim().is_empty() {
            if !self.images_only.is_empty() {
                return Err(Fault::ImagesOnly);
            }
            if !self.failed.is_empty() {
                return Err(broken("none of its pages can be read"));
            }
        }
        metadata.insert("pages".into(), self.pages.into());
        for (key, pages) in [("pages_failed", self.failed), ("pages_images_only", self.images_only)] {
            if !pages.is_empty() {
                metadata.insert(key.into(), ranges(&pages).into());
            }
        }
        Ok(Extraction {
            text_type: "text/markdown".into(),
            text: self.sections.text,
            title: self.title,
            metadata,
            marks: self.sections.marks,
            ..Extraction::default()
        })
    }

    /// Title, author and so on: from the information dictionary, else from the XMP packet.
    fn read_metadata(&mut self, document: &PdfDocument) {
        let info = document.trailer().as_dict().and_then(|trailer| trailer.get("Info"));
        let info = info.map(|info| resolved(document, info));
        let of_info = |key: &str| {
            let value = info.as_ref()?.as_dict()?.get(key)?;
            text_of(&decode_pdf_text_string(resolved(document, value).as_string()?))
        };
        let xmp = XmpExtractor::extract(document).ok().flatten().unwrap_or_default();
        let of_xmp = |value: Option<String>| value.as_deref().and_then(text_of);
        let XmpMetadata { dc_title, dc_creator, dc_description, dc_subject, pdf_keywords, .. } = xmp;
        self.title = of_info("Title").or_else(|| of_xmp(dc_title));
        let language = document.catalog().ok();
        let language = language.as_ref().and_then(|catalog| catalog.as_dict()?.get("Lang"));
        let language = language
            .and_then(|value| text_of(&decode_pdf_text_string(resolved(document, value).as_string()?)));
        let values = [
            ("author", of_info("Author").or_else(|| of_xmp(Some(dc_creator.join(", "))))),
            ("subject", of_info("Subject").or_else(|| of_xmp(dc_description))),
            (
                "keywords",
                of_info("Keywords")
                    .or_else(|| of_xmp(pdf_keywords))
                    .or_else(|| of_xmp(Some(dc_subject.join(", ")))),
            ),
            (
                "created",
                of_info("CreationDate").as_deref().and_then(date).or_else(|| of_xmp(xmp.xmp_create_date)),
            ),
            (
                "modified",
                of_info("ModDate").as_deref().and_then(date).or_else(|| of_xmp(xmp.xmp_modify_date)),
            ),
            ("language", language.or_else(|| of_xmp(xmp.dc_language))),
        ];
        for (key, value) in values {
            if let Some(value) = value {
                self.metadata.insert(key.into(), value.into());
            }
        }
    }
}

/// How many pages there are. The library believes what the file says (`Count`), and follows a page tree
/// whose nodes share their children for ever.
fn count_pages(document: &PdfDocument) -> Result<usize, Fault> {
    let root = document.catalog().map_err(fault)?;
    let root = root.as_dict().and_then(|catalog| catalog.get("Pages")).and_then(Object::as_reference);
    let mut open: Vec<(ObjectRef, usize)> = root.map(|root| (root, 0)).into_iter().collect();
    let mut seen = HashSet::new();
    let (mut pages, mut repeated) = (0, 0);
    while let Some((node, depth)) = open.pop() {
        let Ok(object) = document.load_object(node) else { continue };
        let is_repeated = !seen.insert(node);
        let Some(kids) = object.as_dict().and_then(|node| node.get("Kids")) else {
            pages += usize::from(object.as_dict().is_some());
            repeated += usize::from(is_repeated);
            continue;
        };
        if is_repeated || depth > MOST_DEPTH {
            return Err(broken("its page tree has a cycle, or is too deep"));
        }
        let kids = resolved(document, kids);
        let kids = kids.as_array().into_iter().flatten().filter_map(Object::as_reference);
        open.extend(kids.map(|kid| (kid, depth + 1)));
        if pages + open.len() > MOST_PAGES {
            return Err(Fault::TooLarge(format!("it has more than {MOST_PAGES} pages")));
        }
    }
    if repeated > MOST_REPEATED {
        return Err(broken("its page tree has the same page many times"));
    }
    // The library finds pages of some files whose page tree is broken.
    let pages = if pages == 0 { document.page_count().map_err(fault)? } else { pages };
    if pages > MOST_PAGES {
        return Err(Fault::TooLarge(format!("it has more than {MOST_PAGES} pages")));
    }
    if pages == 0 { Err(broken("it has no pages")) } else { Ok(pages) }
}

/// Whether a page draws images. They are not decoded.
fn has_images(document: &PdfDocument, page: usize) -> bool {
    document.page_image_handles(page).is_ok_and(|images| !images.is_empty())
}

fn resolved(document: &PdfDocument, object: &Object) -> Object {
    match object.as_reference() {
        Some(reference) => document.load_object(reference).unwrap_or(Object::Null),
        None => object.clone(),
    }
}

/// The number of a page for readers, who count from 1.
fn number(page: usize) -> u32 {
    u32::try_from(page + 1).unwrap_or(u32::MAX)
}

/// Numbers of pages as people write them: 2, 5-9. A list of each page may be long.
fn ranges(pages: &[usize]) -> String {
    let runs = pages.chunk_by(|page, next| page + 1 == *next);
    let written = runs.filter_map(|run| match run {
        [] => None,
        [page] => Some(number(*page).to_string()),
        [first, .., last] => Some(format!("{}-{}", number(*first), number(*last))),
    });
    written.collect::<Vec<_>>().join(", ")
}

/// A text without what cannot be stored, which a font may map its glyphs to.
fn clean(text: &str) -> String {
    let kept = text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t'));
    kept.filter(|c| *c != '\u{feff}').collect()
}

/// A title or another value of metadata, unless it is empty.
fn text_of(value: &str) -> Option<String> {
    let value = clean(&value.replace(['\r', '\n'], " "));
    Some(sizes::cut(value.trim(), MOST_TITLE).to_string()).filter(|value| !value.is_empty())
}

/// A date of PDF, D:YYYYMMDDHHmmSSOHH'mm', in ISO 8601. All but the year may be missing.
fn date(value: &str) -> Option<String> {
    let value = value.strip_prefix("D:").unwrap_or(value);
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (digits, zone) = value.split_at(digits);
    let mut date = digits.get(..4)?.to_string();
    for (at, before) in [(4, "-"), (6, "-"), (8, "T"), (10, ":"), (12, ":")] {
        let Some(part) = digits.get(at..at + 2) else { break };
        date.push_str(before);
        date.push_str(part);
    }
    // ISO 8601 has no time of hours alone, and a zone only with a time.
    if digits.len() < 12 {
        date.truncate(10);
        return Some(date);
    }
    let zone = zone.replace('\'', "");
    match (zone.get(..1), zone.get(1..3), zone.get(3..5)) {
        (Some("Z"), ..) => date.push('Z'),
        (Some(sign @ ("+" | "-")), Some(hours), minutes) => {
            date.push_str(&format!("{sign}{hours}:{}", minutes.unwrap_or("00")));
        }
        _ => {}
    }
    Some(date)
}

fn broken(problem: &str) -> Fault {
    Fault::Broken(problem.into())
}

fn fault(error: Error) -> Fault {
    match error {
        Error::EncryptedPdf => Fault::Encrypted,
        error => {
            // The message may quote the file.
            let problem = clean(&error.to_string());
            Fault::Broken(problem.chars().take(200).collect())
        }
    }
}

#[cfg(test)]
mod tests;
