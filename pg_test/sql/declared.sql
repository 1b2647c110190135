-- What is declared in a file.
\pset format unaligned
\pset tuples_only on
SELECT * FROM kb.apply($yaml$
knowledge_bases:
  - id: dec
    embedder: hash
    retrieval: {top_k: 3}
    metadata_indexes: [{key: year, type: number}]
    sources:
      - {type: query, query: "SELECT 'a' AS external_id, 'b' AS content"}
knowledge:
  - {id_ref: dec, top_k: 2}
$yaml$);
SELECT kb.export('binding'), kb.export('knowledge_base', 'dec');
SELECT kind, id, action FROM kb.apply(kb.export('knowledge_base', 'dec'));
SELECT * FROM kb.apply(E'knowledge_bases:\n  - id: dec\n    metadata: {"a": 1}', prune => false, dry_run => true);
SELECT * FROM kb.apply('');
SELECT * FROM kb.apply('{}');
SELECT try('SELECT kb.apply(''knowledge_bases: 7'')');
SELECT try('SELECT kb.apply(''[1]'')');
SELECT try('SELECT kb.apply(NULL)');
SELECT try('SELECT kb.apply(''a: b: c'')');
SELECT try('SELECT kb.export(NULL)');
SELECT try('SELECT kb.export(''nothing'')');
SELECT try('SELECT kb.export(''all'', ''nope'')');
SELECT kb.unbind('project', 'dec'), kb.drop_knowledge_base('dec');
