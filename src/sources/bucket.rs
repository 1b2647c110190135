//! Lists and reads buckets of object storages, through the gateway. Calls nothing of PostgreSQL.
//!
//! **Invariant:** an object is taken for deleted only if a listing that was read to its end does not have it,
//! or the storage says that it is not there.

use super::config::{Allowed, SourceType};
use super::reader::{Content, Found, Item, Listing, READ_BYTES, Reader, Wanted};
use crate::gateway::pump::Pump;
use flate2::read::MultiGzDecoder;
use globset::{GlobBuilder, GlobMatcher};
use kb_gateway::endpoint::secret_reference::Reference;
use kb_gateway::protocol::{Access, Client, Object, ObjectPart, Page, Request, Response, WantedPart};
use kb_types::bucket::{Bucket, Storage};
use kb_types::error::{Error, Result};
use kb_types::json_reader::Fields;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::io::Read as _;

/// The most objects that a source may have; their names are in the worker's memory.
const MOST_OBJECTS: usize = 1_000_000;
/// The most pages of a listing, which may be emptier than they could be.
const MOST_PAGES: usize = 20_000;
/// Objects that are read at the same time.
const AT_ONCE: usize = 4;
/// How often an object is read from its beginning that changes while it is read.
const READS: usize = 3;

/// The configuration of a source of type s3, gcs, azure or cloud_storage.
#[derive(Debug, Clone, PartialEq)]
pub struct BucketConfig {
    pub bucket: Bucket,
    /// Whether the type is cloud_storage, which names its provider.
    names_provider: bool,
    prefix: String,
    path: Option<String>,
    /// A reference to the key. None: the bucket is public.
    pub secret: Option<String>,
}

impl BucketConfig {
    pub fn parse(kind: SourceType, fields: &mut Fields) -> BucketConfig {
        let own = match kind {
            SourceType::Gcs => Some(Storage::Gcs),
            SourceType::Azure => Some(Storage::Azure),
            SourceType::CloudStorage => None,
            _ => Some(Storage::S3),
        };
        let storage = own.or_else(|| {
            let before = fields.problems.len();
            let storage = fields.named("provider");
            if storage.is_none() && fields.problems.len() == before {
                fields.problem("provider", "is missing");
            }
            storage
        });
        let bucket = Bucket::read(storage.unwrap_or(Storage::S3), fields);
        let config = BucketConfig {
            bucket,
            names_provider: own.is_none(),
            prefix: fields.text("prefix").unwrap_or_default(),
            path: fields.text("path"),
            secret: fields.secret("secret"),
        };
        if let Some(Err(problem)) = config.path.as_deref().map(matcher) {
            fields.problem("path", problem);
        }
        let is_public = fields.boolean("anonymous").unwrap_or(false);
        match (&config.secret, is_public) {
            // The problem never repeats the text, which may be the key itself.
            (Some(secret), false) => drop(Reference::parse(secret).map_err(|problem| {
                fields.problem("secret", problem);
            })),
            (Some(_), true) => fields.problem("anonymous", "is true, so that there must be no secret"),
            (None, true) => {}
            (None, false) => fields.problem(
                "secret",
                "is missing: give env:NAME, file:NAME or kb:NAME, or for a public bucket \"anonymous\": true",
            ),
        }
        config
    }

    pub fn to_json(&self) -> Map<String, Value> {
        let mut json = Map::new();
        if self.names_provider {
            json.insert("provider".into(), json!(self.bucket.storage.name()));
        }
        self.bucket.write(&mut json);
        if !self.prefix.is_empty() {
            json.insert("prefix".into(), json!(self.prefix));
        }
        json.extend(self.path.iter().map(|path| ("path".into(), json!(path))));
        match &self.secret {
            Some(secret) => json.insert("secret".into(), json!(secret)),
            None => json.insert("anonymous".into(), json!(true)),
        };
        json
    }

    pub fn reader(&self, access: Access, client: Client, allowed: &Allowed) -> Result<BucketReader, String> {
        let path = self.path.as_deref();
        let fixed = path.map(fixed).unwrap_or_default();
        // The longer of the two; if neither begins like the other, nothing can match.
        let prefix = if fixed.starts_with(&self.prefix) { fixed } else { self.prefix.clone() };
        let matcher = path.map(matcher).transpose().map_err(|problem| format!("config.path: {problem}"))?;
        let reader = BucketReader {
            bucket: self.bucket.clone(),
            prefix,
            matcher,
            path: self.path.clone(),
            access,
            client,
            max_size: allowed.max_size,
        };
        Ok(reader)
    }
}

