-- From 0.1.0 to 0.2.0: attached tables; roles bound to tenants, knowledge bases shared with others, quotas.

-- Pinned, as in sql/roles.sql.
SELECT pg_catalog.set_config('kb_install.search_path', pg_catalog.current_setting('search_path'), true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

ALTER TABLE kb.documents ADD COLUMN source_no bigint;
CREATE INDEX documents_source_no ON kb.documents (source_no) WHERE source_no IS NOT NULL;
ALTER TABLE kb.jobs ADD COLUMN source_no bigint;

-- Where documents come from, if they are not put: a table, whose triggers write kb.changes.
CREATE SEQUENCE kb.source_no_seq;
CREATE TABLE kb.sources (
    source_no     bigint PRIMARY KEY DEFAULT nextval('kb.source_no_seq'),
    kb_no         bigint NOT NULL,
    tenant_id     text NOT NULL DEFAULT kb.current_tenant(),
    type          text NOT NULL CHECK (type IN ('table')),
    -- After a restore another one: then the table is found by its name.
    relation      oid NOT NULL,
    relation_name text NOT NULL,
    -- The table's owner when it was attached: rows are read with this role's rights, while it is the owner.
    role_name     name NOT NULL,
    key           text[] NOT NULL,
    config        jsonb NOT NULL,
    -- The key up to which rows that were there already are enqueued, {} at first; NULL: all are.
    backfill      text[],
    -- What is wrong with the source as a whole, as the worker last found it.
    error         text,
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    is_partitioned boolean NOT NULL DEFAULT false,
    -- Its partitions that have triggers.
    partitions    oid[] NOT NULL DEFAULT '{}',
    FOREIGN KEY (kb_no, tenant_id) REFERENCES kb.knowledge_bases (kb_no, tenant_id) ON DELETE CASCADE
);
ALTER SEQUENCE kb.source_no_seq OWNED BY kb.sources.source_no;
CREATE INDEX sources_kb_no ON kb.sources (kb_no);
CREATE INDEX sources_backfill ON kb.sources (source_no) WHERE backfill IS NOT NULL;
COMMENT ON TABLE kb.sources IS 'Tables whose rows are documents of a knowledge base. Changed by kb.attach_table and kb.detach_table.';
COMMENT ON COLUMN kb.sources.key IS 'The columns of the primary key; their values are the external_id.';

-- What statements did to rows of sources, written by their triggers and read by the worker. Its rows are of many tenants:
-- no role has any right on it, no policy shows a row of it; the library reads it as the owner.
CREATE TABLE kb.changes (
    source_no  bigint NOT NULL,
    -- In the order of time, about (UUID version 7).
    change_id  uuid NOT NULL,
    -- changed: these rows are to be read again; gone: they are in no answer any more; truncated: so are all.
    change     text NOT NULL CHECK (change IN ('changed', 'gone', 'truncated')),
    -- The tenant of each key; {}: the source's.
    tenants    text[] NOT NULL,
    keys       text[] NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (source_no, change_id)
);
-- Not compressed: a statement of a user waits for what it writes.
ALTER TABLE kb.changes ALTER COLUMN keys SET STORAGE EXTERNAL;
-- What a query must leave out.
CREATE INDEX changes_gone ON kb.changes (source_no) WHERE change <> 'changed';
ALTER TABLE kb.changes ENABLE ROW LEVEL SECURITY;
ALTER TABLE kb.changes FORCE ROW LEVEL SECURITY;
COMMENT ON TABLE kb.changes IS 'Rows of attached tables that were changed since the worker last looked. Nobody reads it but the library.';

CREATE OR REPLACE FUNCTION kb.current_tenant() RETURNS text
    STRICT STABLE PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'current_tenant_wrapper';
CREATE OR REPLACE FUNCTION kb.visible_tenants() RETURNS text[]
    STRICT STABLE PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'visible_tenants_wrapper';
CREATE FUNCTION kb.readable_tenants() RETURNS text[]
    STRICT STABLE PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'readable_tenants_wrapper';
CREATE FUNCTION kb.bound_tenants() RETURNS text[]
    STRICT STABLE PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'bound_tenants_wrapper';
CREATE FUNCTION kb.bind_role(role_name text, tenant text) RETURNS boolean
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'bind_role_wrapper';
CREATE FUNCTION kb.unbind_role(role_name text, tenant text DEFAULT NULL) RETURNS bigint
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'unbind_role_wrapper';
CREATE FUNCTION kb.share(kb_id text, tenant text) RETURNS boolean
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'share_wrapper';
CREATE FUNCTION kb.unshare(kb_id text, tenant text) RETURNS boolean
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'unshare_wrapper';
CREATE FUNCTION kb.set_quota(
    tenant text, bytes bigint DEFAULT NULL, documents bigint DEFAULT NULL, document_bytes bigint DEFAULT NULL,
    knowledge_bases bigint DEFAULT NULL, tokens_per_day bigint DEFAULT NULL
) RETURNS void VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'set_quota_wrapper';
CREATE FUNCTION kb._tables_altered() RETURNS event_trigger LANGUAGE c AS 'MODULE_PATHNAME', '_tables_altered_wrapper';
CREATE FUNCTION kb._watched_changed() RETURNS trigger LANGUAGE c AS 'MODULE_PATHNAME', '_watched_changed_wrapper';

-- Not of every update: the worker notes here how far it is, and each change has all sessions plan anew.
CREATE TRIGGER watched_changed AFTER INSERT OR UPDATE OF is_partitioned OR DELETE OR TRUNCATE ON kb.sources
    FOR EACH STATEMENT EXECUTE FUNCTION kb._watched_changed();
-- Partitions come and go by DDL.
CREATE EVENT TRIGGER kb_tables_altered ON ddl_command_end WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE', 'CREATE SCHEMA')
    EXECUTE FUNCTION kb._tables_altered();
CREATE EVENT TRIGGER kb_tables_dropping ON ddl_command_start WHEN TAG IN ('DROP TABLE')
    EXECUTE FUNCTION kb._tables_altered();
CREATE EVENT TRIGGER kb_tables_dropped ON sql_drop WHEN TAG IN ('DROP TABLE', 'DROP SCHEMA', 'DROP OWNED')
    EXECUTE FUNCTION kb._tables_altered();

-- Which tenants a role may act for; a role that is named nowhere may act for any.
CREATE TABLE kb.tenant_roles (
    role_name name NOT NULL,
    -- Filled in by the trigger; NULL where there is no such role (yet).
    role      oid,
    tenant_id text NOT NULL,
    PRIMARY KEY (role_name, tenant_id)
);
COMMENT ON TABLE kb.tenant_roles IS 'The tenants that roles, and roles that have their rights, are bound to. Changed by kb.bind_role and kb.unbind_role.';
COMMENT ON COLUMN kb.tenant_roles.role IS 'The role''s oid: it stays bound under another name.';
CREATE FUNCTION kb._tenant_role() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS
$$BEGIN
    NEW.role := (SELECT oid FROM pg_roles WHERE rolname = NEW.role_name);
    RETURN NEW;
END$$;
COMMENT ON FUNCTION kb._tenant_role() IS 'Internal: finds the role that a row of kb.tenant_roles names.';
CREATE TRIGGER tenant_role BEFORE INSERT ON kb.tenant_roles FOR EACH ROW EXECUTE FUNCTION kb._tenant_role();
CREATE TRIGGER watched_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON kb.tenant_roles
    FOR EACH STATEMENT EXECUTE FUNCTION kb._watched_changed();

-- Knowledge bases that another tenant may read: the documents of the tenant that owns them.
CREATE TABLE kb.shares (
    tenant_id  text NOT NULL,
    kb_no      bigint NOT NULL,
    owner_id   text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, kb_no),
    FOREIGN KEY (kb_no, owner_id) REFERENCES kb.knowledge_bases (kb_no, tenant_id) ON DELETE CASCADE,
    CHECK (tenant_id <> owner_id)
);
CREATE INDEX shares_kb_no ON kb.shares (kb_no);
COMMENT ON TABLE kb.shares IS 'Knowledge bases that tenants share with others, who read them. Changed by kb.share and kb.unshare.';
COMMENT ON COLUMN kb.shares.tenant_id IS 'The tenant that may read it.';
COMMENT ON COLUMN kb.shares.owner_id IS 'The tenant that it belongs to.';
CREATE TRIGGER watched_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON kb.shares
    FOR EACH STATEMENT EXECUTE FUNCTION kb._watched_changed();

