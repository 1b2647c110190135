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
    kb.bm25_segments, kb.jobs, kb.sources, kb.usage, kb.shares, kb.quotas, kb.quota_counts, kb.status, kb.failures, kb.quota_status TO kb_reader;
GRANT SELECT ON kb.tenant_roles TO kb_admin;

-- What a search reads besides the vectors.
GRANT USAGE ON SCHEMA kb TO kb_vectors;
GRANT SELECT ON kb.chunks, kb.documents, kb.shares TO kb_vectors;
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
GRANT EXECUTE ON FUNCTION kb.chunk(text, jsonb, text, text) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.extract_text(jsonb, jsonb) TO kb_reader;
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
GRANT EXECUTE ON FUNCTION kb.alter_knowledge_base(text, text, text, jsonb, jsonb, jsonb, jsonb) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.drop_knowledge_base(text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.ingest(text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.put_document(text, text, text, jsonb, text, text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.put_document(text, text, bytea, jsonb, text, text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.put_documents(text, jsonb[]) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.delete_document(text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.delete_documents(text, text[]) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.delete_by_filter(text, jsonb) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.retry(text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.share(text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.unshare(text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.refuse_share(text, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.row_status(regclass, text) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.attach_table(text, regclass, text, text, text[], text, text, text, text, boolean, jsonb, text) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.detach_table(text, regclass, boolean) TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.reconcile(text) TO kb_writer;
-- A restore of a dump creates the triggers again.
GRANT EXECUTE ON FUNCTION kb._rows_changed() TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.create_embedder(text, text, text, integer, text, text, jsonb) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.alter_embedder(text, text, integer, text, text, jsonb) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.drop_embedder(text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.set_secret(text, text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.drop_secret(text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.acknowledge_restore() TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.bind_role(text, text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.move_knowledge_base(text, text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.set_quota(text, bigint, bigint, bigint, bigint, bigint, bigint, bigint) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.unbind_role(text, text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.create_vector_db(text, text, integer, text, jsonb) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.drop_vector_db(text) TO kb_admin;

COMMENT ON FUNCTION kb.create_embedder(text, text, text, integer, text, text, jsonb) IS
    'Adds an embedding model: provider (local, hash, openai, azure_openai, ollama, huggingface, gemini, vertex, cohere, voyage, jina, mistral or http), model (for local a directory under kb.model_dir), dimension (numbers per vector; default from the model), base_url, secret (a reference: env:NAME, file:NAME or kb:NAME, never a key), config (prefixes, limits, retries, prices; see docs/reference). Errors list every problem. Needs kb_admin.';
COMMENT ON FUNCTION kb.alter_embedder(text, text, integer, text, text, jsonb) IS
    'Changes what is given of an embedder. What would change the meaning of stored vectors is refused while a knowledge base uses it. Needs kb_admin.';
COMMENT ON FUNCTION kb.set_secret(text, text) IS
    'Keeps a key under a name, for embedders whose secret is kb:NAME: sealed where kb.secret_key is set. No role can read it; it is not dumped. Give the key as a parameter; where the server logs statements, use env: or file: instead. Needs kb_admin.';
COMMENT ON FUNCTION kb.drop_secret(text) IS
    'Deletes a stored key. Needs kb_admin.';
COMMENT ON FUNCTION kb.acknowledge_restore() IS
    'In a restored or cloned database: lets it spend at remote providers from now on. Needs kb_admin.';
COMMENT ON FUNCTION kb.monitor() IS
    'Counts for every knowledge base of every tenant, without content: documents by status, chunks, jobs that are due, delayed and leased, since when the oldest job has been there (NULL where there is none), and attached tables that cannot be read. Needs pg_monitor.';
COMMENT ON FUNCTION kb.estimate_ingest(text) IS
    'What kb.ingest would take up and send: documents, chunks, tokens, cost (NULL without price_per_million_tokens) and seconds. Sends nothing; of more than 200 documents it measures a sample.';
COMMENT ON FUNCTION kb.drop_embedder(text) IS
    'Removes an embedder that nothing uses. Needs kb_admin.';
COMMENT ON FUNCTION kb.check_embedder(text) IS
    'Embeds a probe with an embedder: whether it worked, dimension, latency in milliseconds, or the problem.';
COMMENT ON FUNCTION kb.embed(text, text[], text) IS
    'Vectors of texts, in order, one row each, as an embedder makes them for kind ''document'' or ''query''. An error if a text is longer than the model reads.';
COMMENT ON FUNCTION kb.count_tokens(text, text) IS
    'Tokens of a text in an embedder''s own tokeniser (default: setting kb.default_embedder), special tokens not counted.';
COMMENT ON FUNCTION kb.create_vector_db(text, text, integer, text, jsonb) IS
    'Adds a vector table that knowledge bases can share: type pgvector (HNSW) or memory (unlogged, exact), dimension 1 to 4000, metric cosine, l2 or ip, config {table, m, ef_construction, min_rows, element}. Needs kb_admin.';
COMMENT ON FUNCTION kb.drop_vector_db(text) IS
    'Removes a vector table that no knowledge base uses. Needs kb_admin.';
COMMENT ON FUNCTION kb.create_knowledge_base(text, text, text, text, jsonb, jsonb, jsonb, jsonb) IS
    'Makes a knowledge base for the current tenant. Defaults: embedder from kb.default_embedder, a vector table of its own, chunking {strategy recursive, size 800 tokens or what the model reads, overlap 15 %}, preprocess {dedupe true, remove_html true, language english}, retrieval {mode dense, top_k 5, min_score 0, on_error error}. All problems are reported together.';
COMMENT ON FUNCTION kb.alter_knowledge_base(text, text, text, jsonb, jsonb, jsonb, jsonb) IS
    'Replaces what is given of a knowledge base, objects as a whole. Retrieval, description and metadata apply at once; embedder, chunking and preprocess with the next kb.ingest.';
COMMENT ON FUNCTION kb.drop_knowledge_base(text) IS
    'Removes a knowledge base with its documents, chunks and vectors.';
COMMENT ON FUNCTION kb.move_knowledge_base(text, text) IS
    'Gives a knowledge base of the session''s tenant to another tenant, with its documents, chunks, vectors, jobs, runs, evaluation sets, attached tables and shares, at this commit. Chunk ids stay. Needs kb_admin, not bound.';
COMMENT ON FUNCTION kb.ingest(text, text) IS
    'Processes the documents a knowledge base holds, and returns the run''s number. upsert: those not ready or made under other settings; replace: all, beside what is there, and the switch is one commit. A change of embedder is always a replace.';
COMMENT ON FUNCTION kb.put_document(text, text, text, jsonb, text, text, text) IS
    'Puts a document under an external_id: added, updated or skipped (unchanged). Content type is taken from content_type, else the extension of external_id or uri, else the text. It is searchable once the worker has processed it; see kb.wait.';
COMMENT ON FUNCTION kb.put_document(text, text, bytea, jsonb, text, text, text) IS
    'Puts a document given as bytes, which must be UTF-8, under an external_id: added, updated or skipped (unchanged). Content type is taken from content_type, else the extension of external_id or uri, else the text. It is searchable once the worker has processed it; see kb.wait. The argument is called bytes, so that callers by name (PostgREST) can tell this function from the one that takes text.';
COMMENT ON FUNCTION kb.put_documents(text, jsonb[]) IS
    'Puts documents given as {external_id, content, metadata, title, content_type, uri}, all or none: added, updated or skipped for each.';
COMMENT ON FUNCTION kb.delete_document(text, text) IS
    'Deletes a document with its chunks and vectors at this commit; false when it was not there.';
COMMENT ON FUNCTION kb.delete_documents(text, text[]) IS
    'Deletes documents at this commit; for each id deleted or not found.';
COMMENT ON FUNCTION kb.delete_by_filter(text, jsonb) IS
    'Deletes the documents that pass a filter, at this commit; how many. A filter that all documents pass is refused.';
COMMENT ON FUNCTION kb.retry(text, text) IS
    'Puts failed documents (or the one named) back into the queue; how many.';
COMMENT ON FUNCTION kb.chunk(text, jsonb, text, text) IS
    'What a chunking setting makes of a text: content, tokens, start_char (from 0) and end_char (exclusive), headings. Stores nothing.';
COMMENT ON FUNCTION kb.query(text, text, integer, double precision, jsonb, integer, text, jsonb) IS
    'The chunks of a knowledge base that answer a question, best first: at most top_k, each with a score (similarity, larger is nearer; cosine: 0 to 1) of at least min_score, of documents that pass filter; a row that does not fit into what better ones leave of max_tokens is left out. NULL takes the knowledge base''s own setting. mode: dense (by meaning), keyword (by words, with BM25; "quoted phrases" and -exclusions are honoured; no score), hybrid (both, fused). options: settings of retrieval for this call, and explain: locator says the ranks.';
COMMENT ON FUNCTION kb.query(text[], text, integer, double precision, jsonb, integer, text, jsonb, double precision[]) IS
    'Asks several knowledge bases at once: each as kb.query does, then their rows in one order, equal texts once. Rows of vectors of one fingerprint and metric are ordered by their similarity, in mode hybrid also by the words that they have; rows that cannot be compared by their ranks. weights: what each of kb_ids counts, in their order. kb_id says where a row is from.';
COMMENT ON FUNCTION kb.context(text, text, integer, text, integer, double precision, jsonb, text, jsonb) IS
    'The answer of kb.query as one text for a prompt (context): numbered blocks with title, uri, headings and characters, chunks that meet joined, at most max_tokens with all that is around them; and what is in it: chunk_ids (as kb.annotate takes them), blocks (an array of objects with kb_id, external_id, title, uri, chunk_ids, score, rank_score, start_char, end_char, truncated, metadata), tokens, and truncated: whether the best block had to be cut. format: markdown, xml or json.';
COMMENT ON FUNCTION kb.context(text[], text, integer, text, integer, double precision, jsonb, text, jsonb, double precision[]) IS
    'The same for the answer of several knowledge bases, as kb.query gives it.';
COMMENT ON FUNCTION kb.explain(text, text, integer, double precision, jsonb, integer, text, jsonb, text, uuid) IS
    'How kb.query answers a question: settings, scans, candidates of each leg and stage, what was left out and why, milliseconds of each step; of external_id or chunk_id, why it is not in the answer. What the caller may not read is as if absent.';
COMMENT ON FUNCTION kb.annotate(text, uuid[]) IS
    'The spans of an answer that quote these chunks, as an array of file_citation annotations: index, start_index, end_index (characters), file_id (external_id), filename (title), chunk_id, quote. Chunks that the caller may not read are passed over.';
COMMENT ON FUNCTION kb.query_vector IS
    'As kb.query, for a question that is a vector already.';
COMMENT ON FUNCTION kb.current_tenant() IS
    'The tenant this session acts for: setting kb.tenant, '''' when unset, or the only tenant that its roles are bound to. An error if they are bound to others.';
COMMENT ON FUNCTION kb.visible_tenants() IS
    'The tenants all of whose rows this session may read: its own and ''shared''.';
COMMENT ON FUNCTION kb.readable_tenants() IS
    'The tenants of whom this session may read something: its own, ''shared'', and those who share a knowledge base with it.';
COMMENT ON FUNCTION kb.bound_tenants() IS
    'The tenants that this session may act for (kb.bind_role), sorted; NULL: any.';
COMMENT ON FUNCTION kb.bind_role(text, text) IS
    'Binds a role, and the roles that have its rights, to a tenant: they may act for no other, but those that they are bound to as well. False if it was bound to it. Needs kb_admin, not bound itself.';
COMMENT ON FUNCTION kb.unbind_role(text, text) IS
    'Ends the binding of a role to a tenant (NULL: to all); how many. A role that is bound to none may act for any. Needs kb_admin, not bound itself.';
COMMENT ON FUNCTION kb.share(text, text) IS
    'Lets another tenant read a knowledge base: ask it, and see its documents as far as they are of the tenant that owns it. False if it was shared with that tenant.';
COMMENT ON FUNCTION kb.unshare(text, text) IS
    'Ends the sharing of a knowledge base with a tenant at this commit; false if it was not shared with it.';
COMMENT ON FUNCTION kb.refuse_share(text, text) IS
    'Ends, from the reader''s side, the sharing of a knowledge base of tenant owner with the session''s tenant at this commit; false if it was not shared with it.';
COMMENT ON FUNCTION kb.set_quota(text, bigint, bigint, bigint, bigint, bigint, bigint, bigint) IS
    'Sets what a tenant may have: bytes of all that it stores, documents in one knowledge base, bytes of one document, knowledge bases, tokens a day at remote endpoints, attached tables, keys of metadata that are indexed; NULL: as much as it likes, or what settings kb.tenant_* say. What it has already stays. Needs kb_admin, not bound.';
COMMENT ON FUNCTION kb._tables_altered() IS
    'Internal: writes down that attached tables, or partitions of them, were made, altered or dropped.';
COMMENT ON FUNCTION kb._watched_changed() IS
    'Internal: tells all sessions that bindings, shares or quotas have changed.';
COMMENT ON FUNCTION kb.wait(text, double precision) IS
    'Waits until no committed document of a knowledge base waits for processing, at most timeout seconds (NULL: without end). An error if it would wait for what this transaction has not committed.';
COMMENT ON FUNCTION kb.wait(bigint, double precision) IS
    'Waits until a run of kb.ingest has ended.';
COMMENT ON FUNCTION kb.health() IS
    'The state of kb: pgvector, preload, gateway, providers, documents, failures, sources, tables, indexes, recall, grants, worker, processes, models; what is wrong and what to do.';
COMMENT ON FUNCTION kb.attach_table(text, regclass, text, text, text[], text, text, text, text, boolean, jsonb, text) IS
    'Makes the rows of a table documents of a knowledge base, now and with every change. content: names of columns ({title, body}), or a template ({{title}}: {{body}}). published_when: a condition on the row; other rows are absent. metadata: columns that become metadata. tenant, title, uri, content_type: columns that say these. replicated: also rows that logical replication brings. json_fields: which values are the text of columns of JSON ({include, exclude}, lists of paths), for rows of other types others ({type_column, types}). adopt: a column of vectors that the embedder''s model has made of the rows that are there; a row that becomes one chunk is not embedded again. external_id is the primary key. Again for an attached table: changes how it is read. Returns the source_no. Needs kb_writer and the table''s owner.';
COMMENT ON FUNCTION kb.extract_text(jsonb, jsonb) IS
    'The text of a JSON document: the values at the paths of fields ({include, exclude}), else the first of content, text, description, title, summary, body, name that has text, else every string with the names that lead to it, sorted.';
COMMENT ON FUNCTION kb.detach_table(text, regclass, boolean) IS
    'Lets go of an attached table. Its documents are deleted, or with keep stay as if they had been put; how many.';
COMMENT ON FUNCTION kb.reconcile(text) IS
    'Compares the tables attached to a knowledge base with their documents and mends what differs, as after triggers were disabled: for each table its published rows, and how many had no document (missing), one of another text (changed), and how many documents had no such row (orphaned).';
COMMENT ON FUNCTION kb.query_rows(text, text, integer, double precision, jsonb, integer, text, jsonb) IS
    'As kb.query, with the rows of attached tables as the caller sees them now: their key and themselves as JSON objects. Rows that the caller may not see are left out; of a document that was put both are NULL.';
COMMENT ON FUNCTION kb.row_status(regclass, text) IS
    'What a row of an attached table is in each of its knowledge bases, by its external_id: absent, pending, ready, stale (an older version answers) or failed, and since when.';
COMMENT ON FUNCTION kb._rows_changed() IS
    'Internal: the triggers of attached tables call it.';
COMMENT ON FUNCTION kb._microseconds(text) IS
    'Microseconds since 1970 of a text that is an ISO 8601 timestamp or date (UTC where it says no offset), else NULL. Filters compare by it.';
COMMENT ON FUNCTION kb._in_words(text) IS
    'Internal: a text as quoted phrases are looked for in it.';
COMMENT ON FUNCTION kb._terms(text, text) IS
    'Internal: the words of a text in a text search configuration, as kb.chunks.terms has them.';
COMMENT ON FUNCTION kb._allowed(text) IS
    'Internal: how many knowledge_bases, attached_tables or metadata_indexes the session''s tenant may have; NULL: as many as it likes.';
COMMENT ON FUNCTION kb._vector_count(bigint) IS
    'Internal: how many vectors a build has, if the caller may see the build.';
COMMENT ON FUNCTION kb._delete_vectors(bigint, uuid[]) IS
    'Internal: deletes the vectors of chunks of a build that are deleted.';
COMMENT ON FUNCTION kb._delete_vectors(bigint, text) IS
    'Internal: deletes the vectors of a build that is deleted from the table that had them.';
COMMENT ON FUNCTION kb._index_state(bigint) IS
    'Internal: how many segments of a build''s vector table have an index, and how many of its vectors have none.';
COMMENT ON FUNCTION kb._index_progress(bigint) IS
    'Internal: the index that is being built on a build''s vector table, if the caller may see the build and no other knowledge base uses the table.';
COMMENT ON FUNCTION kb._fingerprint(text, text, integer, jsonb) IS
    'Internal: an embedder''s fingerprint.';

-- Rerankers and chat models.
GRANT EXECUTE ON FUNCTION kb.check_reranker(text) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.check_llm(text) TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.create_reranker(text, text, text, text, text, jsonb) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.alter_reranker(text, text, text, text, jsonb) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.drop_reranker(text) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.create_llm(text, text, text, text, text, jsonb) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.alter_llm(text, text, text, text, jsonb) TO kb_admin;
GRANT EXECUTE ON FUNCTION kb.drop_llm(text) TO kb_admin;
GRANT SELECT ON kb.rerankers, kb.llms TO kb_reader;
COMMENT ON FUNCTION kb.create_reranker(text, text, text, text, text, jsonb) IS
    'Adds a reranker: provider (local, llm, cohere, voyage, jina or tei), model (for local a directory under kb.model_dir with a BERT cross-encoder), base_url, secret (a reference: env:NAME, file:NAME or kb:NAME, never a key), config (max_chars, batch_size, limits, retries, prices; for llm also llm, the id of a chat model, and scoring, batch or single). Errors list every problem. Needs kb_admin.';
COMMENT ON FUNCTION kb.alter_reranker(text, text, text, text, jsonb) IS
    'Changes a reranker; NULL leaves a part as it is. A secret stays bound to the host that it was given for. Needs kb_admin.';
COMMENT ON FUNCTION kb.drop_reranker(text) IS
    'Drops a reranker that no knowledge base uses. Needs kb_admin.';
COMMENT ON FUNCTION kb.check_reranker(text) IS
    'Has a reranker score two texts: whether it works, how long it took in ms, and what is wrong.';
COMMENT ON FUNCTION kb.create_llm(text, text, text, text, text, jsonb) IS
    'Adds a chat model: provider (openai or ollama), model, base_url (also of another server that speaks the protocol of openai), secret (a reference, never a key), config (temperature, max_output_tokens, limits, retries, prices). Errors list every problem. Needs kb_admin.';
COMMENT ON FUNCTION kb.alter_llm(text, text, text, text, jsonb) IS
    'Changes a chat model; NULL leaves a part as it is. A secret stays bound to the host that it was given for. Needs kb_admin.';
COMMENT ON FUNCTION kb.drop_llm(text) IS
    'Drops a chat model that no reranker and no knowledge base uses. Needs kb_admin.';
COMMENT ON FUNCTION kb.check_llm(text) IS
    'Asks a chat model for a word: whether it works, how long it took in ms, and what is wrong.';
GRANT SELECT ON kb.metadata_indexes TO kb_reader;
GRANT EXECUTE ON FUNCTION kb.index_metadata(text, text, text), kb.unindex_metadata(text, text, text) TO kb_writer;
COMMENT ON FUNCTION kb.index_metadata(text, text, text) IS
    'Has an index built on a key of metadata, of the values of type text, number or timestamp: filters of the knowledge base look them up in ranges (gt, gte, lt, lte). False if it is indexed already. Built beside writes, soon after the commit.';
COMMENT ON FUNCTION kb.unindex_metadata(text, text, text) IS
    'Ends the index on a key of metadata (type NULL: of every type); how many there were. It is dropped when no knowledge base wants it any more.';
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
    'Makes an evaluation set, without questions, of a knowledge base.';
COMMENT ON FUNCTION kb.drop_eval_set(text, text) IS
    'Drops an evaluation set with its questions.';
COMMENT ON FUNCTION kb.put_eval_question(text, text, text, text, jsonb, jsonb) IS
    'Adds a question to an evaluation set, or replaces the one of that id. relevant: an array of external_ids, or of objects {external_id, grade, start, end}; grade is 1 where it is left out, and relevant from 1 on; start (from 0) and end (exclusive) are characters of the document''s text. filter: as of kb.query.';
COMMENT ON FUNCTION kb.delete_eval_question(text, text, text) IS
    'Deletes a question of an evaluation set; false if there is none of that id.';
COMMENT ON FUNCTION kb.load_eval(text, text, text, text) IS
    'Puts a data set in BEIR''s form into an evaluation set, which is made if there is none: the contents of queries.jsonl (_id, text) and of qrels.tsv (query-id, corpus-id, score). Queries without judgements are left out; how many questions were put.';
COMMENT ON FUNCTION kb.evaluate(text, text, jsonb[]) IS
    'Asks the questions of an evaluation set under each of some options (as of kb.query, and k, 10 where it is left out; NULL: the knowledge base''s own settings) and measures the answers as trec_eval does: means of recall, precision, ndcg and hit_rate at k, and of mrr; ann_recall: what the index finds of what an exact search finds; p50_ms and p95_ms: how long a question takes, without its embedding; unanswered: questions that got no row. k counts documents; for a question whose judgements have start and end it counts rows.';
COMMENT ON FUNCTION kb.evaluate_questions(text, text, jsonb[]) IS
    'As kb.evaluate, with a row for each question and set of options (option_set: its number, from 1 on), so that settings can be compared question by question.';
COMMENT ON FUNCTION kb.tune(text, text, boolean, integer, integer) IS
    'Measures the present settings of a knowledge base, modes dense and keyword, and hybrid with several weights, by an evaluation set, and proposes one by nDCG at k (10), if the gain is no chance (cross-validation). top_k: chunks that are asked for. With apply, what is proposed becomes the knowledge base''s retrieval.';
COMMENT ON FUNCTION kb.measure_recall(text, integer, text) IS
    'Compares the index of a knowledge base with exact search by the vectors of sample chunks, without themselves, or with source log by sample questions of the session''s tenant in kb.query_log, which are embedded anew: recall, how many were compared, and the ef_search used (NULL: there is no index, every search is exact). Keeps the result in kb.index_recall for kb.health. Where ef_search is auto, chooses the least one that finds 0.97.';
-- The query log.
GRANT SELECT ON kb.query_log, kb.query_feedback TO kb_writer;
GRANT EXECUTE ON FUNCTION kb.feedback(uuid, uuid, boolean) TO kb_reader;
COMMENT ON FUNCTION kb.feedback(uuid, uuid, boolean) IS
    'Says whether a chunk of the answer to a logged question (query_id in the locator of its rows) was relevant; the last word counts, and NULL takes it back. Only for questions of the session''s tenant. Kept in kb.query_feedback.';

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('kb_install.search_path'), true);
