-- Row-level security: a tenant reads its own rows and those of tenant 'shared', and writes its own. The
-- function calls are in scalar sub-selects so that they run once per statement, not per row.
-- Vector tables get the same policies when they are made (src/store/vector_store/table.rs).

-- Pinned, as in roles.sql.
SELECT pg_catalog.set_config('kb_install.search_path', pg_catalog.current_setting('search_path'), true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['knowledge_bases', 'runs', 'builds', 'documents', 'chunks', 'jobs', 'sources', 'usage'] LOOP
        EXECUTE pg_catalog.format('ALTER TABLE kb.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE pg_catalog.format('ALTER TABLE kb.%I FORCE ROW LEVEL SECURITY', t);
        EXECUTE pg_catalog.format(
            'CREATE POLICY tenant_read ON kb.%I FOR SELECT USING (tenant_id = ANY ((SELECT kb.visible_tenants())::text[]))', t);
        EXECUTE pg_catalog.format(
            'CREATE POLICY tenant_write ON kb.%I USING (tenant_id = (SELECT kb.current_tenant())) WITH CHECK (tenant_id = (SELECT kb.current_tenant()))', t);
    END LOOP;
END
$$;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('kb_install.search_path'), true);
