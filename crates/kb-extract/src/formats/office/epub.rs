//! Electronic books (EPUB 2 and 3): chapters in the order of the book. Tables of contents are left out.

use super::blocks::Blocks;
use super::package::{Package, resolve};
use super::properties::{Properties, clean};
use super::xml::Xml;
use crate::formats::Format;
use crate::sections::escape;
use kb_types::extraction::{Extraction, Fault, File};
use percent_encoding::percent_decode_str;
use quick_xml::Reader;
use quick_xml::events::Event;
use std::collections::HashMap;

pub const EPUB: Format =
    Format { content_types: &["application/epub+zip"], extensions: &["epub"], is_text: false, read };

/// Elements that have no end tag in HTML.
const VOID: [&str; 13] =
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"];

fn read(file: &File) -> Result<Extraction, Fault> {
    let mut package = Package::open(&file.bytes)?;
    refuse_encrypted(&mut package)?;
    let name = root(&package.needed("META-INF/container.xml")?)?;
    let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder).to_string();
    let book = Book::read(&package.needed(&name)?, &folder)?;
    let titles = book.titles(&mut package)?;
    let mut blocks = Blocks::of_document(file.max_text);
    for id in &book.spine {
        let Some(item) = book.items.get(id).filter(|item| item.is_page && !item.is_contents) else {
            continue;
        };
        let html = as_html(&package.needed(&item.name)?);
        blocks.page(&html, titles.get(&item.name).cloned())?;
    }
    let has_images = book.items.values().any(|item| item.is_image);
    blocks.into_extraction(book.properties.title, book.properties.metadata, has_images)
}

/// Books with other encrypted parts than fonts cannot be read.
fn refuse_encrypted(package: &mut Package) -> Result<(), Fault> {
    let text = package.text("META-INF/encryption.xml")?.unwrap_or_default();
    let mut xml = Xml::new(&text);
    let mut open = 0_usize;
    loop {
        match xml.child()? {
            Some(element) => {
                open += 1;
                let name = element.attribute("URI").unwrap_or_default().to_ascii_lowercase();
                if [".xhtml", ".html", ".htm", ".xml"].iter().any(|ending| name.ends_with(ending)) {
                    return Err(Fault::Encrypted);
                }
            }
            None if open == 0 => return Ok(()),
            None => open -= 1,
        }
    }
}

/// The name of the part that describes the book.
fn root(container: &str) -> Result<String, Fault> {
    let mut xml = Xml::new(container);
    let mut open = 0_usize;
    loop {
        match xml.child()? {
            Some(element) => {
                open += 1;
                if let Some(path) = element.attribute("full-path") {
                    return Ok(resolve("", &path));
                }
            }
            None if open == 0 => return Err(Fault::Broken("its container names no book".into())),
            None => open -= 1,
        }
    }
}

#[derive(Default)]
struct Book {
    properties: Properties,
    items: HashMap<String, Item>,
    /// The ids of the items in the order of reading.
    spine: Vec<String>,
}

struct Item {
    name: String,
    is_page: bool,
    is_image: bool,
    /// Whether it is the table of contents of EPUB 3.
    is_contents: bool,
    /// Whether it is the table of contents of EPUB 2.
    is_ncx: bool,
}

impl Book {
    fn read(text: &str, folder: &str) -> Result<Book, Fault> {
        let mut book = Book::default();
        let mut xml = Xml::new(text);
        xml.child()?;
        while let Some(element) = xml.child()? {
            match element.name() {
                "metadata" => book.metadata(&mut xml)?,
                "manifest" => {
                    while let Some(item) = xml.child()? {
                        let kind = item.attribute("media-type").unwrap_or_default();
                        let properties = item.attribute("properties").unwrap_or_default();
                        if let (Some(id), Some(href)) = (item.attribute("id"), item.attribute("href")) {
                            let item = Item {
                                name: part_name(folder, &href),
                                is_page: matches!(kind.as_str(), "application/xhtml+xml" | "text/html"),
                                is_image: kind.starts_with("image/"),
                                is_contents: properties.split_whitespace().any(|property| property == "nav"),
                                is_ncx: kind == "application/x-dtbncx+xml",
                            };
                            book.items.insert(id, item);
                        }
                        xml.skip()?;
                    }
                }
                "spine" => {
                    while let Some(item) = xml.child()? {
                        book.spine.extend(item.attribute("idref"));
                        xml.skip()?;
                    }
                }
                _ => xml.skip()?,
            }
        }
        Ok(book)
    }

