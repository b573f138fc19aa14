// A stranger's node: js-libp2p and the independent reader in protocol/conformance/, none of our Python.
//
//     node client.mjs MULTIADDR RECORDS
//
// It dials a daemon, identifies, pings, fetches the manifest as an observer, then says hello as a neighbour and follows the
// flood until it has verified RECORDS pushed records. Prints one JSON line of what it saw; exit code 0 only if all held.
// tests/interop/test_interop.py runs a copy of this folder in build/interop/, which lies as deep as this one, beside its packages.

// Node 20 lacks it.
Promise.withResolvers ??= function () {
  const parts = {};
  parts.promise = new this((resolve, reject) => Object.assign(parts, { resolve, reject }));
  return parts;
};

const { noise } = await import("@chainsafe/libp2p-noise");
const { yamux } = await import("@chainsafe/libp2p-yamux");
const { identify } = await import("@libp2p/identify");
const { ping } = await import("@libp2p/ping");
const { tcp } = await import("@libp2p/tcp");
const { multiaddr } = await import("@multiformats/multiaddr");
const { createLibp2p } = await import("libp2p");
const { checkRecord, splitRecords } = await import("../../protocol/conformance/envelope.mjs");
const { readSignedManifest } = await import("../../protocol/conformance/manifest.mjs");
const { decodeMessage, encodeMessage } = await import("../../protocol/conformance/wire.mjs");

const PROTOCOL = "/sfnode/1";
const VERSION = 2;
const OBSERVER_RUN_ID = Buffer.alloc(32);
const LIMIT_MS = 60_000;

/** One session: u32 length, then one message (SPEC 8). */
class Session {
  #stream;
  #chunks;
  #buffered = Buffer.alloc(0);

  constructor(stream) {
    this.#stream = stream;
    this.#chunks = stream[Symbol.asyncIterator]();
  }

  async send(name, ...values) {
    const message = encodeMessage(name, ...values);
    const length = Buffer.alloc(4);
    length.writeUInt32BE(message.length);
    if (!this.#stream.send(Buffer.concat([length, message]))) await this.#stream.onDrain();
  }

  /** The next message, decoded by the rules of SPEC 8.2. */
  async receive() {
    const length = (await this.#take(4)).readUInt32BE(0);
    return decodeMessage(await this.#take(length));
  }

  /** The next message of this name; heads and pings in between are passed over. */
  async receiveOnly(name) {
    for (;;) {
      const message = await this.receive();
      if (message.name === name) return message.fields;
      if (!["Head", "Ping", "PeersRequest", "Records"].includes(message.name)) {
        throw new Error(`${message.name} ${JSON.stringify(message.fields)} instead of ${name}`);
      }
    }
  }

  /** Say bye and wait until the daemon closes the connection, however it does that. */
  async end(reason) {
    await this.send("Bye", reason);
    try {
      for (let isOpen = true; isOpen; isOpen = !(await this.#chunks.next()).done);
    } catch {
      // its end of the connection is gone: that is what was waited for
    }
  }

  async #take(count) {
    while (this.#buffered.length < count) {
      const { value, done } = await this.#chunks.next();
      if (done) throw new Error("the daemon ended the session");
      this.#buffered = Buffer.concat([this.#buffered, value.subarray()]);
    }
    const taken = this.#buffered.subarray(0, count);
    this.#buffered = this.#buffered.subarray(count);
    return taken;
  }
}

/** A connection of its own for each session, as the daemon demands; both sides have said hello. */
async function greet(node, address, runId) {
  const connection = await node.dial(address);
  const session = new Session(await connection.newStream(PROTOCOL));
  await session.send("Hello", VERSION, runId, "js-interop/1", [], 0);
  const hello = await session.receiveOnly("Hello");
  return { session, hello };
}

async function meet(node, address) {
  const connection = await node.dial(address);
  const said = await node.services.identify.identify(connection);
  const pingMs = await node.services.ping.ping(address);
  await connection.close();
  return { peer: connection.remotePeer.toString(), agent: said.agentVersion, protocols: said.protocols, pingMs };
}

async function fetchManifest(node, address) {
  const { session, hello } = await greet(node, address, OBSERVER_RUN_ID);
  const parts = [];
  for (let held = 0, total = 1; held < total; held = Buffer.concat(parts).length) {
    await session.send("ManifestRequest", held);
    const part = await session.receiveOnly("ManifestPart");
    if (part.offset !== held || part.data.length === 0) throw new Error("a part that was not asked for");
    total = part.total;
    parts.push(part.data);
  }
  await session.end("that was all");
  const run = readSignedManifest(Buffer.concat(parts));
  if (!run.runId.equals(hello.run_id)) throw new Error("the manifest is of another run than the hello");
  return run;
}

/** As a neighbour: records that the daemon pushes by itself, each with valid form and signature. */
async function followFlood(node, address, run, wanted) {
  const { session } = await greet(node, address, run.runId);
  const steps = [];
  const authors = new Set();
  while (steps.length < wanted) {
    const { request, data } = await session.receiveOnly("Records");
    if (request !== 0) throw new Error("records that answer no request of ours");
    for (const record of splitRecords(run.manifest, data)) {
      const envelope = checkRecord(run, record);
      steps.push(envelope.step);
      authors.add(envelope.author.toString("hex"));
    }
  }
  await session.end("enough seen");
  return { steps, authors: [...authors] };
}

async function main(text, wanted) {
  const address = multiaddr(text);
  const node = await createLibp2p({
    addresses: { listen: [] },
    transports: [tcp()],
    connectionEncrypters: [noise()],
    streamMuxers: [yamux()],
    services: { identify: identify({ runOnConnectionOpen: false }), ping: ping() },
  });
  try {
    const met = await meet(node, address);
    const run = await fetchManifest(node, address);
    const flood = await followFlood(node, address, run, wanted);
    const found = { self: node.peerId.toString(), ...met, runId: run.runId.toString("hex"), ...flood };
    process.stdout.write(`${JSON.stringify(found)}\n`);
  } finally {
    await node.stop();
  }
}

setTimeout(() => {
  process.stderr.write(`not done within ${LIMIT_MS} ms\n`);
  process.exit(2);
}, LIMIT_MS).unref();
try {
  await main(process.argv[2], Number(process.argv[3]));
} catch (error) {
  process.stderr.write(`Error: ${error.stack ?? error.message ?? error.type}\n`);
  process.exit(1);
}
