-- Row-level security: a tenant reads its own rows, those of tenant 'shared', and, in a knowledge base that is
-- shared with it, those of the owner; it writes its own. The function calls are in scalar sub-selects, so
-- that they run once per statement and not once per row. Writing has policies of its own, so that reading has
-- one condition, which an index serves. kb.readable_tenants() returns more than a tenant may read, but a set
-- that an index can look up. Vector tables get their policies when they are created
-- (src/vectors/sql/table.rs).

-- Pinned, as in roles.sql.
SELECT pg_catalog.set_config('kb_install.search_path', pg_catalog.current_setting('search_path'), true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['knowledge_bases', 'runs', 'builds', 'documents', 'chunks', 'jobs', 'sources', 'usage',
                             'bm25_segments', 'tenant_roles', 'shares', 'quotas', 'quota_counts', 'metadata_indexes',
                             'eval_sets', 'eval_questions', 'index_recall', 'memory_stores', 'memory_entries', 'bindings',
                             'api_keys'] LOOP
        EXECUTE pg_catalog.format('ALTER TABLE kb.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE pg_catalog.format('ALTER TABLE kb.%I FORCE ROW LEVEL SECURITY', t);
    END LOOP;
    FOREACH t IN ARRAY ARRAY['runs', 'sources', 'usage', 'metadata_indexes', 'eval_sets', 'eval_questions',
                             'index_recall', 'bindings'] LOOP
        EXECUTE pg_catalog.format(
            'CREATE POLICY tenant_read ON kb.%I FOR SELECT USING (tenant_id = ANY ((SELECT kb.visible_tenants())::text[]))', t);
    END LOOP;
    FOREACH t IN ARRAY ARRAY['knowledge_bases', 'builds', 'documents', 'chunks', 'jobs', 'bm25_segments', 'memory_stores',
                             'memory_entries'] LOOP
        EXECUTE pg_catalog.format(
            'CREATE POLICY tenant_read ON kb.%I FOR SELECT USING (
                 tenant_id = ANY ((SELECT kb.readable_tenants())::text[])
                 AND (tenant_id = ANY ((SELECT kb.visible_tenants())::text[])
                      OR (kb_no, tenant_id) IN (SELECT s.kb_no, s.owner_id FROM kb.shares s
                                                WHERE s.tenant_id = (SELECT kb.current_tenant()))))', t);
    END LOOP;
    FOREACH t IN ARRAY ARRAY['knowledge_bases', 'runs', 'builds', 'documents', 'chunks', 'jobs', 'sources', 'usage',
                             'metadata_indexes', 'eval_sets', 'eval_questions', 'index_recall', 'memory_stores', 'memory_entries',
                             'bindings'] LOOP
        EXECUTE pg_catalog.format(
            'CREATE POLICY tenant_insert ON kb.%I FOR INSERT WITH CHECK (tenant_id = (SELECT kb.current_tenant()))', t);
        EXECUTE pg_catalog.format(
            'CREATE POLICY tenant_update ON kb.%I FOR UPDATE USING (tenant_id = (SELECT kb.current_tenant()))', t);
        EXECUTE pg_catalog.format(
            'CREATE POLICY tenant_delete ON kb.%I FOR DELETE USING (tenant_id = (SELECT kb.current_tenant()))', t);
    END LOOP;
END
$$;
-- Both sides of a share see it.
CREATE POLICY tenant_read ON kb.shares FOR SELECT USING (
    tenant_id = (SELECT kb.current_tenant()) OR owner_id = (SELECT kb.current_tenant()));
-- A role that is bound itself sees the bindings to its tenants.
CREATE POLICY tenant_read ON kb.tenant_roles FOR SELECT USING (
    (SELECT kb.bound_tenants() IS NULL) OR tenant_id = ANY ((SELECT kb.bound_tenants())::text[]));
CREATE POLICY tenant_read ON kb.api_keys FOR SELECT USING (
    (SELECT kb.bound_tenants() IS NULL) OR tenant_id = ANY ((SELECT kb.bound_tenants())::text[]));
-- The tenant itself sees its quota, and so do the roles that set it.
CREATE POLICY tenant_read ON kb.quotas FOR SELECT USING (
    tenant_id = (SELECT kb.current_tenant())
    OR (SELECT kb.bound_tenants() IS NULL AND pg_catalog.pg_has_role('kb_admin', 'USAGE')));
CREATE POLICY tenant_read ON kb.quota_counts FOR SELECT USING (
    tenant_id = (SELECT kb.current_tenant())
    OR (SELECT kb.bound_tenants() IS NULL AND pg_catalog.pg_has_role('kb_admin', 'USAGE')));

-- Not even rows of tenant 'shared' are readable by others: a question is visible only to those who asked it,
-- and a conversation only to those who had it.
DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['query_log', 'query_feedback', 'conversations', 'turns', 'summaries',
            'extractions', 'chat_requests'] LOOP
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

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('kb_install.search_path'), true);
