// Store three schedules with nats.js, receive what they fire, replace one and end another.
//
//     node due_orders.mjs nats://127.0.0.1:4222
//
// Without an argument the server is that of NATS_URL.

import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect, headers } from "@nats-io/transport-node";

const url = process.argv[2] ?? process.env.NATS_URL ?? "nats://127.0.0.1:4222";
const nc = await connect({ servers: url });
const js = jetstream(nc);
const jsm = await jetstreamManager(nc);

// Both may be repeated: a stream or consumer with the same configuration is left as it is.
await jsm.streams.add({ name: "ORDERS", subjects: ["orders.>"], allow_msg_schedules: true });
await jsm.consumers.add("ORDERS", {
  durable_name: "due",
  filter_subject: "orders.due",
  ack_policy: AckPolicy.Explicit,
});

const soon = new Date(Date.now() + 2000);
await js.publish("orders.schedules.reminder", "remind of order 17", {
  schedule: { specification: { at: soon }, target: "orders.due" },
});
await js.publish("orders.schedules.pulse", "pulse", {
  schedule: { specification: { every: "1s" }, target: "orders.due" },
});

// The same with headers, as every version of the client can write them.
const report = headers();
report.set("Nats-Schedule", "*/2 * * * * *");
report.set("Nats-Schedule-Time-Zone", "Europe/Berlin");
report.set("Nats-Schedule-Target", "orders.due");
await js.publish("orders.schedules.report", "open orders", { headers: report });

// Receive and acknowledge fires until each schedule has fired.
const fired = new Map();
const consumer = await js.consumers.get("ORDERS", "due");
for await (const message of await consumer.consume({ max_messages: 1 })) {
  const isLast = message.headers.get("Nats-Schedule-Next") === "purge";
  const follows = isLast ? "for the last time" : "and fires again";
  fired.set(message.headers.get("Nats-Scheduler"), `${message.string()}, ${follows}`);
  message.ack();
  if (fired.size === 3) {
    break;
  }
}
for (const schedule of [...fired.keys()].sort()) {
  console.log(`${schedule} fired: ${fired.get(schedule)}`);
}

// The last message on the subject of a schedule counts, so another one replaces it.
await js.publish("orders.schedules.report", "open orders", {
  schedule: { specification: { cron: "0 30 9 * * mon-fri" }, timezone: "Europe/Berlin", target: "orders.due" },
});
console.log("orders.schedules.report is replaced");

// To end a schedule, purge its subject.
await jsm.streams.purge("ORDERS", { filter: "orders.schedules.pulse" });
console.log("orders.schedules.pulse is ended");
await nc.drain();
