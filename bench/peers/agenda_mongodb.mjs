// Agenda on MongoDB.
import { MongoBackend } from "@agendajs/mongo-backend";
import { Agenda } from "agenda";
import { MongoClient } from "mongodb";
import { chunks, main, mongodbUrl, started } from "./common.mjs";

const DATABASE = "agenda";
const CONCURRENCY = Number(process.env.BENCH_AGENDA_CONCURRENCY ?? 50);
const EVERY_MS = Number(process.env.BENCH_AGENDA_EVERY_MS ?? 100);
const CALLS = 50;
const client = new MongoClient(mongodbUrl(DATABASE), { w: "majority", maxPoolSize: 100 });
const jobs = () => client.db(DATABASE).collection("agendaJobs");
let agenda;

async function open() {
  await client.connect();
  const backend = new MongoBackend({ mongo: client.db(DATABASE), ensureIndex: true });
  const limits = { maxConcurrency: CONCURRENCY, defaultConcurrency: CONCURRENCY, lockLimit: CONCURRENCY, defaultLockLimit: CONCURRENCY };
  agenda = new Agenda({ backend, processEvery: EVERY_MS, ...limits });
  agenda.on("error", (error) => console.error(error));
  await agenda.ready;
}

main({
  package: "agenda",
  settings: `maxConcurrency and lockLimit ${CONCURRENCY}, processEvery ${EVERY_MS} ms; no bulk call: ${CALLS} calls at once; done documents kept`,
  open,
  async reset() {
    await client.db(DATABASE).dropDatabase();
    await open();
  },
  send: (job) => agenda.now("noop", job),
  async bulk(count) {
    for (const chunk of chunks(count)) {
      while (chunk.length) await Promise.all(chunk.splice(0, CALLS).map((job) => agenda.now("noop", job)));
    }
  },
  left: () => jobs().countDocuments({ name: "noop", lastFinishedAt: null }),
  async work() {
    await open();
    agenda.define("noop", async (job) => started(job.attrs.data));
    await agenda.start();
  },
});
