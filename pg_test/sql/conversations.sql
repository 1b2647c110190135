-- Conversations: turns, branches, windows; wrong arguments.
\pset format unaligned
\pset tuples_only on
SELECT kb.create_conversation('cv', 'Ships', metadata => '{"n": 1}');
SELECT id, title, settings, metadata, tenant_id FROM kb.conversations;
SELECT kb.create_conversation() ~ '^conv_[0-9a-f]{32}$';
SELECT count(*) FROM kb.window('cv');
SELECT kb.append_turn('cv', 'user', 'Where are the ships?') AS first \gset
SELECT kb.append_turn('cv', 'assistant', NULL, tool_calls => '[{"id": "a", "type": "function"}]') AS asked \gset
SELECT kb.append_turn('cv', 'tool', '[{"type": "text", "text": "harbor"}]'::jsonb, tool_call_id => 'a') AS result \gset
SELECT kb.append_turn('cv', 'assistant', 'In the harbor.', usage => '{"tokens": 12345678901234567890}', metadata => '{"m": 1}') AS answer \gset
SELECT :'first' ~ '^turn_[0-9a-f]{32}$';
SELECT ordinal, role, content, tool_calls, tool_call_id, token_count, is_cut FROM kb.window('cv');
SELECT ordinal, role, is_cut FROM kb.window('cv', 4);
SELECT ordinal, role, is_cut FROM kb.window(:'result', 4);
SELECT kb.append_turn('cv', 'user', 'Which?', :'first') IS NOT NULL;
SELECT content FROM kb.window('cv');
SELECT depth, role, parent_id IS NULL, usage, metadata FROM kb.turns WHERE conversation_id = 'cv' ORDER BY branch_no, depth;
SELECT kb.alter_conversation('cv', settings => '{"tokenizer": "gpt-4o", "token_threshold": 100}');
SELECT kb.alter_conversation('cv', NULL, NULL, NULL);
SELECT kb.wait_for_summary('cv');
SELECT count(*) FILTER (WHERE is_summary), count(*) FROM kb.window('cv');
SELECT count(*) FROM kb.summaries, kb.chat_requests;
SELECT title, settings, metadata FROM kb.conversations WHERE id = 'cv';
-- What is wrong is refused.
SELECT try($$SELECT kb.create_conversation('s', settings => '{"window_size": 0, "summary": {"strategy": "lazy", "max_tokens": 0}}')$$);
SELECT try($$SELECT kb.create_conversation('s', settings => '{"summary": {"strategy": "eager", "llm": "none"}}')$$);
SELECT try($$SELECT kb.wait_for_summary('none', 1)$$);
SELECT try($$SELECT kb.extract_memories('cv')$$);
SELECT try($$SELECT kb.create_conversation('s', settings => '{"memory": "none", "subject": " "}')$$);
SELECT try($$SELECT kb.wait_for_summary('cv', -1)$$);
SELECT try($$SELECT kb.create_conversation('cv')$$);
SELECT try($$SELECT kb.create_conversation('turn_x', settings => '{"token_threshold": 0, "tokenizer": "x", "speed": 1}', metadata => '[]')$$);
SELECT try($$SELECT kb.alter_conversation('none', 'x')$$);
SELECT try($$SELECT kb.append_turn('none', 'user', 'x')$$);
SELECT try($$SELECT kb.append_turn('cv', 'robot', 'x')$$);
SELECT try($$SELECT kb.append_turn('cv', 'user', NULL)$$);
SELECT try($$SELECT kb.append_turn('cv', 'user', '[1]'::jsonb)$$);
SELECT try($$SELECT kb.append_turn('cv', 'user', 'x', 'turn_none')$$);
SELECT try($$SELECT kb.append_turn('cv', 'user', 'x', tool_calls => '[{"id": "a"}]')$$);
SELECT try($$SELECT kb.append_turn('cv', 'assistant', 'x', tool_calls => '[{"id": "a"}, {"id": "a"}]')$$);
SELECT try($$SELECT kb.append_turn('cv', 'tool', 'x')$$);
SELECT try($$SELECT kb.append_turn('cv', 'tool', 'x', tool_call_id => 'z')$$);
SELECT try($$SELECT kb.append_turn('cv', 'user', 'x', tool_call_id => 'a')$$);
SELECT try($$SELECT kb.append_turn('cv', 'user', 'x', token_count => -1)$$);
SELECT try($$SELECT kb.append_turn('cv', 'user', 'x', usage => '[]')$$);
SELECT try($$SELECT kb.append_turn('cv', 'user', repeat('x', 4194303))$$);
SELECT try($$SELECT kb.window('none')$$);
SELECT try($$SELECT kb.window('turn_none')$$);
SELECT try($$SELECT kb.window('cv', 0)$$);
SELECT kb.drop_conversation('cv');
SELECT count(*) FROM kb.turns;
SELECT try($$SELECT kb.drop_conversation('cv')$$);
SELECT kb.drop_conversation(id) FROM kb.conversations;