/// Matches whole keys.
fn matcher(path: &str) -> Result<GlobMatcher, String> {
    let glob = GlobBuilder::new(path).literal_separator(true).build();
    Ok(glob.map_err(|error| error.kind().to_string())?.compile_matcher())
}

/// What all keys that a pattern matches begin with.
fn fixed(path: &str) -> String {
    let special = path.find(['*', '?', '[', ']', '{', '}', '\\']).unwrap_or(path.len());
    let end = if special == path.len() { special } else { path[..special].rfind('/').map_or(0, |at| at + 1) };
    path[..end].to_string()
}

/// Lists and reads a bucket.
pub struct BucketReader {
    bucket: Bucket,
    prefix: String,
    matcher: Option<GlobMatcher>,
    path: Option<String>,
    access: Access,
    client: Client,
    max_size: usize,
}

/// An object that is being read.
struct Reading<'a> {
    key: &'a str,
    bytes: Vec<u8>,
    etag: Option<String>,
    /// How often it was begun.
    begun: usize,
    end: Option<Content>,
}

impl Reader for BucketReader {
    fn needs_gateway(&self) -> bool {
        true
    }

    fn list(&self) -> Result<Listing> {
        let mut pump = Pump::open()?;
        let (mut listing, mut asked) = (Listing::default(), HashSet::new());
        let mut next: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let page = match self.page(&mut pump, next.take())? {
                Ok(page) => page,
                Err(problem) => {
                    listing.problem = Some(format!("the bucket cannot be listed: {problem}"));
                    break;
                }
            };
            self.take_page(page.objects, page.failed, &mut listing);
            let Some(token) = page.next else { return Ok(ended(listing)) };
            if listing.items.len() + listing.failed.len() > MOST_OBJECTS {
                listing.problem = Some(format!("it has more than {MOST_OBJECTS} objects; narrow its prefix"));
                break;
            }
            if !asked.insert(blake3::hash(token.as_bytes())) {
                listing.problem = Some("the bucket cannot be listed: its listing repeats itself".into());
                break;
            }
            next = Some(token);
        }
        if next.is_some() {
            listing.problem = Some(format!("its listing has more than {MOST_PAGES} pages"));
        }
        Ok(ended(listing))
    }

    fn read(&self, wanted: &[Wanted]) -> Result<Vec<Content>> {
        let mut bytes = 0;
        let fits = |item: &&Wanted| {
            let is_first = bytes == 0;
            bytes += item.size.min(self.max_size).max(1);
            is_first || bytes <= READ_BYTES
        };
        let mut readings: Vec<Reading> = wanted.iter().take_while(fits).map(Reading::new).collect();
        let mut pump = Pump::open()?;
        loop {
            let open: Vec<usize> =
                (0..readings.len()).filter(|number| readings[*number].end.is_none()).collect();
            if open.is_empty() {
                break;
            }
            let requests: Vec<Request> = open.iter().map(|number| self.request(&readings[*number])).collect();
            let mut requests = requests.into_iter();
            let mut unexpected = None;
            pump.run(
                AT_ONCE,
                || requests.next(),
                |number, response| match (response, open.get(number)) {
                    (Response::ReadPart(part), Some(reading)) => readings[*reading].take(part, self.max_size),
                    (response, _) => unexpected = Some(error(response)),
                },
            )?;
            unexpected.map_or(Ok(()), Err)?;
        }
        Ok(readings.into_iter().filter_map(|reading| reading.end).collect())
    }

    fn uri(&self, path: &str) -> String {
        self.bucket.uri(path)
    }

    fn nothing(&self) -> String {
        let beneath = match self.prefix.as_str() {
            "" => String::new(),
            prefix => format!(" with prefix \"{prefix}\""),
        };
        let matching = self.path.iter().map(|path| format!(" that matches \"{path}\"")).collect::<String>();
        format!("bucket \"{}\" has no object{beneath}{matching}", self.bucket.name)
    }
}

impl BucketReader {
    /// A page of the listing, or why there is none.
    fn page(&self, pump: &mut Pump, next: Option<String>) -> Result<Result<Page, String>> {
        let mut request = Some(Request::ListObjects {
            bucket: self.bucket.clone(),
            access: self.access.clone(),
            prefix: self.prefix.clone(),
            next,
            client: self.client.clone(),
        });
        let mut answer = None;
        pump.run(1, || request.take(), |_, response| answer = Some(response))?;
        match answer {
            Some(Response::Listed(page)) => Ok(page),
            Some(response) => Err(error(response)),
            None => Err(Error::Internal("the gateway did not list a bucket".into())),
        }
    }

