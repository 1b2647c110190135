//! OpenAI's models as deployments in Azure: the same body without the model, which the URL names.
//! <https://learn.microsoft.com/azure/ai-services/openai/reference#embeddings>

use super::{Address, Auth, EmbedAnswer, EmbedApi, EmbedFacts, HttpRequest, Provider, Unusable, read, url};
use kb_types::remote_settings::EncodingFormat;
use kb_types::{Embedder, Kind};
use serde_json::json;

pub const PROVIDER: Provider = Provider {
    name: "azure_openai",
    address: Address::Given(
        "the URL of the deployment, https://RESOURCE.openai.azure.com/openai/deployments/DEPLOYMENT",
    ),
    auth: Auth::Header("api-key"),
    embed: Some(&AzureOpenAi),
    ..Provider::DEFAULT
};

struct AzureOpenAi;

impl EmbedApi for AzureOpenAi {
    fn facts(&self) -> EmbedFacts {
        EmbedFacts {
            model: Some(""),
            dimension: None,
            max_batch: 2048,
            keys: &["api_version", "dimensions", "encoding_format"],
        }
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
        HttpRequest::post(url, body)
    }

    fn read(&self, _embedder: &Embedder, body: &[u8], count: usize) -> Result<EmbedAnswer, Unusable> {
        read::openai(body, count)
    }
}
