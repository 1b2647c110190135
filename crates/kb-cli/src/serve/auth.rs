//! Who calls: an API key, a token, a login of PostgreSQL, or nobody.

use super::basic::Logins;
use super::config::Anonymous;
use super::jwt::Tokens;
use super::pool::Pool;
use super::problem::Problem;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap};
use std::net::IpAddr;

/// What API keys begin with.
const KEY_PREFIX: &str = "kb_";
/// Keys are shorter than this, and no other text needs to reach the database.
const LONGEST_KEY: usize = 256;

/// What a request does in the database to act as its caller.
pub enum Act {
    Key { key: String },
    Role { role: String, tenant: Option<String>, scopes: String },
    Login { pool: Pool },
}

pub struct Identity {
    pub act: Act,
    /// For the limit of requests. It holds no key.
    pub bearer: String,
    /// For the log.
    pub name: String,
}

pub struct Auth {
    pub roles: Vec<String>,
    pub anonymous: Option<Anonymous>,
    pub tokens: Option<Tokens>,
    pub logins: Option<Logins>,
    /// For hashes of keys, which are worth nothing outside of this process.
    pub pepper: [u8; 32],
}

impl Auth {
    /// Finds out who calls. An API key is checked later, by the database.
    pub async fn identify(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Identity, Problem> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let Some(value) = values.next() else {
            return self.nobody(headers, peer);
        };
        let text = value.to_str().ok().filter(|_| values.next().is_none());
        let Some((scheme, credentials)) = text.and_then(|text| text.trim().split_once(' ')) else {
            return Err(self.unauthorized("the header Authorization cannot be read"));
        };
        let credentials = credentials.trim();
        match scheme.to_ascii_lowercase().as_str() {
            "bearer" if credentials.starts_with(KEY_PREFIX) && credentials.len() <= LONGEST_KEY => {
                let hash = blake3::keyed_hash(&self.pepper, credentials.as_bytes());
                Ok(Identity {
                    act: Act::Key { key: credentials.into() },
                    bearer: format!("key {hash}"),
                    name: "key".into(),
                })
            }
            "bearer" => self.bearer(credentials),
            "basic" => self.basic(credentials).await,
            _ => Err(self.unauthorized("the header Authorization must have the scheme Bearer or Basic")),
        }
    }

    fn bearer(&self, token: &str) -> Result<Identity, Problem> {
        let Some(tokens) = &self.tokens else {
            return Err(self.unauthorized("the API key is wrong"));
        };
        let bearer = tokens.check(token).map_err(|what| self.unauthorized(&format!("the token: {what}")))?;
        if !self.roles.contains(&bearer.role) {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                format!("this server does not serve role \"{}\"", bearer.role),
            )
            .hint("Start kb serve with --role for each role that requests may act as."));
        }
        let tenant = bearer.tenant.as_deref().unwrap_or_default();
        let subject = bearer.subject.as_deref().unwrap_or_default();
        let name = format!("token {}", bearer.role);
        let limited = format!("token {} {tenant} {subject}", bearer.role);
        let act = Act::Role { role: bearer.role, tenant: bearer.tenant, scopes: bearer.scopes };
        Ok(Identity { act, bearer: limited, name })
    }

    async fn basic(&self, credentials: &str) -> Result<Identity, Problem> {
        let Some(logins) = &self.logins else {
            return Err(self.unauthorized("this server does not accept names and passwords"));
        };
        let decoded = STANDARD.decode(credentials).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let parts = decoded.as_deref().and_then(|text| text.split_once(':'));
        let Some((user, password)) = parts.filter(|(user, _)| !user.is_empty()) else {
            return Err(self.unauthorized("the header Authorization cannot be read"));
        };
        let pool = logins.pool(user, password).await.map_err(|mut problem| {
            if problem.status == StatusCode::UNAUTHORIZED {
                problem.challenge = Some(self.challenge());
            }
            problem
        })?;
        let name = format!("login {user}");
        Ok(Identity { act: Act::Login { pool }, bearer: name.clone(), name })
    }

    fn nobody(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Identity, Problem> {
        let Some(anonymous) = &self.anonymous else {
            return Err(self.unauthorized("the request has no credentials"));
        };
        // A page of the Internet can give its own name the address of this machine. Credentials protect from
        // it, since it has none; here, the name does.
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let host = without_port(host).to_ascii_lowercase();
        if !anonymous.hosts.contains(&host) {
            return Err(Problem::new(
                StatusCode::MISDIRECTED_REQUEST,
                "without credentials, the server cannot be called by this host name",
            )
            .hint("Start kb serve with --host-name for each name that it has."));
        }
        Ok(Identity {
            act: Act::Role {
                role: anonymous.role.clone(),
                tenant: anonymous.tenant.clone(),
                scopes: String::new(),
            },
            bearer: format!("address {peer}"),
            name: "anonymous".into(),
        })
    }

    pub fn unauthorized(&self, detail: &str) -> Problem {
        Problem::unauthorized(detail).challenge(self.challenge())
    }

    pub fn challenge(&self) -> &'static str {
        if self.logins.is_some() {
            "Bearer realm=\"kb\", Basic realm=\"kb\", charset=\"UTF-8\""
        } else {
            "Bearer realm=\"kb\""
        }
    }
}

