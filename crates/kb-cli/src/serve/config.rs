//! The options of `kb serve`, and what they amount to. All that is wrong with them is said at once.

use super::jwt;
use crate::exit::{Error, Result};
use crate::mcp;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const MEGABYTE: usize = 1 << 20;
/// hyper needs at least this for its buffer.
const LEAST_HEADER_KB: usize = 8;

#[derive(clap::Args)]
pub struct Args {
    /// Address and port on which to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", env = "KB_SERVE_LISTEN", default_value = "127.0.0.1:8080")]
    listen: String,
    /// Role that requests may act as, by an API key, a token or without credentials; can be repeated
    #[arg(long, value_name = "ROLE", env = "KB_SERVE_ROLES", value_delimiter = ',')]
    role: Vec<String>,
    /// Role, and tenant, of requests without credentials, which are refused otherwise
    #[arg(long, value_name = "ROLE[:TENANT]", env = "KB_SERVE_ANONYMOUS")]
    anonymous: Option<String>,
    /// Host name by which requests without credentials may call the server; can be repeated
    #[arg(long, value_name = "NAME", env = "KB_SERVE_HOSTS", value_delimiter = ',')]
    host_name: Vec<String>,
    /// Accept names and passwords of PostgreSQL by HTTP Basic
    #[arg(long, env = "KB_SERVE_BASIC")]
    basic: bool,
    #[command(flatten)]
    jwt: Jwt,
    #[command(flatten)]
    limits: LimitArgs,
    /// Origin whose pages may call the server from a browser, such as https://app.example.com; can be
    /// repeated
    #[arg(long, value_name = "ORIGIN", env = "KB_SERVE_CORS", value_delimiter = ',')]
    cors: Vec<String>,
    /// Certificate of the server and its chain (PEM), which turn TLS on; SIGHUP reads them again
    #[arg(long, value_name = "FILE", env = "KB_SERVE_TLS_CERT", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", env = "KB_SERVE_TLS_KEY", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    #[command(flatten)]
    mcp: mcp::Options,
    /// Form of the lines that are logged on standard error
    #[arg(long, value_name = "FORM", env = "KB_SERVE_LOG", value_enum, default_value_t)]
    log: LogForm,
}

#[derive(clap::Args)]
pub struct Jwt {
    /// File with the secret of tokens signed by HS256 (or variable KB_SERVE_JWT_SECRET)
    #[arg(long = "jwt-secret-file", value_name = "FILE", env = "KB_SERVE_JWT_SECRET_FILE")]
    pub secret_file: Option<PathBuf>,
    /// File with the public key (PEM) of tokens signed by RS256 or ES256
    #[arg(long = "jwt-public-key", value_name = "FILE", env = "KB_SERVE_JWT_PUBLIC_KEY")]
    pub public_key: Option<PathBuf>,
    /// File with a set of keys (JWKS) of tokens; SIGHUP reads it again
    #[arg(long = "jwt-jwks", value_name = "FILE", env = "KB_SERVE_JWT_JWKS")]
    pub jwks: Option<PathBuf>,
    /// Audience that tokens must name; can be repeated
    #[arg(long = "jwt-audience", value_name = "TEXT", env = "KB_SERVE_JWT_AUDIENCE", value_delimiter = ',')]
    pub audience: Vec<String>,
    /// Issuer that tokens must name; can be repeated
    #[arg(long = "jwt-issuer", value_name = "TEXT", env = "KB_SERVE_JWT_ISSUER", value_delimiter = ',')]
    pub issuer: Vec<String>,
    /// Claim that names the role, or the JSON pointer of a nested one (/app/role)
    #[arg(
        long = "jwt-role-claim",
        value_name = "NAME",
        env = "KB_SERVE_JWT_ROLE_CLAIM",
        default_value = "role"
    )]
    pub role_claim: String,
    /// Claim that names the tenant
    #[arg(
        long = "jwt-tenant-claim",
        value_name = "NAME",
        env = "KB_SERVE_JWT_TENANT_CLAIM",
        default_value = "tenant"
    )]
    pub tenant_claim: String,
    /// Claim that lists the scopes: a text with spaces, or an array
    #[arg(
        long = "jwt-scope-claim",
        value_name = "NAME",
        env = "KB_SERVE_JWT_SCOPE_CLAIM",
        default_value = "scope"
    )]
    pub scope_claim: String,
}

