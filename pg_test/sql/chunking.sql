-- kb.chunk, and the chunking of documents.
\pset format unaligned
\pset tuples_only on
SET kb.default_embedder = 'hash';
CREATE TEMP TABLE texts (id text, body text);
INSERT INTO texts VALUES
('prose', E'The first paragraph says one thing. It says it twice.\n\nThe second paragraph is about ünïcödé: naïve café, 漢字, 🦀🦀 and more.\n\nA third one ends it. It has some more words than the others, so that it must be cut when the size is small enough.'),
('markdown', E'Before.\n\n# Leave\n\nIntro to leave.\n\n## Annual\n\nThirty days a year, more with age.\n\n## Sick\n\n- tell us\n- rest\n\n# Travel\n\n```sql\n# no heading\nSELECT 1;\n```\n\nTravel by train.'),
('spaces', E'  \n\n one   two \t three \n\n\n'),
('long', repeat('abcdefghij', 50)),
('many', (SELECT string_agg('Sentence number ' || i || ' is here.', ' ') FROM generate_series(1, 200) i));

-- Each chunk is exactly its slice, none is over size, none is blank; ordinals count from 0.
SELECT t.id, c.chunking, count(*) > 0 AS chunks, bool_and(k.content = substr(t.body, k.start_char + 1, k.end_char - k.start_char)) AS exact,
       bool_and(k.ordinal = k.n - 1) AS in_order, bool_and(btrim(k.content, E' \n\t') <> '') AS not_blank,
       bool_and(CASE WHEN c.chunking->>'strategy' = 'none' THEN true
                     WHEN c.chunking->>'unit' = 'characters' THEN length(k.content) <= (c.chunking->>'size')::int
                     ELSE k.token_count <= (c.chunking->>'size')::int END) AS fits
FROM texts t, (VALUES (1, '{"strategy": "recursive", "size": 12, "overlap": 0}'::jsonb), (2, '{"strategy": "recursive", "size": 12, "overlap": 5}'),
     (3, '{"strategy": "markdown", "size": 12, "overlap": 0}'), (4, '{"strategy": "fixed", "size": 7, "overlap": 2}'),
     (5, '{"strategy": "fixed", "size": 10, "overlap": 3, "unit": "characters"}'), (6, '{"strategy": "none"}'),
     (7, '{"strategy": "recursive", "size": 40, "overlap": 0, "unit": "characters"}'),
     (8, '{"strategy": "recursive", "size": 20, "overlap": 4, "tokenizer": "cl100k_base"}')) c (n, chunking),
     LATERAL kb.chunk(t.body, c.chunking) WITH ORDINALITY AS k (ordinal, content, token_count, start_char, end_char, headings, n)
GROUP BY t.id, c.n, c.chunking ORDER BY t.id, c.n;
-- Nothing that prints is lost.
SELECT t.id, s.strategy, regexp_replace(t.body, '\s', '', 'g') = regexp_replace((SELECT string_agg(content, '' ORDER BY ordinal)
    FROM kb.chunk(t.body, jsonb_build_object('strategy', s.strategy, 'size', 12, 'overlap', 0))), '\s', '', 'g') AS whole
FROM texts t, (VALUES ('recursive'), ('markdown'), ('fixed'), ('none')) s (strategy) ORDER BY 1, 2;
-- Overlap: chunks begin before their predecessor ends.
SELECT bool_or(start_char < before) AS overlaps FROM (
    SELECT start_char, lag(end_char) OVER (ORDER BY ordinal) AS before
    FROM kb.chunk((SELECT body FROM texts WHERE id = 'many'), '{"size": 30, "overlap": 10}')) s;
SELECT bool_and(start_char >= coalesce(before, 0)) AS apart FROM (
    SELECT start_char, lag(end_char) OVER (ORDER BY ordinal) AS before
    FROM kb.chunk((SELECT body FROM texts WHERE id = 'many'), '{"size": 30, "overlap": 0}')) s;

