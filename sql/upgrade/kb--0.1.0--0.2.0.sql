-- From 0.1.0 to 0.2.0: attached tables; roles bound to tenants, knowledge bases shared with others, quotas.

-- Pinned, as in sql/roles.sql.
SELECT pg_catalog.set_config('kb_install.search_path', pg_catalog.current_setting('search_path'), true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

ALTER TABLE kb.documents ADD COLUMN source_no bigint;
ALTER TABLE kb.documents ADD COLUMN answers bytea;
COMMENT ON COLUMN kb.documents.answers IS 'What models said of it while it was cut; NULL where none was asked. Internal.';
-- Texts are compressed by lz4 where the server has it: pglz is two fifths of what a put costs.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_settings s
               WHERE s.name = 'default_toast_compression' AND 'lz4' = ANY (s.enumvals)) THEN
        ALTER TABLE kb.documents ALTER COLUMN original SET COMPRESSION lz4, ALTER COLUMN content SET COMPRESSION lz4;
        ALTER TABLE kb.chunks ALTER COLUMN content SET COMPRESSION lz4;
    END IF;
END
$$;
CREATE INDEX documents_source_no ON kb.documents (source_no) WHERE source_no IS NOT NULL;
-- So that a document is processed without a write to its indexes.
ALTER TABLE kb.documents SET (fillfactor = 50);
DROP INDEX kb.documents_failed;
CREATE INDEX documents_failed ON kb.documents (kb_no) WHERE error IS NOT NULL;
CREATE OR REPLACE VIEW kb.failures WITH (security_invoker = true) AS
SELECT kb_id, tenant_id, external_id, error, sqlstate, attempts, processed_at AS failed_at
FROM kb.documents WHERE status = 'failed' AND error IS NOT NULL;
COMMENT ON COLUMN kb.failures.kb_id IS 'The knowledge base''s id.';
COMMENT ON COLUMN kb.failures.tenant_id IS 'The document''s tenant.';
COMMENT ON COLUMN kb.failures.external_id IS 'The document''s external_id.';
COMMENT ON COLUMN kb.failures.error IS 'Why it could not be processed, and what to do about it.';
COMMENT ON COLUMN kb.failures.sqlstate IS 'The error''s SQLSTATE.';
COMMENT ON COLUMN kb.failures.attempts IS 'How often it was tried before it was given up, without the times that something else ended: a full disk, say.';
COMMENT ON COLUMN kb.failures.failed_at IS 'When it was given up.';
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
COMMENT ON COLUMN kb.sources.source_no IS 'Its number, which kb.attach_table returns.';
COMMENT ON COLUMN kb.sources.kb_no IS 'The number of the knowledge base.';
COMMENT ON COLUMN kb.sources.tenant_id IS 'The knowledge base''s tenant.';
COMMENT ON COLUMN kb.sources.type IS 'What it is; so far always table.';
COMMENT ON COLUMN kb.sources.relation IS 'The table''s oid, as it was when the table was attached or last found.';
COMMENT ON COLUMN kb.sources.relation_name IS 'The table''s name with its schema, quoted, as it was when the table was attached or last found.';
COMMENT ON COLUMN kb.sources.role_name IS 'The table''s owner when it was attached: rows are read with this role''s rights, while it is the owner.';
COMMENT ON COLUMN kb.sources.key IS 'The columns of the primary key; their values are the external_id.';
COMMENT ON COLUMN kb.sources.config IS 'How rows become documents: what kb.attach_table was asked for, with published_when as PostgreSQL prints it.';
COMMENT ON COLUMN kb.sources.backfill IS 'The key up to which rows that were there already are enqueued, {} at first; NULL: all are.';
COMMENT ON COLUMN kb.sources.error IS 'What is wrong with the table as a whole, as the worker last found it; NULL: nothing is.';
COMMENT ON COLUMN kb.sources.created_at IS 'When the table was attached.';
COMMENT ON COLUMN kb.sources.updated_at IS 'When it was last attached again; created_at before that.';
COMMENT ON COLUMN kb.sources.is_partitioned IS 'Whether it is a partitioned table.';
COMMENT ON COLUMN kb.sources.partitions IS 'The oids of its partitions that have triggers; {} where it has none.';

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
    STRICT STABLE PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'current_tenant_wrapper';
CREATE OR REPLACE FUNCTION kb.visible_tenants() RETURNS text[]
    STRICT STABLE PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'visible_tenants_wrapper';
CREATE FUNCTION kb.readable_tenants() RETURNS text[]
    STRICT STABLE PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'readable_tenants_wrapper';
CREATE FUNCTION kb.bound_tenants() RETURNS text[]
    STRICT STABLE PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'bound_tenants_wrapper';
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
COMMENT ON COLUMN kb.quota_status.tenant_id IS 'The session''s tenant.';
COMMENT ON COLUMN kb.quota_status.kb_id IS 'Where what is documents, the knowledge base''s id; NULL in other rows, which are of the tenant as a whole.';
COMMENT ON COLUMN kb.quota_status.what IS 'What is limited and counted: bytes (of all documents, as they were put), documents (of one knowledge base), knowledge_bases, or tokens_per_day (sent to remote endpoints today, in UTC).';
COMMENT ON COLUMN kb.quota_status.used IS 'How many the tenant has, or has spent today.';
COMMENT ON COLUMN kb.quota_status.allowed IS 'How many it may have (kb.set_quota); what has no limit has no row.';

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
    max_tokens integer DEFAULT NULL, mode text DEFAULT NULL, options jsonb DEFAULT NULL
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

-- Modes beside dense.
CREATE OR REPLACE FUNCTION kb.query(
    kb_id text, query text, top_k integer DEFAULT NULL, min_score double precision DEFAULT NULL, filter jsonb DEFAULT NULL,
    max_tokens integer DEFAULT NULL, mode text DEFAULT NULL, options jsonb DEFAULT NULL
) RETURNS TABLE (rank integer, chunk_id uuid, kb_id text, external_id text, title text, content text,
    score double precision, rank_score double precision, token_count integer, metadata jsonb, locator jsonb, stale boolean)
    STABLE PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'query_wrapper';
