//! Transcripts of films and recordings: files with subtitles, WebVTT or SubRip, by path or address. Pure.

use super::config::{Allowed, SourceType};
use super::folder::FolderConfig;
use super::reader::{Content, Found, Listing, Reader, Wanted};
use super::web::{Means, Web, WebConfig};
use kb_types::error::Result;
use kb_types::json_reader::Fields;
use serde_json::{Map, Value};

#[derive(Debug, Clone, PartialEq)]
pub enum TranscriptConfig {
    Folder(FolderConfig),
    Web(WebConfig),
}

const NEITHER: &str = "it is neither WebVTT (.vtt) nor SubRip (.srt)";

impl TranscriptConfig {
    pub fn parse(fields: &mut Fields, has_path: bool, allowed: &Allowed) -> TranscriptConfig {
        fields.read_elsewhere("video_id");
        if let Some(provider) = fields.text("provider") {
            let instead = "download the captions with a tool of your own, and put them by kb.put_file, or name the \
                           files by \"path\" or \"urls\"";
            fields.problem(
                "provider",
                format!("\"{provider}\" has no public interface for captions: {instead}"),
            );
        }
        match has_path {
            true => {
                TranscriptConfig::Folder(FolderConfig::parse(SourceType::MediaTranscript, fields, allowed))
            }
            false => {
                let web = WebConfig::parse(fields, &allowed.hosts);
                if !web.is_list() {
                    fields.problem("urls", "transcripts are named one by one, without sitemap and crawl");
                }
                TranscriptConfig::Web(web)
            }
        }
    }

    pub fn to_json(&self) -> Map<String, Value> {
        match self {
            TranscriptConfig::Folder(folder) => folder.to_json(),
            TranscriptConfig::Web(web) => web.to_json(),
        }
    }

    pub fn reader(&self, allowed: &Allowed, means: Means) -> Result<Transcripts, String> {
        Ok(match self {
            TranscriptConfig::Folder(folder) => Transcripts(Box::new(folder.reader(allowed)?), true),
            TranscriptConfig::Web(web) => Transcripts(Box::new(Web::new(web.clone(), means)), false),
        })
    }
}

/// Files with subtitles among what another reader lists; whether that has names of files.
pub struct Transcripts(Box<dyn Reader>, bool);

impl Reader for Transcripts {
    fn list(&self) -> Result<Listing> {
        let mut listing = self.0.list()?;
        if self.1 {
            let (kept, others) = listing.items.into_iter().partition(|item| of_name(&item.path).is_some());
            listing.items = kept;
            listing.failed.extend(others.into_iter().map(|item| (item.path, NEITHER.to_string())));
        }
        Ok(listing)
    }

    fn read(&self, wanted: &[Wanted]) -> Result<Vec<Content>> {
        let read = self.0.read(wanted)?;
        Ok(read.into_iter().zip(wanted).map(|(content, item)| transcript(content, &item.path)).collect())
    }

    fn uri(&self, path: &str) -> String {
        self.0.uri(path)
    }

    fn nothing(&self) -> String {
        self.0.nothing()
    }

    fn needs_gateway(&self) -> bool {
        self.0.needs_gateway()
    }
}

/// The type by the end of a name. Query and fragment are ignored.
fn of_name(name: &str) -> Option<&'static str> {
    let name = name.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    [(".vtt", "text/vtt"), (".srt", "application/x-subrip")]
        .into_iter()
        .find_map(|(end, content_type)| name.ends_with(end).then_some(content_type))
}

fn of_claim(claimed: &str) -> Option<&'static str> {
    match claimed.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "text/vtt" => Some("text/vtt"),
        "application/x-subrip" | "text/x-subrip" | "application/srt" | "text/srt" => {
            Some("application/x-subrip")
        }
        _ => None,
    }
}

fn transcript(content: Content, path: &str) -> Content {
    let Content::Read(found) = content else { return content };
    let begins = found.bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&found.bytes).starts_with(b"WEBVTT");
    let by_bytes = begins.then_some("text/vtt");
    let claimed = || found.content_type.as_deref().and_then(of_claim);
    match by_bytes.or_else(claimed).or_else(|| of_name(path)) {
        Some(content_type) => Content::Read(Found { content_type: Some(content_type.into()), ..found }),
        None => Content::Unreadable(NEITHER.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_subtitles_are_transcripts() {
        let read = |bytes: &str, content_type: Option<&str>, path: &str| {
            let content_type = content_type.map(str::to_string);
            let found = Found { bytes: bytes.into(), content_type, ..Found::default() };
            match transcript(Content::Read(found), path) {
                Content::Read(found) => found.content_type,
                _ => None,
            }
        };
        let (vtt, srt) = (Some("text/vtt".to_string()), Some("application/x-subrip".to_string()));
        assert_eq!(read("WEBVTT\n", Some("text/plain"), "https://x.org/captions"), vtt);
        assert_eq!(
            read("1\n00:00:01,000 --> 00:00:02,000\nHi\n", Some("text/plain"), "https://x.org/a.SRT?x=y"),
            srt
        );
        assert_eq!(read("1\n", Some("application/x-subrip; charset=latin1"), "https://x.org/a"), srt);
        assert_eq!(read("<html>", Some("text/html"), "https://x.org/a?b=.vtt"), None);
    }
}
