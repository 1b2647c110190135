//! Builds the text of a file that has parts: pages, slides, sheets or chapters.

use kb_text::parse::{self, ContentType};
use kb_types::extraction::Fault;
use kb_types::{Bounds, Mark, Marked, Preprocess};

/// The Markdown of a file, with the marks of its parts.
#[derive(Debug, Default)]
pub struct Sections {
    pub text: String,
    pub marks: Vec<Marked>,
    /// The first title that a part in HTML had.
    pub title: Option<String>,
}

impl Sections {
    /// Begins a part. What is added from now on belongs to it.
    pub fn begin(&mut self, mark: Mark) {
        if !self.text.is_empty() {
            self.text.push_str("\n\n");
        }
        self.marks.push(Marked { offset: self.text.len(), mark });
    }

    /// Adds Markdown.
    pub fn push_markdown(&mut self, markdown: &str) {
        self.push(markdown, "\n\n");
    }

    /// The title of the first heading.
    pub fn first_heading(&self) -> Option<String> {
        let found =
            parse::extract(&self.text, ContentType::Markdown, &Preprocess::default(), &Bounds::none());
        found.ok()?.title.filter(|title| !title.trim().is_empty())
    }

    fn push(&mut self, markdown: &str, separator: &str) {
        let storable: String;
        let mut markdown = markdown.trim_matches('\n');
        if markdown.contains(['\0', '\u{feff}', '\r']) {
            storable = markdown.replace('\r', " ").replace(['\0', '\u{feff}'], "");
            markdown = &storable;
        }
        if markdown.is_empty() {
            return;
        }
        let after_mark = self.marks.last().is_some_and(|last| last.offset == self.text.len());
        if !self.text.is_empty() && !after_mark {
            self.text.push_str(separator);
        }
        self.text.push_str(markdown);
    }

    /// Adds HTML, as Markdown: headings, lists, tables, emphasis and links. So a reader of another format
    /// describes what it finds in HTML, whose text it escapes by [`escape`], and needs no rules of Markdown.
    pub fn push_html(&mut self, html: &str) -> Result<(), Fault> {
        self.push_as_markdown(html, "\n\n")
    }

    /// Adds HTML that continues a table or a list of what was added last.
    pub fn continue_html(&mut self, html: &str) -> Result<(), Fault> {
        self.push_as_markdown(html, "\n")
    }

    fn push_as_markdown(&mut self, html: &str, separator: &str) -> Result<(), Fault> {
        let extracted = parse::extract(html, ContentType::Html, &Preprocess::default(), &Bounds::none())
            .map_err(|error| Fault::Broken(error.to_string()))?;
        if self.title.is_none() {
            self.title = extracted.title;
        }
        self.push(&extracted.text, separator);
        Ok(())
    }
}

/// Appends a text to HTML, escaped.
pub fn escape(html: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            c => html.push(c),
        }
    }
}
