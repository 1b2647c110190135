-- The demo: PostgreSQL's manual becomes a knowledge base and answers questions, one of them three ways; then a folder of files becomes
-- one, a table is attached, a preference is remembered, and a chat model answers with citations. Its place is taken by a stub, whose URL
-- is in the variable stub_url, if it runs.
-- Run by tools/demo.sh, as often as you like: what is there already is left as it is.
\pset tuples_only on
\pset format unaligned
\pset pager off
SET client_min_messages = warning;

CREATE EXTENSION IF NOT EXISTS kb CASCADE;

SELECT kb.create_knowledge_base('manual')
WHERE NOT EXISTS (SELECT FROM kb.knowledge_bases WHERE id = 'manual');

-- A hundred pages of the manual, straight from their HTML. A page that has not changed is skipped.
SELECT format('Handed over: %s pages of PostgreSQL''s manual, %s kB of HTML', count(put), sum(length(html)) / 1024)
FROM (SELECT html, kb.put_document('manual', page, html, content_type => 'text/html', uri => page) AS put
      FROM (SELECT page, pg_read_file(:'manual' || '/' || page) AS html
            FROM pg_ls_dir(:'manual') AS page
            WHERE page ~ '^(tutorial|indexes|mvcc|dml|ddl|backup|role|manage-ag|auth|routine|maintenance)[-.]'
               OR page ~ '^(transaction-iso|explicit-locking|applevel-consistency|populate|high-availability)\.'
               OR page ~ '^(client-authentication|database-roles|managing-databases|warm-standby-failover)\.'
               OR page ~ '^(sql-createindex|sql-reindex|sql-vacuum|monitoring-ps)\.'
            ORDER BY page) AS pages
      WHERE page NOT LIKE 'ddl-partitioning%') AS documents;

-- They are chunked, embedded and indexed in the background; there is nothing to do but wait.
SELECT kb.wait('manual', 600) \g /dev/null
SELECT format('Searchable: %s documents, %s chunks, %s vectors; %s failed', ready, chunks, vectors, failed)
FROM kb.status WHERE kb_id = 'manual';

SELECT CASE rank WHEN 1 THEN format(E'\n%s\n', question) ELSE '' END
    || format(E'  %s. %s (score %s)\n     %s\n     %s', rank, external_id, round(score::numeric, 2),
              coalesce((SELECT string_agg(heading, ' > ') FROM jsonb_array_elements_text(locator -> 'headings') AS heading),
                       title),
              left(regexp_replace(content, '\s+', ' ', 'g'), 220) || ' …')
FROM (VALUES (1, 'How can I build an index without blocking writes to the table?'),
             (2, 'Why do deleted rows still take up disk space, and how do I get it back?'),
             (3, 'How do I let each user see only their own rows?')) AS questions (number, question),
     LATERAL kb.query('manual', question, 2)
ORDER BY number, rank;
\echo
-- One question three ways: by meaning, by words, and by both. A number is the rank in that answer.
\set question 'What does pg_dumpall save that pg_dump does not?'
SELECT format(E'One question three ways: %s\n\n  meaning  words  both  passage', :'question');
SELECT format('  %s  %s  %s  %s', lpad(coalesce(dense::text, '-'), 7), lpad(coalesce(keyword::text, '-'), 5),
              lpad(coalesce(hybrid::text, '-'), 4), place)
FROM (SELECT chunk_id, min(rank) FILTER (WHERE mode = 'dense') AS dense, min(rank) FILTER (WHERE mode = 'keyword') AS keyword,
             min(rank) FILTER (WHERE mode = 'hybrid') AS hybrid,
             min(external_id || ': ' || left(regexp_replace(content, '\s+', ' ', 'g'), 70)) || ' …' AS place
      FROM unnest('{dense,keyword,hybrid}'::text[]) AS mode, LATERAL kb.query('manual', :'question', 5, mode => mode)
      GROUP BY chunk_id) AS found
