-- Evaluation sets, and what is measured by them; wrong arguments.
SELECT kb.create_knowledge_base('ev', 'hash');
SELECT kb.put_document('ev', 'a', 'Ships rest in the harbor.'), kb.put_document('ev', 'b', 'Farmers sell apples.');
SELECT kb.wait('ev', 30);
SELECT kb.create_eval_set('ev', 's');
SELECT try($$SELECT kb.create_eval_set('ev', 's')$$);
SELECT try($$SELECT kb.create_eval_set('ev', ' ')$$);
SELECT try($$SELECT kb.create_eval_set('none', 's')$$);
SELECT try($$SELECT kb.drop_eval_set('ev', 'none')$$);
SELECT kb.put_eval_question('ev', 's', 'q1', 'harbor', '["a"]');
SELECT kb.put_eval_question('ev', 's', 'q2', 'apples', '[{"external_id": "b", "grade": 2, "start": 0, "end": 7}, "a"]', '{"lang": "en"}');
SELECT kb.put_eval_question('ev', 's', 'q2', 'apples', '[{"external_id": "b", "grade": 2, "start": 0, "end": 7}, "a"]');
SELECT question_id, question, relevant, filter, tenant_id FROM kb.eval_questions ORDER BY 1;
SELECT options, k, questions, recall, round(precision::numeric, 2) AS precision, mrr, round(ndcg::numeric, 4) AS ndcg, hit_rate, ann_recall, unanswered
FROM kb.evaluate('ev', 's', ARRAY['{}', '{"k": 1, "mode": "keyword"}']::jsonb[]);
SELECT count(*) FROM kb.evaluate('ev', 's', '{}');
SELECT options, k, gain, present, proposed FROM kb.tune('ev', 's') WHERE proposed;
SELECT * FROM kb.measure_recall('ev');
SELECT r.recall, r.sample, r.ef_search FROM kb.index_recall r JOIN kb.knowledge_bases USING (kb_no) WHERE id = 'ev';
SELECT kb.delete_eval_question('ev', 's', 'q2'), kb.delete_eval_question('ev', 's', 'q2');
SELECT kb.load_eval('ev', 'loaded', E'{"_id": "1", "text": "one"}\n{"_id": "2", "text": "two"}', E'query-id\tcorpus-id\tscore\n1\ta\t1');
SELECT name FROM kb.eval_sets ORDER BY 1;
-- What is wrong is refused, all of it told.
SELECT try($$SELECT kb.load_eval('ev', 'loaded', E'{"_id": "1"}\nx', E'1\ta')$$);
SELECT try($$SELECT kb.put_eval_question('ev', 's', '', 'q', '[]')$$);
SELECT try($$SELECT kb.put_eval_question('ev', 's', 'q', ' ', '[]')$$);
SELECT try($$SELECT kb.put_eval_question('ev', 's', 'q', 'q', '{}')$$);
SELECT try($$SELECT kb.put_eval_question('ev', 's', 'q', 'q', '["a", "a", 1, {"external_id": "b", "start": 1}]')$$);
SELECT try($$SELECT kb.put_eval_question('ev', 's', 'q', 'q', '["a"]', '[]')$$);
SELECT try($$SELECT kb.put_eval_question('ev', 'none', 'q', 'q', '["a"]')$$);
SELECT try($$SELECT kb.evaluate('ev', 'none')$$);
SELECT try($$SELECT kb.evaluate('ev', 's', ARRAY['{"k": 0}']::jsonb[])$$);
SELECT try($$SELECT kb.evaluate('ev', 's', ARRAY['[]']::jsonb[])$$);
SELECT try($$SELECT kb.evaluate('ev', 's', ARRAY['{"speed": 1}']::jsonb[])$$);
SELECT try($$SELECT kb.evaluate('ev', 's', ARRAY[NULL]::jsonb[])$$);
SELECT try($$SELECT kb.evaluate('ev', 's', array_fill('{}'::jsonb, ARRAY[101]))$$);
SELECT try($$SELECT kb.measure_recall('ev', 0)$$);
SELECT try($$SELECT kb.alter_knowledge_base('ev', retrieval => '{"ef_search": "fast"}')$$);
SELECT kb.alter_knowledge_base('ev', retrieval => '{"ef_search": "auto"}');
SELECT external_id FROM kb.query('ev', 'harbor', 1);
-- A question that cannot be asked is named.
SELECT kb.alter_knowledge_base('ev', retrieval => '{"allowed_metadata_keys": ["lang"]}');
SELECT kb.put_eval_question('ev', 's', 'q9', 'apples', '["b"]', '{"n": 1}');
SELECT try($$SELECT kb.evaluate('ev', 's')$$);
SELECT kb.drop_eval_set('ev', 's');
SELECT kb.drop_knowledge_base('ev');
SELECT count(*) FROM kb.eval_sets;