DO $$
BEGIN
    EXECUTE pg_catalog.format($query_vector$
CREATE OR REPLACE FUNCTION kb.query_vector(
    kb_id text, vector %I.vector, top_k integer DEFAULT NULL, min_score double precision DEFAULT NULL, filter jsonb DEFAULT NULL,
    max_tokens integer DEFAULT NULL, mode text DEFAULT NULL, options jsonb DEFAULT NULL
) RETURNS TABLE (rank integer, chunk_id uuid, kb_id text, external_id text, title text, content text,
    score double precision, rank_score double precision, token_count integer, metadata jsonb, locator jsonb, stale boolean)
    STABLE PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'query_vector_wrapper'$query_vector$,
        (SELECT n.nspname FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
         WHERE e.extname = 'vector'));
END
$$;
COMMENT ON FUNCTION kb.query(text, text, integer, double precision, jsonb, integer, text, jsonb) IS
    'The chunks of a knowledge base that answer a question, best first: at most top_k, each with a score (similarity, larger is nearer; cosine: 0 to 1) of at least min_score, of documents that pass filter; the lowest ranked are dropped until the rest have at most max_tokens. NULL takes the knowledge base''s own setting. mode: dense (by meaning), keyword (by words, with BM25; "quoted phrases" and -exclusions are honoured; no score), hybrid (both, fused). options: settings of retrieval for this call, and explain: locator says the ranks.';
COMMENT ON FUNCTION kb.create_knowledge_base(text, text, text, text, jsonb, jsonb, jsonb, jsonb) IS
    'Makes a knowledge base for the current tenant. Defaults: embedder from kb.default_embedder, a vector table of its own, chunking {strategy recursive, size 800 tokens or what the model reads, overlap 15 %}, preprocess {dedupe true, remove_html true, language english}, retrieval {mode dense, top_k 5, min_score 0, on_error error}. All problems are reported together.';

