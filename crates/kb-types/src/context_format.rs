//! The formats in which passages are written as one text.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextFormat {
    Markdown,
    Xml,
    Json,
    List,
}

crate::named!(ContextFormat { Markdown => "markdown", Xml => "xml", Json => "json", List => "list" });
