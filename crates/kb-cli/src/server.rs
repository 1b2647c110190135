//! A connection to a database with kb: what the installed extension has and what the session may do.

use crate::call::Call;
use crate::connect::Connected;
use crate::context::Context;
use crate::exit::{Error, Result};
use crate::sql;
use serde::Deserialize;
use tokio_postgres::types::{ToSql, Type};

/// The version of this program, which is that of the extension that it comes with.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What is installed in the database.
#[derive(Deserialize)]
pub struct Installed {
    pub version: String,
    pub user: String,
    usage: bool,
    functions: Vec<Function>,
}

/// A function of kb. Several may have the same name.
#[derive(Deserialize)]
struct Function {
    name: String,
    /// The names of its arguments, in order.
    arguments: Vec<String>,
    /// Whether the session may call it.
    allowed: bool,
    /// The first of kb's roles that may, if the session may not.
    role: Option<String>,
}

impl Installed {
    pub fn has(&self, function: &str) -> bool {
        self.functions.iter().any(|known| known.name == function)
    }

    pub fn has_argument(&self, function: &str, argument: &str) -> bool {
        let mut named = self.functions.iter().filter(|known| known.name == function);
        named.any(|known| known.arguments.iter().any(|name| name == argument))
    }

    /// Whether the version of the extension is below, equal to or above that of this program.
    pub fn order(&self) -> std::cmp::Ordering {
        numbers(&self.version).cmp(&numbers(VERSION))
    }

    /// What is missing if a function of this program's version does not exist.
    fn absent(&self, what: &str) -> Error {
        let error = Error::failed(format!("kb {} of this database has no {what}", self.version));
        match self.order() {
            std::cmp::Ordering::Less => error.hint(format!(
                "This program is of version {VERSION}. Run ALTER EXTENSION kb UPDATE in the database, after the \
                 server has got the newer library."
            )),
            _ => error.hint(format!("This program is of version {VERSION}. Use one of version {}.", self.version)),
        }
    }

    /// Fails if the function or one of these arguments does not exist, or the session may not call it.
    pub fn require(&self, function: &str, arguments: &[&str]) -> Result<()> {
        let mut named = self.functions.iter().filter(|known| known.name == function).peekable();
        if named.peek().is_none() {
            return Err(self.absent(&format!("function kb.{function}")));
        }
        if let Some(missing) = arguments.iter().find(|argument| !self.has_argument(function, argument)) {
            return Err(self.absent(&format!("argument \"{missing}\" of kb.{function}")));
        }
        let Some(refused) = named.find(|known| !known.allowed || !self.usage) else {
            return Ok(());
        };
        let role = refused.role.as_deref().unwrap_or("kb_reader");
        let mut error = Error::failed(format!("role \"{}\" may not call kb.{function}", self.user));
        error.sqlstate = Some("42501".into());
        Err(error.hint(format!("A superuser can run: GRANT {role} TO {};", quoted(&self.user))))
    }

    /// Adds to an error of missing privileges what to do about it, if the server did not say so.
    pub fn advise(&self, error: Error) -> Error {
        if error.sqlstate.as_deref() == Some("42501") && error.hint.is_none() && !self.usage {
            return error.hint(format!("A superuser can run: GRANT kb_reader TO {};", quoted(&self.user)));
        }
        error
    }
}

/// The numbers of a version, of which the first three count.
fn numbers(version: &str) -> [u64; 3] {
    let mut parts = version.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

/// A name as an identifier of SQL.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub struct Session {
    pub connected: Connected,
    pub installed: Installed,
}

impl Session {
    /// Finds out what is installed, and acts for the tenant that the command line names.
    pub async fn begin(connected: Connected, context: &Context) -> Result<Session> {
        if let Some(tenant) = &context.project {
            connected.client.query_typed(sql::SET_TENANT, &[(tenant, Type::TEXT)]).await?;
        }
        let found = connected.client.query_typed(sql::INSTALLED, &[]).await?;
        let Some(row) = found.first() else {
            return Err(missing(&connected, context.target()?.database()).await);
        };
        let text: String = row.try_get(0)?;
        let installed: Installed = serde_json::from_str(&text)
            .map_err(|e| Error::failed(format!("what the server says of its extension is unclear: {e}")))?;
        Ok(Session { connected, installed })
    }

