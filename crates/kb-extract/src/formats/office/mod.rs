//! Files of office programs and electronic books: archives of XML. The parts that they have in common are
//! here: the archive, XML, properties, and the blocks of a document.
//!
//! `undoc` (MIT) was looked at for Word and PowerPoint. It makes Markdown of its own dialect, keeps text that
//! has been moved away beside the moved text, and reads neither OpenDocument nor EPUB, so that the parts
//! below would be needed all the same.

#[cfg(test)]
mod archive;
pub mod blocks;
pub mod docx;
mod docx_styles;
pub mod epub;
pub mod excel;
mod grid;
mod number_format;
pub mod opendocument;
mod package;
pub mod pptx;
pub mod properties;
mod xml;
