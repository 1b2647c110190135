-- Every file of this folder is read under a pinned search_path. Otherwise an operator that somebody created
-- in the schema of an extension that kb needs would be stored in kb's own objects. The last line of each file
-- restores the path that CREATE EXTENSION set.
SELECT pg_catalog.set_config('kb_install.search_path', pg_catalog.current_setting('search_path'), true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

DO $$
BEGIN
    IF pg_catalog.current_setting('server_encoding') <> 'UTF8' THEN
        RAISE EXCEPTION 'kb requires database encoding UTF8, but this database has %',
            pg_catalog.current_setting('server_encoding') USING ERRCODE = 'feature_not_supported';
    END IF;
END
$$;

-- A schema that existed before may contain, or later be given, functions that pass for kb's.
DO $$
DECLARE
    owner pg_catalog.text := (SELECT pg_catalog.pg_get_userbyid(nspowner) FROM pg_catalog.pg_namespace WHERE nspname = 'kb');
    held  pg_catalog.text := (
        SELECT pg_catalog.string_agg(what, ', ') FROM (
            SELECT pg_catalog.pg_describe_object(classid, objid, objsubid) AS what FROM pg_catalog.pg_depend
            WHERE refclassid = 'pg_catalog.pg_namespace'::regclass
              AND refobjid = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'kb')
              AND classid <> 'pg_catalog.pg_extension'::regclass
            ORDER BY 1 LIMIT 5) AS objects);
BEGIN
    IF owner <> current_user AND NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = owner) THEN
        RAISE EXCEPTION 'schema kb belongs to role "%", which is not a superuser', owner USING
            ERRCODE = 'insufficient_privilege',
            HINT = 'Drop or rename that schema; CREATE EXTENSION creates its own.';
    END IF;
    IF held IS NOT NULL THEN
        RAISE EXCEPTION 'schema kb is not empty: %', held USING
            ERRCODE = 'duplicate_schema',
            HINT = 'Drop or rename that schema; CREATE EXTENSION creates its own.';
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_namespace, pg_catalog.aclexplode(nspacl) AS acl
               WHERE nspname = 'kb' AND acl.privilege_type = 'CREATE' AND acl.grantee <> nspowner) THEN
        RAISE EXCEPTION 'roles other than its owner may create objects in schema kb' USING
            ERRCODE = 'insufficient_privilege',
            HINT = 'REVOKE CREATE ON SCHEMA kb from them, or drop that schema; CREATE EXTENSION creates its own.';
    END IF;
END
$$;

-- Group roles. They belong to the cluster, so they may exist already, and they stay after DROP EXTENSION.
DO $$
DECLARE
    members pg_catalog.text;
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
    -- This role has no members: the library reads vectors as this role, under the policies of every table
    -- with a tenant.
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'kb_vectors') THEN
        CREATE ROLE kb_vectors NOLOGIN;
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'kb_vectors' AND (rolsuper OR rolbypassrls OR rolcanlogin)) THEN
        RAISE EXCEPTION 'role kb_vectors exists with attributes that it must not have' USING
            ERRCODE = 'invalid_role_specification',
            HINT = 'ALTER ROLE kb_vectors NOSUPERUSER NOBYPASSRLS NOLOGIN;';
    END IF;
    members := (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(rolname), ', ' ORDER BY rolname)
                FROM pg_catalog.pg_roles WHERE oid IN (
                    SELECT member FROM pg_catalog.pg_auth_members WHERE roleid = 'kb_vectors'::pg_catalog.regrole));
    IF members IS NOT NULL THEN
        RAISE EXCEPTION 'role kb_vectors has members, which could read the vectors of every tenant: %', members USING
            ERRCODE = 'invalid_role_specification',
            HINT = pg_catalog.format('REVOKE kb_vectors FROM %s;', members);
    END IF;
END
$$;
GRANT kb_reader TO kb_writer;
GRANT kb_writer TO kb_admin;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('kb_install.search_path'), true);
