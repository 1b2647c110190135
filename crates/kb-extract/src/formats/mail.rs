//! Messages (RFC 5322 with MIME) and mailboxes of them (mbox).
//!
//! The text of a message is that of its body: as plain text where the message has that, else its HTML.
//! Attachments and forwarded messages are parts. Images within the text, and signatures that only programs
//! read, are left out.

use super::Format;
use crate::charset;
use crate::sections::{Sections, escape};
use kb_types::extraction::{Extraction, Fault, File};
use mail_parser::{
    Address, Encoding, HeaderValue, Message, MessageParser, MessagePart, MimeHeaders, PartType,
};
use serde_json::{Map, Value};
use std::collections::HashSet;

pub const MESSAGE: Format = Format {
    content_types: &["message/rfc822", "message/global"],
    extensions: &["eml"],
    is_text: true,
    read: read_message,
};

pub const MAILBOX: Format = Format {
    content_types: &["application/mbox"],
    extensions: &["mbox", "mbx"],
    is_text: true,
    read: read_mailbox,
};

/// Signatures are checked by programs, and say nothing.
const SIGNATURES: [&str; 3] =
    ["application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature"];

fn read_message(file: &File) -> Result<Extraction, Fault> {
    let mut bytes = file.bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&file.bytes);
    // Some programs write the line that separates the messages of a mailbox into a file of one message.
    if bytes.starts_with(b"From ") {
        bytes = bytes.iter().position(|byte| *byte == b'\n').map_or(&[][..], |end| &bytes[end + 1..]);
    }
    let message = MessageParser::default()
        .parse(bytes)
        .filter(|message| !message.headers().is_empty())
        .ok_or_else(|| Fault::Broken("it has no headers of a message".into()))?;
    let is_encrypted = message.parts.iter().map(content_type).any(|content_type| {
        ["multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime"]
            .contains(&content_type.as_str())
    });
    let (text, text_type) = body(&message, bytes)?;
    if is_encrypted && text.trim().is_empty() {
        return Err(Fault::Encrypted);
    }
    Ok(Extraction {
        text_type: text_type.into(),
        text,
        title: message.subject().map(one_line).filter(|subject| !subject.is_empty()),
        metadata: metadata(&message),
        parts: attachments(&message, bytes, file.max_text),
        ..Extraction::default()
    })
}

fn metadata(message: &Message) -> Map<String, Value> {
    let addresses = [("from", message.from()), ("to", message.to()), ("cc", message.cc())]
        .map(|(key, address)| (key, address.map(named_addresses)));
    let ids = [
        ("message_id", message.message_id().map(one_line)),
        ("in_reply_to", first_text(message.in_reply_to()).map(one_line)),
    ];
    let date = message.date().filter(|date| date.is_valid()).map(|date| date.to_rfc3339());
    let found = addresses.into_iter().chain([("date", date)]).chain(ids);
    let text = |value: Option<String>| value.filter(|value| !value.is_empty());
    found.filter_map(|(key, value)| Some((key.to_string(), text(value)?.into()))).collect()
}

fn first_text<'a>(value: &'a HeaderValue) -> Option<&'a str> {
    match value {
        HeaderValue::Text(text) => Some(text),
        HeaderValue::TextList(texts) => texts.first().map(|text| &**text),
        _ => None,
    }
}

/// Addresses as they are written in a message.
fn named_addresses(addresses: &Address) -> String {
    let written = addresses.iter().filter_map(|address| match (address.name(), address.address()) {
        (Some(name), Some(address)) => Some(format!("{} <{}>", one_line(name), one_line(address))),
        (None, Some(one)) | (Some(one), None) => Some(one_line(one)),
        (None, None) => None,
    });
    written.collect::<Vec<_>>().join(", ")
}

