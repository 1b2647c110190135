-- kb.http and API keys.
\pset format unaligned
\pset tuples_only on
CREATE FUNCTION ask(method text, path text, query text DEFAULT '', body text DEFAULT '', headers jsonb DEFAULT '{}') RETURNS text LANGUAGE sql AS
$$SELECT status || ' ' || convert_from(body, 'UTF8') FROM kb.http(method, path, query, headers, convert_to(body, 'UTF8'))$$;
SELECT left(ask('PUT', '/api/v0/knowledge-bases/web', '', '{"embedder": "hash", "description": "One"}'), 70);
SELECT ask('PUT', '/api/v0/knowledge-bases/web', '', '{}');
SELECT ask('PUT', '/api/v0/knowledge-bases/web', '', '{}', '{"if-match": "\"old\""}') ~ '^412 .*KB412';
SELECT left(ask('PUT', '/api/v0/knowledge-bases/web', '', '{"description": "Two"}', '{"if-match": "*"}'), 60);
SELECT ask('PUT', '/api/v0/knowledge-bases/none', '', '{"embedder": "nope", "chunking": {"size": -1}}');
SELECT ask('PUT', '/api/v0/knowledge-bases/web', '', '{"id": "other"}', '{"if-match": "*"}');
SELECT ask('PUT', '/api/v0/knowledge-bases/web', '', '{"metadata": {"n": 12345678901234567890123}}', '{"if-match": "*"}');
SELECT status, headers ->> 'etag' = (kb.get_knowledge_base('web') ->> 'etag'), body FROM
    kb.http('GET', '/api/v0/knowledge-bases/web', '', jsonb_build_object('If-None-Match', kb.get_knowledge_base('web') ->> 'etag'));
SELECT kb.put_document('web', 'd', 'Thirty days off.', metadata => '{"year": 2026}');
SELECT kb.wait('web', 30);
SELECT (convert_from(body, 'UTF8')::jsonb #> '{data,matches,0}') - '{id,score}'::text[] FROM
    kb.http('POST', '/api/v0/knowledge-bases/web/query', '', '{}', '{"query": "days off", "filters": {"year": 2026}, "top_k": 1}');
SELECT ask('POST', '/api/v0/knowledge-bases/web/query', '', '{"question": "days off"}');
SELECT ask('GET', '/api/search/semantic');
SELECT (convert_from(body, 'UTF8')::jsonb #> '{results,0}') - 'score' FROM kb.http('GET', '/api/search/semantic', 'query=days+off&knowledge_base=web');
SELECT ask('POST', '/api/v0/knowledge-bases/web/ingest', '', '{"strategy": "sideways"}');
SELECT left(ask('POST', '/api/v0/knowledge-bases/web/ingest'), 40);
SELECT ask('GET', '/nowhere'), ask('PATCH', '/api/v0/knowledge-bases/web'), ask('GET', 'x');
SELECT status, body FROM kb.http('HEAD', '/openapi.json');
SELECT kb.openapi() ->> 'openapi';
SELECT try('SELECT kb.http(NULL, ''/'')'), try('SELECT kb.http(''GET'', ''/'', headers => ''[]'')');
-- API keys.
CREATE ROLE kbt_site IN ROLE kb_reader;
SELECT try('SELECT kb.create_api_key('''')');
SELECT try('SELECT kb.create_api_key(''k'', ''nobody at all'')');
SELECT try('SELECT kb.create_api_key(''k'', ''pg_monitor'')');
SELECT try('SELECT kb.create_api_key(''k'', ''kbt_site'', scopes => ''{fly}'')');
SELECT try('SELECT kb.create_api_key(''k'', ''kbt_site'', requests_per_minute => 0)');
SELECT kb.create_api_key('site', 'kbt_site', 'acme', '{search}', 'infinity', 60) AS key \gset
SELECT name, role_name, tenant_id, scopes, requests_per_minute, expires_at, last_used_at FROM kb.api_keys;
BEGIN;
SELECT requests_per_minute FROM kb.assume_api_key(:'key');
SELECT current_user, kb.current_tenant(), current_setting('kb.scopes');
SELECT status FROM kb.http('GET', '/api/v0/knowledge-bases');
SELECT status, convert_from(body, 'UTF8') FROM kb.http('GET', '/api/search/semantic', 'query=x');
COMMIT;
SELECT current_setting('kb.scopes') = '', last_used_at IS NOT NULL FROM kb.api_keys;
SELECT try(format('SELECT kb.assume_api_key(%L)', 'kb_000000000000_' || repeat('0', 64)));
SELECT kb.drop_api_key(key_id), kb.drop_api_key(key_id) FROM kb.api_keys;
SELECT try(format('SELECT kb.assume_api_key(%L)', :'key'));
SELECT status FROM kb.http('DELETE', '/api/v0/knowledge-bases/web');
DROP FUNCTION ask;
DROP ROLE kbt_site;
