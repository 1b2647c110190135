//! Finds out what a file is.

use crate::formats::{Format, by_content_type, by_extension, text};
use infer::MatcherType;
use kb_text::parse::ContentType;
use kb_types::extraction::{Fault, File};
use std::io::{Cursor, Read};
use zip::ZipArchive;

/// What a file is.
#[derive(Debug)]
pub struct Found {
    pub format: &'static Format,
    /// The media type that the file has.
    pub content_type: String,
    /// The media type that was claimed, where the file has another one.
    pub claimed: Option<String>,
}

/// The type of a file: what its bytes show, else what is claimed, else what its name says.
pub fn detect(file: &File) -> Result<Found, Fault> {
    let claimed = file.content_type.as_deref().map(essence).filter(|claimed| !claimed.is_empty());
    // Servers say this where they know nothing.
    let claimed = claimed.filter(|claimed| claimed != "application/octet-stream");
    if let Some(shown) = by_bytes(&file.bytes)? {
        let format = by_content_type(shown).ok_or(Fault::Unsupported { content_type: shown.into() })?;
        let is_contradicted = |claimed: &String| !format.content_types.contains(&claimed.as_str());
        return Ok(Found {
            format,
            content_type: format.content_types[0].into(),
            claimed: claimed.filter(is_contradicted),
        });
    }
    let as_named = || file.name.as_deref().and_then(extension).and_then(|extension| by_extension(&extension));
    let as_claimed = match &claimed {
        Some(claimed) => match by_content_type(claimed) {
            // Text of an unknown type is plain text (RFC 2046, 4.1.4), unless its name says more.
            None if claimed.starts_with("text/") => as_named(),
            None => return Err(Fault::Unsupported { content_type: claimed.clone() }),
            known => known,
        },
        None => as_named(),
    };
    // A binary format would have been recognised by its bytes.
    let format = match as_claimed {
        Some(format) if format.is_text => format,
        _ => sniffed(&file.bytes),
    };
    let contradicted = claimed.filter(|claimed| !format.content_types.contains(&claimed.as_str()));
    Ok(Found { format, content_type: format.content_types[0].into(), claimed: contradicted })
}

/// A media type without its parameters, in lower case.
fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The ending of a name or URI, in lower case. Query and fragment are ignored.
fn extension(name: &str) -> Option<String> {
    let path = name.split(['?', '#']).next().unwrap_or_default();
    let file = path.rsplit(['/', '\\']).next().unwrap_or_default();
    file.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase())
}

/// The media type that the bytes show, for formats that are not text. Errors: [`Fault::Encrypted`].
fn by_bytes(bytes: &[u8]) -> Result<Option<&'static str>, Fault> {
    if bytes.starts_with(OLE) {
        return in_ole(bytes).map(Some);
    }
    if bytes.starts_with(b"{\\rtf") {
        return Ok(Some("application/rtf"));
    }
    if is_pdf(bytes) {
        return Ok(Some("application/pdf"));
    }
    // Text can begin with the two letters that some formats begin with; PostScript is text throughout. The
    // library takes every text that mentions the header of PDF for one.
    let found = infer::get(bytes).filter(|found| {
        let is_printed = found.mime_type() == "application/postscript";
        let is_kept = found.matcher_type() != MatcherType::Text && found.mime_type() != "application/pdf";
        is_kept && (is_printed || !begins_as_text(bytes))
    });
    // The library knows only archives whose entries are in the order in which some programs write them.
    let is_zip = bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06");
    Ok(if is_zip { in_zip(bytes) } else { found.map(|found| found.mime_type()) })
}

/// The header of a PDF may come after up to 1024 other bytes. A text that mentions the header does not end as
/// a PDF.
fn is_pdf(bytes: &[u8]) -> bool {
    const HEADER: &[u8] = b"%PDF-";
    let head = &bytes[..bytes.len().min(1024 + HEADER.len())];
    let tail = &bytes[bytes.len().saturating_sub(2048)..];
    let has = |part: &[u8], wanted: &[u8]| part.windows(wanted.len()).any(|at| at == wanted);
    bytes.starts_with(HEADER) || has(head, HEADER) && has(tail, b"startxref") && has(tail, b"%%EOF")
}

fn begins_as_text(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(4096)];
    // The last character may be cut.
    let valid = match std::str::from_utf8(head) {
        Ok(_) => head.len(),
        Err(error) => error.valid_up_to(),
    };
    head.len() - valid < 4 && !head.contains(&0)
}

/// How a compound file begins, the container of Office 97 to 2003 and of encrypted files of later versions.
const OLE: &[u8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1";

/// What is in a compound file, by the first name in its directory that says it. Names of embedded files come
/// later. An entry of the directory has 128 bytes, of which the first 64 are its name in UTF-16.
fn in_ole(bytes: &[u8]) -> Result<&'static str, Fault> {
    for entry in bytes.chunks_exact(128) {
        let units = entry[..64].chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
        let name: String = char::decode_utf16(units.take_while(|unit| *unit != 0)).flatten().collect();
        match name.to_ascii_lowercase().as_str() {
            "encryptedpackage" => return Err(Fault::Encrypted),
            "worddocument" => return Ok("application/msword"),
            "powerpoint document" => return Ok("application/vnd.ms-powerpoint"),
            "workbook" | "book" => return Ok("application/vnd.ms-excel"),
            "__properties_version1.0" => return Ok("application/vnd.ms-outlook"),
            _ => {}
        }
    }
    Ok("application/x-ole-storage")
}