-- What chunks look like.
SELECT ordinal, content, token_count, start_char, end_char, headings
FROM texts t, kb.chunk(body, '{"size": 25, "overlap": 0}') WHERE id = 'prose' ORDER BY 1;
SELECT ordinal, replace(content, E'\n', '|'), headings FROM texts t, kb.chunk(body, '{"strategy": "markdown", "size": 14, "overlap": 0}', content_type => 'text/markdown') WHERE id = 'markdown' ORDER BY 1;
SELECT ordinal, content, start_char, end_char FROM kb.chunk('one two three four five', '{"strategy": "fixed", "size": 3, "overlap": 1}') ORDER BY 1;
SELECT ordinal, content FROM kb.chunk('🦀é漢字ab', '{"strategy": "fixed", "unit": "characters", "size": 2, "overlap": 0}') ORDER BY 1;
SELECT ordinal, content, token_count FROM kb.chunk('unbelievable tokenisation', '{"strategy": "fixed", "size": 2, "overlap": 0}', 'minilm') ORDER BY 1;
SELECT token_count FROM kb.chunk('hello world, hello moon', '{"tokenizer": "gpt-4o"}');
-- token_count is what kb.count_tokens says.
SELECT e.id, bool_and(c.token_count = kb.count_tokens(c.content, e.id))
FROM (VALUES ('hash'), ('minilm'), ('static')) e (id), texts t, kb.chunk(t.body, '{"size": 20}', e.id) c GROUP BY 1 ORDER BY 1;
-- Defaults: what the model reads, at most 800.
SELECT max(token_count) BETWEEN 200 AND 254, min(token_count) > 0 FROM kb.chunk(repeat('Word after word it goes. ', 400), embedder => 'minilm');
-- HTML is extracted first.
SELECT content, headings FROM kb.chunk('<h1>A</h1><p>b &amp; c</p><script>x</script>', content_type => 'text/html');
-- Offsets are those of the text that was given, whatever ends its lines; content has \n.
SELECT count(*) > 2, bool_and(content = regexp_replace(substr(t, start_char + 1, end_char - start_char), E'\r\n?', E'\n', 'g')),
    bool_or(content LIKE E'%\n%') FROM (SELECT E'\uFEFFOne two.\r\n\r\nThree four.\rFive six\r\nseven.\r\nEight nine ten eleven.' AS t) AS given,
    LATERAL kb.chunk(t, '{"size": 8, "overlap": 0}');
-- Empty text: no chunks. The seeds' name for recursive is known.
SELECT count(*) FROM kb.chunk('') a FULL JOIN kb.chunk(E' \n ') b ON true;
SELECT count(*) FROM kb.chunk('x', '{"strategy": "recursive_text_splitter"}');

-- Errors.
SELECT try($$SELECT kb.chunk('x', '{"size": 0}')$$);
SELECT try($$SELECT kb.chunk('x', '{"size": 10, "overlap": 10}')$$);
SELECT try($$SELECT kb.chunk('x', '{"strategy": "x", "sise": 1, "unit": "bytes", "tokenizer": "y", "overlap": -1}')$$);
SELECT try($$SELECT kb.chunk('x', '{"size": 255}', 'minilm')$$);
SELECT try($$SELECT kb.chunk('x', '[]')$$);
SELECT try($$SELECT kb.chunk('x', '{}', 'no_such')$$);
SELECT try($$SELECT kb.chunk('x', '{}', content_type => 'application/pdf')$$);

