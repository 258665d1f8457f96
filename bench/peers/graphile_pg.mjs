// graphile-worker on PostgreSQL, with the batching its performance page describes.
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { chunks, countRows, freshDatabase, main, postgresUrl, started } from "./common.mjs";

const DATABASE = "graphile";
const CONCURRENT_JOBS = 24;
const connectionString = postgresUrl(DATABASE);
const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});
let utils;

async function open() {
  utils = await makeWorkerUtils({ connectionString, logger });
}

main({
  package: "graphile-worker",
  settings: `concurrentJobs=${CONCURRENT_JOBS}, localQueue of 500, completions batched; done rows deleted`,
  open,
  async reset() {
    await freshDatabase(DATABASE);
    await open();
    await utils.migrate();
  },
  send: (job) => utils.addJob("noop", job),
  async bulk(jobs) {
    for (const chunk of chunks(jobs)) await utils.addJobs(chunk.map((job) => ({ identifier: "noop", payload: job })));
  },
  left: () => countRows(DATABASE, "SELECT count(*) FROM graphile_worker._private_jobs"),
  async work() {
    const batching = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
    const worker = { connectionString, logger, concurrentJobs: CONCURRENT_JOBS, maxPoolSize: 12, pollInterval: 2000, ...batching };
    await run({ preset: { worker }, taskList: { noop: async (job) => started(job) } });
  },
});
