//! Connections as psql makes them: libpq's variables, service files, connection strings and password file.
//! libpq's manual says what each parameter means; what kb cannot honour and what would weaken a connection if
//! it were ignored is refused.

pub mod conninfo;
mod passfile;
mod service;
mod tls;

pub mod tls_files {
    pub use super::tls::{certificates, private_key};
}

use crate::exit::{Error, Result, causes};
use crate::output::Output;
use conninfo::Parameters;
use std::io::{IsTerminal, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tls::Mode;
use tokio_postgres::config::{ChannelBinding, SslMode, SslNegotiation};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, CancelToken, Client, Config, Connection, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The directories in which servers put their sockets: Debian's, and PostgreSQL's own default.
const SOCKET_DIRS: &[&str] = &["/var/run/postgresql", "/tmp"];
/// Where the system's service file is: Debian's place, and that of a server compiled with its defaults.
const SYSTEM_DIRS: &[&str] = &["/etc/postgresql-common", "/usr/local/pgsql/etc"];
const DEFAULT_PORT: &str = "5432";

/// What libpq would check and kb cannot, or kb has no part in: an error unless it has one of these values.
const REFUSED: &[(&str, &[&str])] = &[
    ("require_auth", &[]),
    ("requirepeer", &[]),
    ("sslcrl", &[]),
    ("sslcrldir", &[]),
    ("sslpassword", &[]),
    ("scram_client_key", &[]),
    ("scram_server_key", &[]),
    ("oauth_client_id", &[]),
    ("oauth_client_secret", &[]),
    ("oauth_issuer", &[]),
    ("oauth_scope", &[]),
    ("replication", &["false", "off", "no", "0"]),
    ("gssencmode", &["disable", "prefer"]),
    ("sslcertmode", &["allow"]),
];

/// The options by which psql is told where to connect.
#[derive(clap::Args, Default)]
pub struct Arguments {
    /// Name of the database, connection URI (postgresql://…) or string of parameters (host=… dbname=…)
    #[arg(short = 'd', long, global = true, value_name = "DBNAME", help_heading = "Connection")]
    dbname: Option<String>,
    /// Host of the server, or directory of its socket
    #[arg(short = 'h', long, global = true, value_name = "HOST", help_heading = "Connection")]
    host: Option<String>,
    /// Port of the server
    #[arg(short = 'p', long, global = true, value_name = "PORT", help_heading = "Connection")]
    port: Option<String>,
    /// Name of the role
    #[arg(short = 'U', long, global = true, value_name = "USERNAME", help_heading = "Connection")]
    username: Option<String>,
    /// Ask for a password before connecting
    #[arg(short = 'W', long, global = true, conflicts_with = "no_password", help_heading = "Connection")]
    password: bool,
    /// Never ask for a password
    #[arg(short = 'w', long, global = true, help_heading = "Connection")]
    no_password: bool,
}

/// Where to connect, and how.
#[derive(Clone)]
pub struct Target {
    parameters: Parameters,
    hosts: Vec<Host>,
    mode: Mode,
    wanted: SessionAttrs,
    home: Option<PathBuf>,
    asks_first: bool,
    never_asks: bool,
    /// The password that was typed.
    typed: Arc<Mutex<Option<String>>>,
    /// Whether no password is sent, wherever it may be from.
    withholds: bool,
}

/// One of the servers that are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Host {
    /// A name, an address or the directory of a socket.
    name: String,
    address: Option<IpAddr>,
    port: u16,
}

impl Host {
    fn is_socket(&self) -> bool {
        self.address.is_none() && self.name.starts_with(['/', '@'])
    }

    /// As messages name it.
    fn shown(&self) -> String {
        if self.is_socket() {
            format!("the server on socket {}/.s.PGSQL.{}", self.name, self.port)
        } else {
            let name = if self.name.is_empty() {
                self.address.map_or_else(String::new, |address| address.to_string())
            } else {
                self.name.clone()
            };
            format!("the server at {name}, port {}", self.port)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionAttrs {
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    PreferStandby,
}

/// A connection, and what it takes to cancel its statement.
pub struct Connected {
    pub client: Client,
    pub canceller: Canceller,
}

#[derive(Clone)]
pub struct Canceller {
    token: CancelToken,
    tls: Option<MakeRustlsConnect>,
}

impl Canceller {
    /// Asks the server to cancel what it does for this connection.
    pub async fn cancel(self) {
        let _ = match self.tls {
            Some(tls) => self.token.cancel_query(tls).await,
            None => self.token.cancel_query(NoTls).await,
        };
    }
}

/// The environment, which the tests replace.
pub struct Surroundings<'a> {
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    pub home: Option<PathBuf>,
    pub user: Option<String>,
}

impl Surroundings<'_> {
    pub fn of_the_process() -> Surroundings<'static> {
        Surroundings {
            variable: &|name| std::env::var(name).ok().filter(|value| !value.is_empty()),
            home: std::env::home_dir(),
            user: whoami::username().ok(),
        }
    }
}

