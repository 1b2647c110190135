import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { pool, save, saveDocuments, search, setUp, signUp, transaction, wait } from './articles.js'

// The same customers may be there from an earlier run.
const acme = `acme's ${process.pid}`
const globex = `globex ${process.pid}`

before(async () => {
  await setUp()
  await signUp(acme)
  await signUp(globex)
  await save(acme, { title: 'Leave', body: 'Staff have 28 days of paid leave.', section: 'staff' })
  await save(acme, { title: 'Bicycles', body: 'Bicycles belong in the cellar.', section: 'house' })
  await save(globex, { title: 'Bikes', body: 'Bicycles belong in the yard.', section: 'house' })
  await wait(acme)
  await wait(globex)
})

after(async () => {
  for (const customer of [acme, globex]) {
    await transaction(customer, client => client.query("SELECT kb.drop_knowledge_base('articles')"))
  }
  await pool.query('DROP TABLE node_article')
  await pool.end()
})

test('a customer finds its own articles', async () => {
  const found = await search(acme, 'Where do I leave my bike?')
  assert.equal(found[0].title, 'Bicycles')
  assert.equal(found[0].passage, 'Bicycles belong in the cellar.')
  assert.ok(found[0].score > 0)
  assert.deepEqual((await search(globex, 'bike')).map(row => row.title), ['Bikes'])
})

test('a filter restricts the answer', async () => {
  assert.deepEqual((await search(acme, 'bike', { section: 'staff' })).map(row => row.title), ['Leave'])
})

test('customers that ask at the same time are not mixed up', async () => {
  const answers = await Promise.all(Array.from({ length: 40 }, (_, n) => search(n % 2 ? acme : globex, 'bicycles')))
  answers.forEach((rows, n) => assert.equal(rows[0].title, n % 2 ? 'Bicycles' : 'Bikes'))
  const { rows: [{ tenant }] } = await pool.query("SELECT current_setting('kb.tenant', true) AS tenant")
  assert.equal(tenant ?? '', '')
})

test('an article is not written without its document', async () => {
  await assert.rejects(save(acme, { title: 'Too long', body: 'x\0', section: 'none' }))
  await assert.rejects(transaction(acme, async client => {
    await client.query("INSERT INTO node_article (customer, title, body) VALUES ($1, 'undone', '')", [acme])
    await client.query("SELECT kb.put_document('nothing', 'a', 'text')")
  }), error => error.code === '42704' && /kb\.knowledge_bases/.test(error.hint))
  const { rows } = await pool.query("SELECT FROM node_article WHERE title IN ('Too long', 'undone')")
  assert.equal(rows.length, 0)
})

test('many documents are put in one statement', async () => {
  const documents = [{ external_id: 'a/"1"', content: 'Tea, \\ and "cake".' }, { external_id: 'b', content: '日本 🦀' }]
  assert.deepEqual((await saveDocuments(acme, documents)).map(row => row.status), ['added', 'added'])
  await assert.rejects(saveDocuments(acme, [{ content: 'no id' }]), error => error.code === '22023')
})
