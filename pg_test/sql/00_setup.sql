-- The extension, what it brings, and helpers for the tests after this one.
SET client_min_messages = warning;
CREATE EXTENSION kb CASCADE;
RESET client_min_messages;

SELECT e.extname, n.nspname, e.extrelocatable
FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
WHERE e.extname IN ('kb', 'vector') ORDER BY 1;

SELECT id, provider, model, dimension, base_url, secret, config, seeded FROM kb.embedders ORDER BY id;

-- Group roles: reader < writer < admin, none of which logs in.
SELECT r.rolname, r.rolcanlogin, r.rolsuper, m.rolname AS member_of
FROM pg_roles r LEFT JOIN pg_auth_members a ON a.member = r.oid LEFT JOIN pg_roles m ON m.oid = a.roleid
WHERE r.rolname IN ('kb_reader', 'kb_writer', 'kb_admin') ORDER BY 1, 4;

-- Every table with a tenant has forced row-level security.
SELECT c.relname, c.relrowsecurity, c.relforcerowsecurity
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
WHERE c.relnamespace = 'kb'::regnamespace AND c.relkind IN ('r', 'p') ORDER BY 1;

-- A deletion finds by an index what it deletes or clears with it.
SELECT c.conrelid::regclass, c.conname FROM pg_constraint c
WHERE c.connamespace = 'kb'::regnamespace AND c.contype = 'f' AND c.confdeltype IN ('c', 'n')
  AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.conrelid AND i.indkey[0] = c.conkey[1]);

-- Views read with the rights of their caller.
SELECT relname, reloptions FROM pg_class WHERE relnamespace = 'kb'::regnamespace AND relkind = 'v' ORDER BY 1;

-- The functions an application calls, with the names of their arguments.
SELECT p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')' AS function, p.provolatile AS v, p.proparallel AS p
FROM pg_proc p WHERE p.pronamespace = 'kb'::regnamespace AND p.proname !~ '^_'
ORDER BY p.proname, pg_get_function_identity_arguments(p.oid);

-- Callers that name their arguments (PostgREST) choose a function by those names: no set of names may fit two functions.
-- A set fits two where each takes what the other requires.
CREATE TEMP VIEW ambiguous AS
WITH f AS (
    SELECT oid, proname, coalesce(proargnames[1:pronargs], '{}') AS takes,
           coalesce(proargnames[1:pronargs - pronargdefaults], '{}') AS requires
    FROM pg_proc WHERE pronamespace = 'kb'::regnamespace)
SELECT a.oid::regprocedure AS one, b.oid::regprocedure AS other
FROM f a JOIN f b ON a.proname = b.proname AND a.oid < b.oid AND a.requires <@ b.takes AND b.requires <@ a.takes;
SELECT * FROM ambiguous;
BEGIN;
CREATE FUNCTION kb.wait(kb_id uuid, timeout float8) RETURNS void LANGUAGE sql AS '';
SELECT * FROM ambiguous;
ROLLBACK;
DROP VIEW ambiguous;

-- Every object a user meets says what it is.
SELECT p.oid::regprocedure AS undocumented FROM pg_proc p
WHERE p.pronamespace = 'kb'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL ORDER BY 1;
SELECT c.relname AS undocumented FROM pg_class c
WHERE c.relnamespace = 'kb'::regnamespace AND c.relkind IN ('r', 'v') AND obj_description(c.oid, 'pg_class') IS NULL
ORDER BY 1;

-- A setting that does not exist is an error, not a silent placeholder.
SET kb.default_embeder = 'hash';
SET kb.max_document_size = '10 parsecs';
-- PostgreSQL 17 words this one otherwise.
\set VERBOSITY sqlstate
SET kb.gateway_timeout = 0;
\set VERBOSITY default
SELECT name, left(setting, 20) AS setting, unit, context, min_val, max_val FROM pg_settings
WHERE name LIKE 'kb.%' AND name <> 'kb.model_dir' ORDER BY name COLLATE "C";
-- Only the configuration file says where models are.
SET kb.model_dir = '/tmp';

-- For the tests: SQLSTATE, message, detail and hint of what a statement raises, or its first column.
CREATE FUNCTION try(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text; state text; message text; detail text; hint text;
BEGIN
    EXECUTE statement INTO result;
    RETURN 'ok: ' || coalesce(result, 'NULL');
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT;
    RETURN state || ': ' || message || coalesce(E'\ndetail: ' || nullif(detail, ''), '')
        || coalesce(E'\nhint: ' || nullif(hint, ''), '');
END
$$;
SELECT try('SELECT 1'), try('SELECT 1/0');

-- For the tests, too: waits until a condition holds, looking from a new transaction each time; an error after a minute.
CREATE PROCEDURE until(condition text) LANGUAGE plpgsql AS $$
DECLARE
    holds boolean; begun timestamptz := clock_timestamp();
BEGIN
    LOOP
        EXECUTE condition INTO holds;
        EXIT WHEN holds;
        IF clock_timestamp() > begun + interval '60 s' THEN
            RAISE 'this does not come true: %', condition;
        END IF;
        COMMIT;
        PERFORM pg_sleep(0.02);
    END LOOP;
END
$$;
CALL until('SELECT true');