/// What is in a zip archive: OpenDocument and EPUB say it in their entry `mimetype`, Office Open XML by the
/// names of its entries.
fn in_zip(bytes: &[u8]) -> Option<&'static str> {
    const ZIP: Option<&str> = Some("application/zip");
    let Ok(mut archive) = ZipArchive::new(Cursor::new(bytes)) else { return ZIP };
    if let Ok(entry) = archive.by_name("mimetype") {
        let mut name = String::new();
        if entry.take(100).read_to_string(&mut name).is_ok()
            && let Some(format) = by_content_type(name.trim())
        {
            return format.content_types.first().copied();
        }
    }
    let kinds = [
        ("word/", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("ppt/", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
        ("xl/", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ];
    // Its parts are binary.
    if archive.index_for_name("xl/workbook.bin").is_some() {
        return Some("application/vnd.ms-excel.sheet.binary.macroenabled.12");
    }
    let is_office = archive.index_for_name("[Content_Types].xml").is_some();
    let kind = kinds
        .iter()
        .find(|(folder, _)| is_office && archive.file_names().flatten().any(|name| name.starts_with(folder)));
    kind.map(|(_, content_type)| *content_type).or(ZIP)
}

/// The format of text that nobody has named: HTML if it begins like a page, else plain text.
fn sniffed(bytes: &[u8]) -> &'static Format {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]);
    match ContentType::sniff(&head) {
        ContentType::Html => &text::HTML,
        _ => &text::PLAIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(
        bytes: &[u8],
        content_type: Option<&str>,
        name: &str,
    ) -> Result<(String, Option<String>), Fault> {
        let file = File {
            name: Some(name.into()),
            content_type: content_type.map(str::to_string),
            bytes: bytes.to_vec(),
            ..File::default()
        };
        detect(&file).map(|found| (found.content_type, found.claimed))
    }

    #[test]
    fn the_type_is_shown_by_bytes_then_claimed_then_named() {
        let of = |bytes: &[u8], content_type, name| found(bytes, content_type, name).unwrap().0;
        assert_eq!(of(b"# a", Some("text/markdown; charset=utf-8"), "a.html"), "text/markdown");
        assert_eq!(of(b"# a", None, "https://x.org/a.MD?x=y.html"), "text/markdown");
        assert_eq!(of(b"# a", Some("application/octet-stream"), "a.md"), "text/markdown");
        assert_eq!(of(b" <!doctype html><p>a", None, "17"), "text/html");
        assert_eq!(of(b"a", None, "a.unknown"), "text/plain");
        assert_eq!(of(b"a", Some("text/x-unheard-of"), "a"), "text/plain");
        assert_eq!(of(b"a", Some("text/x-unheard-of"), "a.md"), "text/markdown");
        assert_eq!(of("BMI;Größe\n21;180\n".as_bytes(), None, "a.csv"), "text/csv");
        assert_eq!(of(b"MZ is a prefix", None, "a.txt"), "text/plain");
    }

    #[test]
    fn a_pdf_may_begin_after_other_bytes_and_a_text_about_one_is_text() {
        let of = |bytes: &[u8]| found(bytes, None, "a.txt").unwrap().0;
        let file = b"%PDF-1.7\n1 0 obj\nstartxref\n9\n%%EOF\n";
        assert_eq!(of(&[&[b' '; 1024][..], file].concat()), "application/pdf");
        assert_eq!(of(&[&[b' '; 1025][..], file].concat()), "text/plain");
        assert_eq!(of(b"A PDF begins with %PDF-1.7 and ends with %%EOF."), "text/plain");
    }

    #[test]
    fn compound_files_are_what_their_directory_says() {
        let compound = |names: &[&str]| {
            let mut bytes = vec![0; 512];
            bytes[..8].copy_from_slice(OLE);
            for name in names {
                let mut entry = vec![0; 128];
                for (place, unit) in name.encode_utf16().enumerate() {
                    entry[2 * place..2 * place + 2].copy_from_slice(&unit.to_le_bytes());
                }
                bytes.extend(entry);
            }
            found(&bytes, None, "a.docx")
        };
        let unsupported = |content_type: &str| Err(Fault::Unsupported { content_type: content_type.into() });
        assert_eq!(compound(&["Root Entry", "EncryptionInfo", "EncryptedPackage"]), Err(Fault::Encrypted));
        assert_eq!(compound(&["Root Entry", "WordDocument", "Workbook"]), unsupported("application/msword"));
        assert_eq!(compound(&["PowerPoint Document"]), unsupported("application/vnd.ms-powerpoint"));
        assert_eq!(compound(&["Root Entry", "Workbook"]), Ok(("application/vnd.ms-excel".into(), None)));
        assert_eq!(compound(&["Root Entry"]), unsupported("application/x-ole-storage"));
    }

    #[test]
    fn a_wrong_claim_is_reported() {
        let image = [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a];
        let refused = Fault::Unsupported { content_type: "image/png".into() };
        assert_eq!(found(&image, Some("text/html"), "a.html"), Err(refused));
        let refused = Fault::Unsupported { content_type: "video/mp4".into() };
        assert_eq!(found(b"text", Some("video/mp4"), "a"), Err(refused));
    }
}