impl Target {
    pub fn new(arguments: &Arguments) -> Result<Target> {
        Target::in_surroundings(arguments, &Surroundings::of_the_process()).map_err(Error::connection)
    }

    fn in_surroundings(
        arguments: &Arguments,
        surroundings: &Surroundings<'_>,
    ) -> std::result::Result<Target, String> {
        let parameters = parameters(arguments, surroundings)?;
        for (key, harmless) in REFUSED {
            if parameters.get(*key).is_some_and(|value| !harmless.contains(&value.as_str())) {
                return Err(format!("kb does not support the connection parameter {key}"));
            }
        }
        let wanted = match parameters.get("target_session_attrs").map(String::as_str) {
            None | Some("any") => SessionAttrs::Any,
            Some("read-write") => SessionAttrs::ReadWrite,
            Some("read-only") => SessionAttrs::ReadOnly,
            Some("primary") => SessionAttrs::Primary,
            Some("standby") => SessionAttrs::Standby,
            Some("prefer-standby") => SessionAttrs::PreferStandby,
            Some(other) => return Err(format!("target_session_attrs \"{other}\" is not known")),
        };
        let socket_dir = || {
            let has_socket = |dir: &&&str| {
                let port = parameters.get("port").map_or(DEFAULT_PORT, String::as_str);
                Path::new(dir).join(format!(".s.PGSQL.{port}")).exists()
            };
            SOCKET_DIRS.iter().find(has_socket).unwrap_or(&SOCKET_DIRS[0]).to_string()
        };
        Ok(Target {
            hosts: hosts(&parameters, &socket_dir)?,
            mode: Mode::read(&parameters)?,
            wanted,
            home: surroundings.home.clone(),
            asks_first: arguments.password,
            never_asks: arguments.no_password,
            typed: Arc::default(),
            withholds: false,
            parameters,
        })
    }

    /// The same for a program that nobody sits before: it never asks, and is named as what it is.
    pub fn for_server(&self) -> Target {
        let mut target = self.clone();
        target.parameters.entry("application_name".into()).or_insert_with(|| "kb serve".into());
        target
    }

    /// The same as another login, with the password that somebody else gave, or without any.
    pub fn for_login(&self, user: &str, password: Option<&str>) -> Target {
        let mut target = self.for_server();
        target.parameters.insert("user".into(), user.into());
        target.parameters.remove("password");
        if let Some(password) = password {
            target.parameters.insert("password".into(), password.into());
        }
        target.typed = Arc::default();
        target.asks_first = false;
        target.never_asks = true;
        target.withholds = password.is_none();
        target
    }

    /// Whether the server asks for the password of this login, which is sent none.
    pub async fn asks_password(&self, output: &Output) -> Result<bool> {
        match self.connect_to_any(output).await {
            Ok(_) => Ok(false),
            Err((_, true)) => Ok(true),
            Err((error, false)) => Err(error),
        }
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.parameters.get(key).map(String::as_str)
    }

    pub fn user(&self) -> &str {
        self.value("user").unwrap_or_default()
    }

    pub fn database(&self) -> &str {
        self.value("dbname").unwrap_or_default()
    }

    /// A connection to the first of the servers that is as wanted.
    pub async fn connect(&self, output: &Output) -> Result<Connected> {
        if self.asks_first && self.typed().is_none() {
            self.ask_password()?;
        }
        match self.connect_to_any(output).await {
            Err((_, true)) if self.may_ask() => {
                self.ask_password()?;
                self.connect_to_any(output).await.map_err(|(error, _)| error)
            }
            other => other.map_err(|(error, _)| error),
        }
    }

    fn typed(&self) -> Option<String> {
        self.typed.lock().ok().and_then(|typed| typed.clone())
    }

    fn may_ask(&self) -> bool {
        !self.never_asks && self.typed().is_none() && std::io::stdin().is_terminal()
    }

