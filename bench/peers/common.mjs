// What the Node peers share: the same payload, counter files and command line as common.py.
import fs from "node:fs";

const COUNTERS = process.env.BENCH_COUNTERS;
const POSTGRES = process.env.BENCH_POSTGRES;
const LAYOUT_BYTES = 24;
const POLL_MS = 5;
export const CHUNK = 1000;

/** Seconds of CLOCK_MONOTONIC, which all processes of a machine share. */
export const now = () => Number(process.hrtime.bigint()) / 1e9;
export const payload = (number = 0, kind = "w") => ({ number, kind, sent: now(), pad: "x".repeat(40) });
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// ---- counting starts, in the handler's process ----

const tally = { buffer: Buffer.alloc(LAYOUT_BYTES), file: undefined, count: 0n };

/** Count the start of a handler; called first thing in it. Node has no mmap: one 24-byte write instead. */
export function started(job) {
  const at = now();
  if (tally.file === undefined) {
    tally.file = fs.openSync(`${COUNTERS}/starts-${process.pid}`, "w+");
    tally.buffer.writeDoubleLE(at, 8);
  }
  tally.buffer.writeBigUInt64LE(++tally.count, 0);
  tally.buffer.writeDoubleLE(at, 16);
  fs.writeSync(tally.file, tally.buffer, 0, LAYOUT_BYTES, 0);
  if (job.kind === "l") fs.appendFileSync(`${COUNTERS}/delays-l-${process.pid}`, `${((at - job.sent) * 1000).toFixed(4)}\n`);
}

function countedStarts() {
  let total = 0;
  for (const name of fs.readdirSync(COUNTERS)) {
    if (!name.startsWith("starts-")) continue;
    const raw = fs.readFileSync(`${COUNTERS}/${name}`);
    if (raw.length === LAYOUT_BYTES) total += Number(raw.readBigUInt64LE(0));
  }
  return total;
}

// ---- stores ----

export function sqliteFile(name) {
  return `${process.env.BENCH_STORES}/${name}.db`;
}

export function removeSqlite(path) {
  for (const suffix of ["", "-wal", "-shm", "-journal"]) fs.rmSync(path + suffix, { force: true });
}

export const postgresUrl = (database) => `${POSTGRES}/${database}`;
export const mongodbUrl = (database) => process.env.BENCH_MONGODB.replace("/?", `/${database}?`);

async function query(database, sql) {
  const { default: pg } = await import("pg");
  const client = new pg.Client(postgresUrl(database));
  await client.connect();
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end();
  }
}

/** Drop and create a database, and get the checkpoint over with before anything is timed. */
export async function freshDatabase(database) {
  await query("postgres", `DROP DATABASE IF EXISTS ${database} WITH (FORCE)`);
  await query("postgres", `CREATE DATABASE ${database}`);
  await query("postgres", "CHECKPOINT");
}

export const countRows = async (database, sql) => Number((await query(database, sql))[0].count);

// ---- the command line ----

/** The payloads of a bulk load, in chunks. */
export function* chunks(jobs) {
  for (let first = 0; first < jobs; first += CHUNK) {
    yield Array.from({ length: Math.min(CHUNK, jobs - first) }, (_, k) => payload(first + k));
  }
}

async function pace(peer, jobs, gapS) {
  for (let number = 0; number < jobs; number++) {
    await pause(gapS * (0.5 + Math.random()) * 1000); // uneven, so that no poll interval can fall into step
    await peer.send(payload(number, "l"));
  }
}

async function watch(peer, jobs) {
  while (countedStarts() < jobs) await pause(POLL_MS);
  while ((await peer.left()) > 0) await pause(POLL_MS);
  return now();
}

async function enqueue(peer, jobs) {
  for (let number = 0; number < jobs; number++) await peer.send(payload(number));
}

const installed = (name) => JSON.parse(fs.readFileSync(new URL(`../node_modules/${name}/package.json`, import.meta.url))).version;

/** Run one command. A peer has: settings, package, reset, open, send, bulk, left, work. */
export async function main(peer) {
  const [command, ...rest] = process.argv.slice(2);
  const numbers = rest.map(Number);
  if (command === "describe") {
    console.log(JSON.stringify({ version: installed(peer.package), settings: peer.settings, bulk: true }));
    return process.exit(0);
  }
  if (command === "work") return peer.work();
  if (command !== "reset" && command !== "left" && command !== "watch") await peer.open();
  const own = { enqueue, pace, watch }[command];
  const begun = now();
  const cpuBegun = process.cpuUsage();
  const answer = own ? await own(peer, ...numbers) : await peer[command](...numbers);
  const { user, system } = process.cpuUsage(cpuBegun);
  console.log(JSON.stringify({ seconds: now() - begun, cpu_s: (user + system) / 1e6, answer: answer ?? null }));
  process.exit(0);
}
