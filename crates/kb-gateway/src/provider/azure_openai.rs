//! OpenAI's models as deployments in Azure: the same body without the model, which the URL names.
//! <https://learn.microsoft.com/azure/ai-services/openai/reference#embeddings>

use super::{Answer, Auth, HttpRequest, Provider, Unusable, read, url};
use kb_types::remote::EncodingFormat;
use kb_types::{Embedder, Kind};
use serde_json::json;

pub struct AzureOpenAi;

impl Provider for AzureOpenAi {
    fn base_url(&self) -> Option<&'static str> {
        None
    }

    fn model(&self) -> Option<(&'static str, usize)> {
        None
    }

    fn auth(&self) -> Auth {
        Auth::Header("api-key")
    }

    fn max_batch(&self, _embedder: &Embedder) -> usize {
        2048
    }

    fn keys(&self) -> &'static [&'static str] {
        &["api_version", "dimensions", "encoding_format"]
    }

    fn problems(&self, embedder: &Embedder) -> Vec<String> {
        if embedder.base_url.is_some() {
            return Vec::new();
        }
        vec![
            "base_url: must be given: the deployment's, \
             https://RESOURCE.openai.azure.com/openai/deployments/DEPLOYMENT"
                .to_string(),
        ]
    }

    fn request(&self, embedder: &Embedder, _kind: Kind, texts: &[String]) -> HttpRequest {
        let remote = &embedder.config.remote;
        let mut body = json!({
            "input": texts,
            "encoding_format": remote.encoding_format.unwrap_or(EncodingFormat::Float),
        });
        if let Some(dimensions) = remote.dimensions {
            body["dimensions"] = json!(dimensions);
        }
        let version = remote.api_version.as_deref().unwrap_or("2024-10-21");
        let url = format!("{}?api-version={version}", url(embedder, "", "/embeddings"));
        HttpRequest { method: "POST".to_string(), url, body }
    }

    fn read(&self, _embedder: &Embedder, body: &[u8], count: usize) -> Result<Answer, Unusable> {
        read::openai(body, count)
    }
}
