-- The rights of roles, and a comment on what every function takes and returns. This file runs last.

-- Pinned, as in roles.sql.
SELECT pg_catalog.set_config('kb_install.search_path', pg_catalog.current_setting('search_path'), true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA kb FROM PUBLIC;
-- Revokes what the installer's default privileges (ALTER DEFAULT PRIVILEGES) gave to other roles on each
-- object: only the owner has any right until kb grants some below.
DO $$
DECLARE
    grantee pg_catalog.text;
BEGIN
    FOR grantee IN
        SELECT DISTINCT CASE a.grantee WHEN 0::pg_catalog.oid THEN 'PUBLIC'
            ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END
        FROM (SELECT relowner, relacl FROM pg_catalog.pg_class WHERE relnamespace = 'kb'::pg_catalog.regnamespace
              UNION ALL
              SELECT proowner, proacl FROM pg_catalog.pg_proc WHERE pronamespace = 'kb'::pg_catalog.regnamespace
              UNION ALL
              SELECT nspowner, nspacl FROM pg_catalog.pg_namespace WHERE nspname = 'kb') AS o (owner, acl)
        CROSS JOIN LATERAL pg_catalog.aclexplode(o.acl) AS a
        WHERE a.grantee <> o.owner
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON ALL TABLES IN SCHEMA kb FROM %s', grantee);
        EXECUTE pg_catalog.format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA kb FROM %s', grantee);
        EXECUTE pg_catalog.format('REVOKE ALL ON ALL ROUTINES IN SCHEMA kb FROM %s', grantee);
        EXECUTE pg_catalog.format('REVOKE ALL ON SCHEMA kb FROM %s', grantee);
    END LOOP;
END
$$;

GRANT USAGE ON SCHEMA kb TO kb_reader;

GRANT SELECT ON kb.embedders, kb.vector_dbs, kb.knowledge_bases, kb.runs, kb.builds, kb.documents, kb.chunks,
    kb.bm25_segments, kb.jobs, kb.sources, kb.usage, kb.shares, kb.quotas, kb.quota_counts, kb.status, kb.failures, kb.quota_status, kb.memory_stores, kb.memory_entries,
    kb.memories TO kb_reader;
GRANT SELECT ON kb.tenant_roles TO kb_admin;
GRANT SELECT (key_id, name, role_name, tenant_id, scopes, requests_per_minute, expires_at, created_at, created_by, last_used_at)
    ON kb.api_keys TO kb_admin;

-- What a search reads besides the vectors.
GRANT USAGE ON SCHEMA kb TO kb_vectors;
GRANT SELECT ON kb.chunks, kb.documents, kb.shares, kb.memory_entries TO kb_vectors;
GRANT EXECUTE ON FUNCTION kb.current_tenant(), kb.visible_tenants(), kb.readable_tenants() TO kb_vectors;
DO $$
DECLARE
    vector_schema pg_catalog.text := (
        SELECT n.nspname FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
        WHERE e.extname = 'vector');
BEGIN
    IF NOT pg_catalog.has_schema_privilege('kb_vectors', vector_schema, 'USAGE') THEN
        EXECUTE pg_catalog.format('GRANT USAGE ON SCHEMA %I TO kb_vectors', vector_schema);
    END IF;
END
$$;

GRANT EXECUTE ON FUNCTION kb.current_tenant() TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.visible_tenants() TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.readable_tenants() TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.bound_tenants() TO kb_reader;
GRANT EXECUTE ON FUNCTION kb._vector_count(bigint) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb._allowed(text) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb._index_state(bigint) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb._index_progress(bigint) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb._microseconds(text) TO kb_reader, kb_vectors;
GRANT EXECUTE ON FUNCTION kb._in_words(text) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.check_embedder(text) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.embed(text, text[], text) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.count_tokens(text, text) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.default_embedder() TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.chunk(text, jsonb, text, text) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.extract_text(jsonb, jsonb) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.relevant(text, text, integer) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.query(text, text, integer, double precision, jsonb, integer, text, jsonb) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.query_vector TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.query_rows(text, text, integer, double precision, jsonb, integer, text, jsonb) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.query(text[], text, integer, double precision, jsonb, integer, text, jsonb, double precision[]) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.context(text, text, integer, text, integer, double precision, jsonb, text, jsonb) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.context(text[], text, integer, text, integer, double precision, jsonb, text, jsonb, double precision[]) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.annotate(text, uuid[]) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.explain TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.wait(text, double precision) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.wait(bigint, double precision) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.health() TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.estimate_ingest(text) TO kb_reader;
-- Counts of every tenant, without content, for monitoring.
GRANT USAGE ON SCHEMA kb TO pg_monitor;
GRANT EXECUTE ON FUNCTION kb.monitor() TO pg_monitor;
GRANT EXECUTE ON FUNCTION kb.create_knowledge_base(text, text, text, text, jsonb, jsonb, jsonb, jsonb) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.alter_knowledge_base(text, text, text, jsonb, jsonb, jsonb, jsonb, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.drop_knowledge_base(text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.ingest(text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.put_document(text, text, text, jsonb, text, text, text, jsonb) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.put_document(text, text, bytea, jsonb, text, text, text, jsonb) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.put_documents(text, jsonb[]) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.put_objects(text, jsonb[], jsonb) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.sync_documents(text, jsonb[], text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.put_file(text, text, bytea, text, jsonb, text, text, text, jsonb) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.delete_document(text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.delete_documents(text, text[]) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.delete_by_filter(text, jsonb) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.retry(text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.create_memory(text, text, jsonb, text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.alter_memory(text, jsonb) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.drop_memory(text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.remember(text, text, text, text[], double precision, jsonb, timestamptz, timestamptz, timestamptz, text, text, text, text, integer, integer, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.remember(text, jsonb[]) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.touch(text, text[]) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.forget(text, text[], text, jsonb) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.consolidate_memories(text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.tools(text, jsonb) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.call_tool(text, jsonb, jsonb) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.recall TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.recall_by_tags TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.share(text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.unshare(text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.refuse_share(text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.row_status(regclass, text) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.attach_table(text, regclass, text, text, text[], text, text, text, text, boolean, jsonb, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.detach_table(text, regclass, boolean) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.reconcile(text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.create_source(text, text, text, jsonb) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.alter_source(text, text, jsonb, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.drop_source(text, text, boolean, text) TO kb_writer;
-- A restore of a dump creates the triggers again.
GRANT EXECUTE ON FUNCTION kb._rows_changed() TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.import_files(text, text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.create_embedder(text, text, text, integer, text, text, jsonb) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.alter_embedder(text, text, integer, text, text, jsonb, text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.drop_embedder(text, text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.set_secret(text, text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.drop_secret(text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.acknowledge_restore() TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.bind_role(text, text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.move_knowledge_base(text, text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.set_quota(text, bigint, bigint, bigint, bigint, bigint, bigint, bigint, bigint) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.unbind_role(text, text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.create_vector_db(text, text, integer, text, jsonb) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.drop_vector_db(text, text) TO kb_admin;

COMMENT ON FUNCTION kb.create_embedder(text, text, text, integer, text, text, jsonb) IS
    'Creates an embedder, which is a model at a provider. provider: local, hash, openai, azure_openai, ollama, huggingface, gemini, vertex, cohere, voyage, jina, mistral or http. model: the model''s name; for local, a directory under kb.model_dir. dimension: numbers per vector, by default the model''s. base_url: the provider''s address. secret: a reference to a key (env:NAME, file:NAME or kb:NAME), never the key itself. config: prefixes, limits, retries and prices. An error lists every problem. Requires kb_admin.';
COMMENT ON FUNCTION kb.alter_embedder(text, text, integer, text, text, jsonb, text) IS
    'Changes properties of an embedder; NULL leaves a property unchanged. A change that would alter the meaning of stored vectors is refused while a knowledge base uses the embedder. Requires kb_admin. if_match: the etag that it must have; another one is an error (SQLSTATE KB412).';
COMMENT ON FUNCTION kb.set_secret(text, text) IS
    'Stores a key under a name, for services whose secret is kb:NAME. It is encrypted if kb.secret_key is set. No role can read it, and it is not dumped. Pass the key as a parameter; if the server logs statements, use env: or file: instead. Requires kb_admin.';
COMMENT ON FUNCTION kb.drop_secret(text) IS
    'Deletes a stored key. Requires kb_admin.';
COMMENT ON FUNCTION kb.acknowledge_restore() IS
    'Allows a restored or cloned database to spend money at remote providers. Requires kb_admin.';
COMMENT ON FUNCTION kb.monitor() IS
    'Returns counts for every knowledge base of every tenant, without content: documents by status, chunks, jobs that are due, delayed and leased, the time since which the oldest job has been waiting (NULL if there is none), and attached tables that cannot be read. Requires pg_monitor.';
COMMENT ON FUNCTION kb.estimate_ingest(text) IS
    'Estimates what kb.ingest would process and send: documents, chunks, tokens, cost (NULL without price_per_million_tokens) and seconds. Sends nothing. If there are more than 200 documents, it measures a sample.';
COMMENT ON FUNCTION kb.drop_embedder(text, text) IS
    'Drops an embedder that nothing uses. Requires kb_admin. if_match: the etag that it must have; another one is an error (SQLSTATE KB412).';
COMMENT ON FUNCTION kb.check_embedder(text) IS
    'Embeds a short text with an embedder, and returns whether that worked, the dimension, the latency in milliseconds, and the problem if it failed.';
COMMENT ON FUNCTION kb.embed(text, text[], text) IS
    'Returns the vectors that an embedder makes of texts, in order, one row each, for kind ''document'' or ''query''. Raises an error if a text is longer than the model reads.';
COMMENT ON FUNCTION kb.default_embedder() IS
    'Returns the id of the embedder that a knowledge base gets which is created without one: that of setting kb.default_embedder, else the first one that was created whose key can be found, else minilm.';
COMMENT ON FUNCTION kb.count_tokens(text, text) IS
    'Returns the number of tokens of a text in an embedder''s own tokenizer (by default kb.default_embedder()), without special tokens.';
COMMENT ON FUNCTION kb.create_vector_db(text, text, integer, text, jsonb) IS
    'Creates a vector table that knowledge bases can share. type: pgvector (HNSW) or memory (unlogged, exact). dimension: 1 to 4000. metric: cosine, l2 or ip. config: {table, m, ef_construction, min_rows, element}. Requires kb_admin.';
COMMENT ON FUNCTION kb.drop_vector_db(text, text) IS
    'Drops a vector table that no knowledge base uses. Requires kb_admin. if_match: the etag that it must have; another one is an error (SQLSTATE KB412).';
COMMENT ON FUNCTION kb.create_knowledge_base(text, text, text, text, jsonb, jsonb, jsonb, jsonb) IS
    'Creates a knowledge base of the current tenant. Defaults: the embedder kb.default_embedder(), a vector table of its own, chunking {strategy recursive, size 800 tokens or as many as the model reads, overlap 15 %}, preprocess {dedupe true, remove_html true, language english}, retrieval {mode dense, top_k 5, min_score 0, on_error error}. An error lists every problem.';
COMMENT ON FUNCTION kb.alter_knowledge_base(text, text, text, jsonb, jsonb, jsonb, jsonb, text) IS
    'Replaces settings of a knowledge base, each object as a whole; NULL leaves a setting unchanged. Retrieval, description and metadata take effect immediately; embedder, chunking and preprocess take effect with the next kb.ingest. if_match: the etag that it must have; another one is an error (SQLSTATE KB412).';
COMMENT ON FUNCTION kb.drop_knowledge_base(text, text) IS
    'Drops a knowledge base with its documents, chunks and vectors. if_match: the etag that it must have; another one is an error (SQLSTATE KB412).';
COMMENT ON FUNCTION kb.move_knowledge_base(text, text) IS
    'Moves a knowledge base of the session''s tenant to another tenant when the transaction commits, with its documents, chunks, vectors, jobs, runs, evaluation sets, attached tables and shares. The ids of chunks do not change. Requires kb_admin and a role that is not bound to tenants.';
COMMENT ON FUNCTION kb.ingest(text, text) IS
    'Processes the documents of a knowledge base, starts a run of each of its sources (kb.create_source), and returns the number of the run. Strategy upsert processes documents that are not ready or were processed under other settings; replace processes all of them into a new build, which replaces the live one in a single commit. A change of embedder is always a replace.';
COMMENT ON FUNCTION kb.put_document(text, text, text, jsonb, text, text, text, jsonb) IS
    'Stores a document under an external_id, and returns added, updated or skipped (unchanged). The content type is determined from content_type, else from the extension of external_id or uri, else from the text. chunking: as that of a knowledge base, for this document; NULL leaves it unchanged, and an empty object removes it. The document can be found once the worker has processed it; see kb.wait.';
COMMENT ON FUNCTION kb.put_document(text, text, bytea, jsonb, text, text, text, jsonb) IS
    'Stores a document given as bytes, which must be UTF-8, under an external_id, and returns added, updated or skipped (unchanged). The content type is determined from content_type, else from the extension of external_id or uri, else from the text. chunking: as that of a knowledge base, for this document; NULL leaves it unchanged, and an empty object removes it. The document can be found once the worker has processed it; see kb.wait. The argument is called bytes, so that callers by name (PostgREST) can tell this function from the one that takes text.';
COMMENT ON FUNCTION kb.put_documents(text, jsonb[]) IS
    'Stores documents given as {external_id, content, metadata, title, content_type, uri, chunking}, all or none, and returns added, updated or skipped for each.';
COMMENT ON FUNCTION kb.sync_documents(text, jsonb[], text) IS
    'Stores documents as kb.put_documents does, and deletes all others whose external_id begins with scope; each of the documents must begin with it. An empty scope stands for all documents of the knowledge base. Documents of sources, of attached tables and of other tenants remain. Returns the numbers of documents that were added, updated, skipped (unchanged) and deleted.';
COMMENT ON FUNCTION kb.put_file(text, text, bytea, text, jsonb, text, text, text, jsonb) IS
    'Stores a file of any format under an external_id, and returns added, updated or skipped (unchanged). The worker finds out what the file is (by its bytes, else by content_type, else by the extension of filename) and extracts its text, title and metadata; a file that cannot be read is listed in kb.failures. filename is uri, or else external_id, by default. chunking: as that of a knowledge base, for this document; NULL leaves it unchanged, and an empty object removes it. The document can be found once the worker has processed it; see kb.wait.';
COMMENT ON FUNCTION kb.delete_document(text, text) IS
    'Deletes a document with its chunks and vectors when the transaction commits. Returns false if it did not exist.';
COMMENT ON FUNCTION kb.delete_documents(text, text[]) IS
    'Deletes documents when the transaction commits, and returns deleted or not found for each id.';
COMMENT ON FUNCTION kb.delete_by_filter(text, jsonb) IS
    'Deletes the documents that pass a filter when the transaction commits, and returns their number. A filter that all documents pass is refused.';
COMMENT ON FUNCTION kb.retry(text, text) IS
    'Puts failed documents, or the named one, back into the queue, and returns their number.';
COMMENT ON FUNCTION kb.create_memory(text, text, jsonb, text, text) IS
    'Creates a memory, which is a knowledge base of facts, for the session''s tenant. settings: retrieval (max_results 10, min_score 0.6, mode hybrid, count_accesses true), decay (enabled true, half_life_days 90), retention (auto_archive_days 180), llm (a chat model) and extraction (strategy, prompt, max_facts, rest_seconds: which facts it extracts from conversations, and when); an error lists every problem.';
COMMENT ON FUNCTION kb.alter_memory(text, jsonb) IS
    'Replaces the settings of a memory; what is not given gets its default.';
COMMENT ON FUNCTION kb.drop_memory(text) IS
    'Drops a memory with its entries.';
COMMENT ON FUNCTION kb.remember(text, text, text, text[], double precision, jsonb, timestamptz, timestamptz, timestamptz, text, text, text, text, integer, integer, text) IS
    'Stores a fact and returns the id of its entry. The same fact of the same subject is stored once. confidence: from 0 to 1, by default 1. valid_from: by default now. supersedes: the id of an entry of the same subject, which ceases to hold when this one begins. id: an entry that exists is replaced; by default made of subject and fact. source_conversation_id, source_turn_id: where it was said; source_start, source_end: the characters of the turn''s text that say it.';
COMMENT ON FUNCTION kb.remember(text, jsonb[]) IS
    'Stores facts: objects with fact and, optionally, the other arguments of kb.remember. Returns for each the id of its entry, and added, updated or skipped.';
COMMENT ON FUNCTION kb.touch(text, text[]) IS
    'Counts that entries of a memory were used, from when on their scores decay again. (A recall is counted by the worker.) Returns how many of them there are.';
COMMENT ON FUNCTION kb.forget(text, text[], text, jsonb) IS
    'Deletes the entries with these ids, or those of a subject, or those that pass a filter on their metadata, or both. Returns how many were forgotten (with those that had been merged into them), how many derived ones were deleted because a forgotten one had been merged into them, and how many others, merged into those, count on their own again.';
COMMENT ON FUNCTION kb.consolidate_memories(text) IS
    'Has the worker merge related entries of each subject of a memory: the memory''s chat model is asked about each group of similar ones. They stay, and point to the new entry, which is recalled in their place. Returns how many entries are new since that was done last; if none is, nothing is asked.';
COMMENT ON FUNCTION kb.tools(text, jsonb) IS
    'Returns the definitions of the tools for language models, as an array. format: openai or mcp. options: those of kb.call_tool, by which only tools that have something to work on are returned.';
COMMENT ON FUNCTION kb.call_tool(text, jsonb, jsonb) IS
    'Runs a tool (memory_store, memory_search, file_search, search_semantic_knowledge) with the arguments that a model wrote, and returns its result; if the arguments are wrong, an object with the member error. options: memory, subject, knowledge_bases, allowed_metadata_keys, max_results 10, min_score 0.5, max_tokens 4000.';
COMMENT ON FUNCTION kb.recall IS
    'Returns the entries of a memory that answer a question, the best first. score: the similarity, from 0 to 1, times 1 - 0.5 / half_life_days * days since the last access; NULL where no vectors were compared. min_score bounds it. tags: an entry has all of them. as_of: what held at that time; by default now. archived: also entries that were not accessed for auto_archive_days. If the embedder cannot be asked, words answer, and locator says so.';
COMMENT ON FUNCTION kb.recall_by_tags IS
    'Returns the entries of a memory that have all of these tags, the newest first.';
COMMENT ON FUNCTION kb.chunk(text, jsonb, text, text) IS
    'Splits a text into chunks under the given chunking settings, and returns content, tokens, start_char (from 0), end_char (exclusive) and headings. Stores nothing.';
COMMENT ON FUNCTION kb.query(text, text, integer, double precision, jsonb, integer, text, jsonb) IS
    'Returns the chunks of a knowledge base that answer a question, best first: at most top_k rows, whose score (a similarity; larger is nearer; 0 to 1 for cosine) is at least min_score and whose documents pass filter. A row that does not fit into the part of max_tokens that better rows leave is left out. NULL means the setting of the knowledge base. mode: dense (by meaning), keyword (by words, with BM25; supports "quoted phrases" and -exclusions; no score) or hybrid (both, fused). options: retrieval settings for this call; with explain, locator has the ranks.';
COMMENT ON FUNCTION kb.query(text[], text, integer, double precision, jsonb, integer, text, jsonb, double precision[]) IS
    'Asks several knowledge bases as kb.query does, and returns their rows in one order, rows of equal text once. Rows whose vectors have the same fingerprint and metric are ordered by similarity, in mode hybrid also by the words that they contain; rows that cannot be compared are ordered by rank. weights: the weight of each of kb_ids, in their order. kb_id: the knowledge base of the row.';
COMMENT ON FUNCTION kb.context(text, text, integer, text, integer, double precision, jsonb, text, jsonb) IS
    'Returns the answer of kb.query as one text for a prompt (context): numbered blocks with title, uri, headings and character positions, with adjacent chunks joined, and with at most max_tokens in total. chunk_ids: the chunks, as kb.annotate takes them. blocks: an array of objects with kb_id, external_id, title, uri, chunk_ids, score, rank_score, start_char, end_char, truncated and metadata. tokens: the length of the text. truncated: whether the best block was cut. format: markdown, xml, json or list.';
COMMENT ON FUNCTION kb.context(text[], text, integer, text, integer, double precision, jsonb, text, jsonb, double precision[]) IS
    'Returns the answer of several knowledge bases, in the order of kb.query, as one text for a prompt.';
COMMENT ON FUNCTION kb.explain(text, text, integer, double precision, jsonb, integer, text, jsonb, text, uuid) IS
    'Explains how kb.query answers a question: settings, scans, candidates of each leg and stage, what was left out and why, and the milliseconds of each step. For external_id or chunk_id, it says why that is not in the answer. Rows that the caller may not read are treated as absent.';
COMMENT ON FUNCTION kb.annotate(text, uuid[]) IS
    'Finds the spans of an answer that quote the given chunks, and returns an array of file_citation annotations: index, start_index, end_index (characters), file_id (external_id), filename (title), chunk_id and quote. Chunks that the caller may not read are ignored.';
COMMENT ON FUNCTION kb.query_vector IS
    'Does the same as kb.query for a vector instead of a question.';
COMMENT ON FUNCTION kb.current_tenant() IS
    'Returns the tenant that this session acts for: setting kb.tenant, or if it is not set, '''' or the only tenant that the session''s roles are bound to. Raises an error if they are bound to other tenants.';
COMMENT ON FUNCTION kb.visible_tenants() IS
    'Returns the tenants all of whose rows this session may read: its own and ''shared''.';
COMMENT ON FUNCTION kb.readable_tenants() IS
    'Returns the tenants some of whose rows this session may read: its own, ''shared'', and those that share a knowledge base with it.';
COMMENT ON FUNCTION kb.bound_tenants() IS
    'Returns the tenants that this session may act for (see kb.bind_role), sorted; NULL means any tenant.';
COMMENT ON FUNCTION kb.bind_role(text, text) IS
    'Binds a role, and all roles that have its privileges, to a tenant. They may then act only for the tenants that they are bound to. Returns false if the role was already bound to the tenant. Requires kb_admin and a role that is not bound to tenants.';
COMMENT ON FUNCTION kb.unbind_role(text, text) IS
    'Removes the binding of a role to a tenant (NULL: to all tenants), and returns the number of bindings removed. A role without bindings may act for any tenant. Requires kb_admin and a role that is not bound to tenants.';
COMMENT ON FUNCTION kb.share(text, text) IS
    'Lets another tenant read a knowledge base: query it, and read those of its documents that belong to the tenant that owns it. Returns false if it was already shared with that tenant.';
COMMENT ON FUNCTION kb.unshare(text, text) IS
    'Stops sharing a knowledge base with a tenant when the transaction commits. Returns false if it was not shared with that tenant.';
COMMENT ON FUNCTION kb.refuse_share(text, text) IS
    'Stops the sharing of a knowledge base of tenant owner with the session''s tenant when the transaction commits. Returns false if it was not shared with it.';
COMMENT ON FUNCTION kb.set_quota(text, bigint, bigint, bigint, bigint, bigint, bigint, bigint, bigint) IS
    'Sets the quota of a tenant: bytes of all that it stores, documents in one knowledge base, bytes of one document, knowledge bases, tokens per day at remote endpoints, attached tables, indexed metadata keys, and entries of memories. NULL means no limit, or the limit of the settings kb.tenant_*. What already exceeds the quota is kept. Requires kb_admin and a role that is not bound to tenants.';
COMMENT ON FUNCTION kb._tables_altered() IS
    'Internal: records that attached tables or their partitions were created, altered or dropped.';
COMMENT ON FUNCTION kb._watched_changed() IS
    'Internal: notifies all sessions that bindings, shares or quotas have changed.';
COMMENT ON FUNCTION kb.wait(text, double precision) IS
    'Waits until no committed document of a knowledge base is waiting to be processed, for at most timeout seconds (NULL: without limit). Raises an error if it would wait for uncommitted work of its own transaction.';
COMMENT ON FUNCTION kb.wait(bigint, double precision) IS
    'Waits until a run of kb.ingest has ended.';
COMMENT ON FUNCTION kb.health() IS
    'Reports the state of pgvector, preload, gateway, providers, documents, failures, sources, tables, indexes, recall, grants, worker, processes, models and extractor: what is wrong, and what to do about it.';
COMMENT ON FUNCTION kb.attach_table(text, regclass, text, text, text[], text, text, text, text, boolean, jsonb, text) IS
    'Makes the rows of a table documents of a knowledge base, and keeps them up to date. content: names of columns ({title, body}), or a template ({{title}}: {{body}}). published_when: a condition on the row; other rows are absent. metadata: columns that become metadata. tenant, title, uri, content_type: columns that supply these properties. replicated: whether to include rows that logical replication writes. json_fields: the values of JSON columns that make up the text ({include, exclude}, lists of paths, and members), and those for rows of other types ({type_column, types}). adopt: a column with vectors that the embedder''s model has made of the existing rows; a row that becomes a single chunk is not embedded again. The primary key is the external_id. For a table that is already attached, changes how it is read. Returns the source_no. Requires kb_writer and ownership of the table.';
COMMENT ON FUNCTION kb.extract_text(jsonb, jsonb) IS
    'Returns the text of a JSON document: the values at the paths of fields ({include, exclude, members}); without include, the members text, content, description, title, summary, body and name that have text, joined by spaces in this order (with members first, only the first one that has text, content before text); otherwise every string with the names that lead to it, sorted.';
COMMENT ON FUNCTION kb.put_objects(text, jsonb[], jsonb) IS
    'Stores JSON objects, either all or none, each as a document whose text is what kb.extract_text returns for the object (fields: the same as there), and whose metadata is the object. The external_id is its member id or external_id, or else a hash of the object. Equal objects are stored once. Returns added, updated or skipped for each document.';
COMMENT ON FUNCTION kb.relevant(text, text, integer) IS
    'Returns the texts of at most limit rows of kb.query, in their order. If the question cannot be embedded, they are found by words, whatever the setting on_error of the knowledge base is. NULL for limit: the setting top_k of the knowledge base.';
COMMENT ON FUNCTION kb.create_source(text, text, text, jsonb) IS
    'Creates a source of a knowledge base, whose files, pages, objects or rows become documents with each kb.ingest, and returns its number. If a source with this name, type and config exists, it returns that. type: files (of any format), markdown_glob, git, url, media_transcript, s3, gcs, azure, cloud_storage or query. config: for files and markdown_glob, path (a pattern of files beneath a directory of kb.source_dirs, in which ** stands for any directories); for git, path (of a repository), ref and globs; for url, urls, sitemap, crawl, robots, rate and timeout_ms; for media_transcript, path or urls; for a bucket, bucket, prefix, globs, endpoint, region and secret; for query, query (a SELECT of external_id, content and optionally title, uri, metadata and updated_at, which is run with the rights of the caller). For all: every (an interval after which a run begins by itself, or a cron expression in UTC), cleanup (incremental: documents are deleted that a complete listing no longer has; full: and everything is read again; none) and metadata (an object that each document gets). The external_id of a document is the name of the source, a slash, and the path, address, key or external_id of what is read. Only kb_admin may create sources of types other than query.';
COMMENT ON FUNCTION kb.import_files(text, text) IS
    'Reads the files that a path matches (a pattern of files beneath a directory of kb.source_dirs) once, in the transaction of the caller, and puts them as documents of no source, whose external_id is the path beneath that directory. Returns the numbers of files that were added, updated, skipped (unchanged) and failed; a WARNING names the first of the latter. Requires kb_admin.';
COMMENT ON FUNCTION kb.alter_source(text, text, jsonb, text) IS
    'Replaces the config of a source as a whole; the next run follows it. Only kb_admin may alter sources of types other than query. if_match: the etag that it must have; another one is an error (SQLSTATE KB412).';
COMMENT ON FUNCTION kb.drop_source(text, text, boolean, text) IS
    'Drops a source. Its documents are deleted or, if delete_documents is false, stay as if they had been put. Returns their number. if_match: the etag that it must have; another one is an error (SQLSTATE KB412).';
COMMENT ON FUNCTION kb.detach_table(text, regclass, boolean) IS
    'Detaches a table from a knowledge base. Its documents are deleted; with keep, they remain as if they had been put. Returns their number.';
COMMENT ON FUNCTION kb.reconcile(text) IS
    'Compares the tables attached to a knowledge base with their documents, and repairs differences, such as those that arise while triggers are disabled. Returns for each table the number of published rows, of rows without a document (missing), of rows with a document of another text (changed), and of documents without such a row (orphaned).';
COMMENT ON FUNCTION kb.query_rows(text, text, integer, double precision, jsonb, integer, text, jsonb) IS
    'Does the same as kb.query, and returns the current rows of attached tables as the caller sees them: their key and the row itself as JSON objects. Rows that the caller may not read are left out. Key and row are NULL for documents that were put.';
COMMENT ON FUNCTION kb.row_status(regclass, text) IS
    'Returns the status of a row of an attached table, given its external_id, in each of its knowledge bases: absent, pending, ready, stale (an older version is still returned) or failed, and the time since which it has that status.';
COMMENT ON FUNCTION kb._rows_changed() IS
    'Internal: called by the triggers of attached tables.';
COMMENT ON FUNCTION kb._microseconds(text) IS
    'Returns the microseconds since 1970 of an ISO 8601 timestamp or date (UTC if it has no offset), and NULL for any other text. Filters use it for comparisons.';
COMMENT ON FUNCTION kb._in_words(text) IS
    'Internal: returns the form of a text in which quoted phrases are searched for.';
COMMENT ON FUNCTION kb._terms(text, text) IS
    'Internal: returns the words of a text under a text search configuration, in the form of kb.chunks.terms.';
COMMENT ON FUNCTION kb._allowed(text) IS
    'Internal: returns how many knowledge_bases, attached_tables or metadata_indexes the session''s tenant may have; NULL means no limit.';
COMMENT ON FUNCTION kb._vector_count(bigint) IS
    'Internal: returns the number of vectors of a build, if the caller may see the build.';
COMMENT ON FUNCTION kb._delete_vectors(bigint, uuid[]) IS
    'Internal: deletes the vectors of deleted chunks of a build.';
COMMENT ON FUNCTION kb._delete_vectors(bigint, text) IS
    'Internal: deletes the vectors of a deleted build from its vector table.';
COMMENT ON FUNCTION kb._index_state(bigint) IS
    'Internal: returns how many segments of a build''s vector table have an index, and how many of its vectors have none.';
COMMENT ON FUNCTION kb._index_progress(bigint) IS
    'Internal: describes the index that is being built on a build''s vector table, if the caller may see the build and no other knowledge base uses the table.';
COMMENT ON FUNCTION kb._fingerprint(text, text, integer, jsonb) IS
    'Internal: returns an embedder''s fingerprint.';

-- Rerankers, chat models and extractors.
GRANT EXECUTE ON FUNCTION kb.check_reranker(text) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.check_llm(text) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.check_extractor(text) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.create_reranker(text, text, text, text, text, jsonb) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.alter_reranker(text, text, text, text, jsonb, text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.drop_reranker(text, text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.create_llm(text, text, text, text, text, jsonb) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.alter_llm(text, text, text, text, jsonb, text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.drop_llm(text, text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.create_extractor(text, text, text, text, text, jsonb) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.alter_extractor(text, text, text, text, jsonb, text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.drop_extractor(text, text) TO kb_admin;
GRANT SELECT ON kb.rerankers, kb.llms, kb.extractors TO kb_reader;
COMMENT ON FUNCTION kb.create_reranker(text, text, text, text, text, jsonb) IS
    'Creates a reranker. provider: local, llm, cohere, voyage, jina or tei. model: the model''s name; for local, a directory under kb.model_dir with a BERT cross-encoder. base_url: the provider''s address. secret: a reference to a key (env:NAME, file:NAME or kb:NAME), never the key itself. config: max_chars, batch_size, limits, retries and prices; for llm also llm, the id of a chat model, and scoring, batch or single. An error lists every problem. Requires kb_admin.';
COMMENT ON FUNCTION kb.alter_reranker(text, text, text, text, jsonb, text) IS
    'Changes properties of a reranker; NULL leaves a property unchanged. A secret remains bound to the host for which it was given. Requires kb_admin. if_match: the etag that it must have; another one is an error (SQLSTATE KB412).';
COMMENT ON FUNCTION kb.drop_reranker(text, text) IS
    'Drops a reranker that no knowledge base uses. Requires kb_admin. if_match: the etag that it must have; another one is an error (SQLSTATE KB412).';
COMMENT ON FUNCTION kb.check_reranker(text) IS
    'Lets a reranker score two texts, and returns whether that worked, how many milliseconds it took, and the problem if it failed.';
COMMENT ON FUNCTION kb.create_llm(text, text, text, text, text, jsonb) IS
    'Creates a chat model. provider: openai, ollama, anthropic or gemini. model: the model''s name. base_url: the provider''s address, or that of another server that speaks the protocol of openai. secret: a reference to a key, never the key itself. config: temperature, max_output_tokens, limits, retries and prices. An error lists every problem. Requires kb_admin.';
COMMENT ON FUNCTION kb.alter_llm(text, text, text, text, jsonb, text) IS
    'Changes properties of a chat model; NULL leaves a property unchanged. A secret remains bound to the host for which it was given. Requires kb_admin. if_match: the etag that it must have; another one is an error (SQLSTATE KB412).';
COMMENT ON FUNCTION kb.drop_llm(text, text) IS
    'Drops a chat model that no reranker and no knowledge base uses. Requires kb_admin. if_match: the etag that it must have; another one is an error (SQLSTATE KB412).';
COMMENT ON FUNCTION kb.check_llm(text) IS
    'Asks a chat model for one word, and returns whether that worked, how many milliseconds it took, and the problem if it failed.';
COMMENT ON FUNCTION kb.create_extractor(text, text, text, text, text, jsonb) IS
    'Creates an extractor: a service that finds the text of files which kb cannot read, such as images. A knowledge base names it for content types (preprocess, key extractors). provider: tika, docling, unstructured or http. base_url: the service''s address. model: only for provider http, whose template can contain it. secret: a reference to a key (env:NAME, file:NAME or kb:NAME), never the key itself. config: form, text_type, how provider http sends a file and finds the text, limits, retries and prices. An error lists every problem (SQLSTATE 22023). Requires kb_admin.';
COMMENT ON FUNCTION kb.alter_extractor(text, text, text, text, jsonb, text) IS
    'Changes properties of an extractor; NULL leaves a property unchanged. A secret remains bound to the host for which it was given. kb.ingest reads files again whose text the change may affect. Requires kb_admin. if_match: the etag that it must have; another one is an error (SQLSTATE KB412).';
COMMENT ON FUNCTION kb.drop_extractor(text, text) IS
    'Drops an extractor that no knowledge base uses. Requires kb_admin. if_match: the etag that it must have; another one is an error (SQLSTATE KB412).';
COMMENT ON FUNCTION kb.check_extractor(text) IS
    'Sends an extractor a small image of the word "yes", and returns whether it answered, how many milliseconds it took, and the problem if it failed.';
GRANT SELECT ON kb.metadata_indexes TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.index_metadata(text, text, text), kb.unindex_metadata(text, text, text) TO kb_writer;
COMMENT ON FUNCTION kb.index_metadata(text, text, text) IS
    'Creates an index on the values of type text, number or timestamp of a metadata key, which filters of the knowledge base use for range comparisons (gt, gte, lt, lte). Returns false if the key is already indexed. The index is built soon after the commit, without blocking writes.';
COMMENT ON FUNCTION kb.unindex_metadata(text, text, text) IS
    'Removes the index on a metadata key (type NULL: the indexes of every type), and returns how many there were. An index is dropped when no knowledge base needs it any more.';
-- Measurements.
GRANT SELECT ON kb.eval_sets, kb.eval_questions, kb.index_recall TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.evaluate(text, text, jsonb[]), kb.evaluate_questions(text, text, jsonb[]) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.create_eval_set(text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.drop_eval_set(text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.put_eval_question(text, text, text, text, jsonb, jsonb) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.delete_eval_question(text, text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.load_eval(text, text, text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.tune(text, text, boolean, integer, integer) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.measure_recall(text, integer, text) TO kb_writer;
COMMENT ON FUNCTION kb.create_eval_set(text, text) IS
    'Creates an evaluation set of a knowledge base, without questions.';
COMMENT ON FUNCTION kb.drop_eval_set(text, text) IS
    'Drops an evaluation set with its questions.';
COMMENT ON FUNCTION kb.put_eval_question(text, text, text, text, jsonb, jsonb) IS
    'Adds a question to an evaluation set, or replaces the question with that id. relevant: an array of external_ids, or of objects {external_id, grade, start, end}. grade defaults to 1, and a document is relevant from grade 1 on. start (from 0) and end (exclusive) are character positions in the document''s text. filter: as for kb.query.';
COMMENT ON FUNCTION kb.delete_eval_question(text, text, text) IS
    'Deletes a question of an evaluation set. Returns false if it has no question with that id.';
COMMENT ON FUNCTION kb.load_eval(text, text, text, text) IS
    'Loads a data set in the format of BEIR into an evaluation set, which is created if it does not exist: the contents of queries.jsonl (_id, text) and of qrels.tsv (query-id, corpus-id, score). Queries without judgements are left out. Returns the number of questions loaded.';
COMMENT ON FUNCTION kb.evaluate(text, text, jsonb[]) IS
    'Asks the questions of an evaluation set once for each set of options, and measures the answers as trec_eval does. option_sets: options of kb.query, and k (default 10); NULL means the settings of the knowledge base. Returns the means of recall, precision, ndcg and hit_rate at k, and of mrr; ann_recall: the fraction of the rows of an exact search that the index finds; p50_ms and p95_ms: the time of a question without its embedding; unanswered: the number of questions without any row. k counts documents, or rows for a question whose judgements have start and end.';
COMMENT ON FUNCTION kb.evaluate_questions(text, text, jsonb[]) IS
    'Does the same as kb.evaluate, and returns a row for each question and set of options (option_set: its number, from 1), so that settings can be compared question by question.';
COMMENT ON FUNCTION kb.tune(text, text, boolean, integer, integer) IS
    'Measures the current settings of a knowledge base, modes dense and keyword, and hybrid with several weights, by an evaluation set, and proposes the one with the best nDCG at k (default 10) if cross-validation shows that the gain is not due to chance. top_k: the number of chunks to ask for. With apply, the proposal becomes the retrieval settings of the knowledge base.';
COMMENT ON FUNCTION kb.measure_recall(text, integer, text) IS
    'Compares the index of a knowledge base with exact search, by the vectors of sample chunks, or with source log by sample questions of the session''s tenant in kb.query_log, which are embedded again. Returns recall, the number of vectors compared, and the ef_search used (NULL if there is no index, so that every search is exact). Stores the result in kb.index_recall for kb.health. If ef_search is auto, chooses the least one with a recall of 0.97.';
-- Bindings.
GRANT SELECT ON kb.bindings TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.bind(text, text, integer, double precision, integer, text, text, jsonb, boolean) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.unbind(text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.resolve_bindings(text[]) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.retrieve_context(text[], text) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.prompt_context(text[], text, text, integer) TO kb_reader;
COMMENT ON FUNCTION kb.bind(text, text, integer, double precision, integer, text, text, jsonb, boolean) IS
    'Binds a knowledge base to a scope: project, workflow:NAME, task:NAME or agent:NAME. id_ref: the name of the knowledge base, which need not exist yet. top_k, min_score, max_tokens, filter: as for kb.query; NULL means the value of a wider scope, or else the setting of the knowledge base. fallback: the text that is used if nothing qualifies. inject_as: the name under which the text enters a prompt. replace: whether a binding of this name that the scope has is replaced at its place; otherwise it is an error (SQLSTATE 42710).';
COMMENT ON FUNCTION kb.unbind(text, text) IS
    'Removes a binding from a scope. Returns false if the scope has none of this name.';
COMMENT ON FUNCTION kb.resolve_bindings(text[]) IS
    'Returns the bindings that apply in these scopes, of which there may be one for the project, a workflow, a task and an agent. Bindings of the same name are merged: a narrower scope overrides the values of a wider one, filters in the short form are merged key by key, and a filter with operators replaces the other one. kb_id: the knowledge base that is meant, which is the own one of the agent, task or workflow (agent:NAME/id_ref) if it exists; NULL if the caller can read none. scopes: the scopes that have the binding. Rows come in the order in which names appear first.';
COMMENT ON FUNCTION kb.retrieve_context(text[], text) IS
    'Asks the knowledge bases that are bound in these scopes, and returns their rows in the order of the bindings, best first. If the rows of one have more tokens than max_tokens, those with the lowest scores are left out. A binding for which nothing qualifies, or whose knowledge base fails, has one row with its fallback; metadata then has fallback and, after a failure, error and sqlstate. Without a fallback, it has no row, or after a failure a row without content.';
COMMENT ON FUNCTION kb.prompt_context(text[], text, text, integer) IS
    'Asks as kb.retrieve_context does, and returns one text for each name in inject_as (context, if a binding has none) with numbered passages and their sources. format: markdown, xml, json or list. max_tokens: the most tokens of all texts together; passages with the lowest scores are left out. A text without passages consists of the fallbacks of its bindings.';
-- Resources with their etags.
GRANT EXECUTE ON FUNCTION kb.get_knowledge_base(text, text), kb.get_embedder(text, text), kb.get_vector_db(text, text), kb.get_llm(text, text), kb.get_reranker(text, text), kb.get_extractor(text, text) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.list_knowledge_bases(integer, text), kb.list_embedders(integer, text), kb.list_vector_dbs(integer, text), kb.list_llms(integer, text), kb.list_rerankers(integer, text), kb.list_extractors(integer, text) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.get_source(text, text, text), kb.list_sources(text, integer, text) TO kb_reader;
COMMENT ON FUNCTION kb.get_knowledge_base(text, text) IS
    'Returns a knowledge base as a JSON object: its id, its properties under the names of kb.create_knowledge_base, its sources, metadata indexes and shares, and its etag, which changes with everything else in the object. Returns NULL if the etag is if_none_match.';
COMMENT ON FUNCTION kb.list_knowledge_bases(integer, text) IS
    'Returns a page of knowledge bases in the order of their ids, as {items, next_cursor}; an item is what kb.get_knowledge_base returns. limit: the most items, from 1 to 1000 (default 100). cursor: next_cursor of the page before. next_cursor is null on the last page.';
COMMENT ON FUNCTION kb.get_embedder(text, text) IS
    'Returns an embedder as a JSON object: its id, its properties under the names of kb.create_embedder, and its etag, which changes with everything else in the object. Returns NULL if the etag is if_none_match.';
COMMENT ON FUNCTION kb.list_embedders(integer, text) IS
    'Returns a page of embedders in the order of their ids, as {items, next_cursor}; an item is what kb.get_embedder returns. limit: the most items, from 1 to 1000 (default 100). cursor: next_cursor of the page before. next_cursor is null on the last page.';
COMMENT ON FUNCTION kb.get_vector_db(text, text) IS
    'Returns a vector database as a JSON object: its id, its properties under the names of kb.create_vector_db, and its etag, which changes with everything else in the object. Returns NULL if the etag is if_none_match.';
COMMENT ON FUNCTION kb.list_vector_dbs(integer, text) IS
    'Returns a page of vector databases in the order of their ids, as {items, next_cursor}; an item is what kb.get_vector_db returns. limit: the most items, from 1 to 1000 (default 100). cursor: next_cursor of the page before. next_cursor is null on the last page.';
COMMENT ON FUNCTION kb.get_llm(text, text) IS
    'Returns a chat model as a JSON object: its id, its properties under the names of kb.create_llm, and its etag, which changes with everything else in the object. Returns NULL if the etag is if_none_match.';
COMMENT ON FUNCTION kb.list_llms(integer, text) IS
    'Returns a page of chat models in the order of their ids, as {items, next_cursor}; an item is what kb.get_llm returns. limit: the most items, from 1 to 1000 (default 100). cursor: next_cursor of the page before. next_cursor is null on the last page.';
COMMENT ON FUNCTION kb.get_reranker(text, text) IS
    'Returns a reranker as a JSON object: its id, its properties under the names of kb.create_reranker, and its etag, which changes with everything else in the object. Returns NULL if the etag is if_none_match.';
COMMENT ON FUNCTION kb.list_rerankers(integer, text) IS
    'Returns a page of rerankers in the order of their ids, as {items, next_cursor}; an item is what kb.get_reranker returns. limit: the most items, from 1 to 1000 (default 100). cursor: next_cursor of the page before. next_cursor is null on the last page.';
COMMENT ON FUNCTION kb.get_extractor(text, text) IS
    'Returns an extractor as a JSON object: its id, its properties under the names of kb.create_extractor, and its etag, which changes with everything else in the object. Returns NULL if the etag is if_none_match.';
COMMENT ON FUNCTION kb.list_extractors(integer, text) IS
    'Returns a page of extractors in the order of their ids, as {items, next_cursor}; an item is what kb.get_extractor returns. limit: the most items, from 1 to 1000 (default 100). cursor: next_cursor of the page before. next_cursor is null on the last page.';
COMMENT ON FUNCTION kb.get_source(text, text, text) IS
    'Returns a source of a knowledge base as a JSON object: name, type, the members of its configuration, and its etag. An attached table is named by its schema and name. Returns NULL if the etag is if_none_match.';
COMMENT ON FUNCTION kb.list_sources(text, integer, text) IS
    'Returns a page of the sources of a knowledge base in the order of their names, as {items, next_cursor}; an item is what kb.get_source returns. limit: the most items, from 1 to 1000 (default 100). cursor: next_cursor of the page before.';
-- What is declared in a file.
GRANT EXECUTE ON FUNCTION kb.apply(text, boolean, boolean, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.export(text, text) TO kb_reader;
COMMENT ON FUNCTION kb.apply(text, boolean, boolean, text) IS
    'Makes what a YAML file declares: llms, embedders, rerankers, extractors, vector_dbs, knowledge_bases with sources, tables, metadata_indexes and shared_with, memories, quotas, and the bindings of a project, its workflows, tasks and agents. What exists is changed to be as declared; what the file does not name stays. dry_run: everything is undone. prune: what the current tenant has besides is dropped, of the kinds that the file declares. Returns a row for each thing; action: created, changed, unchanged or pruned; difference: lines of YAML that begin with - (before) or + (after). All problems are reported together, each with its line and column (SQLSTATE 22023), and nothing is changed. The caller needs the privileges of the functions that would be called instead. if_match: the etag of the one resource that the file declares; another one is an error (SQLSTATE KB412).';
COMMENT ON FUNCTION kb.export(text, text) IS
    'Returns what the current tenant has as YAML that kb.apply finds unchanged. It contains references to keys, and no key. kind: llm, embedder, reranker, extractor, vector_db, knowledge_base, memory, binding, quota, or all. id: the id of one of them, or all.';
-- The query log.
GRANT SELECT ON kb.query_log, kb.query_feedback TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.feedback(uuid, uuid, boolean) TO kb_reader;
COMMENT ON FUNCTION kb.feedback(uuid, uuid, boolean) IS
    'Records in kb.query_feedback whether a chunk of the answer to a logged question (query_id in the locator of its rows) was relevant. The last call counts, and NULL removes the feedback. Only for questions of the session''s tenant.';
-- Conversations.
GRANT SELECT ON kb.conversations, kb.turns, kb.summaries, kb.extractions, kb.chat_requests TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.window(text, integer) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.wait_for_summary(text, double precision) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.create_conversation(text, text, jsonb, jsonb) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.alter_conversation(text, text, jsonb, jsonb) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.drop_conversation(text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.append_turn(text, text, text, text, jsonb, text, integer, jsonb, jsonb) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.append_turn(text, text, jsonb, text, jsonb, text, integer, jsonb, jsonb) TO kb_writer;
COMMENT ON FUNCTION kb.create_conversation(text, text, jsonb, jsonb) IS
    'Creates a conversation of the current tenant, without turns, and returns its id. id: NULL means a new one that begins with conv_. settings: token_threshold (the most tokens of a window, 8000), tokenizer (an OpenAI model or encoding by which tokens are counted; without it, four characters count as a token), window_size (how many of the last turns a summary leaves out, 10) and summary ({strategy, llm, max_tokens}: off, lazy or eager, the chat model, and the most tokens of a summary, 500), memory (of this tenant, in which facts are remembered) and subject (whom they are about). An error lists every problem.';
COMMENT ON FUNCTION kb.alter_conversation(text, text, jsonb, jsonb) IS
    'Changes properties of a conversation; NULL leaves a property unchanged. settings and metadata are each replaced as a whole.';
COMMENT ON FUNCTION kb.drop_conversation(text) IS
    'Drops a conversation with its turns.';
COMMENT ON FUNCTION kb.append_turn(text, text, text, text, jsonb, text, integer, jsonb, jsonb) IS
    'Appends a turn to a conversation, and returns its id. role: user, assistant, system or tool. parent_id: the turn that it follows, by default the one that was appended last. tool_calls: for role assistant, an array of objects that each have an id; content may be NULL then. tool_call_id: for role tool, the tool call of which content is the result. The result must follow the turn with its call, or another result of that turn. token_count: by default, the tokens are counted. Waits for other transactions that append to the conversation.';
COMMENT ON FUNCTION kb.append_turn(text, text, jsonb, text, jsonb, text, integer, jsonb, jsonb) IS
    'Does the same for a content of parts, an array of objects that each have a type, as in the messages of OpenAI. The argument is called parts, so that callers by name (PostgREST) can tell this function from the one that takes text.';
COMMENT ON FUNCTION kb.window(text, integer) IS
    'Returns the last turns of a conversation, or those that end with a turn if id is one, in their order and with at most max_tokens tokens (default: token_threshold of the conversation). A tool call and its results are in the window together or not at all. The last turn, with the call that it answers, is always in the window. If the turns are more and there is a summary of the older ones, it is the first row (is_summary, role system, the last turn that it covers), and the turns after it follow. is_cut: turns were left out that no summary covers.';
GRANT EXECUTE ON FUNCTION kb.extract_memories(text) TO kb_writer;
COMMENT ON FUNCTION kb.extract_memories(text) IS
    'Has the chat model of a memory extract facts from a conversation, or from what a turn ends, into the memory that the settings of the conversation name. Returns the number of turns from which none were extracted yet; the worker asks the model after the commit.';
COMMENT ON FUNCTION kb.wait_for_summary(text, double precision) IS
    'Waits until a conversation, or what a turn ends, has the summary that its window needs, and has it made. Returns at once if the window needs none. Raises an error if the summary cannot be made, or after timeout seconds (NULL: no limit).';

-- Answers.
GRANT EXECUTE ON FUNCTION kb.answer(text, text, text, text, text, integer, jsonb) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.answer(text[], text, text, text, text, integer, jsonb) TO kb_reader;
COMMENT ON FUNCTION kb.answer(text, text, text, text, text, integer, jsonb) IS
    'Has a chat model (llm) answer a question from the passages that kb.query finds, and checks what the answer cites. annotations: a file_citation for each marker such as [1], with its place and a sentence of the passage. chunks: the passages that the model was given. If nothing is found, the model is not asked, and the answer is the refusal. conversation: its last turns are part of the prompt, and question and answer are appended to it, which requires kb_writer. memory: what kb.recall finds is part of the prompt. max_tokens: the most tokens of the prompt, 8000 by default. options: refusal, instructions, timeout (seconds for everything, default kb.answer_timeout), subject (of the memories), answer_tokens, filter, and the options of kb.query. invalid_citations: numbers that the model cited although they were not given; they are removed from the answer.';
COMMENT ON FUNCTION kb.answer(text[], text, text, text, text, integer, jsonb) IS
    'Does the same with the passages of several knowledge bases, which are joined as kb.query joins them.';

-- HTTP. The login of kb serve is granted kb.assume_api_key, and the roles that it may become.
GRANT EXECUTE ON FUNCTION kb.http(text, text, text, jsonb, bytea) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.openapi() TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.create_api_key(text, text, text, text[], timestamptz, integer) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.drop_api_key(text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.assume_api_key(text) TO kb_admin;
COMMENT ON FUNCTION kb.http(text, text, text, jsonb, bytea) IS
    'Answers a request of HTTP as its caller: method, path and query string as in the request line, headers as an object of strings, and the body. What an operation wrote is undone if it fails; errors are answers of the type application/problem+json with the SQLSTATE, DETAIL and HINT. Only a cancellation raises an error. The setting kb.scopes narrows what may be asked for. kb.openapi describes the paths.';
COMMENT ON FUNCTION kb.openapi() IS
    'Returns the description of what kb.http answers, in the form of OpenAPI 3.1.';
COMMENT ON FUNCTION kb.create_api_key(text, text, text, text[], timestamptz, integer) IS
    'Creates an API key, and returns it; it cannot be read again, because only its hash is stored. Its holder acts as role_name (default: the caller), which must have the privileges of kb_reader and which the caller must be able to SET ROLE to, for tenant (default: the current tenant), and only within scopes: knowledge_bases, search, documents, memories, answers (empty: everything). expires_at: default never. requests_per_minute: the limit of one kb serve, default none.';
COMMENT ON FUNCTION kb.drop_api_key(text) IS
    'Deletes an API key, which is refused from then on. Returns false if there is no key of this id.';
COMMENT ON FUNCTION kb.assume_api_key(text) IS
    'Makes the session act as the holder of an API key until its transaction ends: sets role, kb.tenant and kb.scopes as SET LOCAL does. The session must be able to SET ROLE to that role. Returns the id of the key and its limit. Raises an error if the key is wrong, deleted or expired (SQLSTATE 28P01).';

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('kb_install.search_path'), true);
