-- Resources and their etags.
\pset format unaligned
\pset tuples_only on
SELECT kb.create_knowledge_base('res', 'hash', metadata => '{"a": null}');
SELECT jsonb_pretty(kb.get_knowledge_base('res') - '{etag,chunking,preprocess,retrieval}'::text[]);
SELECT kb.get_knowledge_base('res') ->> 'etag' ~ '^"[0-9a-f]{16}"$';
SELECT kb.get_knowledge_base('res', kb.get_knowledge_base('res') ->> 'etag') IS NULL;
SELECT kb.get_embedder('hash') - 'etag', kb.default_embedder();
SELECT item ->> 'id' FROM jsonb_array_elements(kb.list_embedders() -> 'items') AS item;
SELECT kb.list_embedders("limit" => 2) -> 'next_cursor';
SELECT kb.list_sources('res'), kb.list_llms(), kb.list_vector_dbs();
SELECT try('SELECT kb.alter_knowledge_base(''res'', description => ''x'', if_match => ''old'')');
SELECT try('SELECT kb.get_knowledge_base(''none'')');
SELECT try('SELECT kb.get_knowledge_base(NULL)');
SELECT try('SELECT kb.get_source(''res'', ''none'')');
SELECT try('SELECT kb.get_embedder(''none'')');
SELECT try('SELECT kb.list_knowledge_bases(0)');
SELECT kb.drop_knowledge_base('res', kb.get_knowledge_base('res') ->> 'etag');