-- What a text may become is limited for every caller.
SELECT count(*) FROM kb.chunk(repeat('word ', 1000), '{"size": 10, "overlap": 5}');
SELECT try($$SELECT kb.chunk(repeat('word ', 1000), '{"size": 10, "overlap": 6}')$$);
SET kb.max_chunks_per_document = 100;
SELECT try($$SELECT kb.chunk(repeat('word ', 1000), '{"size": 5, "overlap": 0, "strategy": "$$ || s || $$"}')$$) FROM unnest('{recursive,markdown,fixed}'::text[]) s;
SELECT count(*) FROM kb.chunk(repeat('word ', 1000), '{"size": 10, "overlap": 0}');
RESET kb.max_chunks_per_document;
SET kb.max_extracted_size = '4kB';
SELECT try($$SELECT kb.chunk(repeat('word ', 1000), '{"size": 10, "overlap": 0}')$$);
SELECT try($$SELECT kb.chunk(repeat('word ', 700), '{"size": 10, "overlap": 5}')$$);
SELECT try($$SELECT kb.chunk('# ' || repeat('long ', 100) || E'\n\n' || repeat('word ', 100), '{"size": 10, "overlap": 0}', content_type => 'text/markdown')$$);
SELECT count(*) FROM kb.chunk(repeat('word ', 700), '{"size": 10, "overlap": 0}');
RESET kb.max_extracted_size;
SET kb.extract_timeout = '1ms';
SELECT try($$SELECT kb.chunk(repeat('word ', 1000000), content_type => $$ || quote_literal(t) || ')') FROM unnest('{text/plain,text/markdown,text/html}'::text[]) t;
RESET kb.extract_timeout;
SELECT try($$SELECT kb.chunk(repeat('x', 10 * 1024 * 1024 + 1))$$);
SELECT try($$SELECT kb.chunk('<p' || (SELECT string_agg(' a' || i, '') FROM generate_series(1, 300) i) || '>x', content_type => 'text/html')$$);
RESET kb.default_embedder;

-- Documents: chunks are slices of the extracted text, with heading paths, whatever the type.
SELECT kb.create_knowledge_base('chk', 'hash', chunking => '{"strategy": "markdown", "size": 14, "overlap": 0}');
SELECT kb.put_document('chk', id || CASE id WHEN 'markdown' THEN '.md' ELSE '' END, body) FROM texts ORDER BY id;
SELECT kb.put_document('chk', 'page.html', '<html><body><h1>Käse</h1><p>Gouda &amp; Brie.</p><h2>Hart</h2><p>Parmesan reift lange, sehr lange, und schmeckt allen Leuten gut.</p></body></html>');
SELECT kb.wait('chk', 30);
SELECT d.external_id, bool_and(c.content = substr(d.content, c.start_char + 1, c.end_char - c.start_char)) AS exact,
       bool_and(c.token_count <= 14) AS fits, count(*) = d.chunk_count AS counted, sum(c.token_count) = d.token_count AS tokens
FROM kb.documents d JOIN kb.chunks c USING (document_id) JOIN kb.knowledge_bases k ON k.kb_no = d.kb_no
WHERE k.id = 'chk' GROUP BY d.document_id, d.external_id ORDER BY 1;
SELECT d.external_id, c.ordinal, replace(c.content, E'\n', '|'), c.locator
FROM kb.documents d JOIN kb.chunks c USING (document_id) JOIN kb.knowledge_bases k ON k.kb_no = d.kb_no
WHERE k.id = 'chk' AND d.external_id IN ('markdown.md', 'page.html') ORDER BY 1, 2;

-- A chunk the model cannot read is never cut in silence: strategy none can make one, and the document says so.
SELECT kb.create_embedder('chk_short', 'hash', dimension => 8, config => '{"max_input_tokens": 5}');
SELECT kb.create_knowledge_base('chk_none', 'chk_short', chunking => '{"strategy": "none"}');
SELECT kb.put_document('chk_none', 'short', 'three little words'), kb.put_document('chk_none', 'long', 'seven little words are too many here');
SELECT kb.wait('chk_none', 30);
SELECT external_id, status, sqlstate, error FROM kb.documents JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'chk_none' ORDER BY 1;
SELECT kb_id, external_id, error, sqlstate FROM kb.failures WHERE kb_id = 'chk_none';
SELECT kb.drop_knowledge_base('chk'), kb.drop_knowledge_base('chk_none');
SELECT kb.drop_embedder('chk_short');
