-- Makes shadows: objects with the names that kb's SQL uses, which leave evidence when they are called. Run
-- under search_path = pg_catalog, by the database's owner.
CREATE SCHEMA evil;
GRANT USAGE ON SCHEMA evil TO PUBLIC;

-- Evidence goes to the server's log: no rollback takes it back, and the CONTEXT there says which statement it
-- was.
CREATE FUNCTION evil.called(what text) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE AS $$
BEGIN
    RAISE LOG 'shadow called: % by % as %', what, session_user, current_user;
    RETURN true;
END
$$;

-- The words and operators of kb's SQL, and the words that follow "::" in it.
CREATE TABLE evil.words (word text PRIMARY KEY);
CREATE TABLE evil.casts (type text PRIMARY KEY);
CREATE SEQUENCE evil.number;
-- The objects that were created.
CREATE TABLE evil.made (schema text NOT NULL, kind text NOT NULL, name text NOT NULL, signature text NOT NULL);

-- The schema of the originals.
CREATE VIEW evil.homes AS
SELECT n.oid, quote_ident(n.nspname) AS name FROM pg_namespace n
WHERE n.nspname = 'pg_catalog' OR n.oid = (SELECT extnamespace FROM pg_extension WHERE extname = 'vector');

GRANT SELECT ON evil.words, evil.homes TO PUBLIC;

-- The types that kb's statements compare, add and pass.
CREATE VIEW evil.operands AS
SELECT DISTINCT format_type(t.oid, NULL) AS type FROM pg_type t
WHERE t.typcategory <> 'A' AND t.typtype = 'b' AND (
    t.oid IN ('integer'::regtype, 'bigint'::regtype, 'numeric'::regtype, 'double precision'::regtype,
              'boolean'::regtype, 'text'::regtype, 'varchar'::regtype, 'name'::regtype, 'json'::regtype)
    OR t.oid IN (SELECT a.atttypid FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                 JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'kb' AND a.attnum > 0)
    OR (t.typname IN (SELECT type FROM evil.casts UNION ALL VALUES ('vector'), ('halfvec')) AND t.typnamespace IN (SELECT oid FROM evil.homes)));

-- Domains and views; any session can make them in its pg_temp, too. With a base, all domains are over that
-- type.
CREATE FUNCTION evil.shadow_types(schema text, base text DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    t record;
    n bigint := 0;
BEGIN
    FOR t IN
        SELECT y.typname AS name, h.name AS home FROM pg_type y JOIN evil.homes h ON h.oid = y.typnamespace AND h.name <> schema
        WHERE y.typtype IN ('b', 'e', 'r', 'm') AND y.typcategory <> 'A' AND y.typname IN (SELECT word FROM evil.words)
          AND NOT EXISTS (SELECT FROM pg_class c WHERE c.reltype = y.oid)
    LOOP
        BEGIN
            EXECUTE format('CREATE DOMAIN %s.%I AS %s CHECK (evil.called(%L))', schema, t.name,
                           coalesce(base, format('%s.%I', t.home, t.name)), format('type %s.%s', schema, t.name));
            n := n + 1;
        EXCEPTION WHEN duplicate_object THEN NULL;  -- pgvector's own, in the same schema
        END;
    END LOOP;
    FOR t IN
        -- A view has no column of a pseudo-type.
        SELECT c.relname AS name, s.nspname AS home,
               (SELECT string_agg(quote_ident(a.attname), ', ') FROM pg_attribute a
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.atttypid <> 'anyarray'::regtype) AS columns
        FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'v') AND s.nspname IN ('pg_catalog', 'kb') AND c.relname IN (SELECT word FROM evil.words)
    LOOP
        EXECUTE format('CREATE VIEW %s.%I AS SELECT %s FROM %I.%I WHERE evil.called(%L)', schema, t.name, t.columns, t.home, t.name,
                       format('relation %s.%s', schema, t.name));
        n := n + 1;
    END LOOP;
    RETURN n;
END
$$;

-- The type of an expression, NULL where pg_catalog has no such function or operator.
CREATE FUNCTION evil.type_of(expression text) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found text;
BEGIN
    EXECUTE format('SELECT pg_typeof((SELECT %s WHERE false))::text', expression) INTO found;
    RETURN nullif(found, 'record');
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

-- Text search configurations: no code of theirs is called, so what shows their use is other results.
CREATE FUNCTION evil.shadow_languages(schema text) RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    t record;
    n bigint := 0;
