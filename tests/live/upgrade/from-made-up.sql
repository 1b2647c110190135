-- Makes 0.0.1.made_up (see to-made-up.sql) the newest version again, as a script of sql/upgrade does it for a
-- released one.
SELECT pg_catalog.set_config('kb_install.search_path', pg_catalog.current_setting('search_path'), true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

ALTER TABLE kb.builds RENAME COLUMN model TO embedder;
ALTER TABLE kb.sources RENAME COLUMN problem TO error;
ALTER TABLE kb.index_recall ADD COLUMN ef_search bigint;
CREATE FUNCTION kb.count_tokens("text" text, "embedder" text DEFAULT NULL) RETURNS integer
    STABLE PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'count_tokens_wrapper';
REVOKE ALL ON FUNCTION kb.count_tokens(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION kb.count_tokens(text, text) TO kb_reader;
COMMENT ON FUNCTION kb.count_tokens(text, text) IS
    'Returns the number of tokens of a text in an embedder''s own tokenizer (by default kb.default_embedder()), without special tokens.';
CREATE INDEX runs_running ON kb.runs (run_no) WHERE state = 'running';
CREATE POLICY tenant_delete ON kb.usage FOR DELETE USING (tenant_id = (SELECT kb.current_tenant()));
COMMENT ON TABLE kb.builds IS 'Complete sets of chunks and vectors of a knowledge base: the live one, and while kb.ingest replaces it, the next one.';
GRANT EXECUTE ON FUNCTION kb.wait(text, double precision) TO kb_reader;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('kb_install.search_path'), true);