fn one_line(text: &str) -> String {
    clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A text without carriage returns, NUL and byte order marks.
fn clean(text: &str) -> String {
    let text: String = text.chars().filter(|c| !['\0', '\u{feff}'].contains(c)).collect();
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// The text of the body, and its media type.
fn body(message: &Message, bytes: &[u8]) -> Result<(String, &'static str), Fault> {
    let texts = |parts: Vec<&MessagePart>| {
        let text = |part: &&MessagePart| match &part.body {
            PartType::Text(text) => Some((false, plain(part, text, bytes))),
            PartType::Html(html) => Some((true, clean(html))),
            _ => None,
        };
        let texts = parts.iter().filter_map(text).filter(|(_, text)| !text.trim().is_empty());
        texts.collect::<Vec<_>>()
    };
    let mut found = texts(message.text_bodies().collect());
    // Newsletters have an empty text beside their HTML.
    if found.is_empty() {
        found = texts(message.html_bodies().collect());
    }
    if found.iter().all(|(is_html, _)| !is_html) {
        let found: Vec<&str> = found.iter().map(|(_, text)| text.trim_matches('\n')).collect();
        return Ok((found.join("\n\n"), "text/plain"));
    }
    let mut sections = Sections::default();
    for (is_html, text) in found {
        match is_html {
            true => sections.push_html(&text)?,
            false => sections.push_html(&paragraphs(&text))?,
        }
    }
    Ok((sections.text, "text/markdown"))
}

/// Plain text as HTML, line by line.
fn paragraphs(text: &str) -> String {
    let mut html = String::from("<p>");
    for line in text.trim_matches('\n').split('\n') {
        match line.trim().is_empty() {
            true => html.push_str("</p><p>"),
            false => {
                escape(&mut html, line);
                html.push_str("<br>");
            }
        }
    }
    html + "</p>"
}

/// The text of a part of plain text.
fn plain(part: &MessagePart, text: &str, bytes: &[u8]) -> String {
    // The charset was not declared and is not UTF-8.
    let raw = || bytes.get(part.offset_body as usize..part.offset_end as usize);
    let decoded = (text.contains('\u{fffd}') && part.encoding == Encoding::None)
        .then(raw)
        .flatten()
        .and_then(|raw| charset::decode(&File { bytes: raw.to_vec(), ..File::default() }).ok());
    let text = decoded.map_or_else(|| clean(text), |decoded| decoded.text);
    let attribute = |name| part.content_type().and_then(|content_type| content_type.attribute(name));
    let is = |name, value| attribute(name).is_some_and(|found| found.eq_ignore_ascii_case(value));
    if is("format", "flowed") { unflowed(&text, is("delsp", "yes")) } else { text }
}

/// Joins the lines of a paragraph, which end with a space (RFC 3676).
fn unflowed(text: &str, drops_space: bool) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut open: Option<usize> = None;
    for line in text.lines() {
        let quoted = line.bytes().take_while(|byte| *byte == b'>').count();
        let (quotes, rest) = line.split_at(quoted);
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        if open != Some(quoted) {
            if open.is_some() {
                joined.push('\n');
            }
            joined.push_str(quotes);
            if quoted > 0 && !rest.is_empty() {
                joined.push(' ');
            }
        }
        let flows = rest.ends_with(' ') && rest != "-- ";
        joined.push_str(if flows && drops_space { &rest[..rest.len() - 1] } else { rest });
        open = flows.then_some(quoted);
        if !flows {
            joined.push('\n');
        }
    }
    joined
}

/// The media type of a part, in lower case.
fn content_type(part: &MessagePart) -> String {
    let found = part.content_type().map(|found| (found.ctype(), found.subtype().unwrap_or_default()));
    let (name, subtype) = found.unwrap_or(match part.body {
        PartType::Message(_) => ("message", "rfc822"),
        PartType::Html(_) => ("text", "html"),
        PartType::Text(_) => ("text", "plain"),
        _ => ("application", "octet-stream"),
    });
    one_line(&format!("{name}/{subtype}")).to_ascii_lowercase()
}

fn attachments(message: &Message, bytes: &[u8], max_text: usize) -> Vec<File> {
    let mut parts = Vec::new();
    for part in message.attachments() {
        let content_type = content_type(part);
        let is_attached = part.content_disposition().is_some_and(|disposition| disposition.is_attachment());
        let is_picture = content_type.starts_with("image/") && !is_attached;
        if is_picture || SIGNATURES.contains(&content_type.as_str()) {
            continue;
        }
        let (content, name) = match &part.body {
            PartType::Multipart(_) => continue,
            // A message that is not encoded is a part of this one.
            PartType::Message(inner) => {
                let raw = bytes.get(part.offset_body as usize..part.offset_end as usize).unwrap_or_default();
                let raw = if part.encoding == Encoding::None { raw } else { inner.raw_message() };
                (raw, inner.subject())
            }
            _ => (part.contents(), None),
        };
        let name = part.attachment_name().or(name).map(one_line).filter(|name| !name.is_empty());
        parts.push(File {
            name: Some(name.unwrap_or_else(|| format!("attachment-{}", parts.len() + 1))),
            content_type: Some(content_type),
            bytes: content.to_vec(),
            max_text,
            ..File::default()
        });
    }
    parts
}

/// A mailbox has a part for each message. Its own text says what is in it.
fn read_mailbox(file: &File) -> Result<Extraction, Fault> {
    let messages = messages(&file.bytes);
    if messages.is_empty() && !file.bytes.trim_ascii().is_empty() {
        return Err(Fault::Broken("it has no line that begins a message".into()));
    }
    let mut names = HashSet::new();
    let mut extraction = Extraction { text_type: "text/plain".into(), ..Extraction::default() };
    extraction.metadata.insert("messages".into(), messages.len().into());
    for (number, bytes) in (1..).zip(messages) {
        let headers = MessageParser::default().parse_headers(&bytes);
        let known = |key: fn(&Message) -> Option<String>| headers.as_ref().and_then(key);
        let id = known(|message| message.message_id().map(one_line));
        let date =
            known(|message| message.date().filter(|date| date.is_valid()).map(|date| date.to_rfc3339()));
        let subject = known(|message| message.subject().map(one_line));
        let line: Vec<String> = date.into_iter().chain(subject).collect();
        extraction.text.push_str(&line.join(" "));
        extraction.text.push('\n');
        // Some mailboxes have a message twice.
        let name = id.filter(|id| !id.is_empty() && names.insert(id.clone()));
        extraction.parts.push(File {
            name: Some(name.unwrap_or_else(|| format!("message-{number}"))),
            content_type: Some(MESSAGE.content_types[0].into()),
            bytes,
            max_text: file.max_text,
            ..File::default()
        });
    }
    Ok(extraction)
}

/// The messages of a mailbox, without the lines that begin them and the marks before lines that look like
/// those.
///
/// The library takes each line with "From " at its beginning for the beginning of a message, but many
/// mailboxes have such lines in their texts. Here it also follows a blank line and has a time.
fn messages(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut messages: Vec<Vec<u8>> = Vec::new();
    let mut after_blank = true;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if after_blank && line.starts_with(b"From ") && has_time(line) {
            messages.push(Vec::new());
            after_blank = false;
            continue;
        }
        after_blank = line.trim_ascii().is_empty();
        if let Some(message) = messages.last_mut() {
            let unmarked = line.strip_prefix(b">").filter(|_| {
                line.iter().position(|byte| *byte != b'>').is_some_and(|at| line[at..].starts_with(b"From "))
            });
            message.extend_from_slice(unmarked.unwrap_or(line));
        }
    }
    messages
}