BEGIN
    FOR t IN SELECT cfgname FROM pg_ts_config WHERE cfgnamespace = 'pg_catalog'::regnamespace LOOP
        EXECUTE format('CREATE TEXT SEARCH CONFIGURATION %s.%I (COPY = pg_catalog.%I)', schema, t.cfgname,
                       CASE t.cfgname WHEN 'simple' THEN 'english' ELSE 'simple' END);
        n := n + 1;
    END LOOP;
    RETURN n;
END
$$;

-- Makes a function with this declaration, or one for an operator, and returns its name; `value` is what it
-- returns. With a lie, it returns one of that type instead, unless the truth is a boolean: then the statement
-- would not be planned at all.
CREATE FUNCTION evil.shadow(schema text, kind text, name text, arguments text, result text, value text, lie text)
RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    signature text := format('%s %s.%s(%s)', kind, schema, name, arguments);
    is_set boolean := result LIKE 'SETOF %' OR result LIKE 'TABLE(%';
    lies boolean := lie IS NOT NULL AND result <> 'boolean' AND result NOT LIKE 'TABLE(%' AND arguments NOT LIKE '%OUT %';
    target text := format('%s.%I', schema, name);
BEGIN
    IF lies THEN
        result := CASE WHEN is_set THEN 'SETOF ' ELSE '' END || lie;
        value := format('SELECT %L::%s', '7', lie);
    END IF;
    IF kind = 'operator' THEN
        target := 'evil.operator_' || nextval('evil.number');
    END IF;
    EXECUTE format('CREATE FUNCTION %s(%s) RETURNS %s LANGUAGE sql PARALLEL SAFE AS %L', target, arguments, result,
                   format('SELECT evil.called(%L); %s', signature, value));
    INSERT INTO evil.made VALUES (schema, kind, name, arguments);
    RETURN target;
END
$$;

-- Functions with the very arguments of pg_catalog's, and those that fit better wherever pg_catalog's need a
-- conversion.
CREATE FUNCTION evil.shadow_functions(schema text, lie text DEFAULT NULL) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    f record;
    result text;
BEGIN
    FOR f IN
        SELECT p.proname AS name, pg_get_function_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result,
               format('SELECT %s %s.%I(%s)',
                      CASE WHEN p.proretset OR p.proargmodes && '{o,t}'::"char"[] THEN '* FROM' ELSE '' END, h.name, p.proname,
                      (SELECT string_agg(CASE WHEN i = p.pronargs AND p.provariadic <> 0 THEN 'VARIADIC $' ELSE '$' END || i, ', ' ORDER BY i)
                       FROM generate_series(1, p.pronargs) i)) AS value
        FROM pg_proc p JOIN evil.homes h ON h.oid = p.pronamespace AND h.name <> schema
        WHERE p.prokind = 'f' AND p.proname IN (SELECT word FROM evil.words)
    LOOP
        BEGIN
            PERFORM evil.shadow(schema, 'function', f.name, f.arguments, f.result, f.value, lie);
        EXCEPTION
            -- "any", internal, cstring, trigger: not for functions in SQL. pgvector's own, in the same
            -- schema.
            WHEN invalid_function_definition OR duplicate_function OR syntax_error THEN NULL;
        END;
    END LOOP;
    FOR f IN
        WITH types AS (SELECT type FROM evil.operands),
             names AS (SELECT DISTINCT p.proname AS name, h.name AS home, p.pronargs AS many, p.proretset AS is_set
                       FROM pg_proc p JOIN evil.homes h ON h.oid = p.pronamespace AND h.name <> schema
                       WHERE p.prokind = 'f' AND p.pronargs IN (1, 2) AND p.proname IN (SELECT word FROM evil.words))
        SELECT n.name, n.is_set, a.arguments, evil.type_of(format('%s.%I(%s)', n.home, n.name, a.nulls)) AS result,
               format('SELECT %s.%I(%s)', n.home, n.name, a.numbers) AS value
        FROM names n JOIN (
            SELECT 1 AS many, type AS arguments, format('NULL::%s', type) AS nulls, '$1' AS numbers FROM types
            UNION ALL SELECT 1, type || '[]', format('NULL::%s[]', type), '$1' FROM types
            UNION ALL SELECT 2, format('%s, %s', l.type, r.type), format('NULL::%s, NULL::%s', l.type, r.type), '$1, $2'
                      FROM types l, types r) a ON a.many = n.many
    LOOP
        CONTINUE WHEN f.result IS NULL;
        result := CASE WHEN f.is_set THEN 'SETOF ' ELSE '' END || f.result;
        BEGIN
            PERFORM evil.shadow(schema, 'function', f.name, f.arguments, result, f.value, lie);
        EXCEPTION WHEN invalid_function_definition OR duplicate_function THEN NULL;
        END;
    END LOOP;