/// The host of a header Host.
pub fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn auth(anonymous: bool) -> Auth {
        let anonymous = anonymous.then(|| Anonymous {
            role: "guest".into(),
            tenant: None,
            hosts: vec!["localhost".into(), "[::1]".into()],
        });
        Auth { roles: vec!["guest".into()], anonymous, tokens: None, logins: None, pepper: [7; 32] }
    }

    async fn status(auth: &Auth, headers: &[(&'static str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let found = auth.identify(&map, IpAddr::from([127, 0, 0, 1])).await;
        found.map_or_else(|problem| problem.status.as_u16(), |_| 200)
    }

    #[tokio::test]
    async fn without_credentials_there_is_a_challenge() {
        let refused = auth(false).identify(&HeaderMap::new(), IpAddr::from([127, 0, 0, 1])).await;
        let refused = refused.err().unwrap();
        assert_eq!((refused.status.as_u16(), refused.challenge), (401, Some("Bearer realm=\"kb\"")));
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_nobody_even_where_nobody_may_call() {
        let auth = auth(true);
        for value in ["Bearer", "Basic x", "Bearer e30.e30.e30", "Digest a=b", "Basic bm9jb2xvbg=="] {
            let headers = [("authorization", value), ("host", "localhost")];
            assert_eq!(status(&auth, &headers).await, 401, "{value}");
        }
        let twice = [("authorization", "Bearer kb_a"), ("authorization", "Bearer kb_b")];
        assert_eq!(status(&auth, &twice).await, 401);
    }

    #[tokio::test]
    async fn another_name_of_this_machine_is_refused_without_credentials() {
        let auth = auth(true);
        for (host, expected) in [("localhost:8080", 200), ("[::1]:8080", 200), ("LOCALHOST", 200)] {
            assert_eq!(status(&auth, &[("host", host)]).await, expected, "{host}");
        }
        for host in ["evil.example.com", "evil.example.com:8080", "localhost.evil.example.com", ""] {
            assert_eq!(status(&auth, &[("host", host)]).await, 421, "{host}");
        }
        assert_eq!(
            status(&auth, &[("host", "evil.example.com"), ("authorization", "Bearer kb_x")]).await,
            200
        );
    }

    #[tokio::test]
    async fn a_bearer_is_counted_by_a_hash_of_the_key() {
        let mut map = HeaderMap::new();
        map.insert(AUTHORIZATION, HeaderValue::from_static("Bearer kb_secret"));
        let found = auth(false).identify(&map, IpAddr::from([127, 0, 0, 1])).await.ok().unwrap();
        assert!(!found.bearer.contains("secret") && !found.name.contains("secret"));
    }
}