/// Whether a word of a line is a time, such as 09:30 or 9:30:00.
fn has_time(line: &[u8]) -> bool {
    let is_time = |word: &[u8]| {
        let numbers: Vec<&[u8]> = word.split(|byte| *byte == b':').collect();
        let is_number =
            |number: &&[u8]| (1..=2).contains(&number.len()) && number.iter().all(u8::is_ascii_digit);
        (2..=3).contains(&numbers.len()) && numbers.iter().all(is_number)
    };
    line.split(u8::is_ascii_whitespace).any(is_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8], name: &str) -> Result<Extraction, Fault> {
        let file =
            File { name: Some(name.into()), bytes: bytes.into(), max_text: usize::MAX, ..File::default() };
        crate::extract(&file)
    }

    const MIXED: &str = "From: =?utf-8?Q?J=C3=BCrgen?= <j@example.org>\r\nTo: a@example.org, \"B, C\" <b@example.org>\r\nCc: list@example.org\r\nDate: Tue, 5 Mar 2024 10:20:30 +0100\r\nMessage-ID: <1@example.org>\r\nIn-Reply-To: <0@example.org>\r\nSubject: The\r\n harbour\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"m\"\r\n\r\n--m\r\nContent-Type: multipart/alternative; boundary=\"a\"\r\n\r\n--a\r\nContent-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nGr=FC=DFe\r\n--a\r\nContent-Type: text/html\r\n\r\n<p>Gr&uuml;&szlig;e <b>alle</b></p>\r\n--a--\r\n--m\r\nContent-Type: image/png\r\nContent-Disposition: inline\r\nContent-ID: <i>\r\nContent-Transfer-Encoding: base64\r\n\r\niVBORw0K\r\n--m\r\nContent-Type: application/pdf; name=\"plan.pdf\"\r\nContent-Disposition: attachment\r\nContent-Transfer-Encoding: base64\r\n\r\nJVBERi0=\r\n--m\r\nContent-Type: message/rfc822\r\n\r\nSubject: Inner\r\nFrom: x@example.org\r\n\r\nInner text.\r\n--m\r\nContent-Type: application/pgp-signature\r\n\r\nx\r\n--m--\r\n";

    #[test]
    fn a_message_has_headers_a_text_and_parts() {
        let found = of(MIXED.as_bytes(), "a.eml").unwrap();
        assert_eq!(found.text, "Grüße");
        assert_eq!((found.text_type.as_str(), found.title.as_deref()), ("text/plain", Some("The harbour")));
        let expected = serde_json::json!({
            "from": "Jürgen <j@example.org>", "to": "a@example.org, B, C <b@example.org>", "cc": "list@example.org",
            "date": "2024-03-05T10:20:30+01:00", "message_id": "1@example.org", "in_reply_to": "0@example.org"
        });
        assert_eq!(Value::Object(found.metadata), expected);
        let parts: Vec<_> =
            found.parts.iter().map(|part| (part.name.as_deref(), part.content_type.as_deref())).collect();
        assert_eq!(
            parts,
            [(Some("plan.pdf"), Some("application/pdf")), (Some("Inner"), Some("message/rfc822"))]
        );
        assert_eq!(found.parts[0].bytes, b"%PDF-");
        let inner = crate::extract(&found.parts[1]).unwrap();
        assert_eq!((inner.text.as_str(), inner.title.as_deref()), ("Inner text.", Some("Inner")));
    }

    #[test]
    fn html_is_the_text_where_there_is_no_other() {
        let html =
            b"Subject: x\nContent-Type: text/html; charset=utf-8\n\n<h1>Sale</h1><p>All <b>shoes</b></p>";
        let found = of(html, "a.eml").unwrap();
        assert_eq!((found.text.as_str(), found.text_type.as_str()), ("# Sale\n\nAll shoes", "text/markdown"));
        let empty = b"Subject: x\nContent-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/plain\n\n \n--b\nContent-Type: text/html\n\n<p>Hi</p>\n--b--\n";
        assert_eq!(of(empty, "a.eml").unwrap().text, "Hi");
    }

    #[test]
    fn flowed_lines_are_joined_and_undeclared_charsets_detected() {
        let flowed =
            b"Subject: x\nContent-Type: text/plain; format=flowed\n\n> One \n> two\nThree \nfour.\n-- \nMe";
        assert_eq!(of(flowed, "a.eml").unwrap().text, "> One two\nThree four.\n-- \nMe");
        let latin =
            b"From a@b Mon Jan  1 00:00:00 2024\nSubject: x\n\nDie Stra\xdfe ist f\xfcr uns alle sch\xf6n.\n";
        assert_eq!(of(latin, "a.eml").unwrap().text, "Die Straße ist für uns alle schön.");
    }

    #[test]
    fn messages_that_cannot_be_read_are_refused_with_the_reason() {
        let encrypted = b"Subject: x\nContent-Type: multipart/encrypted; boundary=b\n\n--b\nContent-Type: application/pgp-encrypted\n\nVersion: 1\n--b\nContent-Type: application/octet-stream\n\nx\n--b--\n";
        assert_eq!(of(encrypted, "a.eml"), Err(Fault::Encrypted));
        for broken in [&b""[..], b"\n\nno headers"] {
            assert!(matches!(of(broken, "a.eml"), Err(Fault::Broken(_))), "{broken:?}");
        }
        assert!(matches!(of(b"Not a mailbox", "a.mbox"), Err(Fault::Broken(_))));
    }

    #[test]
    fn a_mailbox_has_a_part_for_each_message() {
        let mailbox = "From a Mon Jan  1 00:00:00 2024\nMessage-ID: <1@x>\nDate: Mon, 1 Jan 2024 00:00:00 +0000\nSubject: One\n\nFrom now on\n\nFrom here on: all\n>From there.\n>>From far.\n\nFrom b Tue Jan  2 00:00:00 2024\nMessage-ID: <1@x>\nSubject: Two\n\nB\n";
        let found = of(mailbox.as_bytes(), "a.mbox").unwrap();
        assert_eq!(found.text, "2024-01-01T00:00:00Z One\nTwo\n");
        assert_eq!(found.metadata["messages"], 2);
        let names: Vec<_> = found.parts.iter().map(|part| part.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["1@x", "message-2"]);
        let texts: Vec<_> = found.parts.iter().map(|part| crate::extract(part).unwrap().text).collect();
        assert_eq!(texts, ["From now on\n\nFrom here on: all\nFrom there.\n>From far.", "B"]);
    }
}
