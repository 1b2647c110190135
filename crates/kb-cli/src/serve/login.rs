//! The server's own login, which may act as the roles of the command line and as nobody else.

use super::sql;
use crate::connect::Target;
use crate::exit::{Error, Result};
use crate::output::Output;
use crate::server::quoted;

/// Refuses a login with more rights than the server needs, or with fewer. All problems are said at once, with
/// what to do. What is said besides is a warning.
pub async fn check(target: &Target, output: &Output, roles: &[String]) -> Result<Vec<String>> {
    let connected = target.connect(output).await?;
    let row = connected.client.query_one(sql::LOGIN, &[&roles]).await?;
    let name: String = row.try_get("name")?;
    let me = quoted(&name);
    let (mut problems, mut steps) = (Vec::new(), Vec::new());
    if row.try_get("is_superuser")? {
        problems.push(format!("role {me} is a superuser"));
    } else if row.try_get("bypasses_row_security")? {
        problems.push(format!("role {me} bypasses row security"));
    }
    if !problems.is_empty() {
        let listed: Vec<String> = roles.iter().map(|role| quoted(role)).collect();
        let grant = if listed.is_empty() {
            String::new()
        } else {
            format!(" GRANT {} TO kb_serve;", listed.join(", "))
        };
        return Err(Error::failed(format!("kb serve must not connect as this role: {}", problems.join(", ")))
            .hint(format!(
                "Make one for it: CREATE ROLE kb_serve LOGIN NOINHERIT PASSWORD '…'; GRANT USAGE ON SCHEMA kb TO kb_serve; \
                 GRANT EXECUTE ON FUNCTION kb.assume_api_key(text) TO kb_serve;{grant}"
            )));
    }
    for role in row.try_get::<_, Vec<String>>("unlisted")? {
        problems.push(format!("role {me} is a member of {}, which no --role names", quoted(&role)));
        steps.push(format!("REVOKE {} FROM {me}; or add --role {role}", quoted(&role)));
    }
    for role in row.try_get::<_, Vec<String>>("missing")? {
        problems.push(format!("role {} does not exist", quoted(&role)));
    }
    for role in row.try_get::<_, Vec<String>>("ungranted")? {
        problems.push(format!("role {me} may not act as {}", quoted(&role)));
        steps.push(format!("GRANT {} TO {me};", quoted(&role)));
    }
    for role in row.try_get::<_, Vec<String>>("powerful")? {
        problems.push(format!("role {me} may act as {}, which row security does not bind", quoted(&role)));
    }
    if row.try_get("lacks_schema")? {
        problems.push(format!("role {me} may not use the schema kb"));
        steps.push(format!("GRANT USAGE ON SCHEMA kb TO {me};"));
    }
    if !problems.is_empty() {
        let error = Error::failed(format!("kb serve must not connect so: {}", problems.join("; ")));
        return Err(if steps.is_empty() { error } else { error.hint(steps.join(" ")) });
    }
    let mut warnings = Vec::new();
    if !row.try_get::<_, bool>("is_served")? {
        warnings.push(
            "the database has no function kb.http yet: requests are refused until CREATE EXTENSION kb".into(),
        );
    }
    if row.try_get("lacks_keys")? {
        warnings.push(format!(
            "API keys are refused until a superuser runs: GRANT EXECUTE ON FUNCTION kb.assume_api_key(text) TO {me};"
        ));
    }
    Ok(warnings)
}
