//! The formats in which passages are written as one text.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextFormat {
    Markdown,
    Xml,
    Json,
}

impl ContextFormat {
    pub fn parse(word: &str) -> Option<ContextFormat> {
        match word {
            "markdown" => Some(ContextFormat::Markdown),
            "xml" => Some(ContextFormat::Xml),
            "json" => Some(ContextFormat::Json),
            _ => None,
        }
    }
}
