// The part of msgpack that messages use: nil, bool, integers, floats (to be refused by type), str, bin, arrays.
// Values: integers as Integer-valued number or BigInt (64 bits), str as string, bin as Buffer, floats as Float.

export const ARRAY_LENGTH_MAX = 1024;

/** A float: parsed, but no field has this type. */
export class Float {
  constructor(bytes) {
    this.bytes = bytes;
  }
}

/** The bytes are not one msgpack value within the limits. */
export class BadMsgpack extends Error {}

class Reader {
  #bytes;
  #offset = 0;

  constructor(bytes) {
    this.#bytes = bytes;
  }

  get isAtEnd() {
    return this.#offset === this.#bytes.length;
  }

  take(count) {
    const end = this.#offset + count;
    if (end > this.#bytes.length) throw new BadMsgpack("cut short");
    const taken = this.#bytes.subarray(this.#offset, end);
    this.#offset = end;
    return taken;
  }

  unsigned(count) {
    return this.take(count).readUIntBE(0, count);
  }
}

const TEXT = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function readText(reader, length) {
  const bytes = reader.take(length);
  try {
    return TEXT.decode(bytes);
  } catch {
    throw new BadMsgpack("a str is no UTF-8");
  }
}

// Marks that stand for a fixed form: each gives its value from the reader; arrays give {arrayLength}.
const FORMS = new Map([
  [0xc0, () => null],
  [0xc2, () => false],
  [0xc3, () => true],
  [0xc4, (reader) => reader.take(reader.unsigned(1))],
  [0xc5, (reader) => reader.take(reader.unsigned(2))],
  [0xc6, (reader) => reader.take(reader.unsigned(4))],
  [0xca, (reader) => new Float(reader.take(4))],
  [0xcb, (reader) => new Float(reader.take(8))],
  [0xcc, (reader) => reader.unsigned(1)],
  [0xcd, (reader) => reader.unsigned(2)],
  [0xce, (reader) => reader.unsigned(4)],
  [0xcf, (reader) => reader.take(8).readBigUInt64BE()],
  [0xd0, (reader) => reader.take(1).readInt8()],
  [0xd1, (reader) => reader.take(2).readInt16BE()],
  [0xd2, (reader) => reader.take(4).readInt32BE()],
  [0xd3, (reader) => reader.take(8).readBigInt64BE()],
  [0xd9, (reader) => readText(reader, reader.unsigned(1))],
  [0xda, (reader) => readText(reader, reader.unsigned(2))],
  [0xdb, (reader) => readText(reader, reader.unsigned(4))],
  [0xdc, (reader) => ({ arrayLength: reader.unsigned(2) })],
  [0xdd, (reader) => ({ arrayLength: reader.unsigned(4) })],
]);

function readItem(reader) {
  const mark = reader.unsigned(1);
  if (mark < 0x80) return mark;
  if (mark >= 0xe0) return mark - 0x100;
  if (mark >= 0xa0 && mark < 0xc0) return readText(reader, mark & 0x1f);
  if (mark >= 0x90 && mark < 0xa0) return { arrayLength: mark & 0x0f };
  const form = FORMS.get(mark); // none for maps, extensions and c1
  if (form === undefined) throw new BadMsgpack(`refused mark ${mark.toString(16)}`);
  return form(reader);
}

/** The one value that the bytes are. BadMsgpack otherwise. Not recursive, so no depth overflows the stack. */
export function unpack(bytes) {
  const reader = new Reader(bytes);
  const root = [];
  const open = [{ list: root, length: 1 }];
  while (open.length > 0) {
    const top = open[open.length - 1];
    if (top.list.length === top.length) {
      open.pop();
      continue;
    }
    const item = readItem(reader);
    top.list.push(openArray(item, open));
  }
  if (!reader.isAtEnd) throw new BadMsgpack("bytes after the value");
  return root[0];
}

/** An array's (still empty) list, now open; every other item as it is. */
function openArray(item, open) {
  if (item?.arrayLength === undefined) return item;
  if (item.arrayLength > ARRAY_LENGTH_MAX) throw new BadMsgpack("array too long");
  const list = [];
  open.push({ list, length: item.arrayLength });
  return list;
}

function withLength(mark, size, length) {
  const bytes = Buffer.alloc(1 + size);
  bytes[0] = mark;
  bytes.writeUIntBE(length, 1, size);
  return bytes;
}

/** Head of a value of some length: the shortest of the forms [largest length, mark, bytes of the length]. */
function shortest(length, forms) {
  const [, mark, size] = forms.find(([largest]) => length <= largest);
  return size === 0 ? Buffer.of(mark + length) : withLength(mark, size, length);
}

const UNSIGNED_FORMS = [
  [0x7f, 0, 0],
  [0xff, 0xcc, 1],
  [0xffff, 0xcd, 2],
  [0xffffffff, 0xce, 4],
];
const TEXT_FORMS = [
  [31, 0xa0, 0],
  [0xff, 0xd9, 1],
  [0xffff, 0xda, 2],
  [0xffffffff, 0xdb, 4],
];
const BYTES_FORMS = [
  [0xff, 0xc4, 1],
  [0xffff, 0xc5, 2],
  [0xffffffff, 0xc6, 4],
];
const ARRAY_FORMS = [
  [15, 0x90, 0],
  [0xffff, 0xdc, 2],
  [0xffffffff, 0xdd, 4],
];

function packUnsigned(value) {
  if (value <= 0xffffffff) return shortest(Number(value), UNSIGNED_FORMS);
  const bytes = Buffer.alloc(9, 0xcf);
  bytes.writeBigUInt64BE(BigInt(value), 1);
  return bytes;
}

/** Canonical bytes of what a valid message can hold: unsigned integers, bools, texts, bytes and lists. */
export function pack(value) {
  if (typeof value === "boolean") return Buffer.of(value ? 0xc3 : 0xc2);
  if (typeof value === "number" || typeof value === "bigint") return packUnsigned(value);
  if (typeof value === "string") {
    const text = Buffer.from(value, "utf8");
    return Buffer.concat([shortest(text.length, TEXT_FORMS), text]);
  }
  if (Buffer.isBuffer(value)) return Buffer.concat([shortest(value.length, BYTES_FORMS), value]);
  return Buffer.concat([shortest(value.length, ARRAY_FORMS), ...value.map(pack)]);
}
