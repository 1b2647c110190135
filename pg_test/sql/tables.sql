-- Attached tables: what is stored, what they give, and how misuse is told.
\pset format unaligned
\pset tuples_only on
CREATE TABLE tab_articles (id integer, lang text, title text, body text, status text, PRIMARY KEY (id, lang));
SELECT kb.create_knowledge_base('tab', 'hash');
SELECT kb.attach_table('tab', 'tab_articles', '{title, body}', 'status = ''published''', '{lang}', title => 'title') > 0;
SELECT type, relation_name, role_name = current_user, key, config FROM kb.sources;
INSERT INTO tab_articles VALUES (1, 'en', 'Leave', 'Thirty days.', 'published'), (1, 'de', 'Urlaub', 'Dreißig Tage.', 'published'),
    (2, 'en', 'Draft', 'Nobody reads it.', 'draft'), (3, 'en', NULL, '  ', 'published');
SELECT kb.wait('tab', 30);
SELECT external_id, title, content, metadata FROM kb.documents WHERE kb_id = 'tab' ORDER BY external_id COLLATE "C";
SELECT external_id, key, row ->> 'status', score IS NOT NULL, content FROM kb.query_rows('tab', 'days of leave', 5) ORDER BY external_id COLLATE "C";
SELECT relation, rows, missing, changed, orphaned FROM kb.reconcile('tab');
SELECT r.* FROM unnest('{1/en,2/en,3/en,9/en,nothing}'::text[]) AS k, LATERAL (SELECT k, status, since IS NOT NULL FROM kb.row_status('tab_articles', k)) AS r;
SELECT kb.wait('tab', 30);
-- What waits is not waited for within its own transaction.
BEGIN;
UPDATE tab_articles SET body = 'Other' WHERE id = 1;
SELECT try('SELECT kb.wait(''tab'', 1)');
ROLLBACK;
-- NULL arguments.
SELECT try('SELECT kb.attach_table(NULL, ''tab_articles'', ''body'')');
SELECT try('SELECT kb.attach_table(''tab'', NULL, ''body'')');
SELECT try('SELECT kb.attach_table(''tab'', ''tab_articles'', NULL)');
SELECT try('SELECT kb.attach_table(''tab'', ''tab_articles'', ''body'', metadata => NULL)');
SELECT try('SELECT kb.attach_table(''tab'', ''tab_articles'', ''body'', metadata => ''{NULL}'')');
SELECT try('SELECT kb.attach_table(''tab'', ''tab_articles'', ''body'', replicated => NULL)');
SELECT try('SELECT kb.detach_table(NULL, ''tab_articles'')');
SELECT try('SELECT kb.detach_table(''tab'', NULL)');
SELECT try('SELECT kb.detach_table(''tab'', ''tab_articles'', NULL)');
SELECT try('SELECT * FROM kb.reconcile(NULL)');
SELECT try('SELECT * FROM kb.row_status(NULL, ''1'')');
SELECT try('SELECT * FROM kb.row_status(''tab_articles'', NULL)');
SELECT try('SELECT * FROM kb.query_rows(''tab'', NULL)');
-- Others.
SELECT try('SELECT kb.attach_table(''nope'', ''tab_articles'', ''body'')');
SELECT try('SELECT kb.attach_table(''tab'', 0, ''body'')');
SELECT try('SELECT kb.attach_table(''tab'', ''tab_articles'', ''{body, nope}'', metadata => ''{none}'')');
SELECT try('SELECT kb.attach_table(''tab'', ''tab_articles'', ''{}'')');
SELECT try('SELECT kb.attach_table(''tab'', ''tab_articles'', ''{{body'')');
SELECT try('SELECT kb.attach_table(''tab'', ''tab_articles'', ''{body'')');
SELECT try('SELECT kb.attach_table(''tab'', ''tab_articles'', ''body'', ''now() > ''''2026-01-01'''''')');
SELECT try('SELECT kb.attach_table(''tab'', ''tab_articles'', ''body'', ''title'')');
SELECT try('SELECT kb.put_document(''tab'', ''1/en'', ''By hand'')');
SELECT try('SELECT kb.delete_document(''tab'', ''1/en'')');
SELECT try('SELECT kb.detach_table(''tab'', ''pg_class'')');
SET kb.tenant = 'another';
SELECT try('SELECT kb.attach_table(''tab'', ''tab_articles'', ''body'')');
SELECT count(*) FROM kb.row_status('tab_articles', '1/en');
RESET kb.tenant;
-- JSON: what is text of it.
SELECT kb.extract_text('{"b": "two", "a": {"x": "one", "n": 5}, "z": null}');
SELECT kb.extract_text('{"title": "Test Title", "description": "Test Description", "content": "Test Content"}'), kb.extract_text('{"text": "t", "content": "c"}', '{"members": "first"}');
SELECT kb.extract_text('{"cityName": "Seoul", "country": "South Korea", "population": 9.7, "info": "Technology hub"}');
SELECT kb.extract_text('{"name": "n", "body": "b", "content": " "}'), kb.extract_text(NULL) IS NULL, kb.extract_text('5') = '';
SELECT kb.extract_text('{"a": [1, {"b": "deep"}], "c": 1e400}', '{"include": ["$..b", "$.a[0]", "$[''c'']"]}') = E'deep\n\n1\n\n1' || repeat('0', 400);
SELECT try('SELECT kb.extract_text(''{}'', ''{"include": ["a", "$[?(@.b)]"], "only": 1}'')');
SELECT try('SELECT kb.extract_text((repeat(''['', 101) || repeat('']'', 101))::jsonb)');
SELECT try('SELECT kb.extract_text(''[]'', ''[]'')');
SELECT try('SELECT kb.extract_text(''{}'', ''{"members": "some"}'')');
CREATE TABLE tab_items (id integer PRIMARY KEY, schema text, data jsonb, old json);
INSERT INTO tab_items VALUES (1, 'post', '{"body": "The body", "slug": "s"}', '{"text": "Old"}'), (2, 'page', '{"slug": "p"}', NULL),
    (3, NULL, '[]', 'null');
SELECT kb.attach_table('tab', 'tab_items', '{data, old}', json_fields => '{"exclude": ["$.slug"], "members": "first", "type_column": "schema", "types": {"post": {"include": ["$.slug", "$.body"]}}}') > 0;
SELECT kb.wait('tab', 30);
SELECT external_id, content FROM kb.documents WHERE kb_id = 'tab' AND external_id !~ '/' ORDER BY 1;
UPDATE tab_items SET schema = 'other' WHERE id = 1;
UPDATE tab_items SET data = '{"title": "Now it has one"}' WHERE id = 3;
SELECT kb.wait('tab', 30);
SELECT external_id, content FROM kb.documents WHERE kb_id = 'tab' AND external_id !~ '/' ORDER BY 1;
SELECT try('SELECT kb.attach_table(''tab'', ''tab_articles'', ''body'', json_fields => ''{}'')');
SELECT try('SELECT kb.attach_table(''tab'', ''tab_items'', ''data'', json_fields => ''{"types": {"a": {"include": [1]}}, "type_column": "nope"}'')');
DROP TABLE tab_items;
SELECT kb.detach_table('tab', relation) FROM kb.sources WHERE relation_name = 'public.tab_items';
SELECT kb.detach_table('tab', 'tab_articles');
SELECT count(*) FROM kb.documents WHERE kb_id = 'tab';
SELECT kb.drop_knowledge_base('tab');
DROP TABLE tab_articles;
