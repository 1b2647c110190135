-- Everything that the extension is made of: an object's name and what it is. The order of a table's columns
-- is left out: a script can only add them at the end.
WITH members AS (
    SELECT d.classid, d.objid FROM pg_depend d
    WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
      AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'kb')),
relations AS (
    SELECT c.* FROM pg_class c JOIN members m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid),
rights (of, acl) AS (
    SELECT 'relation ' || relname, coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", relowner)) FROM relations
    UNION ALL SELECT 'column ' || relname || '.' || attname, attacl FROM relations JOIN pg_attribute ON attrelid = relations.oid
    UNION ALL SELECT 'function ' || p.oid::regprocedure, coalesce(proacl, acldefault('f', proowner))
        FROM pg_proc p JOIN members ON classid = 'pg_proc'::regclass AND objid = p.oid
    UNION ALL SELECT 'schema ' || nspname, nspacl FROM pg_namespace WHERE nspname = 'kb')
SELECT 'member ' || pg_describe_object(classid, objid, 0) AS object, '' AS definition FROM members
UNION ALL
SELECT 'relation ' || relname, concat_ws(' ', relkind, relpersistence, relrowsecurity, relforcerowsecurity, reloptions::text,
    pg_get_userbyid(relowner)) FROM relations
UNION ALL
SELECT 'column ' || relname || '.' || attname, concat_ws(' ', format_type(atttypid, atttypmod), attnotnull, attidentity,
    attgenerated, attstorage, attcollation::regcollation, pg_get_expr(adbin, adrelid))
FROM relations JOIN pg_attribute ON attrelid = relations.oid AND attnum > 0 AND NOT attisdropped
LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
UNION ALL
SELECT 'constraint ' || relname || '.' || conname, concat_ws(' ', pg_get_constraintdef(pg_constraint.oid), convalidated)
FROM relations JOIN pg_constraint ON conrelid = relations.oid
UNION ALL
SELECT 'index ' || indexrelid::regclass, concat_ws(' ', pg_get_indexdef(indexrelid), indisvalid)
FROM relations JOIN pg_index ON indrelid = relations.oid
UNION ALL
SELECT 'policy ' || relname || '.' || polname, concat_ws(' ', polcmd, polpermissive, polroles::text,
    pg_get_expr(polqual, polrelid), '/', pg_get_expr(polwithcheck, polrelid))
FROM relations JOIN pg_policy ON polrelid = relations.oid
UNION ALL
SELECT 'trigger ' || relname || '.' || tgname, pg_get_triggerdef(pg_trigger.oid)
FROM relations JOIN pg_trigger ON tgrelid = relations.oid AND NOT tgisinternal
UNION ALL
SELECT 'view ' || relname, pg_get_viewdef(oid) FROM relations WHERE relkind IN ('v', 'm')
UNION ALL
SELECT 'sequence ' || relname, concat_ws(' ', seqtypid::regtype, seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle,
    (SELECT refobjid::regclass || '.' || refobjsubid::text FROM pg_depend
     WHERE classid = 'pg_class'::regclass AND objid = relations.oid AND deptype = 'a') IS NOT NULL)
FROM relations JOIN pg_sequence ON seqrelid = relations.oid
UNION ALL
SELECT 'function ' || p.oid::regprocedure, pg_get_functiondef(p.oid)
FROM pg_proc p JOIN members ON classid = 'pg_proc'::regclass AND objid = p.oid AND prokind IN ('f', 'p')
UNION ALL
SELECT 'type ' || t.oid::regtype, concat_ws(' ', typtype, (SELECT string_agg(enumlabel, ',' ORDER BY enumsortorder)
    FROM pg_enum WHERE enumtypid = t.oid))
FROM pg_type t JOIN members ON classid = 'pg_type'::regclass AND objid = t.oid
UNION ALL
SELECT 'comment on ' || pg_describe_object(s.classoid, s.objoid, s.objsubid), s.description FROM pg_description s
JOIN members m ON m.classid = s.classoid AND m.objid = s.objoid
UNION ALL
SELECT 'right ' || of, string_agg(concat_ws(' ', CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END,
    privilege_type, is_grantable), ', ' ORDER BY grantee::regrole::text, privilege_type)
FROM rights, aclexplode(acl) GROUP BY of
UNION ALL
SELECT 'dumped ' || u.oid::regclass, u.condition
FROM pg_extension, unnest(extconfig, extcondition) AS u (oid, condition) WHERE extname = 'kb'
UNION ALL
SELECT 'embedder ' || id, concat_ws(' ', provider, model, dimension, config, fingerprint) FROM kb.embedders WHERE seeded
ORDER BY 1
