-- Documents: putting, putting again, deleting, and what is refused.
\pset format unaligned
\pset tuples_only on
SELECT kb.create_knowledge_base('docs', 'hash');

-- Normal use: added, skipped when nothing changed, updated when something did.
SELECT kb.put_document('docs', 'leave.txt', 'Everybody has thirty days of annual leave.', '{"team": "hr"}', 'Leave', uri => 'https://example.org/leave');
SELECT kb.put_document('docs', 'leave.txt', 'Everybody has thirty days of annual leave.', '{"team": "hr"}', 'Leave', uri => 'https://example.org/leave');
SELECT kb.wait('docs', 30);
SELECT kb.put_document('docs', 'leave.txt', 'Everybody has thirty days of annual leave.', '{"team": "hr"}', 'Leave');
SELECT kb.put_document('docs', 'leave.txt', 'Everybody has thirty-one days of annual leave.', '{"team": "hr"}', 'Leave');
SELECT kb.wait('docs', 30);
SELECT external_id, title, content_type, content, d.metadata, status, error, chunk_count, token_count > 5 FROM kb.documents d
JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'docs' ORDER BY 1;
-- Metadata alone: taken over at once, nothing to embed again.
SELECT kb.put_document('docs', 'leave.txt', 'Everybody has thirty-one days of annual leave.', '{"team": "people"}', 'Leave');
SELECT status, d.metadata FROM kb.documents d JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'docs';
SELECT external_id FROM kb.query('docs', 'annual leave', filter => '{"team": "people"}');
-- The type is part of what a document is.
SELECT kb.put_document('docs', 'leave.txt', 'Everybody has thirty-one days of annual leave.', '{}', 'Leave', 'text/markdown');

-- Types: as given, else by the ending, else by the text.
SELECT kb.put_document('docs', 'type/a.md', '# One'), kb.put_document('docs', 'type/b.HTM', '<p>Two</p>'),
       kb.put_document('docs', 'type/c', '<!doctype html><title>Three</title><p>Text three</p>'),
       kb.put_document('docs', 'type/d', 'Four < five'), kb.put_document('docs', 'type/e', '# Five', uri => 'https://example.org/x/e.markdown?raw=1'),
       kb.put_document('docs', 'type/f.html', '<b>Six</b>', content_type => 'text/plain'),
       kb.put_document('docs', 'type/g', '<p>Seven</p>', content_type => 'TEXT/HTML; charset=utf-8');
SELECT kb.wait('docs', 30);
SELECT external_id, content_type, title, content FROM kb.documents JOIN kb.knowledge_bases k USING (kb_no)
WHERE k.id = 'docs' AND external_id LIKE 'type/%' ORDER BY 1;

