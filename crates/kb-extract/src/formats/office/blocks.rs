//! Builds a document block by block: paragraphs, headings, lists and tables, in HTML, which becomes Markdown
//! piece by piece, so that a large document never is one large tree.

use crate::sections::{Sections, escape};
use kb_types::Mark;
use kb_types::extraction::{Extraction, Fault};
use serde_json::{Map, Value};

/// HTML of this length becomes Markdown at the next opportunity.
const PIECE: usize = 256 * 1024;
/// The deepest level of a list, counted from 0.
const MAX_LEVEL: usize = 8;

/// Blocks of a document, of a cell of a table, or of a text box.
#[derive(Debug, Default)]
pub struct Blocks {
    html: String,
    /// The lists that are open, outermost first.
    lists: Vec<List>,
    /// Whether it is the content of a cell, whose paragraphs are lines of one paragraph.
    is_cell: bool,
    /// Where pieces go. Only the blocks of a whole document have it.
    document: Option<Document>,
}

#[derive(Debug, Default)]
struct Document {
    sections: Sections,
    /// The most bytes of text.
    max_text: usize,
    /// Whether the next piece continues a table or a list of the piece before it.
    continues: bool,
}

/// The list of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List {
    /// Counted from 0.
    pub level: usize,
    /// The number of the item, in a list with numbers.
    pub number: Option<u64>,
}

impl Blocks {
    /// The blocks of a document.
    pub fn of_document(max_text: usize) -> Blocks {
        Blocks { document: Some(Document { max_text, ..Document::default() }), ..Blocks::default() }
    }

    /// The blocks of a cell.
    pub fn of_cell() -> Blocks {
        Blocks { is_cell: true, ..Blocks::default() }
    }

    /// Blocks that will be a part of these blocks.
    pub fn part(&self) -> Blocks {
        Blocks { is_cell: self.is_cell, ..Blocks::default() }
    }

    /// Begins a page, slide, sheet or chapter.
    pub fn begin(&mut self, mark: Mark) -> Result<(), Fault> {
        self.close_lists(0);
        self.flush()?;
        if let Some(document) = &mut self.document {
            document.continues = false;
            document.sections.begin(mark);
        }
        Ok(())
    }

    pub fn heading(&mut self, level: usize, inline: &str) -> Result<(), Fault> {
        let level = level.clamp(1, 6);
        self.block(&format!("<h{level}>"), inline, &format!("</h{level}>"))
    }

    pub fn paragraph(&mut self, inline: &str) -> Result<(), Fault> {
        self.block("<p>", inline, "</p>")
    }

    fn block(&mut self, begin: &str, inline: &str, end: &str) -> Result<(), Fault> {
        self.end_lists()?;
        if is_blank(inline) {
            return Ok(());
        }
        if self.is_cell {
            self.line(inline);
        } else {
            self.html.push_str(begin);
            self.html.push_str(inline);
            self.html.push_str(end);
        }
        self.settle()
    }

    fn line(&mut self, inline: &str) {
        if !self.html.is_empty() && !self.html.ends_with("</table>") {
            self.html.push_str("<br>");
        }
        self.html.push_str(inline);
    }

    /// Adds an item of a list. It is part of the last item if its level is deeper.
    pub fn item(&mut self, list: List, inline: &str) -> Result<(), Fault> {
        if is_blank(inline) {
            return Ok(());
        }
        if self.is_cell {
            self.line(inline);
            return Ok(());
        }
        let list = List { level: list.level.min(MAX_LEVEL), ..list };
        if list.level == 0 && self.html.len() > PIECE {
            self.close_lists(0);
            self.flush_part()?;
        }
        let is_deeper = |open: &List| open.level > list.level;
        let closed = self.lists.iter().rev().take_while(|open| is_deeper(open)).count();
        self.close_lists(self.lists.len() - closed);
        match self.lists.last_mut() {
            Some(last) if last.level == list.level && last.number.map(|n| n + 1) == list.number => {
                last.number = list.number;
                self.html.push_str("</li><li>");
            }
            last => {
                if last.is_some_and(|last| last.level == list.level) {
                    self.close_lists(self.lists.len() - 1);
                }
                match list.number {
                    Some(number) => self.html.push_str(&format!("<ol start=\"{number}\"><li>")),
                    None => self.html.push_str("<ul><li>"),
                }
                self.lists.push(list);
            }
        }
        self.html.push_str(inline);
        Ok(())
    }

    /// Adds HTML that [`Blocks::finish`] made, after the last block or in the last item.
    pub fn append(&mut self, html: &str) -> Result<(), Fault> {
        if html.is_empty() {
            return Ok(());
        }
        if self.is_cell && !html.starts_with("<table>") {
            self.line(html);
        } else {
            self.html.push_str(html);
        }
        self.settle()
    }

    pub fn begin_table(&mut self) -> Result<(), Fault> {
        self.end_lists()?;
        self.html.push_str("<table>");
        Ok(())
    }

    /// Adds a row to the table, whose cells [`push_cell`] made.
    pub fn row(&mut self, cells: &str) -> Result<(), Fault> {
        self.html.push_str("<tr>");
        self.html.push_str(cells);
        self.html.push_str("</tr>");
        if self.document.is_some() && self.html.len() > PIECE {
            self.html.push_str("</table>");
            self.flush_part()?;
            self.html.push_str("<table>");
        }
        Ok(())
    }

