-- Keys of metadata that are indexed, and filters that look them up.
\pset format unaligned
\pset tuples_only on
SELECT kb.create_knowledge_base('mdx', 'hash', chunking => '{"strategy": "none"}');
SELECT count(*) FROM kb.put_documents('mdx', ARRAY(
    SELECT jsonb_build_object('external_id', 'd' || i, 'content', 'The harbor of ' || i, 'metadata',
        jsonb_build_object('n', i, 'day', '2024-01-0' || i, 'name', chr(96 + i))) FROM generate_series(1, 9) i));
SELECT kb.wait('mdx', 30);
SELECT kb.index_metadata('mdx', 'n', 'number'), kb.index_metadata('mdx', 'n', 'number'), kb.index_metadata('mdx', 'day', 'timestamp');
SELECT kb.index_metadata('mdx', '$$name', 'text'), kb.index_metadata('mdx', 'name', 'text');
SELECT key, type FROM kb.metadata_indexes ORDER BY key COLLATE "C";
CALL until($$SELECT count(*) = 4 FROM pg_index WHERE indrelid = 'kb.documents'::regclass AND indisvalid
    AND indexrelid::regclass::text ~ '^kb\.documents_(text|number|timestamp)_'$$);
SET enable_seqscan = off;
SELECT string_agg(external_id, ' ' ORDER BY external_id) FROM kb.query('mdx', 'harbor', 20, min_score => -1, filter =>
    '{"type": "and", "filters": [{"type": "gt", "key": "n", "value": 2}, {"type": "lte", "key": "n", "value": 5.5}]}');
SELECT string_agg(external_id, ' ' ORDER BY external_id) FROM kb.query('mdx', 'harbor', 20, min_score => -1, filter =>
    '{"type": "gte", "key": "day", "value": "2024-01-08"}');
SELECT string_agg(external_id, ' ' ORDER BY external_id) FROM kb.query('mdx', 'harbor', 20, min_score => -1, filter =>
    '{"type": "lt", "key": "name", "value": "c"}');
RESET enable_seqscan;
-- What is refused.
SELECT try($$SELECT kb.index_metadata('mdx', 'n', 'boolean')$$);
SELECT try($$SELECT kb.index_metadata('mdx', '$title', 'text')$$);
SELECT try($$SELECT kb.index_metadata('mdx', NULL, 'text')$$);
SELECT try($$SELECT kb.index_metadata('no such', 'n', 'text')$$);
SELECT try($$SELECT kb.index_metadata('mdx', repeat('x', 201), 'text')$$);
SELECT kb.unindex_metadata('mdx', 'n', 'text'), kb.unindex_metadata('mdx', 'n'), kb.unindex_metadata('mdx', 'never');
SELECT kb.drop_knowledge_base('mdx');
SELECT count(*) FROM kb.metadata_indexes;
CALL until($$SELECT count(*) = 0 FROM pg_index WHERE indrelid = 'kb.documents'::regclass
    AND indexrelid::regclass::text ~ '^kb\.documents_(text|number|timestamp)_'$$);
