//! Forms with files (multipart/form-data, RFC 7578).

use super::Body;
use kb_types::extraction::File;

/// The media type of a file of which nothing is known.
const UNKNOWN: &str = "application/octet-stream";

pub struct Form {
    boundary: String,
    bytes: Vec<u8>,
}

impl Form {
    /// A form with this file as its first field. A file does not contain the hash of itself, so that it
    /// serves as the boundary.
    pub fn of_file(field: &str, file: &File) -> Form {
        let boundary = blake3::hash(&file.bytes).to_hex()[..32].to_string();
        let mut form = Form { boundary, bytes: Vec::with_capacity(file.bytes.len() + 4096) };
        let disposition = format!("; filename=\"{}\"", quoted(&name(file)));
        form.begin(field, &disposition, Some(content_type(file)));
        form.bytes.extend_from_slice(&file.bytes);
        form.bytes.extend_from_slice(b"\r\n");
        form
    }

    pub fn text(&mut self, field: &str, value: &str) {
        self.begin(field, "", None);
        self.bytes.extend_from_slice(value.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn begin(&mut self, field: &str, disposition: &str, content_type: Option<&str>) {
        let boundary = &self.boundary;
        let mut head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"{disposition}\r\n",
            quoted(field)
        );
        if let Some(content_type) = content_type {
            head.push_str(&format!("Content-Type: {content_type}\r\n"));
        }
        head.push_str("\r\n");
        self.bytes.extend_from_slice(head.as_bytes());
    }

    pub fn finish(mut self) -> Body {
        self.bytes.extend_from_slice(format!("--{}--\r\n", self.boundary).as_bytes());
        Body::Bytes {
            content_type: format!("multipart/form-data; boundary={}", self.boundary),
            bytes: self.bytes,
        }
    }
}

/// The last part of a file's name, from which services tell its format.
pub fn name(file: &File) -> String {
    let name = file.name.as_deref().unwrap_or_default();
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let printable: String = last.chars().filter(|c| !c.is_control()).collect();
    if printable.is_empty() { "file".into() } else { printable }
}

/// The media type of a file, without parameters.
pub fn content_type(file: &File) -> &str {
    let essence =
        file.content_type.as_deref().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/+-._".contains(&byte);
    match essence.contains('/') && essence.bytes().all(is_plain) {
        true => essence,
        false => UNKNOWN,
    }
}

/// A name between quotes, as browsers write it.
fn quoted(name: &str) -> String {
    name.replace('\r', "%0D").replace('\n', "%0A").replace('"', "%22")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_the_file_and_the_fields_whatever_their_names_hold() {
        let file = File {
            name: Some("a/b\\ü \"x\"\r\n.pdf".into()),
            content_type: Some("application/pdf; charset=x\r\nEvil: 1".into()),
            bytes: b"--\r\n\0bytes".to_vec(),
            max_text: 0,
            ..File::default()
        };
        let mut form = Form::of_file("files", &file);
        form.text("a\"b", "1\r\n2");
        let boundary = form.boundary.clone();
        let expected = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"files\"; filename=\"ü %22x%22.pdf\"\r\n\
             Content-Type: application/pdf\r\n\r\n--\r\n\0bytes\r\n\
             --{boundary}\r\nContent-Disposition: form-data; name=\"a%22b\"\r\n\r\n1\r\n2\r\n--{boundary}--\r\n"
        );
        assert_eq!(
            form.finish(),
            Body::Bytes {
                content_type: format!("multipart/form-data; boundary={boundary}"),
                bytes: expected.into_bytes()
            }
        );
    }

    #[test]
    fn a_name_or_type_that_cannot_be_sent_is_replaced() {
        let of = |name: Option<&str>, content_type: Option<&str>| {
            let file = File {
                name: name.map(str::to_string),
                content_type: content_type.map(str::to_string),
                ..File::default()
            };
            (super::name(&file), super::content_type(&file).to_string())
        };
        assert_eq!(of(None, None), ("file".into(), UNKNOWN.into()));
        assert_eq!(of(Some("dir/"), Some("png")), ("file".into(), UNKNOWN.into()));
        assert_eq!(of(Some("a.PNG"), Some("image/png\r\nX: y")), ("a.PNG".into(), UNKNOWN.into()));
    }
}