    fn metadata(&mut self, xml: &mut Xml) -> Result<(), Fault> {
        while let Some(element) = xml.child()? {
            let property = element.attribute("property");
            let key = match (element.name(), property.as_deref()) {
                ("title", _) => "title",
                ("creator", _) => "author",
                ("language", _) => "language",
                ("subject", _) => "subject",
                ("publisher", _) => "publisher",
                ("date", _) => "published",
                ("meta", Some("dcterms:modified")) => "modified",
                // EPUB 2 nests these elements in some books.
                ("dc-metadata", _) => {
                    self.metadata(xml)?;
                    continue;
                }
                _ => {
                    xml.skip()?;
                    continue;
                }
            };
            self.properties.add(key, &xml.text()?);
        }
        Ok(())
    }

    /// The titles of pages by the table of contents.
    fn titles(&self, package: &mut Package) -> Result<HashMap<String, String>, Fault> {
        let mut titles = HashMap::new();
        for item in self.items.values().filter(|item| item.is_contents || item.is_ncx) {
            let text = package.text(&item.name)?.unwrap_or_default();
            let folder = item.name.rsplit_once('/').map_or("", |(folder, _)| folder);
            // A table of contents that cannot be read only costs the titles.
            let _ = read_titles(&text, folder, item.is_ncx, &mut titles);
        }
        Ok(titles)
    }
}

/// Reads the links of a table of contents. The first one to a page is its title.
fn read_titles(
    text: &str,
    folder: &str,
    is_ncx: bool,
    titles: &mut HashMap<String, String>,
) -> Result<(), Fault> {
    let mut xml = Xml::new(text);
    let (mut open, mut label) = (0_usize, String::new());
    loop {
        let Some(element) = xml.child()? else {
            if open == 0 {
                return Ok(());
            }
            open -= 1;
            continue;
        };
        let found = match (is_ncx, element.name()) {
            (true, "text") => {
                label = clean(&xml.text()?);
                continue;
            }
            (true, "content") => element.attribute("src").map(|link| (link, label.clone())),
            (false, "a") => {
                let link = element.attribute("href");
                let label = clean(&xml.text()?);
                if let Some(link) = link.filter(|_| !label.is_empty()) {
                    titles.entry(part_name(folder, &link)).or_insert(label);
                }
                continue;
            }
            _ => None,
        };
        open += 1;
        if let Some((link, label)) = found.filter(|(_, label)| !label.is_empty()) {
            titles.entry(part_name(folder, &link)).or_insert(label);
        }
    }
}

/// The name of the part to which a link leads.
fn part_name(folder: &str, link: &str) -> String {
    let path = link.split('#').next().unwrap_or_default();
    resolve(folder, &percent_decode_str(path).decode_utf8_lossy())
}

/// A page as HTML: `<title/>` is an element without content in XHTML, but begins a title without an end in
/// HTML. Notes, headers and footers of a page are text of the book. What is not well-formed stays as it is.
fn as_html(xhtml: &str) -> String {
    let mut html = String::with_capacity(xhtml.len());
    let mut reader = Reader::from_str(xhtml);
    reader.config_mut().allow_dangling_amp = true;
    let renamed = |name: &str| match name {
        "aside" | "header" | "footer" => "div".to_string(),
        name => name.to_string(),
    };
    loop {
        match reader.read_event() {
            Ok(Event::Start(tag)) => {
                let name = renamed(tag.local_name().into_inner());
                html.push_str(&format!("<{name} {}>", tag.attributes_raw().trim()));
            }
            Ok(Event::Empty(tag)) => {
                let name = renamed(tag.local_name().into_inner());
                html.push_str(&format!("<{name} {}>", tag.attributes_raw().trim()));
                if !VOID.contains(&name.as_str()) {
                    html.push_str(&format!("</{name}>"));
                }
            }
            Ok(Event::End(tag)) => {
                let name = renamed(tag.local_name().into_inner());
                if !VOID.contains(&name.as_str()) {
                    html.push_str(&format!("</{name}>"));
                }
            }
            Ok(Event::Text(text)) => html.push_str(&text),
            Ok(Event::CData(text)) => escape(&mut html, &text),
            Ok(Event::GeneralRef(reference)) => html.push_str(&format!("&{};", &*reference)),
            Ok(Event::Eof) => return html,
            Ok(_) => {}
            Err(_) => return xhtml.to_string(),
        }
    }
}

#[cfg(test)]
#[path = "epub_tests.rs"]
mod tests;
