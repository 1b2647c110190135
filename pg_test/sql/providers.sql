-- Embedders at remote providers: what is taken, what is refused, and secrets. Nothing is sent.
\pset format unaligned
\pset tuples_only on
-- Defaults of each provider.
SELECT kb.create_embedder('prov_openai', 'openai', secret => 'env:OPENAI_API_KEY');
SELECT kb.create_embedder('prov_local', 'openai', 'any', 64, 'http://localhost:8000/v1');
SELECT kb.create_embedder('prov_azure', 'azure_openai', dimension => 1536, secret => 'kb:azure',
    base_url => 'https://r.openai.azure.com/openai/deployments/d');
SELECT kb.create_embedder('prov_ollama', 'ollama');
SELECT kb.create_embedder('prov_hf', 'huggingface', 'BAAI/bge-m3', 1024, 'http://localhost:8080');
SELECT kb.create_embedder('prov_gemini', 'gemini', secret => 'file:gemini', config => '{"dimensions": 768}');
SELECT kb.create_embedder('prov_vertex', 'vertex', secret => 'file:vertex',
    base_url => 'https://us-central1-aiplatform.googleapis.com/v1/projects/p/locations/us-central1/publishers/google/models');
SELECT kb.create_embedder('prov_cohere', 'cohere', secret => 'env:COHERE_API_KEY');
SELECT kb.create_embedder('prov_voyage', 'voyage', secret => 'env:VOYAGE_API_KEY');
SELECT kb.create_embedder('prov_jina', 'jina', secret => 'env:JINA_API_KEY');
SELECT kb.create_embedder('prov_mistral', 'mistral', secret => 'env:MISTRAL_API_KEY');
SELECT kb.create_embedder('prov_http', 'http', 'm', 4, 'https://models.example.com',
    config => '{"path": "/embed", "body": {"input": "{{texts}}"}, "items_pointer": "/data", "vector_pointer": "/embedding"}');
SELECT id, provider, model, dimension, base_url, secret, secret_host FROM kb.embedders WHERE id LIKE 'prov\_%' ORDER BY id;
-- A change of what decides a vector's meaning is a change of fingerprint, one of limits is not.
SELECT count(DISTINCT fingerprint) FROM kb.embedders WHERE id IN ('prov_gemini', 'prov_openai', 'prov_local');
SELECT fingerprint AS before FROM kb.embedders WHERE id = 'prov_openai' \gset
SELECT kb.alter_embedder('prov_openai', config => '{"rpm": 100, "price_per_million_tokens": 0.02, "max_concurrency": 2}');
SELECT fingerprint = :before FROM kb.embedders WHERE id = 'prov_openai';
SELECT kb.alter_embedder('prov_openai', config => '{"strip_newlines": true}');
SELECT fingerprint = :before FROM kb.embedders WHERE id = 'prov_openai';

-- Every problem is reported, together.
SELECT try($$SELECT kb.create_embedder('prov_x', 'openai', dimension => 9999, base_url => 'ftp://u:p@x',
    secret => 'sk-live-1234567890', config => '{"rpm": 0, "pooling": "mean", "retry": {"times": 2}}')$$);
SELECT try($$SELECT kb.create_embedder('prov_x', 'azure_openai')$$);
SELECT try($$SELECT kb.create_embedder('prov_x', 'http', base_url => 'https://models.example.com', dimension => 3)$$);
SELECT try($$SELECT kb.create_embedder('prov_x', 'cohere', 'unheard-of', secret => 'env:KB_C')$$);
SELECT try($$SELECT kb.create_embedder('prov_x', 'openai', secret => 'env:KB_K', config => '{"dimensions": 256}', dimension => 512)$$);
SELECT try($$SELECT kb.create_embedder('prov_x', 'openai', secret => 'env:KB_K', config => '{"headers": {"Authorization": "Bearer sk-1"}}')$$);
SELECT try($$SELECT kb.create_embedder('prov_x', 'openai', secret => 'env:KB_K', config => '{"headers": {"X-Title": 1}, "path": "v1"}')$$);
SELECT try($$SELECT kb.create_embedder('prov_x', 'openai', secret => 'env:KB_K', config => '{"headers": {"X-Vault-Token": "s.1"}}')$$);
-- A literal key is refused and not repeated.
SELECT try($$SELECT kb.create_embedder('prov_x', 'openai', secret => 'sk-live-1234567890')$$);
SELECT try($$SELECT kb.alter_embedder('prov_openai', secret => 'sk-live-1234567890')$$);
SELECT try($$SELECT kb.create_embedder('prov_x', 'openai', secret => 'file:../pg_hba.conf')$$);
-- Only variables that kb.secret_env lists; the error is the same whether there is such a variable.
SELECT try($$SELECT kb.create_embedder('prov_x', 'openai', secret => 'env:POSTGRES_PASSWORD')$$);
SELECT try($$SELECT kb.alter_embedder('prov_openai', secret => 'env:PATH')$$);
-- A provider of free form reaches this machine and private networks only by kb.allowed_hosts.
SELECT try($$SELECT kb.create_embedder('prov_x', 'http', 'm', 4, 'http://localhost:2375', config => '{"body": {"a": "{{texts}}"}}')$$);
SELECT try($$SELECT kb.create_embedder('prov_x', 'http', 'm', 4, 'http://10.0.0.1:8500', config => '{"body": {"a": "{{texts}}"}}')$$);
SELECT try($$SELECT kb.alter_embedder('prov_http', base_url => 'http://[::ffff:127.0.0.1]:8500')$$);
-- No model's name and no path leads out of the path that base_url has.
SELECT try(format('SELECT kb.create_embedder(%L, %L, %L, 3, %L)', 'prov_x', p, m, 'https://models.example.com/v1'))
FROM unnest('{gemini,vertex,huggingface,openai,cohere}'::text[], ARRAY['../../../admin', 'm/%2E%2e/admin', 'm?key=1', 'http://models.example.com', 'm#x']) AS u (p, m);
SELECT try($$SELECT kb.create_embedder('prov_x', 'http', base_url => 'https://models.example.com/v1', dimension => 3,
    config => '{"path": "/..%2Fadmin", "body": {"input": "{{texts}}"}}')$$);
