//! The configuration of a source of type url. Pure.

use super::addresses::normal;
use globset::{GlobBuilder, GlobMatcher};
use kb_gateway::endpoint::egress::AllowedHosts;
use kb_types::json_reader::Fields;
use serde_json::{Map, Value, json};
use url::Url;

const RATE: f64 = 5.0;
const TIMEOUT_MS: u64 = 60_000;
const DEPTH: i64 = 3;
const MAX_PAGES: i64 = 1_000;

#[derive(Debug, Clone, PartialEq)]
pub struct WebConfig {
    pub urls: Vec<Url>,
    pub ways: Ways,
    /// Whether robots.txt is honoured.
    pub robots: bool,
    /// Requests a second to a host.
    pub rate: f64,
    pub timeout_ms: u64,
}

/// How further pages are found.
#[derive(Debug, Clone, PartialEq)]
pub enum Ways {
    Listed { sitemap: Option<Url> },
    Crawl(Crawl),
}

/// Which pages are followed.
#[derive(Debug, Clone)]
pub struct Crawl {
    pub depth: usize,
    pub max_pages: usize,
    include: Patterns,
    exclude: Patterns,
}

#[derive(Debug, Clone)]
struct Patterns {
    texts: Vec<String>,
    matchers: Vec<GlobMatcher>,
}

impl PartialEq for Crawl {
    fn eq(&self, other: &Crawl) -> bool {
        self.to_json() == other.to_json()
    }
}

impl WebConfig {
    pub fn parse(fields: &mut Fields, hosts: &AllowedHosts) -> WebConfig {
        let mut urls = Vec::new();
        for text in fields.texts("urls").unwrap_or_default() {
            match address(&text, hosts) {
                Ok(url) if urls.contains(&url) => {}
                Ok(url) => urls.push(url),
                Err(problem) => fields.problem("urls", format!("\"{text}\": {problem}")),
            }
        }
        let sitemap = fields.text("sitemap").and_then(|text| {
            address(&text, hosts).map_err(|problem| fields.problem("sitemap", problem)).ok()
        });
        let crawl = fields.object("crawl").map(|value| {
            let mut inner = Fields::new("crawl", &value);
            let crawl = Crawl::parse(&mut inner);
            fields.extend(inner);
            crawl
        });
        if crawl.is_some() && (sitemap.is_some() || urls.is_empty()) {
            fields.problem("crawl", "needs urls to begin with, and goes without sitemap");
        } else if urls.is_empty() && sitemap.is_none() && fields.problems.is_empty() {
            fields.problem("urls", "is missing; a source needs urls or a sitemap");
        }
        WebConfig {
            urls,
            ways: crawl.map_or(Ways::Listed { sitemap }, Ways::Crawl),
            robots: fields.boolean("robots").unwrap_or(true),
            rate: fields.number("rate", 0.01, 1000.0).unwrap_or(RATE),
            timeout_ms: fields.integer("timeout_ms", 100, 600_000).map_or(TIMEOUT_MS, |ms| ms as u64),
        }
    }

    /// Whether it names each page.
    pub fn is_list(&self) -> bool {
        matches!(self.ways, Ways::Listed { sitemap: None })
    }

    pub fn to_json(&self) -> Map<String, Value> {
        let mut json = Map::new();
        if !self.urls.is_empty() {
            json.insert("urls".into(), self.urls.iter().map(Url::as_str).collect());
        }
        match &self.ways {
            Ways::Listed { sitemap } => {
                json.extend(sitemap.iter().map(|url| ("sitemap".to_string(), json!(url.as_str()))));
            }
            Ways::Crawl(crawl) => drop(json.insert("crawl".into(), crawl.to_json())),
        }
        json.insert("robots".into(), json!(self.robots));
        json.insert("rate".into(), json!(self.rate));
        json.insert("timeout_ms".into(), json!(self.timeout_ms));
        json
    }
}