-- HTML: scripts and styles are gone, headings are kept, entities are read.
SELECT kb.put_document('docs', 'page.html', '<html><head><title>The &amp; title</title><style>p { color: red }</style></head><body>
<h1>Main</h1><p>Caf&eacute; &lt;open&gt; <b>daily</b>.</p><script>alert("no")</script><h2>Hours</h2><ul><li>Nine</li><li>Ten</li></ul><noscript>enable</noscript></body></html>');
SELECT kb.wait('docs', 30);
SELECT title, content FROM kb.documents JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'docs' AND external_id = 'page.html';
SELECT c.ordinal, c.content, c.locator FROM kb.chunks c JOIN kb.documents USING (document_id) WHERE external_id = 'page.html' ORDER BY 1;

-- Several at once, in the order given.
SELECT * FROM kb.put_documents('docs', ARRAY['{"external_id": "m2", "content": "second"}',
    '{"external_id": "m1", "content": "first", "title": "T", "metadata": {"n": 1}, "content_type": "text/plain", "uri": "file:///m1"}',
    '{"external_id": "leave.txt", "content": "changed", "content_type": "text/plain"}']::jsonb[]);
SELECT * FROM kb.put_documents('docs', ARRAY['{"external_id": "m2", "content": "second"}', '{"external_id": "m3", "content": "third"}']::jsonb[]);
SELECT count(*) FROM kb.put_documents('docs', '{}');
SELECT kb.wait('docs', 30);
SELECT external_id, title, uri, d.metadata, status FROM kb.documents d JOIN kb.knowledge_bases k USING (kb_no)
WHERE k.id = 'docs' AND external_id LIKE 'm_' ORDER BY 1;

-- bytea: UTF-8, with or without a byte order mark.
SELECT kb.put_document('docs', 'bytes', convert_to('Grüße aus Köln', 'UTF8'));
SELECT kb.put_document('docs', 'bytes', '\xefbbbf'::bytea || convert_to('Grüße aus Köln', 'UTF8'));
SELECT kb.put_document('docs', 'bytes2', '\xefbbbf'::bytea || convert_to('only once', 'UTF8'));
SELECT kb.put_document('docs', 'bom', E'\uFEFFonly once');
SELECT kb.put_document('docs', 'crlf', E'one\r\ntwo\rthree');
SELECT kb.wait('docs', 30);
SELECT external_id, content = 'only once', length(content), status FROM kb.documents JOIN kb.knowledge_bases k USING (kb_no)
WHERE k.id = 'docs' AND external_id IN ('bytes', 'bytes2', 'bom', 'crlf') ORDER BY 1;

-- What was put is kept where the extracted text differs from it; documents are found by kb_id.
SELECT external_id, replace(replace(convert_from(original, 'UTF8'), E'\r', '<CR>'), U&'\FEFF', '<BOM>') FROM kb.documents WHERE kb_id = 'docs' AND original IS NOT NULL
AND external_id !~ '^(page|type)' ORDER BY 1;
SELECT bool_and(original IS NOT NULL) FROM kb.documents WHERE kb_id = 'docs' AND content_type = 'text/html';
-- A document without text is stored, has no chunks and is ready, also where only the worker can see that it has none.
SELECT external_id, kb.put_document('docs', external_id, content) FROM (VALUES ('empty1', ''), ('empty2', E' \t\r\n\u00a0'), ('empty3', E'\uFEFF'),
('empty4.html', '<html><body><script>x()</script></body></html>'), ('empty5.html', '<img src=a.png>')) AS d (external_id, content) ORDER BY 1;
SELECT kb.put_document('docs', 'empty6', '\xefbbbf'::bytea), kb.put_document('docs', 'emptied', 'Wombats dig at night.');
SELECT kb.wait('docs', 30);
SELECT kb.put_document('docs', 'emptied', '  '), kb.put_document('docs', 'empty1', '');
SELECT kb.wait('docs', 30);
SELECT external_id, status, error IS NULL, (SELECT count(*) FROM kb.chunks c WHERE c.document_id = d.document_id) FROM kb.documents d
WHERE kb_id = 'docs' AND external_id LIKE 'empt%' ORDER BY 1;
SELECT count(*) FROM kb.failures WHERE external_id LIKE 'empt%';
SELECT count(*) FROM kb.query('docs', 'Wombats dig at night', 50) WHERE external_id LIKE 'empt%';
SELECT count(*) FROM kb.delete_documents('docs', '{empty1,empty2,empty3,empty4.html,empty5.html,empty6,emptied}') WHERE status = 'deleted';
-- What is refused, and leaves no trace.
SELECT try($$SELECT kb.put_document('docs', 'bad', '\x616263ff'::bytea)$$);
SELECT try($$SELECT kb.put_document('docs', 'bad', '\xefbbbf61c3'::bytea)$$);
SELECT try($$SELECT kb.put_document('docs', 'bad', '\x61006263'::bytea)$$);
SELECT try($$SELECT kb.put_document('docs', 'bad', '\xff00fe'::bytea)$$);
SELECT try($$SELECT kb.put_document('docs', 'bad', '%PDF-1.7', content_type => 'application/pdf')$$);
SELECT try($$SELECT kb.put_document('docs', 'bad', 'x', content_type => 'markdown')$$);
-- A name of a format that kb does not read is refused, unless the caller says that the document is text.
SELECT try($$SELECT kb.put_document('docs', 'bad.pdf', '%PDF-1.7')$$) ~ '^0A000: document "bad.pdf": .*pdf';
SELECT kb.put_document('docs', 'good.pdf', 'Text all the same.', content_type => 'text/plain');
SELECT try($$SELECT kb.put_document('docs', '', 'x')$$);
SELECT try($$SELECT kb.put_document('docs', '   ', 'x')$$);
SELECT try($$SELECT kb.put_document('docs', 'bad', 'x', '[1]')$$);
SELECT try($$SELECT kb.put_document('docs', 'bad', 'x', '"x"')$$);
SELECT try($$SELECT kb.put_document('docs_none', 'bad', 'x')$$);
-- An id that is too long for its index is refused as such.
SELECT left(try($$SELECT kb.put_document('docs', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 500) i), 'x')$$), 35) LIKE '22023: invalid external_id%';
SET kb.max_document_size = '1kB';
SELECT try($$SELECT kb.put_document('docs', 'bad', repeat('x', 1025))$$);
SELECT try($$SELECT kb.put_document('docs', 'bad', convert_to(repeat('ü', 513), 'UTF8'))$$);
SELECT kb.put_document('docs', 'just', repeat('x', 1024));
RESET kb.max_document_size;
-- put_documents: all or none.
SELECT try($$SELECT kb.put_documents('docs', ARRAY['{"external_id": "bad1", "content": "fine"}', '{"external_id": "bad2", "content": "x", "content_type": "application/pdf"}']::jsonb[])$$);
SELECT try($$SELECT kb.put_documents('docs', ARRAY['{"external_id": "bad1", "content": "a"}', '{"external_id": "bad1", "content": "b"}']::jsonb[])$$);
SELECT try($$SELECT kb.put_documents('docs', ARRAY['{"external_id": "bad1", "content": "a"}', '{"external_id": "bad2", "contents": "b"}']::jsonb[])$$);
SELECT try($$SELECT kb.put_documents('docs', ARRAY['{"external_id": 5, "content": true, "metadata": []}']::jsonb[])$$);
-- What is missing is named with its place.
SELECT try($$SELECT kb.put_documents('docs', ARRAY['{"external_id": "bad1", "content": "a"}', '{"content": "b"}']::jsonb[])$$) ~ '^22023: .*documents\[2\].*external_id';
SELECT try($$SELECT kb.put_documents('docs', ARRAY['{"external_id": "bad1", "content": "a"}', '{"external_id": "bad2"}']::jsonb[])$$) ~ '^22023: .*documents\[2\].*content';
SELECT try($$SELECT kb.put_documents('docs', ARRAY['"text"']::jsonb[])$$);
SELECT try($$SELECT kb.put_documents('docs', ARRAY['{"external_id": "bad1", "content": "a"}', NULL]::jsonb[])$$) ~ '^22(004|023): .*documents';
SELECT try($$SELECT kb.put_documents('docs_none', '{}')$$);
SELECT external_id FROM kb.documents WHERE external_id LIKE 'bad%' ORDER BY 1;
SELECT count(*) FROM kb.jobs j JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'docs' AND subject LIKE 'bad%';