SELECT try($$SELECT kb.alter_embedder('prov_azure', config => '{"path": "/../admin", "api_version": "1&a=b"}')$$);
-- Addresses that are never connected to.
SELECT try($$SELECT kb.create_embedder('prov_x', 'ollama', base_url => 'http://169.254.169.254')$$);
SELECT try($$SELECT kb.create_embedder('prov_x', 'ollama', base_url => 'http://[fd00:ec2::254]')$$);
SELECT try($$SELECT kb.create_embedder('prov_x', 'ollama', base_url => 'http://localhost:1/?key=1')$$);

-- A secret is bound to the host it was given for.
SELECT kb.alter_embedder('prov_local', secret => 'kb:local');
SELECT secret, secret_host FROM kb.embedders WHERE id = 'prov_local';
SELECT kb.alter_embedder('prov_local', base_url => 'http://localhost:8000/other/v1');
SELECT secret, secret_host FROM kb.embedders WHERE id = 'prov_local';
SELECT kb.alter_embedder('prov_local', base_url => 'http://localhost:9999/v1');
SELECT secret, secret_host IS NULL FROM kb.embedders WHERE id = 'prov_local';
SELECT kb.alter_embedder('prov_local', secret => 'kb:local');
SELECT secret, secret_host FROM kb.embedders WHERE id = 'prov_local';

-- Keys.
SELECT kb.set_secret('local', 'sk-live-1234567890');
SELECT kb.set_secret('local', 'sk-live-0987654321');
SELECT try($$SELECT kb.set_secret('../x', 'k')$$);
SELECT try($$SELECT kb.set_secret('x', '')$$);
SELECT try($$SELECT kb.set_secret('x', E'a\nb')$$);
SELECT kb.drop_secret('local');
SELECT try($$SELECT kb.drop_secret('local')$$);
-- No server, or no key: what check_embedder says. (Port 1 is never open.)
SELECT kb.alter_embedder('prov_ollama', base_url => 'http://127.0.0.1:1',
    config => '{"retry": {"max_attempts": 1}}');
SELECT ok, dimension, problem ~ 'cannot be reached' FROM kb.check_embedder('prov_ollama');
SELECT ok, problem ~ 'secret kb:local does not exist' FROM kb.check_embedder('prov_local');
SELECT ok, problem ~ 'KB_NO_SUCH|OPENAI_API_KEY' FROM kb.check_embedder('prov_openai');
SELECT ok, problem ~ 'kb.secret_dir is not set' FROM kb.check_embedder('prov_gemini');

-- What ingesting would cost, by tiktoken's count; nothing is sent.
SELECT kb.alter_embedder('prov_openai', config => '{"price_per_million_tokens": 1000000, "rpm": 60, "batch_size": 1}');
SELECT kb.create_knowledge_base('prov_kb', 'prov_openai', chunking => '{"strategy": "none"}');
SELECT kb.put_document('prov_kb', 'a', 'hello world');
SELECT kb.put_document('prov_kb', 'b', 'hello again world');
SELECT documents, chunks, tokens, cost, seconds FROM kb.estimate_ingest('prov_kb');
SELECT try($$SELECT * FROM kb.estimate_ingest('nope')$$);
SELECT try($$SELECT * FROM kb.estimate_ingest(NULL)$$);
-- Nothing to acknowledge is no error.
SELECT kb.acknowledge_restore();
SELECT count(*) FROM kb.origins;
SELECT component, status FROM kb.health() WHERE component = 'providers' AND status = 'error';
SELECT kb.drop_knowledge_base('prov_kb');
SELECT count(kb.drop_embedder(id)) FROM kb.embedders WHERE id LIKE 'prov\_%';
