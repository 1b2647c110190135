//! The console: static files, which are in the program.

use super::Body;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue,
    IF_NONE_MATCH, REFERRER_POLICY, X_FRAME_OPTIONS,
};
use hyper::{Response, StatusCode};
use std::sync::LazyLock;

/// The page asks this server alone, runs no text as a script, and is shown in no other page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'";

struct File {
    path: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
    etag: String,
}

/// The files of the folder console: their paths on the server, their names and their types.
macro_rules! files {
    ($($path:literal => $name:literal, $content_type:literal;)*) => {
        static FILES: LazyLock<Vec<File>> = LazyLock::new(|| vec![$({
            let bytes: &[u8] = include_bytes!(concat!("../../console/", $name));
            let etag = format!("\"{}\"", &blake3::hash(bytes).to_hex()[..32]);
            File { path: $path, content_type: $content_type, bytes, etag }
        }),*]);
        #[cfg(test)]
        const NAMES: &[&str] = &[$($name),*];
    };
}

files! {
    "/" => "index.html", "text/html; charset=utf-8";
    "/console/style.css" => "style.css", "text/css; charset=utf-8";
}

/// The file of a path.
pub fn answer(path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    let file = FILES.iter().find(|file| file.path == path)?;
    let asked = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_known =
        asked.split(',').any(|etag| etag.trim() == "*" || etag.trim().trim_start_matches("W/") == file.etag);
    let body = if is_known { Bytes::new() } else { Bytes::from_static(file.bytes) };
    let mut response = Response::new(Full::new(body).boxed());
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    let etag = HeaderValue::from_str(&file.etag).ok()?;
    let fixed: [(HeaderName, &'static str); 5] = [
        (CONTENT_TYPE, file.content_type),
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-cache"),
        (REFERRER_POLICY, "no-referrer"),
        (X_FRAME_OPTIONS, "DENY"),
    ];
    headers.insert(ETAG, etag);
    headers.extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/console")).unwrap();
        for file in folder {
            let name = file.unwrap().file_name().into_string().unwrap();
            assert!(NAMES.contains(&name.as_str()), "{name} is not in the table of console.rs");
        }
    }

    #[test]
    fn pages_ask_no_other_host_and_have_no_script_in_their_text() {
        for file in FILES.iter() {
            let text = String::from_utf8_lossy(file.bytes);
            assert!(!text.contains("https://") && !text.contains("http://"), "{}", file.path);
            if file.content_type.starts_with("text/html") {
                assert!(!text.contains("style=") && !text.contains("onclick="), "{}", file.path);
            }
        }
    }

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let first = answer("/", &HeaderMap::new()).unwrap();
        assert_eq!(first.status(), 200);
        let policy = first.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"));
        let mut headers = HeaderMap::new();
        headers.insert(IF_NONE_MATCH, first.headers()[ETAG].clone());
        assert_eq!(answer("/", &headers).unwrap().status(), 304);
        assert!(answer("/console/../secret", &HeaderMap::new()).is_none());
    }
}
