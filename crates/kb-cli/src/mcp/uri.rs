//! The URIs of documents: `kb://KB_ID/EXTERNAL_ID`, with everything but letters, digits and `-._~/` as `%XX`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const SCHEME: &str = "kb://";
const IN_KB: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const IN_DOCUMENT: &AsciiSet = &IN_KB.remove(b'/');

pub fn of(kb_id: &str, external_id: &str) -> String {
    format!("{SCHEME}{}/{}", utf8_percent_encode(kb_id, IN_KB), utf8_percent_encode(external_id, IN_DOCUMENT))
}

/// The knowledge base and the document of a URI.
pub fn parse(uri: &str) -> Option<(String, String)> {
    let (kb_id, external_id) = uri.strip_prefix(SCHEME)?.split_once('/')?;
    let decoded = |text: &str| {
        let text = percent_decode_str(text).decode_utf8().ok()?.into_owned();
        (!text.is_empty() && !text.contains('\0')).then_some(text)
    };
    Some((decoded(kb_id)?, decoded(external_id)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_leads_back_to_its_document() {
        for (kb_id, external_id) in
            [("handbook", "a/b.md"), ("a/b c", "?x=1#y"), ("ü%2F", "/../é\n%"), ("k", "http://x/y?z")]
        {
            let uri = of(kb_id, external_id);
            assert!(uri.bytes().all(|c| c.is_ascii_graphic()), "{uri}");
            assert_eq!(parse(&uri), Some((kb_id.to_string(), external_id.to_string())), "{uri}");
        }
        assert_eq!(of("handbook", "a/b.md"), "kb://handbook/a/b.md");
        for wrong in
            ["", "kb://", "kb://x", "kb:///x", "kb://x/", "file:///etc/passwd", "kb://x/%00", "kb://x/%ff"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