-- Keyword search: which chunks have which words, in segments that never change (src/bm25). A chunk that comes or goes is
-- noted in bm25_pending until the worker folds those of a build and tenant into a segment; it merges segments into larger ones.
-- Numbers of chunks and words of a segment are those that came less those that went: sums over what a snapshot sees are true.
CREATE SEQUENCE kb.segment_no_seq;
CREATE TABLE kb.bm25_segments (
    segment_no bigint PRIMARY KEY DEFAULT nextval('kb.segment_no_seq'),
    build_no   bigint NOT NULL REFERENCES kb.builds ON DELETE CASCADE,
    kb_no      bigint NOT NULL,
    tenant_id  text NOT NULL,
    -- In the order of time: what a segment says is gone is in those below it.
    age        bigint NOT NULL,
    -- Chunks that it has postings of.
    came       integer NOT NULL,
    -- Chunks that older segments have and that are gone.
    went       integer NOT NULL,
    sum_length bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
ALTER SEQUENCE kb.segment_no_seq OWNED BY kb.bm25_segments.segment_no;
CREATE INDEX bm25_segments_build_no ON kb.bm25_segments (build_no, tenant_id, age);
COMMENT ON TABLE kb.bm25_segments IS 'Segments of keyword search: parts of the index of words, of one tenant''s chunks in one build each. They never change; the worker merges them into larger ones.';
COMMENT ON COLUMN kb.bm25_segments.came IS 'Chunks that it has postings of.';
COMMENT ON COLUMN kb.bm25_segments.went IS 'Chunks that older segments have and that are gone.';
COMMENT ON COLUMN kb.bm25_segments.sum_length IS 'Words of the chunks that came, less those of the chunks that went.';

-- Words and postings, sorted. No role has any right on these three, no policy shows a row of them; the library reads them as
-- the owner, of segments that the caller may see.
CREATE TABLE kb.bm25_terms (
    segment_no bigint NOT NULL REFERENCES kb.bm25_segments ON DELETE CASCADE,
    first_term bytea NOT NULL,
    page_no    integer NOT NULL,
    page       bytea NOT NULL,
    PRIMARY KEY (segment_no, first_term, page_no)
);
-- A page of postings fills a page of the table, and does not compress.
ALTER TABLE kb.bm25_terms ALTER COLUMN page SET STORAGE PLAIN;
COMMENT ON TABLE kb.bm25_terms IS 'Words of segments, with the chunks that have them. Nobody reads it but the library.';

-- The ids of a segment's chunks in the order of their numbers, 256 to a row: those that came and those that went.
CREATE TABLE kb.bm25_chunks (
    segment_no bigint NOT NULL REFERENCES kb.bm25_segments ON DELETE CASCADE,
    is_gone    boolean NOT NULL,
    part       integer NOT NULL,
    chunk_ids  bytea NOT NULL,
    PRIMARY KEY (segment_no, is_gone, part)
);
ALTER TABLE kb.bm25_chunks ALTER COLUMN chunk_ids SET STORAGE PLAIN;
COMMENT ON TABLE kb.bm25_chunks IS 'The chunks of segments. Nobody reads it but the library.';

-- Vectors that no index has yet, of builds that have a table to themselves: rounded to 4 bits and packed (src/model/tail.rs), so that
-- they are compared quickly. What a restore brings is not packed; so neither is dumped.
CREATE TABLE kb.tails (
    build_no bigint PRIMARY KEY REFERENCES kb.builds ON DELETE CASCADE,
    -- All vectors of the build whose number (segment) is at least this are packed.
    first    integer NOT NULL
);
COMMENT ON TABLE kb.tails IS 'Builds whose vectors are packed while no index has them. Nobody reads it but the library.';
CREATE TABLE kb.tail_vectors (
    build_no  bigint NOT NULL REFERENCES kb.tails ON DELETE CASCADE,
    tenant_id text NOT NULL,
    segment   integer NOT NULL,
    packed    bytea NOT NULL
);
-- A block fits a page of the table, and does not compress.
ALTER TABLE kb.tail_vectors ALTER COLUMN packed SET STORAGE PLAIN;
CREATE INDEX tail_vectors_segment ON kb.tail_vectors (build_no, segment);
COMMENT ON TABLE kb.tail_vectors IS 'Vectors that no index has yet, packed. Nobody reads it but the library.';

CREATE SEQUENCE kb.pending_no_seq;
CREATE TABLE kb.bm25_pending (
    pending_no bigint PRIMARY KEY DEFAULT nextval('kb.pending_no_seq'),
    -- Not a foreign key: whoever writes chunks waits for what it costs. The worker deletes rows of builds that are gone.
    build_no   bigint NOT NULL,
    tenant_id  text NOT NULL,
    -- As many as fit a row that is stored as it is, or one that went.
    chunk_ids  uuid[] NOT NULL,
    -- NULL: these chunks came; else one went, and these were its words.
    terms      bytea
);
ALTER SEQUENCE kb.pending_no_seq OWNED BY kb.bm25_pending.pending_no;
CREATE INDEX bm25_pending_build_no ON kb.bm25_pending (build_no, tenant_id, pending_no);
COMMENT ON TABLE kb.bm25_pending IS 'Chunks that came or went since the worker last folded those of their build into a segment. Nobody reads it but the library.';
DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['bm25_terms', 'bm25_chunks', 'bm25_pending', 'tails', 'tail_vectors'] LOOP
        EXECUTE pg_catalog.format('ALTER TABLE kb.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE pg_catalog.format('ALTER TABLE kb.%I FORCE ROW LEVEL SECURITY', t);
    END LOOP;
END
$$;
-- With their builds, chunks go without a row for each.
CREATE FUNCTION kb._chunks_deleted() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS
$$BEGIN
    INSERT INTO kb.bm25_pending (build_no, tenant_id, chunk_ids, terms)
    SELECT g.build_no, g.tenant_id, ARRAY[g.chunk_id], g.terms FROM gone g
    WHERE (SELECT b.state <> 'old' FROM kb.builds b WHERE b.build_no = g.build_no);
    RETURN NULL;
END$$;
COMMENT ON FUNCTION kb._chunks_deleted() IS 'Internal: notes that the words of deleted chunks are gone.';
CREATE TRIGGER chunks_deleted AFTER DELETE ON kb.chunks REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION kb._chunks_deleted();

ALTER TABLE kb.bm25_segments ENABLE ROW LEVEL SECURITY;
ALTER TABLE kb.bm25_segments FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_read ON kb.bm25_segments FOR SELECT USING (
    tenant_id = ANY ((SELECT kb.readable_tenants())::text[])
    AND (tenant_id = ANY ((SELECT kb.visible_tenants())::text[])
         OR (kb_no, tenant_id) IN (SELECT s.kb_no, s.owner_id FROM kb.shares s
                                   WHERE s.tenant_id = (SELECT kb.current_tenant()))));
GRANT SELECT ON kb.bm25_segments TO kb_reader;
SELECT pg_catalog.pg_extension_config_dump('kb.bm25_segments', '');
SELECT pg_catalog.pg_extension_config_dump('kb.bm25_terms', '');
SELECT pg_catalog.pg_extension_config_dump('kb.bm25_chunks', '');
SELECT pg_catalog.pg_extension_config_dump('kb.bm25_pending', '');
SELECT pg_catalog.pg_extension_config_dump('kb.segment_no_seq', '');
SELECT pg_catalog.pg_extension_config_dump('kb.pending_no_seq', '');
CREATE FUNCTION kb._terms(content text, language text) RETURNS bytea
    STRICT STABLE PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', '_terms_wrapper';
COMMENT ON FUNCTION kb._terms(text, text) IS
    'Internal: the words of a text in a text search configuration, as kb.chunks.terms has them.';
REVOKE ALL ON FUNCTION kb._terms(text, text), kb._chunks_deleted() FROM PUBLIC;
-- The words of the chunks that are there; the worker folds them.
ALTER TABLE kb.chunks DROP COLUMN tsv, ADD COLUMN terms bytea, ADD COLUMN context text;
COMMENT ON COLUMN kb.chunks.context IS 'What is embedded before content, and found by its words, too (chunking.context); NULL: nothing. content_hash includes it.';
UPDATE kb.chunks c SET terms = kb._terms(c.content, coalesce(b.preprocess->>'language', 'english'))
FROM kb.builds b WHERE b.build_no = c.build_no;
ALTER TABLE kb.chunks ALTER COLUMN terms SET NOT NULL;
INSERT INTO kb.bm25_pending (build_no, tenant_id, chunk_ids)
SELECT c.build_no, c.tenant_id, array_agg(c.chunk_id ORDER BY c.n)
FROM (SELECT c.build_no, c.tenant_id, c.chunk_id,
          row_number() OVER (PARTITION BY c.build_no, c.tenant_id ORDER BY c.document_id, c.ordinal) - 1 AS n
      FROM kb.chunks c JOIN kb.builds b USING (build_no) WHERE b.state <> 'old') c
GROUP BY c.build_no, c.tenant_id, c.n / 100 ORDER BY c.build_no, c.tenant_id, c.n / 100;
-- Keys of metadata that filters look up in ranges. The indexes themselves are on kb.documents, one for each key and type,
-- whichever knowledge bases want it; the indexer builds and drops them.
CREATE TABLE kb.metadata_indexes (
    kb_no      bigint NOT NULL,
    tenant_id  text NOT NULL DEFAULT kb.current_tenant(),
    key        text NOT NULL,
    type       text NOT NULL CHECK (type IN ('text', 'number', 'timestamp')),
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kb_no, key, type),
    FOREIGN KEY (kb_no, tenant_id) REFERENCES kb.knowledge_bases (kb_no, tenant_id) ON DELETE CASCADE
);
CREATE INDEX metadata_indexes_key ON kb.metadata_indexes (key, type);
COMMENT ON TABLE kb.metadata_indexes IS 'Keys of metadata whose values filters look up in ranges. Changed by kb.index_metadata and kb.unindex_metadata.';
SELECT pg_catalog.pg_extension_config_dump('kb.metadata_indexes', '');
ALTER TABLE kb.metadata_indexes ENABLE ROW LEVEL SECURITY;
ALTER TABLE kb.metadata_indexes FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_read ON kb.metadata_indexes FOR SELECT USING (tenant_id = ANY ((SELECT kb.visible_tenants())::text[]));
CREATE POLICY tenant_insert ON kb.metadata_indexes FOR INSERT WITH CHECK (tenant_id = (SELECT kb.current_tenant()));
CREATE POLICY tenant_update ON kb.metadata_indexes FOR UPDATE USING (tenant_id = (SELECT kb.current_tenant()));
CREATE POLICY tenant_delete ON kb.metadata_indexes FOR DELETE USING (tenant_id = (SELECT kb.current_tenant()));
CREATE FUNCTION kb.index_metadata(kb_id text, key text, type text) RETURNS boolean
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'index_metadata_wrapper';
CREATE FUNCTION kb.unindex_metadata(kb_id text, key text, type text DEFAULT NULL) RETURNS bigint
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'unindex_metadata_wrapper';
REVOKE ALL ON FUNCTION kb.index_metadata, kb.unindex_metadata FROM PUBLIC;
GRANT SELECT ON kb.metadata_indexes TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.index_metadata(text, text, text), kb.unindex_metadata(text, text, text) TO kb_writer;
COMMENT ON FUNCTION kb.index_metadata(text, text, text) IS
    'Has an index built on a key of metadata, of the values of type text, number or timestamp: filters of the knowledge base look them up in ranges (gt, gte, lt, lte). False if it is indexed already. Built beside writes, soon after the commit.';
COMMENT ON FUNCTION kb.unindex_metadata(text, text, text) IS
    'Ends the index on a key of metadata (type NULL: of every type); how many there were. It is dropped when no knowledge base wants it any more.';

-- Measuring.
ALTER TABLE kb.builds ADD COLUMN ef_search bigint;
ALTER TABLE kb.builds ADD COLUMN is_keyed boolean NOT NULL DEFAULT true;
CREATE INDEX builds_unkeyed ON kb.builds (build_no) WHERE NOT is_keyed;
-- Questions of users with what ought to be in their answers, for kb.evaluate and kb.tune. They belong to the knowledge base's
-- tenant.
CREATE SEQUENCE kb.eval_set_no_seq;
CREATE TABLE kb.eval_sets (
    eval_set_no bigint PRIMARY KEY DEFAULT nextval('kb.eval_set_no_seq'),
    kb_no       bigint NOT NULL,
    tenant_id   text NOT NULL DEFAULT kb.current_tenant(),
    name        text NOT NULL CHECK (name <> ''),
    created_at  timestamptz NOT NULL DEFAULT now(),
    UNIQUE (kb_no, name),
    UNIQUE (eval_set_no, tenant_id),
    FOREIGN KEY (kb_no, tenant_id) REFERENCES kb.knowledge_bases (kb_no, tenant_id) ON DELETE CASCADE
);
ALTER SEQUENCE kb.eval_set_no_seq OWNED BY kb.eval_sets.eval_set_no;
COMMENT ON TABLE kb.eval_sets IS 'Evaluation sets: questions to measure a knowledge base by. Changed by kb.create_eval_set, kb.load_eval and kb.drop_eval_set.';
CREATE TABLE kb.eval_questions (
    eval_set_no bigint NOT NULL,
    question_id text NOT NULL CHECK (question_id <> ''),
    tenant_id   text NOT NULL DEFAULT kb.current_tenant(),
    question    text NOT NULL,
    relevant    jsonb NOT NULL,
    filter      jsonb,
    PRIMARY KEY (eval_set_no, question_id),
    FOREIGN KEY (eval_set_no, tenant_id) REFERENCES kb.eval_sets (eval_set_no, tenant_id) ON DELETE CASCADE
);
COMMENT ON TABLE kb.eval_questions IS 'The questions of evaluation sets. Changed by kb.put_eval_question, kb.delete_eval_question and kb.load_eval.';
COMMENT ON COLUMN kb.eval_questions.relevant IS 'What is judged: objects of external_id and grade (from 1 on it is relevant), with start and end where a part of the text is.';

CREATE TABLE kb.index_recall (
    kb_no       bigint PRIMARY KEY,
    tenant_id   text NOT NULL DEFAULT kb.current_tenant(),
    build_no    bigint NOT NULL,
    measured_at timestamptz NOT NULL,
    recall      double precision NOT NULL,
    sample      bigint NOT NULL,
    -- NULL: there was no index.
    ef_search   bigint,
    FOREIGN KEY (kb_no, tenant_id) REFERENCES kb.knowledge_bases (kb_no, tenant_id) ON DELETE CASCADE
);
COMMENT ON TABLE kb.index_recall IS 'How much of what an exact search finds the index of each knowledge base found, when kb.measure_recall last looked.';

SELECT pg_catalog.pg_extension_config_dump('kb.eval_sets', '');
SELECT pg_catalog.pg_extension_config_dump('kb.eval_questions', '');
SELECT pg_catalog.pg_extension_config_dump('kb.index_recall', '');
SELECT pg_catalog.pg_extension_config_dump('kb.eval_set_no_seq', '');
DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['eval_sets', 'eval_questions', 'index_recall'] LOOP
        EXECUTE pg_catalog.format('ALTER TABLE kb.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE pg_catalog.format('ALTER TABLE kb.%I FORCE ROW LEVEL SECURITY', t);
        EXECUTE pg_catalog.format(
            'CREATE POLICY tenant_read ON kb.%I FOR SELECT USING (tenant_id = ANY ((SELECT kb.visible_tenants())::text[]))', t);
        EXECUTE pg_catalog.format(
            'CREATE POLICY tenant_insert ON kb.%I FOR INSERT WITH CHECK (tenant_id = (SELECT kb.current_tenant()))', t);
        EXECUTE pg_catalog.format(
            'CREATE POLICY tenant_update ON kb.%I FOR UPDATE USING (tenant_id = (SELECT kb.current_tenant()))', t);
        EXECUTE pg_catalog.format(
            'CREATE POLICY tenant_delete ON kb.%I FOR DELETE USING (tenant_id = (SELECT kb.current_tenant()))', t);
    END LOOP;
END
$$;
CREATE FUNCTION kb.create_eval_set(kb_id text, eval_set text) RETURNS void
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'create_eval_set_wrapper';
CREATE FUNCTION kb.drop_eval_set(kb_id text, eval_set text) RETURNS void
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'drop_eval_set_wrapper';
CREATE FUNCTION kb.put_eval_question(
    kb_id text, eval_set text, question_id text, question text, relevant jsonb, filter jsonb DEFAULT NULL
) RETURNS void VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'put_eval_question_wrapper';
CREATE FUNCTION kb.delete_eval_question(kb_id text, eval_set text, question_id text) RETURNS boolean
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'delete_eval_question_wrapper';
CREATE FUNCTION kb.load_eval(kb_id text, eval_set text, queries text, qrels text) RETURNS bigint
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'load_eval_wrapper';
CREATE FUNCTION kb.evaluate(kb_id text, eval_set text, option_sets jsonb[] DEFAULT NULL)
    RETURNS TABLE (options jsonb, k integer, questions bigint, recall double precision, "precision" double precision,
        mrr double precision, ndcg double precision, hit_rate double precision, ann_recall double precision,
        p50_ms double precision, p95_ms double precision, unanswered bigint)
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'evaluate_wrapper';
CREATE FUNCTION kb.tune(kb_id text, eval_set text, apply boolean DEFAULT false)
    RETURNS TABLE (options jsonb, k integer, questions bigint, recall double precision, "precision" double precision,
        mrr double precision, ndcg double precision, hit_rate double precision, p50_ms double precision,
        p95_ms double precision, gain double precision, gain_error double precision, present boolean, proposed boolean)
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'tune_wrapper';
CREATE FUNCTION kb.measure_recall(kb_id text, sample integer DEFAULT 100, source text DEFAULT 'chunks')
    RETURNS TABLE (recall double precision, sample bigint, ef_search integer)
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'measure_recall_wrapper';
REVOKE ALL ON FUNCTION kb.create_eval_set, kb.drop_eval_set, kb.put_eval_question, kb.delete_eval_question, kb.load_eval,
    kb.evaluate, kb.tune, kb.measure_recall FROM PUBLIC;
GRANT SELECT ON kb.eval_sets, kb.eval_questions, kb.index_recall TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.evaluate(text, text, jsonb[]) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.create_eval_set(text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.drop_eval_set(text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.put_eval_question(text, text, text, text, jsonb, jsonb) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.delete_eval_question(text, text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.load_eval(text, text, text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.tune(text, text, boolean) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.measure_recall(text, integer, text) TO kb_writer;
COMMENT ON FUNCTION kb.create_eval_set(text, text) IS
    'Makes an evaluation set, without questions, of a knowledge base.';
COMMENT ON FUNCTION kb.drop_eval_set(text, text) IS
    'Drops an evaluation set with its questions.';
COMMENT ON FUNCTION kb.put_eval_question(text, text, text, text, jsonb, jsonb) IS
    'Adds a question to an evaluation set, or replaces the one of that id. relevant: an array of external_ids, or of objects {external_id, grade, start, end}; grade is 1 where it is left out, and relevant from 1 on; start (from 0) and end (exclusive) are characters of the document''s text. filter: as of kb.query.';
COMMENT ON FUNCTION kb.delete_eval_question(text, text, text) IS
    'Deletes a question of an evaluation set; false if there is none of that id.';
COMMENT ON FUNCTION kb.load_eval(text, text, text, text) IS
    'Puts a data set in BEIR''s form into an evaluation set, which is made if there is none: the contents of queries.jsonl (_id, text) and of qrels.tsv (query-id, corpus-id, score). Queries without judgements are left out; how many questions were put.';
COMMENT ON FUNCTION kb.evaluate(text, text, jsonb[]) IS
    'Asks the questions of an evaluation set under each of some options (as of kb.query, and k, 10 where it is left out; NULL: the knowledge base''s own settings) and measures the answers as trec_eval does: means of recall, precision, ndcg and hit_rate at k, and of mrr; ann_recall: what the index finds of what an exact search finds; p50_ms and p95_ms: how long a question takes, without its embedding; unanswered: questions that got no row.';
COMMENT ON FUNCTION kb.tune(text, text, boolean) IS
    'Measures the present settings of a knowledge base, modes dense and keyword, and hybrid with several weights, by an evaluation set, and proposes one by nDCG at 10, if the gain is no chance (cross-validation). With apply, what is proposed becomes the knowledge base''s retrieval.';
COMMENT ON FUNCTION kb.measure_recall(text, integer, text) IS
    'Compares the index of a knowledge base with exact search by the vectors of sample chunks, without themselves, or with source log by sample questions of the session''s tenant in kb.query_log, which are embedded anew: recall, how many were compared, and the ef_search used (NULL: there is no index, every search is exact). Keeps the result in kb.index_recall for kb.health. Where ef_search is auto, chooses the least one that finds 0.97.';

-- Questions of knowledge bases whose retrieval says log, and what was said to their answers. Both belong to the tenant that
-- asked, which need not be the knowledge base's. The worker writes the log; what was said may come before it, so it refers to
-- the knowledge base only.
CREATE TABLE kb.query_log (
    query_id    uuid PRIMARY KEY,
    kb_no       bigint NOT NULL REFERENCES kb.knowledge_bases (kb_no) ON DELETE CASCADE,
    tenant_id   text NOT NULL,
    asked_at    timestamptz NOT NULL,
    query       text NOT NULL,
    mode        text NOT NULL,
    filter      jsonb,
    top_k       integer NOT NULL,
    row_count   integer NOT NULL,
    score       double precision,
    chunk_ids   uuid[] NOT NULL,
    duration_ms double precision NOT NULL
);
CREATE INDEX query_log_kb_no ON kb.query_log (kb_no, asked_at);
CREATE INDEX query_log_asked_at ON kb.query_log (asked_at);
COMMENT ON TABLE kb.query_log IS 'Questions of knowledge bases whose retrieval says log, with what they got. Written by the worker, deleted after kb.query_log_days.';
COMMENT ON COLUMN kb.query_log.tenant_id IS 'The tenant that asked.';
COMMENT ON COLUMN kb.query_log.query IS 'The first 1000 characters of the question.';
COMMENT ON COLUMN kb.query_log.filter IS 'NULL: there was none. In place of one of over 4000 bytes a text that says so.';
COMMENT ON COLUMN kb.query_log.row_count IS 'Rows of the answer; 0: nothing was found.';
COMMENT ON COLUMN kb.query_log.score IS 'The similarity of the first row; NULL: there is none, or no vectors were compared.';
COMMENT ON COLUMN kb.query_log.chunk_ids IS 'The first 100 rows of the answer, in their order.';
COMMENT ON COLUMN kb.query_log.duration_ms IS 'How long the answer took.';
CREATE TABLE kb.query_feedback (
    query_id  uuid NOT NULL,
    chunk_id  uuid NOT NULL,
    kb_no     bigint NOT NULL REFERENCES kb.knowledge_bases (kb_no) ON DELETE CASCADE,
    tenant_id text NOT NULL,
    relevant  boolean NOT NULL,
    given_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (query_id, chunk_id)
);
CREATE INDEX query_feedback_kb_no ON kb.query_feedback (kb_no);
CREATE INDEX query_feedback_given_at ON kb.query_feedback (given_at);
COMMENT ON TABLE kb.query_feedback IS 'Whether rows of answers were what logged questions wanted. Changed by kb.feedback.';
COMMENT ON COLUMN kb.query_feedback.tenant_id IS 'The tenant that asked.';
SELECT pg_catalog.pg_extension_config_dump('kb.query_log', '');
SELECT pg_catalog.pg_extension_config_dump('kb.query_feedback', '');
-- Not even of tenant 'shared': what somebody asks is for those who asked.
DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['query_log', 'query_feedback'] LOOP
        EXECUTE pg_catalog.format('ALTER TABLE kb.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE pg_catalog.format('ALTER TABLE kb.%I FORCE ROW LEVEL SECURITY', t);
        EXECUTE pg_catalog.format(
            'CREATE POLICY tenant_read ON kb.%I FOR SELECT USING (tenant_id = (SELECT kb.current_tenant()))', t);
        EXECUTE pg_catalog.format(
            'CREATE POLICY tenant_insert ON kb.%I FOR INSERT WITH CHECK (tenant_id = (SELECT kb.current_tenant()))', t);
        EXECUTE pg_catalog.format(
            'CREATE POLICY tenant_update ON kb.%I FOR UPDATE USING (tenant_id = (SELECT kb.current_tenant()))', t);
        EXECUTE pg_catalog.format(
            'CREATE POLICY tenant_delete ON kb.%I FOR DELETE USING (tenant_id = (SELECT kb.current_tenant()))', t);
    END LOOP;
END
$$;
CREATE FUNCTION kb.feedback(query_id uuid, chunk_id uuid, relevant boolean) RETURNS void
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'feedback_wrapper';
REVOKE ALL ON FUNCTION kb.feedback FROM PUBLIC;
-- The query log.
GRANT SELECT ON kb.query_log, kb.query_feedback TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.feedback(uuid, uuid, boolean) TO kb_reader;
COMMENT ON FUNCTION kb.feedback(uuid, uuid, boolean) IS
    'Says whether a chunk of the answer to a logged question (query_id in the locator of its rows) was relevant; the last word counts, and NULL takes it back. Only for questions of the session''s tenant. Kept in kb.query_feedback.';

-- Rerankers and chat models: how each is reached, like an embedder.
CREATE TABLE kb.llms (
    id          text PRIMARY KEY CHECK (id <> ''),
    provider    text NOT NULL,
    model       text NOT NULL,
    base_url    text,
    secret      text,
    -- Scheme, host and port that the secret may be sent to; NULL: to none until it is given again.
    secret_host text,
    config      jsonb NOT NULL DEFAULT '{}',
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE kb.llms IS 'Chat models. Changed by kb.create_llm, kb.alter_llm, kb.drop_llm.';
COMMENT ON COLUMN kb.llms.secret IS 'A reference to a key (env:NAME, file:NAME, kb:NAME), never the key.';
CREATE TABLE kb.rerankers (
    id          text PRIMARY KEY CHECK (id <> ''),
    provider    text NOT NULL,
    -- '' where the provider has only one, or asks a chat model.
    model       text NOT NULL,
    base_url    text,
    secret      text,
    secret_host text,
    config      jsonb NOT NULL DEFAULT '{}',
    -- The chat model that it asks.
    llm         text GENERATED ALWAYS AS (config ->> 'llm') STORED REFERENCES kb.llms,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE kb.rerankers IS 'Models that score how well each text answers a question. Changed by kb.create_reranker, kb.alter_reranker, kb.drop_reranker.';
COMMENT ON COLUMN kb.rerankers.secret IS 'A reference to a key (env:NAME, file:NAME, kb:NAME), never the key.';
SELECT pg_catalog.pg_extension_config_dump('kb.llms', '');
SELECT pg_catalog.pg_extension_config_dump('kb.rerankers', '');
ALTER TABLE kb.usage DROP CONSTRAINT usage_capability_check,
    ADD CONSTRAINT usage_capability_check CHECK (capability IN ('embed', 'rerank', 'chat'));
COMMENT ON COLUMN kb.usage.endpoint IS 'The id of an embedder (capability embed), of a reranker (rerank) or of a chat model (chat).';
CREATE FUNCTION kb.create_reranker(id text, provider text, model text DEFAULT NULL, base_url text DEFAULT NULL, secret text DEFAULT NULL, config jsonb DEFAULT NULL) RETURNS void
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'create_reranker_wrapper';
CREATE FUNCTION kb.alter_reranker(id text, model text DEFAULT NULL, base_url text DEFAULT NULL, secret text DEFAULT NULL, config jsonb DEFAULT NULL) RETURNS void
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'alter_reranker_wrapper';
CREATE FUNCTION kb.drop_reranker(id text) RETURNS void
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'drop_reranker_wrapper';
CREATE FUNCTION kb.check_reranker(id text) RETURNS TABLE (ok boolean, latency_ms double precision, problem text)
    VOLATILE PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'check_reranker_wrapper';
CREATE FUNCTION kb.create_llm(id text, provider text, model text DEFAULT NULL, base_url text DEFAULT NULL, secret text DEFAULT NULL, config jsonb DEFAULT NULL) RETURNS void
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'create_llm_wrapper';
CREATE FUNCTION kb.alter_llm(id text, model text DEFAULT NULL, base_url text DEFAULT NULL, secret text DEFAULT NULL, config jsonb DEFAULT NULL) RETURNS void
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'alter_llm_wrapper';
CREATE FUNCTION kb.drop_llm(id text) RETURNS void
    VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'drop_llm_wrapper';
CREATE FUNCTION kb.check_llm(id text) RETURNS TABLE (ok boolean, latency_ms double precision, problem text)
    VOLATILE PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'check_llm_wrapper';
REVOKE ALL ON FUNCTION kb.create_reranker, kb.alter_reranker, kb.drop_reranker, kb.check_reranker, kb.create_llm, kb.alter_llm,
    kb.drop_llm, kb.check_llm FROM PUBLIC;
GRANT EXECUTE ON FUNCTION kb.check_reranker(text) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.check_llm(text) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.create_reranker(text, text, text, text, text, jsonb) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.alter_reranker(text, text, text, text, jsonb) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.drop_reranker(text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.create_llm(text, text, text, text, text, jsonb) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.alter_llm(text, text, text, text, jsonb) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.drop_llm(text) TO kb_admin;
GRANT SELECT ON kb.rerankers, kb.llms TO kb_reader;
COMMENT ON FUNCTION kb.create_reranker(text, text, text, text, text, jsonb) IS
    'Adds a reranker: provider (cohere, jina, voyage, tei, llm or local), model (for local a directory under kb.model_dir with a BERT cross-encoder), base_url, secret (a reference: env:NAME, file:NAME or kb:NAME, never a key), config (max_chars, batch_size, limits, retries, prices; for llm also llm, the id of a chat model, and scoring, batch or single). Errors list every problem. Needs kb_admin.';
COMMENT ON FUNCTION kb.alter_reranker(text, text, text, text, jsonb) IS
    'Changes a reranker; NULL leaves a part as it is. A secret stays bound to the host that it was given for. Needs kb_admin.';
COMMENT ON FUNCTION kb.drop_reranker(text) IS
    'Drops a reranker that no knowledge base uses. Needs kb_admin.';
COMMENT ON FUNCTION kb.check_reranker(text) IS
    'Has a reranker score two texts: whether it works, how long it took in ms, and what is wrong.';
COMMENT ON FUNCTION kb.create_llm(text, text, text, text, text, jsonb) IS
    'Adds a chat model: provider (openai, or whatever speaks its protocol by base_url; ollama), model, base_url, secret (a reference, never a key), config (temperature, max_output_tokens, limits, retries, prices). Errors list every problem. Needs kb_admin.';
COMMENT ON FUNCTION kb.alter_llm(text, text, text, text, jsonb) IS
    'Changes a chat model; NULL leaves a part as it is. A secret stays bound to the host that it was given for. Needs kb_admin.';
COMMENT ON FUNCTION kb.drop_llm(text) IS
    'Drops a chat model that no reranker and no knowledge base uses. Needs kb_admin.';
COMMENT ON FUNCTION kb.check_llm(text) IS
    'Asks a chat model for a word: whether it works, how long it took in ms, and what is wrong.';

-- Several knowledge bases at once; passages for a prompt; quotes in an answer.
CREATE FUNCTION kb.query(
    kb_ids text[], query text, top_k integer DEFAULT NULL, min_score double precision DEFAULT NULL, filter jsonb DEFAULT NULL,
    max_tokens integer DEFAULT NULL, mode text DEFAULT NULL, options jsonb DEFAULT NULL
) RETURNS TABLE (rank integer, chunk_id uuid, kb_id text, external_id text, title text, content text, score double precision,
    rank_score double precision, token_count integer, metadata jsonb, locator jsonb, stale boolean)
    STABLE PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'query_several_wrapper';
CREATE FUNCTION kb.context(
    kb_id text, query text, max_tokens integer DEFAULT NULL, format text DEFAULT 'markdown', top_k integer DEFAULT NULL,
    min_score double precision DEFAULT NULL, filter jsonb DEFAULT NULL, mode text DEFAULT NULL, options jsonb DEFAULT NULL
) RETURNS text STABLE PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'context_wrapper';
CREATE FUNCTION kb.annotate(answer text, chunk_ids uuid[]) RETURNS jsonb
    STABLE PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'annotate_wrapper';
REVOKE ALL ON FUNCTION kb.query(text[], text, integer, double precision, jsonb, integer, text, jsonb), kb.context, kb.annotate FROM PUBLIC;
GRANT EXECUTE ON FUNCTION kb.query(text[], text, integer, double precision, jsonb, integer, text, jsonb), kb.context, kb.annotate TO kb_reader;
COMMENT ON FUNCTION kb.query(text[], text, integer, double precision, jsonb, integer, text, jsonb) IS
    'Asks several knowledge bases at once: each as kb.query does, then their rows by their ranks, equal texts once. kb_id says where a row is from; scores of different knowledge bases are not comparable.';
COMMENT ON FUNCTION kb.context(text, text, integer, text, integer, double precision, jsonb, text, jsonb) IS
    'The answer of kb.query as one text for a prompt: numbered blocks with title, uri, headings and characters, chunks that meet joined, at most max_tokens with all that is around them. format: markdown, xml or json.';
COMMENT ON FUNCTION kb.annotate(text, uuid[]) IS
    'The spans of an answer that quote these chunks, as an array of file_citation annotations: index, start_index, end_index (characters), file_id (external_id), filename (title), chunk_id, quote. Chunks that the caller may not read are passed over.';
CREATE FUNCTION kb.explain(
    kb_id text, query text, top_k integer DEFAULT NULL, min_score double precision DEFAULT NULL, filter jsonb DEFAULT NULL,
    max_tokens integer DEFAULT NULL, mode text DEFAULT NULL, options jsonb DEFAULT NULL, external_id text DEFAULT NULL,
    chunk_id uuid DEFAULT NULL
) RETURNS jsonb STABLE PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'explain_wrapper';
REVOKE ALL ON FUNCTION kb.explain FROM PUBLIC;
GRANT EXECUTE ON FUNCTION kb.explain TO kb_reader;
COMMENT ON FUNCTION kb.explain(text, text, integer, double precision, jsonb, integer, text, jsonb, text, uuid) IS
    'How kb.query answers a question: settings, scans, candidates of each leg and stage, what was left out and why, milliseconds of each step; of external_id or chunk_id, why it is not in the answer. What the caller may not read is as if absent.';

-- Vectors in segments, each with an HNSW index of its own.
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT DISTINCT t.relname FROM pg_class t
        WHERE t.relnamespace = 'kb'::regnamespace AND t.relkind = 'r'
          AND (EXISTS (SELECT FROM kb.builds b WHERE b.table_name = t.relname::text)
               OR EXISTS (SELECT FROM kb.vector_dbs v WHERE v.table_name = t.relname::text))
    LOOP
        EXECUTE format('ALTER TABLE kb.%I ADD COLUMN segment integer NOT NULL DEFAULT 0', name);
        EXECUTE format('CREATE INDEX ON kb.%I (segment)', name);
    END LOOP;
END $$;
-- What is there has number 0.
INSERT INTO kb.tails (build_no, first)
    SELECT build_no, 1 FROM kb.builds WHERE owns_table AND state <> 'old' AND type = 'pgvector';
CREATE FUNCTION kb._index_state(build_no bigint) RETURNS bigint[]
    STABLE PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', '_index_state_wrapper';
REVOKE ALL ON FUNCTION kb._index_state FROM PUBLIC;
GRANT EXECUTE ON FUNCTION kb._index_state(bigint) TO kb_reader;
COMMENT ON FUNCTION kb._index_state(bigint) IS
    'Internal: how many segments of a build''s vector table have an index, and how many of its vectors have none.';
CREATE FUNCTION kb._index_progress(build_no bigint) RETURNS jsonb
    STABLE PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', '_index_progress_wrapper';
REVOKE ALL ON FUNCTION kb._index_progress FROM PUBLIC;
GRANT EXECUTE ON FUNCTION kb._index_progress(bigint) TO kb_reader;
COMMENT ON FUNCTION kb._index_progress(bigint) IS
    'Internal: the index that is being built on a build''s vector table, if the caller may see the build and no other knowledge base uses the table.';
CREATE OR REPLACE VIEW kb.status WITH (security_invoker = true) AS
SELECT k.id AS kb_id,
       k.tenant_id,
       d.documents, d.ready, d.pending, d.failed,
       coalesce(c.chunks, 0) AS chunks,
       coalesce(c.vectors, 0) AS vectors,
       coalesce(c.index_state[1] > 0, false) AS indexed,
       round(r.rate::numeric, 2) AS rate,
       CASE WHEN d.pending = 0 THEN interval '0'
            WHEN r.rate > 0 THEN make_interval(secs => ceil(d.pending / r.rate)) END AS eta,
       coalesce(c.index_state[1], 0) AS segments,
       coalesce(c.index_state[2], 0) AS unindexed,
       c.building
FROM kb.knowledge_bases k
CROSS JOIN LATERAL (
    SELECT count(*) AS documents,
           count(*) FILTER (WHERE status = 'ready') AS ready,
           count(*) FILTER (WHERE status = 'pending') AS pending,
           count(*) FILTER (WHERE status = 'failed') AS failed,
           count(*) FILTER (WHERE processed_at > clock_timestamp() - interval '60 s') AS recent,
           min(processed_at) FILTER (WHERE processed_at > clock_timestamp() - interval '60 s') AS since
    FROM kb.documents WHERE kb_no = k.kb_no) d
CROSS JOIN LATERAL (
    SELECT d.recent / greatest(extract(epoch FROM clock_timestamp() - d.since), 1) AS rate) r
LEFT JOIN LATERAL (
    SELECT (SELECT count(*) FROM kb.chunks WHERE build_no = b.build_no) AS chunks,
           kb._vector_count(b.build_no) AS vectors,
           kb._index_state(b.build_no) AS index_state,
           -- Most of the time nothing is built, which one look tells for all rows.
           CASE WHEN EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.datname = current_database())
                THEN kb._index_progress(b.build_no) END AS building
    FROM kb.builds b WHERE b.kb_no = k.kb_no AND b.state = 'live' OFFSET 0) c ON true;
COMMENT ON VIEW kb.status IS
    'Per knowledge base: documents by state, chunks, vectors, whether an HNSW index is built (indexed), documents per second over the last minute (rate), the time left at that rate (eta; NULL when nothing moved), and how many segments the index has and how many vectors none (segments, unindexed), and how far the index is that is being built now (building: what, phase, done; NULL when none is).';
COMMENT ON COLUMN kb.status.kb_id IS 'The knowledge base''s id.';
COMMENT ON COLUMN kb.status.tenant_id IS 'The tenant that owns the knowledge base.';
COMMENT ON COLUMN kb.status.documents IS 'Its documents, as far as the session may read them.';
COMMENT ON COLUMN kb.status.ready IS 'Documents that are processed.';
COMMENT ON COLUMN kb.status.pending IS 'Documents that wait for the worker, or that it works on.';
COMMENT ON COLUMN kb.status.failed IS 'Documents that could not be processed: rows of kb.failures.';
COMMENT ON COLUMN kb.status.chunks IS 'Chunks of the live build.';
COMMENT ON COLUMN kb.status.vectors IS 'Vectors of the live build; 0 where its table is gone or cannot be read.';
COMMENT ON COLUMN kb.status.indexed IS 'Whether an HNSW index is built on any of the vectors.';
COMMENT ON COLUMN kb.status.rate IS 'Documents per second that became ready or failed over the last minute, or since the first of them; 0 when none did.';
COMMENT ON COLUMN kb.status.eta IS 'Time left for the pending documents at that rate; 0 when none is pending, NULL when some are and none was processed in the last minute.';
COMMENT ON COLUMN kb.status.segments IS 'Parts of the vector table that have an HNSW index of their own.';
COMMENT ON COLUMN kb.status.unindexed IS 'Vectors of the live build that no index has; a question compares all of them.';
COMMENT ON COLUMN kb.status.building IS 'The index that is being built now: what (segment, of vectors that have none, or merge, in place of segments), phase (as in pg_stat_progress_create_index), done (the part that is in it, from 0 to 1; null where that is not known). NULL: none is, or other knowledge bases use the table, too.';
COMMENT ON FUNCTION kb.put_document(text, text, bytea, jsonb, text, text, text) IS
    'Puts a document given as bytes, which must be UTF-8, under an external_id: added, updated or skipped (unchanged). Content type is taken from content_type, else the extension of external_id or uri, else the text. It is searchable once the worker has processed it; see kb.wait. The argument is called bytes, so that callers by name (PostgREST) can tell this function from the one that takes text.';
COMMENT ON FUNCTION kb.health() IS
    'The state of kb: pgvector, preload, gateway, providers, documents, failures, sources, tables, recall, worker, models; what is wrong and what to do.';
-- Pairs of words are hashed in another way; the next kb.ingest of a knowledge base makes its vectors anew.
UPDATE kb.embedders SET fingerprint = kb._fingerprint(provider, model, dimension, config) WHERE provider = 'hash';

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('kb_install.search_path'), true);
