//! kb.tools and kb.call_tool.

use crate::pg::function_arguments::{required, value};
use crate::pg::json::Jsonb;
use crate::pg::report::reported;
use crate::tools::options::ToolOptions;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

#[pg_extern(immutable, parallel_safe)]
fn tools(
    format: default!(Option<&str>, "'openai'"),
    options: default!(Option<Jsonb>, "NULL"),
) -> Result<Jsonb, ErrorReport> {
    reported(|| {
        let options = value("options", options)?.map(|options| ToolOptions::parse(&options)).transpose()?;
        super::definitions::tools(required("format", format)?, options.as_ref()).map(Jsonb)
    })
}

#[pg_extern(volatile, parallel_unsafe)]
fn call_tool(
    name: Option<&str>,
    arguments: Option<Jsonb>,
    options: default!(Option<Jsonb>, "NULL"),
) -> Result<Jsonb, ErrorReport> {
    reported(|| {
        let options = ToolOptions::parse(&value("options", options)?.unwrap_or_default())?;
        let arguments = arguments.map(|Jsonb(arguments)| arguments);
        super::call_tool::call_tool(required("name", name)?, arguments, &options).map(Jsonb)
    })
}
