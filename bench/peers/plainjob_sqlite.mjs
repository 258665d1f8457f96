// plainjob on better-sqlite3. As it comes a commit is not synced (synchronous=NORMAL); BENCH_PLAINJOB_SYNC=FULL syncs each.
import Database from "better-sqlite3";
import { better, defineQueue, defineWorker, JobStatus } from "plainjob";
import { chunks, main, removeSqlite, sqliteFile, started } from "./common.mjs";

const FILE = sqliteFile("plainjob");
const SYNC = process.env.BENCH_PLAINJOB_SYNC ?? "NORMAL";
const logger = { error: console.error, warn() {}, info() {}, debug() {} };
let queue;

function open() {
  const database = new Database(FILE);
  queue = defineQueue({ connection: better(database), logger });
  database.pragma(`synchronous = ${SYNC}`);
}

main({
  package: "plainjob",
  settings: `1 worker loop per process, one job at a time, polled every 10 ms; WAL, synchronous=${SYNC}`,
  open,
  reset() {
    removeSqlite(FILE);
    open();
    queue.close();
  },
  send: (job) => queue.add("noop", job),
  bulk(jobs) {
    for (const chunk of chunks(jobs)) queue.addMany("noop", chunk);
  },
  left() {
    if (!queue) open();
    return queue.countJobs({ status: JobStatus.Pending }) + queue.countJobs({ status: JobStatus.Processing });
  },
  async work() {
    open();
    await defineWorker("noop", async (job) => started(JSON.parse(job.data)), { queue, logger, pollIntervall: 10 }).start();
  },
});
