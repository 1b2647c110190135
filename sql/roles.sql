DO $$
BEGIN
    IF pg_catalog.current_setting('server_encoding') <> 'UTF8' THEN
        RAISE EXCEPTION 'kb needs a database with encoding UTF8, this one has %',
            pg_catalog.current_setting('server_encoding') USING ERRCODE = 'feature_not_supported';
    END IF;
END
$$;

-- Group roles. They belong to the cluster, so they may be there already and stay after DROP EXTENSION.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'kb_reader') THEN
        CREATE ROLE kb_reader NOLOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'kb_writer') THEN
        CREATE ROLE kb_writer NOLOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'kb_admin') THEN
        CREATE ROLE kb_admin NOLOGIN;
    END IF;
END
$$;
GRANT kb_reader TO kb_writer;
GRANT kb_writer TO kb_admin;

-- Which tenant the session acts for. '' (unset) is a tenant of its own, never all of them.
CREATE FUNCTION kb.current_tenant() RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN coalesce(pg_catalog.current_setting('kb.tenant', true), '');
COMMENT ON FUNCTION kb.current_tenant() IS
    'The tenant this session acts for: setting kb.tenant, '''' when unset.';

CREATE FUNCTION kb.visible_tenants() RETURNS text[]
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN ARRAY[kb.current_tenant(), 'shared'];
COMMENT ON FUNCTION kb.visible_tenants() IS
    'The tenants whose rows this session may read: its own and ''shared''.';
