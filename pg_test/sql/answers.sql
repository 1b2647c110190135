-- kb.answer without a model: refusals, conversations, wrong arguments.
\pset format unaligned
\pset tuples_only on
SELECT kb.create_knowledge_base('an', 'hash', retrieval => '{"mode": "keyword"}');
SELECT kb.create_knowledge_base('an2', 'hash', retrieval => '{"mode": "keyword"}');
SELECT kb.create_llm('an_llm', 'openai', base_url => 'http://127.0.0.1:1/v1', config => '{"retry": {"max_attempts": 1}, "price_per_million_tokens": 2}');
SELECT kb.create_conversation('an');
SELECT * FROM kb.answer('an', 'Where are the ships?', 'an_llm');
SELECT answer, refused, turn_id ~ '^turn_' FROM kb.answer('{an,an2}'::text[], 'Where are the ships?', 'an_llm', 'an', options => '{"refusal": " Nowhere. "}');
SELECT role, content, usage, metadata FROM kb.turns WHERE conversation_id = 'an' ORDER BY turn_no;
SELECT try($$SELECT kb.answer('none', 'x', 'an_llm')$$);
SELECT try($$SELECT kb.answer('an', 'x', 'none')$$);
SELECT try($$SELECT kb.answer('an', ' ', 'an_llm')$$);
SELECT try($$SELECT kb.answer('an', 'x', 'an_llm', 'none')$$);
SELECT try($$SELECT kb.answer('an', 'x', 'an_llm', 'turn_1')$$);
SELECT try($$SELECT kb.answer('an', 'x', 'an_llm', memory => 'an')$$);
SELECT try($$SELECT kb.answer('an', 'x', 'an_llm', max_tokens => 0)$$);
SELECT try($$SELECT kb.answer('an', 'x', 'an_llm', max_tokens => 9)$$) ~ '^22023: invalid max_tokens: instructions and question have \d+ tokens, 9 are allowed$';
SELECT try($$SELECT kb.answer('an', 'x', 'an_llm', options => '{"subject": "a"}')$$);
SELECT try($$SELECT kb.answer('an', 'x', 'an_llm', options => '{"refusal": "", "timeout": 0, "top_k": 0, "filter": []}')$$);
SELECT try($$SELECT kb.answer('an', 'x', 'an_llm', options => '{"speed": 1}')$$);
SELECT try($$SELECT kb.answer('{}'::text[], 'x', 'an_llm')$$);
SELECT try($$SELECT kb.answer(NULL::text, 'x', 'an_llm')$$);
SELECT try($$SELECT kb.answer('an', NULL, 'an_llm')$$);
SELECT try($$SELECT kb.answer('an', 'x', NULL)$$);
SELECT count(*) FROM kb.turns WHERE conversation_id = 'an';
SELECT kb.drop_conversation('an'), kb.drop_llm('an_llm'), kb.drop_knowledge_base('an'), kb.drop_knowledge_base('an2');
