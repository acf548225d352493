// BullMQ: concurrency 5, finished jobs removed, addBulk. What stage.py and report.py do in Python, here for Node.
"use strict";

const net = require("node:net");
const readline = require("node:readline");
const { setTimeout: sleep } = require("node:timers/promises");
const { Queue, Worker } = require("bullmq");

const CHUNK = 10000;
const THREADS = 5;
const IO_MS = 5;
const CPU_US = 1000;
const QUICK = 0.001;
const SLOW = 0.2;
const EVERY_MS = 1000 * Number(process.env.BENCH_EVERY || 0.02);
const SINGLE_RATE = 2000;
const STAMPED_RATE = 1000;
const TICK = 0.005;

const url = new URL(process.env.BENCH_REDIS);
const connection = { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };
const options = { removeOnComplete: true, removeOnFail: true };
const now = () => Number(process.hrtime.bigint()) / 1e9; // the monotonic clock, as Python's

function work() {
  const kind = process.env.BENCH_JOB || "blank";
  let done = 0;
  let latencies = [];
  const [host, port] = process.env.BENCH_REPORT.split(":");
  const report = net.connect(Number(port), host);
  setInterval(() => {
    if (!done && !latencies.length) return;
    report.write(JSON.stringify({ t: now(), done, performs: done, latencies }) + "\n");
    done = 0;
    latencies = [];
  }, EVERY_MS);
  const job = async ({ data }) => {
    if (data.payload.at !== undefined) latencies.push(now() - data.payload.at);
    if (kind === "io") await sleep(data.payload.sleep === undefined ? IO_MS : 1000 * data.payload.sleep);
    else if (kind === "cpu") burn();
    done += 1;
  };
  const worker = new Worker("bench", job, { connection, concurrency: THREADS });
  worker.on("error", (error) => console.error(error));
  process.on("SIGTERM", () => worker.close().finally(() => process.exit(0)));
}

function burn() {
  const start = process.cpuUsage();
  for (;;) {
    const used = process.cpuUsage(start);
    if (used.user + used.system >= CPU_US) return;
  }
}

async function produce() {
  const queue = new Queue("bench", { connection });
  await queue.waitUntilReady();
  let number = 0;
  const id = () => String(number++).padStart(10, "0");
  const one = (payload) => queue.add("bench", { id: id(), payload }, options);
  const many = (payloads) =>
    queue.addBulk(payloads.map((payload) => ({ name: "bench", data: { id: id(), payload }, opts: options })));
  const bulk = async (jobs, payload) => {
    for (let first = 0; first < jobs; first += CHUNK) {
      const length = Math.min(CHUNK, jobs - first);
      await many(Array.from({ length }, (_, at) => payload(first + at)));
    }
  };
  const paced = async (started, seconds, rate) => {
    const stamped = Math.max(1, Math.round(rate / STAMPED_RATE));
    let sent = 0;
    for (let at = now(); at < started + seconds; at = now()) {
      const due = Math.floor((at - started) * rate);
      if (due > sent && rate <= SINGLE_RATE) {
        await one({ at });
        sent += 1;
      } else if (due > sent) {
        const length = Math.min(due - sent, CHUNK);
        const first = sent;
        await many(Array.from({ length }, (_, mark) => ((first + mark) % stamped ? { n: 1 } : { at })));
        sent += length;
      } else {
        const rest = (sent + 1) / rate - (at - started);
        await sleep(1000 * (rate <= SINGLE_RATE ? Math.max(0.0001, Math.min(TICK, rest)) : TICK));
      }
    }
  };
  const mixed = async (started, seconds, rate, slow) => {
    for (let due = -Math.log(1 - Math.random()) / rate; due < seconds; due -= Math.log(1 - Math.random()) / rate) {
      const rest = started + due - now();
      if (rest > 0) await sleep(1000 * rest);
      await one({ at: now(), sleep: 1000 * Math.random() < slow ? SLOW : QUICK });
    }
  };
  console.log("{}");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { do: what, jobs = 0, seconds = 0, rate = 0, slow = 0 } = JSON.parse(line);
    const started = now();
    const before = number;
    if (what === "bulk") await bulk(jobs, (n) => ({ n }));
    if (what === "small") await bulk(jobs, (n) => String(n).padStart(8, "0"));
    if (what === "single") while (now() < started + seconds) await one({ n: 1 });
    if (what === "paced") await paced(started, seconds, rate);
    if (what === "mixed") await mixed(started, seconds, rate, slow);
    for (let left = what === "idle" ? jobs : 0; left; left -= 1) {
      await sleep(10 + 20 * Math.random());
      await one({ at: now() });
    }
    console.log(JSON.stringify({ jobs: number - before, seconds: now() - started }));
  }
  await queue.close();
}

if (process.argv[2] === "work") work();
else produce();
