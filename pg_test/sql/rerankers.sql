-- Rerankers and chat models: what is taken, what is refused, what comes of a reranker that cannot be asked.
\set VERBOSITY verbose
\set SHOW_CONTEXT never
SELECT kb.create_llm('rr_chat', 'openai', base_url => 'http://127.0.0.1:1/v1', config => '{"temperature": 0, "retry": {"max_attempts": 1}}');
SELECT kb.create_reranker('rr_judge', 'llm', config => '{"llm": "rr_chat", "scoring": "single"}');
SELECT kb.create_reranker('rr_tei', 'tei', base_url => 'http://127.0.0.1:1', config => '{"retry": {"max_attempts": 1}}');
SELECT id, provider, model, llm FROM kb.rerankers WHERE id LIKE 'rr!_%' ESCAPE '!' ORDER BY id;
SELECT id, provider, model FROM kb.llms WHERE id LIKE 'rr!_%' ESCAPE '!' ORDER BY id;
\set VERBOSITY default
-- All problems at once.
SELECT kb.create_reranker('', 'cohere', base_url => 'ftp://x', secret => 'sk-12345', config => '{"rpm": 0, "dimensions": 3, "max_chars": 0}');
SELECT kb.create_reranker('rr_x', 'cohere');
SELECT kb.create_reranker('rr_x', 'tei');
SELECT kb.create_reranker('rr_x', 'llm', 'gpt', base_url => 'http://127.0.0.1', config => '{"llm": "none", "scoring": "fast"}');
SELECT kb.create_reranker('rr_x', 'llm');
SELECT kb.create_reranker('rr_x', 'openai');
SELECT kb.create_reranker('rr_x', 'local', '../etc');
SELECT kb.create_reranker('rr_x', 'tei', '../admin', base_url => 'http://127.0.0.1:1', config => '{"path": "/../admin"}');
SELECT kb.create_llm('rr_x', 'ollama', '../admin', config => '{"path": "/v1?key=1"}');
SELECT kb.create_llm('rr_x', 'ollama', E'a\nb');
SELECT kb.create_reranker('rr_x', NULL);
SELECT kb.create_reranker('rr_tei', 'tei', base_url => 'http://127.0.0.1:1');
SELECT kb.create_llm('rr_x', 'ollama', config => '{"temperature": 9, "batch_size": 1}');
SELECT kb.create_llm('rr_x', 'cohere');
SELECT kb.alter_reranker('rr_none');
SELECT kb.alter_llm('rr_chat', config => '[]');
SELECT kb.check_reranker('rr_none');
SELECT ok, problem LIKE 'llm "rr_chat": %' AS says_why FROM kb.check_llm('rr_chat');
SELECT ok, problem LIKE 'llm "rr_chat": %' AS says_why FROM kb.check_reranker('rr_judge');
-- What is used stays.
SELECT kb.drop_llm('rr_chat');
SELECT kb.create_knowledge_base('rr', 'hash', retrieval => '{"rerank": {"reranker": "rr_none"}}');
SELECT kb.create_knowledge_base('rr', 'hash', retrieval => '{"rerank": {"reranker": "rr_tei", "retrieval_factor": 2}}');
SELECT retrieval -> 'rerank' AS rerank FROM kb.knowledge_bases WHERE id = 'rr';
SELECT kb.drop_reranker('rr_tei');
SELECT kb.put_document('rr', 'd', 'Ships lie in the harbor.');
SELECT kb.wait('rr');
-- The answer is there all the same.
SELECT external_id, score = rank_score AS by_similarity, locator ->> 'rerank_status' LIKE 'reranker "rr_tei": %' AS says_why
FROM kb.query('rr', 'Where is the harbor?');
SELECT external_id, locator FROM kb.query('rr', 'Where is the harbor?', options => '{"rerank": null}');
SELECT * FROM kb.query('rr', 'x', options => '{"rerank": {"reranker": "rr_none"}}');
SELECT * FROM kb.query('rr', 'x', options => '{"rerank": {"retrieval_factor": 101, "speed": 1}}');
SELECT * FROM kb.query('rr', 'x', options => '{"rerank": []}');
SELECT kb.drop_knowledge_base('rr');
SELECT kb.drop_reranker('rr_tei'), kb.drop_reranker('rr_judge');
SELECT kb.drop_llm('rr_chat');
