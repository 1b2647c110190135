//! Reads pages of listings, and errors, in the XML of the storages.

use kb_types::bucket::Storage;
use percent_encoding::percent_decode_str;
use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::Event;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The most levels of elements.
const MAX_DEPTH: usize = 32;

/// Part of a listing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Page {
    pub objects: Vec<Object>,
    /// What has no name that can be kept: its name with U+FFFD, and why.
    pub failed: Vec<(String, String)>,
    /// What to ask for next. None at the end.
    pub next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Object {
    pub key: String,
    pub size: u64,
    /// The ETag without its quotes, or when it was changed.
    pub version: String,
}

/// The ETag without its quotes: some storages list it without.
pub fn plain_etag(etag: &str) -> &str {
    etag.trim().trim_start_matches("W/").trim_matches('"')
}

/// Reads a page of a listing.
pub fn read_page(storage: Storage, xml: &[u8]) -> Result<Page, String> {
    let (root, entry) = match storage {
        Storage::S3 | Storage::Gcs => ("ListBucketResult", "Contents"),
        Storage::Azure => ("EnumerationResults", "Blob"),
    };
    let mut entries: Vec<HashMap<String, String>> = Vec::new();
    let mut whole: HashMap<String, String> = HashMap::new();
    let mut is_read = false;
    walk(xml, |path, step| {
        let is_in_entry = path.iter().any(|name| name == entry);
        match step {
            Step::Begins if path.last().is_some_and(|name| name == entry) => entries.push(HashMap::new()),
            Step::Ends(None) => is_read |= path == [root],
            Step::Ends(Some(text)) => {
                let name = path.last().cloned().unwrap_or_default();
                match entries.last_mut().filter(|_| is_in_entry) {
                    Some(entry) => drop(entry.insert(name, text)),
                    None => drop(whole.insert(name, text)),
                }
            }
            Step::Begins => {}
        }
    })?;
    if !is_read {
        return Err("it answered with something else than a listing".into());
    }
    let is_coded = whole.get("EncodingType").is_some_and(|coding| coding == "url");
    let mut page = Page::default();
    for entry in entries {
        page.take(storage, is_coded, entry)?;
    }
    let next = match storage {
        Storage::S3 | Storage::Gcs => whole.remove("NextContinuationToken"),
        Storage::Azure => whole.remove("NextMarker"),
    };
    page.next = next.filter(|next| !next.is_empty());
    if page.next.is_none() && whole.get("IsTruncated").is_some_and(|truncated| truncated == "true") {
        return Err("its listing is not complete, and does not say how it goes on".into());
    }
    Ok(page)
}

impl Page {
    fn take(
        &mut self,
        storage: Storage,
        is_coded: bool,
        mut entry: HashMap<String, String>,
    ) -> Result<(), String> {
        let incomplete = || "its listing has an entry without name or size".to_string();
        let (name, is_coded) = match storage {
            Storage::S3 | Storage::Gcs => (entry.remove("Key"), is_coded),
            Storage::Azure => (entry.remove("Name"), entry.contains_key("Name@Encoded")),
        };
        // Of a storage with directories.
        if entry.get("ResourceType").is_some_and(|kind| kind == "directory") {
            return Ok(());
        }
        let name = name.filter(|name| !name.is_empty()).ok_or_else(incomplete)?;
        let size = entry.remove("Size").or_else(|| entry.remove("Content-Length"));
        let size = size.and_then(|size| size.trim().parse().ok()).ok_or_else(incomplete)?;
        let etag = entry.remove("ETag").or_else(|| entry.remove("Etag"));
        let modified = entry.remove("LastModified").or_else(|| entry.remove("Last-Modified"));
        let version = etag.map(|etag| plain_etag(&etag).to_string()).or(modified).unwrap_or_default();
        let bytes = match is_coded {
            // In this form S3 writes a space as +, and others as %20.
            true if storage != Storage::Azure => {
                percent_decode_str(&name.replace('+', " ")).collect::<Vec<u8>>()
            }
            true => percent_decode_str(&name).collect(),
            false => name.into_bytes(),
        };
        match String::from_utf8(bytes) {
            Err(wrong) => {
                let name = String::from_utf8_lossy(wrong.as_bytes()).replace('\0', "\u{fffd}");
                self.failed.push((name, "its name is not UTF-8".into()));
            }
            Ok(key) if key.contains('\0') => {
                self.failed.push((key.replace('\0', "\u{fffd}"), "its name contains a zero byte".into()));
            }
            // A URL means another object by them, so that this one cannot be asked for.
            Ok(key) if key.split('/').any(|part| [".", ".."].contains(&part)) => {
                self.failed.push((key, "its name has a part . or .., which no URL can have".into()));
            }
            // What some tools make in place of a folder.
            Ok(key) if key.ends_with('/') && size == 0 => {}
            Ok(key) => self.objects.push(Object { key, size, version }),
        }
        Ok(())
    }
}

