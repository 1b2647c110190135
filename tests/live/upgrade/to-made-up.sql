-- Makes of the newest version one that was never released, 0.0.1.made_up, so that tests have something to
-- update: columns of other names, a column, a function and an index that are missing, a function, a comment
-- and a right that are gone.
ALTER TABLE kb.builds RENAME COLUMN embedder TO model;
ALTER TABLE kb.sources RENAME COLUMN error TO problem;
ALTER TABLE kb.index_recall DROP COLUMN ef_search;
DROP FUNCTION kb.count_tokens(text, text);
DROP INDEX kb.runs_running;
DROP POLICY tenant_delete ON kb.usage;
COMMENT ON TABLE kb.builds IS 'Another comment.';
REVOKE EXECUTE ON FUNCTION kb.wait(text, double precision) FROM kb_reader;
