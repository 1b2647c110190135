//! The partition endpoint of Unstructured. <https://docs.unstructured.io/api-reference/partition/overview>
//!
//! The reply is an array of elements, each with its type, its text and its page. They become Markdown: titles
//! are headings, and tables are those of `text_as_html`, where the strategy finds them.

use super::form::Form;
use super::{Address, Auth, ExtractApi, ExtractFacts, HttpRequest, Provider, Unusable, read};
use kb_types::extraction::File;
use kb_types::extractor::{Extractor, PageText, ServiceText, TextType};
use serde::Deserialize;

const BASE: &str = "https://api.unstructuredapp.io";

pub const PROVIDER: Provider = Provider {
    name: "unstructured",
    address: Address::Default(BASE),
    auth: Auth::Header("unstructured-api-key"),
    extract: Some(&Unstructured),
    ..Provider::DEFAULT
};

struct Unstructured;

#[derive(Deserialize)]
struct Element {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
struct Metadata {
    page_number: Option<u32>,
    category_depth: Option<usize>,
    text_as_html: Option<String>,
}

impl Element {
    /// The element in HTML, which is made Markdown with the rest of its page. None: it has nothing to say.
    fn html(&self) -> Option<String> {
        let text = escaped(self.text.trim());
        let depth = self.metadata.category_depth.unwrap_or(0).min(5) + 1;
        match self.kind.as_str() {
            "PageBreak" | "PageNumber" => None,
            "Table" if self.metadata.text_as_html.is_some() => self.metadata.text_as_html.clone(),
            _ if text.is_empty() => None,
            "Title" => Some(format!("<h{depth}>{text}</h{depth}>")),
            "ListItem" | "List-item" => Some(format!("<ul><li>{text}</li></ul>")),
            "CodeSnippet" => Some(format!("<pre><code>{text}</code></pre>")),
            _ => Some(format!("<p>{}</p>", text.replace('\n', "<br>"))),
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl ExtractApi for Unstructured {
    fn facts(&self) -> ExtractFacts {
        ExtractFacts { model: "", path: "/general/v0/general", keys: &["form"] }
    }

    fn problems(&self, extractor: &Extractor) -> Vec<String> {
        super::reserved(extractor, ["files", "output_format", "chunking_strategy"])
    }

    fn request(&self, extractor: &Extractor, url: String, file: &File) -> HttpRequest {
        let mut form = Form::of_file("files", file);
        form.text("output_format", "application/json");
        super::add_fields(&mut form, extractor);
        let headers = vec![("Accept", "application/json".to_string())];
        HttpRequest { method: "POST".into(), url, headers, body: form.finish() }
    }

    fn read(&self, _extractor: &Extractor, body: &[u8]) -> Result<ServiceText, Unusable> {
        let elements: Vec<Element> = read::parse(body)?;
        let mut pages: Vec<PageText> = Vec::new();
        for element in elements {
            let number = element.metadata.page_number;
            let Some(html) = element.html() else { continue };
            match pages.last_mut().filter(|page| page.number == number) {
                Some(page) => page.text.push_str(&html),
                None => pages.push(PageText { number, text: html }),
            }
        }
        Ok(ServiceText { text_type: TextType::Html, pages, is_partial: false })
    }
}
