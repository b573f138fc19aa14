// Checks the modules here against every worked number of SPEC.md. Usage: node protocol/conformance/selfcheck.mjs

import { readBasisFile } from "./basis_file.mjs";
import { Coefficients, epochDigest } from "./coefficients.mjs";
import { denseBytes, denseCore, readDense, writeDense } from "./dense.mjs";
import { payloadHash } from "./digests.mjs";
import { checkRecord, makeRecord } from "./envelope.mjs";
import { denseGradient } from "./gradients.mjs";
import { basisKey, hashFields, keyOf, seedOf } from "./hashing.mjs";
import { Ledger, addTo } from "./ledger.mjs";
import { readManifest } from "./manifest.mjs";
import { coefficientBound } from "./manifest_rules.mjs";
import { contentOf } from "./model.mjs";
import { philox, signs, words } from "./philox.mjs";
import { exampleRows, keepsEnergyRule, quantise, quantiseDense, roundHalfAway, weightOf } from "./scalars.mjs";
import { EXAMPLE_BASIS, EXAMPLE_MANIFEST } from "./spec_examples.mjs";
import { EXAMPLE_RECORD, EXAMPLE_STATEMENT } from "./spec_examples.mjs";
import { workOf } from "./statements.mjs";
import { canonicalCores, rademacherCores, randomBasis } from "./subspace.mjs";
import { decodeMessage, encodeMessage } from "./wire.mjs";

const COUNTING_RUN_ID = Buffer.from(Array.from({ length: 32 }, (_, index) => index));
const SEED = 0x669780d2e34f4b19n;
const failures = [];
let checked = 0;

/** Compares texts: hexadecimal digits, signs or numbers as they stand in SPEC.md. */
function check(section, found, expected) {
  checked += 1;
  if (String(found) !== String(expected)) failures.push(`${section}: expected ${expected}, found ${found}`);
}

function hex(value) {
  if (Buffer.isBuffer(value)) return value.toString("hex");
  return Array.from([value].flat(), (word) => word.toString(16).padStart(8, "0")).join(" ");
}

function marks(signList) {
  return Array.from(signList, (sign) => (sign > 0 ? "+" : "-")).join("");
}

/** Rows of a matrix of signs, as 4.1 writes them. */
function markRows(signList, length) {
  return marks(signList).match(new RegExp(`.{${length}}`, "g")).join(" ");
}

function checkHashing() {
  const [empty, abc] = [Buffer.alloc(0), Buffer.from("abc")];
  const example = "b815b1ad7a7f43eac254eb73b66057b6d8ab3e7e8648b71df4a06c1794dcf3fe";
  check("2.1", hex(hashFields("sfnode/example/1", empty, abc)), example);
  check("2.2 key", keyOf("sfnode/example/1", empty, abc).toString(16), "b815b1ad7a7f43ea");
  check("2.2 seed", seedOf(COUNTING_RUN_ID, EXAMPLE_RECORD.subarray(0, 32), 7).toString(16), "669780d2e34f4b19");
}

function checkGenerator() {
  const ones = 0xffffffff;
  const digitsOfPi = [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344];
  check("3.1 zeros", hex(philox([0, 0, 0, 0], [0, 0])), "6627e8d5 e169c58d bc57ac4c 9b00dbd8");
  check("3.1 ones", hex(philox([ones, ones, ones, ones], [ones, ones])), "408f276d 41c83b0e a20bc7c6 6d5451fd");
  check("3.1 pi", hex(philox(digitsOfPi, [0xa4093822, 0x299f31d0])), "d16cfe09 94fdcceb 5001e420 24126ea1");
  const key = 0x0123456789abcdefn;
  check("3.2", hex([...words(key, 6, 2)]), "46c5fd35 5f6468e3 a253a1cd 767e3b04 26db1478 ac58cde7");
  check("3.3", marks(signs(key, 8, 2)), "-+-+--++");
}