    fn ask_password(&self) -> Result<()> {
        let prompt = format!("Password for user {}: ", crate::output::clean::clean_line(self.user()));
        let password = rpassword::prompt_password(prompt)
            .map_err(|e| Error::connection(format!("the password cannot be read from the terminal: {e}")))?;
        if let Ok(mut typed) = self.typed.lock() {
            *typed = Some(password);
        }
        Ok(())
    }

    /// Tries the servers in turn. An error comes with whether a password is all that is missing.
    async fn connect_to_any(&self, output: &Output) -> std::result::Result<Connected, (Error, bool)> {
        let passes = match self.wanted {
            SessionAttrs::PreferStandby => vec![SessionAttrs::Standby, SessionAttrs::Any],
            wanted => vec![wanted],
        };
        let mut problems: Vec<Error> = Vec::new();
        for wanted in passes {
            problems.clear();
            for host in &self.hosts {
                match self.connect_to(host, output).await {
                    Ok(connected) => match self.lacks(&connected.client, wanted).await {
                        Ok(None) => return Ok(connected),
                        Ok(Some(lack)) => {
                            problems.push(Error::connection(format!("{} {lack}", host.shown())));
                        }
                        Err(error) => problems.push(error),
                    },
                    Err((error, true)) => return Err((error, true)),
                    // As libpq: a server that refuses the login is no reason to try another one.
                    Err((error, false))
                        if error.sqlstate.as_ref().is_some_and(|code| code.starts_with("28")) =>
                    {
                        return Err((error, false));
                    }
                    Err((error, false)) => problems.push(error),
                }
            }
        }
        let mut last =
            problems.pop().unwrap_or_else(|| Error::connection("there is no server to connect to"));
        if !problems.is_empty() {
            let others: Vec<String> = problems.iter().map(|problem| problem.message.clone()).collect();
            last.detail = Some(others.join("\n"));
        }
        Err((last, false))
    }

