-- Tables. Every row that belongs to a tenant names it (tenant_id).

-- Pinned, as in roles.sql.
SELECT pg_catalog.set_config('kb_install.search_path', pg_catalog.current_setting('search_path'), true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

CREATE TABLE kb.embedders (
    id          text PRIMARY KEY CHECK (id <> ''),
    provider    text NOT NULL,
    model       text NOT NULL,
    dimension   integer NOT NULL CHECK (dimension > 0),
    base_url    text,
    secret      text,
    -- The scheme, host and port to which the secret may be sent. NULL: it may not be sent until it is given
    -- again.
    secret_host text,
    config      jsonb NOT NULL DEFAULT '{}',
    fingerprint bigint NOT NULL,
    -- Shipped with the extension: not dumped, altered or dropped.
    seeded      boolean NOT NULL DEFAULT false,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE kb.embedders IS 'Embedders: models at providers. Changed by kb.create_embedder, kb.alter_embedder and kb.drop_embedder.';
COMMENT ON COLUMN kb.embedders.fingerprint IS 'Hash of all properties that change the meaning of a vector. Vectors of different fingerprints are never compared.';
COMMENT ON COLUMN kb.embedders.secret IS 'A reference to a key (env:NAME, file:NAME, kb:NAME), never the key.';

-- Keys that kb.set_secret stored. No role has any right on this table, no policy shows a row of it, and it is
-- not dumped; the library reads it as the owner and passes the key to the gateway.
CREATE TABLE kb.secrets (
    name       text PRIMARY KEY CHECK (name <> ''),
    value      text NOT NULL CHECK (value <> ''),
    -- The value is the key, sealed under the setting kb.secret_key, in the only format that exists so far.
    sealed     boolean NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE kb.secrets ENABLE ROW LEVEL SECURITY;
ALTER TABLE kb.secrets FORCE ROW LEVEL SECURITY;
COMMENT ON TABLE kb.secrets IS 'Keys of providers. Changed by kb.set_secret and kb.drop_secret. Only the gateway reads it.';

-- The server and database in which the first remote embedder was created. A restored or cloned database has
-- the row of another, and spends nothing until kb.acknowledge_restore() is called.
CREATE TABLE kb.origins (
    system_identifier bigint NOT NULL,
    database_oid      oid NOT NULL,
    -- In a publication of all tables, rows of a table without a key cannot be deleted.
    PRIMARY KEY (system_identifier, database_oid)
);
COMMENT ON TABLE kb.origins IS 'The server and database that may spend money at providers: this one, or, until a restore is acknowledged, the one it was restored from. Empty until a remote embedder exists.';

-- Rerankers, chat models and extractors, and how each is reached, as for an embedder.
CREATE TABLE kb.llms (
    id          text PRIMARY KEY CHECK (id <> ''),
    provider    text NOT NULL,
    model       text NOT NULL,
    base_url    text,
    secret      text,
    -- The scheme, host and port to which the secret may be sent. NULL: it may not be sent until it is given
    -- again.
    secret_host text,
    config      jsonb NOT NULL DEFAULT '{}',
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE kb.llms IS 'Chat models. Changed by kb.create_llm, kb.alter_llm and kb.drop_llm.';
COMMENT ON COLUMN kb.llms.secret IS 'A reference to a key (env:NAME, file:NAME, kb:NAME), never the key.';
CREATE TABLE kb.rerankers (
    id          text PRIMARY KEY CHECK (id <> ''),
    provider    text NOT NULL,
    -- '' if the provider has only one model, or asks a chat model.
    model       text NOT NULL,
    base_url    text,
    secret      text,
    secret_host text,
    config      jsonb NOT NULL DEFAULT '{}',
    -- The chat model that it asks.
    llm         text GENERATED ALWAYS AS (config ->> 'llm') STORED REFERENCES kb.llms,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE kb.rerankers IS 'Models that score how well each text answers a question. Changed by kb.create_reranker, kb.alter_reranker and kb.drop_reranker.';
COMMENT ON COLUMN kb.rerankers.secret IS 'A reference to a key (env:NAME, file:NAME, kb:NAME), never the key.';
CREATE TABLE kb.extractors (
    id          text PRIMARY KEY CHECK (id <> ''),
    provider    text NOT NULL,
    -- '' if the service has no models.
    model       text NOT NULL,
    base_url    text,
    secret      text,
    secret_host text,
    config      jsonb NOT NULL DEFAULT '{}',
    version     text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN kb.extractors.version IS 'The id, and a hash of all settings that decide what text the service finds. Documents have it as their extractor.';
COMMENT ON TABLE kb.extractors IS 'Services that find the text of files which kb cannot read, such as images. Changed by kb.create_extractor, kb.alter_extractor and kb.drop_extractor.';
COMMENT ON COLUMN kb.extractors.secret IS 'A reference to a key (env:NAME, file:NAME, kb:NAME), never the key.';

CREATE TABLE kb.vector_dbs (
    id         text PRIMARY KEY CHECK (id <> ''),
    type       text NOT NULL CHECK (type IN ('pgvector', 'memory')),
    dimension  integer NOT NULL CHECK (dimension > 0),
    metric     text NOT NULL CHECK (metric IN ('cosine', 'l2', 'ip')),
    config     jsonb NOT NULL DEFAULT '{}',
    table_name text NOT NULL UNIQUE,
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE kb.vector_dbs IS 'Vector tables that knowledge bases can share by name. A knowledge base created without one gets a table of its own, which is not listed here.';

CREATE SEQUENCE kb.kb_no_seq;
CREATE TABLE kb.knowledge_bases (
    kb_no       bigint PRIMARY KEY DEFAULT nextval('kb.kb_no_seq'),
    tenant_id   text NOT NULL DEFAULT kb.current_tenant(),
    id          text NOT NULL CHECK (id <> ''),
    description text,
    embedder    text NOT NULL REFERENCES kb.embedders,
    vector_db   text REFERENCES kb.vector_dbs,
    chunking    jsonb NOT NULL,
    preprocess  jsonb NOT NULL,
    retrieval   jsonb NOT NULL,
    metadata    jsonb NOT NULL DEFAULT '{}',
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant_id, id),
    UNIQUE (kb_no, tenant_id),
    UNIQUE (kb_no, id)
);
ALTER SEQUENCE kb.kb_no_seq OWNED BY kb.knowledge_bases.kb_no;
COMMENT ON TABLE kb.knowledge_bases IS 'Knowledge bases and their settings, including every default.';

CREATE SEQUENCE kb.run_no_seq;
CREATE TABLE kb.runs (
    run_no      bigint PRIMARY KEY DEFAULT nextval('kb.run_no_seq'),
    kb_no       bigint NOT NULL,
    tenant_id   text NOT NULL DEFAULT kb.current_tenant(),
    strategy    text NOT NULL CHECK (strategy IN ('upsert', 'replace')),
    state       text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'failed')),
    scanned     bigint NOT NULL DEFAULT 0,
    added       bigint NOT NULL DEFAULT 0,
    updated     bigint NOT NULL DEFAULT 0,
    skipped     bigint NOT NULL DEFAULT 0,
    deleted     bigint NOT NULL DEFAULT 0,
    failed      bigint NOT NULL DEFAULT 0,
    chunks      bigint NOT NULL DEFAULT 0,
    -- What was read from sources.
    bytes       bigint NOT NULL DEFAULT 0,
    error       text,
    -- Problems of sources as a whole, after which the run went on.
    warnings    text[] NOT NULL DEFAULT '{}',
    started_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    FOREIGN KEY (kb_no, tenant_id) REFERENCES kb.knowledge_bases (kb_no, tenant_id) ON UPDATE CASCADE ON DELETE CASCADE
);
ALTER SEQUENCE kb.run_no_seq OWNED BY kb.runs.run_no;
CREATE INDEX runs_kb_no ON kb.runs (kb_no, run_no);
CREATE INDEX runs_running ON kb.runs (run_no) WHERE state = 'running';
COMMENT ON TABLE kb.runs IS 'Runs of kb.ingest and of sources: what was requested and what was done.';
COMMENT ON COLUMN kb.runs.scanned IS 'Number of documents that the knowledge base had, or, in a run of a single source, that the source had, and of those that sources have added since.';
COMMENT ON COLUMN kb.runs.deleted IS 'Number of documents that were deleted because their source no longer has them.';
COMMENT ON COLUMN kb.runs.chunks IS 'Number of chunks of the documents that were added and updated; of a run that replaces, of the new build.';
COMMENT ON COLUMN kb.runs.bytes IS 'Size in bytes of the documents that were read from sources because they were new or had changed.';
COMMENT ON COLUMN kb.runs.warnings IS 'Problems of sources as a whole; each text begins with the name of the source. kb.failures shows those of single documents.';

-- A build is one complete set of chunks and vectors of a knowledge base, made under one embedder, chunking
-- and vector table. Queries read the live one; kb.ingest(…, 'replace') fills the next one beside it, and the
-- switch updates one row. The worker sweeps an old one.
CREATE SEQUENCE kb.build_no_seq;
CREATE TABLE kb.builds (
    build_no    bigint PRIMARY KEY DEFAULT nextval('kb.build_no_seq'),
    kb_no       bigint NOT NULL,
    tenant_id   text NOT NULL,
    state       text NOT NULL CHECK (state IN ('live', 'next', 'old')),
    embedder    text NOT NULL REFERENCES kb.embedders,
    fingerprint bigint NOT NULL,
    dimension   integer NOT NULL,
    chunking    jsonb NOT NULL,
    preprocess  jsonb NOT NULL,
    table_name  text NOT NULL,
    -- Whether the table belongs to this build alone and is dropped with it.
    owns_table  boolean NOT NULL,
    type        text NOT NULL,
    metric      text NOT NULL,
    element     text NOT NULL,
    config      jsonb NOT NULL,
    run_no      bigint REFERENCES kb.runs ON DELETE SET NULL,
    -- The transaction that made it old; it is swept once no snapshot is older.
    retired     xid8,
    created_at  timestamptz NOT NULL DEFAULT now(),
    -- For ef_search auto in retrieval: the value that kb.measure_recall has chosen, and whether the index
    -- finds too little even with that.
    ef_search   bigint,
    index_misses boolean NOT NULL DEFAULT false,
    FOREIGN KEY (kb_no, tenant_id) REFERENCES kb.knowledge_bases (kb_no, tenant_id) ON UPDATE CASCADE ON DELETE CASCADE
);
ALTER SEQUENCE kb.build_no_seq OWNED BY kb.builds.build_no;
CREATE UNIQUE INDEX builds_one_live ON kb.builds (kb_no) WHERE state = 'live';
CREATE UNIQUE INDEX builds_one_next ON kb.builds (kb_no) WHERE state = 'next';
CREATE INDEX builds_kb_no ON kb.builds (kb_no);
CREATE INDEX builds_table_name ON kb.builds (table_name);
CREATE INDEX builds_misses ON kb.builds (build_no) WHERE index_misses;
CREATE INDEX builds_old ON kb.builds (build_no) WHERE state = 'old';
CREATE INDEX builds_memory ON kb.builds (build_no) WHERE type = 'memory';
-- For the foreign key, when runs are deleted.
CREATE INDEX builds_run_no ON kb.builds (run_no) WHERE run_no IS NOT NULL;
COMMENT ON TABLE kb.builds IS 'Complete sets of chunks and vectors of a knowledge base: the live one, and while kb.ingest replaces it, the next one.';

-- tenant_id is the tenant of the document, which need not be that of the knowledge base; an external_id is
-- unique within its tenant. So neither the key nor the foreign key reveals one tenant's documents to another.
CREATE SEQUENCE kb.document_id_seq;
CREATE TABLE kb.documents (
    document_id  bigint PRIMARY KEY DEFAULT nextval('kb.document_id_seq'),
    kb_no        bigint NOT NULL,
    kb_id        text NOT NULL,
    tenant_id    text NOT NULL DEFAULT kb.current_tenant(),
    external_id  text NOT NULL CHECK (external_id <> ''),
    uri          text,
    title        text,
    content_type text NOT NULL,
    original     bytea,
    content      text,
    file_name    text,
    -- What the file says of itself, which is part of metadata.
    file_metadata jsonb,
    extractor    text,
    part_of      bigint REFERENCES kb.documents ON DELETE CASCADE,
    -- A hash of what was put and of its type.
    content_hash bytea NOT NULL,
    -- The content_hash from which the live chunks were made; NULL before the first time.
    indexed_hash bytea,
    -- A hash of the settings under which the live chunks were made; '': the document had another chunking.
    settings     text,
    metadata     jsonb NOT NULL DEFAULT '{}',
    status       text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'ready', 'failed')),
    error        text,
    sqlstate     text,
    attempts     integer NOT NULL DEFAULT 0,
    chunk_count  integer NOT NULL DEFAULT 0,
    token_count  bigint NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    processed_at timestamptz,
    -- The source from which it comes; NULL: it was put.
    source_no    bigint,
    -- The answers of models about it that were needed to cut it (MessagePack), so that an edit asks only
    -- about what it changed.
    answers      bytea,
    -- The partition in which its row was read. NULL: the table has none, or it is not known (after a
    -- restore).
    partition    oid,
    -- The bytes of what was put, with title, uri and metadata, which count towards a quota. The worker does
    -- not change this.
    stored_bytes bigint NOT NULL DEFAULT 0,
    -- What its source said of it when it was last read; '': that cannot be compared, and it is read again.
    version      text,
    chunking     jsonb,
    FOREIGN KEY (kb_no, kb_id) REFERENCES kb.knowledge_bases (kb_no, id) ON UPDATE CASCADE ON DELETE CASCADE,
    CHECK (content IS NOT NULL OR original IS NOT NULL)
)
-- The row of a document is updated two or three times each time it is processed. If its page has room for
-- that, no index is written again. Therefore no index may contain a column that is updated then, such as
-- status.
WITH (fillfactor = 50);
ALTER SEQUENCE kb.document_id_seq OWNED BY kb.documents.document_id;
-- In the order of code points, so that it also finds the documents whose external_ids have a prefix.
CREATE UNIQUE INDEX documents_external_id ON kb.documents (kb_no, tenant_id, external_id text_pattern_ops);
CREATE INDEX documents_kb_id ON kb.documents (kb_id);
CREATE INDEX documents_metadata ON kb.documents USING gin (metadata jsonb_path_ops);
CREATE INDEX documents_failed ON kb.documents (kb_no) WHERE error IS NOT NULL;
CREATE INDEX documents_part_of ON kb.documents (part_of) WHERE part_of IS NOT NULL;
CREATE INDEX documents_context_llm ON kb.documents ((chunking ->> 'context_llm')) WHERE chunking ->> 'context_llm' IS NOT NULL;
CREATE INDEX documents_source_no ON kb.documents (source_no) WHERE source_no IS NOT NULL;
COMMENT ON TABLE kb.documents IS 'Documents: what was put (original), the extracted text (content), metadata and processing state.';
COMMENT ON COLUMN kb.documents.kb_id IS 'The knowledge base''s id.';
COMMENT ON COLUMN kb.documents.external_id IS 'The caller''s name for the document, unique in its knowledge base and tenant.';
COMMENT ON COLUMN kb.documents.original IS 'The content that was put, of type content_type. NULL if content, as UTF-8, has the same bytes.';
COMMENT ON COLUMN kb.documents.file_name IS 'The name of the file that was put. NULL if a text was put.';
COMMENT ON COLUMN kb.documents.file_metadata IS 'What the file says of itself, such as its author. It is part of metadata, where what the caller gives has precedence.';
COMMENT ON COLUMN kb.documents.extractor IS 'The version of kb-extract, or of the extractor (kb.extractors.version), that read the file. kb.ingest reads files again that another version has read.';
COMMENT ON COLUMN kb.documents.part_of IS 'The document of the file within which this file is, such as a message with attachments. It is deleted with it. NULL if there is none.';
COMMENT ON COLUMN kb.documents.version IS 'What a run of its source compares to see whether it has changed: size and times of a file, the id of its content in a Git repository, what a server said of a page or object, updated_at or a hash of a row, when it was last read. NULL if it was not put by a source, or could not be read.';
COMMENT ON COLUMN kb.documents.chunking IS 'How the document is cut into chunks, with every default; it was given when the document was put. NULL: as the knowledge base says.';
COMMENT ON COLUMN kb.documents.answers IS 'Internal: the answers of models from which its chunks were made. NULL if no model was called.';
COMMENT ON COLUMN kb.documents.stored_bytes IS 'Size in bytes of the text, title, uri and metadata that were put. It counts towards the quota of the tenant of the knowledge base.';
COMMENT ON COLUMN kb.documents.content IS 'The extracted text, of which chunks are slices (once status is ready). NULL until the text has been extracted from an original that is not text itself.';

CREATE TABLE kb.chunks (
    chunk_id     uuid NOT NULL,
    build_no     bigint NOT NULL REFERENCES kb.builds ON DELETE CASCADE,
    document_id  bigint NOT NULL REFERENCES kb.documents ON DELETE CASCADE,
    kb_no        bigint NOT NULL,
    tenant_id    text NOT NULL,
    ordinal      integer NOT NULL,
    content      text NOT NULL,
    content_hash bytea NOT NULL,
    token_count  integer NOT NULL,
    start_char   integer NOT NULL,
    end_char     integer NOT NULL,
    locator      jsonb NOT NULL DEFAULT '{}',
    metadata     jsonb NOT NULL DEFAULT '{}',
    enabled      boolean NOT NULL DEFAULT true,
    -- The words of content in the knowledge base's language, each with its count
    -- (crates/kb-search/src/bm25/terms.rs).
    terms        bytea NOT NULL,
    -- Text that is embedded before content, and whose words are in terms, too.
    context      text,
    -- Also finds all chunks of a build.
    PRIMARY KEY (build_no, chunk_id)
);
CREATE INDEX chunks_document ON kb.chunks (document_id, build_no, ordinal);
CREATE INDEX chunks_content ON kb.chunks (build_no, content_hash);
-- Texts are compressed by lz4 if the server has it, because pglz takes two fifths of the time of a put.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_settings s
               WHERE s.name = 'default_toast_compression' AND 'lz4' = ANY (s.enumvals)) THEN
        ALTER TABLE kb.documents ALTER COLUMN original SET COMPRESSION lz4, ALTER COLUMN content SET COMPRESSION lz4;
        ALTER TABLE kb.chunks ALTER COLUMN content SET COMPRESSION lz4;
    END IF;
END
$$;
COMMENT ON TABLE kb.chunks IS 'Chunks: slices of the extracted text of documents.';
COMMENT ON COLUMN kb.chunks.start_char IS 'Position of the first character in documents.content, from 0: content is substr(documents.content, start_char + 1, end_char - start_char).';
COMMENT ON COLUMN kb.chunks.end_char IS 'Position after the last character.';
COMMENT ON COLUMN kb.chunks.chunk_id IS 'Stable id, derived from the knowledge base, the external_id, the tenant if it is not that of the knowledge base, the hash of the content, and the ordinal among chunks of equal hash.';
COMMENT ON COLUMN kb.chunks.context IS 'Text that is embedded before content, and whose words are searched as well (chunking.context). NULL if there is none. content_hash includes it.';

-- Keyword search: which chunks have which words, in segments that never change (crates/kb-search/src/bm25).
-- Chunks that are added or deleted are noted in bm25_pending until the worker folds those of a build and
-- tenant into a segment; it merges segments into larger ones. The numbers of chunks and words of a segment
-- are those of added chunks minus those of deleted ones, so their sums over the segments that a snapshot sees
-- are exact.
CREATE SEQUENCE kb.segment_no_seq;
CREATE TABLE kb.bm25_segments (
    segment_no bigint PRIMARY KEY DEFAULT nextval('kb.segment_no_seq'),
    build_no   bigint NOT NULL REFERENCES kb.builds ON DELETE CASCADE,
    kb_no      bigint NOT NULL,
    tenant_id  text NOT NULL,
    -- In order of time: the chunks that a segment marks as deleted are in older ones.
    age        bigint NOT NULL,
    -- The number of chunks of which it has postings.
    came       integer NOT NULL,
    -- The number of deleted chunks that older segments have.
    went       integer NOT NULL,
    sum_length bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
ALTER SEQUENCE kb.segment_no_seq OWNED BY kb.bm25_segments.segment_no;
CREATE INDEX bm25_segments_build_no ON kb.bm25_segments (build_no, tenant_id, age);
COMMENT ON TABLE kb.bm25_segments IS 'Segments of keyword search: parts of the word index, each for the chunks of one tenant in one build. A segment never changes; the worker merges segments into larger ones.';
COMMENT ON COLUMN kb.bm25_segments.came IS 'Number of chunks whose postings the segment contains.';
COMMENT ON COLUMN kb.bm25_segments.went IS 'Number of chunks that older segments contain and that have been deleted.';
COMMENT ON COLUMN kb.bm25_segments.sum_length IS 'Number of words of the chunks that were added, minus those of the chunks that were deleted.';

-- Words and postings, sorted. No role has any right on these three tables, and no policy shows a row of them;
-- the library reads them as the owner, for segments that the caller may see.
CREATE TABLE kb.bm25_terms (
    segment_no bigint NOT NULL REFERENCES kb.bm25_segments ON DELETE CASCADE,
    first_term bytea NOT NULL,
    page_no    integer NOT NULL,
    page       bytea NOT NULL,
    PRIMARY KEY (segment_no, first_term, page_no)
);
-- A page of postings fills a page of the table, and does not compress.
ALTER TABLE kb.bm25_terms ALTER COLUMN page SET STORAGE PLAIN;
COMMENT ON TABLE kb.bm25_terms IS 'Internal: the words of segments, with the chunks that contain them.';

-- The ids of a segment's chunks in the order of their numbers, 256 to a row: added ones and deleted ones.
CREATE TABLE kb.bm25_chunks (
    segment_no bigint NOT NULL REFERENCES kb.bm25_segments ON DELETE CASCADE,
    is_gone    boolean NOT NULL,
    part       integer NOT NULL,
    chunk_ids  bytea NOT NULL,
    PRIMARY KEY (segment_no, is_gone, part)
);
ALTER TABLE kb.bm25_chunks ALTER COLUMN chunk_ids SET STORAGE PLAIN;
COMMENT ON TABLE kb.bm25_chunks IS 'Internal: the chunks of segments.';

-- Vectors that no index has yet, of builds that have a table for themselves: rounded to 4 bits and packed
-- (crates/kb-search/src/tail.rs), so that they are compared quickly. Restored vectors are not packed, so
-- neither table is dumped.
CREATE TABLE kb.tails (
    build_no bigint PRIMARY KEY REFERENCES kb.builds ON DELETE CASCADE,
    -- All vectors of the build whose number (segment) is at least this are packed.
    first    integer NOT NULL
);
COMMENT ON TABLE kb.tails IS 'Internal: builds whose vectors are stored in packed form until they are indexed.';
CREATE TABLE kb.tail_vectors (
    build_no  bigint NOT NULL REFERENCES kb.tails ON DELETE CASCADE,
    tenant_id text NOT NULL,
    segment   integer NOT NULL,
    packed    bytea NOT NULL
);
-- A block fits a page of the table, and does not compress.
ALTER TABLE kb.tail_vectors ALTER COLUMN packed SET STORAGE PLAIN;
CREATE INDEX tail_vectors_segment ON kb.tail_vectors (build_no, segment);
COMMENT ON TABLE kb.tail_vectors IS 'Internal: vectors that are not indexed yet, in packed form.';

CREATE SEQUENCE kb.pending_no_seq;
CREATE TABLE kb.bm25_pending (
    pending_no bigint PRIMARY KEY DEFAULT nextval('kb.pending_no_seq'),
    -- Not a foreign key, whose cost every writer of chunks would have to wait for. The worker deletes the
    -- rows of builds that no longer exist.
    build_no   bigint NOT NULL,
    tenant_id  text NOT NULL,
    -- As many as fit a row that is stored uncompressed, or one that was deleted.
    chunk_ids  uuid[] NOT NULL,
    -- NULL: these chunks were added. Otherwise one was deleted, and these were its words.
    terms      bytea
);
ALTER SEQUENCE kb.pending_no_seq OWNED BY kb.bm25_pending.pending_no;
CREATE INDEX bm25_pending_build_no ON kb.bm25_pending (build_no, tenant_id, pending_no);
COMMENT ON TABLE kb.bm25_pending IS 'Internal: chunks that were added or deleted since the worker last wrote those of their build into a segment.';
DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['bm25_terms', 'bm25_chunks', 'bm25_pending', 'tails', 'tail_vectors'] LOOP
        EXECUTE pg_catalog.format('ALTER TABLE kb.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE pg_catalog.format('ALTER TABLE kb.%I FORCE ROW LEVEL SECURITY', t);
    END LOOP;
END
$$;
-- A vector belongs to a chunk. This is not a foreign key, for two reasons. With a foreign key from each
-- vector table, PostgreSQL would look into every vector table for each chunk that is deleted, so one tenant's
-- knowledge bases would slow down everybody's deletions. And creating it locks kb.chunks, so a table would
-- have none until the worker could add it.
--
-- These triggers are checked by the database for every writer at all times, from the first moment of a table
-- on. For a vector that is written, vector_written locks the chunk of its tenant, or refuses the vector. For
-- chunks and builds that are deleted, chunks_deleted and builds_deleted delete the vectors, in the one table
-- that has them. Vector tables get their triggers when they are created (src/vectors/sql/table.rs).
--
-- As with foreign keys, nothing is checked while triggers are switched off: in a subscription or under
-- session_replication_role = replica, because the origin has checked what is replicated; while pg_restore
-- loads rows, which come from one snapshot; and by a superuser (DISABLE TRIGGER), which kb.health() reports.
-- tests/live/orphans.rs tests the orders and isolation levels.
CREATE FUNCTION kb._vector_written() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS
$$BEGIN
    PERFORM FROM kb.chunks c
    WHERE c.build_no = NEW.build_no AND c.chunk_id = NEW.chunk_id AND c.tenant_id = NEW.tenant_id FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE foreign_key_violation USING
            MESSAGE = pg_catalog.format('chunk %s of build %s does not exist, or belongs to another tenant', NEW.chunk_id, NEW.build_no),
            SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
    END IF;
    RETURN NULL;
END$$;
COMMENT ON FUNCTION kb._vector_written() IS 'Internal: rejects a vector that does not belong to a chunk of its tenant.';
-- When their build is deleted, its chunks are deleted without a row for each.
CREATE FUNCTION kb._chunks_deleted() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS
$$BEGIN
    PERFORM kb._delete_vectors(g.build_no, pg_catalog.array_agg(g.chunk_id)) FROM gone g GROUP BY g.build_no;
    INSERT INTO kb.bm25_pending (build_no, tenant_id, chunk_ids, terms)
    SELECT g.build_no, g.tenant_id, ARRAY[g.chunk_id], g.terms FROM gone g
    WHERE (SELECT b.state <> 'old' FROM kb.builds b WHERE b.build_no = g.build_no);
    RETURN NULL;
END$$;
COMMENT ON FUNCTION kb._chunks_deleted() IS 'Internal: deletes the vectors of deleted chunks, and records that their words are gone.';
CREATE TRIGGER chunks_deleted AFTER DELETE ON kb.chunks REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION kb._chunks_deleted();
-- The chunks are deleted first, when the table that had their vectors can no longer be found.
CREATE FUNCTION kb._builds_deleted() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS
$$BEGIN
    PERFORM kb._delete_vectors(g.build_no, g.table_name) FROM gone g;
    RETURN NULL;
END$$;
COMMENT ON FUNCTION kb._builds_deleted() IS 'Internal: deletes the vectors of deleted builds.';
CREATE TRIGGER builds_deleted AFTER DELETE ON kb.builds REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION kb._builds_deleted();
-- kb never does this, but a superuser could.
CREATE FUNCTION kb._chunks_truncated() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS
$$BEGIN
    PERFORM kb._delete_vectors(b.build_no, b.table_name) FROM kb.builds b;
    RETURN NULL;
END$$;
COMMENT ON FUNCTION kb._chunks_truncated() IS 'Internal: deletes all vectors before all chunks are truncated.';
CREATE TRIGGER chunks_truncated BEFORE TRUNCATE ON kb.chunks FOR EACH STATEMENT EXECUTE FUNCTION kb._chunks_truncated();
CREATE FUNCTION kb._chunk_renamed() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS
$$BEGIN
    RAISE foreign_key_violation USING
        MESSAGE = pg_catalog.format('the key of chunk %s of build %s cannot be changed', OLD.chunk_id, OLD.build_no),
        DETAIL = 'Its vector has the same key.', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
END$$;
COMMENT ON FUNCTION kb._chunk_renamed() IS 'Internal: rejects a change of the key of a chunk.';
CREATE TRIGGER chunk_renamed AFTER UPDATE OF build_no, chunk_id ON kb.chunks FOR EACH ROW
    WHEN ((OLD.build_no, OLD.chunk_id) IS DISTINCT FROM (NEW.build_no, NEW.chunk_id)) EXECUTE FUNCTION kb._chunk_renamed();

CREATE SEQUENCE kb.job_no_seq;
CREATE TABLE kb.jobs (
    job_no          bigint PRIMARY KEY DEFAULT nextval('kb.job_no_seq'),
    kb_no           bigint NOT NULL REFERENCES kb.knowledge_bases ON DELETE CASCADE,
    tenant_id       text NOT NULL DEFAULT kb.current_tenant(),
    kind            text NOT NULL DEFAULT 'document' CHECK (kind IN ('document', 'source')),
    subject         text NOT NULL,
    -- A new number with every edit, never used twice (a document may be deleted and put again). A job is not
    -- finished under an older generation.
    generation      bigint NOT NULL DEFAULT nextval('kb.job_no_seq'),
    -- 0 for edits of live documents, 10 for a backfill.
    priority        smallint NOT NULL DEFAULT 0,
    attempts        integer NOT NULL DEFAULT 0,
    leased_until    timestamptz,
    -- NULL: it is due.
    next_attempt_at timestamptz,
    queued_at       timestamptz NOT NULL DEFAULT now(),
    -- The generation whose chunks are written; only vectors are missing then.
    chunked         bigint,
    error           text,
    -- The embedder that caused the error; NULL: none did.
    embedder        text,
    run_no          bigint REFERENCES kb.runs ON DELETE SET NULL,
    -- The source whose row must be read first; NULL: the document was put.
    source_no       bigint,
    UNIQUE (kb_no, tenant_id, kind, subject)
)
-- Each job leaves two dead rows, its first version and its last. They are removed once there are a thousand,
-- however large the table once was.
WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
ALTER SEQUENCE kb.job_no_seq OWNED BY kb.jobs.job_no;
-- Jobs that may be claimed, by kind of work, in the order of turns; delayed jobs; leased jobs. So no look-up
-- has to pass over the others.
CREATE INDEX jobs_due ON kb.jobs (kind, priority, tenant_id, kb_no, job_no)
    WHERE leased_until IS NULL AND next_attempt_at IS NULL;
CREATE INDEX jobs_delayed ON kb.jobs (next_attempt_at) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX jobs_leased ON kb.jobs (leased_until) WHERE leased_until IS NOT NULL;
-- For the foreign key, and to see whether a run still has jobs.
CREATE INDEX jobs_run_no ON kb.jobs (run_no) WHERE run_no IS NOT NULL;
COMMENT ON TABLE kb.jobs IS 'Documents and sources that wait for the worker, one row each. Edits of a document that is already waiting are combined.';
COMMENT ON COLUMN kb.jobs.subject IS 'The object of the job: for kind document, an external_id; for kind source, the name of the source.';

CREATE TABLE kb.usage (
    capability text NOT NULL DEFAULT 'embed' CHECK (capability IN ('embed', 'rerank', 'chat', 'extract')),
    endpoint   text NOT NULL,
    -- 0: no knowledge base (kb.embed, kb.check_embedder).
    kb_no      bigint NOT NULL,
    kb_id      text,
    -- The session's tenant for a question, the knowledge base's for a document.
    tenant_id  text NOT NULL,
    -- In UTC.
    day        date NOT NULL,
    requests   bigint NOT NULL DEFAULT 0,
    texts      bigint NOT NULL DEFAULT 0,
    tokens     bigint NOT NULL DEFAULT 0,
    retries    bigint NOT NULL DEFAULT 0,
    cost       numeric,
    PRIMARY KEY (endpoint, capability, kb_no, tenant_id, day)
);
COMMENT ON TABLE kb.usage IS 'Requests to remote endpoints by knowledge base, tenant that caused them, and day (UTC). Rows are kept when a knowledge base is dropped.';
COMMENT ON COLUMN kb.usage.endpoint IS 'The id of an embedder (capability embed), reranker (rerank), chat model (chat) or extractor (extract).';
COMMENT ON COLUMN kb.usage.cost IS 'Exact cost in the currency of price_per_million_tokens. NULL if no request had a price.';

-- The origin of documents that are not put: a table, whose triggers write kb.changes, or something that a run
-- lists and reads, which has a name.
CREATE SEQUENCE kb.source_no_seq;
CREATE TABLE kb.sources (
    source_no     bigint PRIMARY KEY DEFAULT nextval('kb.source_no_seq'),
    kb_no         bigint NOT NULL,
    tenant_id     text NOT NULL DEFAULT kb.current_tenant(),
    type          text NOT NULL CHECK (type IN ('table', 'files', 'markdown_glob', 'git', 'url', 'media_transcript', 'query', 's3', 'gcs',
                                                'azure', 'cloud_storage')),
    name          text,
    -- After a restore the oid differs, and the table is found by its name.
    relation      oid,
    relation_name text,
    -- The owner of the table when it was attached. Rows are read with the rights of this role while it is the
    -- owner. Of other types: who created the source.
    role_name     name NOT NULL,
    key           text[],
    config        jsonb NOT NULL,
    -- The key up to which existing rows are enqueued, {} at first; NULL: all are.
    backfill      text[],
    -- What is wrong with the source as a whole, as the worker last found.
    error         text,
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    is_partitioned boolean NOT NULL DEFAULT false,
    -- Its partitions, as the worker last found them.
    partitions    oid[] NOT NULL DEFAULT '{}',
    -- The roles that attached it, by names and oids; the oid identifies a renamed role, and the name one in a
    -- restored database. Rows may belong to the tenants to which these roles are bound.
    attached_by      name[] NOT NULL,
    attached_by_oids oid[] NOT NULL,
    -- The last run and the next one of a source that is listed.
    run_no        bigint,
    last_run_at   timestamptz,
    next_run_at   timestamptz,
    -- The version of the source as a whole, while its documents have it.
    version       text,
    UNIQUE (kb_no, name),
    CHECK (CASE type WHEN 'table' THEN name IS NULL AND relation IS NOT NULL AND relation_name IS NOT NULL AND key IS NOT NULL
           ELSE name <> '' AND name IS NOT NULL AND relation IS NULL AND relation_name IS NULL AND key IS NULL AND backfill IS NULL END),
    FOREIGN KEY (kb_no, tenant_id) REFERENCES kb.knowledge_bases (kb_no, tenant_id) ON UPDATE CASCADE ON DELETE CASCADE
);
ALTER SEQUENCE kb.source_no_seq OWNED BY kb.sources.source_no;
CREATE INDEX sources_kb_no ON kb.sources (kb_no);
CREATE INDEX sources_tenant_id ON kb.sources (tenant_id);
CREATE INDEX sources_next_run_at ON kb.sources (next_run_at) WHERE next_run_at IS NOT NULL;
CREATE INDEX sources_backfill ON kb.sources (source_no) WHERE backfill IS NOT NULL;
-- Event triggers look up what a statement dropped, at a cost that does not depend on the number of attached
-- tables.
CREATE INDEX sources_relation ON kb.sources (relation);
CREATE INDEX sources_relation_name ON kb.sources (relation_name);
CREATE INDEX sources_partitions ON kb.sources USING gin (partitions) WHERE is_partitioned;
COMMENT ON TABLE kb.sources IS 'Where documents of a knowledge base come from: attached tables, whose rows are documents (kb.attach_table, kb.detach_table), and folders and queries (kb.create_source, kb.alter_source, kb.drop_source).';
COMMENT ON COLUMN kb.sources.name IS 'The name of the source, unique in its knowledge base; NULL for a table.';
COMMENT ON COLUMN kb.sources.run_no IS 'The last run of kb.ingest in which the source was listed; NULL if there was none, or for a table.';
COMMENT ON COLUMN kb.sources.last_run_at IS 'When the source was last listed to the end; NULL if it never was, or for a table.';
COMMENT ON COLUMN kb.sources.next_run_at IS 'When the next run begins by itself (every in config); NULL if none does.';
COMMENT ON COLUMN kb.sources.version IS 'The version of the source that its documents have; of type git, the id of the commit. NULL while they differ from it, if something of it could not be read, or for other types.';
COMMENT ON COLUMN kb.sources.source_no IS 'The number of the source, which kb.attach_table and kb.create_source return.';
COMMENT ON COLUMN kb.sources.kb_no IS 'The number of the knowledge base.';
COMMENT ON COLUMN kb.sources.tenant_id IS 'The knowledge base''s tenant.';
COMMENT ON COLUMN kb.sources.type IS 'The type of the source: table, files, markdown_glob, git, url, media_transcript, query, s3, gcs, azure or cloud_storage.';
COMMENT ON COLUMN kb.sources.relation IS 'The oid of the table when it was attached or last found; NULL for other types.';
COMMENT ON COLUMN kb.sources.relation_name IS 'The name of the table when it was attached or last found, schema-qualified and quoted; NULL for other types.';
COMMENT ON COLUMN kb.sources.role_name IS 'The owner of the table when it was attached. Rows are read with the privileges of this role, while it owns the table. For other types, the role that created or altered the source, with whose privileges a query runs.';
COMMENT ON COLUMN kb.sources.key IS 'The columns of the primary key, whose values form the external_id; NULL for other types than table.';
COMMENT ON COLUMN kb.sources.config IS 'How rows become documents: the arguments of kb.attach_table, with published_when as PostgreSQL prints it. For other types, the config of kb.create_source with all defaults.';
COMMENT ON COLUMN kb.sources.backfill IS 'The key up to which existing rows have been queued, initially {}. NULL once all have been queued.';
COMMENT ON COLUMN kb.sources.error IS 'The problem that the worker last found with the source as a whole. NULL if there is none.';
COMMENT ON COLUMN kb.sources.created_at IS 'When the table was attached or the source created.';
COMMENT ON COLUMN kb.sources.updated_at IS 'When the table was last attached again or the source altered; initially equal to created_at.';
COMMENT ON COLUMN kb.sources.is_partitioned IS 'Whether it is a partitioned table.';
COMMENT ON COLUMN kb.sources.attached_by IS 'The roles that attached the table or created the source: the session user, the role that was SET, and the current user. Rows become documents only of tenants that all of these roles may act for.';
COMMENT ON COLUMN kb.sources.attached_by_oids IS 'The oids of these roles at that time, so that a renamed role stays bound.';
COMMENT ON COLUMN kb.sources.partitions IS 'The oids of the partitions that have triggers; {} if there are none.';

-- What statements did to rows of sources, written by their triggers and read by the worker. The rows belong
-- to many tenants, so no role has any right on this table and no policy shows a row of it; the library reads
-- it as the owner.
CREATE TABLE kb.changes (
    source_no  bigint NOT NULL,
    -- In approximate order of time (UUID version 7).
    change_id  uuid NOT NULL,
    -- changed: these rows must be read again. gone: no answer contains them any more. truncated: no answer
    -- contains any row. partitions: partitions joined or left; keys are the oids of those whose rows are in
    -- no answer until the worker has looked. filled: the rows of a new partition must be enqueued; keys are
    -- its oid and the key up to which that is done.
    change     text NOT NULL CHECK (change IN ('changed', 'gone', 'truncated', 'partitions', 'filled')),
    -- The tenant of each key; {}: the source's.
    tenants    text[] NOT NULL,
    keys       text[] NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (source_no, change_id)
);
-- Not compressed, because a statement of a user waits for this write.
ALTER TABLE kb.changes ALTER COLUMN keys SET STORAGE EXTERNAL;
-- The rows that a query must leave out.
CREATE INDEX changes_gone ON kb.changes (source_no) WHERE change <> 'changed';
CREATE INDEX changes_partitions ON kb.changes (source_no) WHERE change = 'partitions';
CREATE INDEX changes_filled ON kb.changes (source_no) WHERE change = 'filled';
ALTER TABLE kb.changes ENABLE ROW LEVEL SECURITY;
ALTER TABLE kb.changes FORCE ROW LEVEL SECURITY;
COMMENT ON TABLE kb.changes IS 'Internal: rows of attached tables that have changed since the worker last read them.';

-- How long the tables of an owner rest for a tenant, because reading them took long. The worker writes this
-- seldom, and reads it when it starts, so a crash may lose it. As with kb.changes, no role has any right on
-- it.
CREATE UNLOGGED TABLE kb.reading_rests (
    role_name   name NOT NULL,
    tenant_id   text NOT NULL,
    rests_until timestamptz NOT NULL,
    PRIMARY KEY (role_name, tenant_id)
);
ALTER TABLE kb.reading_rests ENABLE ROW LEVEL SECURITY;
ALTER TABLE kb.reading_rests FORCE ROW LEVEL SECURITY;
COMMENT ON TABLE kb.reading_rests IS 'Internal: the time until which the attached tables of an owner are not read for a tenant, because reading them took long.';

-- Not for every update: the worker records its progress here, and each change would make all sessions plan
-- anew.
CREATE TRIGGER watched_changed AFTER INSERT OR UPDATE OF tenant_id OR DELETE OR TRUNCATE ON kb.sources
    FOR EACH STATEMENT EXECUTE FUNCTION kb._watched_changed();
-- DDL adds and removes partitions.
CREATE EVENT TRIGGER kb_tables_altered ON ddl_command_end WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE', 'CREATE SCHEMA')
    EXECUTE FUNCTION kb._tables_altered();
CREATE EVENT TRIGGER kb_tables_dropped ON sql_drop WHEN TAG IN ('DROP TABLE', 'DROP SCHEMA', 'DROP OWNED')
    EXECUTE FUNCTION kb._tables_altered();

-- The tenants for which a role may act; a role without a row may act for any.
CREATE TABLE kb.tenant_roles (
    role_name name NOT NULL,
    -- Filled in by the trigger; NULL while no such role exists.
    role      oid,
    tenant_id text NOT NULL,
    PRIMARY KEY (role_name, tenant_id)
);
COMMENT ON TABLE kb.tenant_roles IS 'Bindings of roles, and of all roles that have their privileges, to tenants. Changed by kb.bind_role and kb.unbind_role.';
COMMENT ON COLUMN kb.tenant_roles.role IS 'The oid of the role. A renamed role stays bound.';
CREATE FUNCTION kb._tenant_role() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS
$$BEGIN
    NEW.role := (SELECT oid FROM pg_roles WHERE rolname = NEW.role_name);
    RETURN NEW;
END$$;
COMMENT ON FUNCTION kb._tenant_role() IS 'Internal: finds the role that a row of kb.tenant_roles names.';
CREATE TRIGGER tenant_role BEFORE INSERT ON kb.tenant_roles FOR EACH ROW EXECUTE FUNCTION kb._tenant_role();
CREATE TRIGGER watched_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON kb.tenant_roles
    FOR EACH STATEMENT EXECUTE FUNCTION kb._watched_changed();

-- Keys with which programs ask kb serve. A key is random, and only its hash is here.
CREATE TABLE kb.api_keys (
    key_id       text PRIMARY KEY CHECK (key_id <> ''),
    name         text NOT NULL CHECK (name <> ''),
    hash         bytea NOT NULL,
    role_name    name NOT NULL,
    tenant_id    text NOT NULL,
    scopes       text[] NOT NULL DEFAULT '{}',
    requests_per_minute integer CHECK (requests_per_minute > 0),
    expires_at   timestamptz,
    created_at   timestamptz NOT NULL DEFAULT now(),
    created_by   name NOT NULL,
    last_used_at timestamptz
);
COMMENT ON TABLE kb.api_keys IS 'API keys, with which programs ask kb serve. Changed by kb.create_api_key and kb.drop_api_key.';
COMMENT ON COLUMN kb.api_keys.key_id IS 'The part of the key that is no secret: kb_ID_secret.';
COMMENT ON COLUMN kb.api_keys.hash IS 'The hash of the secret part. No role reads it.';
COMMENT ON COLUMN kb.api_keys.role_name IS 'The role as which the holder of the key acts.';
COMMENT ON COLUMN kb.api_keys.tenant_id IS 'The tenant for which the holder of the key acts.';
COMMENT ON COLUMN kb.api_keys.scopes IS 'What the key may be used for; empty: everything that its role may do.';
COMMENT ON COLUMN kb.api_keys.requests_per_minute IS 'The most requests in a minute to one kb serve; NULL: no limit.';
COMMENT ON COLUMN kb.api_keys.last_used_at IS 'When the key was last used, noted once a minute.';
SELECT pg_catalog.pg_extension_config_dump('kb.api_keys', '');

-- Knowledge bases that another tenant may read: the documents of the tenant that owns them.
CREATE TABLE kb.shares (
    tenant_id  text NOT NULL,
    kb_no      bigint NOT NULL,
    owner_id   text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, kb_no),
    FOREIGN KEY (kb_no, owner_id) REFERENCES kb.knowledge_bases (kb_no, tenant_id) ON UPDATE CASCADE ON DELETE CASCADE,
    CHECK (tenant_id <> owner_id)
);
CREATE INDEX shares_kb_no ON kb.shares (kb_no);
COMMENT ON TABLE kb.shares IS 'Knowledge bases that tenants let other tenants read. Changed by kb.share and kb.unshare.';
COMMENT ON COLUMN kb.shares.tenant_id IS 'The tenant that may read the knowledge base.';
COMMENT ON COLUMN kb.shares.owner_id IS 'The tenant that owns the knowledge base.';
CREATE TRIGGER watched_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON kb.shares
    FOR EACH STATEMENT EXECUTE FUNCTION kb._watched_changed();

-- What tenants may have. A tenant without a row has no limit, and neither has one for a column that is NULL,
-- except that settings limit knowledge_bases, attached_tables and metadata_indexes. Documents are charged to
-- the tenant that owns their knowledge base.
CREATE TABLE kb.quotas (
    tenant_id       text PRIMARY KEY,
    bytes           bigint CHECK (bytes >= 0),
    documents       bigint CHECK (documents >= 0),
    document_bytes  bigint CHECK (document_bytes >= 0),
    knowledge_bases bigint CHECK (knowledge_bases >= 0),
    tokens_per_day  bigint CHECK (tokens_per_day >= 0),
    attached_tables  bigint CHECK (attached_tables >= 0),
    metadata_indexes bigint CHECK (metadata_indexes >= 0),
    memory_entries   bigint CHECK (memory_entries >= 0),
    -- Whether the counts include what older transactions added.
    is_settled      boolean NOT NULL DEFAULT false,
    -- Once all running transactions are younger, what the tenant has is counted once more. NULL: the worker
    -- has not seen the row yet.
    settle_after    xid8,
    updated_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX quotas_unsettled ON kb.quotas (tenant_id) WHERE NOT is_settled;
COMMENT ON TABLE kb.quotas IS 'Quotas of tenants. NULL means no limit, or the limit of the settings kb.tenant_*. Changed by kb.set_quota; kb.quota_status shows what is used.';
COMMENT ON COLUMN kb.quotas.bytes IS 'Limit for all that the tenant stores: documents of its knowledge bases as they were put, with title, uri and metadata, and the descriptions, metadata, evaluation sets, settings of attached tables, subjects and tags of memories, and shares of the knowledge bases.';
COMMENT ON COLUMN kb.quotas.documents IS 'Limit for one knowledge base.';
COMMENT ON COLUMN kb.quotas.document_bytes IS 'Limit for one document as it was put, with title, uri and metadata.';
COMMENT ON COLUMN kb.quotas.tokens_per_day IS 'Limit for tokens sent to remote endpoints in a day (UTC).';
COMMENT ON COLUMN kb.quotas.knowledge_bases IS 'NULL means setting kb.tenant_knowledge_bases.';
COMMENT ON COLUMN kb.quotas.attached_tables IS 'Limit for all knowledge bases together. NULL means setting kb.tenant_attached_tables.';
COMMENT ON COLUMN kb.quotas.metadata_indexes IS 'Limit for different keys and types in all knowledge bases together. NULL means setting kb.tenant_metadata_indexes.';
COMMENT ON COLUMN kb.quotas.memory_entries IS 'Limit for all memories together. NULL means setting kb.tenant_memory_entries.';
CREATE TRIGGER watched_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON kb.quotas
    FOR EACH STATEMENT EXECUTE FUNCTION kb._watched_changed();

-- What tenants with a quota have: the sums of these rows. A deletion adds a row with negative numbers, and
-- waits for nothing.
CREATE TABLE kb.quota_counts (
    -- For a publication of all tables.
    count_id  uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tenant_id text NOT NULL,
    kb_no     bigint NOT NULL,
    documents bigint NOT NULL,
    bytes     bigint NOT NULL
);
CREATE INDEX quota_counts_tenant_id ON kb.quota_counts (tenant_id, kb_no);
COMMENT ON TABLE kb.quota_counts IS 'Documents and bytes of tenants that have a quota. The sum of the rows counts.';
-- Knowledge bases and quotas are looked up by their keys, whatever the statistics say when the plan is made.
CREATE FUNCTION kb._documents_deleted() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS
$$BEGIN
    IF EXISTS (SELECT FROM kb.quotas) THEN
        INSERT INTO kb.quota_counts (tenant_id, kb_no, documents, bytes)
        SELECT o.tenant_id, o.kb_no, -o.documents, -o.bytes
        FROM (SELECT g.kb_no, count(*) FILTER (WHERE g.has_text) AS documents, sum(g.stored_bytes) AS bytes,
                     (SELECT k.tenant_id FROM kb.knowledge_bases k WHERE k.kb_no = g.kb_no) AS tenant_id
              FROM (SELECT kb_no, stored_bytes, coalesce(octet_length(original), octet_length(content), 0) > 0 AS has_text
                    FROM gone) g
              GROUP BY g.kb_no) o
        WHERE (SELECT true FROM kb.quotas q WHERE q.tenant_id = o.tenant_id);
    END IF;
    RETURN NULL;
END$$;
COMMENT ON FUNCTION kb._documents_deleted() IS 'Internal: subtracts deleted documents from the usage of a tenant with a quota.';
CREATE TRIGGER documents_deleted AFTER DELETE ON kb.documents REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION kb._documents_deleted();
CREATE INDEX usage_tenant_id ON kb.usage (tenant_id, day);

-- Keys of metadata that filters look up in ranges. The indexes themselves are on kb.documents, one for each
-- key and type, whichever knowledge bases want it; the indexer creates and drops them.
CREATE TABLE kb.metadata_indexes (
    kb_no      bigint NOT NULL,
    tenant_id  text NOT NULL DEFAULT kb.current_tenant(),
    key        text NOT NULL,
    type       text NOT NULL CHECK (type IN ('text', 'number', 'timestamp')),
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kb_no, key, type),
    FOREIGN KEY (kb_no, tenant_id) REFERENCES kb.knowledge_bases (kb_no, tenant_id) ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE INDEX metadata_indexes_key ON kb.metadata_indexes (key, type);
CREATE INDEX metadata_indexes_tenant_id ON kb.metadata_indexes (tenant_id, key, type);
COMMENT ON TABLE kb.metadata_indexes IS 'Metadata keys with an index that filters use for range comparisons. Changed by kb.index_metadata and kb.unindex_metadata.';

-- A memory is a knowledge base of which each document is a fact. Its entries have what documents have not.
CREATE TABLE kb.memory_stores (
    kb_no      bigint PRIMARY KEY,
    tenant_id  text NOT NULL DEFAULT kb.current_tenant(),
    settings   jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    next_consolidation_at timestamptz,
    consolidated_at       timestamptz,
    consolidation_calls   integer NOT NULL DEFAULT 0,
    FOREIGN KEY (kb_no, tenant_id) REFERENCES kb.knowledge_bases (kb_no, tenant_id) ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE INDEX memory_stores_next_consolidation_at ON kb.memory_stores (next_consolidation_at) WHERE next_consolidation_at IS NOT NULL;
COMMENT ON TABLE kb.memory_stores IS 'The knowledge bases that are memories. Changed by kb.create_memory, kb.alter_memory and kb.drop_memory.';
COMMENT ON COLUMN kb.memory_stores.settings IS 'How the memory is searched, how scores decay, when entries are archived, and how they are extracted and merged, including every default.';
COMMENT ON COLUMN kb.memory_stores.next_consolidation_at IS 'When related entries will be merged next; NULL: only when kb.consolidate_memories is called.';
COMMENT ON COLUMN kb.memory_stores.consolidated_at IS 'When the last consolidation ended; NULL: there was none.';
COMMENT ON COLUMN kb.memory_stores.consolidation_calls IS 'How many answers of the chat model the consolidation that was begun last has used.';
CREATE TABLE kb.memory_entries (
    document_id      bigint PRIMARY KEY REFERENCES kb.documents ON DELETE CASCADE,
    kb_no            bigint NOT NULL,
    tenant_id        text NOT NULL DEFAULT kb.current_tenant(),
    subject          text NOT NULL,
    tags             text[] NOT NULL,
    confidence       double precision NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    created_at       timestamptz NOT NULL DEFAULT now(),
    valid_from       timestamptz NOT NULL,
    valid_to         timestamptz,
    expires_at       timestamptz,
    access_count     bigint NOT NULL DEFAULT 0,
    last_accessed_at timestamptz,
    superseded_by    bigint REFERENCES kb.memory_entries ON DELETE SET NULL,
    consolidated_into bigint REFERENCES kb.memory_entries ON DELETE SET NULL,
    -- Whether it was compared with the other entries of its subject, to be merged with those that it is like.
    is_compared      boolean NOT NULL DEFAULT false,
    -- The conversation and the turn belong to the same tenant. They are created below, with the foreign keys.
    source_conversation_id text,
    source_turn_id   text,
    -- Meaningless once the turn has gone: kb.memories shows them with it only.
    source_start     integer CHECK (source_start >= 0),
    source_end       integer CHECK (source_end > source_start)
)
-- An access updates a row, and no index.
WITH (fillfactor = 80);
CREATE INDEX memory_entries_subject ON kb.memory_entries (kb_no, subject);
CREATE INDEX memory_entries_not_compared ON kb.memory_entries (kb_no, subject, created_at, document_id) WHERE NOT is_compared;
CREATE INDEX memory_entries_tags ON kb.memory_entries USING gin (tags);
CREATE INDEX memory_stores_tenant_id ON kb.memory_stores (tenant_id);
CREATE INDEX memory_entries_consolidated_into ON kb.memory_entries (consolidated_into) WHERE consolidated_into IS NOT NULL;
CREATE INDEX memory_entries_source_conversation_id ON kb.memory_entries (source_conversation_id, tenant_id)
    WHERE source_conversation_id IS NOT NULL;
CREATE INDEX memory_entries_source_turn_id ON kb.memory_entries (source_turn_id, tenant_id) WHERE source_turn_id IS NOT NULL;
CREATE INDEX memory_entries_superseded_by ON kb.memory_entries (superseded_by) WHERE superseded_by IS NOT NULL;
COMMENT ON TABLE kb.memory_entries IS 'What is known of each entry of a memory besides its document. kb.memories shows both.';
COMMENT ON COLUMN kb.memory_entries.subject IS 'Whom or what the fact is about; '''' if that was not said.';
COMMENT ON COLUMN kb.memory_entries.confidence IS 'How certain the fact is, from 0 to 1.';
COMMENT ON COLUMN kb.memory_entries.valid_from IS 'When the fact began to hold.';
COMMENT ON COLUMN kb.memory_entries.valid_to IS 'When it ceased to hold, which is when another one superseded it, or as the caller said; NULL: it holds.';
COMMENT ON COLUMN kb.memory_entries.expires_at IS 'From when on it is not recalled any more; NULL: there is no such time.';
COMMENT ON COLUMN kb.memory_entries.access_count IS 'How often it was recalled, as far as that was counted, or touched (kb.touch).';
COMMENT ON COLUMN kb.memory_entries.superseded_by IS 'The document_id of the entry that superseded it.';
COMMENT ON COLUMN kb.memory_entries.consolidated_into IS 'The document_id of the entry into which it was merged with others.';
COMMENT ON COLUMN kb.memory_entries.is_compared IS 'Whether consolidation has compared it with the other entries of its subject.';
COMMENT ON COLUMN kb.memory_entries.source_conversation_id IS 'The conversation in which it was said; NULL if that is not known, or the conversation was dropped.';
COMMENT ON COLUMN kb.memory_entries.source_turn_id IS 'The turn in which it was said; NULL if that is not known, or the turn was dropped.';
COMMENT ON COLUMN kb.memory_entries.source_start IS 'The first character, from 0 on, of the part of the turn''s text that says it.';
COMMENT ON COLUMN kb.memory_entries.source_end IS 'The character after the last one of that part.';
-- An entry into which others were merged repeats what they say, and goes with any of them. The others count on
-- their own again, and are compared once more.
CREATE FUNCTION kb._merged_entry_deleted() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS
$$BEGIN
    DELETE FROM kb.documents d WHERE d.document_id = OLD.consolidated_into;
    RETURN NULL;
END$$;
COMMENT ON FUNCTION kb._merged_entry_deleted() IS 'Internal: deletes the entry into which a deleted one was merged.';
CREATE TRIGGER merged_entry_deleted AFTER DELETE ON kb.memory_entries FOR EACH ROW
    WHEN (OLD.consolidated_into IS NOT NULL) EXECUTE FUNCTION kb._merged_entry_deleted();
CREATE FUNCTION kb._entry_unmerged() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS
$$BEGIN
    NEW.is_compared := false;
    RETURN NEW;
END$$;
COMMENT ON FUNCTION kb._entry_unmerged() IS 'Internal: has an entry compared again that is not merged any more.';
CREATE TRIGGER entry_unmerged BEFORE UPDATE OF consolidated_into ON kb.memory_entries FOR EACH ROW
    WHEN (OLD.consolidated_into IS NOT NULL AND NEW.consolidated_into IS NULL) EXECUTE FUNCTION kb._entry_unmerged();

-- Rows of users are dumped; rows that the extension seeds are not.
SELECT pg_catalog.pg_extension_config_dump('kb.embedders', 'WHERE NOT seeded');
SELECT pg_catalog.pg_extension_config_dump('kb.llms', '');
SELECT pg_catalog.pg_extension_config_dump('kb.rerankers', '');
SELECT pg_catalog.pg_extension_config_dump('kb.extractors', '');
SELECT pg_catalog.pg_extension_config_dump('kb.origins', '');
SELECT pg_catalog.pg_extension_config_dump('kb.usage', '');
SELECT pg_catalog.pg_extension_config_dump('kb.vector_dbs', '');
SELECT pg_catalog.pg_extension_config_dump('kb.knowledge_bases', '');
SELECT pg_catalog.pg_extension_config_dump('kb.runs', '');
SELECT pg_catalog.pg_extension_config_dump('kb.builds', '');
SELECT pg_catalog.pg_extension_config_dump('kb.documents', '');
SELECT pg_catalog.pg_extension_config_dump('kb.chunks', '');
SELECT pg_catalog.pg_extension_config_dump('kb.bm25_segments', '');
SELECT pg_catalog.pg_extension_config_dump('kb.bm25_terms', '');
SELECT pg_catalog.pg_extension_config_dump('kb.bm25_chunks', '');
SELECT pg_catalog.pg_extension_config_dump('kb.bm25_pending', '');
SELECT pg_catalog.pg_extension_config_dump('kb.jobs', '');
SELECT pg_catalog.pg_extension_config_dump('kb.sources', '');
SELECT pg_catalog.pg_extension_config_dump('kb.tenant_roles', '');
SELECT pg_catalog.pg_extension_config_dump('kb.shares', '');
SELECT pg_catalog.pg_extension_config_dump('kb.quotas', '');
SELECT pg_catalog.pg_extension_config_dump('kb.quota_counts', '');
SELECT pg_catalog.pg_extension_config_dump('kb.changes', '');
SELECT pg_catalog.pg_extension_config_dump('kb.metadata_indexes', '');
SELECT pg_catalog.pg_extension_config_dump('kb.memory_stores', '');
SELECT pg_catalog.pg_extension_config_dump('kb.memory_entries', '');
SELECT pg_catalog.pg_extension_config_dump('kb.kb_no_seq', '');
SELECT pg_catalog.pg_extension_config_dump('kb.run_no_seq', '');
SELECT pg_catalog.pg_extension_config_dump('kb.build_no_seq', '');
SELECT pg_catalog.pg_extension_config_dump('kb.document_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('kb.segment_no_seq', '');
SELECT pg_catalog.pg_extension_config_dump('kb.pending_no_seq', '');
SELECT pg_catalog.pg_extension_config_dump('kb.job_no_seq', '');
SELECT pg_catalog.pg_extension_config_dump('kb.source_no_seq', '');

-- Questions with the expected contents of their answers, for kb.evaluate and kb.tune. They belong to the
-- knowledge base's tenant.
CREATE SEQUENCE kb.eval_set_no_seq;
CREATE TABLE kb.eval_sets (
    eval_set_no bigint PRIMARY KEY DEFAULT nextval('kb.eval_set_no_seq'),
    kb_no       bigint NOT NULL,
    tenant_id   text NOT NULL DEFAULT kb.current_tenant(),
    name        text NOT NULL CHECK (name <> ''),
    created_at  timestamptz NOT NULL DEFAULT now(),
    UNIQUE (kb_no, name),
    UNIQUE (eval_set_no, tenant_id),
    FOREIGN KEY (kb_no, tenant_id) REFERENCES kb.knowledge_bases (kb_no, tenant_id) ON UPDATE CASCADE ON DELETE CASCADE
);
ALTER SEQUENCE kb.eval_set_no_seq OWNED BY kb.eval_sets.eval_set_no;
COMMENT ON TABLE kb.eval_sets IS 'Evaluation sets: questions by which the answers of a knowledge base are measured. Changed by kb.create_eval_set, kb.load_eval and kb.drop_eval_set.';
CREATE TABLE kb.eval_questions (
    eval_set_no bigint NOT NULL,
    question_id text NOT NULL CHECK (question_id <> ''),
    tenant_id   text NOT NULL DEFAULT kb.current_tenant(),
    question    text NOT NULL,
    relevant    jsonb NOT NULL,
    filter      jsonb,
    PRIMARY KEY (eval_set_no, question_id),
    FOREIGN KEY (eval_set_no, tenant_id) REFERENCES kb.eval_sets (eval_set_no, tenant_id) ON UPDATE CASCADE ON DELETE CASCADE
);
COMMENT ON TABLE kb.eval_questions IS 'The questions of evaluation sets. Changed by kb.put_eval_question, kb.delete_eval_question and kb.load_eval.';
COMMENT ON COLUMN kb.eval_questions.relevant IS 'The judgements: objects with external_id and grade (relevant from 1 on), and with start and end if a part of the text is judged.';

CREATE TABLE kb.index_recall (
    kb_no       bigint PRIMARY KEY,
    tenant_id   text NOT NULL DEFAULT kb.current_tenant(),
    build_no    bigint NOT NULL,
    measured_at timestamptz NOT NULL,
    recall      double precision NOT NULL,
    sample      bigint NOT NULL,
    -- NULL: there was no index.
    ef_search   bigint,
    FOREIGN KEY (kb_no, tenant_id) REFERENCES kb.knowledge_bases (kb_no, tenant_id) ON UPDATE CASCADE ON DELETE CASCADE
);
COMMENT ON TABLE kb.index_recall IS 'The recall of the index of each knowledge base against an exact search, as last measured by kb.measure_recall.';

-- What counts towards the bytes of a quota besides documents. The arguments are the columns that count. Only
-- what kb's functions write, which pin the search path, is counted: a restore brings the counts with it.
CREATE FUNCTION kb._bytes(of_row jsonb, columns text[]) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS
$$SELECT coalesce(sum(octet_length(e.value)), 0)::bigint FROM jsonb_each_text(of_row) e
  WHERE e.key = ANY (columns) AND e.value <> '{}'$$;
COMMENT ON FUNCTION kb._bytes(jsonb, text[]) IS 'Internal: returns the size in bytes of columns of a row.';
CREATE FUNCTION kb._bytes_changed() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS
$$DECLARE
    before jsonb := '{}';
    after  jsonb := '{}';
    of_kb  bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM kb.quotas) THEN RETURN NULL; END IF;
    IF TG_OP <> 'INSERT' THEN before := to_jsonb(OLD); END IF;
    IF TG_OP <> 'DELETE' THEN after := to_jsonb(NEW); END IF;
    -- Questions have the number of their set.
    of_kb := coalesce((before || after) ->> 'kb_no',
        (SELECT s.kb_no FROM kb.eval_sets s WHERE s.eval_set_no = ((before || after) ->> 'eval_set_no')::bigint)::text);
    INSERT INTO kb.quota_counts (tenant_id, kb_no, documents, bytes)
    SELECT q.tenant_id, of_kb, 0, o.more
    FROM (SELECT kb._bytes(after, TG_ARGV) - kb._bytes(before, TG_ARGV) AS more) o, kb.quotas q
    WHERE q.tenant_id = coalesce((before || after) ->> 'owner_id', (before || after) ->> 'tenant_id')
      AND of_kb IS NOT NULL AND o.more <> 0;
    RETURN NULL;
END$$;
COMMENT ON FUNCTION kb._bytes_changed() IS 'Internal: counts what a tenant with a quota stores in addition to documents.';
CREATE TRIGGER bytes_changed AFTER INSERT OR UPDATE OF description, metadata ON kb.knowledge_bases
    FOR EACH ROW WHEN (pg_catalog.current_setting('search_path') = 'pg_catalog, pg_temp') EXECUTE FUNCTION kb._bytes_changed('description', 'metadata');
CREATE TRIGGER bytes_changed AFTER INSERT OR UPDATE OF config OR DELETE ON kb.sources
    FOR EACH ROW WHEN (pg_catalog.current_setting('search_path') = 'pg_catalog, pg_temp') EXECUTE FUNCTION kb._bytes_changed('config');
CREATE TRIGGER bytes_changed AFTER INSERT OR DELETE ON kb.shares
    FOR EACH ROW WHEN (pg_catalog.current_setting('search_path') = 'pg_catalog, pg_temp') EXECUTE FUNCTION kb._bytes_changed('tenant_id');
CREATE TRIGGER bytes_changed AFTER INSERT OR DELETE ON kb.eval_sets
    FOR EACH ROW WHEN (pg_catalog.current_setting('search_path') = 'pg_catalog, pg_temp') EXECUTE FUNCTION kb._bytes_changed('name');
CREATE TRIGGER bytes_changed AFTER INSERT OR UPDATE OF question, relevant, filter OR DELETE ON kb.eval_questions
    FOR EACH ROW WHEN (pg_catalog.current_setting('search_path') = 'pg_catalog, pg_temp') EXECUTE FUNCTION kb._bytes_changed('question_id', 'question', 'relevant', 'filter');
CREATE TRIGGER bytes_changed AFTER INSERT OR UPDATE OF subject, tags OR DELETE ON kb.memory_entries
    FOR EACH ROW WHEN (pg_catalog.current_setting('search_path') = 'pg_catalog, pg_temp') EXECUTE FUNCTION kb._bytes_changed('subject', 'tags');

SELECT pg_catalog.pg_extension_config_dump('kb.eval_sets', '');
SELECT pg_catalog.pg_extension_config_dump('kb.eval_questions', '');
SELECT pg_catalog.pg_extension_config_dump('kb.index_recall', '');
SELECT pg_catalog.pg_extension_config_dump('kb.eval_set_no_seq', '');

-- Questions of knowledge bases whose retrieval has log set, and the feedback on their answers. Both belong to
-- the tenant that asked, which need not be the knowledge base's. The worker writes the log; feedback may be
-- written before it, so it refers to the knowledge base only.
CREATE TABLE kb.query_log (
    query_id    uuid PRIMARY KEY,
    kb_no       bigint NOT NULL REFERENCES kb.knowledge_bases (kb_no) ON DELETE CASCADE,
    tenant_id   text NOT NULL,
    asked_at    timestamptz NOT NULL,
    query       text NOT NULL,
    mode        text NOT NULL,
    filter      jsonb,
    top_k       integer NOT NULL,
    row_count   integer NOT NULL,
    score       double precision,
    chunk_ids   uuid[] NOT NULL,
    duration_ms double precision NOT NULL
);
CREATE INDEX query_log_kb_no ON kb.query_log (kb_no, asked_at);
CREATE INDEX query_log_asked_at ON kb.query_log (asked_at);
COMMENT ON TABLE kb.query_log IS 'Questions to knowledge bases whose retrieval settings have log, with their answers. Written by the worker, and deleted after kb.query_log_days.';
COMMENT ON COLUMN kb.query_log.tenant_id IS 'The tenant that asked.';
COMMENT ON COLUMN kb.query_log.query IS 'The first 1000 characters of the question.';
COMMENT ON COLUMN kb.query_log.filter IS 'The filter; NULL if there was none. A filter of more than 4000 bytes is replaced by a text that gives its size.';
COMMENT ON COLUMN kb.query_log.row_count IS 'Number of rows of the answer; 0 if nothing was found.';
COMMENT ON COLUMN kb.query_log.score IS 'The similarity of the first row. NULL if there is no row, or if no vectors were compared.';
COMMENT ON COLUMN kb.query_log.chunk_ids IS 'The first 100 chunks of the answer, in order.';
COMMENT ON COLUMN kb.query_log.duration_ms IS 'How long the answer took.';
CREATE TABLE kb.query_feedback (
    query_id  uuid NOT NULL,
    chunk_id  uuid NOT NULL,
    -- Not a foreign key: a tenant that has queried another tenant's knowledge base must not delay its drop.
    kb_no     bigint NOT NULL,
    tenant_id text NOT NULL,
    relevant  boolean NOT NULL,
    given_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (query_id, chunk_id)
);
CREATE INDEX query_feedback_kb_no ON kb.query_feedback (kb_no);
CREATE INDEX query_feedback_given_at ON kb.query_feedback (given_at);
COMMENT ON TABLE kb.query_feedback IS 'Feedback on whether rows of answers to logged questions were relevant. Changed by kb.feedback.';
COMMENT ON COLUMN kb.query_feedback.tenant_id IS 'The tenant that asked.';
SELECT pg_catalog.pg_extension_config_dump('kb.query_log', '');
SELECT pg_catalog.pg_extension_config_dump('kb.query_feedback', '');

-- Conversations and their turns. A turn follows its parent. The first turn that follows a turn continues its
-- branch, and each further one begins a branch of its own. So a branch is read in the order of an index, and
-- the turns before a turn are found without visiting other branches. Appending locks the conversation.
CREATE TABLE kb.conversations (
    tenant_id    text NOT NULL DEFAULT kb.current_tenant(),
    id           text NOT NULL CHECK (id <> ''),
    title        text,
    settings     jsonb NOT NULL,
    metadata     jsonb NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id)
);
COMMENT ON TABLE kb.conversations IS 'Conversations, each of which belongs to the tenant that had it. Changed by kb.create_conversation, kb.alter_conversation, kb.append_turn and kb.drop_conversation.';
COMMENT ON COLUMN kb.conversations.settings IS 'The settings, including every default.';
-- The order in which turns were appended, also to other conversations. A turn does not update the row of its
-- conversation: many turns in a transaction would leave as many versions, through which each look-up passes.
CREATE SEQUENCE kb.turn_no_seq;
CREATE SEQUENCE kb.branch_no_seq;
CREATE TABLE kb.turns (
    tenant_id       text NOT NULL DEFAULT kb.current_tenant(),
    id              text NOT NULL CHECK (id <> ''),
    conversation_id text NOT NULL,
    turn_no         bigint NOT NULL DEFAULT nextval('kb.turn_no_seq'),
    -- NULL: nothing is before it.
    parent_id       text,
    branch_no       bigint NOT NULL DEFAULT nextval('kb.branch_no_seq'),
    -- 1 for a turn without a parent.
    depth           bigint NOT NULL CHECK (depth > 0),
    role            text NOT NULL CHECK (role IN ('user', 'assistant', 'system', 'tool')),
    -- NULL: there are only tool calls.
    content         jsonb,
    tool_calls      jsonb,
    tool_call_id    text,
    token_count     integer NOT NULL CHECK (token_count >= 0),
    total_tokens    bigint NOT NULL CHECK (total_tokens >= token_count),
    usage           jsonb,
    metadata        jsonb NOT NULL DEFAULT '{}',
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- No index begins with the tenant: a plan that is made while the table is small could otherwise look up a
    -- turn among all of its tenant.
    PRIMARY KEY (id, tenant_id),
    UNIQUE (branch_no, depth),
    FOREIGN KEY (conversation_id, tenant_id) REFERENCES kb.conversations (id, tenant_id) ON DELETE CASCADE
);
ALTER SEQUENCE kb.turn_no_seq OWNED BY kb.turns.turn_no;
ALTER SEQUENCE kb.branch_no_seq OWNED BY kb.turns.branch_no;
CREATE INDEX turns_conversation_id ON kb.turns (conversation_id, tenant_id, turn_no);
ALTER TABLE kb.memory_entries
    ADD FOREIGN KEY (source_conversation_id, tenant_id) REFERENCES kb.conversations (id, tenant_id)
        ON DELETE SET NULL (source_conversation_id),
    ADD FOREIGN KEY (source_turn_id, tenant_id) REFERENCES kb.turns (id, tenant_id) ON DELETE SET NULL (source_turn_id);
COMMENT ON TABLE kb.turns IS 'The turns of conversations. Changed by kb.append_turn.';
COMMENT ON COLUMN kb.turns.turn_no IS 'The number of the turn, in the order in which the turns of a conversation were appended.';
COMMENT ON COLUMN kb.turns.parent_id IS 'The turn before; NULL for a turn that begins a conversation.';
COMMENT ON COLUMN kb.turns.branch_no IS 'The branch: the first turn that follows a turn has the same branch, and each further one begins another.';
COMMENT ON COLUMN kb.turns.depth IS 'The number of the turn along its branch and the branches before it, from 1.';
COMMENT ON COLUMN kb.turns.total_tokens IS 'The tokens of the turn and of all turns before it.';
COMMENT ON COLUMN kb.turns.tool_call_id IS 'For role tool: the id of the tool call of which this is the result.';
SELECT pg_catalog.pg_extension_config_dump('kb.conversations', '');
SELECT pg_catalog.pg_extension_config_dump('kb.turns', '');
SELECT pg_catalog.pg_extension_config_dump('kb.turn_no_seq', '');
SELECT pg_catalog.pg_extension_config_dump('kb.branch_no_seq', '');
-- A summary is that of a turn and all turns before it. Older ones are kept, because branches can begin there.
CREATE TABLE kb.summaries (
    tenant_id        text NOT NULL DEFAULT kb.current_tenant(),
    summarized_up_to text NOT NULL,
    conversation_id  text NOT NULL,
    -- The place of the turn.
    branch_no        bigint NOT NULL,
    depth            bigint NOT NULL,
    content          text NOT NULL CHECK (content <> ''),
    token_count      integer NOT NULL CHECK (token_count >= 0),
    llm              text NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (summarized_up_to, tenant_id),
    UNIQUE (branch_no, depth),
    FOREIGN KEY (summarized_up_to, tenant_id) REFERENCES kb.turns (id, tenant_id) ON DELETE CASCADE
);
COMMENT ON TABLE kb.summaries IS 'Summaries of conversations, each of the turns up to one. Changed by the worker; deleted with the turn.';
COMMENT ON COLUMN kb.summaries.summarized_up_to IS 'The id of the last turn that the summary covers.';
COMMENT ON COLUMN kb.summaries.llm IS 'The chat model that made the summary.';
SELECT pg_catalog.pg_extension_config_dump('kb.summaries', '');
-- Up to which turns facts were extracted.
CREATE TABLE kb.extractions (
    tenant_id       text NOT NULL DEFAULT kb.current_tenant(),
    extracted_up_to text NOT NULL,
    conversation_id text NOT NULL,
    -- The place of the turn.
    branch_no       bigint NOT NULL,
    depth           bigint NOT NULL,
    facts           integer NOT NULL CHECK (facts >= 0),
    llm             text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (extracted_up_to, tenant_id),
    UNIQUE (branch_no, depth),
    FOREIGN KEY (extracted_up_to, tenant_id) REFERENCES kb.turns (id, tenant_id) ON DELETE CASCADE
);
COMMENT ON TABLE kb.extractions IS 'Up to which turns of conversations facts were extracted into memories. Changed by the worker; deleted with the turn.';
COMMENT ON COLUMN kb.extractions.extracted_up_to IS 'The id of the last turn that the chat model read.';
COMMENT ON COLUMN kb.extractions.facts IS 'How many facts were stored.';
SELECT pg_catalog.pg_extension_config_dump('kb.extractions', '');
-- What the worker will ask chat models beside jobs. subject: what a request is about; at most one request of
-- a kind waits for a subject. A session that makes a request which exists already locks it, so that the
-- worker does not finish it without seeing what that session has written.
CREATE SEQUENCE kb.chat_request_no_seq;
CREATE TABLE kb.chat_requests (
    request_no      bigint PRIMARY KEY DEFAULT nextval('kb.chat_request_no_seq'),
    tenant_id       text NOT NULL DEFAULT kb.current_tenant(),
    kind            text NOT NULL CHECK (kind IN ('consolidation', 'extraction', 'summary')),
    subject         text NOT NULL,
    -- The conversation or the memory of which it is.
    conversation_id text,
    kb_no           bigint,
    due_at          timestamptz NOT NULL DEFAULT now(),
    attempts        integer NOT NULL DEFAULT 0,
    error           text,
    failed_at       timestamptz,
    -- How far the subject had come when the request failed. It is made again when that has changed.
    failed_version  bigint,
    created_at      timestamptz NOT NULL DEFAULT now(),
    UNIQUE (subject, kind, tenant_id),
    CHECK ((conversation_id IS NULL) <> (kb_no IS NULL)),
    FOREIGN KEY (conversation_id, tenant_id) REFERENCES kb.conversations (id, tenant_id) ON DELETE CASCADE,
    FOREIGN KEY (kb_no, tenant_id) REFERENCES kb.knowledge_bases (kb_no, tenant_id) ON UPDATE CASCADE ON DELETE CASCADE
);
ALTER SEQUENCE kb.chat_request_no_seq OWNED BY kb.chat_requests.request_no;
CREATE INDEX chat_requests_conversation_id ON kb.chat_requests (conversation_id, tenant_id);
CREATE INDEX chat_requests_kb_no ON kb.chat_requests (kb_no, tenant_id) WHERE kb_no IS NOT NULL;
CREATE INDEX chat_requests_due_at ON kb.chat_requests (due_at) WHERE failed_at IS NULL;
CREATE INDEX chat_requests_tenant_id ON kb.chat_requests (tenant_id, due_at) WHERE failed_at IS NULL;
COMMENT ON TABLE kb.chat_requests IS 'What the worker will ask chat models about conversations and memories, and what it asked in vain.';
COMMENT ON COLUMN kb.chat_requests.kind IS 'summary: a summary of the turns that have left the window. extraction: facts for a memory. consolidation: related entries of a memory are merged.';
COMMENT ON COLUMN kb.chat_requests.subject IS 'The id of the memory, or the branch of the conversation, and if the window ended before the last turn of the branch, or kb.extract_memories was called, the depth of the last turn that counts.';
COMMENT ON COLUMN kb.chat_requests.due_at IS 'When the worker asks, or asks again after an error.';
COMMENT ON COLUMN kb.chat_requests.error IS 'The last error.';
COMMENT ON COLUMN kb.chat_requests.failed_at IS 'When the request was given up; NULL if it waits.';
SELECT pg_catalog.pg_extension_config_dump('kb.chat_requests', '');
SELECT pg_catalog.pg_extension_config_dump('kb.chat_request_no_seq', '');
-- Bindings name knowledge bases, which need not exist, so there is no foreign key.
CREATE SEQUENCE kb.binding_no_seq;
CREATE TABLE kb.bindings (
    binding_no bigint PRIMARY KEY DEFAULT nextval('kb.binding_no_seq'),
    tenant_id  text NOT NULL DEFAULT kb.current_tenant(),
    scope      text NOT NULL CHECK (scope <> ''),
    id_ref     text NOT NULL CHECK (id_ref <> ''),
    top_k      integer CHECK (top_k > 0),
    min_score  double precision,
    max_tokens integer CHECK (max_tokens > 0),
    fallback   text,
    inject_as  text CHECK (inject_as <> ''),
    filter     jsonb,
    UNIQUE (tenant_id, scope, id_ref)
);
ALTER SEQUENCE kb.binding_no_seq OWNED BY kb.bindings.binding_no;
COMMENT ON TABLE kb.bindings IS 'Bindings: the knowledge bases that a project, workflow, task or agent asks, and how. Changed by kb.bind and kb.unbind.';
COMMENT ON COLUMN kb.bindings.binding_no IS 'The order of the bindings within a scope.';
COMMENT ON COLUMN kb.bindings.scope IS 'project, workflow:NAME, task:NAME or agent:NAME.';
COMMENT ON COLUMN kb.bindings.id_ref IS 'The name of the knowledge base. In the scopes of agent NAME, the knowledge base agent:NAME/id_ref comes first; tasks and workflows likewise.';
SELECT pg_catalog.pg_extension_config_dump('kb.bindings', '');
SELECT pg_catalog.pg_extension_config_dump('kb.binding_no_seq', '');

-- Row-level security hides rows, but EXPLAIN shows how many the planner expects, and for operators that are
-- leakproof (= of texts is) this estimate comes from the values of all tenants' rows. Therefore columns with
-- contents have no statistics. Columns by which rows are looked up, and names of objects, keep theirs,
-- because plans need them.
ALTER TABLE kb.knowledge_bases ALTER COLUMN description SET STATISTICS 0;
ALTER TABLE kb.runs ALTER COLUMN error SET STATISTICS 0, ALTER COLUMN warnings SET STATISTICS 0;
ALTER TABLE kb.documents ALTER COLUMN uri SET STATISTICS 0, ALTER COLUMN title SET STATISTICS 0,
    ALTER COLUMN content_type SET STATISTICS 0, ALTER COLUMN original SET STATISTICS 0, ALTER COLUMN content SET STATISTICS 0,
    ALTER COLUMN content_hash SET STATISTICS 0, ALTER COLUMN indexed_hash SET STATISTICS 0, ALTER COLUMN settings SET STATISTICS 0,
    ALTER COLUMN sqlstate SET STATISTICS 0, ALTER COLUMN version SET STATISTICS 0, ALTER COLUMN answers SET STATISTICS 0,
    ALTER COLUMN file_name SET STATISTICS 0, ALTER COLUMN file_metadata SET STATISTICS 0, ALTER COLUMN extractor SET STATISTICS 0,
    ALTER COLUMN chunking SET STATISTICS 0;
ALTER TABLE kb.chunks ALTER COLUMN content SET STATISTICS 0, ALTER COLUMN context SET STATISTICS 0, ALTER COLUMN terms SET STATISTICS 0;
ALTER TABLE kb.jobs ALTER COLUMN error SET STATISTICS 0;
ALTER TABLE kb.sources ALTER COLUMN name SET STATISTICS 0, ALTER COLUMN error SET STATISTICS 0, ALTER COLUMN version SET STATISTICS 0;
ALTER TABLE kb.eval_questions ALTER COLUMN question SET STATISTICS 0;
ALTER TABLE kb.query_log ALTER COLUMN query SET STATISTICS 0;
ALTER TABLE kb.memory_entries ALTER COLUMN subject SET STATISTICS 0, ALTER COLUMN tags SET STATISTICS 0,
    ALTER COLUMN source_conversation_id SET STATISTICS 0, ALTER COLUMN source_turn_id SET STATISTICS 0;
ALTER TABLE kb.conversations ALTER COLUMN title SET STATISTICS 0;
ALTER TABLE kb.turns ALTER COLUMN parent_id SET STATISTICS 0, ALTER COLUMN role SET STATISTICS 0, ALTER COLUMN tool_call_id SET STATISTICS 0;
ALTER TABLE kb.summaries ALTER COLUMN content SET STATISTICS 0, ALTER COLUMN llm SET STATISTICS 0;
ALTER TABLE kb.extractions ALTER COLUMN llm SET STATISTICS 0;
ALTER TABLE kb.chat_requests ALTER COLUMN error SET STATISTICS 0;
ALTER TABLE kb.api_keys ALTER COLUMN key_id SET STATISTICS 0, ALTER COLUMN name SET STATISTICS 0, ALTER COLUMN hash SET STATISTICS 0,
    ALTER COLUMN role_name SET STATISTICS 0, ALTER COLUMN tenant_id SET STATISTICS 0, ALTER COLUMN scopes SET STATISTICS 0,
    ALTER COLUMN created_by SET STATISTICS 0;
ALTER TABLE kb.bindings ALTER COLUMN scope SET STATISTICS 0, ALTER COLUMN id_ref SET STATISTICS 0,
    ALTER COLUMN fallback SET STATISTICS 0, ALTER COLUMN inject_as SET STATISTICS 0;

SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('kb_install.search_path'), true);
