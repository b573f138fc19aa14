// How each rule about messages, frames, sessions and reach is switched off (SPEC 8.1, 8.2, 8.7).

import { of } from "./table.mjs";

const FRAMES = [
  ...of("wire.mjs", "messages.json", [
    ["8.1", "text counts UTF-16 units", "isWithin([...value].length, low, high)", "isWithin(value.length, low, high)"],
    ["8.1", "any span", "const span = unsigned(1023);", "const span = u32;"],
    [
      "8.2.2 SIZE",
      "a message of any length",
      'rejectUnless(frame.length <= FRAME_BYTES_MAX, "SIZE", `${frame.length} bytes`);',
    ],
    [
      "8.2.3 FRAME",
      "an array without a kind",
      'Array.isArray(value) && (typeof value[0] === "number" || typeof value[0] === "bigint")',
      "Array.isArray(value)",
    ],
    [
      "8.2.4 MESSAGE_KIND",
      "an unknown kind is a bad field",
      '"MESSAGE_KIND", `kind ${kind}`',
      '"MESSAGE_FIELD", `kind ${kind}`',
    ],
    [
      "8.2.5 MESSAGE_FIELD",
      "any fields",
      "tuple(...Object.values(types))(values)",
      "values.length === Object.values(types).length",
    ],
    [
      "8.2.5 MESSAGE_FIELD",
      "any number of fields",
      "Array.isArray(value) && value.length === types.length && types",
      "Array.isArray(value) && types",
    ],
    ["8.2.5 MESSAGE_FIELD", "integers of any size", " && value >= 0 && value <= high"],
    [
      "8.2.5 MESSAGE_FIELD",
      "bytes of any length",
      "Buffer.isBuffer(value) && value.length >= low && value.length <= high",
      "Buffer.isBuffer(value)",
    ],
    [
      "8.2.5 MESSAGE_FIELD",
      "lists of any length",
      "Array.isArray(value) && isWithin(value.length, low, high) && value.every",
      "Array.isArray(value) && value.every",
    ],
    [
      "8.2.5 MESSAGE_FIELD",
      "a bool is an integer",
      'typeof value === "bigint") && value',
      'typeof value === "bigint" || typeof value === "boolean") && value',
    ],
    ["8.2.6 MESSAGE_NOT_CANONICAL", "any spelling", "pack([kind, ...values]).equals(frame)", "true"],
  ]),
  ...of("msgpack.mjs", "messages.json", [
    ["8.2.3 FRAME", "bytes after the message", 'if (!reader.isAtEnd) throw new BadMsgpack("bytes after the value");'],
    ["8.2.3 FRAME", "long arrays", 'if (item.arrayLength > ARRAY_LENGTH_MAX) throw new BadMsgpack("array too long");'],
    ["8.2.3 FRAME", "a str that is no UTF-8", "fatal: true", "fatal: false"],
    [
      "8.2.3 FRAME",
      "extensions",
      "  if (form === undefined)",
      "  if (mark === 0xd4) return new Float(reader.take(2));\n  if (form === undefined)",
    ],
    ["8.2.3 FRAME", "the byte c1", "[0xc0, () => null],", "[0xc0, () => null],\n  [0xc1, () => null],"],
    [
      "8.2.3 FRAME",
      "maps",
      "[0xc0, () => null],",
      "[0xc0, () => null],\n  [0x81, (reader) => [readItem(reader), readItem(reader)][1]],",
    ],
  ]),
  ...of("frames.mjs", "frames.json", [
    ["8.2.1 FRAME", "frames without a message", "length > 0 && "],
    ["8.2.1 FRAME", "frames of any length", " && length <= most"],
    [
      "8.2.1 FRAME",
      "a stranger's frames are as long as a neighbour's",
      "this.isIntroduced ? FRAME_BYTES_MAX : STRANGERS_FRAME_BYTES_MAX",
      "FRAME_BYTES_MAX",
    ],
    ["8.2.1 FRAME", "little-endian", "readUInt32BE(0)", "readUInt32LE(0)"],
  ]),
];