    fn take_page(&self, objects: Vec<Object>, failed: Vec<(String, String)>, listing: &mut Listing) {
        let is_wanted = |key: &str| self.matcher.as_ref().is_none_or(|matcher| matcher.is_match(key));
        listing.failed.extend(failed.into_iter().filter(|(key, _)| is_wanted(key)));
        let items = objects.into_iter().filter(|object| is_wanted(&object.key)).map(|object| Item {
            version: Some(version(object.size, &object.version)),
            size: usize::try_from(object.size).unwrap_or(usize::MAX),
            path: object.key,
        });
        listing.items.extend(items);
    }

    fn request(&self, reading: &Reading) -> Request {
        Request::ReadObject {
            bucket: self.bucket.clone(),
            access: self.access.clone(),
            part: WantedPart {
                key: reading.key.to_string(),
                etag: reading.etag.clone().filter(|_| !reading.bytes.is_empty()),
                from: reading.bytes.len() as u64,
            },
            client: self.client.clone(),
        }
    }
}

/// A listing in order. A bucket that changes while it is listed may name an object twice.
fn ended(mut listing: Listing) -> Listing {
    listing.items.sort_by(|a, b| a.path.cmp(&b.path));
    listing.items.dedup_by(|later, first| later.path == first.path);
    listing
}

fn version(size: u64, etag: &str) -> String {
    format!("{size} {etag}")
}

/// Unpacks at most a byte more than `most`.
fn unpack(packed: &[u8], most: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    MultiGzDecoder::new(packed).take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn error(response: Response) -> Error {
    match response {
        Response::Error(fault) => fault.into(),
        other => Error::Internal(format!("unexpected answer of the gateway: {other:?}")),
    }
}

impl<'a> Reading<'a> {
    fn new(wanted: &'a Wanted) -> Reading<'a> {
        Reading { key: &wanted.path, bytes: Vec::new(), etag: None, begun: 1, end: None }
    }

    /// Takes a part of it.
    fn take(&mut self, part: ObjectPart, max_size: usize) {
        match part {
            ObjectPart::Gone => self.end = Some(Content::Gone),
            ObjectPart::Failed(problem) => self.end = Some(Content::Unreadable(problem)),
            ObjectPart::Changed if self.begun == READS => {
                self.end = Some(Content::Unreadable("it changes again and again while it is read".into()));
            }
            ObjectPart::Changed => {
                let begun = self.begun + 1;
                (self.bytes, self.etag, self.begun) = (Vec::new(), None, begun);
            }
            ObjectPart::Read { size, .. } if size > max_size as u64 => {
                self.end = Some(Content::TooLarge(usize::try_from(size).unwrap_or(usize::MAX)));
            }
            ObjectPart::Read { bytes, size, etag, content_type, is_packed } => {
                let is_first = self.bytes.is_empty();
                if bytes.is_empty() && size > self.bytes.len() as u64 || !is_first && self.etag != etag {
                    let problem = "the storage does not say which version it sends, or sends nothing";
                    self.end = Some(Content::Unreadable(problem.into()));
                    return;
                }
                self.bytes.extend(bytes);
                self.etag = etag;
                if self.bytes.len() as u64 >= size {
                    // Without an ETag it is read again the next time.
                    let version = self.etag.as_deref().map(|etag| version(size, etag)).unwrap_or_default();
                    let bytes = std::mem::take(&mut self.bytes);
                    let bytes = match is_packed.then(|| unpack(&bytes, max_size)) {
                        Some(Ok(bytes)) if bytes.len() > max_size => {
                            self.end = Some(Content::TooLarge(bytes.len()));
                            return;
                        }
                        Some(Err(_)) => {
                            let problem = "it is said to be compressed by gzip, and cannot be unpacked";
                            self.end = Some(Content::Unreadable(problem.into()));
                            return;
                        }
                        Some(Ok(bytes)) => bytes,
                        None => bytes,
                    };
                    // Tools that upload guess the type by the name's ending, as is done here; only a name
                    // without one says less than they did. The last is sent if nothing else is known.
                    let has_ending = self.key.rsplit('/').next().is_some_and(|name| name.contains('.'));
                    let content_type =
                        content_type.filter(|kind| !has_ending && !kind.ends_with("/octet-stream"));
                    self.end =
                        Some(Content::Read(Found { bytes, version, content_type, ..Found::default() }));
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "bucket_tests.rs"]
mod tests;
