// Articles of several customers in a table, and in kb for searching, with pg (node-postgres).
//
// Each customer is a tenant of kb with a knowledge base `articles`. The setting kb.tenant is made for one transaction,
// so that this works with a pool, and behind PgBouncer.

import pg from 'pg'

// libpq's environment variables (PGHOST, PGDATABASE …) say where the database is.
export const pool = new pg.Pool({ max: 4 })

/** Runs work in a transaction for a customer. An error rolls it back. */
export async function transaction (customer, work) {
  const client = await pool.connect()
  try {
    await client.query('BEGIN')
    await client.query("SELECT set_config('kb.tenant', $1, true)", [customer])
    const result = await work(client)
    await client.query('COMMIT')
    return result
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {})
    throw error
  } finally {
    client.release()
  }
}

export async function setUp () {
  await pool.query(`CREATE TABLE IF NOT EXISTS node_article (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text NOT NULL, title text NOT NULL, body text NOT NULL)`)
}

export async function signUp (customer) {
  await transaction(customer, client => client.query("SELECT kb.create_knowledge_base('articles', embedder => 'static')"))
}

/** Writes an article and its document: both or neither. Returns its id. */
export async function save (customer, { title, body, section }) {
  return transaction(customer, async client => {
    const { rows: [{ id }] } = await client.query(
      'INSERT INTO node_article (customer, title, body) VALUES ($1, $2, $3) RETURNING id', [customer, title, body])
    await client.query("SELECT kb.put_document('articles', $1::text, $2::text, $3::jsonb, $4::text)",
      [id, body, JSON.stringify({ section }), title])
    return id
  })
}

/** Many documents in one statement: an array of JSON. */
export async function saveDocuments (customer, documents) {
  return transaction(customer, async client => {
    const { rows } = await client.query(
      "SELECT external_id, status FROM kb.put_documents('articles', $1::text[]::jsonb[])",
      [documents.map(document => JSON.stringify(document))])
    return rows
  })
}

/** Waits until what is committed can be found. Only tests and scripts need this; an application goes on. */
export async function wait (customer) {
  await transaction(customer, client => client.query("SELECT kb.wait('articles', 60)"))
}

/** The articles that answer a question, best first, with their passages. */
export async function search (customer, question, filter = null) {
  return transaction(customer, async client => {
    const { rows } = await client.query(`
      SELECT a.id, a.title, q.content AS passage, q.score
      FROM kb.query('articles', $1::text, 5, filter => $2::jsonb, options => '{"per_document": 1}') AS q
      JOIN node_article AS a ON a.id::text = q.external_id AND a.customer = $3
      ORDER BY q.rank`, [question, filter && JSON.stringify(filter), customer])
    return rows
  })
}
