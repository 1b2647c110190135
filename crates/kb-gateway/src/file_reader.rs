//! Extraction services at endpoints: writes a file as a request and reads the text of the reply.

use super::endpoint::access::Access;
use super::endpoint::call::{Endpoint, Operation};
use super::endpoint::classify::{Answer, Unusable};
use super::endpoint::transport::HttpRequest;
use super::endpoint::usage::Usage;
use super::frame::MAX_FILE_TEXT;
use super::provider::{self, ExtractApi};
use super::services::{Caller, Service, Services};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kb_types::ServiceKind;
use kb_types::error::Result;
use kb_types::extraction::File;
use kb_types::extractor::{Extractor, ServiceText};
use std::borrow::Cow;
use std::sync::Arc;

/// The most bytes of a reply, in which much is beside the text.
const MAX_REPLY: usize = 4 * MAX_FILE_TEXT;

/// An image of the word "yes", which every service that recognises text can read.
const IMAGE: &str = "iVBORw0KGgoAAAANSUhEUgAAAFQAAAAsAQAAAADTYaLAAAAAOklEQVR42mP4jwAMQ5LN/5//A8P/Dwz8xLPB6D+RbKAu\
                     BgaQdiLZ/yEa//MTyQY77D8D1BzCbNqGJwCsdogsuevH6AAAAABJRU5ErkJggg==";

/// A small file that no service has reason to refuse.
pub fn probe() -> File {
    File {
        name: Some("yes.png".into()),
        content_type: Some("image/png".into()),
        bytes: STANDARD.decode(IMAGE).unwrap_or_default(),
        max_text: MAX_FILE_TEXT,
        ..File::default()
    }
}

/// An extraction service with its endpoint.
struct FileReader {
    extractor: Extractor,
    api: &'static dyn ExtractApi,
    service: Service,
    endpoint: Arc<Endpoint>,
}

/// The operation of asking for the text of a file.
struct Exchange<'a> {
    reader: &'a FileReader,
    file: Cow<'a, File>,
}

fn too_large(most: usize) -> Unusable {
    Unusable::Rejected(format!("the file has more than {most} bytes of text"))
}

impl Operation for Exchange<'_> {
    type Output = ServiceText;

    fn request(&self) -> HttpRequest {
        let FileReader { extractor, api, service, .. } = self.reader;
        api.request(extractor, service.url(), &self.file)
    }

    fn max_reply(&self) -> usize {
        MAX_REPLY
    }

    /// The file decides how long the reply is, and it will be as long the next time.
    fn too_long(&self) -> Option<Unusable> {
        Some(too_large(MAX_REPLY))
    }

    fn read(&self, body: &[u8]) -> std::result::Result<Answer<ServiceText>, Unusable> {
        let text = self.reader.api.read(&self.reader.extractor, body)?;
        let (size, most) = (text.size(), self.file.max_text.min(MAX_FILE_TEXT));
        if size > most {
            return Err(too_large(most));
        }
        Ok(Answer { value: text, tokens: Some(size as u64 / 4 + 1) })
    }

    fn probe(&self) -> Self {
        Exchange { reader: self.reader, file: Cow::Owned(probe()) }
    }
}

/// The text of a file. Adds the cost to `usage`, even if it fails: the tokens of the text, at about four
/// bytes each.
pub async fn read(
    services: &Services,
    extractor: Extractor,
    access: &Access,
    file: File,
    caller: &Caller,
    usage: &mut Usage,
) -> Result<ServiceText> {
    let kind = ServiceKind::Extractor;
    let (provider, api) = provider::with_api(kind, &extractor.provider, |provider| provider.extract)?;
    let (base_url, remote) = (extractor.base_url.as_deref(), &extractor.config.remote);
    let service = Service::new(kind, &extractor.id, provider, base_url, remote, |_| api.facts().path);
    let endpoint = services.endpoint(&service, access)?;
    let reader = FileReader { extractor, api, service, endpoint };
    let exchange = Exchange { reader: &reader, file: Cow::Owned(file) };
    // How much text a file has is not known before.
    let text = reader.service.call(&reader.endpoint, &exchange, 1, caller, usage).await?;
    usage.texts += 1;
    Ok(text)
}
