//! Apache Tika Server. <https://cwiki.apache.org/confluence/display/TIKA/TikaServer>
//!
//! PUT /tika with `Accept: text/html` answers with XHTML, in which each page of a PDF is a `div` of class
//! page. Status 204 means that there is no text.

use super::{Address, Body, ExtractApi, ExtractFacts, HttpRequest, Provider, Unusable, form, read};
use kb_types::extraction::File;
use kb_types::extractor::{Extractor, PageText, ServiceText, TextType};
use kb_types::url_path;

pub const PROVIDER: Provider = Provider {
    name: "tika",
    address: Address::Given("the URL of Apache Tika Server, such as http://localhost:9998"),
    needs_secret: false,
    extract: Some(&Tika),
    ..Provider::DEFAULT
};

struct Tika;

/// How a page begins.
const PAGE: &str = "<div class=\"page\">";

impl ExtractApi for Tika {
    fn facts(&self) -> ExtractFacts {
        ExtractFacts { model: "", path: "/tika", keys: &["text_type"] }
    }

    fn problems(&self, extractor: &Extractor) -> Vec<String> {
        match extractor.config.text_type {
            Some(TextType::Markdown) => vec!["config.text_type: must be text/html or text/plain".into()],
            _ => Vec::new(),
        }
    }

    fn request(&self, extractor: &Extractor, url: String, file: &File) -> HttpRequest {
        let accept = match extractor.config.text_type {
            Some(TextType::Plain) => "text/plain",
            _ => "text/html",
        };
        // Other characters than these would end the value, or are not allowed in a header.
        let name = url_path::escaped(&form::name(file));
        HttpRequest {
            method: "PUT".into(),
            url,
            headers: vec![
                ("Accept", accept.into()),
                ("Content-Disposition", format!("attachment; filename={name}")),
            ],
            body: Body::Bytes {
                content_type: form::content_type(file).to_string(),
                bytes: file.bytes.clone(),
            },
        }
    }

    fn read(&self, extractor: &Extractor, body: &[u8]) -> Result<ServiceText, Unusable> {
        let text = read::text(body)?;
        if extractor.config.text_type == Some(TextType::Plain) {
            return Ok(ServiceText::whole(TextType::Plain, text));
        }
        if !text.trim().is_empty() && !text.contains("<html") {
            return Err("the answer is not the HTML expected".to_string().into());
        }
        let mut parts = text.split(PAGE);
        // The head, with the title.
        let before = PageText { number: None, text: parts.next().unwrap_or_default().to_string() };
        let pages = parts.zip(1..).map(|(page, number)| PageText { number: Some(number), text: page.into() });
        let pages = std::iter::once(before).chain(pages).collect();
        Ok(ServiceText { text_type: TextType::Html, pages, is_partial: false })
    }
}
