-- The embedders that come with the extension. The library computes their fingerprints.

-- Pinned, as in roles.sql.
SELECT pg_catalog.set_config('kb_install.search_path', pg_catalog.current_setting('search_path'), true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

INSERT INTO kb.embedders (id, provider, model, dimension, fingerprint, seeded)
SELECT e.id, e.provider, e.model, e.dimension,
       kb._fingerprint(e.provider, e.model, e.dimension, '{}'), true
FROM (VALUES
    ('minilm', 'local', 'all-MiniLM-L6-v2', 384),
    ('static', 'local', 'wordllama-l2-supercat-256', 256),
    ('hash', 'hash', 'hash', 384)
) AS e (id, provider, model, dimension);

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('kb_install.search_path'), true);