#[derive(clap::Args)]
struct LimitArgs {
    /// Connections to the database for all requests but those by HTTP Basic
    #[arg(long, value_name = "N", env = "KB_SERVE_POOL", default_value_t = 16)]
    pool: usize,
    /// Connections of clients at the same time; more wait until one ends
    #[arg(long, value_name = "N", env = "KB_SERVE_MAX_CONNECTIONS", default_value_t = 512)]
    max_connections: usize,
    /// Megabytes that the body of a request may have
    #[arg(long, value_name = "MB", env = "KB_SERVE_MAX_BODY", default_value_t = 64)]
    max_body: usize,
    /// Megabytes that the bodies of all requests may have together
    #[arg(long, value_name = "MB", env = "KB_SERVE_MAX_BODIES", default_value_t = 256)]
    max_bodies: usize,
    /// Kilobytes that the header of a request may have
    #[arg(long, value_name = "KB", env = "KB_SERVE_MAX_HEADER", default_value_t = 32)]
    max_header: usize,
    /// Seconds until a connection has sent the header of its next request
    #[arg(long, value_name = "SECONDS", env = "KB_SERVE_HEADER_TIMEOUT", default_value_t = 30)]
    header_timeout: u64,
    /// Seconds until a request has sent its body
    #[arg(long, value_name = "SECONDS", env = "KB_SERVE_BODY_TIMEOUT", default_value_t = 60)]
    body_timeout: u64,
    /// Seconds that the database may work on a request
    #[arg(long, value_name = "SECONDS", env = "KB_SERVE_REQUEST_TIMEOUT", default_value_t = 60)]
    request_timeout: u64,
    /// Seconds for which a client may read nothing of an answer
    #[arg(long, value_name = "SECONDS", env = "KB_SERVE_WRITE_TIMEOUT", default_value_t = 30)]
    write_timeout: u64,
    /// Requests per minute of a key, user or address that has no rate of its own; 0 means no limit
    #[arg(long, value_name = "N", env = "KB_SERVE_REQUESTS_PER_MINUTE", default_value_t = 0)]
    requests_per_minute: u32,
    /// Seconds that requests have to end after SIGTERM
    #[arg(long, value_name = "SECONDS", env = "KB_SERVE_GRACE", default_value_t = 30)]
    grace: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogForm {
    /// `name=value` pairs
    #[default]
    Text,
    /// An object of JSON for each line
    Json,
}

/// As whom requests without credentials act.
#[derive(Debug, PartialEq, Eq)]
pub struct Anonymous {
    pub role: String,
    pub tenant: Option<String>,
    /// The host names by which they may call, as a defence against pages that give the server another name.
    pub hosts: Vec<String>,
}

#[derive(Debug)]
pub struct Limits {
    pub pool: usize,
    pub connections: usize,
    /// Bytes of one body, and of all together.
    pub body: usize,
    pub bodies: usize,
    pub header: usize,
    pub header_timeout: Duration,
    pub body_timeout: Duration,
    pub request_timeout: Duration,
    pub write_timeout: Duration,
    /// None means no limit.
    pub requests_per_minute: Option<u32>,
    pub grace: Duration,
}

pub struct Config {
    pub listen: SocketAddr,
    pub roles: Vec<String>,
    pub anonymous: Option<Anonymous>,
    pub basic: bool,
    pub jwt: Option<jwt::Tokens>,
    pub limits: Limits,
    pub cors: Vec<String>,
    /// Certificate and key.
    pub tls: Option<(PathBuf, PathBuf)>,
    pub mcp: mcp::Options,
    pub log: LogForm,
}

impl Config {
    pub fn new(args: Args) -> Result<Config> {
        let mut problems = Vec::new();
        let listen = args.listen.parse().unwrap_or_else(|_| {
            problems.push(format!("--listen \"{}\" is not an address with a port", args.listen));
            SocketAddr::from(([127, 0, 0, 1], 0))
        });
        let anonymous = args.anonymous.as_deref().map(|text| {
            let (role, tenant) = match text.split_once(':') {
                Some((role, tenant)) => (role, Some(tenant.to_string())),
                None => (text, None),
            };
            Anonymous { role: role.into(), tenant, hosts: hosts(listen, &args.host_name) }
        });
        if let Some(anonymous) = &anonymous
            && !args.role.contains(&anonymous.role)
        {
            problems.push(format!("--anonymous needs --role {} beside it", anonymous.role));
        }
        if args.role.is_empty() && !args.basic {
            problems.push("nobody may call the server: name at least one --role, or give --basic".into());
        }
        let jwt = jwt::Tokens::new(args.jwt, &mut problems);
        if jwt.is_some() && args.role.is_empty() {
            problems.push("tokens need at least one --role that they may name".into());
        }
        let cors: Vec<String> = args.cors.iter().map(|origin| origin.trim_end_matches('/').into()).collect();
        for origin in &cors {
            if !is_origin(origin) {
                problems
                    .push(format!("--cors \"{origin}\" is not an origin such as https://app.example.com"));
            }
        }
        let limits = args.limits.limits(&mut problems);
        if !problems.is_empty() {
            return Err(Error::usage(problems.join("; ")));
        }
        Ok(Config {
            listen,
            roles: args.role,
            anonymous,
            basic: args.basic,
            jwt,
            limits,
            cors,
            tls: args.tls_cert.zip(args.tls_key),
            mcp: args.mcp,
            log: args.log,
        })
    }
}

impl LimitArgs {
    fn limits(self, problems: &mut Vec<String>) -> Limits {
        let least = [
            ("--pool", self.pool),
            ("--max-connections", self.max_connections),
            ("--max-body", self.max_body),
            ("--header-timeout", usize::try_from(self.header_timeout).unwrap_or(1)),
            ("--body-timeout", usize::try_from(self.body_timeout).unwrap_or(1)),
            ("--request-timeout", usize::try_from(self.request_timeout).unwrap_or(1)),
            ("--write-timeout", usize::try_from(self.write_timeout).unwrap_or(1)),
        ];
        for (name, _) in least.iter().filter(|(_, value)| *value == 0) {
            problems.push(format!("{name} must be at least 1"));
        }
        // PostgreSQL's limit of a value, which a body is, and of a timeout in milliseconds.
        if self.max_body > 1000 {
            problems.push("--max-body must be at most 1000".into());
        }
        if self.max_bodies < self.max_body || self.max_bodies > 1 << 20 {
            problems.push("--max-bodies must be from --max-body to 1048576".into());
        }
        if self.max_header < LEAST_HEADER_KB || self.max_header > 1024 {
            problems.push(format!("--max-header must be from {LEAST_HEADER_KB} to 1024"));
        }
        if self.request_timeout > 86_400 {
            problems.push("--request-timeout must be at most 86400".into());
        }
        Limits {
            pool: self.pool,
            connections: self.max_connections,
            body: self.max_body.saturating_mul(MEGABYTE),
            bodies: self.max_bodies.saturating_mul(MEGABYTE),
            header: self.max_header.saturating_mul(1024),
            header_timeout: Duration::from_secs(self.header_timeout),
            body_timeout: Duration::from_secs(self.body_timeout),
            request_timeout: Duration::from_secs(self.request_timeout),
            write_timeout: Duration::from_secs(self.write_timeout),
            requests_per_minute: Some(self.requests_per_minute).filter(|rate| *rate > 0),
            grace: Duration::from_secs(self.grace),
        }
    }
}

/// The names by which the server may be called without credentials: those of the machine itself, the address
/// on which it listens, and those that the command line adds.
fn hosts(listen: SocketAddr, more: &[String]) -> Vec<String> {
    let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(String::from).to_vec();
    if !listen.ip().is_unspecified() {
        hosts.push(match listen {
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        });
    }
    hosts.extend(more.iter().map(|name| name.to_ascii_lowercase()));
    hosts
}

/// A scheme, a host and maybe a port, as browsers write them.
fn is_origin(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")) else {
        return false;
    };
    !rest.is_empty()
        && rest.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.:[]".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{FromArgMatches, Subcommand};

