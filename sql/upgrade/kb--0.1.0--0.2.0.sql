-- From 0.1.0 to 0.2.0: attached tables.

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
    UNIQUE (kb_no, relation),
    FOREIGN KEY (kb_no, tenant_id) REFERENCES kb.knowledge_bases (kb_no, tenant_id) ON DELETE CASCADE
);
ALTER SEQUENCE kb.source_no_seq OWNED BY kb.sources.source_no;
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

SELECT pg_catalog.pg_extension_config_dump('kb.sources', '');
SELECT pg_catalog.pg_extension_config_dump('kb.changes', '');
SELECT pg_catalog.pg_extension_config_dump('kb.source_no_seq', '');

ALTER TABLE kb.sources ENABLE ROW LEVEL SECURITY;
ALTER TABLE kb.sources FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_read ON kb.sources FOR SELECT USING (tenant_id = ANY ((SELECT kb.visible_tenants())::text[]));
CREATE POLICY tenant_write ON kb.sources USING (tenant_id = (SELECT kb.current_tenant()))
    WITH CHECK (tenant_id = (SELECT kb.current_tenant()));
GRANT SELECT ON kb.sources TO kb_reader;

CREATE FUNCTION kb.attach_table(
    kb_id text, relation regclass, content text, published_when text DEFAULT NULL, metadata text[] DEFAULT '{}',
    tenant text DEFAULT NULL, title text DEFAULT NULL, uri text DEFAULT NULL, content_type text DEFAULT NULL,
    replicated boolean DEFAULT false, json_fields jsonb DEFAULT NULL
) RETURNS bigint VOLATILE PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'attach_table_wrapper';
CREATE FUNCTION kb.extract_text(value jsonb, fields jsonb DEFAULT NULL) RETURNS text
    STABLE PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'extract_text_wrapper';
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

REVOKE ALL ON FUNCTION kb.attach_table, kb.detach_table, kb.reconcile, kb.query_rows, kb.row_status, kb.extract_text, kb._rows_changed FROM PUBLIC;
GRANT EXECUTE ON FUNCTION kb.query_rows, kb.row_status, kb.extract_text TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.attach_table, kb.detach_table, kb.reconcile, kb._rows_changed TO kb_writer;
COMMENT ON FUNCTION kb.attach_table(text, regclass, text, text, text[], text, text, text, text, boolean, jsonb) IS
    'Makes the rows of a table documents of a knowledge base, now and with every change. content: names of columns ({title, body}), or a template ({{title}}: {{body}}). published_when: a condition on the row; other rows are absent. metadata: columns that become metadata. tenant, title, uri, content_type: columns that say these. replicated: also rows that logical replication brings. json_fields: which values are the text of columns of JSON ({include, exclude}, lists of paths), for rows of other types others ({type_column, types}). external_id is the primary key. Again for an attached table: changes how it is read. Returns the source_no. Needs kb_writer and the table''s owner.';
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

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('kb_install.search_path'), true);
