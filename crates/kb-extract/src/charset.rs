//! Decodes text: by its byte order mark, as UTF-8 if it is valid, by the charset that is declared, else by
//! what its bytes make likely.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};
use kb_types::extraction::{Fault, File};
use serde_json::{Map, Value};

/// A text, and how it was decoded.
#[derive(Debug)]
pub struct Decoded {
    /// Lines end with \n, and there is no byte order mark and no NUL.
    pub text: String,
    charset: &'static str,
    by: &'static str,
}

impl Decoded {
    /// The charset, and by what it was known, for texts that are not UTF-8.
    pub fn metadata(&self) -> Map<String, Value> {
        let mut metadata = Map::new();
        if self.charset != UTF_8.name() {
            metadata.insert("charset".into(), self.charset.into());
            metadata.insert("charset_by".into(), self.by.into());
        }
        metadata
    }
}

/// How much of an HTML or XML file is searched for a declaration.
const HEAD: usize = 1024;

/// Decodes a text file. Errors: bytes that are not text.
pub fn decode(file: &File) -> Result<Decoded, Fault> {
    let bytes = &file.bytes[..];
    let (encoding, by, bytes) = if let Some((encoding, length)) = Encoding::for_bom(bytes) {
        (encoding, "byte order mark", &bytes[length..])
    } else if std::str::from_utf8(bytes).is_ok() {
        (UTF_8, "bytes", bytes)
    } else if let Some(encoding) = declared(file) {
        (encoding, "declaration", bytes)
    } else {
        let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
        detector.feed(bytes, true);
        (detector.guess(None, Utf8Detection::Allow), "detection", bytes)
    };
    let (text, had_errors) = encoding.decode_without_bom_handling(bytes);
    if had_errors && by != "declaration" || text.contains('\0') {
        return Err(Fault::Broken("it is not text in any known charset".into()));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let text =
        if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text.to_string() };
    Ok(Decoded { text: text.replace('\u{feff}', ""), charset: encoding.name(), by })
}

/// The charset that the content type or the file itself declares. A file without a byte order mark that
/// declares itself UTF-16 is not: its declaration could not be read.
fn declared(file: &File) -> Option<&'static Encoding> {
    let parameter = file.content_type.as_deref().and_then(|content_type| value_of(content_type, "charset="));
    let head = String::from_utf8_lossy(&file.bytes[..file.bytes.len().min(HEAD)]);
    let in_file = || {
        let html = value_of(&head, "charset=");
        let xml = head.trim_start().starts_with("<?xml").then(|| value_of(&head, "encoding=")).flatten();
        xml.or(html).and_then(label).filter(|encoding| ![UTF_16BE, UTF_16LE].contains(encoding))
    };
    parameter.and_then(label).or_else(in_file)
}

fn label(name: &str) -> Option<&'static Encoding> {
    Encoding::for_label(name.as_bytes())
}

/// The value that follows a name, without quotes.
fn value_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let at = text.to_ascii_lowercase().find(name)? + name.len();
    let rest = text[at..].trim_start_matches(['"', '\'']);
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "-_:.".contains(c))).unwrap_or(rest.len());
    Some(&rest[..end]).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(
        bytes: &[u8],
        content_type: Option<&str>,
    ) -> Result<(String, &'static str, &'static str), Fault> {
        let content_type = content_type.map(str::to_string);
        let file = File { bytes: bytes.to_vec(), content_type, ..File::default() };
        decode(&file).map(|decoded| (decoded.text, decoded.charset, decoded.by))
    }

    #[test]
    fn a_byte_order_mark_decides_before_all_else() {
        let utf16: Vec<u8> =
            [0xff, 0xfe].into_iter().chain("Grüße\r\n".encode_utf16().flat_map(u16::to_le_bytes)).collect();
        let expected = ("Grüße\n".to_string(), "UTF-16LE", "byte order mark");
        assert_eq!(decoded(&utf16, Some("text/plain; charset=utf-8")).unwrap(), expected);
        assert_eq!(decoded(b"\xef\xbb\xbfhi", None).unwrap(), ("hi".into(), "UTF-8", "byte order mark"));
    }

    #[test]
    fn what_is_declared_decides_where_bytes_are_not_utf_8() {
        let text = |found: Result<(String, &str, &str), Fault>| found.unwrap().0;
        assert_eq!(text(decoded(b"\xe4", Some("text/plain; charset=\"ISO-8859-7\""))), "δ");
        assert_eq!(text(decoded(b"<meta charset=koi8-r><p>\xe4", None)), "<meta charset=koi8-r><p>Д");
        assert_eq!(
            text(decoded(b"<?xml version='1.0' encoding='windows-1251'?>\xe4", None)).chars().last(),
            Some('д')
        );
        // A declaration does not spoil what is valid UTF-8.
        assert_eq!(text(decoded("ä".as_bytes(), Some("text/plain; charset=latin1"))), "ä");
    }

    #[test]
    fn undeclared_charsets_are_detected() {
        let russian =
            encoding_rs::WINDOWS_1251.encode("Съешь же ещё этих мягких французских булок, да выпей чаю").0;
        assert_eq!(decoded(&russian, None).unwrap().1, "windows-1251");
        let japanese = encoding_rs::SHIFT_JIS.encode("いろはにほへと ちりぬるを わかよたれそ つねならむ").0;
        assert_eq!(
            decoded(&japanese, None).unwrap(),
            ("いろはにほへと ちりぬるを わかよたれそ つねならむ".into(), "Shift_JIS", "detection")
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        assert!(decoded(b"abc\0def", None).is_err());
        assert!(decoded(&[0, 159, 146, 150, 0, 255], None).is_err());
    }
}