impl Crawl {
    fn parse(fields: &mut Fields) -> Crawl {
        let mut patterns = |key| {
            let texts = fields.texts(key).unwrap_or_default();
            let mut matchers = Vec::new();
            for text in &texts {
                match GlobBuilder::new(text).literal_separator(true).build() {
                    Ok(glob) => matchers.push(glob.compile_matcher()),
                    Err(error) => fields.problem(key, format!("\"{text}\": {}", error.kind())),
                }
            }
            Patterns { texts, matchers }
        };
        let (include, exclude) = (patterns("include"), patterns("exclude"));
        Crawl {
            depth: fields.integer("depth", 0, 100).unwrap_or(DEPTH) as usize,
            max_pages: fields.integer("max_pages", 1, 100_000).unwrap_or(MAX_PAGES) as usize,
            include,
            exclude,
        }
    }

    fn to_json(&self) -> Value {
        let mut json = json!({"depth": self.depth, "max_pages": self.max_pages});
        for (key, patterns) in [("include", &self.include), ("exclude", &self.exclude)] {
            if !patterns.texts.is_empty() {
                json[key] = json!(patterns.texts);
            }
        }
        json
    }

    /// Whether a page is followed, by its path and query.
    pub fn wants(&self, path: &str) -> bool {
        let matches = |patterns: &Patterns| patterns.matchers.iter().any(|matcher| matcher.is_match(path));
        (self.include.texts.is_empty() || matches(&self.include)) && !matches(&self.exclude)
    }
}

/// An address that may be asked for.
fn address(text: &str, hosts: &AllowedHosts) -> Result<Url, String> {
    if Url::parse(text).is_ok_and(|url| !url.username().is_empty() || url.password().is_some()) {
        return Err("pages that ask for a user name or password cannot be read".into());
    }
    hosts.check(text, true).map(normal).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: &Value) -> Result<WebConfig, Vec<String>> {
        let mut fields = Fields::new("config", value);
        let config = WebConfig::parse(&mut fields, &AllowedHosts::default());
        let problems = fields.finish();
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    #[test]
    fn what_a_source_says_is_kept_in_one_form() {
        for value in [
            json!({"urls": ["HTTPS://X.org:443/a/../b#c", "https://x.org/b"]}),
            json!({"sitemap": "https://x.org/sitemap.xml", "robots": false, "rate": 0.5, "timeout_ms": 1000}),
            json!({"urls": ["https://x.org"], "crawl": {"depth": 1, "include": ["/docs/**"], "exclude": ["**/*.zip"]}}),
        ] {
            let config = parse(&value).unwrap();
            assert_eq!(parse(&Value::Object(config.to_json())).unwrap(), config);
        }
        let config = parse(&json!({"urls": ["HTTPS://X.org:443/a/../b#c", "https://x.org/b"]})).unwrap();
        assert_eq!(config.urls.iter().map(Url::as_str).collect::<Vec<_>>(), ["https://x.org/b"]);
    }

    #[test]
    fn what_cannot_be_asked_for_is_refused() {
        for (value, says) in [
            (json!({}), "config.urls: is missing"),
            (json!({"urls": ["http://169.254.169.254/"]}), "link-local"),
            (json!({"urls": ["http://localhost/"]}), "kb.allowed_hosts"),
            (json!({"urls": ["file:///etc/passwd"]}), "http or https"),
            (json!({"urls": ["https://user:word@x.org/"]}), "password cannot be read"),
            (json!({"crawl": {}}), "needs urls"),
            (
                json!({"urls": ["https://x.org"], "crawl": {"include": ["["], "deep": 1}}),
                "config.crawl.include",
            ),
        ] {
            let problems = parse(&value).unwrap_err().join("; ");
            assert!(problems.contains(says), "{value}: {problems}");
        }
    }

    #[test]
    fn patterns_choose_the_pages_that_are_followed() {
        let config = json!({"urls": ["https://x.org"], "crawl": {"include": ["/docs/**"], "exclude": ["/docs/old/**"]}});
        let Ways::Crawl(crawl) = parse(&config).unwrap().ways else { panic!() };
        assert!(crawl.wants("/docs/a?b") && crawl.wants("/docs/a/b"));
        assert!(!crawl.wants("/") && !crawl.wants("/docs/old/a") && !crawl.wants("/docsx"));
    }
}