/// Code and message of an error.
pub fn read_error(xml: &[u8]) -> (Option<String>, Option<String>) {
    let (mut code, mut message) = (None, None);
    // What comes after the first of each does not matter, and neither does a wrong end.
    let _ = walk(xml, |path, step| {
        let (Step::Ends(Some(text)), [root, name]) = (step, path) else { return };
        match name.as_str() {
            _ if root != "Error" => {}
            "Code" => drop(code.get_or_insert(text)),
            "Message" => drop(message.get_or_insert(text)),
            _ => {}
        }
    });
    (code, message)
}

/// Where an element begins, and where it ends: with its text if no element is in it.
enum Step {
    Begins,
    Ends(Option<String>),
}

/// Calls `take` with the path of each element. An attribute `Encoded="true"` counts as an element
/// name@Encoded beside it.
fn walk(xml: &[u8], mut take: impl FnMut(&[String], Step)) -> Result<(), String> {
    let broken = |problem: String| format!("its answer is not XML that can be read: {problem}");
    let xml = std::str::from_utf8(xml).map_err(|_| broken("it is not UTF-8".into()))?;
    let mut reader = Reader::from_str(xml);
    reader.config_mut().expand_empty_elements = true;
    reader.config_mut().allow_dangling_amp = true;
    let mut path: Vec<String> = Vec::new();
    let mut text: Option<String> = None;
    loop {
        match reader.read_event().map_err(|error| broken(error.to_string()))? {
            Event::Start(tag) => {
                if path.len() == MAX_DEPTH {
                    return Err(broken(format!("elements are nested more than {MAX_DEPTH} deep")));
                }
                let is_coded = tag.attributes().flatten().any(|a| a.key.0 == "Encoded" && a.value == "true");
                path.push(tag.local_name().into_inner().to_string());
                take(&path, Step::Begins);
                if is_coded {
                    let marked = format!("{}@Encoded", tag.local_name().into_inner());
                    take(&[path.as_slice(), &[marked]].concat(), Step::Ends(Some("true".into())));
                }
                text = Some(String::new());
            }
            Event::End(_) => {
                take(&path, Step::Ends(text.take()));
                path.pop();
            }
            Event::Text(part) => text.iter_mut().for_each(|text| text.push_str(&part.clone().into_inner())),
            Event::CData(part) => text.iter_mut().for_each(|text| text.push_str(&part.clone().into_inner())),
            Event::GeneralRef(reference) => {
                let character = reference.resolve_char_ref().ok().flatten().map(String::from);
                let part = character.or_else(|| resolve_xml_entity(&reference).map(str::to_string));
                let part = part.ok_or_else(|| broken("it has an entity that is not known".into()))?;
                text.iter_mut().for_each(|text| text.push_str(&part));
            }
            Event::Eof if path.is_empty() => return Ok(()),
            Event::Eof => return Err(broken("it ends too early".into())),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_s3(inner: &str) -> Result<Page, String> {
        let xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
             {inner}</ListBucketResult>"
        );
        read_page(Storage::S3, xml.as_bytes())
    }

    fn entry(key: &str, size: usize) -> String {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
             <ETag>&quot;e{size}&quot;</ETag><Size>{size}</Size><Owner><ID>x</ID></Owner></Contents>\n"
        )
    }

    fn keys(page: &Page) -> Vec<&str> {
        page.objects.iter().map(|object| object.key.as_str()).collect()
    }

    #[test]
    fn names_are_read_however_strange_they_are() {
        let coded = "<EncodingType>url</EncodingType>";
        let names = ["a%20b", "a+b", "a%2Bb", "%C3%A4%0A%01", "a//b", "/a", "%26amp%3B", "%20x%20", "%25"];
        let page = of_s3(&format!("{coded}{}", names.map(|name| entry(name, 1)).concat())).unwrap();
        let read = ["a b", "a b", "a+b", "ä\n\u{1}", "a//b", "/a", "&amp;", " x ", "%"];
        assert_eq!(keys(&page), read);
        // A storage that does not know the form writes names as they are.
        let page = of_s3(&entry("a+b%20 &amp;&#x41;<![CDATA[<c>]]>", 2)).unwrap();
        assert_eq!(keys(&page), ["a+b%20 &A<c>"]);
        assert_eq!((page.objects[0].size, page.objects[0].version.as_str()), (2, "e2"));
    }

    #[test]
    fn what_cannot_be_a_document_is_named_and_folders_are_left_out() {
        let coded = "<EncodingType>url</EncodingType>";
        let names = ["a/../b", "./a", "%FF", "a%00", "folder/"].map(|name| entry(name, 0)).concat();
        let page = of_s3(&format!("{coded}{names}{}", entry("file/", 3))).unwrap();
        assert_eq!(keys(&page), ["file/"]);
        let failed: Vec<&str> = page.failed.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(failed, ["a/../b", "./a", "\u{fffd}", "a\u{fffd}"]);
    }

    #[test]
    fn a_page_that_is_not_whole_is_an_error() {
        assert_eq!(of_s3("<NextContinuationToken>t</NextContinuationToken>").unwrap().next.unwrap(), "t");
        assert!(of_s3("<IsTruncated>true</IsTruncated>").unwrap_err().contains("not complete"));
        let whole = format!("<ListBucketResult>{}</ListBucketResult>", entry("a", 1));
        for length in 0..whole.len() {
            assert!(read_page(Storage::S3, &whole.as_bytes()[..length]).is_err(), "{length}");
        }
        assert!(of_s3("<Contents><Key>a</Key></Contents>").is_err());
        for other in ["<html><body>hello</body></html>", "{}", "<Error><Code>x</Code></Error>"] {
            assert!(read_page(Storage::S3, other.as_bytes()).is_err(), "{other}");
        }
        let bomb = format!("<ListBucketResult>{}</ListBucketResult>", "<a>".repeat(1000));
        assert!(read_page(Storage::S3, bomb.as_bytes()).unwrap_err().contains("nested"));
    }

    #[test]
    fn a_listing_of_azure_is_read_without_directories() {
        let blob = |name: &str, kind: &str| {
            format!(
                "<Blob>{name}<Properties><Last-Modified>Mon</Last-Modified><Etag>0x8D</Etag><Content-Length>5</Content-Length>\
                 <ResourceType>{kind}</ResourceType></Properties></Blob>"
            )
        };
        let xml = format!(
            "\u{feff}<EnumerationResults ContainerName=\"c\"><Blobs>{}{}{}</Blobs><NextMarker>m</NextMarker></EnumerationResults>",
            blob("<Name>a+b</Name>", "file"),
            blob("<Name>folder</Name>", "directory"),
            blob("<Name Encoded=\"true\">a%EF%BF%BF+</Name>", "file"),
        );
        let page = read_page(Storage::Azure, xml.as_bytes()).unwrap();
        assert_eq!(keys(&page), ["a+b", "a\u{ffff}+"]);
        assert_eq!((page.objects[0].version.as_str(), page.next.as_deref()), ("0x8D", Some("m")));
        let end = "<EnumerationResults><Blobs /><NextMarker /></EnumerationResults>";
        assert_eq!(read_page(Storage::Azure, end.as_bytes()).unwrap(), Page::default());
    }

    #[test]
    fn code_and_message_of_an_error_are_read_even_if_it_is_cut() {
        let xml = b"<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code><Message>It is &lt;gone&gt;.</Message><Host";
        assert_eq!(read_error(xml), (Some("NoSuchKey".into()), Some("It is <gone>.".into())));
        assert_eq!(read_error(b"<html><Code>x</Code></html>"), (None, None));
    }
}