    async fn lacks(&self, client: &Client, wanted: SessionAttrs) -> Result<Option<&'static str>> {
        if wanted == SessionAttrs::Any {
            return Ok(None);
        }
        let row = client.query_one(crate::sql::SESSION_ATTRS, &[]).await?;
        let (is_standby, is_read_only): (bool, bool) = (row.get(0), row.get(1));
        Ok(match wanted {
            SessionAttrs::ReadWrite if is_read_only => Some("gives no session that writes"),
            SessionAttrs::ReadOnly if !is_read_only => Some("gives no session that only reads"),
            SessionAttrs::Primary if is_standby => Some("is a standby"),
            SessionAttrs::Standby if !is_standby => Some("is no standby"),
            _ => None,
        })
    }

    async fn connect_to(
        &self,
        host: &Host,
        output: &Output,
    ) -> std::result::Result<Connected, (Error, bool)> {
        let unusable = |problem: String| (Error::connection(problem), false);
        let (password, from_file) = self.password(host, output);
        let config = self.config(host, password).map_err(unusable)?;
        let with = |mode: SslMode| {
            let mut config = config.clone();
            config.ssl_mode(mode);
            config
        };
        if host.is_socket() || self.mode == Mode::Disable {
            let made = connect(&with(SslMode::Disable), NoTls, None).await;
            return made.map_err(|e| self.explained(host, &e, from_file));
        }
        let tls = tls::connector(&self.parameters, self.mode, self.home.as_deref()).map_err(unusable)?;
        let over_tls = |mode: SslMode| {
            let (config, tls) = (with(mode), tls.clone());
            async move { connect(&config, tls.clone(), Some(tls)).await }
        };
        let made = match self.mode {
            Mode::Allow => match connect(&with(SslMode::Disable), NoTls, None).await {
                Err(error) if is_refused(&error) => over_tls(SslMode::Require).await,
                other => other,
            },
            Mode::Prefer => match over_tls(SslMode::Prefer).await {
                Err(error) if is_refused(&error) => connect(&with(SslMode::Disable), NoTls, None).await,
                other => other,
            },
            _ => over_tls(SslMode::Require).await,
        };
        made.map_err(|e| self.explained(host, &e, from_file))
    }

    /// The password for this server, and the file that it is from.
    fn password(&self, host: &Host, output: &Output) -> (Option<String>, Option<PathBuf>) {
        if self.withholds {
            return (None, None);
        }
        if let Some(typed) = self.typed() {
            return (Some(typed), None);
        }
        if let Some(given) = self.value("password") {
            return (Some(given.to_string()), None);
        }
        let file = self.value("passfile").map(PathBuf::from);
        let Some(file) = file.or_else(|| self.home.as_ref().map(|home| home.join(".pgpass"))) else {
            return (None, None);
        };
        let address = host.address.map(|address| address.to_string());
        let name = match (host.name.as_str(), &address) {
            ("", Some(address)) => address,
            (name, _) if SOCKET_DIRS.contains(&name) => "localhost",
            (name, _) => name,
        };
        let port = host.port.to_string();
        let wanted = passfile::Wanted { host: name, port: &port, dbname: self.database(), user: self.user() };
        match passfile::password(&file, &wanted) {
            Ok(found) => {
                let file = found.is_some().then_some(file);
                (found, file)
            }
            Err(problem) => {
                output.note(&format!("warning: {problem}"));
                (None, None)
            }
        }
    }

    fn config(&self, host: &Host, password: Option<String>) -> std::result::Result<Config, String> {
        let mut config = Config::new();
        config.user(self.user()).dbname(self.database()).port(host.port);
        config.application_name(self.value("application_name").unwrap_or("kb"));
        match host.address {
            // TLS needs a name, which may be an address.
            Some(address) if host.name.is_empty() => config.host(address.to_string()),
            Some(address) => config.host(&host.name).hostaddr(address),
            None => config.host(&host.name),
        };
        if let Some(password) = password {
            config.password(password);
        }
        if let Some(options) = self.value("options") {
            config.options(options);
        }
        // libpq's numbers of seconds: zero and less mean no limit, or the system's default.
        let seconds = |key: &str| -> std::result::Result<Option<u64>, String> {
            let number = self.number(key)?;
            Ok(number.and_then(|number| u64::try_from(number).ok()).filter(|number| *number > 0))
        };
        if let Some(limit) = seconds("connect_timeout")? {
            config.connect_timeout(Duration::from_secs(limit));
        }
        if let Some(limit) = seconds("tcp_user_timeout")? {
            config.tcp_user_timeout(Duration::from_millis(limit));
        }
        config.keepalives(self.number("keepalives")? != Some(0));
        if let Some(idle) = seconds("keepalives_idle")? {
            config.keepalives_idle(Duration::from_secs(idle));
        }
        if let Some(interval) = seconds("keepalives_interval")? {
            config.keepalives_interval(Duration::from_secs(interval));
        }
        if let Some(count) = seconds("keepalives_count")? {
            config.keepalives_retries(u32::try_from(count).unwrap_or(u32::MAX));
        }
        config.channel_binding(match self.value("channel_binding") {
            None | Some("prefer") => ChannelBinding::Prefer,
            Some("disable") => ChannelBinding::Disable,
            Some("require") => ChannelBinding::Require,
            Some(other) => return Err(format!("channel_binding \"{other}\" is not known")),
        });
        config.ssl_negotiation(match self.value("sslnegotiation") {
            None | Some("postgres") => SslNegotiation::Postgres,
            Some("direct") if matches!(self.mode, Mode::Require | Mode::VerifyCa | Mode::VerifyFull) => {
                SslNegotiation::Direct
            }
            Some("direct") => return Err("sslnegotiation=direct needs sslmode=require or more".into()),
            Some(other) => return Err(format!("sslnegotiation \"{other}\" is not known")),
        });
        Ok(config)
    }

    fn number(&self, key: &str) -> std::result::Result<Option<i64>, String> {
        self.value(key)
            .map(|value| value.trim().parse().map_err(|_| format!("{key} must be a whole number")))
            .transpose()
    }

    /// The error of a connection that was not made, and whether a password is all that is missing.
    fn explained(
        &self,
        host: &Host,
        error: &tokio_postgres::Error,
        from_file: Option<PathBuf>,
    ) -> (Error, bool) {
        let text = causes(error);
        if text.contains("password missing") {
            let missing =
                Error::connection(format!("{} wants a password for role \"{}\"", host.shown(), self.user()))
                    .hint("Set PGPASSWORD, or write the password into ~/.pgpass or a service file.");
            return (missing, true);
        }
        if let Some(db) = error.as_db_error() {
            let mut refused = Error::connection(format!("{}: {}", host.shown(), db.message()));
            refused.sqlstate = Some(db.code().code().to_string());
            refused.detail = db.detail().map(str::to_string);
            refused.hint = db.hint().map(str::to_string);
            if let (Some(file), true) = (from_file, *db.code() == SqlState::INVALID_PASSWORD) {
                refused.detail = Some(format!("The password is from {}.", file.display()));
            }
            return (refused, false);
        }
        let text = text.strip_prefix("error connecting to server: ").unwrap_or(&text);
        let failed = Error::connection(format!("cannot connect to {}: {text}", host.shown()));
        if text.contains("peer certificate") {
            let hint = "sslrootcert must have the certificate that vouches for the server's, and with \
                        sslmode=verify-full this one must name the host.";
            return (failed.hint(hint), false);
        }
        (
            failed.hint("Does the server run there? Say where it is by -h and -p, PGHOST and PGPORT, or -d."),
            false,
        )
    }
}