function checkSubspace() {
  check("4.1 key", basisKey(COUNTING_RUN_ID, 1, 2).toString(16), "7dc7990d9379e8f0");
  const { u, v } = randomBasis(COUNTING_RUN_ID, 1, 2, { rows: 3, cols: 2, rank: 4 });
  check("4.1 U", markRows(u, 4), "--+- ---+ ++--");
  check("4.1 V", markRows(v, 4), "++-+ +++-");
  check("4.3 words", hex([...words(SEED, 2, 1)]), "fc47967d 31aa450f");
  check("4.3 d = 0", canonicalCores(SEED, 32, 3, 0).join(" "), "29,19,-1 7,2,-1 15,8,1");
  check("4.3 d = 1", canonicalCores(SEED, 32, 3, 1).join(" "), "9,26,-1 7,8,-1 27,18,1");
  check("4.3 word", hex(words(SEED, 1, 2)[0]), "56ee8971");
  check("4.3 rademacher", rademacherCores(SEED, 4, 2, 0).flat().map(marks).join(" "), "-+++ ---+ -++- +++-");
}

function checkModel() {
  const tensors = [
    { name: "b", shape: [1], values: [3] },
    { name: "a", shape: [2, 2], values: [1, -2, 0.5, 0] },
  ];
  check("1.5", hex(contentOf(tensors)), "e46351402391b3e1bc42fd882f0d60bd5f2bc9a6c405f453ab002e0dce60a0ec");
}

function checkBasisFile() {
  const basis_sha256 = "8ea89d03f697b24447e83d12e13241eea228adfd03469c773a03276224e0e9a8";
  const method = { core: "dense", rank: 2, core_rows: 1, basis_sha256 };
  const tensors = [
    { kind: "matrix", rows: 2, cols: 1 },
    { kind: "transposed", rows: 3, cols: 2 },
  ];
  const { target, target_exp, bases } = readBasisFile({ method, tensors }, EXAMPLE_BASIS);
  const [first, second] = bases;
  check("4.6 target", `${target} ${target_exp}`, "2,-3 1");
  check("4.6", `${first.u} ${first.u_exp} ${first.v} ${first.v_exp}`, "3,-4 2 5,-6 -7");
  check("4.6", `${second.u} ${second.u_exp} ${second.v} ${second.v_exp}`, "-1,9 0 1,-2,7,8,0,-1 -3");
  check("4.6 length", EXAMPLE_BASIS.length, 35);
}

/** The numbers of a dense message with so many coordinates, packed. */
function packed(clip, numbers) {
  const tensors = [{ kind: "matrix" }];
  const manifest = { method: { core: "dense", core_rows: numbers.length, rank: 1, clip }, tensors };
  const payload = Buffer.alloc(denseBytes(manifest));
  writeDense(manifest, [1, ...numbers], payload, 0);
  check("6.1 unpacked", readDense(manifest, payload, 0), `1,${numbers}`);
  return payload.subarray(2).toString("hex");
}

function checkDense() {
  const core = denseCore({ method: { noise_rows: 3 } }, 1, [5n, 4n, -4n, 12n, -12n, 20n, 3n]);
  check("4.7 view", core.slice(1), "1,-1,2,-2,3,0");
  const message = { quantum_exp: -4, energy_max: 400, clip: 127 };
  check("5.6", quantiseDense(message, 3, [1, -0.25]), "3,16,-4");
  check("5.6 shortened", quantiseDense(message, 3, [3, -4, 1, 0.125]), "3,11,-15,4,0");
  check("5.6 clip 7", quantiseDense({ ...message, clip: 7 }, 3, [3, -4, 1, 0.125]), "3,7,-7,4,0");
  check("5.6 clip 1", quantiseDense({ ...message, clip: 1 }, 3, [3, -4, 1, 0.125]), "3,1,-1,1,0");
  check("6.1 of 4 bits", packed(7, [1, -2, 7]), "1e70");
  check("6.1 of 2 bits", packed(1, [1, -1, 0, 1, -1]), "71c0");
  const [first, second] = [1, 0].map((size) => ({ token: 1, hidden: [0, -Math.LN2], input: [size] }));
  const embedding = [[1, 0], [0, 1], [1, 1]];
  const side = { gain: [2, 1], target: [[1], [4]], target_exp: -1, v: [[1]], v_exp: 0 };
  const rows = [{ label: 0, candidates: [[first, second]] }];
  check("5.6 completion", denseGradient({ kind: "completion", embedding, factor: 1, ...side, rows }), "-0.125");
}

