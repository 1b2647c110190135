-- Varied answers, surroundings, kb.context, kb.annotate, several knowledge bases.
\pset format unaligned
\pset tuples_only on
SELECT kb.create_knowledge_base('ctx', 'hash', chunking => '{"size": 12, "overlap": 0}', retrieval => '{"per_document": 2, "neighbors": 1}');
SELECT retrieval->'per_document', retrieval->'neighbors', retrieval ? 'section', retrieval ? 'mmr' FROM kb.knowledge_bases WHERE id = 'ctx';
SELECT kb.put_document('ctx', 'ships', E'Ships leave the harbor at six.\n\nTrains leave the station at seven.\n\nBuses leave the market at eight.', title => 'Departures', uri => 'https://example.org/departures');
SELECT kb.put_document('ctx', 'cars', 'Cars leave the garage whenever their drivers like.');
SELECT kb.wait('ctx', 30);

-- Neighbours join; the locator says what is in the row.
SELECT external_id, content, locator->'start_char', locator->'end_char', jsonb_array_length(locator->'chunk_ids')
FROM kb.query('ctx', 'ships leave the harbor', 1);
SELECT content FROM kb.query('ctx', 'ships leave the harbor', 1, options => '{"neighbors": 0}');
SELECT count(*), count(DISTINCT external_id) FROM kb.query('ctx', 'leave', 5, options => '{"neighbors": 0, "per_document": 1}');
SELECT count(*) FROM kb.query('ctx', 'leave', 5, options => '{"neighbors": 0, "mmr": {"lambda": 0.4}, "collapse": 0.8}');

-- One text.
SELECT context FROM kb.context('ctx', 'ships leave the harbor', top_k => 1);
SELECT context FROM kb.context('ctx', 'ships leave the harbor', 200, 'xml', 1);
SELECT context, tokens, truncated FROM kb.context('ctx', 'ships leave the harbor', 200, 'json', 1);
SELECT cardinality(chunk_ids), blocks->0->'chunk_ids' = to_jsonb(chunk_ids), (blocks->0) - '{chunk_ids,score,rank_score}'::text[],
    (blocks->0->>'score')::float8 > 0.3 FROM kb.context('ctx', 'ships leave the harbor', top_k => 1);
-- A short header, then the beginning of the best block, then nothing.
SELECT context, tokens, truncated FROM kb.context('ctx', 'ships leave the harbor', 30, top_k => 1);
SELECT context, tokens, truncated FROM kb.context('ctx', 'ships leave the harbor', 20, top_k => 1);
SELECT context, tokens, truncated FROM unnest('{markdown,xml,json}'::text[]) f, kb.context('ctx', 'ships', 1, f);
SELECT * FROM kb.context('ctx', 'ships', format => 'html');
SELECT * FROM kb.context('ctx', 'ships', format => NULL);

-- Quotes.
SELECT a - 'chunk_id' FROM jsonb_array_elements(kb.annotate('I read that TRAINS leave the  station at seven, and cars leave the garage whenever drivers like.',
    (SELECT array_agg(c.chunk_id ORDER BY c.content) FROM kb.chunks c JOIN kb.documents d USING (document_id) WHERE d.kb_id = 'ctx'))) a;
SELECT kb.annotate('Nothing of it.', '{}'), kb.annotate('', '{00000000-0000-0000-0000-000000000000}');
SELECT kb.annotate(NULL, '{}');
SELECT kb.annotate('a', ARRAY[NULL]::uuid[]);

-- Several knowledge bases.
SELECT kb.create_knowledge_base('ctx2', 'hash');
SELECT kb.put_document('ctx2', 'garage', 'Cars leave the garage whenever their drivers like.');
SELECT kb.wait('ctx2', 30);
SELECT rank, kb_id, external_id, round(rank_score::numeric, 4), locator->'also_in'->0->>'kb_id'
FROM kb.query(ARRAY['ctx', 'ctx2'], 'cars leave the garage', 2, options => '{"neighbors": 0}');
SELECT count(*) FROM kb.query('{ctx,ctx2}'::text[], 'cars leave the garage', 1);
SELECT * FROM kb.query('{}'::text[], 'cars');
SELECT * FROM kb.query(ARRAY['ctx', NULL], 'cars');
SELECT rank, kb_id, external_id FROM kb.query(ARRAY['ctx2', 'ctx'], 'ships leave the harbor', 2, options => '{"neighbors": 0}', weights => '{1, 0.01}');
SELECT * FROM kb.query(ARRAY['ctx', 'ctx2'], 'cars', weights => '{1}');
SELECT * FROM kb.query(ARRAY['ctx', 'ctx2'], 'cars', weights => '{1,-1}');
SELECT b->>'kb_id', b->>'external_id' FROM kb.context('{ctx,ctx2}'::text[], 'ships leave the harbor', top_k => 2) c, jsonb_array_elements(c.blocks) b;
SELECT kb_id FROM kb.query('ctx', 'cars', 1);

SELECT * FROM kb.query('ctx', 'cars', options => '{"mmr": {"lamda": 1}}');
SELECT kb.create_knowledge_base('ctx3', 'hash', retrieval => '{"collapse": 2, "neighbors": 1.5, "section": 1, "per_document": "x"}');
SELECT kb.drop_knowledge_base('ctx'), kb.drop_knowledge_base('ctx2');