    pub fn end_table(&mut self) -> Result<(), Fault> {
        self.html.push_str("</table>");
        self.end_part()?;
        self.settle()
    }

    fn end_lists(&mut self) -> Result<(), Fault> {
        self.close_lists(0);
        self.end_part()
    }

    /// Makes Markdown of the last piece of a table or a list, so that what follows is not taken for a part of
    /// it.
    fn end_part(&mut self) -> Result<(), Fault> {
        if self.document.as_ref().is_some_and(|document| document.continues) {
            self.flush()?;
        }
        if let Some(document) = &mut self.document {
            document.continues = false;
        }
        Ok(())
    }

    /// Ends the lists of which only so many shall stay open.
    fn close_lists(&mut self, stay: usize) {
        for list in self.lists.drain(stay.min(self.lists.len())..).rev() {
            self.html.push_str(if list.number.is_some() { "</li></ol>" } else { "</li></ul>" });
        }
    }

    fn settle(&mut self) -> Result<(), Fault> {
        if self.html.len() > PIECE && self.lists.is_empty() { self.flush() } else { Ok(()) }
    }

    /// Makes Markdown of a piece that ends in the middle of a table or a list.
    fn flush_part(&mut self) -> Result<(), Fault> {
        self.flush()?;
        if let Some(document) = &mut self.document {
            document.continues = true;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Fault> {
        let Some(document) = &mut self.document else { return Ok(()) };
        if self.html.is_empty() {
            return Ok(());
        }
        match std::mem::take(&mut document.continues) {
            true => document.sections.continue_html(&self.html)?,
            false => document.sections.push_html(&self.html)?,
        }
        self.html.clear();
        document.check()
    }

    /// The HTML of a part.
    pub fn finish(mut self) -> String {
        self.close_lists(0);
        self.html
    }

    /// The text of a document. Errors: [`Fault::ImagesOnly`] where it has no text, but images.
    pub fn into_extraction(
        mut self,
        title: Option<String>,
        metadata: Map<String, Value>,
        has_images: bool,
    ) -> Result<Extraction, Fault> {
        self.close_lists(0);
        self.flush()?;
        let sections = self.document.take().unwrap_or_default().sections;
        if has_images && sections.text.trim().is_empty() {
            return Err(Fault::ImagesOnly);
        }
        Ok(Extraction {
            text_type: "text/markdown".into(),
            text: sections.text,
            title: title.or(sections.title),
            metadata,
            marks: sections.marks,
            ..Extraction::default()
        })
    }

    /// Adds a page of a book, which begins a chapter with this title or else with that of its first heading.
    /// A page without either continues the chapter before it.
    pub fn page(&mut self, html: &str, title: Option<String>) -> Result<(), Fault> {
        let Some(document) = &mut self.document else { return Ok(()) };
        let mut page = Sections::default();
        page.push_html(html)?;
        if page.text.trim().is_empty() {
            return Ok(());
        }
        if let Some(title) = title.or_else(|| page.first_heading()) {
            document.sections.begin(Mark::Chapter(title));
        }
        document.sections.push_markdown(&page.text);
        document.check()
    }

    /// Adds a slide: the level and HTML of its title, its body, and the speaker's notes.
    pub fn slide(
        &mut self,
        number: u32,
        (level, title): (usize, &str),
        body: Blocks,
        notes: Blocks,
    ) -> Result<(), Fault> {
        self.begin(Mark::Slide(number))?;
        self.heading(level, title)?;
        self.append(&body.finish())?;
        let notes = notes.finish();
        if is_blank(&notes) { Ok(()) } else { self.paragraph(&format!("Notes: {notes}")) }
    }
}

impl Document {
    fn check(&self) -> Result<(), Fault> {
        match self.sections.text.len() > self.max_text {
            true => Err(Fault::TooLarge(format!("it has more than {} bytes of text", self.max_text))),
            false => Ok(()),
        }
    }
}

/// The content of a paragraph.
#[derive(Debug, Default)]
pub struct Inline {
    pub html: String,
    /// Notes and text boxes, which follow the paragraph.
    pub after: Vec<String>,
}

impl Inline {
    /// Appends a reference to a note, which follows the paragraph.
    pub fn refer(&mut self, number: usize, note: &str, around: &Blocks) {
        self.html.push_str(&format!("[{number}]"));
        let note = format!("[{number}] {note}");
        self.after.push(if around.is_cell { note } else { format!("<p>{note}</p>") });
    }
}

/// Appends a cell, and empty ones for the other columns that it covers.
pub fn push_cell(row: &mut String, html: &str, columns: usize) {
    row.push_str("<td>");
    row.push_str(html);
    row.push_str("</td>");
    for _ in 1..columns {
        row.push_str("<td></td>");
    }
}

/// Appends text. Characters that cannot be stored or seen are left out.
pub fn push_text(html: &mut String, text: &str) {
    match text.contains(['\0', '\u{feff}', '\u{ad}', '\r']) {
        true => {
            let seen = text.replace('\r', " ").replace(['\0', '\u{feff}', '\u{ad}'], "");
            escape(html, &seen);
        }
        false => escape(html, text),
    }
}

/// Appends the description of an image.
pub fn push_image(html: &mut String, description: &str) {
    if !description.trim().is_empty() {
        html.push_str("<img alt=\"");
        push_text(html, description);
        html.push_str("\">");
    }
}

fn is_blank(inline: &str) -> bool {
    inline.split("<br>").all(|line| line.trim().is_empty())
}