function checkScalars(manifest) {
  check("5.1", [0.5, -0.5, 2.5, 0.49999999999999994].map(roundHalfAway), "1,-1,3,0");
  check("5.2 raw", quantise({ ...manifest.method, directions: 4 }, [0.5, -(2 ** -9), 0.0019, 99]), "128,-1,0,1000");
  const normalised = quantise({ scalar: "normalised", directions: 4 }, [0.5, -1, 2, 0.25]);
  check("5.2 normalised", normalised, "14,-28,56,7");
  check("5.2 energy", keepsEnergyRule(normalised), true);
  const half = quantise({ scalar: "normalised", directions: 4 }, [0.5, -1]);
  check("5.2 two of four", half, "20,-40,0,0");
  check("5.2 energy of two of four", keepsEnergyRule(half), true);
  check("5.3", [0, 1, 2, 20, 38, 39].map((step) => weightOf(manifest, step)), "500,490,479,295,110,100");
  check("5.4", exampleRows(SEED, 4, 1000), "600,351,774,0");
  check("4.5 bound", coefficientBound(manifest), "8192000000");
}

function checkRecordAndLedger(run) {
  check("1.2 run id", hex(run.runId), "2096198bcf7484510b91f66b16ac1ae5d7b454e3799df0c33abc4c715681aec5");
  check("6.1", hex(makeRecord(run, Buffer.alloc(32), 7, [-300])), hex(EXAMPLE_RECORD));
  check("6.2", checkRecord(run, EXAMPLE_RECORD).scalars, "-300");
  const [ledger, coefficients] = [new Ledger(run), new Coefficients(run)];
  checkEmpty(ledger, coefficients);
  check("7.1 first", addTo(ledger, coefficients, EXAMPLE_RECORD).verdict, "counts");
  check("7.1 again", addTo(ledger, coefficients, EXAMPLE_RECORD).reason, "ALREADY_HELD");
  checkOne(ledger, coefficients);
  const second = makeRecord(run, Buffer.alloc(32), 7, [5]);
  check("7.2", addTo(ledger, coefficients, second).verdict, "voids");
  check("7.2 further", addTo(ledger, coefficients, EXAMPLE_RECORD).reason, "SLOT_VOID");
  checkVoid(ledger, coefficients);
}

const EMPTY_STATE = "c31bbf32df14a0a09e7fbaf6214d2d1577506ae85465d467e7fa54de781ed6f1";

function checkEmpty(ledger, coefficients) {
  check("7.4 empty", hex(coefficients.digest()), EMPTY_STATE);
  check("7.5 empty", hex(ledger.root()), "a896c7e907e542b6d2583bc1dea2f5260b47d003033b04bc167f66657ade3015");
}

function checkOne(ledger, coefficients) {
  const flat = coefficients.flat(0);
  const nonZero = [...flat.entries()].filter(([, value]) => value !== 0).join(" ");
  check("7.4 flat", nonZero, "51,128400 66,128400 83,-128400");
  check("7.4 epoch", hex(epochDigest(flat)), "19743beb0e9b025f9d4c3325831631f062ccc79f8d1abc0ae10f0ad700425ed3");
  check("7.4", hex(coefficients.digest()), "3e28ee10b0b3b0fd5249edda95db29b27b5cab295de00094cf7207910c7261a0");
  check("7.5 payload", hex(payloadHash(EXAMPLE_RECORD.subarray(0, 46))), "4eac6bdfb56944f2");
  check("7.5 bucket", hex(ledger.buckets(0)[0][1]), "9f4ffe8219ccec4f6f61633da62fd02e");
  check("7.5 shard", hex(ledger.shards(0)[0][1]), "337380a151294accd4958e9caf1aafe3");
  check("7.5 span", hex(ledger.spans()[0][1]), "b25b8c10962085a185a5f2bba13a1874");
  check("7.5 root", hex(ledger.root()), "b3f2ee5e594089423699d0b76cce96697bc70b1774839a3cdcdc0ddfe7dac93c");
}

