//! The formats that are read. A format is a file of this folder, and a line of [`FORMATS`].

pub mod asciidoc;
pub mod code;
pub mod data;
mod lines;
mod links;
pub mod mail;
mod main_content;
pub mod markdown;
pub mod office;
pub mod pdf;
pub mod restructured;
pub mod rtf;
pub mod separated;
pub mod subtitles;
pub mod text;
pub mod xml;
mod yaml;

use kb_types::extraction::{Extraction, Fault, File};

/// How a format is recognised and read.
#[derive(Debug)]
pub struct Format {
    /// Its media type, and other names of it.
    pub content_types: &'static [&'static str],
    /// Endings of file names, in lower case.
    pub extensions: &'static [&'static str],
    /// Whether its files are text. Files of other formats are recognised by their bytes.
    pub is_text: bool,
    /// Finds the text. The caller fills in `content_type`, and checks what can be checked for all formats.
    pub read: fn(&File) -> Result<Extraction, Fault>,
}

/// All formats.
pub const FORMATS: &[&Format] = &[
    &text::PLAIN,
    &text::HTML,
    &office::docx::DOCX,
    &office::excel::XLSX,
    &office::excel::XLS,
    &office::opendocument::ODT,
    &office::opendocument::ODS,
    &office::opendocument::ODP,
    &office::pptx::PPTX,
    &office::epub::EPUB,
    &rtf::RTF,
    &markdown::MARKDOWN,
    &subtitles::VTT,
    &subtitles::SRT,
    &mail::MESSAGE,
    &mail::MAILBOX,
    &data::JSON,
    &data::JSON_LINES,
    &data::YAML,
    &xml::XML,
    &restructured::RST,
    &asciidoc::ASCIIDOC,
    &separated::CSV,
    &separated::TSV,
    &pdf::PDF,
    &code::RUST,
    &code::PYTHON,
    &code::JAVASCRIPT,
    &code::TYPESCRIPT,
    &code::TSX,
    &code::GO,
    &code::JAVA,
    &code::C,
    &code::CPP,
    &code::C_SHARP,
    &code::RUBY,
    &code::PHP,
    &code::SHELL,
    &links::PAGE,
    &links::SITEMAP,
];

/// The format with this media type, which has no parameters and is in lower case.
pub fn by_content_type(content_type: &str) -> Option<&'static Format> {
    FORMATS.iter().copied().find(|format| format.content_types.contains(&content_type))
}

/// The format with this ending, which is in lower case.
pub fn by_extension(extension: &str) -> Option<&'static Format> {
    FORMATS.iter().copied().find(|format| format.extensions.contains(&extension))
}
