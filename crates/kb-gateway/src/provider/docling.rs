//! docling-serve. <https://github.com/docling-project/docling-serve/blob/main/docs/usage.md>
//!
//! The form has the file and options; the reply has the text as Markdown, in which a text that the request
//! chooses is between the pages. docling does not say their numbers, so pages without text are not counted.

use super::form::Form;
use super::{Address, Auth, ExtractApi, ExtractFacts, HttpRequest, Provider, Unusable, read};
use kb_types::extraction::File;
use kb_types::extractor::{Extractor, PageText, ServiceText, TextType};
use serde::Deserialize;

pub const PROVIDER: Provider = Provider {
    name: "docling",
    address: Address::Given("the URL of docling-serve, such as http://localhost:5001"),
    auth: Auth::Header("x-api-key"),
    needs_secret: false,
    extract: Some(&Docling),
    ..Provider::DEFAULT
};

struct Docling;

/// What is between pages, and in the place of an image.
const BREAK: &str = "<!-- page of kb -->";
const IMAGE: &str = "<!-- image -->";
/// The fields that the reply must have been asked for with. Images would be in the text, in base64.
const OPTIONS: [(&str, &str); 3] =
    [("to_formats", "md"), ("image_export_mode", "placeholder"), ("md_page_break_placeholder", BREAK)];

#[derive(Deserialize)]
struct Converted {
    #[serde(default)]
    document: Option<Document>,
    status: String,
    #[serde(default)]
    errors: Vec<Failure>,
}

#[derive(Deserialize)]
struct Document {
    md_content: Option<String>,
}

#[derive(Default, Deserialize)]
struct Failure {
    #[serde(default)]
    error_message: String,
}

impl ExtractApi for Docling {
    fn facts(&self) -> ExtractFacts {
        ExtractFacts { model: "", path: "/v1/convert/file", keys: &["form"] }
    }

    fn problems(&self, extractor: &Extractor) -> Vec<String> {
        super::reserved(extractor, OPTIONS.iter().map(|(name, _)| *name).chain(["files", "target_type"]))
    }

    fn request(&self, extractor: &Extractor, url: String, file: &File) -> HttpRequest {
        let mut form = Form::of_file("files", file);
        OPTIONS.iter().for_each(|(name, value)| form.text(name, value));
        super::add_fields(&mut form, extractor);
        HttpRequest { method: "POST".into(), url, headers: Vec::new(), body: form.finish() }
    }

    fn read(&self, _extractor: &Extractor, body: &[u8]) -> Result<ServiceText, Unusable> {
        let Converted { document, status, errors } = read::parse(body)?;
        let is_partial = match status.as_str() {
            "success" => false,
            "partial_success" => true,
            "failure" | "skipped" => {
                let message =
                    errors.first().map(|error| read::line(&error.error_message)).unwrap_or_default();
                let problem = format!("docling could not convert the file: {message}");
                return Err(Unusable::Rejected(problem.trim_end_matches([':', ' ']).to_string()));
            }
            other => return Err(format!("the answer has the unknown status {:?}", read::line(other)).into()),
        };
        let text = document.and_then(|document| document.md_content);
        let text = text.ok_or_else(|| "the answer has no document.md_content".to_string())?;
        let text = text.replace(IMAGE, "");
        let pages = text.split(BREAK).zip(1..);
        // Formats without pages have no break.
        let has_pages = text.contains(BREAK);
        let pages =
            pages.map(|(text, number)| PageText { number: has_pages.then_some(number), text: text.into() });
        Ok(ServiceText { text_type: TextType::Markdown, pages: pages.collect(), is_partial })
    }
}
