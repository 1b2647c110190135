-- Objects, bindings and the texts that they retrieve.
\pset format unaligned
\pset tuples_only on
SELECT kb.create_knowledge_base('bnd', 'hash', retrieval => '{"mode": "keyword"}');
SELECT * FROM kb.put_objects('bnd', ARRAY['{"id": "a", "title": "Harbor", "text": "The harbor is deep."}', '{"id": 7, "city": "Seoul", "n": 1}', '{"id": "a", "text": "The harbor is deep.", "title": "Harbor"}']::jsonb[]);
SELECT kb.wait('bnd', 30);
SELECT external_id, content, metadata FROM kb.documents WHERE kb_id = 'bnd' ORDER BY 1;
SELECT * FROM kb.put_objects('bnd', ARRAY['{"id": "a", "title": "Harbor", "text": "The harbor is deep."}']::jsonb[], '{"members": "first"}');
SELECT kb.wait('bnd', 30);
SELECT kb.relevant('bnd', 'harbor'), kb.relevant('bnd', 'Seoul', 1), kb.relevant('bnd', 'nothing');
SELECT try('SELECT kb.put_objects(NULL, NULL)');
SELECT try('SELECT kb.put_objects(''bnd'', NULL)');
SELECT try('SELECT kb.put_objects(''bnd'', ARRAY[NULL]::jsonb[])');
SELECT try('SELECT kb.put_objects(''bnd'', ARRAY[''1'']::jsonb[])');
SELECT try('SELECT kb.put_objects(''bnd'', ARRAY[''{"id": 1}'', ''{"id": "1"}'']::jsonb[])');
SELECT try('SELECT kb.relevant(''bnd'', '''')');
SELECT try('SELECT kb.relevant(''nope'', ''x'')');
SELECT kb.bind('project', 'bnd', top_k => 3, fallback => 'Nothing.', filter => '{"id": "a"}');
SELECT kb.bind('workflow:w', 'bnd', max_tokens => 100, inject_as => 'docs', filter => '{"title": "Harbor"}');
SELECT kb.bind('agent:x', 'gone', fallback => 'Gone.');
SELECT * FROM kb.resolve_bindings('{agent:x,workflow:w,project}');
SELECT binding_id, content, score, token_estimate > 0, metadata - '{chunk_id,rank_score,locator}'::text[] FROM kb.retrieve_context('{project,agent:x}', 'harbor');
SELECT binding_id, content FROM kb.retrieve_context('{project}', 'nothing');
SELECT inject_as, context, tokens > 0, fallback, truncated FROM kb.prompt_context('{project,workflow:w,agent:x}', 'harbor', 'list');
SELECT inject_as, context FROM kb.prompt_context('{project}', 'harbor', 'xml');
SELECT inject_as, context FROM kb.prompt_context('{project}', 'harbor', 'json', 1);
SELECT try('SELECT kb.bind(''project'', ''bnd'')');
SELECT try('SELECT kb.bind(''nowhere'', ''workflow:w/x'', 0)');
SELECT try('SELECT kb.bind(''project'', NULL)');
SELECT try('SELECT kb.bind(''project'', ''x'', replace => NULL)');
SELECT try('SELECT kb.unbind(''project'', NULL)');
SELECT try('SELECT kb.resolve_bindings(''{task:a,task:b}'')');
SELECT try('SELECT kb.retrieve_context(''{project}'', NULL)');
SELECT try('SELECT kb.retrieve_context(''{project}'', '' '')');
SELECT try('SELECT kb.prompt_context(''{project}'', ''x'', ''yaml'')');
SELECT try('SELECT kb.prompt_context(''{project}'', ''x'', max_tokens => 0)');
SELECT kb.unbind('project', 'bnd'), kb.unbind('project', 'bnd'), kb.unbind('workflow:w', 'bnd'), kb.unbind('agent:x', 'gone');
SELECT kb.drop_knowledge_base('bnd');