function checkVoid(ledger, coefficients) {
  check("7.5 void bucket", hex(ledger.buckets(0)[0][1]), "8c80b05cbd8041603da4e8e7a0b0be05");
  check("7.5 void root", hex(ledger.root()), "df14b9bc204b927db554be650bd681cdb5bb7975336ea16f2937adf60a042bf4");
  check("7.5 void state", hex(coefficients.digest()), EMPTY_STATE);
}

function checkStatements(run) {
  check("2.4", workOf(COUNTING_RUN_ID, EXAMPLE_RECORD.subarray(0, 32)), 1);
  const [ledger, coefficients] = [new Ledger(run), new Coefficients(run)];
  addTo(ledger, coefficients, EXAMPLE_RECORD);
  check("7.7", ledger.state(EXAMPLE_STATEMENT, coefficients).verdict, "counts");
  check("7.7 state", hex(coefficients.digest()), EMPTY_STATE);
  check("7.7 digest", hex(ledger.roster.digest()), "9d4940a37bfca8a308bd96dbf2f3aef2");
  check("7.7 root", hex(ledger.root()), "8e9a19230e57e7839d1552c707ce7ec95ab5d02de7cc5485d0e80b91e32245f2");
  check("7.7 record", addTo(ledger, coefficients, EXAMPLE_RECORD).reason, "EXCLUDED");
}

function checkMessages() {
  check("8.1 Ping", hex(encodeMessage("Ping", 300)), "9201cd012c");
  check("8.1 PeersRequest", hex(encodeMessage("PeersRequest")), "9103");
  check("8.1 SpansRequest", hex(encodeMessage("SpansRequest", 5)), "920a05");
  check("8.1 PullDone", hex(encodeMessage("PullDone", 5, 1)), "93130501");
  const zeros = Buffer.alloc(32);
  const hello = encodeMessage("Hello", 2, zeros, "sfnode/0.1", ["/ip4/10.0.0.1/tcp/4001"], 0);
  const expected = `960002c420${hex(zeros)}aa73666e6f64652f302e3191b62f6970342f31302e302e302e312f7463702f3430303100`;
  check("8.1 Hello", hex(hello), expected);
  check("8.2", decodeMessage(hello).fields.agent, "sfnode/0.1");
  checkSessionSizes(zeros);
}

/** Bytes of 8.4's example session, with the 4 bytes of a frame header. */
function checkSessionSizes(author) {
  const [digest, bitmap] = [Buffer.alloc(16), Buffer.alloc(128)];
  const sizes = [
    encodeMessage("SpansRequest", 1),
    encodeMessage("Spans", 1, digest, [[0, digest]]),
    encodeMessage("ShardsRequest", 2, 0),
    encodeMessage("AuthorsRequest", 3, 0, [61], author),
    encodeMessage("Authors", 3, 0, [[author, digest, bitmap, bitmap]], true),
    encodeMessage("PullRequest", 4, [[0, author, bitmap]]),
  ].map((message) => message.length + 4);
  check("8.4", sizes, "7,46,8,44,323,174");
  const answer = encodeMessage("Records", 4, EXAMPLE_RECORD).length + encodeMessage("PullDone", 4, 1).length + 8;
  check("8.4 answer", answer, 127);
}

const run = readManifest(EXAMPLE_MANIFEST);
checkHashing();
checkGenerator();
checkSubspace();
checkModel();
checkBasisFile();
checkDense();
checkScalars(run.manifest);
checkRecordAndLedger(run);
checkStatements(run);
checkMessages();
for (const failure of failures) console.log(failure);
console.log(`selfcheck: ${checked - failures.length} of ${checked} worked numbers agree`);
process.exitCode = failures.length === 0 ? 0 : 1;