-- Rolled back means nothing happened.
BEGIN;
SELECT kb.put_document('docs', 'rolled', 'back'), kb.delete_document('docs', 'm1');
ROLLBACK;
SELECT external_id FROM kb.documents WHERE external_id IN ('rolled', 'm1');

-- Deleting: gone at once, with a status for each.
SELECT kb.delete_document('docs', 'm1'), kb.delete_document('docs', 'm1');
SELECT * FROM kb.delete_documents('docs', '{m3,nobody,m2,m3}');
SELECT count(*) FROM kb.delete_documents('docs', '{}');
SELECT external_id FROM kb.documents WHERE external_id LIKE 'm_';
SELECT external_id FROM kb.query('docs', 'second third first', 50) WHERE external_id LIKE 'm_';
SELECT try($$SELECT kb.delete_document('docs_none', 'x')$$);
SELECT try($$SELECT kb.delete_documents('docs_none', '{x}')$$);
SELECT try($$SELECT kb.delete_documents('docs', ARRAY['x', NULL])$$) ~ '^22(004|023): .*external_ids';
-- Deleted and put again in one transaction; put and deleted again.
BEGIN;
SELECT kb.delete_document('docs', 'leave.txt');
SELECT kb.put_document('docs', 'leave.txt', 'A new beginning of leave.');
SELECT kb.put_document('docs', 'brief', 'A short life.');
SELECT kb.delete_document('docs', 'brief');
COMMIT;
SELECT kb.wait('docs', 30);
SELECT external_id, content FROM kb.query('docs', 'new beginning of leave', 1);
SELECT count(*) FROM kb.documents WHERE external_id = 'brief';
-- Texts are compressed by lz4 where the server has it.
SELECT kb.put_document('docs', 'long', repeat('A long text is compressed. ', 1000));
SELECT pg_column_compression(d.content) = CASE WHEN s.enumvals @> '{lz4}' THEN 'lz4' ELSE 'pglz' END
FROM kb.documents d, pg_settings s WHERE d.external_id = 'long' AND s.name = 'default_toast_compression';

SELECT kb.drop_knowledge_base('docs');
