//! Buckets of object storages: how they are reached, and what their objects are called.

use crate::json_reader::Fields;
use crate::named;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The interface of an object storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Storage {
    /// Amazon's, which many others have, too.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

named!(Storage { S3 => "s3", Gcs => "gcs", Azure => "azure" });

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    pub storage: Storage,
    /// The name of the bucket, or with Azure of the container.
    pub name: String,
    /// The URL of the storage, if it is not the provider's own.
    pub endpoint: Option<String>,
    /// The region of S3.
    pub region: Option<String>,
    /// The account of Azure.
    pub account: Option<String>,
    /// Whether the name is at the beginning of the host, and not of the path.
    pub is_in_host: bool,
}

/// The region that services without regions accept.
const REGION: &str = "us-east-1";

impl Bucket {
    /// Reads the fields of a bucket.
    pub fn read(storage: Storage, fields: &mut Fields) -> Bucket {
        let bucket = Bucket {
            storage,
            name: fields.required_text("bucket"),
            endpoint: fields.text("endpoint"),
            region: if storage == Storage::S3 { fields.text("region") } else { None },
            account: if storage == Storage::Azure { fields.text("account") } else { None },
            is_in_host: storage == Storage::S3 && fields.boolean("path_style") == Some(false),
        };
        let is_word = |text: &str, besides: &str| {
            let is_known = |c: char| c.is_ascii_alphanumeric() || besides.contains(c);
            (1..=255).contains(&text.len()) && text.chars().all(is_known) && !text.starts_with('.')
        };
        if !bucket.name.is_empty() && !is_word(&bucket.name, "-_.$") {
            fields.problem("bucket", "is not the name of a bucket");
        }
        if bucket.region.as_ref().is_some_and(|region| !is_word(region, "-")) {
            fields.problem("region", "is not the name of a region");
        }
        match &bucket.account {
            Some(account) if !is_word(account, "-") => {
                fields.problem("account", "is not the name of an account");
            }
            None if storage == Storage::Azure => fields.problem("account", "is missing"),
            _ => {}
        }
        if let Some(endpoint) = &bucket.endpoint {
            let rest = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
            if rest.is_none_or(|rest| rest.is_empty() || rest.contains(['?', '#', ' ', '@'])) {
                fields.problem("endpoint", "must be a URL such as https://minio.example.com:9000");
            }
        }
        bucket
    }

    /// Writes what [`Bucket::read`] reads.
    pub fn write(&self, json: &mut Map<String, Value>) {
        json.insert("bucket".into(), json!(self.name));
        let texts = [("endpoint", &self.endpoint), ("region", &self.region), ("account", &self.account)];
        for (key, text) in texts {
            json.extend(text.iter().map(|text| (key.to_string(), json!(text))));
        }
        if self.is_in_host {
            json.insert("path_style".into(), json!(false));
        }
    }

    pub fn region(&self) -> &str {
        self.region.as_deref().unwrap_or(REGION)
    }

    /// The URL of the bucket, without a slash at its end.
    pub fn url(&self) -> String {
        let own = match self.storage {
            Storage::S3 => format!("https://s3.{}.amazonaws.com", self.region()),
            Storage::Gcs => "https://storage.googleapis.com".into(),
            Storage::Azure => {
                format!("https://{}.blob.core.windows.net", self.account.as_deref().unwrap_or_default())
            }
        };
        let endpoint = self.endpoint.as_deref().unwrap_or(&own).trim_end_matches('/');
        match endpoint.split_once("://") {
            Some((scheme, rest)) if self.is_in_host => format!("{scheme}://{}.{rest}", self.name),
            _ => format!("{endpoint}/{}", self.name),
        }
    }

    /// The name of an object, as the tools of its provider write it.
    pub fn uri(&self, key: &str) -> String {
        let scheme = match self.storage {
            Storage::S3 => "s3",
            Storage::Gcs => "gs",
            Storage::Azure => "az",
        };
        format!("{scheme}://{}/{key}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(storage: Storage, config: Value) -> Result<Bucket, Vec<String>> {
        let mut fields = Fields::new("config", &config);
        let bucket = Bucket::read(storage, &mut fields);
        let problems = fields.finish();
        if problems.is_empty() { Ok(bucket) } else { Err(problems) }
    }

    #[test]
    fn a_bucket_has_a_url_at_its_provider_or_at_the_endpoint_that_is_given() {
        let url = |storage, config| read(storage, config).unwrap().url();
        assert_eq!(url(Storage::S3, json!({"bucket": "b"})), "https://s3.us-east-1.amazonaws.com/b");
        let config = json!({"bucket": "b", "region": "eu-west-1", "path_style": false});
        assert_eq!(url(Storage::S3, config), "https://b.s3.eu-west-1.amazonaws.com");
        let config = json!({"bucket": "b", "endpoint": "http://minio:9000/"});
        assert_eq!(url(Storage::S3, config), "http://minio:9000/b");
        assert_eq!(url(Storage::Gcs, json!({"bucket": "b"})), "https://storage.googleapis.com/b");
        let config = json!({"bucket": "b", "account": "a"});
        assert_eq!(url(Storage::Azure, config), "https://a.blob.core.windows.net/b");
    }

    #[test]
    fn what_cannot_be_a_bucket_is_refused_and_what_is_written_reads_back_the_same() {
        for wrong in [
            json!({}),
            json!({"bucket": "a/b"}),
            json!({"bucket": "../b"}),
            json!({"bucket": "b?x"}),
            json!({"bucket": "b", "region": "x.example.com/"}),
            json!({"bucket": "b", "endpoint": "file:///etc"}),
            json!({"bucket": "b", "endpoint": "https://user:key@host"}),
            json!({"bucket": "b", "endpoint": "https://host/?x="}),
            json!({"bucket": "b", "account": "of Azure"}),
        ] {
            assert!(read(Storage::S3, wrong.clone()).is_err(), "{wrong}");
        }
        assert!(read(Storage::Azure, json!({"bucket": "b"})).is_err());
        let config = json!({"bucket": "b", "endpoint": "http://m", "region": "r", "path_style": false});
        let bucket = read(Storage::S3, config.clone()).unwrap();
        let mut written = Map::new();
        bucket.write(&mut written);
        assert_eq!(Value::Object(written), config);
        assert_eq!(bucket.uri("a b/c"), "s3://b/a b/c");
    }
}