/// Whether a server may accept the same login with TLS where it was without, or the other way round.
fn is_refused(error: &tokio_postgres::Error) -> bool {
    let is_tls = error.to_string().contains("TLS");
    is_tls || error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
}

async fn connect<T>(
    config: &Config,
    tls: T,
    for_cancelling: Option<MakeRustlsConnect>,
) -> std::result::Result<Connected, tokio_postgres::Error>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, connection) = config.connect(tls).await?;
    tokio::spawn(run(connection));
    let canceller = Canceller { token: client.cancel_token(), tls: for_cancelling };
    Ok(Connected { client, canceller })
}

/// Moves the bytes of a connection, and shows what the server reports besides results.
async fn run<T>(mut connection: Connection<Socket, T>)
where
    T: tokio_postgres::tls::TlsStream + Send + Unpin + 'static,
{
    // An error ends the stream; the client's next call reports it.
    while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
        if let AsyncMessage::Notice(notice) = message
            && matches!(notice.severity(), "WARNING" | "NOTICE" | "INFO")
        {
            let hint = notice.hint().map(|hint| format!("\nHINT: {hint}")).unwrap_or_default();
            let text = format!("kb: {}: {}{hint}\n", notice.severity().to_lowercase(), notice.message());
            let _ = std::io::stderr().write_all(crate::output::clean::clean(&text).as_bytes());
        }
    }
}

/// All parameters. What is said by options counts most, then a connection string, a service, the environment.
/// A connection string contradicts options of its own command line as in psql: it wins.
fn parameters(
    arguments: &Arguments,
    surroundings: &Surroundings<'_>,
) -> std::result::Result<Parameters, String> {
    let mut parameters = Parameters::new();
    let options = [("host", &arguments.host), ("port", &arguments.port), ("user", &arguments.username)];
    for (key, value) in options {
        if let Some(value) = value {
            parameters.insert(key.into(), value.clone());
        }
    }
    if let Some(dbname) = &arguments.dbname {
        parameters.extend(conninfo::parse(dbname)?);
    }
    let of_environment = |key: &str| {
        let variable =
            conninfo::KNOWN.iter().find(|(name, _)| *name == key).map(|(_, variable)| *variable)?;
        if variable.is_empty() { None } else { (surroundings.variable)(variable) }
    };
    let service = parameters.remove("service").or_else(|| of_environment("service"));
    if let Some(service) = service {
        let file = parameters.remove("servicefile").or_else(|| of_environment("servicefile"));
        let system_dirs = match (surroundings.variable)("PGSYSCONFDIR") {
            Some(dir) => vec![PathBuf::from(dir)],
            None => SYSTEM_DIRS.iter().map(PathBuf::from).collect(),
        };
        let found = service::parameters(
            &service,
            file.map(PathBuf::from),
            surroundings.home.as_deref(),
            &system_dirs,
        )?;
        for (key, value) in found {
            parameters.entry(key).or_insert(value);
        }
    }
    for (key, variable) in conninfo::KNOWN {
        if !variable.is_empty()
            && !parameters.contains_key(*key)
            && let Some(value) = (surroundings.variable)(variable)
        {
            parameters.insert(key.to_string(), value);
        }
    }
    // As libpq: an empty value is one that is not given.
    parameters.retain(|_, value| !value.is_empty());
    if !parameters.contains_key("user") {
        let user = surroundings.user.clone().ok_or("the user has no name; say which role by -U or PGUSER")?;
        parameters.insert("user".into(), user);
    }
    let user = parameters["user"].clone();
    parameters.entry("dbname".into()).or_insert(user);
    Ok(parameters)
}