    /// A call of a function of kb by its name.
    pub fn call<'a>(&'a self, function: &'a str) -> Call<'a> {
        Call::new(self, function)
    }

    /// The only column, a text, of the rows of a statement whose parameters are texts.
    pub async fn texts(&self, sql: &str, parameters: &[Option<String>]) -> Result<Vec<Option<String>>> {
        let typed: Vec<(&(dyn ToSql + Sync), Type)> =
            parameters.iter().map(|value| (value as &(dyn ToSql + Sync), Type::TEXT)).collect();
        let rows = self.connected.client.query_typed(sql, &typed).await;
        let rows = rows.map_err(|e| self.installed.advise(e.into()))?;
        rows.iter().map(|row| row.try_get(0).map_err(Error::from)).collect()
    }

    /// The one text that a statement returns.
    pub async fn text(&self, sql: &str, parameters: &[Option<String>]) -> Result<Option<String>> {
        Ok(self.texts(sql, parameters).await?.pop().flatten())
    }
}

async fn missing(connected: &Connected, database: &str) -> Error {
    let error = Error::failed(format!("the database \"{database}\" does not have the extension kb"));
    let available = connected.client.query_typed(sql::AVAILABLE, &[]).await;
    if available.is_ok_and(|rows| rows.is_empty()) {
        return error.hint(
            "This server does not have the files of kb. Install them first (make install, or a package).",
        );
    }
    error.hint("Is it another database (-d)? Otherwise a superuser can run in this one: CREATE EXTENSION kb CASCADE;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installed(version: &str, usage: bool) -> Installed {
        let function = |name: &str, arguments: &[&str], allowed| Function {
            name: name.into(),
            arguments: arguments.iter().map(|name| name.to_string()).collect(),
            allowed,
            role: (!allowed).then(|| "kb_writer".to_string()),
        };
        let functions =
            vec![function("query", &["kb_id", "query"], true), function("apply", &["yaml"], false)];
        Installed { version: version.into(), user: "o\"x".into(), usage, functions }
    }

    #[test]
    fn what_an_older_or_newer_extension_lacks_is_said_with_what_to_do() {
        let hint = |version: &str, function: &str, arguments: &[&str]| {
            let error = installed(version, true).require(function, arguments).unwrap_err();
            format!("{} / {}", error.message, error.hint.unwrap())
        };
        let old = hint("0.1.9", "tune", &[]);
        assert!(old.starts_with("kb 0.1.9 of this database has no function kb.tune / "), "{old}");
        assert!(old.contains("ALTER EXTENSION kb UPDATE"), "{old}");
        let new = hint("99.0", "query", &["kb_id", "gone"]);
        assert!(new.starts_with("kb 99.0 of this database has no argument \"gone\" of kb.query"), "{new}");
        assert!(new.contains("Use one of version 99.0"), "{new}");
        assert!(installed("0.1", true).require("query", &["query"]).is_ok());
    }

    #[test]
    fn a_role_without_rights_is_told_which_role_to_get() {
        let error = installed(VERSION, true).require("apply", &[]).unwrap_err();
        assert_eq!(error.hint.unwrap(), "A superuser can run: GRANT kb_writer TO \"o\"\"x\";");
        let error = installed(VERSION, false).require("query", &[]).unwrap_err();
        assert_eq!(error.hint.unwrap(), "A superuser can run: GRANT kb_reader TO \"o\"\"x\";");
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let order = |version: &str| installed(version, true).order();
        assert_eq!(order(VERSION), std::cmp::Ordering::Equal);
        assert_eq!(order("0.0.1.made_up"), std::cmp::Ordering::Less);
        assert_eq!(order("0.10.0"), std::cmp::Ordering::Greater);
        assert!(numbers("0.2.0") < numbers("0.10.0"));
    }
}
