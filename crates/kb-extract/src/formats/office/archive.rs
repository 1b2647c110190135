//! For tests: archives of parts.

use std::io::{Cursor, Write};
use zip::write::SimpleFileOptions;

/// An archive of these parts.
pub fn archive(parts: &[(&str, &str)]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in parts {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(content.as_bytes()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// The part with the relationships `(id, kind, target)`.
pub fn relationships(all: &[(&str, &str, &str)]) -> String {
    let base = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
    let all: String = all
        .iter()
        .map(|(id, kind, target)| format!("<Relationship Id='{id}' Type='{base}/{kind}' Target='{target}'/>"))
        .collect();
    format!("<Relationships>{all}</Relationships>")
}