END
$$;

-- Aggregates, by the types that they are called with.
CREATE FUNCTION evil.shadow_aggregates(schema text, lie text DEFAULT NULL) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    f record;
    result text;
    signature text;
    number bigint;
BEGIN
    FOR f IN
        WITH types AS (SELECT type FROM evil.operands),
             names AS (SELECT DISTINCT p.proname AS name, h.name AS home, p.pronargs AS many
                       FROM pg_proc p JOIN evil.homes h ON h.oid = p.pronamespace AND h.name <> schema
                       WHERE p.prokind = 'a' AND p.pronargs < 3 AND p.proname IN (SELECT word FROM evil.words))
        SELECT n.name, a.arguments, evil.type_of(format('%s.%I(%s)', n.home, n.name, a.nulls)) AS result
        FROM names n JOIN (
            SELECT 0 AS many, '*' AS arguments, '*' AS nulls
            UNION ALL SELECT 1, type, format('NULL::%s', type) FROM types
            UNION ALL SELECT 2, format('%s, %s', l.type, r.type), format('NULL::%s, NULL::%s', l.type, r.type)
                      FROM types l, types r) a ON a.many = n.many
    LOOP
        CONTINUE WHEN f.result IS NULL;
        result := coalesce(CASE WHEN f.result <> 'boolean' THEN lie END, f.result);
        signature := format('aggregate %s.%s(%s)', schema, f.name, f.arguments);
        number := nextval('evil.number');
        BEGIN
            EXECUTE format('CREATE FUNCTION evil.step_%s(%s) RETURNS %s LANGUAGE sql PARALLEL SAFE AS %L', number,
                           concat_ws(', ', result, nullif(f.arguments, '*')), result,
                           format('SELECT evil.called(%L); SELECT %s', signature,
                                  CASE WHEN f.name = 'count' AND lie IS NULL THEN '$1 OPERATOR(pg_catalog.+) 1' ELSE '$1' END));
            EXECUTE format('CREATE FUNCTION evil.end_%s(%s) RETURNS %s LANGUAGE sql PARALLEL SAFE AS %L', number, result,
                           result, format('SELECT evil.called(%L); SELECT $1', signature));
            EXECUTE format('CREATE AGGREGATE %s.%I(%s) (SFUNC = evil.step_%s, STYPE = %s, FINALFUNC = evil.end_%s%s)', schema,
                           f.name, f.arguments, number, result, number,
                           CASE WHEN result IN ('bigint', 'numeric') THEN ', INITCOND = ''0''' ELSE '' END);
            INSERT INTO evil.made VALUES (schema, 'aggregate', f.name, f.arguments);
        EXCEPTION WHEN invalid_function_definition OR duplicate_function THEN NULL;
        END;
    END LOOP;
END
$$;

-- Operators for every pair of types that pg_catalog's work for, with or without a conversion.
CREATE FUNCTION evil.shadow_operators(schema text, lie text DEFAULT NULL) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o record;
    made text;
BEGIN
    FOR o IN
        WITH types AS (SELECT type FROM evil.operands),
             names AS (SELECT DISTINCT p.oprname AS name, h.name AS home FROM pg_operator p
                       JOIN evil.homes h ON h.oid = p.oprnamespace AND h.name <> schema
                       WHERE p.oprname IN (SELECT word FROM evil.words))
        SELECT n.name, n.home, a.l, a.r,
               evil.type_of(format('%s OPERATOR(%s.%s) NULL::%s', 'NULL::' || a.l, n.home, n.name, a.r)) AS result
        FROM names n CROSS JOIN (
            SELECT l.type AS l, r.type AS r FROM types l, types r
            UNION ALL SELECT type || '[]', type || '[]' FROM types
            UNION ALL SELECT type || '[]', type FROM types
            UNION ALL SELECT NULL, type FROM types) a
    LOOP
        CONTINUE WHEN o.result IS NULL;
        BEGIN
            made := evil.shadow(schema, 'operator', o.name, concat_ws(', ', o.l, o.r), o.result,
                                format('SELECT %s OPERATOR(%s.%s) %s', CASE WHEN o.l IS NULL THEN '' ELSE '$1' END, o.home,
                                       o.name, CASE WHEN o.l IS NULL THEN '$1' ELSE '$2' END), lie);
            EXECUTE format('CREATE OPERATOR %s.%s (%s RIGHTARG = %s, FUNCTION = %s)', schema, o.name,
                           'LEFTARG = ' || o.l || ',', o.r, made);
        EXCEPTION WHEN duplicate_function THEN NULL;  -- pgvector's own, in the same schema
        END;
    END LOOP;
END
$$;
