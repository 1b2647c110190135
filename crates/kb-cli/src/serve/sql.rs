//! The statements of `kb serve`.

/// The trace that a request belongs to, `$1`. An extension without the setting does without it.
macro_rules! trace {
    ($parameter:literal) => {
        concat!(
            "CASE WHEN pg_catalog.current_setting('kb.traceparent', true) IS NOT NULL
        THEN pg_catalog.set_config('kb.traceparent', ",
            $parameter,
            ", true) END"
        )
    };
}

pub const TRACE: &str = concat!("SELECT ", trace!("$1"));

/// Sets the role, the tenant and the scopes of a token for the transaction. Without a tenant, it is that of
/// the server's login.
pub const ASSUME_ROLE: &str = concat!(
    "
SELECT pg_catalog.set_config('role', $1, true),
    pg_catalog.set_config('kb.tenant', coalesce($2, pg_catalog.current_setting('kb.tenant')), true),
    pg_catalog.set_config('kb.scopes', $3, true),
    ",
    trace!("$4")
);

/// Sets those of an API key.
pub const ASSUME_KEY: &str = concat!(
    "
SELECT k.key_id, k.requests_per_minute, ",
    trace!("$2"),
    "
FROM kb.assume_api_key($1) AS k (key_id, requests_per_minute)"
);

/// Answers a request: `$1` to `$5` are its method, path, query string, headers and body. There is no row, and
/// kb.http is not called, unless the transaction has a role of `$6`: statements are sent without waiting for
/// the results of those before them, and none may be executed with the rights of the server's own login.
pub const HTTP: &str = "
SELECT h.status, h.headers::pg_catalog.text, h.body
FROM (SELECT $1::pg_catalog.text AS method
    WHERE pg_catalog.current_setting('role') OPERATOR(pg_catalog.=) ANY ($6) OFFSET 0) g,
    LATERAL kb.http(g.method, $2, $3, $4::pg_catalog.jsonb, $5) AS h (status, headers, body)";

/// What the login of the server may do, against the roles `$1` of the command line.
pub const LOGIN: &str = "
WITH me AS (SELECT r.oid, r.rolname, r.rolsuper, r.rolbypassrls
        FROM pg_catalog.pg_roles r WHERE r.rolname OPERATOR(pg_catalog.=) session_user),
    mode AS (SELECT CASE WHEN pg_catalog.current_setting('server_version_num')::pg_catalog.int4
        OPERATOR(pg_catalog.>=) 160000 THEN 'SET' ELSE 'MEMBER' END AS privilege)
SELECT me.rolname::pg_catalog.text AS name, me.rolsuper AS is_superuser, me.rolbypassrls AS bypasses_row_security,
    ARRAY(SELECT r.rolname::pg_catalog.text FROM pg_catalog.pg_auth_members m
        JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) m.roleid
        WHERE m.member OPERATOR(pg_catalog.=) me.oid
            AND r.rolname::pg_catalog.text OPERATOR(pg_catalog.<>) ALL ($1) ORDER BY 1) AS unlisted,
    ARRAY(SELECT l.name FROM pg_catalog.unnest($1) WITH ORDINALITY AS l (name, no)
        LEFT JOIN pg_catalog.pg_roles r ON r.rolname OPERATOR(pg_catalog.=) l.name
        WHERE r.oid IS NULL ORDER BY l.no) AS missing,
    ARRAY(SELECT l.name FROM pg_catalog.unnest($1) WITH ORDINALITY AS l (name, no)
        JOIN pg_catalog.pg_roles r ON r.rolname OPERATOR(pg_catalog.=) l.name
        WHERE NOT pg_catalog.pg_has_role(me.oid, r.oid, mode.privilege) ORDER BY l.no) AS ungranted,
    ARRAY(SELECT r.rolname::pg_catalog.text FROM pg_catalog.pg_roles r
        WHERE (r.rolsuper OR r.rolbypassrls) AND NOT me.rolsuper
            AND pg_catalog.pg_has_role(me.oid, r.oid, 'MEMBER') AND r.oid OPERATOR(pg_catalog.<>) me.oid
        ORDER BY 1) AS powerful,
    EXISTS (SELECT 1 FROM pg_catalog.pg_namespace n
        WHERE n.nspname OPERATOR(pg_catalog.=) 'kb' AND NOT pg_catalog.has_schema_privilege(me.oid, n.oid, 'USAGE'))
        AS lacks_schema,
    f.served IS NOT NULL AS is_served,
    f.keys IS NOT NULL AND NOT pg_catalog.has_function_privilege(me.oid, f.keys, 'EXECUTE') AS lacks_keys
FROM me, mode, (SELECT
        (SELECT p.oid FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace
        WHERE n.nspname OPERATOR(pg_catalog.=) 'kb' AND p.proname OPERATOR(pg_catalog.=) 'http' LIMIT 1) AS served,
        (SELECT p.oid FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace
        WHERE n.nspname OPERATOR(pg_catalog.=) 'kb' AND p.proname OPERATOR(pg_catalog.=) 'assume_api_key' LIMIT 1) AS keys) f";

/// Whether a login by HTTP Basic is one that row security binds.
pub const IS_BOUND: &str = "
SELECT NOT (r.rolsuper OR r.rolbypassrls)
FROM pg_catalog.pg_roles r WHERE r.rolname OPERATOR(pg_catalog.=) session_user";