ORDER BY hybrid, dense, keyword;
SELECT E'\nThe same as a prompt''s context of at most 500 tokens:\n';
SELECT '  ' || replace(rtrim(context, E'\n'), E'\n', E'\n  ') FROM kb.context('manual', :'question', 500, mode => 'hybrid');
\echo
-- A folder: 300 files of 18 formats (PDF, office, mail, Markdown ...), which a source lists and reads. A second run reads what changed.
SELECT kb.create_knowledge_base('documents', 'static')
WHERE NOT EXISTS (SELECT FROM kb.knowledge_bases WHERE id = 'documents') \g /dev/null
SELECT kb.create_source('documents', 'debian', 'files', '{"path": "**/*"}') \g /dev/null
SELECT kb.ingest('documents') \g /dev/null
SELECT kb.wait('documents', 600) \g /dev/null
SELECT format('A folder of 300 files of 18 formats: %s documents are ready, %s failed (kb.failures says why)', ready, failed)
FROM kb.status WHERE kb_id = 'documents';
SELECT CASE rank WHEN 1 THEN format(E'\n%s\n', question) ELSE '' END
    || format('  %s. %s%s: %s', rank, external_id, ', page ' || (locator ->> 'page'), -- or slide, sheet, chapter, time
              left(regexp_replace(content, '\s+', ' ', 'g'), 100) || ' …')
FROM (VALUES (1, 'How do I remove the whitespace and the stopwords of a corpus?'),
             (2, 'How do I upload a package to the Debian archive?')) AS questions (number, question),
     LATERAL kb.query('documents', question, 2, mode => 'hybrid')
ORDER BY number, rank;
\echo
-- A table that is there already: its rows follow every commit.
CREATE TABLE IF NOT EXISTS articles (id integer PRIMARY KEY, title text, body text, status text);
SELECT kb.create_knowledge_base('articles')
WHERE NOT EXISTS (SELECT FROM kb.knowledge_bases WHERE id = 'articles') \g /dev/null
SELECT kb.attach_table('articles', 'articles', content => '{title, body}', published_when => 'status = ''published''',
    title => 'title')
WHERE NOT EXISTS (SELECT FROM kb.sources WHERE relation = 'articles'::regclass) \g /dev/null
TRUNCATE articles;
INSERT INTO articles VALUES
    (1, 'Remote work', 'You may work from home up to three days a week.', 'published'),
    (2, 'Parental leave', 'Each parent may take twenty weeks.', 'draft');
SELECT kb.wait('articles', 600) \g /dev/null
SELECT format(E'A table of articles, one published, one a draft: can I work from home?\n')
    || string_agg(format('  article %s, %s (score %s)', external_id, title, round(score::numeric, 2)), E'\n' ORDER BY rank)
FROM kb.query('articles', 'can I work from home?', 5);
UPDATE articles SET status = 'draft' WHERE id = 1;
SELECT format('Unpublished: %s answers, at that commit', count(*)) FROM kb.query('articles', 'can I work from home?', 5);
\echo
-- What an agent learns outlives its conversations. A preference matters whatever the question is, hence no least score.
SELECT kb.create_memory('assistant', settings => '{"retrieval": {"min_score": 0}}')
WHERE NOT EXISTS (SELECT FROM kb.knowledge_bases WHERE id = 'assistant') \g /dev/null
SELECT kb.remember('assistant', 'The reader prefers examples that can be pasted into psql.', subject => 'reader', tags => '{preference}')
\g /dev/null
SELECT kb.wait('assistant', 600) \g /dev/null
SELECT format(E'A preference is remembered: which examples does the reader like?\n\n  %s (score %s)', fact, round(score::numeric, 2))
FROM kb.recall('assistant', 'Which examples does the reader like?', subject => 'reader');
\echo
\if :{?stub_url}
-- A run that was killed may have left the stub of then.
SELECT kb.drop_llm(id) FROM kb.llms WHERE id = 'stub' \g /dev/null
SELECT kb.create_llm('stub', 'openai', base_url => :'stub_url') \g /dev/null
\set question 'How can I build an index without blocking writes to the table?'
\echo 'An answer with citations, which kb checks. No model writes it here: a stub repeats the sentence that fits best.'
SELECT format(E'\n%s\n\n  %s\n\n', :'question', answer)
    || (SELECT string_agg(format(E'  %s %s, %s: "%s …"\n', cited ->> 'text', cited ->> 'file_id', cited ->> 'filename',
                                 left(cited ->> 'quote', 70)), '')
        FROM jsonb_array_elements(annotations) AS cited)
    || format('  Its prompt had %s passages, and the preference: %s', jsonb_array_length(chunks), memories -> 0 ->> 'fact')
FROM kb.answer('manual', :'question', 'stub', memory => 'assistant', options => '{"subject": "reader"}');
SELECT kb.drop_llm('stub') \g /dev/null
\echo
\endif
