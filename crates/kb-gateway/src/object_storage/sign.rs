//! Credentials of storages, and requests that are signed with them (crate object_store).
//!
//! **Invariant:** a credential is what the source's secret says and nothing else. What the environment, files
//! of the machine or the metadata service of a cloud would offer is not looked at.

use super::super::endpoint::secret::Secret;
use kb_types::bucket::{Bucket, Storage};
use object_store::ClientOptions;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential, split_sas};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::gcp::GoogleCloudStorageBuilder;
use std::pin::Pin;

/// What requests are signed with.
pub enum Credential {
    Anonymous,
    S3(AwsCredential),
    Azure(AzureCredential),
    Bearer(Secret),
}

/// How a secret of a storage is written.
pub fn form(storage: Storage) -> &'static str {
    match storage {
        Storage::S3 => "ACCESS_KEY_ID:SECRET_ACCESS_KEY",
        Storage::Gcs => "the JSON file of a service account's key",
        Storage::Azure => "an account key or a shared access signature (SAS)",
    }
}

impl Credential {
    /// Reads a secret. The error does not repeat it.
    pub async fn read(storage: Storage, secret: Option<&Secret>) -> Result<Credential, String> {
        let Some(secret) = secret else { return Ok(Credential::Anonymous) };
        let text = secret.expose();
        let credential = match storage {
            Storage::S3 => of_s3(text).map(Credential::S3),
            Storage::Azure => of_azure(text).map(Credential::Azure),
            Storage::Gcs => of_google(text).await.map(Credential::Bearer),
        };
        credential.ok_or_else(|| format!("its secret must have the form: {}", form(storage)))
    }

    /// Adds what a request needs for its bucket to accept it.
    pub fn sign(&self, bucket: &Bucket, request: &mut HttpRequest) -> Result<(), String> {
        let failed = |_| "its request cannot be signed".to_string();
        match self {
            Credential::Anonymous => Ok(()),
            Credential::S3(credential) => {
                let authorizer = AwsAuthorizer::new(credential, "s3", bucket.region());
                authorizer.try_authorize(request, None).map_err(failed)
            }
            Credential::Azure(credential) => {
                let account = bucket.account.as_deref().unwrap_or_default();
                AzureAuthorizer::new(credential, account).try_authorize(request).map_err(failed)
            }
            Credential::Bearer(token) => {
                let value = format!("Bearer {}", token.expose()).parse();
                let value = value.map_err(|_| "its token contains invalid characters".to_string())?;
                request.headers_mut().insert("authorization", value);
                Ok(())
            }
        }
    }
}

/// The parts of a secret that a server may repeat.
pub fn parts(storage: Storage, secret: &Secret) -> Vec<Secret> {
    let text = secret.expose();
    match storage {
        Storage::S3 => text.split(':').map(Secret::new).collect(),
        Storage::Azure => {
            text.split('&').filter_map(|part| part.strip_prefix("sig=")).map(Secret::new).collect()
        }
        Storage::Gcs => Vec::new(),
    }
}

fn of_s3(text: &str) -> Option<AwsCredential> {
    let mut parts = text.splitn(3, ':');
    let (key_id, secret_key) = (parts.next()?.to_string(), parts.next()?.to_string());
    let token = parts.next().map(str::to_string);
    // Two of them become headers.
    let is_good = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    let is_whole = is_good(&key_id) && !secret_key.is_empty() && token.as_deref().is_none_or(is_good);
    is_whole.then_some(AwsCredential { key_id, secret_key, token })
}

fn of_azure(text: &str) -> Option<AzureCredential> {
    match text.contains("sig=") {
        true => split_sas(text).ok().map(AzureCredential::SASToken),
        false => AzureAccessKey::try_new(text).ok().map(AzureCredential::AccessKey),
    }
}

/// A token that the key of a service account has signed, which is valid for an hour. No request is needed.
async fn of_google(json: &str) -> Option<Secret> {
    let storage = GoogleCloudStorageBuilder::new()
        .with_bucket_name("bucket")
        .with_service_account_key(json)
        .with_http_connector(Nowhere)
        .build()
        .ok()?;
    let credential = storage.credentials().get_credential().await.ok()?;
    // A key file can say that no token is needed.
    (!credential.bearer.is_empty()).then(|| Secret::new(&credential.bearer))
}

/// A client that sends nothing.
#[derive(Debug)]
struct Nowhere;

impl HttpConnector for Nowhere {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Nowhere))
    }
}

impl HttpService for Nowhere {
    fn call<'a, 'b>(
        &'a self,
        _request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let refused = std::io::Error::other("kb asks no service for credentials");
        Box::pin(async { Err(HttpError::new(HttpErrorKind::Unknown, refused)) })
    }
}
