-- Memories as tools of a model.
\pset format unaligned
\pset tuples_only on
SELECT kb.create_memory('tool_notes', 'hash', '{"retrieval": {"min_score": 0, "count_accesses": false}}');
SELECT jsonb_pretty(kb.tools('mcp', '{"memory": "tool_notes", "allowed_metadata_keys": ["kind"]}'));
SELECT jsonb_pretty(kb.tools(options => '{"knowledge_bases": ["x"]}'));
SELECT t #>> '{function,name}' FROM jsonb_array_elements(kb.tools()) t;
SELECT kb.call_tool('memory_store', '{"text": "prefers metric units", "metadata": {"kind": "preference", "n": 1}, "id": "units"}', '{"memory": "tool_notes", "subject": "u"}');
SELECT kb.wait('tool_notes', 30);
SELECT kb.call_tool('memory_search', '{"query": "units", "filter": {"n": "1"}}', '{"memory": "tool_notes"}') #- '{results,0,similarity}';
SELECT kb.call_tool('memory_search', '{"query": "units", "filter": {"n": "2"}}', '{"memory": "tool_notes"}');
SELECT kb.call_tool('memory_search', '{"limit": true, "other": 1}', '{"memory": "tool_notes"}');
SELECT kb.call_tool('memory_search', '"no JSON"', '{"memory": "tool_notes"}');
SELECT try($$SELECT kb.call_tool('none', '{}')$$);
SELECT try($$SELECT kb.call_tool('memory_search', '{}')$$);
SELECT try($$SELECT kb.call_tool('memory_search', '{}', '{"memory": 1, "max_results": 1000, "x": 1}')$$);
SELECT try($$SELECT kb.tools('yaml')$$);
-- What said a fact, and how often it was used.
SELECT kb.create_conversation('tool_talk');
SELECT kb.append_turn('tool_talk', 'user', 'I live in Turin.') AS turn \gset
SELECT kb.remember('tool_notes', 'lives in Turin', 'u', source_turn_id => :'turn', source_start => 2, source_end => 15, id => 'place');
SELECT fact, source_conversation_id, source_turn_id = :'turn', source_start, source_end, consolidated_into FROM kb.memories WHERE id = 'place';
SELECT try($$SELECT kb.remember('tool_notes', 'x', source_turn_id => 'turn_none')$$);
SELECT try($$SELECT kb.remember('tool_notes', 'x', source_start => 1)$$);
SELECT kb.drop_conversation('tool_talk');
SELECT source_conversation_id IS NULL, source_turn_id IS NULL, source_start FROM kb.memories WHERE id = 'place';
SELECT kb.drop_memory('tool_notes');