const SESSIONS = [
  ...of("session.mjs", "sessions.json", [
    ["8.1.1", "the dialler waits for Hello", 'role === "dialler" ? [hello] : []', "[]"],
    ["8.1.1", "Peers before the Bye of a full node", 'if (name === "Peers" && !this.#hasPeers)', "if (false)"],
    ["8.1.1 UNREQUESTED", "Peers before it again and again", "this.#hasPeers = true;"],
    ["8.1.1", "an observer is dialled", " || fields.run_id.equals(OBSERVER_RUN_ID)) return", ") return"],
    [
      "8.1.1",
      "a Bye before Hello",
      '  #hearStranger({ name, fields }) {\n    if (name === "Bye") return this.#end();',
      "  #hearStranger({ name, fields }) {",
    ],
    [
      "8.1.1 UNREQUESTED",
      "a stranger says anything",
      'if (name === "Bye") return this.#end();\n    ' +
        'demand(name === "Hello", `${name} before Hello`);\n    const mismatch',
      'if (name !== "Hello") return this.#end();\n    const mismatch',
    ],
    [
      "8.1.1 UNREQUESTED",
      "who was dialled says anything",
      'if (name === "Bye") return this.#end();\n    demand(name === "Hello", `${name} before Hello`);\n    if',
      'if (name !== "Hello") return this.#end();\n    if',
    ],
    ["8.1.1 UNREQUESTED", "a second Hello", '!["Hello", "ManifestPart"', '!["ManifestPart"'],
    ["8.1.2", "any version", 'if (version !== this.#own.version) return "other protocol version";'],
    ["8.1.2", "any run", 'runId.equals(OBSERVER_RUN_ID) ? null : "other run"', 'true ? null : "other run"'],
    ["8.1.2", "no observers", "const isObserver = fields.run_id.equals(OBSERVER_RUN_ID);", "const isObserver = false;"],
    [
      "8.1.2 UNREQUESTED",
      "an observer says anything",
      'demand(name === "FileRequest", `${name} from an observer`);',
      'if (name !== "FileRequest") return [];',
    ],
    ["8.1.2", "long frames from an observer", "isIntroduced = !isObserver", "isIntroduced = true"],
    ["8.1.2", "no Bye where the file is not there", "this.#end(BYE)", "[]"],
    [
      "8.1.3 UNREQUESTED",
      "Peers that were not asked for",
      'demand(this.#peersAwaited > 0, "Peers that were not asked for");',
    ],
    ["8.1.3 UNREQUESTED", "Peers again and again", "this.#peersAwaited -= 1;"],
    ["8.1.3 UNREQUESTED", "a ManifestPart within a session", '["Hello", "ManifestPart", ', '["Hello", '],
    ["8.1.3 UNREQUESTED", "a FilePart within a session", '"FilePart", "FileRequest"]', '"FileRequest"]'],
    ["8.1.3 UNREQUESTED", "files within a session", '"FilePart", "FileRequest"]', '"FilePart"]'],
    ["8.1.3 UNREQUESTED", "Hello first on a stream for files", "beside: this.#serve", "beside: this.#hearStranger"],
    [
      "8.1.3 UNREQUESTED",
      "another message than a part",
      "demand(name === this.#kind, `${name} instead of ${this.#kind}`);",
      "if (name !== this.#kind) return true;",
    ],
    ["8.1.4 MESSAGE_FIELD", "parts from anywhere", "offset === this.received && data", "data"],
    ["8.1.4 MESSAGE_FIELD", "parts of any length", "data.length === length && length > 0", "data.length > 0"],
    ["8.1.4 MESSAGE_FIELD", "parts without a byte", " && length > 0"],
    ["8.1.4 MESSAGE_FIELD", "totals that change", "total === (this.#total ?? total) && total", "total"],
    ["8.1.4 MESSAGE_FIELD", "documents of any length", " && total <= this.#bytesMax"],
    [
      "8.1.5",
      "observers are given pieces",
      "this.#isNeighbour ? pieceWith(fields.sha256) : undefined",
      "pieceWith(fields.sha256)",
    ],
    [
      "8.1.5",
      "neighbours are given no pieces",
      "this.#isNeighbour ? pieceWith(fields.sha256) : undefined",
      "undefined",
    ],
    ["8.1.5 MESSAGE_FIELD", "a piece of another hash", "this.#isPiece && this.received", "false && this.received"],
    ["8.1.4", "a file of another hash", "digest === (this.#sha256 ?? digest)", "digest !== null"],
  ]),
];

const REACH = [
  ...of("reach.mjs", "reach.json", [
    ["8.7", "port 0 is dialled", "if (port === 0) return NOT_ASKED;"],
    ["8.7", "again within 10 s", "nowMs - (this.#dialledMs.get(host) ?? -Infinity) < DIAL_INTERVAL_MS", "false"],
    ["8.7", "once and never again", "const DIAL_INTERVAL_MS = 10_000;", "const DIAL_INTERVAL_MS = Infinity;"],
    [
      "8.7",
      "one dial for all addresses",
      "this.#dialledMs.get(host)",
      'this.#dialledMs.get("all")',
      "this.#dialledMs.set(host",
      'this.#dialledMs.set("all"',
    ],
    ["8.7", "outcomes 1 and 2 the other way round", "? REACHED : NOT_REACHED", "? NOT_REACHED : REACHED"],
    [
      "8.7",
      "answers of any length",
      "data.length !== ANSWER_BYTES || data[0]",
      "data.length < ANSWER_BYTES || data[0]",
    ],
    ["8.7", "any outcome", " || data[0] > NOT_NOW"],
    [
      "8.7",
      "IPv4 in four bytes at the front",
      'Buffer.concat([MAPPED, Buffer.from(host.split(".").map(Number))])',
      'Buffer.concat([Buffer.from(host.split(".").map(Number)), MAPPED])',
    ],
  ]),
];

export const SWITCHES_OF_MESSAGES = [...FRAMES, ...SESSIONS, ...REACH];