-- What tenants may have. A tenant without a row, and a limit that is NULL, has none. Documents are charged to the tenant that
-- owns their knowledge base.
CREATE TABLE kb.quotas (
    tenant_id       text PRIMARY KEY,
    bytes           bigint CHECK (bytes >= 0),
    documents       bigint CHECK (documents >= 0),
    document_bytes  bigint CHECK (document_bytes >= 0),
    knowledge_bases bigint CHECK (knowledge_bases >= 0),
    tokens_per_day  bigint CHECK (tokens_per_day >= 0),
    -- What older transactions added may be missing in the counts.
    is_settled      boolean NOT NULL DEFAULT false,
    -- Once all transactions that run are younger, what the tenant has is counted once more; NULL: the worker has not seen it.
    settle_after    xid8,
    updated_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX quotas_unsettled ON kb.quotas (tenant_id) WHERE NOT is_settled;
COMMENT ON TABLE kb.quotas IS 'What tenants may have; NULL: as much as they like. Changed by kb.set_quota; kb.quota_status says what they have.';
COMMENT ON COLUMN kb.quotas.bytes IS 'Of all documents of the tenant''s knowledge bases, as they were put.';
COMMENT ON COLUMN kb.quotas.documents IS 'In one knowledge base.';
COMMENT ON COLUMN kb.quotas.document_bytes IS 'Of one document, as it was put.';
COMMENT ON COLUMN kb.quotas.tokens_per_day IS 'Sent to remote endpoints, by the day in UTC.';
CREATE TRIGGER watched_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON kb.quotas
    FOR EACH STATEMENT EXECUTE FUNCTION kb._watched_changed();

-- What tenants with a quota have: the sums of these rows. Who deletes adds a row below zero, and waits for nobody.
CREATE TABLE kb.quota_counts (
    -- For a publication of all tables.
    count_id  uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tenant_id text NOT NULL,
    kb_no     bigint NOT NULL,
    documents bigint NOT NULL,
    bytes     bigint NOT NULL
);
CREATE INDEX quota_counts_tenant_id ON kb.quota_counts (tenant_id, kb_no);
COMMENT ON TABLE kb.quota_counts IS 'Documents and bytes of tenants that have a quota: rows that add up.';
-- Knowledge bases and quotas are looked up by their keys, whatever statistics say when the plan is made.
CREATE FUNCTION kb._documents_deleted() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS
$$BEGIN
    IF EXISTS (SELECT FROM kb.quotas) THEN
        INSERT INTO kb.quota_counts (tenant_id, kb_no, documents, bytes)
        SELECT o.tenant_id, o.kb_no, -o.documents, -o.bytes
        FROM (SELECT g.kb_no, count(*) FILTER (WHERE g.size > 0) AS documents, sum(g.size) AS bytes,
                     (SELECT k.tenant_id FROM kb.knowledge_bases k WHERE k.kb_no = g.kb_no) AS tenant_id
              FROM (SELECT kb_no, coalesce(octet_length(original), octet_length(content), 0) AS size FROM gone) g
              GROUP BY g.kb_no) o
        WHERE (SELECT true FROM kb.quotas q WHERE q.tenant_id = o.tenant_id);
    END IF;
    RETURN NULL;
END$$;
COMMENT ON FUNCTION kb._documents_deleted() IS 'Internal: takes deleted documents off what a tenant with a quota has.';
CREATE TRIGGER documents_deleted AFTER DELETE ON kb.documents REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION kb._documents_deleted();
CREATE INDEX usage_tenant_id ON kb.usage (tenant_id, day);

SELECT pg_catalog.pg_extension_config_dump('kb.sources', '');
SELECT pg_catalog.pg_extension_config_dump('kb.changes', '');
SELECT pg_catalog.pg_extension_config_dump('kb.source_no_seq', '');

ALTER TABLE kb.sources ENABLE ROW LEVEL SECURITY;
ALTER TABLE kb.sources FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_read ON kb.sources FOR SELECT USING (tenant_id = ANY ((SELECT kb.visible_tenants())::text[]));
GRANT SELECT ON kb.sources TO kb_reader;

SELECT pg_catalog.pg_extension_config_dump('kb.tenant_roles', '');
SELECT pg_catalog.pg_extension_config_dump('kb.shares', '');
SELECT pg_catalog.pg_extension_config_dump('kb.quotas', '');
SELECT pg_catalog.pg_extension_config_dump('kb.quota_counts', '');
ALTER TABLE kb.tenant_roles ENABLE ROW LEVEL SECURITY;
ALTER TABLE kb.tenant_roles FORCE ROW LEVEL SECURITY;
ALTER TABLE kb.shares ENABLE ROW LEVEL SECURITY;
ALTER TABLE kb.shares FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_read ON kb.shares FOR SELECT USING (
    tenant_id = (SELECT kb.current_tenant()) OR owner_id = (SELECT kb.current_tenant()));
CREATE POLICY tenant_read ON kb.tenant_roles FOR SELECT USING (
    (SELECT kb.bound_tenants() IS NULL) OR tenant_id = ANY ((SELECT kb.bound_tenants())::text[]));
ALTER TABLE kb.quotas ENABLE ROW LEVEL SECURITY;
ALTER TABLE kb.quotas FORCE ROW LEVEL SECURITY;
ALTER TABLE kb.quota_counts ENABLE ROW LEVEL SECURITY;
ALTER TABLE kb.quota_counts FORCE ROW LEVEL SECURITY;
-- What a tenant may have it knows itself, and who sets it.
CREATE POLICY tenant_read ON kb.quotas FOR SELECT USING (
    tenant_id = (SELECT kb.current_tenant())
    OR (SELECT kb.bound_tenants() IS NULL AND pg_catalog.pg_has_role('kb_admin', 'USAGE')));
CREATE POLICY tenant_read ON kb.quota_counts FOR SELECT USING (
    tenant_id = (SELECT kb.current_tenant())
    OR (SELECT kb.bound_tenants() IS NULL AND pg_catalog.pg_has_role('kb_admin', 'USAGE')));

CREATE VIEW kb.quota_status WITH (security_invoker = true) AS
SELECT q.tenant_id, u.kb_id, u.what, u.used, u.allowed
FROM kb.quotas q
CROSS JOIN LATERAL (
    SELECT NULL::text AS kb_id, 'bytes' AS what, coalesce(sum(c.bytes), 0)::bigint AS used, q.bytes AS allowed
    FROM kb.quota_counts c JOIN kb.knowledge_bases k USING (kb_no) WHERE c.tenant_id = q.tenant_id
    UNION ALL
    SELECT k.id, 'documents', coalesce(sum(c.documents), 0)::bigint, q.documents
    FROM kb.knowledge_bases k LEFT JOIN kb.quota_counts c ON c.kb_no = k.kb_no AND c.tenant_id = q.tenant_id
    WHERE k.tenant_id = q.tenant_id GROUP BY k.kb_no, k.id
    UNION ALL
    SELECT NULL, 'knowledge_bases', count(*), q.knowledge_bases FROM kb.knowledge_bases k WHERE k.tenant_id = q.tenant_id
    UNION ALL
    SELECT NULL, 'tokens_per_day', coalesce(sum(t.tokens), 0)::bigint, q.tokens_per_day FROM kb.usage t
    WHERE t.tenant_id = q.tenant_id AND t.day = (now() AT TIME ZONE 'UTC')::date) u
WHERE u.allowed IS NOT NULL AND q.tenant_id = (SELECT kb.current_tenant());
COMMENT ON VIEW kb.quota_status IS
    'What the session''s tenant has used of its quota: bytes, documents of each knowledge base, knowledge_bases, tokens_per_day (today in UTC).';

GRANT SELECT ON kb.quotas, kb.quota_counts, kb.quota_status TO kb_reader;
GRANT SELECT ON kb.shares TO kb_reader, kb_vectors;
GRANT SELECT ON kb.tenant_roles TO kb_admin;
DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['knowledge_bases', 'builds', 'documents', 'chunks', 'jobs'] LOOP
        EXECUTE pg_catalog.format(
            'ALTER POLICY tenant_read ON kb.%I USING (
                 tenant_id = ANY ((SELECT kb.readable_tenants())::text[])
                 AND (tenant_id = ANY ((SELECT kb.visible_tenants())::text[])
                      OR (kb_no, tenant_id) IN (SELECT s.kb_no, s.owner_id FROM kb.shares s
                                                WHERE s.tenant_id = (SELECT kb.current_tenant()))))', t);
    END LOOP;
    -- Vector tables.
    FOR t IN SELECT DISTINCT p.tablename FROM pg_catalog.pg_policies p
             WHERE p.schemaname = 'kb' AND p.policyname = 'tenant_read'
               AND p.tablename IN (SELECT table_name FROM kb.builds UNION SELECT table_name FROM kb.vector_dbs) LOOP
        EXECUTE pg_catalog.format(
            'ALTER POLICY tenant_read ON kb.%I USING (tenant_id = ANY ((SELECT kb.readable_tenants())::text[]))', t);
    END LOOP;
    -- Writing has policies of its own, so that reading has one condition, which an index serves.
    FOR t IN SELECT p.tablename FROM pg_catalog.pg_policies p
             WHERE p.schemaname = 'kb' AND p.policyname = 'tenant_write' LOOP
        EXECUTE pg_catalog.format('DROP POLICY tenant_write ON kb.%I', t);
    END LOOP;
    FOR t IN SELECT p.tablename FROM pg_catalog.pg_policies p
             WHERE p.schemaname = 'kb' AND p.policyname = 'tenant_read'
               AND p.tablename NOT IN ('shares', 'tenant_roles', 'quotas', 'quota_counts') LOOP
        EXECUTE pg_catalog.format(
            'CREATE POLICY tenant_insert ON kb.%I FOR INSERT WITH CHECK (tenant_id = (SELECT kb.current_tenant()))', t);
        EXECUTE pg_catalog.format(
            'CREATE POLICY tenant_update ON kb.%I FOR UPDATE USING (tenant_id = (SELECT kb.current_tenant()))', t);
        EXECUTE pg_catalog.format(
            'CREATE POLICY tenant_delete ON kb.%I FOR DELETE USING (tenant_id = (SELECT kb.current_tenant()))', t);
    END LOOP;
END
$$;

CREATE FUNCTION kb.attach_table(
    kb_id text, relation regclass, content text, published_when text DEFAULT NULL, metadata text[] DEFAULT '{}',
    tenant text DEFAULT NULL, title text DEFAULT NULL, uri text DEFAULT NULL, content_type text DEFAULT NULL,
    replicated boolean DEFAULT false, json_fields jsonb DEFAULT NULL, adopt text DEFAULT NULL
) RETURNS bigint VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'attach_table_wrapper';
CREATE FUNCTION kb.extract_text(value jsonb, fields jsonb DEFAULT NULL) RETURNS text
    STABLE PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'extract_text_wrapper';
CREATE FUNCTION kb.delete_by_filter(kb_id text, filter jsonb) RETURNS bigint
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'delete_by_filter_wrapper';
CREATE FUNCTION kb._microseconds(text text) RETURNS bigint
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', '_microseconds_wrapper';
CREATE FUNCTION kb.detach_table(kb_id text, relation regclass, keep boolean DEFAULT false)
    RETURNS bigint VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'detach_table_wrapper';
CREATE FUNCTION kb.row_status(relation regclass, key text)
    RETURNS TABLE (kb_id text, status text, since timestamptz)
    STABLE PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'row_status_wrapper';
CREATE FUNCTION kb.reconcile(kb_id text)
    RETURNS TABLE (relation text, rows bigint, missing bigint, changed bigint, orphaned bigint)
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'reconcile_wrapper';
CREATE FUNCTION kb.query_rows(
    kb_id text, query text, top_k integer DEFAULT NULL, min_score double precision DEFAULT NULL, filter jsonb DEFAULT NULL,
    max_tokens integer DEFAULT NULL, mode text DEFAULT 'dense', options jsonb DEFAULT NULL
) RETURNS TABLE (external_id text, key jsonb, "row" jsonb, score double precision, content text)
    STABLE PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'query_rows_wrapper';
CREATE FUNCTION kb._rows_changed() RETURNS trigger LANGUAGE c AS 'MODULE_PATHNAME', '_rows_changed_wrapper';

REVOKE ALL ON FUNCTION kb.delete_by_filter, kb._microseconds FROM PUBLIC;
GRANT EXECUTE ON FUNCTION kb.delete_by_filter TO kb_writer;
GRANT EXECUTE ON FUNCTION kb._microseconds TO kb_reader, kb_vectors;
COMMENT ON FUNCTION kb.delete_by_filter(text, jsonb) IS
    'Deletes the documents that pass a filter, at this commit; how many. A filter that all documents pass is refused.';
COMMENT ON FUNCTION kb._microseconds(text) IS
    'Microseconds since 1970 of a text that is an ISO 8601 timestamp or date (UTC where it says no offset), else NULL. Filters compare by it.';
REVOKE ALL ON FUNCTION kb.attach_table, kb.detach_table, kb.reconcile, kb.query_rows, kb.row_status, kb.extract_text, kb._rows_changed FROM PUBLIC;
GRANT EXECUTE ON FUNCTION kb.query_rows, kb.row_status, kb.extract_text TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.attach_table, kb.detach_table, kb.reconcile, kb._rows_changed TO kb_writer;
COMMENT ON FUNCTION kb.attach_table(text, regclass, text, text, text[], text, text, text, text, boolean, jsonb, text) IS
    'Makes the rows of a table documents of a knowledge base, now and with every change. content: names of columns ({title, body}), or a template ({{title}}: {{body}}). published_when: a condition on the row; other rows are absent. metadata: columns that become metadata. tenant, title, uri, content_type: columns that say these. replicated: also rows that logical replication brings. json_fields: which values are the text of columns of JSON ({include, exclude}, lists of paths), for rows of other types others ({type_column, types}). adopt: a column of vectors that the embedder''s model has made of the rows that are there; a row that becomes one chunk is not embedded again. external_id is the primary key. Again for an attached table: changes how it is read. Returns the source_no. Needs kb_writer and the table''s owner.';
COMMENT ON FUNCTION kb.extract_text(jsonb, jsonb) IS
    'The text of a JSON document: the values at the paths of fields ({include, exclude}), else the first of content, text, description, title, summary, body, name that has text, else every string with the names that lead to it, sorted.';
COMMENT ON FUNCTION kb.detach_table(text, regclass, boolean) IS
    'Lets go of an attached table. Its documents are deleted, or with keep stay as if they had been put; how many.';
COMMENT ON FUNCTION kb.reconcile(text) IS
    'Compares the tables attached to a knowledge base with their documents and mends what differs, as after triggers were disabled: for each table its published rows, and how many had no document (missing), one of another text (changed), and how many documents had no such row (orphaned).';
COMMENT ON FUNCTION kb.query_rows(text, text, integer, double precision, jsonb, integer, text, jsonb) IS
    'As kb.query, with the rows of attached tables as the caller sees them now: their key and themselves as JSON objects. Rows that the caller may not see are left out; of a document that was put both are NULL.';
COMMENT ON FUNCTION kb.row_status(regclass, text) IS
    'What a row of an attached table is in each of its knowledge bases, by its external_id: absent, pending, ready, stale (an older version answers) or failed, and since when.';
COMMENT ON FUNCTION kb._rows_changed() IS
    'Internal: the triggers of attached tables call it.';

REVOKE ALL ON FUNCTION kb.readable_tenants, kb.bound_tenants, kb.bind_role, kb.unbind_role, kb.share, kb.unshare,
    kb.set_quota, kb._tables_altered, kb._watched_changed, kb._tenant_role, kb._documents_deleted FROM PUBLIC;
GRANT EXECUTE ON FUNCTION kb.readable_tenants TO kb_vectors;
GRANT EXECUTE ON FUNCTION kb.readable_tenants, kb.bound_tenants TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.share, kb.unshare TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.bind_role, kb.unbind_role, kb.set_quota TO kb_admin;
COMMENT ON FUNCTION kb.current_tenant() IS
    'The tenant this session acts for: setting kb.tenant, '''' when unset, or the only tenant that its roles are bound to. An error if they are bound to others.';
COMMENT ON FUNCTION kb.visible_tenants() IS
    'The tenants all of whose rows this session may read: its own and ''shared''.';
COMMENT ON FUNCTION kb.readable_tenants() IS
    'The tenants of whom this session may read something: its own, ''shared'', and those who share a knowledge base with it.';
COMMENT ON FUNCTION kb.bound_tenants() IS
    'The tenants that this session may act for (kb.bind_role), sorted; NULL: any.';
COMMENT ON FUNCTION kb.bind_role(text, text) IS
    'Binds a role, and the roles that have its rights, to a tenant: they may act for no other, but those that they are bound to as well. False if it was bound to it. Needs kb_admin, not bound itself.';
COMMENT ON FUNCTION kb.unbind_role(text, text) IS
    'Ends the binding of a role to a tenant (NULL: to all); how many. A role that is bound to none may act for any. Needs kb_admin, not bound itself.';
COMMENT ON FUNCTION kb.share(text, text) IS
    'Lets another tenant read a knowledge base: ask it, and see its documents as far as they are of the tenant that owns it. False if it was shared with that tenant.';
COMMENT ON FUNCTION kb.unshare(text, text) IS
    'Ends the sharing of a knowledge base with a tenant at this commit; false if it was not shared with it.';
COMMENT ON FUNCTION kb.set_quota(text, bigint, bigint, bigint, bigint, bigint) IS
    'Sets what a tenant may have: bytes of all its documents, documents in one knowledge base, bytes of one document, knowledge bases, tokens a day at remote endpoints; NULL: as much as it likes. What it has already stays. Needs kb_admin, not bound.';
COMMENT ON FUNCTION kb._tables_altered() IS
    'Internal: follows partitions of attached tables that come and go.';
COMMENT ON FUNCTION kb._watched_changed() IS
    'Internal: tells all sessions that bindings, shares or quotas have changed.';

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('kb_install.search_path'), true);