/// The servers of lists of hosts, addresses and ports, which are as long as each other.
fn hosts(parameters: &Parameters, socket_dir: &dyn Fn() -> String) -> std::result::Result<Vec<Host>, String> {
    let list = |key: &str| -> Vec<&str> {
        parameters.get(key).map(|value| value.split(',').collect()).unwrap_or_default()
    };
    let (names, addresses, ports) = (list("host"), list("hostaddr"), list("port"));
    let count = names.len().max(addresses.len()).max(1);
    let fits = |length: usize| length == 0 || length == count;
    if !fits(names.len()) || !fits(addresses.len()) {
        return Err("host and hostaddr are lists of different lengths".into());
    }
    if !fits(ports.len()) && ports.len() != 1 {
        return Err(format!("port is a list of {} for {count} hosts", ports.len()));
    }
    let host = |at: usize| {
        let address = addresses.get(at).filter(|address| !address.is_empty());
        let address = address
            .map(|address| {
                IpAddr::from_str(address).map_err(|_| format!("hostaddr \"{address}\" is no IP address"))
            })
            .transpose()?;
        let port = match ports.get(if ports.len() == 1 { 0 } else { at }) {
            None | Some(&"") => DEFAULT_PORT,
            Some(port) => port,
        };
        let number = port.trim().parse().ok().filter(|number| *number > 0);
        let port = number.ok_or_else(|| format!("port \"{port}\" is not a number from 1 to 65535"))?;
        let name = names.get(at).map_or("", |name| name.trim());
        let name = if name.is_empty() && address.is_none() { socket_dir() } else { name.to_string() };
        Ok(Host { name, address, port })
    };
    (0..count).map(host).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(arguments: &Arguments, variables: &[(&str, &str)]) -> std::result::Result<Target, String> {
        let variable =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
        let surroundings = Surroundings { variable: &variable, home: None, user: Some("ann".into()) };
        Target::in_surroundings(arguments, &surroundings)
    }

    fn dbname(text: &str) -> Arguments {
        Arguments { dbname: Some(text.into()), ..Arguments::default() }
    }

    fn shown(target: &Target) -> String {
        let hosts: Vec<String> = target.hosts.iter().map(Host::shown).collect();
        format!("{} {} {}", target.user(), target.database(), hosts.join("; "))
    }

    #[test]
    fn a_connection_string_counts_more_than_options_and_these_more_than_variables() {
        let variables = [("PGHOST", "env"), ("PGPORT", "1"), ("PGUSER", "eve"), ("PGDATABASE", "edb")];
        let of = |arguments: &Arguments| shown(&target(arguments, &variables).unwrap());
        assert_eq!(of(&Arguments::default()), "eve edb the server at env, port 1");
        let options =
            Arguments { host: Some("opt".into()), username: Some("bob".into()), ..Arguments::default() };
        assert_eq!(of(&options), "bob edb the server at opt, port 1");
        let both = Arguments { dbname: Some("postgresql://uri/udb".into()), ..options };
        assert_eq!(of(&both), "bob udb the server at uri, port 1");
        let bare = shown(&target(&dbname("host=/run/x"), &[]).unwrap());
        assert_eq!(bare, "ann ann the server on socket /run/x/.s.PGSQL.5432");
    }

    #[test]
    fn lists_of_hosts_addresses_and_ports_belong_together() {
        let of = |text: &str| target(&dbname(text), &[]).map(|target| shown(&target));
        assert_eq!(
            of("host=a,b port=1,2").unwrap(),
            "ann ann the server at a, port 1; the server at b, port 2"
        );
        assert_eq!(
            of("host=a,b port=7").unwrap(),
            "ann ann the server at a, port 7; the server at b, port 7"
        );
        assert_eq!(of("hostaddr=127.0.0.1").unwrap(), "ann ann the server at 127.0.0.1, port 5432");
        for wrong in ["host=a,b port=1,2,3", "host=a,b hostaddr=127.0.0.1", "hostaddr=x", "port=0", "port=x"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_would_be_ignored_at_the_cost_of_security_is_refused() {
        for refused in
            ["require_auth=scram-sha-256", "sslcrl=x", "requirepeer=postgres", "gssencmode=require"]
        {
            let problem = target(&dbname(refused), &[]).err().unwrap();
            assert!(problem.starts_with("kb does not support"), "{problem}");
        }
        assert!(target(&dbname("gssencmode=prefer client_encoding=UTF8"), &[]).is_ok());
        assert!(target(&Arguments::default(), &[("PGREQUIREAUTH", "none")]).is_err());
    }
}