    /// The configuration of a command line, or what is wrong with it.
    fn config(line: &str) -> std::result::Result<Config, String> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(subcommand)]
            command: Serve,
        }
        #[derive(Subcommand)]
        enum Serve {
            Serve(Args),
        }
        let matches = <Line as clap::CommandFactory>::command()
            .try_get_matches_from(["kb", "serve"].into_iter().chain(line.split_whitespace()))
            .map_err(|e| e.to_string())?;
        let Serve::Serve(args) = Line::from_arg_matches(&matches).map_err(|e| e.to_string())?.command;
        Config::new(args).map_err(|e| e.message)
    }

    #[test]
    fn it_listens_on_loopback_and_grants_nothing_unless_told_otherwise() {
        let made = config("--role app").unwrap();
        assert!(made.listen.ip().is_loopback() && made.cors.is_empty() && !made.basic);
        assert!(made.anonymous.is_none() && made.jwt.is_none() && made.tls.is_none());
        assert!(config("").err().unwrap().contains("nobody may call the server"));
    }

    #[test]
    fn all_problems_are_said_at_once() {
        let problem =
            config("--listen here --anonymous guest --cors app.example.com --max-body 0 --max-header 1")
                .err()
                .unwrap();
        for part in ["--listen \"here\"", "--role guest", "--cors", "--max-body must", "--max-header must"] {
            assert!(problem.contains(part), "{part}: {problem}");
        }
    }

    #[test]
    fn requests_without_credentials_act_for_a_role_of_the_list() {
        let made = config("--role guest --anonymous guest:acme:x --host-name KB.example.com").unwrap();
        let anonymous = made.anonymous.unwrap();
        assert_eq!((anonymous.role.as_str(), anonymous.tenant.as_deref()), ("guest", Some("acme:x")));
        assert!(anonymous.hosts.iter().any(|host| host == "kb.example.com"));
    }

    #[test]
    fn an_origin_has_a_scheme_and_a_host_and_nothing_else() {
        for good in ["https://app.example.com", "http://localhost:3000", "http://[::1]:3000"] {
            assert!(is_origin(good), "{good}");
        }
        for wrong in ["*", "null", "app.example.com", "https://", "https://a/b", "https://a b", "ftp://a"] {
            assert!(!is_origin(wrong), "{wrong}");
        }
    }
}
