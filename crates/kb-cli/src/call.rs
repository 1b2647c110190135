//! Calls of kb's functions. Every argument is named, and only those that were given are sent, so that a
//! function may have other arguments in other versions. Values travel as parameters.

use crate::exit::{Error, Result};
use crate::server::Session;
use serde_json::Value;

pub struct Call<'a> {
    session: &'a Session,
    function: &'a str,
    /// Names, expressions in which `$` is the parameter, and values.
    arguments: Vec<(&'static str, &'static str, Option<String>)>,
}

impl<'a> Call<'a> {
    pub fn new(session: &'a Session, function: &'a str) -> Call<'a> {
        Call { session, function, arguments: Vec::new() }
    }

    fn with(mut self, name: &'static str, expression: &'static str, value: Option<String>) -> Call<'a> {
        if value.is_some() {
            self.arguments.push((name, expression, value));
        }
        self
    }

    pub fn text(self, name: &'static str, value: impl Into<Option<&'a str>>) -> Call<'a> {
        let value = value.into().map(str::to_string);
        self.with(name, "$::pg_catalog.text", value)
    }

    pub fn texts(self, name: &'static str, values: &[String]) -> Call<'a> {
        let expression =
            "ARRAY(SELECT pg_catalog.jsonb_array_elements_text($::pg_catalog.text::pg_catalog.jsonb))";
        self.with(name, expression, Some(Value::from(values).to_string()))
    }

    pub fn integer(self, name: &'static str, value: impl Into<Option<i32>>) -> Call<'a> {
        let value = value.into().map(|value| value.to_string());
        self.with(name, "$::pg_catalog.text::pg_catalog.int4", value)
    }

    pub fn double(self, name: &'static str, value: impl Into<Option<f64>>) -> Call<'a> {
        let value = value.into().map(|value| value.to_string());
        self.with(name, "$::pg_catalog.text::pg_catalog.float8", value)
    }

    /// Sent only if it is true, which is no function's default.
    pub fn flag(self, name: &'static str, value: bool) -> Call<'a> {
        self.with(name, "$::pg_catalog.text::pg_catalog.bool", value.then(|| "true".to_string()))
    }

    /// A JSON text, as the user wrote it.
    pub fn json(self, name: &'static str, value: Option<String>) -> Call<'a> {
        self.with(name, "$::pg_catalog.text::pg_catalog.jsonb", value)
    }

    fn expression(&self) -> String {
        let arguments: Vec<String> = (self.arguments.iter().zip(1..))
            .map(|((name, expression, _), at)| {
                format!("\"{name}\" => {}", expression.replace('$', &format!("${at}")))
            })
            .collect();
        format!("kb.{}({})", self.function, arguments.join(", "))
    }

    fn values(&self) -> Vec<Option<String>> {
        self.arguments.iter().map(|(_, _, value)| value.clone()).collect()
    }

    fn check(&self) -> Result<()> {
        let names: Vec<&str> = self.arguments.iter().map(|(name, _, _)| *name).collect();
        self.session.installed.require(self.function, &names)
    }

    /// The rows as a JSON array of objects.
    pub async fn rows(self) -> Result<String> {
        self.check()?;
        let sql = format!(
            "SELECT coalesce(pg_catalog.json_agg(r), '[]')::pg_catalog.text FROM {} AS r",
            self.expression()
        );
        Ok(self.session.text(&sql, &self.values()).await?.unwrap_or_else(|| "[]".into()))
    }

    /// The one value, as a text.
    pub async fn value(self) -> Result<Option<String>> {
        self.check()?;
        // Cast outside of the call: no function is called twice.
        let sql = format!("SELECT r::pg_catalog.text FROM (SELECT {} AS r) AS c", self.expression());
        self.session.text(&sql, &self.values()).await
    }
}

/// The rows of a result that is a JSON array.
pub fn parsed(json: &str) -> Result<Vec<Value>> {
    serde_json::from_str(json).map_err(|e| Error::failed(format!("the server's result is unclear: {e}")))
}

/// A text of an object; empty if it is null or missing.
pub fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}
