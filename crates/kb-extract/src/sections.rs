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
        let markdown = markdown.trim_matches('\n');
        if markdown.is_empty() {
            return;
        }
        let after_mark = self.marks.last().is_some_and(|last| last.offset == self.text.len());
        if !self.text.is_empty() && !after_mark {
            self.text.push_str("\n\n");
        }
        self.text.push_str(markdown);
    }

    /// Adds HTML, as Markdown: headings, lists, tables, emphasis and links. So a reader of another format
    /// describes what it finds in HTML, whose text it escapes by [`escape`], and needs no rules of Markdown.
    pub fn push_html(&mut self, html: &str) -> Result<(), Fault> {
        let extracted = parse::extract(html, ContentType::Html, &Preprocess::default(), &Bounds::none())
            .map_err(|error| Fault::Broken(error.to_string()))?;
        if self.title.is_none() {
            self.title = extracted.title;
        }
        self.push_markdown(&extracted.text);
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
