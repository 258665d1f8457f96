// A process of Monque as far as its collection can tell: it creates its indexes, enqueues, claims, beats, ends and recovers as the library's
// published source does. It is not the library, which no registry has. Usage: node monque.cjs URL COLLECTION ROLE [JSON]
'use strict';
const { MongoClient, ObjectId, Decimal128, Binary } = require('mongodb');
const [url, name, role, text] = process.argv.slice(2);
const options = {
  instance: `node-${process.pid}`, poll: 20, beat: 200, lockTimeout: 1800000, base: 50, max: 86400000, maxRetries: 10, concurrency: 5,
  names: [], until: 0, count: 0, ...JSON.parse(text ?? '{}'),
};
const LIVE = ['pending', 'processing'];
const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const INDEXES = [
  [{ status: 1, nextRunAt: 1 }],
  [{ name: 1, uniqueKey: 1 }, { unique: true, partialFilterExpression: { uniqueKey: { $exists: true }, status: { $in: LIVE } } }],
  [{ name: 1, status: 1 }],
  [{ createdAt: -1, _id: -1 }],
  [{ updatedAt: -1, _id: -1 }],
  [{ nextRunAt: -1, _id: -1 }],
  [{ claimedBy: 1, status: 1 }],
  [{ lastHeartbeat: 1, status: 1 }],
  [{ name: 1, status: 1, nextRunAt: 1, claimedBy: 1 }],
  [{ status: 1, lockedAt: 1, lastHeartbeat: 1 }],
];

class Monque {
  constructor(jobs) {
    this.jobs = jobs;
    this.active = new Map();
  }

  async initialize() {
    for (const [key, given] of INDEXES) await this.jobs.createIndex(key, given ?? {});
    const stale = new Date(Date.now() - options.lockTimeout);
    const back = await this.jobs.updateMany(
      { status: 'processing', lockedAt: { $lt: stale } },
      { $set: { status: 'pending', updatedAt: new Date() }, $unset: { lockedAt: '', claimedBy: '', lastHeartbeat: '' } },
    );
    return back.modifiedCount;
  }

  async enqueue(job, data, more = {}) {
    const now = new Date();
    const document = { name: job, data, status: 'pending', nextRunAt: now, failCount: 0, createdAt: now, updatedAt: now, ...more };
    if (more.uniqueKey === undefined) return (await this.jobs.insertOne(document)).insertedId;
    const found = await this.jobs.findOneAndUpdate(
      { name: job, uniqueKey: more.uniqueKey, status: { $in: LIVE } },
      { $setOnInsert: document },
      { upsert: true, returnDocument: 'after' },
    );
    return found._id;
  }

  async claim(job) {
    const now = new Date();
    return this.jobs.findOneAndUpdate(
      { name: job, status: 'pending', nextRunAt: { $lte: now }, $or: [{ claimedBy: null }, { claimedBy: { $exists: false } }] },
      {
        $set: {
          status: 'processing', claimedBy: options.instance, lockedAt: now, lastHeartbeat: now, heartbeatInterval: options.beat, updatedAt: now,
        },
      },
      { sort: { nextRunAt: 1 }, returnDocument: 'after' },
    );
  }

  async beat() {
    const now = new Date();
    await this.jobs.updateMany({ claimedBy: options.instance, status: 'processing' }, { $set: { lastHeartbeat: now, updatedAt: now } });
  }

  async end(job, error) {
    const now = new Date();
    const $set = { updatedAt: now };
    const $unset = { lockedAt: '', claimedBy: '', lastHeartbeat: '' };
    if (!error) {
      $set.status = 'completed';
      $unset.failReason = '';
    } else {
      $set.failCount = job.failCount + 1;
      $set.failReason = error.message;
      $set.status = $set.failCount >= options.maxRetries ? 'failed' : 'pending';
      if ($set.status === 'pending') {
        const delay = Math.min(2 ** $set.failCount * options.base, options.max);
        $set.nextRunAt = new Date(Date.now() + Math.round(delay + (Math.random() * 2 - 1) * delay * 0.25));
      }
    }
    const ended = await this.jobs.updateOne({ _id: job._id, status: 'processing', claimedBy: options.instance }, { $set, $unset });
    return ended.modifiedCount === 1;
  }

  async process(job, handler) {
    this.active.set(String(job._id), job);
    try {
      await handler(job);
    } catch (error) {
      await this.end(job, error);
      return;
    } finally {
      this.active.delete(String(job._id));
    }
    await this.end(job);
  }

  async poll(handler) {
    let taken = 0;
    for (const each of options.names) {
      const busy = [...this.active.values()].filter((job) => job.name === each).length;
      for (let free = options.concurrency - busy; free > 0; free -= 1) {
        const job = await this.claim(each);
        if (!job) break;
        taken += 1;
        void this.process(job, handler);
      }
    }
    return taken;
  }
}

const DATA = () => ({
  at: new Date('2026-01-02T03:04:05.678Z'), who: new ObjectId('6760a1234567890abcdef123'), amount: Decimal128.fromString('12.30'),
  bytes: new Binary(Buffer.from('hello')), whole: 7, part: 1.5, text: 'x', many: [{ at: new Date(0) }],
});

async function main() {
  const client = new MongoClient(url, { writeConcern: { w: 'majority' } });
  await client.connect();
  const jobs = client.db().collection(name);
  const ran = client.db().collection(`${name}_ran`);
  const monque = new Monque(jobs);
  const recovered = await monque.initialize();
  if (role === 'init') say({ indexes: (await jobs.indexes()).map((each) => each.name), recovered });
  if (role === 'produce') {
    for (let i = 0; i < options.count; i += 1) await monque.enqueue(options.names[0], { i });
    say({ produced: options.count });
  }
  if (role === 'types') say({ id: String(await monque.enqueue(options.names[0], DATA())) });
  if (role === 'read') {
    const job = await jobs.findOne({ name: options.names[0] });
    const { at, who, amount, bytes } = job.data;
    say({
      at: at instanceof Date && at.toISOString(), who: who instanceof ObjectId && String(who), amount: amount instanceof Decimal128 && String(amount),
      bytes: bytes instanceof Binary && bytes.toString('utf8'), id: job._id instanceof ObjectId,
    });
  }
  if (role === 'work') {
    const timer = setInterval(() => void monque.beat(), options.beat);
    say({ ready: true, recovered });
    const end = options.until ? Date.now() + options.until : Infinity;
    while (Date.now() < end) {
      const taken = await monque.poll(async (job) => {
        await ran.insertOne({ job: job._id, by: 'node' });
        if (options.hang) await sleep(3600000);
        if (options.slow) await sleep(options.slow);
        if (job.data?.fail && job.failCount === 0) throw new Error('fails in node');
      });
      if (!taken && options.drains && !monque.active.size && !(await jobs.countDocuments({ name: { $in: options.names }, status: { $in: LIVE } }))) break;
      if (!taken) await sleep(options.poll);
    }
    clearInterval(timer);
    while (monque.active.size) await sleep(5);
    await sleep(50);
  }
  await client.close();
}

main().catch((error) => {
  say({ error: error.message, code: error.code });
  process.exit(1);
});
