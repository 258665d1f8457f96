// pg-boss on PostgreSQL, with large batches fetched back to back and LISTEN/NOTIFY.
import { PgBoss } from "pg-boss";
import { chunks, countRows, freshDatabase, main, postgresUrl, started } from "./common.mjs";

const DATABASE = "pgboss";
const BATCH = 2000;
let boss;

async function connect(options) {
  boss = new PgBoss({ connectionString: postgresUrl(DATABASE), ...options });
  boss.on("error", (error) => console.error(error));
  await boss.start();
}

main({
  package: "pg-boss",
  settings: `batchSize=${BATCH}, burstWhenBatchFull, LISTEN/NOTIFY, polled every 500 ms; done rows kept`,
  open: () => connect({ supervise: false, schedule: false }),
  async reset() {
    await freshDatabase(DATABASE);
    await connect({});
    await boss.createQueue("noop", { notify: true });
    await boss.stop({ graceful: false });
  },
  send: (job) => boss.send("noop", job),
  async bulk(jobs) {
    for (const chunk of chunks(jobs)) await boss.insert("noop", chunk.map((job) => ({ data: job })));
  },
  left: () => countRows(DATABASE, "SELECT count(*) FROM pgboss.job WHERE name = 'noop' AND state IN ('created', 'active', 'retry')"),
  async work() {
    await connect({ useListenNotify: true });
    const options = { batchSize: BATCH, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };
    await boss.work("noop", options, async (jobs) => {
      for (const job of jobs) started(job.data);
    });
  },
});
